"""Activations: the nonlinear functions between the layers of a network.

Each is a formula; what `torch.nn.functional` offers under its name takes an `inplace` flag too and chooses the form.
Their derivatives at a kink are PyTorch's: that of the flat side, unless the docstring says otherwise.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.language import expr as e
from flambeau.kernels.random import sampling
from flambeau.kernels.random.drawing import fill, source
from flambeau.ops import specs
from flambeau.ops.arithmetic import NO_BOOL_SUB
from flambeau.ops.bounds import _clamp
from flambeau.ops.conditional import _where
from flambeau.ops.declare import choice, composite, on_arrays, pointwise

block = functools.partial(pointwise, public=False, method=False, dtypes="float", complex=False)


def run(op, inplace: bool, *arguments):
    """The operation, or its in-place form."""
    return op.call_inplace(*arguments) if inplace else op.call(*arguments)


def functional(op):
    """Declare nn.functional.<name>: what the operation does, its arguments followed by an `inplace` flag."""
    shown = ", ".join(f"{p}=defaults[{p!r}]" if p in op.defaults else p for p in op.parameters)
    given = ", ".join(op.parameters)
    known = {"op": op, "defaults": op.defaults}
    call = eval(f"lambda {shown}, inplace=False: op.call_inplace({given}) if inplace else op.call({given})", known)
    call.__doc__, call.__module__ = op.__doc__, __name__
    return composite(name=f"nn.functional.{op.short}", method=False)(call)


def bent(op):
    """Straight lines: the second derivative of these is zero, and a part of the graph, so that a program may ask for it."""
    op.derivative_again(lambda formula, grad, saved: _where(grad.new_zeros((), dtype=dtypes.bool), saved[0], formula()))
    return op


# -- relu and its relatives --------------------------------------------------------------------------------------------


@bent
@pointwise(inplace=True, dtypes="number", complex=False, refuse_bool="Boolean inputs not supported for relu")
def relu(input):
    """max(x, 0), NaN and -0 as they are, in one comparison."""
    return e.where(input < 0, 0, input)


relu.derivative(input=lambda grad, result: e.where(result <= 0, 0, grad))


@bent
@block(dtypes="number", refuse_bool="Bool inputs not supported for hardtanh")
def _hardtanh(input, min_val=-1.0, max_val=1.0):
    """x between min_val and max_val."""
    return e.where(input < min_val, min_val, e.where(input > max_val, max_val, input))


_hardtanh.derivative(input=lambda grad, input, min_val, max_val: e.where((input <= min_val) | (input >= max_val), 0, grad))


@composite(name="nn.functional.hardtanh", method=False)
def hardtanh(input, min_val=-1.0, max_val=1.0, inplace=False):
    """min(max(x, min_val), max_val): a tanh of straight lines."""
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val: found {min_val} > {max_val}")
    if min_val < 0 and not input.dtype.is_signed:
        raise RuntimeError(f"cannot do hardtanh on an unsigned type below 0: min_val is {min_val}, the input {input.dtype}")
    if min_val != min_val or max_val != max_val:  # bounds that are NaN make everything NaN
        return run(_clamp, inplace, input, min_val, max_val)
    return run(_hardtanh, inplace, input, min_val, max_val)


@composite(name="nn.functional.relu6", method=False)
def relu6(input, inplace=False):
    """min(max(x, 0), 6)."""
    return run(_hardtanh, inplace, input, 0.0, 6.0)


def _below_zero(name: str):
    """PyTorch computes the derivative from the result, whose sign does not tell where the input was if the slope is negative."""
    words = f"In-place {name} backward calculation is triggered with a negative slope, which loses the input's sign. Please call out-of-place version, without inplace=True"
    return lambda slope, *scales: words if slope < 0 else None


@bent
@block()
def _leaky_relu(input, negative_slope=0.01):
    """x above zero, negative_slope * x below."""
    return e.where(input > 0, input, input * negative_slope)


_leaky_relu.no_derivative_written(_below_zero("leakyReLu"))


@bent
@block(grad_name="PreluKernelBackward0")
def _prelu(input, weight):
    """x above zero, weight * x below."""
    return e.where(input > 0, input, weight * input)


@composite(aliases=("nn.functional.prelu",), autocast="half")
def prelu(input, weight):
    """x above zero, weight * x below, with a learned slope for each channel, or one for all. (N, C, *), (C) -> (N, C, *)."""
    if weight.dim() > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}")
    channels = input.shape[1] if input.dim() > 1 else 1
    if weight.numel() not in (1, channels):
        raise RuntimeError(
            f"Mismatch of parameter numbers and input channel size: prelu has {weight.numel()} slopes for {channels} channels"
        )
    if input.dim() > 1 and weight.numel() > 1:
        weight = weight.reshape((-1, *(1,) * (input.dim() - 2)))
    elif input.dim() == 0 and weight.dim():
        weight = weight.reshape(())
    return _prelu(input, weight)


@bent
@block(dtypes="number", overlap="repeats")  # done twice, it is done
def _threshold(input, threshold=0.0, value=0.0):
    """x above the threshold, value elsewhere."""
    return e.where(input <= threshold, value, input)


@choice(method=False, inplace=True)
def threshold(input, threshold, value):
    """x above the threshold, `value` elsewhere."""
    return _threshold, input, threshold, value


@on_arrays(public=False, method=False, differentiable=False, meta=specs.contiguous)
def _slopes(input, lower, upper, generator):
    """1 for what is positive, a random slope from [lower, upper) for everything else."""
    out = arrays.empty_beside(input, input.shape, input.dtype)
    arrays.fill(out, 1)
    below = input <= 0
    if type(input) is np.ndarray:
        out[below] = sampling.rrelu_slopes(source(generator, arrays.device_of(input)), int(below.sum()), input.dtype, lower, upper)
    else:
        drawn = arrays.empty_beside(input, input.shape, input.dtype)
        fill("uniform", drawn, generator, low=float(lower), high=float(upper))
        arrays.write(out, arrays.module_of(input).where(below, drawn, out))
    return out


def _rrelu(input, lower: float, upper: float, training: bool, inplace: bool, generator=None):
    if lower > upper:
        raise RuntimeError(f"Lower bound should be less than or equal to the upper bound: found {lower} > {upper}")
    input = input if inplace else input.contiguous()  # so is the result, then, as PyTorch's
    if not training:
        return run(_leaky_relu, inplace, input, (lower + upper) / 2)
    slopes = _slopes(input, lower, upper, generator)
    return input.mul_(slopes) if inplace else input * slopes


RRELU = "x above zero; below, x times a slope drawn from [lower, upper) for each element, or (lower + upper) / 2 if not training."
random_relu = functools.partial(composite, method=False, grad_name="RreluWithNoiseBackward0", doc=RRELU)


@random_relu()
def rrelu(input, lower=1 / 8, upper=1 / 3, training=False, generator=None):
    return _rrelu(input, lower, upper, training, False, generator)


@composite(method=False, aliases=("nn.functional.rrelu_",), doc=f"{RRELU} Written over the input.")
def rrelu_(input, lower=1 / 8, upper=1 / 3, training=False, generator=None):
    return _rrelu(input, lower, upper, training, True, generator)


@random_relu(name="nn.functional.rrelu")
def functional_rrelu(input, lower=1 / 8, upper=1 / 3, training=False, inplace=False):
    return _rrelu(input, lower, upper, training, inplace)


# -- exponential below zero --------------------------------------------------------------------------------------------

# With these, numbers of mean 0 and variance 1 keep both (Klambauer et al. 2017).
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


@block()
def _elu(input, alpha=1.0, scale=1.0, input_scale=1.0):
    """scale * x above zero, scale * alpha * (exp(input_scale * x) - 1) below."""
    return e.where(input <= 0, e.expm1(input * input_scale) * (alpha * scale), input * scale)


_elu.derivative(
    input=lambda grad, input, alpha, scale, input_scale: e.where(
        input <= 0, grad * (input_scale * (alpha * scale) * e.exp(input * input_scale)), grad * scale
    )
)


@block(kernel=_elu.kernel)
def _celu(input, alpha=1.0, scale=1.0, input_scale=1.0):
    """The same under another name."""


for _op in (_elu, _celu):
    _op.no_derivative_written(_below_zero("elu"))


@composite(name="nn.functional.elu", method=False)
def elu(input, alpha=1.0, inplace=False):
    """x above zero, alpha * (exp(x) - 1) below."""
    return run(_elu, inplace, input, alpha)


@choice(method=False, inplace=True)
def selu(input):
    """The self-normalising elu: 1.0507 * x above zero, 1.0507 * 1.6733 * (exp(x) - 1) below."""
    return _elu, input, SELU_ALPHA, SELU_SCALE


@choice(method=False, inplace=True)
def celu(input, alpha=1.0):
    """x above zero, alpha * (exp(x / alpha) - 1) below: an elu whose slope has no jump."""
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _celu, input, alpha, 1.0, 1.0 / alpha


# -- smooth ones -------------------------------------------------------------------------------------------------------


@block()
def _gelu(input):
    """x times the probability that a standard normal variable is below x."""
    return input * 0.5 * (1 + e.erf(input * math.sqrt(0.5)))


_gelu.derivative(
    input=lambda grad, input: (
        grad * (0.5 * (1 + e.erf(input * math.sqrt(0.5))) + input * (e.exp(-0.5 * (input * input)) / math.sqrt(2 * math.pi)))
    )
)


@block(shown="gelu")
def _gelu_tanh(input):
    """gelu with a tanh for erf: x / 2 (1 + tanh(u)), which is x * sigmoid(2 u), and keeps its digits where tanh is near -1."""
    inner = math.sqrt(2 / math.pi) * (input + 0.044715 * (input * input * input))
    return input * e.sigmoid(2 * inner)


_gelu_tanh.derivative(input=lambda grad, input: grad * _gelu_tanh_slope(input, input * input))


def _gelu_tanh_slope(x, square):
    twice = 2 * math.sqrt(2 / math.pi)
    s = e.sigmoid(x * (twice + twice * 0.044715 * square))
    return s + x * (s * (1 - s)) * (twice + 3 * twice * 0.044715 * square)


@choice(name="nn.functional.gelu", method=False)
def gelu(input, *, approximate="none"):
    """x times the normal distribution function at x: x / 2 (1 + erf(x / sqrt(2))), or its approximation by "tanh"."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"gelu: approximate is 'none' or 'tanh', found {approximate!r}")
    return (_gelu if approximate == "none" else _gelu_tanh), input


@block(complex=True)
def _silu(input):
    """x * sigmoid(x), also called swish."""
    return input * e.sigmoid(input)


_silu.derivative(input=lambda grad, input: grad * e.conj(_silu_slope(input, e.sigmoid(input))))


def _silu_slope(x, s):
    return s * (1 + x * (1 - s))


@block()
def _mish(input):
    """x * tanh(softplus(x))."""
    return input * e.tanh(e.log1p(e.exp(input)))


# Derived, exp(x) / (1 + exp(x)) would be inf / inf for large x.
_mish.derivative(input=lambda grad, input: grad * _mish_slope(input, e.tanh(e.log1p(e.exp(input)))))


def _mish_slope(x, t):
    return t + x * (e.sigmoid(x) * (1 - t * t))


@block(public=True, name="nn.functional.softplus", autocast="cuda float32")
def softplus(input, beta=1.0, threshold=20.0):
    """log(1 + exp(beta * x)) / beta, the smooth relu; x itself where beta * x is above the threshold."""
    z = input * beta
    return e.where(z > threshold, input, e.log1p(e.exp(z)) / beta)


softplus.derivative(input=lambda grad, input, beta, threshold: e.where(input * beta > threshold, grad, grad * e.sigmoid(input * beta)))


@block(grad_name="LogSigmoidBackward0")
def _logsigmoid(input):
    """log(1 / (1 + exp(-x)))."""
    return e.minimum(input, 0) - e.log1p(e.exp(-abs(input)))


_logsigmoid.derivative(input=lambda grad, input: grad * e.sigmoid(-input))


@choice(name="nn.functional.logsigmoid", method=False, row_major=True)
def logsigmoid(input):
    """log(1 / (1 + exp(-x)))."""
    return _logsigmoid, input


@pointwise(name="nn.functional.tanhshrink", method=False, rule="float", grad_name="SubBackward0", refuse_bool=NO_BOOL_SUB)
def tanhshrink(input):
    """x - tanh(x)."""
    return input - e.tanh(input)


@block(grad_name="DivBackward0")
def _softsign(input):
    """x / (1 + |x|)."""
    return input / (1 + abs(input))


_softsign.derivative(input=lambda grad, input: grad / ((1 + abs(input)) * (1 + abs(input))))


@composite(name="nn.functional.softsign", method=False)
def softsign(input):
    """x / (1 + |x|): a tanh with slower tails."""
    return _softsign(input) if input.is_floating_point() else input / (input.abs() + 1)


# -- of straight lines -------------------------------------------------------------------------------------------------


def _from_0_to_6(x):
    """min(max(x, 0), 6), NaN as it is, in two comparisons: maximum and minimum ask for NaN each."""
    return e.where(x < 0, 0, e.where(x > 6, 6, x))


@block()
def _hardsigmoid(input):
    """min(max(x + 3, 0), 6) / 6: a sigmoid of straight lines."""
    return _from_0_to_6(input + 3) / 6


_hardsigmoid.derivative(input=lambda grad, input: e.where((input > -3) & (input < 3), grad / 6, 0))


@block()
def _hardswish(input):
    """x * min(max(x + 3, 0), 6) / 6."""
    return input * _from_0_to_6(input + 3) / 6


_hardswish.derivative(input=lambda grad, input: e.where(input <= -3, 0, e.where(input < 3, grad * (input / 3 + 0.5), grad)))


@bent
@pointwise(dtypes="float", complex=False, aliases=("nn.functional.hardshrink",))
def hardshrink(input, lambd=0.5):
    """0 between -lambd and lambd, x elsewhere."""
    return e.where((input >= -lambd) & (input <= lambd), 0, input)


@bent
@block()
def _softshrink(input, lambd=0.5):
    """x moved towards zero by lambd, and not beyond."""
    return e.where(input > lambd, input - lambd, e.where(input < -lambd, input + lambd, input * 0))


_softshrink.derivative(input=lambda grad, input, lambd: e.where((input >= -lambd) & (input <= lambd), 0, grad))


@choice(name="nn.functional.softshrink", method=False)
def softshrink(input, lambd=0.5):
    """x moved towards zero by lambd, and not beyond."""
    largest = dtypes.finfo(input.dtype).max if input.is_floating_point() else math.inf
    if not 0 <= lambd <= largest:
        raise RuntimeError(
            f"lambda must be in range [0, {largest:g}], what input dtype {dtypes.in_messages(input.dtype)} can hold; found {lambd:g}"
        )
    return _softshrink, input, lambd


# -- gates -------------------------------------------------------------------------------------------------------------


@composite(name="nn.functional.glu", method=False, grad_name="GluBackward0")
def glu(input, dim=-1):
    """The first half along `dim`, times the sigmoid of the second. (*, 2 N, *) -> (*, N, *)."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    size = input.shape[dim]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even: dimension {dim} has size {size}, of which glu takes one half as gates")
    return _glu(input.narrow(dim, 0, size // 2), input.narrow(dim, size // 2, size // 2))


@block(shown="glu", grad_name="GluBackward0")
def _glu(input, gate):
    """input times the sigmoid of gate."""
    return input * e.sigmoid(gate)


def write_over(op) -> None:
    """Declare nn.functional.<name>_: the same with the flag set."""

    def write(input, *arguments, **named):
        return op(input, *arguments, inplace=True, **named)

    write.__doc__ = f"{op.__doc__} Written over the input."
    composite(name=op.name + "_", method=False)(write)


for _op in (hardtanh, elu, *map(functional, (relu, threshold, selu, celu, _leaky_relu))):
    write_over(_op)
for _op in (_silu, _mish, _hardsigmoid, _hardswish):
    functional(_op)
