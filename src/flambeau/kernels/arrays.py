"""Arrays on any device: NumPy's on the CPU, CuPy's on CUDA, `MetaArray` where there is no data; or one of these in a mirror (mirrored.py).

The rooms above never ask what kind of array they hold; they call these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from flambeau import devices, dtypes, float8
from flambeau.kernels import layout
from flambeau.kernels.language.pointwise import Pointwise
from flambeau.kernels.meta import MetaArray
from flambeau.kernels.mirrored import Mirrored, turned, turned_number, turns
from flambeau.kernels.native import copies, memory_guard, native

ndarray = np.ndarray
Array = Any  # numpy.ndarray | cupy.ndarray | MetaArray | Mirrored


def device_of(array: Array) -> devices.device:
    """Where the array lives."""
    if type(array) is ndarray:
        return devices.cpu
    if on_gpu(array):
        return devices.gpu(array.data.device_id)
    if hasattr(array, "as_tensor"):  # stands for other tensors
        return array.device if hasattr(array, "device") else device_of(array.value._array)
    return device_of(array.memory) if type(array) is Mirrored else devices.meta


def module_of(array: Array):
    """The module with NumPy's functions for this array: numpy or cupy."""
    if type(array) is ndarray:
        return np
    if type(array) is MetaArray:
        raise NotImplementedError("this operation needs data, and a tensor on the meta device has none: only its shape is known")
    if type(array) is Mirrored:
        raise TypeError("no module's functions take an array in a mirror: they take what `plain` makes of it")
    return cuda().cupy


cuda_room: Any = None  # the CUDA room, once it has been needed: for those who hold a CuPy array already


def on_gpu(array: Array) -> bool:
    """Whether it is CuPy's."""
    return cuda_room is not None and type(array) is cuda_room.ndarray


def on_only_gpu(array: Array) -> bool:
    """Whether it is on a GPU, and there is but one: of several, somebody has to see whether all tensors are on the same."""
    return cuda_room is not None and type(array) is cuda_room.ndarray and cuda_room.only_one()


def cuda():
    """The CUDA room, imported when first needed."""
    global cuda_room
    if cuda_room is not None:
        return cuda_room
    try:
        from flambeau.kernels.cuda import gpu as cuda
    except ImportError as problem:
        raise AssertionError(f"Torch not compiled with CUDA enabled: {problem}. Use device='cpu', or install flambeau[cuda]") from problem
    cuda_room = cuda
    if native.lib is not None and cuda.only_one():
        native.lib.set_elsewhere(cuda.ndarray)
    return cuda


def current_gpu() -> devices.device:
    """The GPU that "cuda" means now."""
    return devices.device("cuda", cuda().current_device())


def plain(array: Array) -> Array:
    """The numbers themselves: of an array in a mirror a fresh one that holds what is seen there, else the array."""
    if type(array) is not Mirrored:
        return array
    seen = array.memory
    for kernel in turns(array):
        seen = run(kernel, (seen,), (), seen.dtype, seen.dtype)
    return seen


def element_strides(array: Array) -> tuple[int, ...]:
    """Strides counted in elements."""
    size = array.itemsize
    return tuple([s // size for s in array.strides])


def view_of(array: Array) -> layout.View:
    """(shape, strides in elements)."""
    return array.shape, element_strides(array)


def lying(array: Array) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the order of dimensions in which an array's elements follow each other, channels last or row-major; the order that leads back).

    What works along rows, and answers in the memory format of its input as PyTorch does, works on array.transpose(order), and transposes back.
    """
    return orders(array.ndim, layout.looks_channels_last(*view_of(array)))


def orders(n: int, last: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the order of n dimensions with the channels last, the order that leads back); or, not `last`, as they are."""
    return ((0, *range(2, n), 1), (0, n - 1, *range(1, n - 1))) if last else ((*range(n),), (*range(n),))


def empty(shape: Sequence[int], dtype: np.dtype, device: devices.device = devices.cpu) -> Array:
    """Uninitialised C-contiguous memory."""
    if device.type == "cpu":
        return native.empty(tuple(shape), dtype)
    if device.type == "meta":
        return MetaArray(shape, dtype)
    _check_for_gpu(dtype)
    return cuda().empty(shape, dtype, device)


def empty_beside(array: Array, shape: Sequence[int], dtype: np.dtype) -> Array:
    """Uninitialised C-contiguous memory on the device of the array. On the only GPU, nobody need ask which it is."""
    if type(array) is ndarray:
        return native.empty(tuple(shape), dtype)
    if on_only_gpu(array) and 0 not in shape:
        return cuda_room.launch.empty(tuple(shape), dtype)
    return empty(shape, dtype, device_of(array))


def empty_strided(shape, strides, dtype: np.dtype, device: devices.device = devices.cpu) -> Array:
    """Uninitialised memory with the given strides (in elements)."""
    if device.type == "cpu":
        return native.empty_strided(tuple(shape), tuple(strides), dtype)
    if device.type == "meta":
        return MetaArray(shape, dtype, strides)
    return cuda().empty_strided(shape, strides, dtype, device)


def zeros(shape: Sequence[int], dtype: np.dtype, device: devices.device = devices.cpu) -> Array:
    """C-contiguous memory full of zeros."""
    out = empty(shape, dtype, device)
    fill(out, 0)
    return out


def empty_like(array: Array, dtype: np.dtype | None = None) -> Array:
    """Uninitialised memory on the same device, dense, with the array's order of dimensions."""
    if type(array) is ndarray and array.size and array.flags.c_contiguous and 1 not in array.shape:  # which have strides of their own
        return native.empty(array.shape, array.dtype if dtype is None else dtype)
    strides = layout.preserve_format_strides(array.shape, element_strides(array))
    return empty_strided(array.shape, strides, array.dtype if dtype is None else dtype, device_of(array))


def empty_pointwise(operands: Sequence[Array], dtype: np.dtype) -> Array:
    """Uninitialised memory for a pointwise result of arrays, laid out as they agree on."""
    shape = layout.broadcast_shapes(*[a.shape for a in operands])
    return empty_strided(shape, layout.pointwise_strides(shape, *map(view_of, operands)), dtype, device_of(operands[0]))


def strided_view(array: Array, shape, strides, offset: int = 0) -> Array:
    """A view of the same memory; strides and offset in elements, the offset from the array's first element."""
    if type(array) is ndarray:
        return native.strided_view(array, tuple(shape), tuple(strides), offset)
    if type(array) is MetaArray:
        return MetaArray(shape, array.dtype, strides, array.offset + offset)
    if type(array) is Mirrored:
        return Mirrored(strided_view(array.memory, shape, strides, offset), array.conj, array.neg)
    return cuda().strided_view(array, shape, strides, offset)


def number(value, like: Array, dtype: np.dtype) -> Array:
    """A 0-d array holding a Python number, on the device of `like`."""
    if type(like) is ndarray:
        return np.asarray(value).astype(dtype)
    if type(like) is MetaArray:
        return MetaArray((), dtype)
    if hasattr(like, "as_tensor"):  # stands for a whole batch, whose array it knows
        return number(value, like.value._array, dtype)
    if type(like) is Mirrored:
        return number(value, like.memory, dtype)
    return cuda().number(value, dtype, device_of(like))


def item(array: Array):
    """The one element of an array, as a Python number."""
    array = plain(array)
    return array.item() if type(array) is ndarray or cuda_room is None else cuda_room.item(array)


def cast(array: Array, dtype: np.dtype) -> Array:
    """The array in another dtype: itself if it has it already, else a dense copy."""
    if array.dtype == dtype:
        return array
    if dtype.char in float8.CHARS or array.dtype.char in float8.CHARS:
        return _cast_float8(array, dtype)
    if type(array) is ndarray:
        found = CASTS[dtypes.OF_NUMPY[dtype].name].launch(array)
        if found is not NotImplemented:
            return found
    elif isinstance(array, np.generic):  # what NumPy's functions make of an array without dimensions
        return cast(np.asarray(array), dtype)
    return run(CASTS[dtypes.OF_NUMPY[dtype].name], (array,), (), array.dtype, dtype)


def _cast_float8(array: Array, dtype: np.dtype) -> Array:
    """A conversion from or to floats of eight bits, by way of float32."""
    array = plain(array)
    if type(array) is MetaArray:
        return _shape_only((array,), dtype, None)
    if type(array) is not ndarray:
        raise NotImplementedError(
            f"there are no conversions to or from {dtypes.OF_NUMPY[dtype]} on {device_of(array)}: move it to the CPU first"
        )
    if array.dtype in float8.SORTS:
        numbers = float8.decoded(array)
        return numbers if dtype == np.float32 else cast(numbers, dtype)
    found = empty_like(array, dtype)
    found[...] = float8.encoded(cast(array, dtypes.float32.numpy), dtype)
    return found


def casting(dtype: np.dtype) -> Callable:
    """The compiled conversion of arrays in main memory to a dtype; NotImplemented where there is none."""
    return CASTS[dtypes.OF_NUMPY[dtype].name].launch


def copy(array: Array) -> Array:
    """A dense copy that keeps the order of dimensions."""
    if type(array) is ndarray:
        found = copies.fresh(array)
        if found is not NotImplemented:
            return found
        if array.dtype.char in float8.CHARS:
            return copy(array.view(np.int8)).view(array.dtype)
    return run(CASTS[dtypes.of_array(array).name], (array,), (), array.dtype, array.dtype)


def contiguous(array: Array) -> Array:
    """The array itself if it is C-contiguous, else a C-contiguous copy."""
    if (type(array) is ndarray or on_gpu(array)) and array.size:
        return array if array.flags.c_contiguous else contiguous_copy(array)
    return array if layout.is_contiguous(array.shape, element_strides(array)) else contiguous_copy(array)


def contiguous_copy(array: Array) -> Array:
    """A C-contiguous copy."""
    found = copied(array) if array.size else NotImplemented
    if found is not NotImplemented:
        return found
    out = native.empty(array.shape, array.dtype) if type(array) is ndarray else empty(array.shape, array.dtype, device_of(array))
    write(out, array)
    return out


def copied(array: Array):
    """A copy of a row-major array by one loop; else NotImplemented."""
    if type(array) is ndarray:
        return copies.fresh(array) if array.flags.c_contiguous else NotImplemented
    return copy(array) if on_gpu(array) and array.flags.c_contiguous else NotImplemented


def wrote(out: Array, source: Array) -> bool:
    """Whether the compiled loop took `source` into `out`: both in main memory, and not overlapping."""
    if type(out) is not ndarray or type(source) is not ndarray:
        return False
    if source.shape != out.shape:  # loops are as large as what they read
        steps = _repeating(out.shape, source.shape, source.strides, source.itemsize)
        if steps is None:
            return False
        source = native.strided_view(source, out.shape, steps, 0)
    return copies.made(out, source) if out.dtype == source.dtype else _cast_to(out).launch_into(out, source) is not NotImplemented


@lru_cache(1024)
def _repeating(shape: tuple[int, ...], own: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[int, ...] | None:
    """The strides, in elements, with which an array repeats to a shape; None where it does not."""
    lead = len(shape) - len(own)
    if lead < 0 or any([n != 1 and n != shape[lead + d] for d, n in enumerate(own)]) or any([s % size for s in strides]):
        return None
    return layout.broadcast_strides(own, tuple([s // size for s in strides]), shape)


def write(out: Array, source: Array) -> None:
    """Copy `source` into `out`, broadcasting and converting."""
    if out.dtype.char in float8.CHARS or source.dtype.char in float8.CHARS:
        converted = cast(source, out.dtype)
        if type(out) is ndarray:
            write(out.view(np.int8), converted.view(np.int8)) if out.dtype in float8.SORTS else write(out, converted)
        return
    if on_gpu(out) and type(source) is not Mirrored:
        cuda_room.run(CASTS[dtypes.OF_NUMPY[out.dtype].name], (source,), (), source.dtype, out.dtype, out)
    elif wrote(out, source):
        return
    elif type(out) is Mirrored:
        write(out.memory, plain(turned(cast(plain(source), out.dtype), out.conj, out.neg)))
    else:
        run(CASTS[dtypes.of_array(out).name], (source,), (), source.dtype, out.dtype, out=out)


def _cast_to(array: np.ndarray) -> Pointwise:
    """The conversion to the dtype of the array."""
    found = _casts.get(array.dtype.num)
    if found is None:
        found = _casts[array.dtype.num] = CASTS[dtypes.of_array(array).name]
    return found


_casts: dict[int, Pointwise] = {}  # by the number of NumPy's dtype


def may_overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays in main memory may share some of it: by the stretches of memory they lie in."""
    if type(a) is type(b) is ndarray and a.flags.c_contiguous and b.flags.c_contiguous:
        first, second = native.address(a), native.address(b)
        return first < second + b.nbytes and second < first + a.nbytes
    return np.may_share_memory(a, b)


def apart(out: Array, source: Array) -> Array:
    """`source`, or a copy where it shares memory with `out`, so that writing to `out` does not change what is still to be read.

    RuntimeError where PyTorch sees that the two overlap in part: views shifted against each other.
    """
    if type(out) is not type(source) or type(out) is MetaArray:
        return source
    if type(source) is Mirrored:
        return plain(source)
    if not (may_overlap(out, source) if type(out) is ndarray else module_of(out).may_share_memory(out, source)):
        return source
    how = overlap(out, source)
    if how == "partial":
        raise overlap_error()
    return source if how == "full" else copy(source)


def overlap(a: Array, b: Array) -> str:
    """How two arrays in one place share memory: "none", "full", "partial" or "unknown", see layout.overlap."""
    if type(a) is not type(b) or type(a) is MetaArray:
        return "none"
    return layout.overlap((*view_of(a), data_pointer(a)), (*view_of(b), data_pointer(b)), a.itemsize, b.itemsize)


def overlap_error() -> RuntimeError:
    """What is raised where an operand lies in the memory that is written to."""
    return RuntimeError(
        "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
        "Please clone() the tensor before performing the operation."
    )


def fill(out: Array, value) -> None:
    """Set every element to a number."""
    if type(out) is ndarray:
        if out.dtype.char in float8.CHARS:
            out[...] = float8.encoded(np.asarray(value, np.float32), out.dtype)
            return
        if (type(value) is int and 0 <= value < 128) or (type(value) is float and out.dtype.char in "fd" and -3e38 < value < 3e38):
            if out.size < MANY or not _spread(value, out):
                out.fill(value)  # it fits as it is: 0.2 us instead of 5
            return
        if out.dtype.kind in "iu" and isinstance(value, float):
            value = int(value)
        with np.errstate(all="ignore"):
            out[...] = np.asarray(value).astype(out.dtype)  # integers wrap around, as in C
    elif type(out) is Mirrored:
        fill(out.memory, turned_number(value, out))
    elif type(out) is not MetaArray:
        cuda().fill(out, value)


MANY = 1 << 15  # elements that are worth several threads


def _spread(value, out: np.ndarray) -> bool:
    """Whether a compiled loop wrote the number to all places of `out`: as lines, where it has gaps between them."""
    ndim = out.ndim
    if ndim > 1 and out.strides[-1] == out.itemsize and not out.flags.c_contiguous:
        line = native.empty(out.shape[-1:], out.dtype)
        line.fill(value)
        return copies.made(out, native.strided_view(line, out.shape, (*(0,) * (ndim - 1), 1), 0))
    return copies.made(out, native.strided_view(np.array([value], out.dtype), out.shape, (0,) * ndim, 0))


def run(kernel: Pointwise, operands: Sequence, params: Sequence, key: np.dtype, out_dtype: np.dtype, out: Array | None = None) -> Array:
    """Run a pointwise kernel on arrays (or Python numbers) that have its dtype `key` already."""
    kind = type(operands[0])
    if kind in _NUMBERS:
        kind = type(next(a for a in operands if not isinstance(a, NUMBERS)))
    if kind is ndarray:
        result = kernel.launch(*operands, *params) if out is None else kernel.launch_into(out, *operands, *params)
        if result is not NotImplemented:
            return result
    if type(out) is Mirrored:
        write(out, run(kernel, operands, params, key, out_dtype))
        return out
    if any([type(a) is Mirrored for a in operands]):
        return run(kernel, [plain(a) for a in operands], params, key, out_dtype, out)
    if kind is ndarray:
        if key in HALVES and native.lib is not None and kernel.out == "T":
            return _in_float32(kernel, operands, params, key, out_dtype, out)
        return _evaluate(kernel, operands, params, key, out_dtype, out)
    if kind is MetaArray:
        return _shape_only(operands, out_dtype, out)
    return cuda().run(kernel, operands, params, key, out_dtype, out)


NUMBERS = (int, float, complex, bool)
_NUMBERS = frozenset(NUMBERS)
HALVES = (dtypes.float16.numpy, dtypes.bfloat16.numpy)


def _in_float32(kernel: Pointwise, operands, params, key, out_dtype, out):
    """Half precision without a loop of its own: converted, computed in float32, rounded once."""
    wide = dtypes.float32.numpy
    ready = [_beside_half(kernel, i, a, key).item() if isinstance(a, NUMBERS) else a for i, a in enumerate(operands)]
    ready = [cast(a, wide) if not isinstance(a, NUMBERS) and a.dtype in HALVES else a for a in ready]
    result = run(kernel, ready, params, wide, wide if out_dtype in HALVES else out_dtype)
    if out is None:
        return cast(result, out_dtype)
    write(out, result)
    return out


def _beside_half(kernel: Pointwise, index: int, value, key: np.dtype) -> np.ndarray:
    """A number given for an operand of dtype `key`: rounded to it, except where PyTorch computes with all its digits."""
    exact = key in HALVES and kernel.operands[index] == kernel.unrounded
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(np.float32 if exact else key)


def _evaluate(kernel: Pointwise, operands, params, key, out_dtype, out):
    from flambeau.kernels.language.evaluate import evaluate

    arrays = [_beside_half(kernel, i, a, key) if isinstance(a, NUMBERS) else a for i, a in enumerate(operands)]
    try:
        value = evaluate(kernel.expr, arrays, params, key)
    except MemoryError as problem:
        raise memory_guard.as_ours(problem) from None
    if out is None:
        shape = layout.broadcast_shapes(*(a.shape for a in arrays))
        out = native.empty_strided(shape, layout.pointwise_strides(shape, *map(view_of, arrays)), out_dtype)
    with np.errstate(all="ignore"):
        if value.dtype.kind == "c" and out.dtype.kind not in "cb":  # 1j is true
            value = value.real
        np.copyto(out, value.astype(out_dtype, copy=False), casting="unsafe")
    return out


def _shape_only(operands, out_dtype, out):
    if out is not None:
        return out
    views = [((), ()) if isinstance(a, NUMBERS) else view_of(a) for a in operands]
    shape = layout.broadcast_shapes(*(v[0] for v in views))
    return MetaArray(shape, out_dtype, layout.pointwise_strides(shape, *views))


# One kernel per target dtype: the identity, stored as that dtype. The loop is chosen by the dtype it reads.
CASTS = {d.name: Pointwise(f"to_{d.name}", lambda input: input, ("input",), out=d.name, dtypes=()) for d in (*dtypes.ALL, *dtypes.FLOAT8)}


def data_pointer(array: Array) -> int:
    """The address of the array's first element; 0 where there is no data."""
    if type(array) is ndarray:
        return native.address(array)
    if type(array) is Mirrored:
        return data_pointer(array.memory)
    return array.offset * array.itemsize if type(array) is MetaArray else array.data.ptr


def step_between(slices: Sequence[Array]) -> int:
    """The elements from each of these arrays to the next, if they lie like slices of one array; else 0."""
    first = slices[0]
    kind = type(first)
    if kind is not ndarray and not on_gpu(first):
        return 0
    if any([type(a) is not kind or a.shape != first.shape or a.strides != first.strides or a.dtype != first.dtype for a in slices]):
        return 0
    at = [data_pointer(a) for a in slices]
    step = at[1] - at[0] if len(at) > 1 else 0
    return step // first.itemsize if step % first.itemsize == 0 and all([y - x == step for x, y in pairwise(at)]) else 0


def lying_together(slices: Sequence[Array], dim: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array | None:
    """The array of this shape and these strides (in elements) whose slices along `dim` these are, if they are such; None if not."""
    first = slices[0]
    if (type(first) is not ndarray and not on_gpu(first)) or first.base is None or any([a.base is not first.base for a in slices]):
        return None
    if element_strides(first) != (*strides[:dim], *strides[dim + 1 :]) or step_between(slices) != strides[dim]:
        return None
    return strided_view(first, shape, strides)


def joined(out: Array, pieces: Sequence[Array], dim: int) -> bool:
    """Whether the pieces were written one after another along `dim` of `out` in one launch, which a GPU is worth."""
    return on_gpu(out) and cuda_room.join(out, pieces, dim)


def to_device(array: Array, device: devices.device, non_blocking: bool = False) -> Array:
    """The array on another device: itself if it is there already. A copy from pinned memory need not be waited for."""
    if device_of(array) == device:
        return array
    if device.type == "meta":
        return MetaArray(array.shape, array.dtype, element_strides(array))
    if type(array) is MetaArray:
        raise NotImplementedError("Cannot copy out of meta tensor; no data! Use to_empty() or create the tensor on the device instead.")
    if type(array) is Mirrored:
        return to_device(plain(array), device, non_blocking)
    _check_for_gpu(array.dtype)
    return cuda().to_device(array, device, non_blocking)


def carried(out: Array, source: Array, non_blocking: bool) -> bool:
    """Copy between main memory and a GPU without a detour, where both lie alike."""
    return (on_gpu(out) or on_gpu(source)) and cuda_room.carried(out, source, non_blocking)


def _check_for_gpu(dtype: np.dtype) -> None:
    if dtype in float8.SORTS:
        raise NotImplementedError(
            f"CuPy has no arrays of {dtypes.OF_NUMPY[dtype]}: such tensors live on the CPU. Try x.bfloat16() on the GPU"
        )


def reinterpret(array: Array, dtype: np.dtype, shape, strides) -> Array:
    """The array's bytes read as another dtype; shape and strides (in elements) are those of the result."""
    if type(array) is MetaArray:
        return MetaArray(shape, dtype, strides)
    if type(array) is Mirrored:
        if array.conj or {array.dtype.kind, dtype.kind} != {"f", "c"}:  # the negative of a complex number is that of both its parts
            raise TypeError("conjugated memory cannot be read as other numbers")
        return Mirrored(reinterpret(array.memory, dtype, shape, strides), False, True)
    if array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)
    if type(array) is not ndarray:
        return cuda().reinterpret(array, dtype, shape, tuple(strides))
    first = strided_view(array, (1,), (1,)).view(np.uint8)  # any start of the same memory will do, however few elements there are
    first = np.lib.stride_tricks.as_strided(first, (dtype.itemsize,), (1,)).view(dtype)
    return native.strided_view(first.reshape(()), tuple(shape), tuple(strides), 0)
