"""Powers and roots."""

from __future__ import annotations

import functools

from flambeau import dtypes
from flambeau.kernels.language import expr as e
from flambeau.ops.declare import choice, composite, pointwise
from flambeau.ops.nodes import unary
from flambeau.ops.promotion import is_tensor, promoted

block = functools.partial(pointwise, public=False, method=False, shown="pow")


@choice(inplace=True, number_first=True, autocast="cuda float32")
def pow(input, exponent):
    """input to the power of exponent, elementwise; one of them may be a number. Powers of integers are integers."""
    if is_tensor(exponent):
        return (_pow if is_tensor(input) else _power_of_number), input, exponent
    if not is_tensor(input):
        raise TypeError(f"pow(): expected at least one Tensor, found {type(input).__name__} and {type(exponent).__name__}")
    category = input.dtype.category
    if category >= dtypes.FLOAT or (category == dtypes.INTEGER and type(exponent) is int and exponent > 0):
        quick = QUICK.get(exponent)
        if quick is not None:
            return quick, input
    common = promoted(input, exponent)
    if common.category == dtypes.INTEGER and exponent < 0:
        raise RuntimeError(f"Integers to negative integer powers are not allowed. Found {input.dtype} ** {exponent}: try input.float()")
    return _power_to_number, input, exponent


@block(grad_name="PowBackward1", dtypes="number")
def _pow(input, exponent):
    """input ** exponent."""
    return e.power(input, exponent)


@block(grad_name="PowBackward0", dtypes="number", kernel=_pow.kernel)
def _power_to_number(input, exponent):
    """input ** exponent, the exponent being a number."""


@block(grad_name="PowBackward2", dtypes="number", kernel=_pow.kernel)
def _power_of_number(input, exponent):
    """input ** exponent, the base being a number."""


# -- the exponents of everyday: a multiplication, a division or a root instead of pow ----------------------------------
# The derivatives read the input, never the result: PyTorch lets a program write over x ** 0.5 before backward. Differentiated again, 2 * x is
# 2 * x ** 1, whose derivative 2 * x ** 0 still belongs to the graph of x: the third derivative of x ** 2 is zero, not an error.


def _everyday(name: str, formula, slope, dtypes="float", power: int | None = None):
    formula.__name__ = name
    op = block(grad_name="PowBackward0", dtypes=dtypes)(formula)
    op.derivative(input=lambda grad, input: grad * e.conj(slope(input)))
    if power is not None:
        op.derivative_again(lambda formula, grad, saved: grad * (power * saved[0].pow(power - 1)).conj())
    return op


QUICK = {
    2: _everyday("_square", lambda input: input * input, lambda x: 2 * x, "number", 2),
    3: _everyday("_cube", lambda input: input * input * input, lambda x: 3 * (x * x), "number", 3),
    0.5: _everyday("_root", lambda input: e.sqrt(input), lambda x: 0.5 * e.rsqrt(x)),
    -0.5: _everyday("_inverse_root", lambda input: e.rsqrt(input), lambda x: -0.5 * e.power(x, -1.5)),
    -1: _everyday("_inverse", lambda input: 1 / input, lambda x: -1 / (x * x)),
    -2: _everyday("_inverse_square", lambda input: 1 / (input * input), lambda x: -2 / (x * x * x)),
}


@choice(inplace=True)
def square(input):
    """input * input."""
    return pow.forward(input, 2)


@composite(out=True)
def float_power(input, exponent):
    """input to the power of exponent in double precision: float64, or complex128 if one of them is complex."""
    wide = double_precision(input, exponent)
    number = complex if wide.is_complex else float
    return pow(*(v.to(wide) if is_tensor(v) else number(v) for v in (input, exponent)))


@composite(public=False, name="float_power_")
def float_power_(input, exponent):
    """float_power written over a tensor, which must be of double precision already."""
    wide = double_precision(input, exponent)
    if input.dtype is not wide:
        raise RuntimeError(f"float_power_: the base has dtype {input.dtype}, but the operation's result requires dtype {wide}")
    return input.pow_(exponent.to(wide) if is_tensor(exponent) else exponent)


def double_precision(input, exponent) -> dtypes.dtype:
    """The dtype float_power computes in."""
    return dtypes.complex128 if promoted(input, exponent).is_complex else dtypes.float64


# -- roots -----------------------------------------------------------------------------------------------------------

sqrt = unary("sqrt", "The square root.", rule="float", inplace=True)
rsqrt = unary("rsqrt", "1 / sqrt(input).", rule="float", inplace=True, autocast="cuda float32")
reciprocal = unary("reciprocal", "1 / input.", rule="float", inplace=True, autocast="cuda float32")


@pointwise(inplace=True, dtypes="float", complex=False, numbers=False)
def hypot(input, other):
    """sqrt(input ** 2 + other ** 2), without the overflow of the squares."""
    return e.hypot(input, other)
