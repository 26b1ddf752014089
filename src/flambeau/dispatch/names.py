"""Under which name of PyTorch's kernels an operation is asked for, and with which arguments.

Most operations are called as PyTorch's kernels are. `IMPLICIT` are those for which PyTorch has no kernel: they are made of others there, too, and
nobody is asked about them. `TRANSLATED` are operations that exist only here, and mean a kernel with other arguments. What has no kernel in
PyTorch at all is asked for as `flambeau::name`: whoever unwraps arguments and calls on need not know it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from flambeau.eager.arguments import Arguments
from flambeau.kernels import layout
from flambeau.ops import formats, overloads
from flambeau.ops.schema import parse
from flambeau.tensor import Tensor

# Functions of PyTorch that are made of others, as far as they are operations here.
IMPLICIT = frozenset("""
adjoint alpha_dropout alpha_dropout_ argsort argwhere atleast_1d atleast_2d atleast_3d avg_pool1d batch_norm broadcast_tensors broadcast_to cartesian_prod cdist
chain_matmul chunk column_stack combinations conj conj_physical contiguous conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d corrcoef
cosine_similarity cov cross cumulative_trapezoid det diag diagflat diff dropout dropout_ dsplit dstack einsum embedding_bag expand_as
fake_quantize_per_channel_affine fake_quantize_per_tensor_affine feature_alpha_dropout feature_alpha_dropout_ feature_dropout feature_dropout_ fft_fft fft_fft2
fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn
fft_rfft fft_rfft2 fft_rfftn flatten fliplr flipud float_power float_power_ frobenius_norm gradient grid_sampler group_norm gru gru_cell histogramdd hsplit hstack
imag inner instance_norm inverse isclose isfinite isreal istft kron layer_norm linalg_cholesky linalg_cond linalg_det linalg_diagonal linalg_eigh linalg_eigvals
linalg_eigvalsh linalg_inv linalg_ldl_factor linalg_lu_factor linalg_matrix_norm linalg_matrix_power linalg_matrix_rank linalg_multi_dot linalg_norm linalg_pinv
linalg_slogdet linalg_solve linalg_solve_ex linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve linalg_vander linalg_vecdot logdet log_softmax lstm
lstm_cell lu_solve matmul matrix_exp matrix_power max_pool1d max_pool1d_with_indices max_pool2d max_pool3d meshgrid movedim msort nanmean nanquantile narrow
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d bilinear cosine_embedding_loss cross_entropy_loss ctc_loss hinge_embedding_loss kl_div l1_loss
linear margin_ranking_loss multilabel_margin_loss nll_loss one_hot pad poisson_nll_loss relu6 rrelu scaled_dot_product_attention selu selu_ softmax
triplet_margin_loss norm_except_dim nuclear_norm orgqr outer pairwise_distance pdist pinverse positive prelu qr quantile ravel real reshape reshape_as resolve_conj
resolve_neg result_type rms_norm rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell rrelu_ slogdet square stft sum_to_size svd swapaxes swapdims
take_along_dim tensor_split tensordot tile to trapezoid true_divide type_as unflatten unsafe_chunk vander view_as vsplit vstack where_ cpu cuda special_ndtr
""".split())  # fmt: skip
SPELLED = {"linalg.": "linalg_", "special.": "special_", "fft.": "fft_", "nn.functional.": "", "Tensor.": ""}
OTHERWISE = {"gelu": "gelu", "Tensor.random": "random", "nn.functional.fold": "col2im", "nn.functional.unfold": "im2col"}


@cache
def _name(op_name: str) -> str | None:
    for room, prefix in SPELLED.items():
        if op_name.startswith(room):
            op_name = prefix + op_name.removeprefix(room)
    return None if op_name in IMPLICIT else op_name


def of(op, suffix: str = "") -> str | None:
    """The name of PyTorch's kernel for an operation, without suffix; None if there is none."""
    name = OTHERWISE.get(op.name) or _name(op.name)
    if name is None or name.startswith("_") or packet_of(name + suffix) is None:
        return None
    return name


@cache
def packet_of(name: str) -> Any:
    """torch.ops.aten.<name>; None if there is no such kernel."""
    return overloads.defined("aten", name)


@cache
def prim(name: str) -> Any:
    """torch.ops.prim.<name>: device or layout."""
    found = overloads.defined("prim", name)
    if found is None:
        schema = parse(f"prim::{name}(Tensor a) -> {'Device' if name == 'device' else 'int'}")
        found = overloads.define(schema, []).overloadpacket
    return found


def resolved(packet: Any, args: tuple, kwargs: dict) -> tuple[Any, tuple, dict]:
    """The overload that takes these arguments, and they as it takes them."""
    packet = getattr(packet, EXACTLY.get(packet.__name__, ""), packet)
    return overloads.resolve(packet, args, kwargs)


Call = tuple[Any, tuple, dict]  # an overload and its arguments


def call(op, args: tuple, kwargs: dict, suffix: str = "") -> Call | None:
    """The overload that an operation is asked for as, and its arguments; None for what no kernel of PyTorch does and that is made of others here."""
    ending = "_" if suffix == "_" else ""
    is_leaf = op.kind in ("pointwise", "array", "view")
    if op.variadic is not None and len(args) > op.n_positional:
        args = (*args[: op.n_positional], _one_list(args[op.n_positional :]))
    translate = TRANSLATED.get(op.name) if not suffix else None
    name = of(op, ending)
    if translate is not None:
        name, given, named = translate(op, *args, **kwargs)
    else:
        given, named = args, kwargs
        if name is None and is_leaf and op.name.startswith("_"):
            name = op.name if packet_of(op.name) is not None else op.name.removeprefix("_")
    packet = None if name is None else packet_of(name + ending)
    if packet is not None:
        for attempt in (_as_given, _by_name):
            try:
                return resolved(packet, *attempt(op, packet, given, named))
            except (TypeError, RuntimeError):  # of no overload: an operation that is more, or less, than the kernel of that name
                continue
    return (private(op, ending), args, kwargs) if is_leaf else None


def _as_given(op, packet: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    return args, {RENAMED.get(k, k): v for k, v in kwargs.items()}


REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def _by_name(op, packet: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """All arguments by name, without those that the function has and no kernel does, where they say nothing."""
    if op.variadic is not None:
        raise TypeError("as many arguments as there are")
    known = {a.name for overload in packet._overloads.values() for a in overload._schema.arguments}
    values = Arguments(op).values(args, kwargs)
    found = {RENAMED.get(p, p): v for p, v in zip(op.parameters, values, strict=True)}
    for parameter, default in op.defaults.items():
        name = RENAMED.get(parameter, parameter)
        if name not in known and found.get(name) is default:
            del found[name]
    if isinstance(found.get("reduction"), str):
        found["reduction"] = REDUCTIONS[found["reduction"]]
    return (), found


def _one_list(rest: tuple) -> Any:
    """x.view(2, 3) and x.view((2, 3)): kernels take a list."""
    if len(rest) == 1 and not hasattr(rest[0], "__index__"):
        return list(rest[0]) if isinstance(rest[0], tuple | list) else rest[0]
    return list(rest)


EXACTLY = {"copy_": "default"}  # where other overloads are for numbers that are never given
RENAMED = {"input": "self", "dims": "dim", "stop": "end"}


# -- what exists only here -------------------------------------------------------------------------------------------------


@cache
def private(op, suffix: str) -> Any:
    """torch.ops.flambeau.<name>: an operation that PyTorch has no kernel for."""
    return Private(op, suffix)


class Private(overloads.OpOverload):
    """An operation under our own name. It is called as it was called."""

    def __init__(self, op, suffix: str):
        schema = parse(f"flambeau::{op.short}{suffix}(...) -> ...")
        super().__init__(overloads.OpOverloadPacket("flambeau", schema.name.partition("::")[2], (schema,)), schema)
        self.function = op.call_inplace if suffix else op.call

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


# -- translations ----------------------------------------------------------------------------------------------------------

Translated = tuple[str | None, tuple, dict]
TRANSLATED: dict[str, Callable[..., Translated]] = {}


def translation(*names: str) -> Callable:
    """Register how operations of these names are asked for: (name, args, kwargs)."""

    def register(function: Callable) -> Callable:
        TRANSLATED.update(dict.fromkeys(names, function))
        return function

    return register


@translation("_clone")
def _(op, input: Tensor, strides: tuple) -> Translated:
    return "clone", (input,), {"memory_format": _format(input, strides)}


def _format(input: Tensor, strides: tuple) -> Any:
    shape = tuple(input._array.shape)
    if tuple(strides) == layout.contiguous_strides(shape):
        return formats.contiguous_format
    for format in (formats.channels_last, formats.channels_last_3d):
        if len(shape) == (4 if format is formats.channels_last else 5) and formats.holds(shape, strides, format):
            return format
    return formats.preserve_format


@translation("_to_copy")
def _(op, input: Tensor, dtype, device, strides, non_blocking=False) -> Translated:
    wanted: dict[str, Any] = {} if dtype is input.dtype else {"dtype": dtype}
    if device != input.device:
        wanted["device"] = device
    if non_blocking:
        wanted["non_blocking"] = True
    if strides is not None:
        wanted["memory_format"] = _format(input, strides)
    return "_to_copy", (input,), wanted


@translation("softmax", "log_softmax")
def _(op, input: Tensor, dim: int) -> Translated:
    return f"_{op.short}", (input, dim, False), {}


@translation("nn.functional.embedding")
def _(op, input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False) -> Translated:
    return "embedding", (weight, input, -1 if padding_idx is None else padding_idx, scale_grad_by_freq, sparse), {}


@translation("_softmax_backward", "_log_softmax_backward")
def _(op, g: Tensor, y: Tensor, dim: int) -> Translated:
    return f"{op.name}_data", (g, y, dim, g.dtype), {}


@translation("_convolution_of")
def _(op, input, weight, bias, sizes, stride, padding, dilation, transposed, groups) -> Translated:
    n = len(stride)
    if any(isinstance(p, tuple | list) for p in padding):  # another amount on each side
        return None, (input, weight, bias, sizes, stride, padding, dilation, transposed, groups), {}
    extra = [0] * n
    if transposed:
        spans = [
            (size - 1) * s - 2 * p + d * (k - 1) + 1
            for size, s, p, d, k in zip(input.shape[2:], stride, padding, dilation, weight.shape[2:], strict=True)
        ]
        extra = [size - span for size, span in zip(sizes, spans, strict=True)]
    return "convolution", (input, weight, bias, list(stride), list(padding), list(dilation), bool(transposed), extra, groups), {}


@translation("_add_scaled", "_sub_scaled", "_rsub_scaled")
def _(op, input, other, alpha) -> Translated:
    return op.name.removeprefix("_").removesuffix("_scaled"), (input, other), {"alpha": alpha}


@translation("_sum_all", "_mean_all", "_prod_all")
def _(op, input: Tensor, dtype=None) -> Translated:
    return op.name.split("_")[1], (input,), {} if dtype is None else {"dtype": dtype}


@translation("_max_all", "_min_all", "_median_all", "_nanmedian_all")
def _(op, input: Tensor) -> Translated:
    return op.name.split("_")[1], (input,), {}


@translation("_max_dim", "_min_dim", "_median_dim", "_nanmedian_dim")
def _(op, input: Tensor, dim: int, keepdim: bool = False) -> Translated:
    return op.name.split("_")[1], (input, dim, keepdim), {}


@translation("_sum", "_mean", "_nansum")
def _(op, input: Tensor, dims, keepdim=False, dtype=None) -> Translated:
    return op.name[1:], (input, list(dims), keepdim), {} if dtype is None else {"dtype": dtype}


@translation("_power_to_number", "_power_of_number")
def _(op, input, exponent) -> Translated:
    return "pow", (input, exponent), {}


@translation("_square", "_cube", "_root", "_inverse_root", "_inverse", "_inverse_square")
def _(op, input: Tensor) -> Translated:
    powers = {"_square": 2, "_cube": 3, "_inverse_square": -2}
    if op.name in powers:
        return "pow", (input, powers[op.name]), {}
    return {"_root": "sqrt", "_inverse_root": "rsqrt", "_inverse": "reciprocal"}[op.name], (input,), {}


@translation("_rdiv")
def _(op, input, other) -> Translated:
    return "div", (other, input), {}


@translation("_div_trunc", "_div_floor", "_div_trunc_integers")
def _(op, input, other) -> Translated:
    return "div", (input, other), {"rounding_mode": op.name.split("_")[2]}


@translation("_remainder_by_number", "_fmod_by_number")
def _(op, input, other) -> Translated:
    return op.name.split("_")[1], (input, other), {}


@translation("_clamp_between", "_clamp")
def _(op, input, min, max) -> Translated:
    return "clamp", (input, min, max), {}


@translation("_clamp_low", "_clamp_above")
def _(op, input, min) -> Translated:
    return "clamp_min", (input, min), {}


@translation("_clamp_high", "_clamp_below")
def _(op, input, max) -> Translated:
    return "clamp_max", (input, max), {}


@translation("_split", "_split_with_sizes")
def _(op, input: Tensor, dim: int, bounds) -> Translated:
    sizes = [length for _, length in bounds]
    if op.name == "_split" and sizes and all(n == sizes[0] for n in sizes[:-1]) and sizes[-1] <= sizes[0]:
        return "split", (input, sizes[0], dim), {}
    return "split_with_sizes", (input, sizes, dim), {}


@translation("_squeeze0", "_squeeze1", "_squeeze2", "_squeeze4")
def _(op, input: Tensor, dim=None) -> Translated:
    return "squeeze", (input,) if dim is None else (input, dim), {}


@translation("_slice")
def _(op, input: Tensor, dim: int, start, stop, step) -> Translated:
    return "slice", (input, dim, start, stop, step), {}


@translation("_repeat")
def _(op, input: Tensor, times) -> Translated:
    return "repeat", (input, list(times)), {}


@translation("_cat", "_stack")
def _(op, tensors, dim=0) -> Translated:
    return op.name[1:], (list(tensors), dim), {}


@translation("_logsigmoid")
def _(op, input: Tensor) -> Translated:
    return "log_sigmoid", (input,), {}
