"""Poisson, binomial and gamma numbers: counts of rare events, of successes, and waiting times. Word for word PyTorch's, so one uniform
number at a time: compiled in csrc/rejection.c, and here the same where nothing was compiled.

Small means: waiting times between events are added up until time is over (for Poisson their exponentials are multiplied, which is Knuth's
algorithm). Means of 10 and more: transformed rejection, the algorithms PTRS and BTRS of W. Hörmann, "The transformed rejection method for
generating Poisson random variables", Insurance: Mathematics and Economics 12 (1993), and "The generation of binomial random variates",
Journal of Statistical Computation and Simulation 46 (1993): a point (u, v) is drawn under a hat that a transformed uniform number makes,
and most points are accepted without a logarithm. Gamma numbers are cubes of shifted normal ones, most of which are accepted as they are: G. Marsaglia
and W. W. Tsang, "A simple method for generating gamma variables", ACM Transactions on Mathematical Software 26 (2000).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from flambeau.generators import Generator
from flambeau.kernels.native.native import lib
from flambeau.kernels.random.sampling import unit

Uniforms = Iterator[float]
FLOATS = ("float64", "float32", "float16", "bfloat16")


def poisson(generator: Generator, rate: np.ndarray) -> np.ndarray:
    """One Poisson number for each rate, in order. Any shape, any floating dtype -> the same, C-contiguous"""
    if rate.dtype.name not in FLOATS:
        raise NotImplementedError(f"poisson: rates must be floating point, but found {rate.dtype.name}")
    if not (rate >= 0).all():
        raise RuntimeError("invalid Poisson rate: it is a mean, and non-negative")
    return _one_by_one(generator, _poisson, rate).astype(_wide(rate.dtype)).astype(rate.dtype)


def binomial(generator: Generator, count: np.ndarray, prob: np.ndarray) -> np.ndarray:
    """One binomial number for each pair of count and probability, in order. Arrays that broadcast -> their shape, the dtype of count

    Beyond one half, failures are counted instead. What is computed of the two alone has their precision.
    """
    for name, array in (("count", count), ("prob", prob)):
        if array.dtype.name not in FLOATS:
            raise ValueError(f"binomial only supports floating-point dtypes for {name}, but found {array.dtype.name}. Try {name}.float()")
    if count.dtype != prob.dtype:
        raise RuntimeError(f"binomial: expected count and prob of one dtype, but found {count.dtype.name} and {prob.dtype.name}")
    n, p = np.broadcast_arrays(*[a.astype(_wide(count.dtype)) for a in (count, prob)])
    mirrored, nothing = p > 0.5, (n <= 0) | (p <= 0)
    q = np.where(mirrored, 1 - p, p)
    with np.errstate(all="ignore"):
        prepared = n * q, np.sqrt(n * q * (1 - q)), q / (1 - q), np.floor((n + 1) * q), np.log1p(-q.astype(np.float64)).astype(q.dtype)
        found = _one_by_one(generator, _binomial, n, q, *prepared)
        found = np.where(mirrored, n - found, found)
    return np.where(nothing, 0, np.where(np.isnan(n) | np.isnan(p), math.nan, found)).astype(n.dtype).astype(count.dtype)


def gamma(generator: Generator, shape: np.ndarray) -> np.ndarray:
    """One gamma number of scale 1 for each shape parameter, in order. -> float64

    Below 1 it is one of shape a + 1 times a power of a uniform number. What is computed of a alone has its precision.
    """
    a: np.ndarray = shape.astype(_wide(shape.dtype))
    with np.errstate(all="ignore"):
        d = np.where(a == 0, 0, np.where(a < 1, a + 1, a) - a.dtype.type(THIRD)).astype(np.float64)
        return _one_by_one(generator, _gamma, d, 1 / np.sqrt(9 * d), np.where((a < 1) & (a != 0), 1 / a, 0))


def _wide(dtype: np.dtype) -> type:
    return np.float64 if dtype == np.float64 else np.float32


def _one_by_one(generator: Generator, sample: Callable, *operands: np.ndarray) -> np.ndarray:
    """sample(*operands, uniforms, waiting) at every place of the operands, in order; waiting is the second of a pair of normal numbers, or NaN.

    The uniform numbers have 53 bits. Drawn in blocks, they leave the generator as if they had come one by one. -> float64
    """
    numbers, out = np.array(operands, np.float64), np.empty(operands[0].shape)
    with generator.lock:
        waiting = np.array([math.nan if generator.next_normal is None else generator.next_normal])
        if lib is not None:
            lib.reject(generator.words, SAMPLERS.index(sample), numbers, out, waiting)
        else:
            start, used = generator.words.copy(), itertools.count()
            some = min(4 * out.size, 256)
            blocks = iter(lambda: unit(generator, some).tolist(), None)
            uniforms = (u for u, _ in zip(itertools.chain.from_iterable(blocks), used, strict=False))
            out.reshape(-1)[:] = [sample(*values, uniforms, waiting) for values in numbers.reshape(len(operands), -1).T.tolist()]
            generator.words[:] = start
            unit(generator, next(used))
        generator.next_normal = None if math.isnan(waiting[0]) else float(waiting[0])
    return out


# -- Poisson -------------------------------------------------------------------------------------------------------


def _poisson(rate: float, uniforms: Uniforms, waiting: np.ndarray) -> float:
    """Below 10: multiply uniform numbers until the product falls to exp(-rate); the factors before that are counted."""
    if rate >= 10 or rate == 0:
        return rate if rate in (0, math.inf) else _poisson_rejection(rate, uniforms)
    bound, product, count = math.exp(-rate), next(uniforms), 0
    while product > bound:
        product *= next(uniforms)
        count += 1
    return count


def _poisson_rejection(rate: float, uniforms: Uniforms) -> float:
    """PTRS."""
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    quick = 0.9277 - 3.6224 / (b - 2)
    log_rate = math.log(rate)
    while True:
        u = next(uniforms) - 0.5
        v = next(uniforms)
        edge = 0.5 - abs(u)
        k = math.floor((2 * a / edge + b) * u + rate + 0.43) if edge else -1
        if edge >= 0.07 and v <= quick:
            return k
        if k < 0 or (edge < 0.013 and v > edge) or v == 0:
            continue
        if math.log(v) + math.log(inverse_alpha) - math.log(a / (edge * edge) + b) <= -rate + k * log_rate - math.lgamma(k + 1):
            return k


# -- binomial ------------------------------------------------------------------------------------------------------


def _binomial(n: float, p: float, mean: float, deviation: float, odds: float, mode: float, log_failure: float, uniforms, waiting) -> float:
    """Successes in n trials. Few: add up the trials until each next success, which are geometric numbers, until there are more than n. Many: BTRS."""
    if not (n > 0 and p > 0):
        return 0
    if not mean >= 10:
        trials, successes = 0.0, -1
        while trials <= n:
            u = next(uniforms)
            step = math.log(u) / log_failure if u else math.inf
            trials += math.ceil(step) if step <= n else step  # may be infinite where p is the smallest of numbers
            successes += 1
        return successes
    if math.isinf(n):
        return math.nan * next(uniforms) * next(uniforms)  # the first point is taken
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    centre = mean + 0.5
    quick = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * deviation
    while True:
        u = next(uniforms) - 0.5
        v = next(uniforms)
        edge = 0.5 - abs(u)
        k = math.floor((2 * a / edge + b) * u + centre) if edge else -1
        if k < 0 or k > n:
            continue
        if edge >= 0.07 and v <= quick:
            return k
        bound = (
            (mode + 0.5) * math.log((mode + 1) / (odds * (n - mode + 1)))
            + (n + 1) * math.log((n - mode + 1) / (n - k + 1))
            + (k + 0.5) * math.log(odds * (n - k + 1) / (k + 1))
            + (_stirling_tail(mode) + _stirling_tail(n - mode) - _stirling_tail(k) - _stirling_tail(n - k))
        )
        if v == 0 or math.log(v * alpha / (a / (edge * edge) + b)) <= bound:
            return k


def _stirling_tail(k: float) -> float:
    """What Stirling's formula for log k!, centred at k + 1, leaves out: log k! - ((k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2)."""
    if k < 10:
        return math.lgamma(k + 1) - ((k + 0.5) * math.log(k + 1) - (k + 1) + 0.5 * math.log(2 * math.pi))
    square = (k + 1) ** 2
    return (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)


# -- gamma ---------------------------------------------------------------------------------------------------------


THIRD, SQUEEZE = np.float32(1) / np.float32(3), float(np.float32(0.0331))  # PyTorch's constants have the digits of float32


def _gamma(d: float, c: float, power: float, uniforms: Uniforms, waiting: np.ndarray) -> float:
    """A cube of a shifted normal number, v d with v = (1 + c x)^3, times a power of a uniform number."""
    if d == 0:
        return 0
    scale = (1 - next(uniforms)) ** power if power else 1
    while True:
        x = _normal(uniforms, waiting)
        y = 1 + c * x
        if y <= 0:
            continue
        v, u, square = y * y * y, 1 - next(uniforms), x * x
        if u < 1 - SQUEEZE * square * square or math.log(u) < 0.5 * square + d * (1 - v + math.log(v)):
            return scale * d * v


def _normal(uniforms: Uniforms, waiting: np.ndarray) -> float:
    """A standard normal number; of each pair the sine waits."""
    found, waiting[0] = float(waiting[0]), math.nan
    if math.isnan(found):
        theta = 2 * math.pi * next(uniforms)
        radius = math.sqrt(-2 * math.log1p(-next(uniforms)))
        found, waiting[0] = radius * math.cos(theta), radius * math.sin(theta)
    return found


SAMPLERS = (_poisson, _binomial, _gamma)  # in the order of csrc/rejection.c
