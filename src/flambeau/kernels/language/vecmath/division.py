"""Remainders and quotients rounded down that loops take while quotients are moderate: one division, all lanes at once.

q = a / b rounded to the nearest whole number, then a - q b, which is exact, and at most one b more. libm's fmod and the CPU's division
of integers work digit by digit, one element after the other: they are for the quotients that have more digits than q can hold.
"""

from __future__ import annotations

from math import inf

from flambeau.kernels.language.expr import copysign, eq, node, rint, where
from flambeau.kernels.language.vecmath.integers import FLOATS, crosses, float_floordiv
from flambeau.kernels.language.vecmath.machine import DOUBLE, bits, cast, format_of, from_bits, near_forms
from flambeau.kernels.language.vecmath.rounding import rest_of_quotient

# -- floats --------------------------------------------------------------------------------------------------------------


def is_moderate(a, b):
    """Whether the quotient is below 2^28 (2^49), the divisor not 0, and both far from overflowing."""
    F = format_of(a)
    return (abs(a) * F(2.0**-28, 2.0**-49) < abs(b)) & (abs(a) + abs(b) < F(inf, 2.0**1022))


@near_forms(is_moderate, FLOATS, "fmod")
def float_fmod(a, b, near):
    """The rest of a / b, with the sign of a."""
    n, d = abs(a), abs(b)
    if format_of(a) is not DOUBLE:
        n, d = cast(n, "f64"), cast(d, "f64")  # in which q d has all its digits
    rest = rest_of_quotient(rint(n / d), d, n)
    return copysign(cast(where(rest < 0, rest + d, rest), a.kind), a)


@near_forms(is_moderate, FLOATS, "remainder")
def float_remainder(a, b, near):
    """The rest of a / b rounded down, with the sign of b."""
    rest = node("fmod_near", a, b)
    return where(crosses(rest, b), rest + b, rest)


@near_forms(is_moderate, FLOATS, "floordiv")
def float_quotient(a, b, near):
    """a / b rounded down."""
    return float_floordiv(a, b, near)


# -- integers of 64 bits, in double --------------------------------------------------------------------------------------

HALF = 2**51
MAGIC = 0x4338000000000000  # the bits of DOUBLE.magic


def is_short(a, b):
    """Whether both have at most 51 bits, so that a double holds them and all their products with quotients."""
    return eq((cast(a + HALF, "u64") | cast(b + HALF, "u64")) >> 52, 0)


@near_forms(is_short, ("i64",), "fmod")
def integer_fmod(a, b, near):
    """The rest of a / b, with the sign of a."""
    n, d = as_double(a), as_double(b)
    rest = n - rint(n / d) * d
    return as_integer(where(crosses(rest, n), rest + copysign(d, n), rest))


@near_forms(is_short, ("i64",), "remainder")
def integer_remainder(a, b, near):
    """The rest of a / b rounded down, with the sign of b."""
    n, d = as_double(a), as_double(b)
    rest = n - rint(n / d) * d
    return as_integer(where(crosses(rest, d), rest + d, rest))


@near_forms(is_short, ("i64",), "floordiv")
def integer_quotient(a, b, near):
    """a / b rounded down."""
    n, d = as_double(a), as_double(b)
    q = rint(n / d)
    return as_integer(where(crosses(n - q * d, d), q - 1, q))


def as_double(a):
    """A short integer as a double, with instructions that every CPU has for vectors."""
    return from_bits(cast(a, "u64") + MAGIC) - DOUBLE.magic


def as_integer(x):
    """And back."""
    return cast(bits(x + DOUBLE.magic) - MAGIC, "i64")
