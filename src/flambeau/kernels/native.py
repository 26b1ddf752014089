"""The compiled extension, where there is one.

Everything here has a plain answer when nothing was compiled: `kernel` then gives a callable that returns NotImplemented, which sends the
caller to the NumPy evaluator. One warning at import says so.
"""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np

from flambeau.kernels import layout

try:
    from flambeau.kernels import _native as lib
except ImportError as problem:
    lib = None
    reason = str(problem)
    warnings.warn(
        "Flambeau was installed without its compiled kernels (no C compiler was found, or this Python is not the one it was built for): "
        "everything runs on NumPy, correctly but slowly. Reinstall with a C compiler present: pip install --force-reinstall flambeau",
        stacklevel=2,
    )
else:
    reason = ""
    lib.setup(np.dtype(ml_dtypes.bfloat16))


def not_compiled(*args):
    """Stands for a kernel that was not compiled."""
    return NotImplemented


def kernel(name: str):
    """The compiled kernel of that name, or `not_compiled`."""
    if lib is None:
        return not_compiled
    try:
        return lib.Kernel(name)
    except KeyError:
        return not_compiled


if lib is not None:
    strided_view = lib.strided_view
    empty = lib.empty
    empty_strided = lib.empty_strided
else:

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
        return np.empty(shape, dtype) if 0 not in shape else empty_strided(shape, layout.contiguous_strides(tuple(shape)), dtype)

    def empty_strided(shape, strides, dtype) -> np.ndarray:
        """Uninitialised memory with these strides (in elements)."""
        extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        return strided_view(np.empty(extent, dtype), shape, strides, 0)
