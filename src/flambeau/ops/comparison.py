"""Questions with a yes or no for each element: order, equality, what kind of number it is, and logic on the answers."""

from __future__ import annotations

from functools import partial

from flambeau import dtypes
from flambeau.kernels.language import expr as e
from flambeau.ops.declare import composite, pointwise
from flambeau.ops.nodes import binary, unary

# -- order and equality ----------------------------------------------------------------------------------------------

compare = partial(binary, rule="compare", inplace=True)
order = partial(compare, complex=False)

eq = compare("eq", "input == other, elementwise, as bool. NaN equals nothing.")
ne = compare("ne", "input != other, elementwise, as bool.", aliases=("not_equal",))
lt = order("lt", "input < other, elementwise, as bool.", aliases=("less",))
le = order("le", "input <= other, elementwise, as bool.", aliases=("less_equal",))
gt = order("gt", "input > other, elementwise, as bool.", aliases=("greater",))
ge = order("ge", "input >= other, elementwise, as bool.", aliases=("greater_equal",))

# -- kinds of numbers ------------------------------------------------------------------------------------------------

isnan = unary("isnan", "Whether the element is NaN (a complex number: whether a part of it is).", rule="compare")
isinf = unary("isinf", "Whether the element is infinite (a complex number: whether a part of it is).", rule="compare")


@pointwise(rule="compare")
def isfinite(input):
    """Whether the element is neither infinite nor NaN."""
    return ~(e.isinf(input) | e.isnan(input))


@pointwise(rule="compare", complex="isposinf does not support complex inputs.")
def isposinf(input):
    """Whether the element is +inf."""
    return e.isinf(input) & (input > 0)


@pointwise(rule="compare", complex="isneginf does not support complex inputs.")
def isneginf(input):
    """Whether the element is -inf."""
    return e.isinf(input) & (input < 0)


@composite
def isreal(input):
    """Whether the element has no imaginary part."""
    return eq(input.imag, 0) if input.is_complex() else input.new_ones(input.shape, dtype=dtypes.bool)


@pointwise(rule="compare", complex=False)
def signbit(input):
    """Whether the element is negative, -0.0 and -NaN included."""
    return e.copysign(1, input) < 0


# -- logic -----------------------------------------------------------------------------------------------------------


@pointwise(rule="logical", inplace=True, numbers=False)
def logical_and(input, other):
    """Whether both are true; every number but 0 counts as true."""
    return e.as_bool(input) & e.as_bool(other)


@pointwise(rule="logical", inplace=True, numbers=False)
def logical_or(input, other):
    """Whether at least one is true; every number but 0 counts as true."""
    return e.as_bool(input) | e.as_bool(other)


@pointwise(rule="logical", inplace=True, numbers=False)
def logical_xor(input, other):
    """Whether exactly one is true; every number but 0 counts as true."""
    return e.xor(e.as_bool(input), e.as_bool(other))


@pointwise(rule="logical", inplace=True)
def logical_not(input):
    """Whether the element is false, that is 0."""
    return ~e.as_bool(input)
