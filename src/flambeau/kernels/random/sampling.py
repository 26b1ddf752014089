"""From random words to random numbers: every distribution, with PyTorch's arithmetic, bit for bit.

A `Generator` (generators.py) hands out words of 32 bits. Each function here says how many words one sample takes and which
formula turns them into a number. PyTorch's AVX2 and AVX-512 builds are the specification, on every machine:

    uniform        1 word (float64: 2)    u = low bits / 2**24 (or 2**53);  low + u (high - low)
    normal, < 16   4 words for a pair     Box-Muller in float64; the pair's second value waits in the generator
    normal, >= 16  as uniform             Box-Muller on blocks of 16 uniforms, see `_normal_blocks`
    randint        1 word, 2 if the range is 2**28 or more;  low + word % range
    the others     2 words, float64       a formula each, then rounded to the dtype

    sample(generator, shape, dtype, ...) -> a new C-contiguous array of that shape and dtype; those in INTO take such an array as out=

Note [the same bits] PyTorch's compiler fuses `a * b + c` into one rounding wherever the CPU can, so we round once there
too (`_fma32`, `_fma64`). Logarithms, sines and exponentials of float64 come from the C library (Python's `math`), as
PyTorch's do: NumPy's own are faster and differ in the last bit. Those of float32 are polynomials, see vecmath/random_numbers.py.

With the compiled extension (csrc/random.c for the words, templates/random_loops.py for what becomes of them) the same is computed at the speed of
C; without it, here in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from flambeau.generators import Generator, default_generator
from flambeau.kernels import layout
from flambeau.kernels.native import native
from flambeau.kernels.random.checks import (
    INT32,
    INT64,
    MANTISSA,
    PLAIN_INTEGERS,
    WITH_INTEGERS,
    check_multinomial,
    check_permutation,
    check_std,
    check_uniform_range,
    integer_limits,
    integer_range,
    name_of,
    need_floating,
    opmath_of,
    rounded_to,
    within_one,
)

Shape = int | Sequence[int]
lib = native.lib
INTO = frozenset(("uniform", "normal", "randint", "exponential", "bernoulli"))

# -- real numbers --------------------------------------------------------------------------------------------------------


def uniform(generator: Generator, shape: Shape, dtype, low: float = 0.0, high: float = 1.0, out: np.ndarray | None = None) -> np.ndarray:
    """Uniform on [low, high): low + u (high - low), with u a multiple of 2**-24 (float64: 2**-53).

    Half precision is computed in float32. A value that rounds up to `high` becomes `low`, so that `high` stays outside.
    """
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        return _complex(uniform, generator, shape, dtype, low, high)
    need_floating("uniform_", dtype)
    check_uniform_range(dtype, low, high)
    if out is None or dtype.char not in "fd":
        out = native.empty(shape, opmath_of(dtype))
    with generator.lock:
        _fill_uniform(generator, out, low, high)
    if out.dtype != dtype:
        first, end = rounded_to(np.array([low, high]), dtype)
        out = rounded_to(out, dtype)
        out[out == end] = first
    return out


def filler(kind: str, out: np.ndarray, **parameters: Any) -> Callable[[np.ndarray], np.ndarray] | None:
    """What fills arrays like this with numbers of the default generator, where there is nothing to check or to convert any more; else None."""
    if lib is None or not out.flags.carray or not 0 < out.size <= AT_ONCE or kind not in _LOOPS:
        return None
    return _LOOPS[kind](out, **parameters)


def _uniform_filler(out: np.ndarray, low: float = 0.0, high: float = 1.0) -> Callable | None:
    if out.dtype.char not in "fd":
        return None
    check_uniform_range(out.dtype, low, high)
    return _filling_by("uniform", out, low, high)


def _normal_filler(out: np.ndarray, mean: float = 0.0, std: float = 1.0) -> Callable | None:
    if out.size < 16 and out.dtype.char in "fd" and (mean, std) == (0, 1):
        return _serial_filler(out)
    if out.dtype.char not in "fd" or out.size % 16 or isinstance(mean, np.ndarray) or isinstance(std, np.ndarray) or not std >= 0:
        return None
    return _filling_by("normal", out, mean, std)


def _serial_filler(out: np.ndarray) -> Callable:
    """A few numbers, of pairs whose second one may wait for the next call: see `_serial`."""
    n, shape, strides, view = out.size, out.shape, layout.contiguous_strides(out.shape), native.strided_view
    generator, cast = default_generator, native.kernel(f"to_{name_of(out.dtype)}").into
    draw, words, uniform, pairs = lib.draw, default_generator.words, _loop("uniform_f64"), _loop("pairs")

    def run(out: np.ndarray) -> np.ndarray:
        with generator.lock:
            waiting = generator.next_normal
            first = 0 if waiting is None else 1
            values = np.empty(n + (n - first) % 2)
            drawn = view(values, (values.size - 1,), (1,), 1) if first else values
            if n > first:
                draw(words, drawn, False)
                uniform(drawn, drawn, 0.0, 1.0)
                pairs(drawn, drawn)
            if first:
                values[0] = waiting
            generator.next_normal = values.item(n) if values.size > n else None
        cast(out, view(values, shape, strides, 0))
        return out

    return run


def _filling_by(name: str, out: np.ndarray, *numbers: float) -> Callable:
    """By a loop that finds the words in the memory of the result."""
    loop, draw, generator, words = _loop(_of_real(name, out)), lib.draw, default_generator, default_generator.words

    def run(out: np.ndarray) -> np.ndarray:
        with generator.lock:
            draw(words, out, False)
            loop(out, out, *numbers)
        return out

    return run


def _bernoulli_filler(out: np.ndarray, p: float = 0.5) -> Callable | None:
    if out.dtype.char not in "fd" or isinstance(p, np.ndarray) or not 0 <= p <= 1:
        return None
    return _filling_from(f"{_of_real('choice', out)}", out.shape, INT64, float(math.ceil(p * 2**53)), 1.0)


def _randint_filler(out: np.ndarray, low: int, high: int | None) -> Callable | None:
    name = name_of(out.dtype)
    if high is None or name not in WITH_INTEGERS:
        return None
    low, span = integer_range(out.dtype, low, high)
    wide = span >= 2**28
    return _filling_from(f"integers{64 if wide else 32}_{name}", out.shape, INT64 if wide else INT32, *_as_int64(span, low))


def _filling_from(name: str, shape: tuple, kind: np.dtype, *numbers: float) -> Callable:
    """By a loop that finds the words elsewhere."""
    loop, draw, generator, words, empty = _loop(name), lib.draw, default_generator, default_generator.words, np.empty

    def run(out: np.ndarray) -> np.ndarray:
        drawn = empty(shape, kind)
        with generator.lock:
            draw(words, drawn, False)
        loop(out, drawn, *numbers)
        return out

    return run


_LOOPS = {"uniform": _uniform_filler, "normal": _normal_filler, "bernoulli": _bernoulli_filler, "randint": _randint_filler}


def normal(
    generator: Generator,
    shape: Shape,
    dtype,
    mean: float | np.ndarray = 0.0,
    std: float | np.ndarray = 1.0,
    *,
    contiguous: bool = True,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Normal with the given mean and standard deviation, by Box-Muller: sqrt(-2 log u1) cos(2 pi u2), and sin.

    `mean` and `std` may be arrays that broadcast to `shape`. `contiguous=False` gives what PyTorch puts into a tensor
    that is not contiguous: the values are drawn one by one, as for fewer than 16.
    """
    dtype = np.dtype(dtype)
    if isinstance(mean, np.ndarray) or isinstance(std, np.ndarray) or not std >= 0:
        check_std(std)
        return _normal_around(generator, shape, dtype, mean, std)
    if dtype.kind == "c":  # real and imaginary parts share the variance
        return _complex(normal, generator, shape, dtype, mean, std / math.sqrt(2), contiguous=contiguous)
    out = native.empty(shape, dtype) if out is None else out
    if out.size == 0:
        return out
    need_floating("normal_", dtype)
    with generator.lock:
        if out.size >= 16 and contiguous:
            _normal_blocks(generator, out, mean, std)
        elif out.size < 16 and mean == 0 and dtype.char in "fd" and math.isfinite(std):
            out.reshape(-1)[:] = _serial(generator, out.size) * std
        else:
            out.reshape(-1)[:] = rounded_to(_normal_serial(generator, out.size, mean, std), dtype)
    return out


def log_normal(generator: Generator, shape: Shape, dtype, mean: float = 1.0, std: float = 2.0) -> np.ndarray:
    """exp(x) with x normal of the given mean and standard deviation, all in float64."""
    if not std > 0:
        raise RuntimeError(f"log_normal_: std must be greater than 0, but found std={std}")
    return _from_float64("log_normal_", generator, shape, dtype, lambda n: _libm("exp", _normal_serial(generator, n, mean, std)))


def exponential(generator: Generator, shape: Shape, dtype, lambd: float = 1.0, out: np.ndarray | None = None) -> np.ndarray:
    """Exponential with rate `lambd`: -log(1 - u) / lambd."""
    if not lambd > 0:
        raise RuntimeError(f"exponential_: the rate lambda must be greater than 0, but found lambda={lambd}")
    scale, dtype = -1.0 / lambd, np.dtype(dtype)
    if lib is not None and dtype.char in "fd":
        out = native.empty(shape, dtype) if out is None else out
        with generator.lock:
            _in_parts(generator, "exponential", out, (), scale)
        return out
    return _from_float64("exponential_", generator, shape, dtype, lambda n: scale * _libm("log1p", -unit(generator, n)), error=RuntimeError)


def cauchy(generator: Generator, shape: Shape, dtype, median: float = 0.0, sigma: float = 1.0) -> np.ndarray:
    """Cauchy, a curve with tails too heavy for a mean: median + sigma tan(pi (u - 1/2))."""
    if not sigma > 0:
        raise RuntimeError(f"cauchy_: the half-width sigma must be greater than 0, but found sigma={sigma}")
    need_floating("cauchy_", np.dtype(dtype), RuntimeError)  # of an empty array too, unlike the others
    return _from_float64(
        "cauchy_", generator, shape, dtype, lambda n: _fma64(_libm("tan", math.pi * (unit(generator, n) - 0.5)), sigma, median)
    )


def rrelu_slopes(generator: Generator, count: int, dtype, lower: float, upper: float) -> np.ndarray:
    """Slopes for `rrelu` in training, one for each element that is not positive, in the elements' order. -> (count,)

    Uniform on [lower, upper), in float64 for float64 and in float32 otherwise. Not `uniform`: PyTorch draws 53 bits here
    whatever the dtype, and compiles this kernel without fused multiply-add, so product and sum are rounded separately.
    """
    opmath = opmath_of(np.dtype(dtype))
    low, high = float(opmath.type(lower)), float(opmath.type(upper))
    with generator.lock:
        return (unit(generator, count) * (high - low) + low).astype(opmath)


# -- whole numbers -------------------------------------------------------------------------------------------------------


def randint(generator: Generator, shape: Shape, low: int, high: int | None, dtype, out: np.ndarray | None = None) -> np.ndarray:
    """Integers from low to high - 1, as any dtype: low + word % (high - low).

    `high=None` goes up to the largest integer the dtype counts to without gaps (2**24 for float32), and with
    low=-2**63 over all of int64.
    """
    dtype = np.dtype(dtype)
    out = native.empty(shape, dtype) if out is None else out
    if high is None and low == -(2**63):
        if out.size and name_of(dtype) not in ("int64", "float64", "float32", "bfloat16"):
            error = RuntimeError if name_of(dtype) in PLAIN_INTEGERS else NotImplementedError
            raise error(f"random_: the whole range of int64 needs int64, float64, float32 or bfloat16, but found {name_of(dtype)}")
        return _fill_integers(generator, out, 0, 2**64, True)
    low, span = integer_range(dtype, low, high)
    # % favours small values by up to range / 2**32; PyTorch takes twice the bits once that would exceed a few percent.
    return _fill_integers(generator, out, low, span, span >= 2**28)


def random_full(generator: Generator, shape: Shape, dtype) -> np.ndarray:
    """`random_()` without bounds: integers 0 to the dtype's maximum, floats 0 to 2**(bits of the mantissa), included."""
    dtype = np.dtype(dtype)
    out = native.empty(shape, dtype)
    if out.size == 0:
        return out
    if name_of(dtype) not in MANTISSA and name_of(dtype) not in ("bool", *PLAIN_INTEGERS):
        raise NotImplementedError(f"random_: not available for {name_of(dtype)} without bounds; try random_(low, high)")
    _, largest, digits = integer_limits(dtype)
    return _fill_integers(generator, out, 0, (2**digits if digits else int(largest)) + 1, name_of(dtype) in ("int64", "float64"))


def _fill_integers(generator: Generator, out: np.ndarray, low: int, span: int, wide: bool) -> np.ndarray:
    """Fill the array with low + word % span."""
    name = name_of(out.dtype)
    is_compiled = lib is not None and name in WITH_INTEGERS
    numbers = _as_int64(span, low)
    with generator.lock:
        for part in _parts(out):
            words = _words(generator, part.shape, wide)
            if is_compiled:
                _run(f"integers{64 if wide else 32}_{name}", part, words, *numbers)
                continue
            words = words.view(np.uint64 if wide else np.uint32)
            if span < 2**64:
                words %= words.dtype.type(span)
            part[...] = rounded_to((words.astype(np.uint64) + np.uint64(low % 2**64)).view(np.int64), out.dtype)
    return out


def _as_int64(*numbers: int) -> list[int]:
    """As int64 holds them, which wraps around."""
    return [(n + 2**63) % 2**64 - 2**63 for n in numbers]


def permutation(generator: Generator, n: int, dtype=np.int64) -> np.ndarray:
    """0 to n - 1 in random order, by Fisher and Yates: swap each place with a random one at or behind it. -> (n,)"""
    dtype = np.dtype(dtype)
    check_permutation(n, dtype)
    order = np.empty(n, np.int64)
    with generator.lock:
        if lib is not None and n < SHORT:
            lib.draw(generator.words, order, True)
        else:
            order[:] = _shuffled(generator, n)
    return order if dtype == np.int64 else rounded_to(order, dtype)


def permuter(n: int, dtype: np.dtype) -> Callable[[], np.ndarray] | None:
    """What makes such permutations with the default generator; None where there is more to do."""
    if lib is None or n >= SHORT or dtype != np.int64:
        return None
    draw, generator, words, empty = lib.draw, default_generator, default_generator.words, native.empty

    def run() -> np.ndarray:
        order = empty((n,), INT64)
        with generator.lock:
            draw(words, order, True)
        return order

    return run


def bernoulli(
    generator: Generator, shape: Shape, dtype, p: float | np.ndarray = 0.5, value: float = 1.0, out: np.ndarray | None = None
) -> np.ndarray:
    """`value` with probability p, else 0: u < p. An array of probabilities broadcasts to `shape`.

    A number and a float64 array are compared with a u of 53 bits (2 words), other arrays with one of 24 (1 word).
    """
    dtype = np.dtype(dtype)
    if isinstance(p, np.ndarray):
        if name_of(p.dtype) not in MANTISSA:
            raise NotImplementedError(f"bernoulli: probabilities must be floating point, but found {name_of(p.dtype)}")
        if p.dtype != np.float64:
            p = p.astype(np.float32, copy=False)
        proper = not p.size or within_one(p)
    else:
        proper = 0 <= p <= 1
    out = native.empty(shape, dtype) if out is None else out
    if not proper and (out.size or not isinstance(p, np.ndarray)):
        raise RuntimeError(f"bernoulli: every probability must lie in [0, 1], but they span {np.min(p)} to {np.max(p)}")
    if out.size == 0:
        return out
    if name_of(dtype) not in MANTISSA and name_of(dtype) not in ("bool", *PLAIN_INTEGERS):
        raise NotImplementedError(f"bernoulli: not available for a result of dtype {name_of(dtype)}")
    with generator.lock:
        if lib is not None and not isinstance(p, np.ndarray) and dtype.char in "fd":
            _in_parts(generator, "choice", out, (), float(math.ceil(p * 2**53)), value)  # compared as integers: u is a multiple of 2**-53
            return out
        u = unit(generator, out.shape, p.dtype if isinstance(p, np.ndarray) else np.float64)
    chosen = np.less(u, p)
    np.copyto(out, chosen if value == 1 else chosen * dtype.type(value), casting="unsafe")
    return out


def geometric(generator: Generator, shape: Shape, dtype, p: float) -> np.ndarray:
    """The number of trials up to the first success, each of probability p: ceil(log u / log(1 - p))."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_: the probability must lie in (0, 1), but found p={p}")

    def trials(n: int) -> np.ndarray:
        return np.ceil(_libm("log", unit(generator, n)) / math.log1p(-p))

    return _from_float64("geometric_", generator, shape, dtype, trials, integers=True)


def multinomial(generator: Generator, probs: np.ndarray, num_samples: int, replacement: bool = False) -> np.ndarray:
    """Category numbers, drawn with the given weights. (rows, categories) -> (rows, num_samples) int64; also (C,) -> (S,)

    With replacement: invert the cumulative distribution. Without, or for a single sample: the categories with the
    largest p / e, e exponential. That is a race (arrival times e / p), and the order of arrival is a draw without
    replacement (P. Efraimidis, P. Spirakis, "Weighted random sampling with a reservoir", IPL 97, 2006).
    """
    check_multinomial(probs, num_samples, replacement)
    rows = probs.reshape(-1, probs.shape[-1])  # (R, C)
    if replacement and num_samples > 1:
        chosen = _by_inversion(generator, rows, num_samples)
    else:
        race = _race(generator, rows)
        # Among equal quotients (they happen in half precision) we take the first; PyTorch's order there is its sort's accident.
        single = num_samples == 1
        chosen = race.argmax(-1, keepdims=True) if single else np.argsort(-race, axis=-1, kind="stable")[:, :num_samples]
    return np.ascontiguousarray(chosen, np.int64).reshape(*probs.shape[:-1], num_samples)


# -- Box-Muller ----------------------------------------------------------------------------------------------------------


def _normal_serial(generator: Generator, n: int, mean: float, std: float) -> np.ndarray:
    """Normal values one by one in float64; of each pair the cosine comes first and the sine waits. -> (n,)"""
    return _fma64(_serial(generator, n), std, mean)


def _serial(generator: Generator, n: int) -> np.ndarray:
    """The same for mean 0 and deviation 1."""
    waiting = n > 0 and generator.next_normal is not None
    values = np.empty(n + (n - waiting) % 2)
    if waiting:
        values[0] = generator.next_normal
    if n > waiting:
        _fill_pairs(generator, values[waiting:])
    if n:
        generator.next_normal = float(values[n]) if len(values) > n else None
    return values[:n]


def _fill_pairs(generator: Generator, out: np.ndarray) -> None:
    """Pairs r cos theta, r sin theta, with r = sqrt(-2 log(1 - u2)), theta = 2 pi u1; a pair takes u1 before u2."""
    _fill_uniform(generator, out, 0.0, 1.0)
    if lib is not None:
        return _run("pairs", out, out)
    radius, theta = np.sqrt(-2.0 * _libm("log1p", -out[1::2])), 2.0 * math.pi * out[::2]
    out[::2], out[1::2] = radius * _libm("cos", theta), radius * _libm("sin", theta)
    return None


def _normal_blocks(generator: Generator, out: np.ndarray, mean: float, std: float) -> None:
    """Fill `out`, 16 values or more, block by block: values 0 to 7 of a block are r cos, 8 to 15 the matching r sin.

    If 16 does not divide the size, the last 16 values are drawn anew, so that they too are one whole block. float32 and
    float64 draw a uniform for every place first; half precision goes through float32 in whole blocks only.
    """
    if out.size % 16 == 0 and out.dtype.char in "fd":
        return _fill_normal(generator, out, mean, std)
    opmath, whole = opmath_of(out.dtype), out.size // 16 * 16
    drawn = out if out.dtype == opmath else np.empty(whole, opmath)
    _fill_normal(generator, drawn, mean, std)
    if drawn is not out:
        out.reshape(-1)[:whole] = drawn
    if whole < out.size:
        last = np.empty(16, opmath)
        _fill_normal(generator, last, mean, std)
        out.reshape(-1)[-16:] = last


def _fill_normal(generator: Generator, out: np.ndarray, mean: float, std: float) -> None:
    """Fill a contiguous float32 or float64 array with normal values, 16 at a time; a rest that is shorter is left for others."""
    if lib is not None:
        return _from_words(generator, "normal", out, mean, std)
    kind = "f32" if out.dtype == np.float32 else "f64"
    _fill_uniform(generator, out, 0.0, 1.0)
    flat = out.reshape(-1)[: out.size // 16 * 16]
    for start in range(0, flat.size, 32768):  # the many steps of the formula stay in the cache: 2x on a million values
        blocks = flat[start : start + 32768].reshape(-1, 2, 8)
        u, v = blocks[:, 0].copy(), blocks[:, 1].copy()
        blocks[:, 0] = _by_formula("normal_cos", kind, u, v, mean, std)
        blocks[:, 1] = _by_formula("normal_sin", kind, u, v, mean, std)


def _normal_around(generator: Generator, shape: Shape, dtype: np.dtype, mean, std) -> np.ndarray:
    """Mean or deviation as arrays: draw, then scale, then shift, each rounded to the dtype."""
    scaled = isinstance(std, np.ndarray)
    out = normal(generator, shape, dtype, 0.0, 1.0 if scaled else std)
    if scaled:
        out[...] = out * std
    out[...] = out + (mean if isinstance(mean, np.ndarray) else dtype.type(mean))
    return out


# -- without the extension -----------------------------------------------------------------------------------------------


def _by_formula(name: str, kind: str, *operands) -> np.ndarray:
    """A formula of vecmath/random_numbers.py on arrays and numbers: what the compiled loops compute, step by step in NumPy."""
    from flambeau.kernels.language.evaluate import by_formula
    from flambeau.kernels.language.vecmath import random_numbers

    kinds = [f"i{kind[1:]}" if np.asarray(a).dtype.kind == "u" else kind for a in operands]
    primitives = {"exact_fma": _fma32 if kind == "f32" else _fma64}
    primitives |= {f"libm_{f}": partial(_libm, f) for f in random_numbers.LIBM}
    return by_formula(getattr(random_numbers, name), kinds, operands, primitives)


# -- one rounding --------------------------------------------------------------------------------------------------------


def _fma32(a: np.ndarray, b, c) -> np.ndarray:
    """a * b + c in float32, rounded once.

    The product is exact in float64; the sum is rounded there to odd, and to float32 from there. Rounding to odd keeps
    the news that bits were lost, so the second rounding cannot be fooled into a tie (S. Boldo, G. Melquiond, 2008).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        return _add_to_odd(product, np.asarray(c, np.float64)).astype(np.float32)


def _fma64(a: np.ndarray, b: float, c: float) -> np.ndarray:
    """a * b + c in float64, rounded once, for numbers b and c (same paper, algorithm 5). Subnormal results are rounded twice."""
    b, c = float(b), float(c)
    if c == 0 or abs(math.frexp(b)[0]) == 0.5 or not (math.isfinite(b) and math.isfinite(c)):
        with np.errstate(over="ignore", invalid="ignore"):
            return a * b + c  # neither adding zero nor a power of two rounds, infinity and nan need no care
    exponent = max(math.frexp(b)[1], math.frexp(c)[1])  # work near one, where nothing overflows or loses its tail
    b, c = math.ldexp(b, -exponent), math.ldexp(c, -exponent)
    high = a * b
    low = _product_error(a, b, high)
    shifted, shifted_error = _two_sum(np.float64(c), low)
    total, total_error = _two_sum(high, shifted)
    return np.ldexp(total + _add_to_odd(shifted_error, total_error), exponent)


def _two_sum(a, b) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and its error: a + b = sum + error, exactly (D. Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _product_error(a: np.ndarray, b: float, product: np.ndarray) -> np.ndarray:
    """a * b - product, exactly, by splitting the factors in halves of 26 bits (T. Dekker)."""
    a_high = a * 134217729.0 - (a * 134217729.0 - a)
    b_high = b * 134217729.0 - (b * 134217729.0 - b)
    a_low, b_low = a - a_high, b - b_high
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


def _add_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in float64; if the sum is not exact, the neighbour whose last bit is 1."""
    total, error = _two_sum(a, b)
    bits = np.asarray(total).view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return (bits + np.where((abs(error) > 0) & (bits & 1 == 0), step, 0)).view(np.float64)


# -- words ---------------------------------------------------------------------------------------------------------------


def _words(generator: Generator, shape: Shape, wide: bool) -> np.ndarray:
    """The next words, of 64 bits if `wide`, as many as an array of that shape has elements."""
    if lib is None:
        n = shape if isinstance(shape, int) else math.prod(shape)
        return (generator.draw64(n) if wide else generator.draw32(n)).reshape(shape)
    out = np.empty(shape, INT64 if wide else INT32)  # signed, as the loops take them
    _draw(generator, out)
    return out


def _draw(generator: Generator, out: np.ndarray) -> None:
    """Write the next words into a contiguous array, each as wide as its elements."""
    lib.draw(generator.words, out, False)


def unit(generator: Generator, shape: Shape, dtype=np.float64) -> np.ndarray:
    """Uniform numbers on [0, 1)."""
    out = np.empty(shape, dtype)
    _fill_uniform(generator, out, 0.0, 1.0)
    return out


def _fill_uniform(generator: Generator, out: np.ndarray, low: float, high: float) -> None:
    """Fill a contiguous float32 or float64 array with low + u (high - low)."""
    if lib is not None:
        return _from_words(generator, "uniform", out, low, high)
    kind = "f32" if out.dtype.char == "f" else "f64"
    for part in _parts(out):
        part[...] = _by_formula("uniform", kind, _words(generator, part.shape, kind == "f64"), low, high)


def _from_words(generator: Generator, name: str, out: np.ndarray, *numbers: float) -> None:
    """Fill a contiguous float32 or float64 array by a loop that takes a word of an element's size for each: drawn into its very memory."""
    loop = _of_real(name, out)
    for part in _parts(out):
        _draw(generator, part)
        _run(loop, part, part, *numbers)


def _of_real(name: str, out: np.ndarray) -> str:
    """The name of a loop for float32 or float64."""
    return f"{name}_f32" if out.dtype.char == "f" else f"{name}_f64"


def _parts(out: np.ndarray) -> Sequence[np.ndarray]:
    """A contiguous array in pieces that stay in the cache between drawing words and using them."""
    if out.size <= AT_ONCE:
        return (out,)
    flat = out.reshape(-1)
    return [flat[start : start + AT_ONCE] for start in range(0, out.size, AT_ONCE)]


def _libm(name: str, x: np.ndarray) -> np.ndarray:
    """A function of the C library on every element of a float64 array, see Note [the same bits]."""
    if lib is not None:
        out = np.empty(x.shape)
        _run(f"libm_{name}", out, np.asarray(x, np.float64))
        return out
    function: Callable[[float], float] = getattr(math, name)
    values = x.ravel().tolist()
    try:
        results = [function(v) for v in values]
    except (ValueError, OverflowError):  # Python raises where C returns infinity: log(0), exp(1000)
        with np.errstate(all="ignore"):
            limits = getattr(np, name)(values)
        results = [function(v) if math.isfinite(limit) else limit for v, limit in zip(values, limits, strict=True)]
    return np.array(results, np.float64).reshape(x.shape)


AT_ONCE = 1 << 16  # words


_loop = cache(lambda name: native.kernel(f"random.{name}").into)


def _run(name: str, out: np.ndarray, *operands) -> None:
    """Run a loop of templates/random_loops.py."""
    if _loop(name)(out, *operands) is NotImplemented:
        raise TypeError(f"random.{name}: not made for {out.dtype} in this layout")


def _in_parts(generator: Generator, name: str, out: np.ndarray, operands: tuple, *numbers: float) -> None:
    """Fill a contiguous float32 or float64 array by a loop that takes a word of 64 bits for each element, and operands of its shape."""
    loop = _of_real(name, out)
    for part, *others in zip(_parts(out), *map(_parts, operands), strict=True):
        _run(loop, part, _words(generator, part.shape, True), *others, *numbers)


def _race(generator: Generator, rows: np.ndarray) -> np.ndarray:
    """weight / e, e exponential."""
    if lib is not None and rows.dtype.char in "fd":
        race = native.empty(rows.shape, rows.dtype)
        with generator.lock:
            _in_parts(generator, "race", race, (rows,))
        return race
    with np.errstate(divide="ignore", invalid="ignore"):
        return rows / exponential(generator, rows.shape, rows.dtype)


def _by_inversion(generator: Generator, rows: np.ndarray, num_samples: int) -> np.ndarray:
    """For each uniform u the first category whose cumulative probability reaches u. (R, C) -> (R, S)"""
    cumulative = rows.astype(opmath_of(rows.dtype)).cumsum(-1, dtype=opmath_of(rows.dtype))
    cumulative /= cumulative[:, -1:].copy()
    cumulative[:, -1] = 1  # in spite of rounding, so that every u finds a category
    with generator.lock:
        u = unit(generator, len(rows) * num_samples).reshape(len(rows), num_samples)
    return np.stack([np.searchsorted(c.astype(np.float64), v) for c, v in zip(cumulative, u, strict=True)]) if len(rows) else u


SHORT = (2**32 - 1) // 20  # of longer permutations the remainder of a 32-bit word would be uneven


def _shuffled(generator: Generator, n: int) -> list[int]:
    order = list(range(n))
    if n < SHORT:
        places = np.arange(max(n - 1, 0))
        partners = places + generator.draw32(len(places)) % (n - places)
    else:  # 64 bits, and PyTorch swaps with the places before
        partners = generator.draw64(n) % np.arange(1, n + 1, dtype=np.uint64)
    for i, j in enumerate(partners.tolist()):
        order[i], order[j] = order[j], order[i]
    return order


def _complex(sample: Callable, generator: Generator, shape: Shape, dtype: np.dtype, *args, **options) -> np.ndarray:
    """Complex numbers from pairs of real samples."""
    pairs = (*((shape,) if isinstance(shape, int) else shape), 2)
    return sample(generator, pairs, np.float32 if dtype == np.complex64 else np.float64, *args, **options).view(dtype)[..., 0]


def _from_float64(name: str, generator, shape: Shape, dtype, sample: Callable, integers=False, error=NotImplementedError) -> np.ndarray:
    """An array of samples that are computed in float64 whatever the dtype of the result."""
    dtype = np.dtype(dtype)
    out = native.empty(shape, dtype)
    if out.size == 0:
        return out
    if not (integers and name_of(dtype) in PLAIN_INTEGERS):
        need_floating(name, dtype, error)
    with generator.lock:
        out.reshape(-1)[:] = rounded_to(sample(out.size), dtype)
    return out
