"""What CuPy's arrays consist of, for compiled code that makes them and looks at them without CuPy's functions (kernels/native/csrc/gpu_arrays.c).

CuPy ships the declarations of its classes (`cupy/_core/core.pxd`, `cupy/cuda/memory.pxd`) for those who compile against them:

    cdef class _ndarray_base:          cdef class MemoryPointer:       cdef class BaseMemory:
        readonly Py_ssize_t size           readonly intptr_t ptr           public intptr_t ptr
        public vector[Py_ssize_t] _shape   readonly int device_id          public size_t size
        public vector[...] _strides        readonly BaseMemory mem         public int device_id
        readonly bint _c_contiguous
        readonly bint _f_contiguous
        readonly bint _index_32_bits
        readonly object dtype
        readonly MemoryPointer data

Where these fields lie is not taken on trust: objects with numbers that are known are made, and looked at. Where a field is not found in its order,
None is answered, and compiled code asks for attributes and calls classes, which is right but takes 2 us longer for each array.
"""

from __future__ import annotations

import ctypes
import struct

import cupy
import numpy as np

from flambeau.kernels.cuda import driver
from flambeau.kernels.native.native import lib


def furnish(refuse) -> type:
    """Open the driver, and tell compiled code what arrays are; `refuse(bytes, tries)` is asked where there is no room. -> the class of pieces of memory"""
    lib.gpu_open(driver.PATH)
    base = next((c for c in cupy.ndarray.__mro__ if c.__name__ == "_ndarray_base"), cupy.ndarray)
    memory = getattr(cupy.cuda.memory, "BaseMemory", None)
    return lib.gpu_arrays(cupy.ndarray, base, cupy.cuda.MemoryPointer, memory, places(), cupy.cuda.get_current_stream, refuse)


def places() -> tuple[int, ...] | None:
    """Where the fields above lie, in this order, and the address of C++'s operator new; None if they were not found."""
    try:
        return (*_of_arrays(), *_of_pointers(), *_of_memory(), _operator_new())
    except (LookupError, AttributeError, TypeError, OSError, ValueError):
        return None


def _of_arrays() -> tuple[int, ...]:
    memory = cupy.cuda.UnownedMemory(1 << 20, 1 << 12, None, 0)  # nobody writes there
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    rows = cupy.ndarray((3, 5, 7), np.dtype(np.float64), pointer)
    columns = cupy.ndarray((3, 5, 7), np.dtype(np.float64), pointer, (8, 24, 120))
    other = cupy.ndarray((2, 2), np.dtype(np.int16), pointer, (6, 2))
    dtype, data = _word(rows, id(rows.dtype)), _word(rows, id(pointer))
    size = _word(rows, 105)
    shape = _vector(rows, (3, 5, 7))
    strides = _vector(rows, (280, 56, 8))
    flags = strides + 24
    # Three numbers of four bytes: row-major, column-major, few enough bytes for indices of 32 bits.
    seen = [struct.unpack_from("iii", _bytes(a), flags) for a in (rows, columns, other)]
    if seen != [(1, 0, 1), (0, 1, 1), (0, 0, 1)] or not size < shape < strides < dtype < data or shape + 24 != strides:
        raise LookupError("CuPy's arrays consist of something else")
    if _vector(columns, (8, 24, 120)) != strides or _vector(other, (6, 2)) != strides or _word(other, id(other.dtype)) != dtype:
        raise LookupError("CuPy's arrays consist of something else")
    return size, shape, strides, flags, flags + 4, flags + 8, dtype, data


def _of_pointers() -> tuple[int, ...]:
    memory = cupy.cuda.UnownedMemory(0x5A5A5000, 1 << 12, None, 3)
    pointer = cupy.cuda.MemoryPointer(memory, 0x10)
    at, owner = _word(pointer, 0x5A5A5010), _word(pointer, id(memory))
    if struct.unpack_from("i", _bytes(pointer), at + 8) != (3,) or owner != at + 16:
        raise LookupError("CuPy's pointers consist of something else")
    return at, at + 8, owner


def _of_memory() -> tuple[int, ...]:
    memory = cupy.cuda.UnownedMemory(0x5A5A5000, 0x1234567, None, 3)
    at, size = _word(memory, 0x5A5A5000), _word(memory, 0x1234567)
    if struct.unpack_from("i", _bytes(memory), size + 8) != (3,) or size + 12 > cupy.cuda.memory.BaseMemory.__basicsize__:
        raise LookupError("CuPy's memory consists of something else")
    return at, size, size + 8


def _bytes(thing) -> bytes:
    return ctypes.string_at(id(thing), type(thing).__basicsize__)


def _word(thing, value: int) -> int:
    """Where in an object this number of 8 bytes lies, behind what all objects begin with."""
    raw = _bytes(thing)
    found = [at for at in range(16, len(raw) - 7, 8) if struct.unpack_from("Q", raw, at)[0] == value]
    if len(found) != 1:
        raise LookupError(f"{value} stands at {found}")
    return found[0]


def _vector(thing, values: tuple[int, ...]) -> int:
    """Where in an object a C++ vector with these numbers lies: begin, end, end of the room."""
    raw, size = _bytes(thing), 8 * len(values)
    for at in range(16, len(raw) - 23, 8):
        begin, end, room = struct.unpack_from("QQQ", raw, at)
        if begin and end - begin == size and room >= end and ctypes.string_at(begin, size) == struct.pack(f"{len(values)}q", *values):
            return at
    raise LookupError(f"no vector holds {values}")


def _operator_new() -> int:
    found = ctypes.cast(ctypes.CDLL("libstdc++.so.6")._Znwm, ctypes.c_void_p).value
    if not found:
        raise LookupError("no operator new")
    return found
