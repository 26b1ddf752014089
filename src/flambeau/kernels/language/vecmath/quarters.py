"""Angles less whole quarters of a turn: x = q pi/2 + r + lo with |r| <= pi/4 (or hardly more)."""

from __future__ import annotations

import functools
from math import pi

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import rint, where
from flambeau.kernels.language.vecmath.machine import DOUBLE, SINGLE, bits, cast, fma, format_of, instruction
from flambeau.kernels.language.vecmath.rounding import HAS_FMA

e.ARITY |= {"less_quarters": 2}
SMALL_ANGLE = 2.0**13  # below, in float32, few digits of pi will do
# pi/2 in floats, of which n times the first is taken off exactly by an fma; and in two doubles, n times the first of which is exact
HALF_PI = 1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15
HALF_PI_DOUBLE = float.fromhex("0x1.921fb544p+0"), float.fromhex("0x1.0b4611a626331p-34")
TAKEN = functools.reduce(lambda rest, piece: f"__builtin_fmaf(x1, {-piece}f, {rest})", HALF_PI, "x0")


@instruction(HAS_FMA, TAKEN, kinds=("f32",))
def less_quarters(x, n):
    """x - n pi/2, for |x| < 2^13."""
    d, n = cast(x, "f64"), cast(n, "f64")
    return cast((d - n * HALF_PI_DOUBLE[0]) - n * HALF_PI_DOUBLE[1], "f32")


def reduce(x, near=False):
    """(q, r, lo): x = q pi/2 + r + lo, q an integer of which the low bits count."""
    if format_of(x) is not DOUBLE:
        return *reduce_single(x, near), None
    # For |x| < 2e8: pi/2 in pieces of 26, 26, 26 and 53 bits; q times each of the first three is exact.
    first, second, third, fourth = map(float.fromhex, ("0x1.921fb5p+0", "0x1.110b46p-26", "0x1.1a6262p-54", "0x1.3145c06e0e689p-78"))
    t = x * (2 / pi) + DOUBLE.magic
    n = t - DOUBLE.magic
    a = x - n * first
    b = a - n * second
    b_lo = (a - b) - n * second
    c = b - n * third
    c_lo = b_lo + (((b - c) - n * third) - n * fourth)
    r = c + c_lo
    return bits(t), r, (c - r) + c_lo


def reduce_single(x, near):
    """(q, r) of a float32: by pi/2 if x is small, otherwise by turns."""
    t = fma(x, 2 / pi, SINGLE.magic)
    q, r = bits(t), less_quarters(x, t - SINGLE.magic)
    if near:
        return q, r
    quarters = 4 * turns(x)
    t = quarters + DOUBLE.magic
    far = cast((quarters - (t - DOUBLE.magic)) * (pi / 2), "f32")
    small = abs(x) < SMALL_ANGLE
    return where(small, q, cast(bits(t), "u32")), where(small, r, far)


def turns(x):
    """x / 2 pi less whole turns. 1/(2 pi) is cut in pieces of 29 bits: a 24-bit x times a piece is exact in double, and so is dropping the
    whole turns from it. Six pieces reach far enough for the largest float; an infinity gives NaN."""
    pieces = "0x1.45f306ep-3", "-0x1.b1bbeacp-34", "-0x1.603d8a8p-62", "-0x1.705659p-93", "-0x1.1f924ecp-121", "0x1.5993c439041fep-150"
    *upper, last = map(float.fromhex, pieces)
    d = cast(x, "f64")
    parts = [d * piece - rint(d * piece) for piece in upper]
    turn = parts[0]
    for part in parts[1:]:
        turn = turn + part
    return turn + d * last
