"""The door to cuBLASLt: products of matrices whose kind is described once, and whose algorithm the library has chosen for it.

CuPy has no functions for this library, and those for cuBLAS refuse to work while a stream is being captured. So it is called as any C library is, by the
functions that NVIDIA documents; it is in memory already, because cuBLAS, which CuPy loads, is made of it. Workspace comes from our allocator, and
goes back to it when the work has been launched: whoever gets it next on the same stream comes later.

cuBLASLt counts columns first, tensors count rows first; but C = A B by rows is Cᵀ = Bᵀ Aᵀ by columns, in the very same memory. `Product` speaks of
rows, and turns everything around when it describes itself to the library.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

import cupy
import ml_dtypes
import numpy as np
from cupy.cuda import get_current_stream, runtime

from flambeau.kernels import libraries
from flambeau.kernels.native.native import lib as native

# The header's numbers: of dtypes, of computations ...
REAL32, REAL64, REAL16, COMPLEX32, COMPLEX64, BFLOAT16 = 0, 1, 2, 4, 5, 14
IN_16, IN_32, IN_TF32, IN_64 = 64, 68, 77, 70
# ... of what a product, a matrix and the search for an algorithm are told ...
TURN_FIRST, TURN_SECOND, EPILOGUE, BIAS = 3, 4, 7, 8
BATCH, BATCH_STRIDE = 5, 6
MOST_WORKSPACE, WAYS_TO_ADD, ALIGNMENTS = 1, 3, (5, 6, 7, 8)
# ... of what may come behind a product, and of how parts of a long sum are added up: not in the dtype of the result.
PLAIN, ADD_BIAS = 1, 4
ADD_WIDE = 3

NOT_SUPPORTED = 15
STATUS = {
    1: "not initialized",
    3: "out of memory",
    7: "invalid value",
    8: "not made for this GPU",
    13: "the launch failed",
    14: "internal error",
}
WORKSPACE = 32 << 20  # the most an algorithm may ask for, which is what PyTorch grants it on the GPUs of today
ALIGNED = 256  # what an address is a multiple of, at most, as far as the library cares
ALGORITHM, FOUND = 64, 96  # bytes of an algorithm, and of it with what is said about it


class Kind(NamedTuple):
    """How the library names a dtype: of the elements, of the computation, and the NumPy dtype of the factors of a product."""

    data: int
    compute: int
    scalar: np.dtype


_FLOAT16 = np.dtype(np.float16)
KINDS = {
    _FLOAT16: Kind(REAL16, IN_32, np.dtype(np.float32)),
    np.dtype(ml_dtypes.bfloat16): Kind(BFLOAT16, IN_32, np.dtype(np.float32)),
    np.dtype(np.float32): Kind(REAL32, IN_32, np.dtype(np.float32)),
    np.dtype(np.float64): Kind(REAL64, IN_64, np.dtype(np.float64)),
    np.dtype(np.complex64): Kind(COMPLEX32, IN_32, np.dtype(np.complex64)),
    np.dtype(np.complex128): Kind(COMPLEX64, IN_64, np.dtype(np.complex128)),
}
SCALARS = {np.dtype(np.float32): REAL32, np.dtype(np.float64): REAL64, _FLOAT16: REAL16, np.dtype(np.complex64): COMPLEX32,
           np.dtype(np.complex128): COMPLEX64}  # fmt: skip


def kind_of(dtype: np.dtype, switches: int) -> Kind:
    """How products of this dtype are computed under these switches (libraries.products)."""
    kind = KINDS[dtype]
    if switches & libraries.TF32 and dtype.char in "fF":
        return kind._replace(compute=IN_TF32)
    if switches & libraries.SUMS_IN_FLOAT16 and dtype == _FLOAT16:
        return Kind(REAL16, IN_16, _FLOAT16)
    return kind


class Factor(NamedTuple):
    """How a factor lies in memory: by columns (`turned`) or by rows; elements from one row, or column, to the next, and from matrix to matrix."""

    turned: bool
    lead: int
    step: int


class Product:
    """out = alpha first second + beta out, for matrices (rows, depth) and (depth, columns), or batches of them, and rows of `out` that are dense.

    bias   one number for each column, added to every row; `run` is given its address
    once   where alpha = 1 and beta = 0 lie in main memory
    """

    def __init__(
        self, dtype: np.dtype, rows: int, depth: int, columns: int, first: Factor, second: Factor, count: int, alignment: int, bias: bool,
        switches: int,
    ):  # fmt: skip
        self.kind = kind_of(dtype, switches)
        self.one_and_zero = np.array([1, 0], self.kind.scalar)
        self.once = self.one_and_zero.ctypes.data
        self.library, data = library(), self.kind.data
        lib = self.library
        self.handle, self.lock = handle(runtime.getDevice()), Lock()
        self.multiply, self.tell = (ctypes.cast(f, c_void_p).value for f in (lib.cublasLtMatmul, lib.cublasLtMatmulDescSetAttribute))
        self.bias = c_void_p()  # its address, where the library is told to look for it
        self.description = _made(lib.cublasLtMatmulDescCreate, self.kind.compute, SCALARS[self.kind.scalar])
        _tell(lib.cublasLtMatmulDescSetAttribute, self.description, TURN_FIRST, c_int32(second.turned))
        _tell(lib.cublasLtMatmulDescSetAttribute, self.description, TURN_SECOND, c_int32(first.turned))
        if bias:
            _tell(lib.cublasLtMatmulDescSetAttribute, self.description, EPILOGUE, c_uint32(ADD_BIAS))
        self.second = _matrix(data, (columns, depth), second, count)
        self.first = _matrix(data, (depth, rows), first, count)
        self.out = _matrix(data, (columns, rows), Factor(False, columns, rows * columns), count)
        self.made = [(self.description, lib.cublasLtMatmulDescDestroy)]
        self.made += [(matrix, lib.cublasLtMatrixLayoutDestroy) for matrix in (self.first, self.second, self.out)]
        self.algorithm, self.workspace = self._chosen(alignment, switches)

    def _chosen(self, alignment: int, switches: int) -> tuple[int, int]:
        """(address of the algorithm that the library thinks quickest, bytes of workspace); (0, 0) if it has none."""
        lib = self.library
        wanted = _made(lib.cublasLtMatmulPreferenceCreate)
        _tell(lib.cublasLtMatmulPreferenceSetAttribute, wanted, MOST_WORKSPACE, c_uint64(WORKSPACE))
        wide = {REAL16: libraries.WIDE_SUMS_OF_FLOAT16, BFLOAT16: libraries.WIDE_SUMS_OF_BFLOAT16}.get(self.kind.data, 0)
        if switches & wide:
            _tell(lib.cublasLtMatmulPreferenceSetAttribute, wanted, WAYS_TO_ADD, c_uint32(ADD_WIDE))
        for which in ALIGNMENTS:
            _tell(lib.cublasLtMatmulPreferenceSetAttribute, wanted, which, c_uint32(alignment))
        self.found, count = (c_uint64 * (FOUND // 8))(), c_int()
        status = lib.cublasLtMatmulAlgoGetHeuristic(
            self.handle, self.description, self.second, self.first, self.out, self.out, wanted, 1, self.found, byref(count)
        )
        lib.cublasLtMatmulPreferenceDestroy(wanted)
        if status != NOT_SUPPORTED:
            _check(status)
        return (ctypes.addressof(self.found), self.found[ALGORITHM // 8]) if count.value and not status else (0, 0)

    def run(self, factors: int, first: int, second: int, out: int, bias: int = 0) -> None:
        """Launch it on the current stream; `factors` is the address of (alpha, beta) in main memory, which is read during the call."""
        if not bias:
            self._launch(factors, first, second, out)
            return
        with self.lock:  # the address of the bias is part of the description, which all threads share
            self.bias.value = bias
            _check(native.gpu_call(self.tell, self.description, BIAS, ctypes.addressof(self.bias), ctypes.sizeof(c_void_p)))
            self._launch(factors, first, second, out)

    def _launch(self, factors: int, first: int, second: int, out: int) -> None:
        room = cupy.cuda.alloc(self.workspace) if self.workspace else None
        status = native.gpu_call(
            self.multiply, self.handle, self.description, factors, second, self.second, first, self.first, factors + self.kind.scalar.itemsize,
            out, self.out, out, self.out, self.algorithm, 0 if room is None else room.ptr, self.workspace, get_current_stream().ptr,
        )  # fmt: skip
        if status:
            _check(status)

    def __del__(self):
        for thing, destroy in self.__dict__.get("made", ()):
            destroy(thing)


def _matrix(data: int, shape: tuple[int, int], factor: Factor, count: int) -> int:
    """A description of matrices that have this shape when they are read column by column, as the library reads them."""
    create, tell = library().cublasLtMatrixLayoutCreate, library().cublasLtMatrixLayoutSetAttribute
    made = _made(create, data, *(shape[::-1] if factor.turned else shape), factor.lead)
    if count:
        _tell(tell, made, BATCH, c_int32(count))
        _tell(tell, made, BATCH_STRIDE, c_int64(factor.step))
    return made


def _made(create, *arguments) -> int:
    """What a function of the library makes: the address of something that only the library looks into."""
    found = c_void_p()
    _check(create(byref(found), *arguments))
    return found.value or 0


def _tell(function, thing: int, what: int, value) -> None:
    _check(function(thing, what, byref(value), ctypes.sizeof(value)))


def _check(status: int) -> None:
    """RuntimeError if a function of the library says that it failed."""
    if status:
        raise RuntimeError(f"cuBLASLt refused a product: {STATUS.get(status, 'status')} ({status})")


@lru_cache(None)
def handle(device: int) -> int:
    """What the library keeps for the current GPU."""
    return _made(library().cublasLtCreate)


SIGNATURES = {
    "cublasLtCreate": (c_void_p,),
    "cublasLtMatmulDescCreate": (c_void_p, c_int, c_int),
    "cublasLtMatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatrixLayoutCreate": (c_void_p, c_int, c_uint64, c_uint64, c_int64),
    "cublasLtMatrixLayoutSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceCreate": (c_void_p,),
    "cublasLtMatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulAlgoGetHeuristic": (*(c_void_p,) * 7, c_int, c_void_p, c_void_p),
    "cublasLtMatmul": (*(c_void_p,) * 14, c_size_t, c_void_p),
}


@lru_cache(1)
def library() -> ctypes.CDLL:
    """The library, with the types of what its functions take."""
    from cupy.cuda import cublas  # noqa: F401 - brings the library into memory, wherever it lies

    found = ctypes.CDLL(f"libcublasLt.so.{runtime.runtimeGetVersion() // 1000}")
    for name, types in SIGNATURES.items():
        function = getattr(found, name)
        function.argtypes, function.restype = types, c_int
    return found
