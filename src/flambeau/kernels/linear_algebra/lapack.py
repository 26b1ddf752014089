"""LAPACK and BLAS routines as Python functions: called through ctypes from the OpenBLAS that products run on (see gemm.py).

NumPy has most factorisations, but its OpenBLAS brings a second set of threads, which on a busy machine wait for each other: a 200 x 200
inverse took 7 to 30 ms there and 0.9 ms here, on one thread. And NumPy has no LU, no triangular systems, no LDL^T.

`matrices.py` is what uses this; it also knows what to do where the library is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.templates import gemm

LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}  # the first letter of a routine's name
FOR_COMPLEX = {"orgqr": "ungqr", "syevd": "heevd"}  # routines with another name for complex matrices

SMALL = 1024  # elements


@lru_cache(None)
def library():
    """The library, or None where the package scipy-openblas32 is not installed."""
    path = gemm.library()
    return gemm.load(path) if path else None


@lru_cache(None)
def routine(name: str, dtype: np.dtype) -> Callable[..., int]:
    """A LAPACK routine of one dtype: called with arrays, ints and letters, it returns `info`, its last argument.

    Matrices are passed column after column, followed by their leading dimension, as Fortran has them. Where something is refused
    (a NaN, by some routines) LinAlgError is raised.
    """
    import ctypes

    bare = fortran(FOR_COMPLEX.get(name, name) if dtype.kind == "c" else name, dtype)

    def call(*args) -> int:
        info = ctypes.c_int(0)
        bare(*args, ctypes.byref(info))
        if info.value < 0:
            raise np.linalg.LinAlgError(f"LAPACK's {name} refused its argument {-info.value}")
        return info.value

    return call


@lru_cache(None)
def fortran(name: str, dtype: np.dtype) -> Callable[..., None]:
    """A routine as Fortran has it: everything is passed by its address, and after the arguments come the lengths of the letters."""
    import ctypes

    function = getattr(library(), f"scipy_{LETTERS[dtype.name]}{name}_")
    function.restype = None
    pointer, number, by_address, length = ctypes.c_void_p, ctypes.c_int, ctypes.byref, ctypes.c_size_t(1)

    def call(*args) -> None:
        passed = [pointer(v.ctypes.data) if type(v) is np.ndarray else by_address(number(v)) if type(v) is int else v for v in args]
        function(*passed, *[length for v in args if type(v) is bytes])

    return call


def batched(call: Callable[..., int], batch, *operands: np.ndarray, work: np.dtype | None = None) -> np.ndarray:
    """call(*matrices) for the matrices at each place of the batch. -> info, an int32 for each place

    With `work`, a dtype, scratch memory and its length follow. A routine called with the length -1 only writes the length it wants.
    """
    scratch: tuple = ()
    if work is not None:
        answer = np.zeros(1, work)
        call(*[answer] * len(operands), answer, -1)
        memory = np.empty(int(answer[0].real * 1.001) + 1, work)  # a length beyond 2^24 is rounded in float32
        scratch = memory, memory.size
    info = np.zeros(batch, np.int32)
    for at in np.ndindex(*batch):
        info[at] = call(*[operand[at] for operand in operands], *scratch)
    return info


def columns(a: np.ndarray) -> np.ndarray:
    """A copy in which every matrix is stored column after column."""
    *batch, m, n = a.shape
    out = empty_columns(batch, m, n, a.dtype)
    arrays.write(out, a)
    return out


def by_columns(a: arrays.Array) -> arrays.Array:
    """Matrices stored column after column, as LAPACK leaves its results: these if they lie so, else a copy. On any device."""
    if type(a) is np.ndarray and 0 < a.size < SMALL and 1 not in a.shape:  # 0.5 us, what follows takes 2
        if a.ndim == 2:
            return a if a.flags.f_contiguous else a.copy("F")
        turned = a.swapaxes(-1, -2)
        return a if turned.flags.c_contiguous else turned.copy().swapaxes(-1, -2)
    turned = arrays.contiguous(a.swapaxes(-1, -2))
    if 1 in turned.shape or not turned.size:  # where NumPy and PyTorch differ about strides
        turned = arrays.strided_view(turned, turned.shape, layout.contiguous_strides(turned.shape))
    return turned.swapaxes(-1, -2)


def empty_columns(batch, m: int, n: int, dtype: np.dtype) -> np.ndarray:
    """Memory for matrices stored column after column."""
    return np.empty((*batch, n, m), dtype).swapaxes(-1, -2)
