"""Batches by channel, (N, C, *): the sums that batch normalisation needs to know, and what it does with them.

    moments      mean and variance of x                 products    sum of g, and of g * (x - mean)
    normalized   (x - mean) * scale + shift             recentred   g * scale - (x - mean) * slope - shift

Mostly all of it is one compiled loop, in which a channel belongs to one thread (`norm`, `norm_backward`; norm_loops.py). Where channels are
few and large, or not dense in memory, it goes step by step: the line of each sample and channel is added up in double precision, two sums
in one pass, and the samples are added afterwards. Either way results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.arrays import Array
from flambeau.kernels.loops.language import Loop, declare
from flambeau.kernels.native import native
from flambeau.kernels.reductions.reduce import reduce, variance
from flambeau.kernels.templates.norm_loops import LANES, REALS, WIDTH

# Formulas of rows that are channels of one sample, with numbers for each, or have all channels.
BY_CHANNEL: dict[str, tuple[Callable, int, int]] = {  # formula, operands that are rows, operands that are numbers
    "normalized": (lambda x, mean, scale, shift: (x - mean) * scale + shift, 1, 3),
    "recentred": (lambda grad, x, mean, scale, slope, shift: grad * scale - (x - mean) * slope - shift, 2, 4),
    "product": (lambda grad, x, mean: grad * (x - mean), 2, 1),
}
LOOPS = {
    f"{name}_{kind}": declare(Loop(f"{name}_{kind}", formula, "ri " * rows + f"{access} " * numbers, dtypes=("float32", "float64")))
    for name, (formula, rows, numbers) in BY_CHANNEL.items()
    for kind, access in (("each", "r"), ("shared", "i"))
}
FEW, LARGE = 4, 1 << 17  # sets of numbers, and elements of all of them, that are better cut into lines


def norm(x: Array, weight: Array, bias: Array, eps: float, groups: int, running: dict | None = None) -> tuple[Array, ...] | None:
    """((x - mean) * rstd * weight + bias, mean, rstd, var) in one loop, or None. (N, C, *), (C,) twice -> (N, C, *), (C,) or (N, groups)."""
    if arrays.on_gpu(x):
        return arrays.cuda_room.norm.norm(x, weight, bias, eps, groups, running)
    plan = _plan(x, (weight, bias), groups)
    if plan is None:
        return None
    name, shape, of_sets, of_weights, of_numbers, more, numbers = plan
    out, view, statistics = _like(x), native.strided_view, (x.shape[0], groups) if groups else x.shape[1:2]
    mean, rstd, var = native.empty(statistics, x.dtype), native.empty(statistics, x.dtype), native.empty(statistics, x.dtype)
    done = native.kernel(f"norm.{name}").into(
        view(out, shape, of_sets, 0), view(x, shape, of_sets, 0), view(weight, shape, of_weights, 0), view(bias, shape, of_weights, 0),
        view(mean, shape, of_numbers, 0), view(rstd, shape, of_numbers, 0), view(var, shape, of_numbers, 0), *more, *numbers, eps,
    )  # fmt: skip
    return None if done is NotImplemented else (out, mean, rstd, var)


def norm_backward(g: Array, x: Array, weight: Array, mean: Array, rstd: Array, groups: int) -> tuple[Array, ...] | None:
    """(gradient of x, sum of g * y, sum of g) of `norm` in one loop, y = (x - mean) * rstd; or None.

    The sums are (1, C) or (N, C), double; or finished, (C,)."""
    if arrays.on_gpu(x):
        return arrays.cuda_room.norm.norm_backward(g, x, weight, mean, rstd, groups)
    plan = _plan(x, (weight, mean, rstd), groups)
    if plan is None:
        return None
    if g.strides != x.strides:
        given, g = g, _like(x)
        arrays.write(g, given)
    name, shape, of_sets, of_weights, of_numbers, more, numbers = plan
    out, view = _like(x), native.strided_view
    total, along = (native.empty((x.shape[0] if groups else 1, x.shape[1]), np.dtype(np.float64)) for _ in range(2))
    operands = [view(a, shape, of_sets, 0) for a in (out, g, x)] + [view(weight, shape, of_weights, 0)]
    operands += [view(a, shape, of_numbers, 0) for a in (mean, rstd)]
    steps = (x.shape[1], x.shape[1] // groups) if groups else of_weights
    operands += [view(a, shape, steps, 0) for a in (total, along)]
    done = native.kernel(f"norm.{name}_backward").into(*operands, *more, *numbers)
    return None if done is NotImplemented else (out, along, total)


def is_plain(x: Array) -> bool:
    """Row-major numbers of a batch, float32 or float64, in main memory or on a GPU."""
    known = type(x) is np.ndarray or arrays.on_gpu(x)
    return known and x.ndim >= 2 and x.size > 0 and x.flags.c_contiguous and x.dtype.char in "fd"


def _plan(x: Array, others: tuple[Array, ...], groups: int) -> tuple | None:
    """(loop, shape of the sets, steps of x, of weights and of statistics from set to set, more operands, numbers), or None."""
    if type(x) is not np.ndarray or native.lib is None or x.dtype.char not in "fd" or not x.size:
        return None
    for a in others:
        if a.dtype != x.dtype or not a.flags.c_contiguous:
            return None
    return _plan_of(x.shape, x.strides, x.itemsize, groups)


@lru_cache(1024)
def _plan_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, groups: int) -> tuple | None:
    samples, channels, *places = shape
    strides = tuple([s // itemsize for s in strides])
    length, size = prod(places), prod(shape)
    if groups and strides == layout.contiguous_strides(shape):
        each = channels // groups
        numbers = each * length, each, length, length, 1
        return "lines", (samples, groups), (channels * length, each * length), (0, each), (groups, 1), (), numbers
    if groups or (channels < FEW and size > LARGE):
        return None
    if length > 1 and strides == layout.contiguous_strides(shape):
        return "lines", (channels,), (length,), (1,), (1,), (), (samples * length, samples, channels * length, length, 0)
    if (strides[0], *strides[2:], strides[1]) != layout.contiguous_strides((samples, *places, channels)):
        return None
    width = WIDTH if channels >= 8 * WIDTH else 16
    blocks = -(-channels // width)
    if blocks < FEW and size > LARGE:
        return None
    widths = np.full(blocks, width)
    widths[-1] = channels - (blocks - 1) * width
    rows = samples * length
    return "columns", (blocks,), (width,), (width,), (width,), (widths,), (rows * width, rows, channels)


def _like(x: np.ndarray) -> np.ndarray:
    return native.empty(x.shape, x.dtype) if x.flags.c_contiguous else arrays.empty_like(x)


# -- step by step ------------------------------------------------------------------------------------------------------------


def moments(x: Array, groups: int = 0) -> tuple[Array, Array]:
    """(mean, variance) in double precision, of each channel: (N, C, *) -> (C,); or of each group of channels of each sample -> (N, groups)."""
    samples, channels = x.shape[:2]
    if _by_lines(x) and x.dtype == np.float32:
        heads = x.reshape(samples, channels, -1)[:, :, 0]
        shift = (heads[:, :: channels // groups] if groups else heads[0]).astype(np.float64)
        first, second = (pooled(a, groups) for a in _sums("channels.moments", (x,), spread(shift, x, groups)))
        n = x.size // shift.size
        with np.errstate(all="ignore"):
            first /= n
            return shift + first, np.maximum(second / n - first * first, 0.0)
    if groups:
        var, mean = variance(x.reshape(samples, groups, -1), (2,), False, 0)
    else:
        var, mean = variance(x, _others(x), False, 0)
    return mean.astype("float64"), var.astype("float64")


def products(g: Array, x: Array, mean: Array, groups: int = 0) -> tuple[Array, Array]:
    """(sum of g, sum of g * (x - mean)) in double precision, of each row, or of each channel where one step finds that.

    (N, C, *), (N, C, *), then mean (1, C) or (N, C) -> (N, C) or (1, C)
    """
    if _by_lines(x) and _by_lines(g):
        return _sums("channels.products", (g, x), mean.astype(np.float64))
    dims = tuple(range(2, x.ndim)) if groups else _others(x)
    found = (reduce("sum", a, dims, False, a.dtype) if dims else a for a in (g, _each("product", (g, x), mean)))
    return tuple(a.astype("float64").reshape(-1, x.shape[1]) for a in found)


def spread(statistics: Array, x: Array, groups: int) -> Array:
    """Statistics of channels or groups as numbers of rows. (C,) -> (1, C), (N, groups) -> (N, C)."""
    return statistics.repeat(x.shape[1] // groups, 1) if groups else statistics.reshape(1, -1)


def pooled(rows: Array, groups: int) -> Array:
    """Sums of rows as sums of channels or groups. (N, C) -> (C,) or (N, groups)."""
    return rows.reshape(rows.shape[0], groups, -1).sum(-1) if groups else rows.sum(0)


def normalized(x: Array, mean: Array, scale: Array, shift: Array) -> Array:
    """(x - mean) * scale + shift. (N, C, *), then numbers of each channel (1, C) or row (N, C) -> (N, C, *)."""
    return _each("normalized", (x,), mean, scale, shift)


def by_running(x: Array, mean: Array, var: Array, weight: Array, bias: Array, eps: float) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias. (N, C, *), (C,) four times -> (N, C, *)."""
    found = arrays.cuda_room.norm.by_running(x, mean, var, weight, bias, eps) if arrays.on_gpu(x) else None
    if found is not None:
        return found
    with np.errstate(all="ignore"):
        scale = (var.astype("float64") + eps) ** -0.5 * weight
    numbers = mean, scale.astype(x.dtype), bias
    if type(x) is np.ndarray and x.flags.c_contiguous and x.ndim > 2 and native.lib is not None and x.size:
        samples, channels, *places = x.shape
        length = prod(places)
        if length >= LANES and x.dtype == mean.dtype == bias.dtype:  # what follows does, with less ado
            rows = native.strided_view(x, (samples, channels, length), (channels * length, length, 1), 0)
            given = [native.strided_view(a, (1, channels, 1), (0, a.strides[0] // a.itemsize, 0), 0) for a in numbers]
            found = native.kernel("rows.normalized_each")(rows, *given)
            if found is not NotImplemented:
                return found.reshape(x.shape)
    return normalized(x, *[a.reshape(1, -1) for a in numbers])


def recentred(g: Array, x: Array, mean: Array, scale: Array, slope: Array, shift: Array) -> Array:
    """g * scale - (x - mean) * slope - shift. (N, C, *) twice, then numbers of each channel (1, C) or row (N, C) -> (N, C, *)."""
    return _each("recentred", (g, x), mean, scale, slope, shift)


def _each(name: str, operands: tuple[Array, ...], *given: Array) -> Array:
    """A formula of arrays, and of numbers that each channel or row has one of: by a loop over rows, or as it stands."""
    x = operands[0]
    numbers = [a if a.flags.c_contiguous else arrays.contiguous(a) for a in [a.astype(x.dtype, copy=False) for a in given]]
    if all(map(_by_lines, operands)):
        rows = [a.reshape(*a.shape[:2], -1) for a in operands]
        return native.kernel(f"rows.{name}_each")(*rows, *(a.reshape(*a.shape, 1) for a in numbers)).reshape(x.shape)
    if type(x) is np.ndarray and native.lib is not None and x.size and all(len(a) == 1 for a in numbers):
        flat = x.ndim == 2
        last = operands if flat else [np.moveaxis(a, 1, -1) for a in operands]
        if all([a.flags.c_contiguous for a in last]):  # features, or images whose channels lie side by side
            found = native.kernel(f"rows.{name}_shared")(*last, *[a[0] for a in numbers])
            return found if flat else np.moveaxis(found, -1, 1)
    with np.errstate(all="ignore"):
        found = BY_CHANNEL[name][0](*operands, *(a.reshape(*a.shape, *(1,) * (x.ndim - 2)) for a in numbers))
    out = arrays.empty_like(x)  # NumPy's own may lie in memory in another order
    arrays.write(out, found)
    return out


def _others(x: Array) -> tuple[int, ...]:
    return (0, *range(2, x.ndim))


def _by_lines(x: Array) -> bool:
    """Whether the compiled loops take it: long lines that are dense in memory."""
    return (
        type(x) is np.ndarray
        and native.lib is not None
        and x.flags.c_contiguous
        and x.ndim > 2
        and prod(x.shape[2:]) >= LANES
        and x.size > 0
    )


def _sums(name: str, operands: tuple[np.ndarray, ...], shift: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two sums for each row. (N, C, *), shift (1, C) or (N, C) -> (N, C), (N, C)."""
    samples, channels, *places = operands[0].shape
    heads = [a.reshape(samples, channels, -1)[:, :, 0] for a in operands]  # each element stands for its line
    first, second = np.empty((2, samples, channels))
    if native.kernel(name).into(first, *heads, shift, second, float(prod(places))) is NotImplemented:
        raise TypeError(f"{name}: not made for {operands[0].dtype}")
    return first, second


# -- C -------------------------------------------------------------------------------------------------------------------

# name: (operands, what an element adds to the first sum, to the second); s is the shift
SUMS = {"moments": (("x",), "x - s", "(x - s) * (x - s)"), "products": (("g", "x"), "g", "g * (x - s)")}
PARAMETERS = "(char *const *ptr, const int64_t *step, int64_t n, const double *param)"


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    texts, declarations, rows = [], [], []
    for name, (operands, first, second) in SUMS.items():
        for kind, (real, enum, _) in REALS.items():
            signature = f"void FL_NAME(channels_{name}_{kind}){PARAMETERS}"
            texts.append(_text(signature, real, operands, first, second))
            declarations.append(signature + ";\n")
            count = len(operands)
            kinds = ", ".join([*[enum] * count, "FL_F64", "FL_F64"])
            generic = (1 << count) - 1
            rows.append(
                f'{{"channels.{name}", FL_NAME(channels_{name}_{kind}), {enum}, {count + 2}, 1, {generic}, FL_F64, {{{kinds}}}, 128}}'
            )
    return texts, declarations, rows


def _text(signature: str, real: str, operands: tuple[str, ...], first: str, second: str) -> str:
    """A loop over lines: ptr is the first sum, the operands, the shift, the second sum; param[0] is the length of a line."""
    count = len(operands)
    starts = "\n        ".join(f"const {real} *const {o}_ = (const {real} *)(ptr[{i}] + k * step[{i}]);" for i, o in enumerate(operands, 1))
    reads = " ".join(f"const double {o} = {o}_[i + l];" for o in operands)
    body = f"{{ {reads} a[l] += {first}; b[l] += {second}; }}"
    return f"""{signature} {{
    const int64_t length = (int64_t)param[0];
    const double zero = fl_zero();
    for (int64_t k = 0; k < n; k++) {{
        {starts}
        const double s = *(const double *)(ptr[{count + 1}] + k * step[{count + 1}]);
        FL_ALIGNED double a[{LANES}], b[{LANES}];
        for (int l = 0; l < {LANES}; l++) a[l] = b[l] = zero;
        int64_t i = 0;
        (void)s;
        for (; i + {LANES} <= length; i += {LANES}) FL_COUNTED for (int l = 0; l < {LANES}; l++) {body}
        for (int l = 0; l < (int)(length - i); l++) {body}
        for (int w = {LANES // 2}; w; w /= 2) for (int l = 0; l < w; l++) a[l] += a[l + w], b[l] += b[l + w];
        *(double *)(ptr[0] + k * step[0]) = a[0], *(double *)(ptr[{count + 2}] + k * step[{count + 2}]) = b[0];
    }}
}}
"""
