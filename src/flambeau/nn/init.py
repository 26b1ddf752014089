"""Starting values: functions that fill a tensor in place and return it. The numbers are PyTorch's after the same `manual_seed`.

fan_in is the number of inputs that each output of a layer sums over, fan_out the number of outputs that each input goes to. Keeping
variances from layer to layer (Glorot and Bengio 2010, "xavier"; He et al. 2015, "kaiming") means a scale of about 1/√fan.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

from flambeau import linalg, modes
from flambeau.eager.overrides import overridable
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty_like
from flambeau.tensor.making.random_factories import randperm

__all__ = [
    "calculate_gain", "constant", "constant_", "dirac", "dirac_", "eye", "eye_", "kaiming_normal", "kaiming_normal_", "kaiming_uniform",
    "kaiming_uniform_", "normal", "normal_", "ones_", "orthogonal", "orthogonal_", "sparse", "sparse_", "trunc_normal_", "uniform", "uniform_",
    "xavier_normal", "xavier_normal_", "xavier_uniform", "xavier_uniform_", "zeros_",
]  # fmt: skip

_GAINS = {
    **dict.fromkeys(("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "sigmoid"), 1),
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,  # empirical; 1 would be right if nothing but normalization were wanted
}


_overridable = functools.partial(overridable, home="torch.nn.init")


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """How much a layer's weights have to be larger to make up for what the nonlinearity after it takes away.

    >>> calculate_gain("leaky_relu", 0.2) == (2 / (1 + 0.2**2)) ** 0.5
    True
    """
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}. Known: {', '.join([*_GAINS, 'leaky_relu'])}")
    if param is None:
        slope = 0.01
    elif isinstance(param, (int, float)) and not isinstance(param, bool):
        slope = param
    else:
        raise ValueError(f"negative_slope {param} not a valid number")
    return math.sqrt(2.0 / (1 + slope**2))


@_overridable
@modes.no_grad()
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform in [a, b)."""
    return tensor.uniform_(a, b, generator=generator)


@_overridable
@modes.no_grad()
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with this mean and standard deviation."""
    return tensor.normal_(mean, std, generator=generator)


@modes.no_grad()
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None) -> Tensor:
    """Normal, but never outside [a, b]."""
    if mean < a - 2 * std or mean > b + 2 * std:
        said = "mean is more than 2 std from the interval [a, b]: nearly all that trunc_normal_ draws is rejected"
        warnings.warn(f"{said}. The distribution of values may be incorrect.", stacklevel=2)
    if tensor.is_meta:
        return tensor
    if _normal_cdf((b - mean) / std) - _normal_cdf((a - mean) / std) > 0.3:
        return _draw_normal(tensor, mean, std, a, b, generator)
    return _draw_uniform(tensor, mean, std, a, b, generator)


def _draw_normal(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Normal numbers, drawn again where they lie outside. Each round draws for the whole tensor: that is PyTorch's stream."""
    low, high = [tensor.new_tensor(bound, device="cpu").item() for bound in (a, b)]  # as the tensor's dtype has them
    tensor.normal_(mean, std, generator=generator)
    while (outside := (tensor < low) | (tensor > high)).any():
        tensor.copy_(empty_like(tensor).normal_(mean, std, generator=generator).where(outside, tensor))
    return tensor


def _draw_uniform(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> Tensor:
    """Uniform numbers in [a, b], each kept with a probability that falls off as the normal density does; the rest is drawn again.

    For a narrow window, where nearly all normal numbers would lie outside.
    """
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    pending: Tensor | None = None
    while True:
        candidates = empty_like(tensor).uniform_(a, b, generator=generator)
        tensor.copy_(candidates if pending is None else candidates.where(pending, tensor))
        density = candidates.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        refused = empty_like(tensor).uniform_(generator=generator).log_().gt(density)
        pending = refused if pending is None else pending & refused
        if not pending.any():
            return tensor


def _normal_cdf(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


@_overridable
@modes.no_grad()
def constant_(tensor: Tensor, val: float) -> Tensor:
    """The same value everywhere."""
    return tensor.fill_(val)


@modes.no_grad()
def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return tensor.fill_(1.0)


@modes.no_grad()
def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return tensor.zero_()


@modes.no_grad()
def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix: as many inputs as fit pass through a Linear unchanged."""
    if tensor.ndimension() != 2:
        raise ValueError(f"Only tensors with 2 dimensions are supported, found {tensor.ndimension()}")
    tensor.zero_().diagonal().fill_(1)
    return tensor


@modes.no_grad()
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The identity for convolutions: as many channels as fit pass through unchanged, within each group."""
    dimensions = tensor.ndimension()
    if dimensions not in (3, 4, 5):
        raise ValueError(f"Only tensors with 3, 4, or 5 axes can hold kernels of a convolution, found {dimensions}")
    out_channels, in_channels, *kernel = tensor.shape
    if out_channels % groups:
        raise ValueError(f"dim 0 must be divisible by groups, found {out_channels} and {groups}")
    per_group = out_channels // groups
    tensor.zero_()
    centre = tuple(size // 2 for size in kernel)
    for group in range(groups):
        for channel in range(min(per_group, in_channels)):
            tensor[(group * per_group + channel, channel, *centre)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """(fan_in, fan_out) of a weight (out, in, *kernel)."""
    if tensor.dim() < 2:
        found = f"a tensor of shape {tuple(tensor.shape)}"
        raise ValueError(f"Fan in and fan out are numbers of columns and rows: found {found} dimensions")
    outputs, inputs, *kernel = tensor.shape
    field = math.prod(kernel)
    return inputs * field, outputs * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode.lower() == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform with standard deviation gain √(2 / (fan_in + fan_out))."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = math.sqrt(3.0) * (gain * math.sqrt(2.0 / float(fan_in + fan_out)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with standard deviation gain √(2 / (fan_in + fan_out))."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(fan_in + fan_out)), generator)


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return None
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


@_overridable
def kaiming_uniform_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Uniform with standard deviation gain / √fan, for layers followed by (leaky) relu; a is its negative slope."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else uniform_(tensor, -math.sqrt(3.0) * std, math.sqrt(3.0) * std, generator)


def kaiming_normal_(tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None) -> Tensor:
    """Normal with standard deviation gain / √fan, for layers followed by (leaky) relu; a is its negative slope."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0, std, generator)


@modes.no_grad()
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A random matrix with orthonormal rows or columns, whichever are fewer; dimensions after the first are taken as one."""
    if tensor.ndimension() < 2:
        raise ValueError(f"Only tensors with 2 or more dimensions have orthogonal rows, found {tensor.ndimension()}")
    if tensor.numel() == 0 or tensor.is_meta:
        return tensor
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    noise = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
    q, r = linalg.qr(noise.t() if rows < columns else noise)
    q *= r.diag().sign()  # makes the distribution uniform over all orthogonal matrices
    tensor.view_as(q.t() if rows < columns else q).copy_(q.t() if rows < columns else q)
    return tensor.mul_(gain)


@modes.no_grad()
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """Normal, with this fraction of zeros in every column."""
    if tensor.ndimension() != 2:
        raise ValueError(f"Only tensors with 2 dimensions are supported, found {tensor.ndimension()}")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    tensor.normal_(0, std, generator=generator)
    if tensor.is_meta:
        return tensor
    for column in range(columns):
        tensor[randperm(rows)[:zeros], column] = 0
    return tensor


# -- what programs of PyTorch call by other names --------------------------------------------------------------------


def _make_deprecate(function: Callable) -> Callable:
    old = function.__name__[:-1]

    @functools.wraps(function)
    def deprecated(*args: Any, **kwargs: Any) -> Tensor:
        said = f"`nn.init.{old}` is now deprecated: its name ends with an underscore, `nn.init.{function.__name__}`."
        warnings.warn(said, FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    deprecated.__name__ = deprecated.__qualname__ = old
    deprecated.__doc__ = f"The old name of `{function.__name__}`."
    return deprecated


uniform, normal, constant, eye, dirac = map(_make_deprecate, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal = map(_make_deprecate, (xavier_uniform_, xavier_normal_))
kaiming_uniform, kaiming_normal = map(_make_deprecate, (kaiming_uniform_, kaiming_normal_))
orthogonal, sparse = map(_make_deprecate, (orthogonal_, sparse_))
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_
