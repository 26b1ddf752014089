"""Softmax and its logarithm: numbers turned into a distribution along one dimension."""

from __future__ import annotations

from flambeau import errors
from flambeau.kernels import arrays, layout
from flambeau.kernels.reductions import rowwise
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.reductions import checked_dtype
from flambeau.ops.views import whole


@on_arrays(out="same", aliases=("special.softmax",))
def softmax(input, dim, dtype=None):
    """exp(x_i) / sum_j exp(x_j) along `dim`. Same shape; `dtype` is what it is computed in."""
    return rowwise.softmax(*_rows("softmax", input, dim, dtype))


@on_arrays(out="same", aliases=("special.log_softmax",))
def log_softmax(input, dim, dtype=None):
    """x_i - log(sum_j exp(x_j)) along `dim`: the logarithm of softmax, without its underflow. Same shape."""
    return rowwise.log_softmax(*_rows("log_softmax", input, dim, dtype))


def _rows(name: str, input, dim, dtype):
    if dtype is not None:
        input = arrays.cast(input, checked_dtype(name, dtype).numpy)
    if input.dtype.kind in "biuc":
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype.name}. Try {name}(x, dim, dtype=torch.float32)')
    return input, layout.wrap_dim(whole(dim), input.ndim)


def _prepared(name: str):
    def prepare(input, dim, dtype):
        return rowwise.ready(name, layout.wrap_dim(dim, input.ndim), input) if dtype is None and input.dtype.kind not in "biuc" else None

    return prepare


softmax.work(_prepared("softmax"))
log_softmax.work(_prepared("log_softmax"))
softmax.derivative(input=lambda grad, result, dim: _softmax_backward(grad, result, layout.wrap_dim(dim, grad.dim())))
log_softmax.derivative(input=lambda grad, result, dim: _log_softmax_backward(grad, result, layout.wrap_dim(dim, grad.dim())))


softmax.quick_derivative(input=lambda grad, result, dim: rowwise.softmax_backward(grad, result, layout.wrap_dim(dim, grad.ndim)))
log_softmax.quick_derivative(input=lambda grad, result, dim: rowwise.log_softmax_backward(grad, result, layout.wrap_dim(dim, grad.ndim)))


@softmax.meta
def _(input, dim, dtype=None):
    layout.wrap_dim(dim, input.ndim)
    return input.shape, input.dtype if dtype is None else dtype.numpy


log_softmax.meta(softmax.shape_rule)


@on_arrays(public=False, method=False, grad_name="SoftmaxBackwardBackward0")
def _softmax_backward(g, y, dim):
    """y * (g - sum(g * y)): how the gradient g of a softmax y reaches its input."""
    return rowwise.softmax_backward(g, y, dim)


@on_arrays(public=False, method=False, grad_name="LogSoftmaxBackwardBackward0")
def _log_softmax_backward(g, y, dim):
    """g - exp(y) * sum(g): how the gradient g of a log-softmax y reaches its input."""
    return rowwise.log_softmax_backward(g, y, dim)


for _op in (_softmax_backward, _log_softmax_backward):
    _op.meta(lambda g, y, dim: (g.shape, g.dtype))

_softmax_backward.derivative(
    g=lambda grad, y, dim: _softmax_backward(grad, y, dim),
    y=lambda grad, g, y, dim: grad * (g - (g * y).sum(dim, keepdim=True)) - g * (grad * y).sum(dim, keepdim=True),
)
_log_softmax_backward.derivative(
    g=lambda grad, y, dim: grad - (grad * y.exp()).sum(dim, keepdim=True),
    y=lambda grad, g, y, dim: -(grad * y.exp()) * g.sum(dim, keepdim=True),
)


# -- as functions of torch.nn.functional: dim may be left out there, with a warning ----------------------------------------------


def _guessed(name: str, input, dim, stacklevel: int) -> int:
    """The dimension old programs leave out: the first of 0-d, 1-d and 3-d tensors, else the second."""
    return implicit_dim(name, input.dim(), stacklevel + 1) if dim is None else dim


def implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The same by the number of dimensions, with a warning."""
    errors.warn(f"Implicit dimension choice for {name} is deprecated: say dim=")
    return 0 if ndim in (0, 1, 3) else 1


@composite(name="nn.functional.softmax", method=False)
def functional_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """exp(x_i) / sum_j exp(x_j) along `dim`. Same shape."""
    return softmax(input, _guessed("softmax", input, dim, _stacklevel), dtype)


@composite(name="nn.functional.softmin", method=False)
def functional_softmin(input, dim=None, _stacklevel=3, dtype=None):
    """exp(-x_i) / sum_j exp(-x_j) along `dim`. Same shape."""
    return softmax(-input, _guessed("softmin", input, dim, _stacklevel), dtype)


@composite(name="nn.functional.log_softmax", method=False)
def functional_log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """x_i - log(sum_j exp(x_j)) along `dim`. Same shape."""
    return log_softmax(input, _guessed("log_softmax", input, dim, _stacklevel), dtype)


@composite(name="nn.functional.gumbel_softmax", method=False)
def gumbel_softmax(logits, tau=1, hard=False, eps=1e-10, dim=-1):
    """A sample from the distribution that the logits describe, made differentiable: softmax((logits + Gumbel noise) / tau) along `dim`.

    hard: a one where the sample is largest and zeros elsewhere, with the derivative of the soft sample (Jang et al. 2017).
    """
    if eps != 1e-10:
        errors.warn("gumbel_softmax: `eps` is deprecated, and ignored.")
    noise = -logits.new_empty(logits.shape).exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    one_hot = logits.new_zeros(logits.shape).scatter_(dim, soft.max(dim, keepdim=True)[1], 1.0)
    return one_hot - soft.detach() + soft
