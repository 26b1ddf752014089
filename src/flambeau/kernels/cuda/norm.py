"""Batch norm and group norm on a GPU, as loops whose rows are channels, or groups of channels of a sample.

A channel of all images is lines of memory, one for each, or columns side by side where channels come last; a group is one stretch of memory, in which
every line has a weight of its own. All answer None where x does not lie so; NumPy's way then is CuPy's, too (`loops/channels.py`).

The loops are those that ops/normalization.py declares, but for the gradients of a group, which need sums for each line and for all: two loops here.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import cupy

from flambeau.kernels import arrays, layout
from flambeau.kernels.cuda.launch import empty, strided, where_it_is
from flambeau.kernels.cuda.rows import Rows, run_loop
from flambeau.kernels.loops.language import DECLARED, Loop, extent, precise, total

ndarray = cupy.ndarray

# -- the loops -----------------------------------------------------------------------------------------------------------


@lru_cache(None)
def _training() -> Loop:
    """The norm that the operations declare, and running averages that are moved by a momentum."""
    norm = DECLARED["norm"]

    def formula(x, weight, bias, *rest):
        *averages, eps, momentum = rest
        out, mean, rstd, var = norm.formula(x, weight, bias, eps)
        news = mean, var * (extent / (extent - 1))
        return out, mean, rstd, var, *[old + momentum * (new - old) for old, new in zip(averages, news, strict=True)]

    return Loop("norm_training", formula, "ri rj rj r r", "ri r r r r r", 2, norm.dtypes)


def _group_back(g, x, weight, mean, rstd):
    """rstd * (h - mean(h) - y * mean(h * y)) with h = g * weight, which differs from line to line, and y = (x - mean) * rstd."""
    h = g * weight
    slope, shift = precise(rstd * rstd * rstd * total(h * (x - mean)) / extent), precise(rstd * total(h) / extent)
    return h * rstd - (x - mean) * slope - shift


def _sums(g, x, mean, rstd):
    """Sum of g * y, sum of g."""
    return total(g * ((x - mean) * rstd)), total(g)


GROUP_BACK = Loop("group_norm_backward", _group_back, "ri ri rj r r")
GROUP_SUMS = Loop("group_norm_sums", _sums, "ri ri rj rj", "r r")

# -- running them --------------------------------------------------------------------------------------------------------


@where_it_is(0)
def norm(x, weight, bias, eps: float, groups: int, running: dict | None = None) -> tuple | None:
    """((x - mean) * rstd * weight + bias, mean, rstd, var); running averages are moved towards these, and "done" is noted with them."""
    lie = _rows(x, (weight, bias), groups)
    if lie is None:
        return None
    shape = (x.shape[0], groups) if groups else (x.shape[1],)
    averages = () if running is None else (running["mean"], running["var"])
    moved = bool(averages) and all([a.dtype == x.dtype and a.flags.c_contiguous for a in averages])
    averages, momentum = (averages, running["momentum"]) if moved else ((), 0.0)
    found = strided(x.shape, x.strides, x.dtype), *[empty(shape, x.dtype) for _ in range(3)]
    loop, options = (_training(), (eps, momentum)) if moved else (DECLARED["norm"], (eps,))
    run_loop(loop, (*found, *averages), (x, weight, bias, *averages), options, lie)
    if moved:
        running["done"] = True
    return found


@where_it_is(0)
def by_running(x, mean, var, weight, bias, eps: float, groups: int):
    """(x - mean) / sqrt(var + eps) * weight + bias."""
    lie = _rows(x, (mean, var, weight, bias), 0)  # each channel is a row, whatever rows are on a CPU
    if lie is None:
        return None
    out = strided(x.shape, x.strides, x.dtype)
    run_loop(DECLARED["by_running"], (out,), (x, mean, var, weight, bias), (eps,), lie)
    return out


@where_it_is(1)
def norm_backward(g, x, weight, mean, rstd, groups: int) -> tuple | None:
    """The gradients of x, weight and bias."""
    lie = _rows(x, (weight, mean, rstd), groups)
    if lie is None:
        return None
    if g.strides != x.strides or g.dtype != x.dtype:
        turned = strided(x.shape, x.strides, x.dtype)
        arrays.write(turned, g)
        g = turned
    out, sums = strided(x.shape, x.strides, x.dtype), tuple([empty((x.shape[1],), x.dtype) for _ in range(2)])
    if not groups:
        run_loop(DECLARED["norm_backward"], (out, *sums), (g, x, weight, mean, rstd), (), lie)
        return out, *sums
    run_loop(GROUP_BACK, (out,), (g, x, weight, mean, rstd), (), lie)
    samples, channels, *places = x.shape
    length, each = prod(places), channels // groups
    by_channel = Rows(channels, samples * length, each, each * length, length, 1, length, channels * length, (1, 0, groups))
    run_loop(GROUP_SUMS, sums, (g, x, mean, rstd), (), by_channel)
    return out, *sums


BY_NAME = {"norm": norm, "norm_backward": norm_backward, "norm_backward_grouped": norm_backward, "by_running": by_running}


def run(name: str, operands, options, groups: int, **more):
    """The stores of a loop over channels; None where there is no kernel, or not for these."""
    return BY_NAME[name](*operands, *options, groups, **more) if name in BY_NAME else None


def _rows(x, others, groups: int) -> Rows | None:
    if type(x) is not ndarray or x.dtype.char not in "fd" or not x.size:
        return None
    if any([type(a) is not ndarray or a.dtype != x.dtype or not a.flags.c_contiguous for a in others]):
        return None
    return _rows_of(x.shape, tuple([s // x.itemsize for s in x.strides]), groups)


@lru_cache(1024)
def _rows_of(shape: tuple[int, ...], strides: tuple[int, ...], groups: int) -> Rows | None:
    samples, channels, *places = shape
    length, size = prod(places), prod(shape)
    lies = layout.is_contiguous(shape, strides) and size < 2**31
    if groups:
        each = channels // groups
        return (
            Rows(samples * groups, each * length, groups, channels * length, each * length, 1, length, length, (0, each, 1))
            if lies
            else None
        )
    if lies and length > 1:
        return Rows(channels, samples * length, 1, length, 0, 1, length, channels * length, (1, 0, 0))
    if layout.is_contiguous((samples, *places, channels), (strides[0], *strides[2:], strides[1])):
        return Rows(channels, samples * length, channels, 0, 1, channels)
    return None
