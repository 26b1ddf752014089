"""The half precisions: exact to float32, rounded to nearest even on the way back. A NaN stays a NaN and becomes quiet.

Comparisons are of signed integers, because SSE2 has no others; no value here reaches the sign bit.
"""

from __future__ import annotations

from flambeau.kernels.language.expr import eq, typed, where
from flambeau.kernels.language.vecmath.machine import FUNCTIONS, SINGLE, Function, bits, cast, from_bits

SHIFT = 112 << 23  # between the exponents' biases, 127 and 15


def bf16_to_f32(h):
    """bfloat16 is the upper half of a float32."""
    return from_bits(cast(h, "u32") << 16)


def rounded_to_bf16(x):
    """Add half of the last digit that stays, less one bit if that digit is even.

    A function of its own, and signed: where C sees the choice and the cut together it cuts both sides, and packs three vectors instead of one.
    """
    u = bits(x)
    return where(eq(x, x), cast(u + 0x7FFF + ((u >> 16) & 1), "i32"), cast(u | 0x400000, "i32"))


def f32_to_bf16(x):
    """Round and cut."""
    return cast(typed("rounded_to_bf16", "i32", x) >> 16, "u16")


def f16_to_f32(h):
    """Move exponent and mantissa to their places; a subnormal half counts units of 2^-24."""
    u = cast(h, "u32")
    a = u & 0x7FFF
    size = cast(a, "i32")
    normal = (a << 13) + SHIFT
    tiny = bits(cast(size, "f32") * 2.0**-24)
    found = where(size < 0x400, tiny, where(size >= 0x7C00, normal + SHIFT, normal))
    quiet = where(size > 0x7C00, SINGLE.whole(0x400000), 0)
    return from_bits(found | ((u & 0x8000) << 16) | quiet)


def f32_to_f16(x):
    """The same way back. Adding 1/2 rounds a number that will be subnormal to units of 2^-24."""
    u = bits(x)
    a = u & 0x7FFFFFFF
    size = cast(a, "i32")
    normal = (a - SHIFT + 0xFFF + ((a >> 13) & 1)) >> 13
    tiny = bits(from_bits(a) + 0.5) - 0x3F000000
    r = where(size < 0x38800000, tiny, where(size >= 0x47800000, 0x7C00, normal))
    r = where(size > 0x7F800000, ((a >> 13) & 0x3FF) | 0x7E00, r)
    return cast(r | ((u >> 16) & 0x8000), "u16")


FUNCTIONS += [
    Function("bf16_to_f32", ("u16",), "f32", bf16_to_f32),
    Function("rounded_to_bf16_f32", ("f32",), "i32", rounded_to_bf16),
    Function("f32_to_bf16", ("f32",), "u16", f32_to_bf16),
    Function("f16_to_f32", ("u16",), "f32", f16_to_f32),
    Function("f32_to_f16", ("f32",), "u16", f32_to_f16),
]
