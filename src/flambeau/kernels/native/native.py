"""The compiled extension, where there is one.

Everything here has a plain answer when nothing was compiled: `kernel` then gives a callable that returns NotImplemented, which sends the
caller to the NumPy evaluator. One warning at import says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from flambeau.kernels import layout
from flambeau.kernels.native import limits, memory_guard

try:
    from flambeau.kernels import _native as lib

    lib.setup(np.dtype(ml_dtypes.bfloat16), limits.cpus(), limits.memory(), memory_guard.keep)
    lib.set_num_threads(limits.threads())
    memory_guard.native = lib
except (ImportError, AttributeError, TypeError) as problem:  # the latter two: it was built from other sources
    lib = None
    reason = str(problem)
    warnings.warn(
        f"Flambeau runs without its compiled kernels (no C compiler was found, or they were built for another Python or version: {problem}): "
        "everything runs on NumPy, correctly but slowly. Reinstall with a C compiler present: pip install --force-reinstall flambeau",
        stacklevel=2,
    )
else:
    reason = ""


def not_compiled(*args):
    """Stands for a kernel that was not compiled."""
    return NotImplemented


@lru_cache(None)
def kernel(name: str):
    """The compiled kernel of that name, or `not_compiled`."""
    if lib is None:
        return not_compiled
    try:
        return lib.Kernel(name)
    except KeyError:
        return not_compiled


def maker(cls: type, given: tuple[str, ...], **values: Any) -> Callable:
    """A function that makes objects of a class with slots: its arguments go to the slots `given`, the others are as in `values`."""
    names = (*given, *values)
    if lib is not None:
        return lib.maker(cls, names, len(given), (*given, *values.values()))
    new = object.__new__

    def make(*args):
        made = new(cls)
        for name, value in zip(names, (*args, *values.values()), strict=True):
            setattr(made, name, value)
        return made

    return make


def kernels() -> dict[str, set[str]]:
    """The compiled pointwise kernels, and the dtypes each has a loop for. (Other loops have a dot in their name.)"""
    found: dict[str, set[str]] = {}
    for name, dtype in lib.loops() if lib is not None else ():
        if "." not in name:
            found.setdefault(name, set()).add(dtype)
    return found


if lib is not None:
    strided_view = lib.strided_view
    empty = lib.empty
    address, join = lib.address, lib.join
else:

    def address(array: np.ndarray) -> int:
        """The address of the array's first element."""
        return array.__array_interface__["data"][0]

    def strided_view(array: np.ndarray, shape, strides, offset: int) -> np.ndarray:
        """A view of the array's memory: strides and offset in elements, the offset from the array's first element."""
        size = array.itemsize
        steps = tuple(s * size for s in strides)
        if offset:
            array = _shifted(array, offset)
        return np.lib.stride_tricks.as_strided(array, shape, steps)

    def _shifted(array: np.ndarray, offset: int) -> np.ndarray:
        raw = np.lib.stride_tricks.as_strided(array, (abs(offset) + 1,), (array.itemsize if offset > 0 else -array.itemsize,))
        return raw[abs(offset) :].reshape(())

    def empty(shape, dtype) -> np.ndarray:
        """Uninitialised memory, C-contiguous. NumPy gives empty arrays strides of 0; ours are those PyTorch has."""
        memory = _memory(shape, dtype)
        return memory if memory.size else strided_view(memory, shape, layout.contiguous_strides(tuple(shape)), 0)

    def _memory(shape, dtype) -> np.ndarray:
        nbytes = prod(shape) * dtype.itemsize
        if nbytes >= memory_guard.LARGE:
            memory_guard.keep(nbytes, 0)
        for tries in (1, 2):
            try:
                return np.empty(shape, dtype)
            except MemoryError:
                memory_guard.keep(nbytes, tries)
        raise AssertionError("the keeper raises")


def empty_strided(shape, strides, dtype) -> np.ndarray:
    """Uninitialised memory with these strides (in elements), none of them negative. It reaches to the last element."""
    extent = _extent(shape, strides)
    return empty(shape, dtype) if extent < 0 else strided_view(empty((extent,), dtype), shape, strides, 0)


@lru_cache(maxsize=1024)
def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The elements to the last one; -1 if they are dense and in row-major order."""
    if any(s < 0 for s in strides):
        raise ValueError(f"strides cannot be negative, got {tuple(strides)}")
    if strides == layout.contiguous_strides(shape):
        return -1
    return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
