"""From random words to uniform and normal numbers, with the roundings of PyTorch: sampling.py tells the why.

Every product that meets a sum is exact or inside an fma that is rounded once on any CPU, so that no compiler flag can change a bit.
"""

from __future__ import annotations

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import eq, ne, sqrt, where
from flambeau.kernels.language.vecmath.machine import DOUBLE, FUNCTIONS, Function, bits, cast, format_of, from_bits

LIBM = ("cos", "exp", "log", "log1p", "sin", "tan")
e.ARITY |= {"exact_fma": 3, "high_product": 2} | {f"libm_{name}": 1 for name in LIBM}
TWO_PI = 6.28318530717958647692


def uniform(word, low, high):
    """low + u (high - low), u the lowest 24 (53) bits of the word as a fraction; what rounds up to `high` becomes `low`."""
    x = fma(fraction(word, format_of(low)), high - low, low)
    return where(eq(x, high), low, x)


def fraction(word, of=DOUBLE):
    """The lowest bits of a word, as many as a number of this format has digits, as a number from 0 to 1."""
    digits = of.mantissa + 1
    return cast(word & (2**digits - 1), of.kind) * 2.0**-digits


def choice(word, threshold, value):
    """`value` where the lowest 53 bits are below the threshold, else 0."""
    return where((word & (2**53 - 1)) < threshold, value, 0.0)


def exponential(word, scale, kind):
    """scale log(1 - u), computed in float64."""
    return cast(scale * libm("log1p", -fraction(word)), kind)


def race(word, weight, kind):
    """weight / -log(1 - u)."""
    return weight / cast(-libm("log1p", -fraction(word)), kind)


def integer(word, span, low):
    """low + word % span of a word of 32 bits; all arithmetic wraps around at 2^64."""
    return cast(cast(low, "u64") + word_modulo(word, cast(span, "f64")), "i64")


def long_integer(word, span, low):
    """The same of a word of 64 bits. A span of 0 stands for 2^64; the quotient by its inverse is right or short by one."""
    word, span = cast(word, "u64"), cast(span, "u64")
    inverse = e.const(2**64 - 1, "u64") / where(eq(span, 0), e.const(1, "u64"), span)
    rest = word - e.node("high_product", word, inverse) * span
    return cast(cast(low, "u64") + where(rest >= span, rest - span, rest), "i64")


def word_modulo(word, span):
    """word % span of a word of 32 bits and a number below 2^32: what the nearest multiple of `span` leaves, which double computes exactly."""
    x = cast(cast(word ^ -(2**31), "i32"), "f64") + 2.0**31  # CPUs convert signed integers: this one is the word less 2^31
    n = (x * (1 / span) + DOUBLE.magic) - DOUBLE.magic
    r = x - n * span
    return bits(where(r < 0, r + span, r) + 2.0**52) & (2**52 - 1)


def normal_cos(u, v, mean, std):
    """mean + std r cos t, r = sqrt(-2 log(1 - u)), t = 2 pi v: Box and Muller's normal variable."""
    _, cosine = sine_and_cosine(v * TWO_PI)
    return fma(radius(u) * cosine, std, mean)


def normal_sin(u, v, mean, std):
    """mean + std r sin t, a second one that is independent of the first."""
    sine, _ = sine_and_cosine(v * TWO_PI)
    return fma(radius(u) * sine, std, mean)


def radius(u):
    """sqrt(-2 log(1 - u))."""
    return sqrt(-2.0 * (libm("log", 1.0 - u) if format_of(u) is DOUBLE else log_single(1.0 - u)))


# -- float32: the polynomials of the Cephes library (S. Moshier), every multiply-add fused -------------------------------

LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
       -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def log_single(x):
    """log x for x = 2^q (1 + m) with 1 + m between sqrt(1/2) and sqrt(2)."""
    u = bits(x)
    half = from_bits((u & 0x7FFFFF) | 0x3F000000)
    small = half < 0.707106781186547524
    m = where(small, half + half, half) - 1.0
    q = cast(cast(u >> 23, "i32") - 126 - cast(small, "i32"), "f32")
    z = m * m
    p = fma(horner(LOG, m) * m, z, q * -2.12194440e-4) - 0.5 * z
    return fma(q, 0.693359375, m + p)


def sine_and_cosine(t):
    """(sin t, cos t) for t >= 0: take off an even multiple of pi/4 in three pieces, then one polynomial for each."""
    if format_of(t) is DOUBLE:
        return libm("sin", t), libm("cos", t)
    octant = (cast(t * 1.27323954473516, "i32") + 1) & -2
    q = cast(octant, "f32")
    x = fma(q, -3.77489497744594108e-8, fma(q, -2.4187564849853515625e-4, fma(q, -0.78515625, t)))
    z = x * x
    c = fma(horner(COS, z) * z, z, -0.5 * z) + 1.0
    s = fma(horner(SIN, z) * z, x, x)
    swapped = ne(octant & 2, 0)
    sine, cosine = where(swapped, c, s), where(swapped, s, c)
    return where(ne(octant & 4, 0), -sine, sine), where(ne((octant + 2) & 4, 0), -cosine, cosine)


def horner(coefficients, x):
    """The polynomial, highest power first, each step rounded once."""
    value = coefficients[0]
    for c in coefficients[1:]:
        value = fma(value, x, c)
    return value


def fma(a, b, c):
    """a b + c, rounded once."""
    return e.node("exact_fma", a, b, c)


def libm(name: str, x):
    """The C library's function, which PyTorch calls, too."""
    return e.node(f"libm_{name}", x)


for kind, word in (("f32", "i32"), ("f64", "i64")):
    FUNCTIONS.append(Function(f"uniform_{kind}", (word, kind, kind), kind, uniform))
    FUNCTIONS += [Function(f"{f.__name__}_{kind}", (kind,) * 4, kind, f) for f in (normal_cos, normal_sin)]
