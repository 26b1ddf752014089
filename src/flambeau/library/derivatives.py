"""Operators that are the derivative of another, such as gelu_backward.

Where the schema has the arguments of the operator it belongs to, the derivative is taken of that: `f_backward(grad, self, ...)` is the pull-back of f at
self. Where it has results instead, or sizes, there is a function below.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod
from typing import Any

from flambeau import dtypes
from flambeau.library.parts import FOUND, enter, op, part, where_masked
from flambeau.operators.overloads import OpOverload, aten
from flambeau.tensor import Tensor

# The operator that a derivative belongs to, where its name says it differently.
BASES = {
    "log_sigmoid_backward": "log_sigmoid", "select_backward": "select.int", "slice_backward": "slice.Tensor",
    "max_pool2d_with_indices_backward": "max_pool2d_with_indices", "_embedding_bag_dense_backward": "_embedding_bag",
}  # fmt: skip
GRADS = ("grad_output", "grad", "grad_out", "grad_in", "grad_w")
SIZES = ("input_sizes", "input_size", "self_sizes", "sizes")


def pull_back(function: Callable, inputs: tuple, grads: Any) -> tuple:
    """The gradients of function(*inputs) for these gradients of its result."""
    from flambeau.func import vjp  # few programs ask: the room is imported for them

    return vjp(function, *inputs)[1](grads)


def of(overload: OpOverload) -> Callable | None:
    """The pull-back of the operator that this one is the derivative of; None if it is none, or its arguments are not enough."""
    base = _base(overload)
    schema = overload._schema
    if base is None or len([a for a in schema.arguments if a.is_out]) or len(schema.returns) != 1:
        return None
    names = {a.name for a in schema.arguments}
    grad = next((name for name in GRADS if name in names), None)
    sizes = next((name for name in SIZES if name in names), None)
    first = base._schema.arguments[0].name
    if grad is None or (first not in names and sizes is None):
        return None
    return lambda **bound: _pull_back(base, bound, grad, sizes, first)


def _pull_back(base: OpOverload, bound: dict[str, Any], grad: str, sizes: str | None, first: str) -> Tensor:
    from flambeau.library.aten import runner

    given = bound[grad]
    at = bound[first] if first in bound else given.new_zeros(bound[sizes or ""])
    others = {a.name: bound.get(a.name, a.default) for a in base._schema.arguments if a.name != first}
    run = runner(base)

    def forward(x: Tensor) -> Tensor:
        found = run(**{first: x}, **others)
        return found[0] if isinstance(found, list | tuple) else found

    return pull_back(forward, (at,), given)[0]


def _base(overload: OpOverload) -> OpOverload | None:
    name = overload._opname
    if not name.endswith("_backward"):
        return None
    base, _, which = BASES.get(name, name.removesuffix("_backward")).partition(".")
    packet = getattr(aten, base, None)
    if packet is None:
        return None
    return getattr(packet, which or "default", None)


# -- those that read results ---------------------------------------------------------------------------------------------------------------


@part("_softmax_backward_data")
def _softmax_backward_data(grad_output, output, dim, input_dtype):
    product = grad_output * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)


@part("elu_backward")
def elu_backward(grad_output, alpha, scale, input_scale, is_result, self_or_result):
    x = self_or_result
    below = (x + alpha * scale) * input_scale if is_result else (x * input_scale).exp() * (alpha * scale * input_scale)
    return grad_output * below.where(x <= 0, x.new_full((), scale))


@part("softplus_backward")
def softplus_backward(grad_output, self, beta, threshold):
    z = self * beta
    return grad_output.where(z > threshold, grad_output * z.sigmoid())


@part("masked_scatter_backward")
def masked_scatter_backward(grad_output, mask, sizes):
    picked = grad_output.masked_select(mask.expand(grad_output.shape))
    made = picked.new_zeros(prod(sizes))
    made[: picked.numel()] = picked[: made.numel()]
    return made.view(sizes)


@part("_unsafe_masked_index_put_accumulate")
def _unsafe_masked_index_put_accumulate(self, mask, indices, values):
    return FOUND["index_put"](self, where_masked(mask, indices), values.masked_fill(~mask, 0), True)


@part("binary_cross_entropy_backward")
def binary_cross_entropy_backward(grad_output, self, target, weight, reduction):
    found = (self - target) / ((1 - self) * self).clamp(min=1e-12) * grad_output
    found = found if weight is None else found * weight
    return found / self.numel() if reduction == 1 else found


def leaky_relu_backward(grad_output, self, negative_slope, self_is_result=False):
    return grad_output.where(self > 0, grad_output * negative_slope)


SHORT: dict[str, Callable] = {
    "sigmoid_backward": lambda grad_output, output: grad_output * (output * (1 - output)).conj(),
    "tanh_backward": lambda grad_output, output: grad_output * (1 - output * output).conj(),
    "threshold_backward": lambda grad_output, self, threshold: grad_output.where(self > threshold, grad_output.new_zeros(())),
    "_log_softmax_backward_data": lambda grad_output, output, dim, input_dtype: (
        grad_output - output.exp() * grad_output.sum(dim, keepdim=True)
    ).to(input_dtype),
    "leaky_relu_backward": leaky_relu_backward,
    "rrelu_with_noise_backward": lambda grad_output, self, noise, lower, upper, training, self_is_result: (
        grad_output * noise if training else leaky_relu_backward(grad_output, self, (lower + upper) / 2)
    ),
    "_prelu_kernel_backward": lambda grad_output, self, weight: (
        leaky_relu_backward(grad_output, self, weight), (grad_output * self).where(self <= 0, grad_output.new_zeros(()))
    ),
    "native_dropout_backward": lambda grad_output, mask, scale: grad_output * mask.to(grad_output.dtype) * scale,
    "embedding_dense_backward": lambda grad_output, indices, num_weights, padding_idx, scale_grad_by_freq: op("_embedding_backward")(
        grad_output, indices, num_weights, padding_idx, scale_grad_by_freq
    ),
    "unfold_backward": lambda grad_in, input_sizes, dim, size, step: op("_unfold_backward")(grad_in, tuple(input_sizes), dim, size, step),
    "nll_loss_backward nll_loss2d_backward": lambda grad_output, self, total_weight, **given: pull_back(
        lambda x: FOUND["nll_loss"](x, **given), (self,), grad_output
    )[0],
    "_cdist_backward": lambda grad, x1, x2, p, cdist: pull_back(lambda x: FOUND["_cdist_forward"](x, x2, p, None), (x1,), grad)[0],
    "_pdist_backward": lambda grad, self, p, pdist: pull_back(lambda x: FOUND["_pdist_forward"](x, p), (self,), grad)[0],
    "_scaled_dot_product_flash_attention_for_cpu_backward": lambda grad_out, query, key, value, out, logsumexp, dropout_p, **given: pull_back(
        lambda q, k, v: op("nn.functional.scaled_dot_product_attention")(q, k, v, **given), (query, key, value), grad_out
    ),
}  # fmt: skip
enter(SHORT)


# -- those with several results, of which a mask says which are wanted -----------------------------------------------------------------------


def _masked(function: Callable, inputs: list, grads: Any, mask: list[bool]) -> tuple:
    """The gradients of those inputs that are tensors and wanted; None for the others."""
    wanted = [at for at, value in enumerate(inputs) if value is not None and mask[at]]

    def of_wanted(*values: Tensor) -> Any:
        full = list(inputs)
        for at, value in zip(wanted, values, strict=True):
            full[at] = value
        return function(*full)

    found = pull_back(of_wanted, tuple([inputs[at] for at in wanted]), grads)
    result: list[Any] = [None] * len(inputs)
    for at, value in zip(wanted, found, strict=True):
        result[at] = value
    return tuple(result)


@part("convolution_backward")
def convolution_backward(
    grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask
):  # fmt: skip
    def forward(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return op("convolution")(x, w, b, stride, padding, dilation, transposed, output_padding, groups)

    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    bias = input.new_zeros(out_channels) if output_mask[2] else None
    return _masked(forward, [input, weight, bias], grad_output, output_mask)


enter({
    "linear_backward": lambda self, grad_output, weight, output_mask: _masked(
        op("nn.functional.linear"), [self, weight, self.new_zeros(weight.shape[0])], grad_output, output_mask
    ),
    "matmul_backward": lambda grad, self, other, mask: _masked(op("matmul"), [self, other], grad, mask),
    "grid_sampler_2d_backward grid_sampler_3d_backward": lambda grad_output, input, grid, output_mask, **given: _masked(
        lambda x, g: op("grid_sampler")(x, g, **given), [input, grid], grad_output, output_mask
    ),
    "batch_norm_backward": lambda save_var, update, reserve, **given: native_batch_norm_backward(
        save_invstd=save_var, train=update, **given
    ),
})  # fmt: skip


def _asked(mask: list[bool], *gradients: Callable) -> tuple:
    """Those that are wanted; None for the others."""
    return tuple([gradient() if wanted else None for wanted, gradient in zip(mask, gradients, strict=True)])


def _through_norm(h: Tensor, y: Tensor, rstd: Tensor, dims: tuple[int, ...]) -> Tensor:
    """How h, the gradient of y, reaches what y is the normalization of."""
    return (h - h.mean(dims, keepdim=True) - y * (h * y).mean(dims, keepdim=True)) * rstd


@part("native_layer_norm_backward")
def native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask):
    y, trailing = (input - mean) * rstd, tuple(range(-len(normalized_shape), 0))
    return _asked(
        output_mask,
        lambda: _through_norm(grad_out if weight is None else grad_out * weight, y, rstd, trailing),
        lambda: None if weight is None else (grad_out * y).sum_to_size(tuple(normalized_shape)).to(weight.dtype),
        lambda: None if bias is None else grad_out.sum_to_size(tuple(normalized_shape)).to(bias.dtype),
    )


@part("native_group_norm_backward")
def native_group_norm_backward(grad_out, input, mean, rstd, weight, N, C, HxW, group, output_mask):
    mean, rstd = mean.view(N, group, 1), rstd.view(N, group, 1)
    y, grads = (input.reshape(N, group, -1) - mean) * rstd, grad_out.reshape(N, C, HxW)
    h = grads if weight is None else grads * weight.view(1, C, 1)
    return _asked(
        output_mask,
        lambda: _through_norm(h.reshape(N, group, -1), y, rstd, (-1,)).view(input.shape),
        lambda: None if weight is None else (grads * y.reshape(N, C, HxW)).sum((0, 2)),
        lambda: grads.sum((0, 2)),
    )


@part("native_batch_norm_backward")
def native_batch_norm_backward(
    grad_out, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps, output_mask
):  # fmt: skip
    shape, others = [1, -1] + [1] * (input.dim() - 2), (0, *range(2, input.dim()))
    mean, rstd = (save_mean, save_invstd) if train else (running_mean, (running_var + eps).rsqrt())
    mean, rstd = mean.view(shape), rstd.view(shape)
    y, h = (input - mean) * rstd, grad_out if weight is None else grad_out * weight.view(shape)
    return _asked(
        output_mask,
        lambda: _through_norm(h, y, rstd, others) if train else h * rstd,
        lambda: (grad_out * y).sum(others),
        lambda: grad_out.sum(others),
    )


# -- those that were told where the largest were -----------------------------------------------------------------------------------------


def _to_places(grad_output: Tensor, self: Tensor, indices: Tensor, places: int) -> Tensor:
    """Gradients of a pooling that chose: each goes to where its element came from, counted within the plane."""
    kept = self.shape[: self.dim() - places]
    flat = grad_output.new_zeros((*kept, prod(self.shape[self.dim() - places :])))
    return flat.scatter_add(-1, indices.reshape(*kept, -1), grad_output.reshape(*kept, -1)).view(self.shape)


enter({
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward": lambda grad_output, self, kernel_size, indices, **_: _to_places(
        grad_output, self, indices, len(kernel_size)
    ),
    "fractional_max_pool2d_backward fractional_max_pool3d_backward": lambda grad_output, self, kernel_size, output_size, indices: _to_places(
        grad_output, self, indices, len(kernel_size)
    ),
    "adaptive_max_pool2d_backward": lambda grad_output, self, indices: _to_places(grad_output, self, indices, 2),
    "adaptive_max_pool3d_backward": lambda grad_output, self, indices: _to_places(grad_output, self, indices, 3),
})  # fmt: skip


@part("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool_backward(grad_output, self):
    places = 2 if self.dim() < 5 and grad_output.dim() < 5 else 3
    size = list(grad_output.shape[-places:])
    return pull_back(lambda x: FOUND["_adaptive_avg_pool2d"](x, size), (self,), grad_output)[0]


# -- attention ---------------------------------------------------------------------------------------------------------------------------


@part("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_for_cpu(query, key, value, dropout_p, is_causal, attn_mask, scale):
    found = op("nn.functional.scaled_dot_product_attention")(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        allowed = scores.new_ones(scores.shape[-2:], dtype=dtypes.bool).tril()
        scores = scores.masked_fill(~allowed, -inf)
    if attn_mask is not None:
        scores = scores + attn_mask if attn_mask.is_floating_point() else scores.masked_fill(~attn_mask, -inf)
    return found, scores.logsumexp(-1)
