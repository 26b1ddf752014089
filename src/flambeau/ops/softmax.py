"""Softmax and its logarithm: numbers turned into a distribution along one dimension."""

from __future__ import annotations

from flambeau import errors
from flambeau.kernels.language import expr as e
from flambeau.kernels.loops.language import peak, total
from flambeau.ops.declare import composite
from flambeau.ops.rowwise import rowwise


@rowwise(aliases=("special.softmax",), grad_name="SoftmaxBackwardBackward0", autocast="cuda float32 unless dtype")
def softmax(row):
    """exp(x_i) / sum_j exp(x_j) along `dim`. Same shape; `dtype` is what it is computed in."""
    powers = e.exp(row - peak(row))  # shifted, so that exp cannot overflow
    return powers * (1 / total(powers))  # one division for the row


@rowwise(aliases=("special.log_softmax",), grad_name="LogSoftmaxBackwardBackward0", autocast="cuda float32 unless dtype")
def log_softmax(row):
    """x_i - log(sum_j exp(x_j)) along `dim`: the logarithm of softmax, without its underflow. Same shape."""
    shifted = row - peak(row)
    return shifted - e.log(total(e.exp(shifted)))


# -- as functions of torch.nn.functional: dim may be left out there, with a warning ----------------------------------------------


def _guessed(name: str, input, dim, stacklevel: int) -> int:
    """The dimension old programs leave out: the first of 0-d, 1-d and 3-d tensors, else the second."""
    return implicit_dim(name, input.dim(), stacklevel + 1) if dim is None else dim


def implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The same by the number of dimensions, with a warning."""
    errors.warn(f"Implicit dimension choice for {name} is deprecated: say dim=")
    return 0 if ndim in (0, 1, 3) else 1


@composite(name="nn.functional.softmax", method=False, autocast="cuda float32 unless dtype")
def functional_softmax(input, dim=None, _stacklevel=3, dtype=None):
    """exp(x_i) / sum_j exp(x_j) along `dim`. Same shape."""
    return softmax(input, _guessed("softmax", input, dim, _stacklevel), dtype)


@composite(name="nn.functional.softmin", method=False)
def functional_softmin(input, dim=None, _stacklevel=3, dtype=None):
    """exp(-x_i) / sum_j exp(-x_j) along `dim`. Same shape."""
    return softmax(-input, _guessed("softmin", input, dim, _stacklevel), dtype)


@composite(name="nn.functional.log_softmax", method=False, autocast="cuda float32 unless dtype")
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
