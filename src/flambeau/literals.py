"""From Python data to an array: numbers, nested sequences, NumPy's scalars and arrays.

The dtype of nested data is found as PyTorch finds it: a Python float is the default dtype, an int is int64, a NumPy scalar or a 0-d tensor
keeps its own dtype, and all of them are promoted together. The shape is that of the first elements; everything else must agree with it.

>>> literal([[1, 2], [3, 4.5]])
array([[1. , 2. ],
       [3. , 4.5]], dtype=float32)
"""

from __future__ import annotations

import math
import warnings
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from flambeau import dtypes, float8

PYTHON_NUMBERS = {bool, int, float, complex}


def literal(data: Any, dtype: dtypes.dtype | None = None) -> np.ndarray:
    """A fresh array with the data, in `dtype` or in the one the data implies."""
    if type(data) is float and dtype is None:
        dtype = dtypes.get_default_dtype()
        if dtype.itemsize > 2 and -3e38 < data < 3e38:  # nothing to round twice, and no infinity to warn of
            return np.array(data, dtype.numpy)
    if isinstance(data, (np.ndarray, np.generic)):
        return _converted(importable(np.asarray(data)), dtype)
    if type(data) is list and data and (kinds := set(map(type, data))) <= PYTHON_NUMBERS:
        # A plain list of numbers, by far the most usual: half the time of the general way below.
        return _filled(data, dtype or _common_dtype(data, kinds), kinds)
    shape, first = _shape(data)
    if isinstance(first, str) and shape:
        raise ValueError(f"too many dimensions 'str': expected numbers in the sequence, found the string {first!r}")
    values: list = []
    kinds = set()
    _flatten(data, shape, 0, values, kinds)
    if dtype is None:
        dtype = _common_dtype(values, kinds) if 0 not in shape else dtypes.get_default_dtype()
    if not kinds <= PYTHON_NUMBERS:
        values = [_number(v, dtype) for v in values]
        kinds = set(map(type, values))
    return _filled(values, dtype, kinds).reshape(shape)


def importable(array: np.ndarray) -> np.ndarray:
    """A NumPy array that a tensor can share memory with: a plain ndarray of a known dtype, native, with forward strides."""
    if not array.dtype.isnative:
        raise ValueError(
            "the bytes of the given numpy array are in the order of other machines: try array.astype(array.dtype.newbyteorder('='))"
        )
    known = dtypes.of_array(array).numpy
    if not array.flags.c_contiguous:
        if any(s < 0 for s in array.strides) and array.size:
            raise ValueError("a stride of the given numpy array is negative, which tensors do not support: try array.copy()")
        if any(s % array.itemsize for s in array.strides):
            raise ValueError("a stride of the given numpy array is no multiple of its element's size: try array.copy()")
    if type(array) is not np.ndarray:
        array = array.view(np.ndarray)  # np.memmap, np.matrix
    # C's `long long` and `long` are two NumPy types of one width; kernels know the second.
    return array if array.dtype.num == known.num else array.view(known)


def is_sequence(data: Any) -> bool:
    """Whether data has elements of its own, as far as `tensor` is concerned: lists, tuples, ranges, arrays, but no tensor and no string."""
    if isinstance(data, (list, tuple)):
        return True
    if isinstance(data, np.ndarray):
        return data.ndim > 0
    if isinstance(data, (str, bytes, dict)) or type(data) in PYTHON_NUMBERS or hasattr(data, "_array"):
        return False
    return hasattr(data, "__len__") and hasattr(data, "__getitem__")


# -- shape ---------------------------------------------------------------------------------------------------------


def _shape(data: Any) -> tuple[tuple[int, ...], Any]:
    """The lengths along the first elements, and the first number."""
    shape: list[int] = []
    while is_sequence(data) or isinstance(data, np.ndarray):  # an array without dimensions is no first element: TypeError
        shape.append(len(data))
        if len(shape) > 128:
            raise ValueError(f"too many dimensions '{type(data).__name__}': the data is nested more than 128 levels deep")
        if not shape[-1]:
            return tuple(shape), None
        try:
            data = data[0]
        except Exception as problem:  # whatever a class of the program's raises
            raise ValueError(
                f"could not determine the shape of object type '{type(data).__name__}': it has a length, and no element 0"
            ) from problem
    return tuple(shape), data


def _unequal(wanted: int, dim: int, found: int) -> ValueError:
    return ValueError(f"expected sequence of length {wanted} at dim {dim} (got {found})")


def _flatten(data: Any, shape: tuple[int, ...], depth: int, values: list, kinds: set) -> None:
    """Append the numbers to `values`, their types (of arrays: their dtypes) to `kinds`. Every length must be that of `shape`."""
    if depth == len(shape):  # not nested at all
        values.append(data)
        kinds.add(type(data))
        return
    if not is_sequence(data):
        raise TypeError(f"not a sequence: at dim {depth} a {type(data).__name__} stands beside sequences")
    if len(data) != shape[depth]:
        raise _unequal(shape[depth], depth, len(data))
    if isinstance(data, np.ndarray):
        for dim, (wanted, got) in enumerate(zip(shape[depth:], data.shape, strict=False), depth):
            if wanted != got:
                raise _unequal(wanted, dim, got)
        if data.ndim != len(shape) - depth:
            raise ValueError(f"expected sequence of shape {shape[depth:]} at dim {depth} (got {data.shape})")
        values += importable(data).reshape(-1).tolist()
        kinds.add(dtypes.of_array(data))
    elif depth + 1 < len(shape):
        for item in data:
            _flatten(item, shape, depth + 1, values, kinds)
        if depth == 0 and all(isinstance(item, np.ndarray) for item in data):
            warnings.warn(
                "Creating a tensor from a list of numpy.ndarrays is extremely slow, as they are read number by number. Try "
                "numpy.array(list) first.",
                stacklevel=5,
            )
    else:
        found = set(map(type, data))
        for item in () if found <= PYTHON_NUMBERS else data:
            if is_sequence(item):
                if item is data:
                    raise TypeError("self-referential lists are incompatible with tensors: the list is an element of itself")
                raise TypeError(
                    f"{type(item).__name__!r} object cannot be interpreted as a number: it is nested deeper than its neighbours"
                )
        values.extend(data)  # not +=, which a torch.Size among the data would take for its own
        kinds |= found


# -- dtype ---------------------------------------------------------------------------------------------------------


def _common_dtype(values: list, kinds: set) -> dtypes.dtype:
    """The promoted dtype of all numbers."""
    found: set[dtypes.dtype] = set()
    for kind in kinds:
        if isinstance(kind, dtypes.dtype):
            found.add(kind)
        elif kind in PYTHON_NUMBERS:
            found.add(dtypes.of_scalar(kind()))
        else:
            found |= {_scalar_dtype(v) for v in values if type(v) is kind}
    return reduce(dtypes.promote_types, found)


def _scalar_dtype(value: Any) -> dtypes.dtype:
    """The dtype one number brings along."""
    if isinstance(value, (np.generic, np.ndarray)):
        return dtypes.of_array(value)
    if hasattr(value, "_array"):
        return value.dtype
    if isinstance(value, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(value).__name__}': a tensor holds numbers")
    try:
        return dtypes.of_scalar(value)
    except TypeError:
        raise RuntimeError(f"Could not infer dtype of {type(value).__name__}: expected numbers, sequences of numbers or arrays") from None


# -- values --------------------------------------------------------------------------------------------------------


def _number(value: Any, dtype: dtypes.dtype) -> Any:
    """One element as a Python number."""
    if type(value) in PYTHON_NUMBERS:
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        return value.item()
    if hasattr(value, "_array"):
        if value.numel() != 1:
            hint = f"found shape {tuple(value.shape)} inside a sequence. Try torch.stack(...) to join tensors"
            if dtype.category < dtypes.FLOAT:
                raise TypeError(f"only integer tensors with one element can be an index: {hint}")
            raise ValueError(f"a Python scalar has one element: {hint}")
        if value.requires_grad:
            warnings.warn(
                "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior. Its history is lost", stacklevel=6
            )
        return value.item()
    if isinstance(value, (int, float, complex)):
        return value
    if isinstance(value, (str, bytes)):
        _scalar_dtype(value)
    if dtype.is_complex:
        return complex(value)
    if dtype.is_floating_point:
        return float(value)  # Fraction, Decimal, whatever has __float__
    if not hasattr(value, "__index__"):
        raise TypeError(f"{type(value).__name__!r} object cannot be interpreted as an integer")
    return value.__index__()


def _filled(values: list, dtype: dtypes.dtype, kinds: set[type]) -> np.ndarray:
    """An array of Python numbers, each converted as PyTorch converts it."""
    if dtype.category == dtypes.INTEGER:
        return _integers(values, dtype, kinds)
    if complex in kinds and dtype.is_floating_point:
        raise TypeError("must be real number, not complex: pass a complex dtype, or the real part")
    # A Python float reaches half precision by way of float32, which rounds twice, as PyTorch does.
    through = np.dtype(np.float32) if dtype in (dtypes.float16, dtypes.bfloat16, *dtypes.FLOAT8) else dtype.numpy
    with np.errstate(over="ignore"):
        if isinstance(dtype, dtypes.float8):
            return float8.encoded(np.array(values, dtype=through), dtype.numpy)
        return np.array(values, dtype=through).astype(dtype.numpy, copy=False)


def _integers(values: list, dtype: dtypes.dtype, kinds: set[type]) -> np.ndarray:
    """Integers, with PyTorch's checks: a float is cut off, what does not fit is an error, and a negative number may wrap around."""
    if complex in kinds or (float in kinds and dtype is dtypes.uint64):
        kind = "complex" if complex in kinds else "float"
        raise TypeError(f"{kind!r} object cannot be interpreted as an integer: pass a {kind} dtype, or whole numbers")
    if not kinds <= {int, bool}:
        return np.array([stored_integer(v, dtype) for v in values], dtype.numpy)
    try:
        wide = np.array(values, dtype=np.uint64 if dtype is dtypes.uint64 else np.int64)
    except OverflowError as problem:
        if dtype is dtypes.uint64:
            raise OverflowError("can't convert negative int to unsigned" if "-" in str(problem) else "int too big to convert") from None
        raise ValueError("Overflow when unpacking long long: an integer beyond 64 bits. Pass a floating dtype to round it") from None
    if wide.dtype != dtype.numpy and wide.size:
        for extreme in (wide.min(), wide.max()):
            stored_integer(int(extreme), dtype)  # raises if it does not fit
    return wide.astype(dtype.numpy)


def stored_integer(value: Any, dtype: dtypes.dtype) -> Any:
    """One number as an integer dtype stores it; RuntimeError if it does not fit. Of an unsigned dtype -1 is the largest value, as in C."""
    limits = _limits(dtype)
    lowest = limits.min or (-limits.max if isinstance(value, (int, np.integer)) else 0)
    if not lowest <= value <= limits.max:  # nan compares false
        raise does_not_fit(value, dtype)
    return dtype.numpy.type(int(value) if limits.min else int(value) % (limits.max + 1))


@lru_cache(None)
def _limits(dtype: dtypes.dtype) -> np.iinfo:
    return np.iinfo(dtype.numpy)


def filling(value: Any, dtype: dtypes.dtype) -> Any:
    """One number as x[i] = value stores it: as `stored`, but half precision may become infinite."""
    if dtype not in (dtypes.float16, dtypes.bfloat16):
        return stored(value, dtype)
    value = stored(value, dtypes.float64)
    return value if -_largest(dtype) <= value <= _largest(dtype) or value != value else math.copysign(math.inf, value)


def stored(value: Any, dtype: dtypes.dtype) -> Any:
    """One number as `fill_` and `full` store it: what is beyond the dtype's range is an error instead of infinity."""
    if type(value) is float and dtype is dtypes.float32 and -3e38 < value < 3e38:
        return value
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise OverflowError(f"int too big to convert: {value} does not fit in 64 bits")
    if dtype is dtypes.bool:
        return bool(value)
    if isinstance(value, complex) and not dtype.is_complex:
        if value.imag:
            raise does_not_fit(value, dtype)
        value = value.real
    if dtype.category == dtypes.INTEGER:
        return stored_integer(value, dtype)
    size = abs(value) if not isinstance(value, complex) else max(abs(value.real), abs(value.imag))
    if size > _largest(dtype) and size != np.inf:
        raise does_not_fit(value, dtype)
    return value


@lru_cache(None)
def _largest(dtype: dtypes.dtype) -> float:
    return dtypes.finfo(dtype).max


def does_not_fit(value: Any, dtype: dtypes.dtype) -> RuntimeError:
    """The error for a number that a dtype cannot hold."""
    return RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: {value}")


def _converted(array: np.ndarray, dtype: dtypes.dtype | None) -> np.ndarray:
    """A copy of an array in another dtype, its axes in the same order in memory."""
    target = dtypes.of_array(array).numpy if dtype is None else dtype.numpy
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c" and target.kind != "c":
            warnings.warn("Casting complex values to real: the imaginary part is lost", stacklevel=4)
            array = array.real
        if isinstance(dtype, dtypes.float8) and array.dtype != target:
            return float8.encoded(array.astype(np.float32), target)
        return np.array(array, dtype=target, order="K", copy=True)
