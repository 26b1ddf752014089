"""Arrays without data: shape, strides and dtype only. What a tensor on the `meta` device holds."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from flambeau.kernels import layout


class MetaArray:
    """Looks like an ndarray as far as its geometry goes."""

    __slots__ = ("dtype", "itemsize", "ndim", "offset", "shape", "size", "strides")

    def __init__(self, shape, dtype, element_strides=None, offset: int = 0):
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.itemsize = self.dtype.itemsize
        self.ndim = len(self.shape)
        steps = layout.contiguous_strides(self.shape) if element_strides is None else element_strides
        self.strides = tuple(s * self.itemsize for s in steps)
        self.size = prod(self.shape)
        self.offset = offset

    @property
    def flags(self) -> Any:
        """How it lies in memory."""
        return Flags(self)

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize


class Flags:
    """What `ndarray.flags` says of a geometry."""

    def __init__(self, array: MetaArray):
        steps = tuple([s // array.itemsize for s in array.strides]) if array.itemsize else array.strides
        self.c_contiguous = layout.is_contiguous(array.shape, steps)
        self.f_contiguous = layout.is_contiguous(array.shape[::-1], steps[::-1])
        self.fnc = self.f_contiguous and not self.c_contiguous
