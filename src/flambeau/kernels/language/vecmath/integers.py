"""Division, remainder, powers and shifts with Python's meaning, of integers and of floats.

A divisor of zero is refused before a loop runs; -1 is kept away from the one quotient that overflows.
"""

from __future__ import annotations

from flambeau.kernels.language.expr import const, copysign, eq, floor, ne, node, where, xor
from flambeau.kernels.language.vecmath.machine import FUNCTIONS, Function, Loop, cast

INTEGERS = ("i8", "i16", "i32", "i64", "u8")
FLOATS = ("f64", "f32")


def of(*kinds: str):
    """Declares fl_<name>_<kind> for each of these kinds; used in another formula, it is called."""

    def declare(formula):
        for kind in kinds:
            FUNCTIONS.append(Function(f"{formula.__name__}_{kind}", (kind, kind), kind, formula))
        return lambda a, b: node(formula.__name__, a, b)

    return declare


def is_unsigned(a) -> bool:
    return a.kind[0] == "u"


def width(a) -> int:
    """Bits of the type."""
    return int(a.kind[1:])


@of(*INTEGERS)  # of floats, it is libm's
def fmod(a, b):
    """The rest of a / b, with the sign of a."""
    return node("mod", a, safe(b))


@of(*INTEGERS, *FLOATS)
def remainder(a, b):
    """The rest of a / b rounded down, with the sign of b."""
    rest = fmod(a, b)
    return rest if is_unsigned(a) else where(crosses(rest, b), rest + b, rest)


@of(*INTEGERS)
def floordiv(a, b):
    """a / b rounded down."""
    quotient = a / safe(b)
    if is_unsigned(a):
        return quotient
    return where(eq(b, -1), -a, quotient - cast(crosses(fmod(a, b), b), a.kind))


def safe(b):
    """The divisor, but 1 for -1."""
    return b if is_unsigned(b) else where(eq(b, -1), 1, b)


def crosses(rest, b):
    """Whether a quotient cut off towards zero lies above the one rounded down."""
    return ne(rest, 0) & xor(rest < 0, b < 0)


@of(*INTEGERS)
def pow(a, b):
    """a^b by squaring. Of the negative powers only those of 1 and -1 are whole; the others are cut off to 0."""

    def inverse_if_negative(power):
        return where(b < 0, where(eq(a, 1), 1, where(eq(a, -1), 1 - 2 * (b & 1), 0)), power)

    return Loop(
        start=(const(1, "u64"), cast(a, "u64"), cast(b if is_unsigned(b) else where(b < 0, 0, b), "u64")),
        goes_on=lambda power, square, n: ne(n, 0),
        step=lambda power, square, n: (where(ne(n & 1, 0), power * square, power), square * square, n >> 1),
        then=lambda power, square, n: cast(power, a.kind) if is_unsigned(b) else inverse_if_negative(cast(power, a.kind)),
    )


@of(*INTEGERS)
def gcd(a, b):
    """The greatest common divisor, by Euclid's algorithm."""
    return Loop(
        start=(a, b),
        goes_on=lambda a, b: ne(b, 0),
        step=lambda a, b: (b, fmod(a, b)),
        then=lambda a, b: a if is_unsigned(a) else where(a < 0, -a, a),
    )


@of(*INTEGERS)
def shl(a, b):
    """a 2^b; 0 if everything is shifted out, or if b is negative."""
    return where(outside(b), 0, cast(cast(a, "u64") << (cast(b, "u64") & 63), a.kind))


@of(*INTEGERS)
def shr(a, b):
    """a / 2^b rounded down; if everything is shifted out, or if b is negative, what is left is the sign."""
    return where(outside(b), 0 if is_unsigned(a) else where(a < 0, -1, 0), a >> (b & (width(a) - 1)))


def outside(b):
    """Whether b is no number of bits to shift by."""
    return b >= width(b) if is_unsigned(b) else (b < 0) | (b >= width(b))


def float_floordiv(a, b, near=False):
    """a / b rounded down: (a - rest) / b is whole but for rounding, which the nearest whole number corrects."""
    rest = node("fmod_near" if near else "fmod", a, b)
    quotient = (a - rest) / b
    quotient = where(crosses(rest, b), quotient - 1, quotient)
    whole = floor(quotient)
    found = where(quotient - whole > 0.5, whole + 1, whole)
    found = where(eq(quotient, 0), copysign(0, a * b if near else a / b), found)
    return found if near else where(eq(b, 0), a / b, found)


FUNCTIONS += [Function(f"floordiv_{kind}", (kind, kind), kind, float_floordiv) for kind in FLOATS]
