"""Pooling on a GPU: one launch of a kernel of templates/cuda_pooling.py, forward and backward, in one to three dimensions."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from flambeau import dtypes
from flambeau.kernels import layout
from flambeau.kernels.cuda.launch import compiled, strided, where_it_is
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.templates.cuda_pooling import FIELDS, print_pool
from flambeau.kernels.templates.pooling import Windows

Array = Any
Sizes = tuple[int, ...]
INT64 = np.dtype(np.int64)


@where_it_is(1)
def pooled(
    what: str, x: Array, large: Sizes, small: Sizes, windows: Windows, at: Array = None, formats: bool = True
) -> tuple[Array, Array | None]:
    """(result, where the greatest were or None): see templates/cuda_pooling. x (N, C, *) or (C, *), with the large sizes for "max" and "average", else the small.

    at        for "spread": where the greatest of each window was
    formats   whether the result's channels come last where those of what is read do
    """
    plan = _plan(what, x.shape, x.strides, x.itemsize, large, small, windows, None if at is None else at.strides, formats)
    device = x.data.device_id
    out = strided(plan.shape, tuple([s * x.itemsize for s in plan.strides]), x.dtype)
    places = strided(plan.shape, tuple([s * 8 for s in plan.strides]), INT64) if what == "max" else None
    if plan.n:
        name = f"fl_pool_{what}"
        dtype = dtypes.OF_NUMPY[x.dtype].name
        kernel = compiled(print_pool, name, device, name, what, dtype, not windows.kernel, plan.last, plan.n >= 2**31)
        pointers = (out.data.ptr, 0 if places is None else places.data.ptr, x.data.ptr, 0 if at is None else at.data.ptr)
        kernel(((plan.n + THREADS - 1) // THREADS,), (THREADS,), (*pointers, plan.n, plan.fields))
    return out, places


class Plan(NamedTuple):
    """The result's shape and strides in elements, its number of elements, whether its channels come last, and the struct Pool."""

    shape: Sizes
    strides: Sizes
    n: int
    last: bool
    fields: np.ndarray


@lru_cache(512)
def _plan(what: str, shape: Sizes, strides: Sizes, size: int, large: Sizes, small: Sizes, windows: Windows, at, formats: bool) -> Plan:
    n, ndim = len(large), len(shape)
    steps = tuple([s // size for s in strides])
    out = (*shape[: ndim - n], *(small if what in ("max", "average") else large))
    last = formats and ndim == n + 2 and ndim > 3 and 0 not in out and layout.looks_channels_last(shape, steps)
    out_strides = layout.channels_last_strides(out) if last else layout.contiguous_strides(out)

    def five(numbers: Sizes) -> Sizes:
        """The numbers of (N, C, D, H, W), 0 for those that are not there."""
        return (*(0,) * (n + 2 - ndim), *numbers[: ndim - n], *(0,) * (3 - n), *numbers[ndim - n :])

    def three(numbers: Sizes, missing: int) -> Sizes:
        return (*(missing,) * (3 - n), *(numbers or (1,) * n))

    found = {
        "large": three(large, 1), "small": three(small, 1), "kernel": three(windows.kernel, 1), "stride": three(windows.stride, 1),
        "padding": three(windows.padding or (0,) * n, 0), "dilation": three(windows.dilation, 1), "x": five(steps),
        "at": five(tuple([s // 8 for s in at])) if at is not None else (0,) * 5, "channels": (shape[ndim - n - 1],),
        "divisor": (windows.divisor,), "padded": (int(windows.padded),),
    }  # fmt: skip
    fields = np.array([number for name in FIELDS for number in found[name]], np.int64)
    return Plan(out, out_strides, math.prod(out), last, fields.view(f"V{fields.nbytes}"))
