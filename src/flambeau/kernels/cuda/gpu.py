"""The CUDA room: devices, memory and copies on GPUs, through CuPy. `arrays.py` comes here for everything that is a CuPy array.

Importing this file imports CuPy, so it is imported when a GPU is first asked for, never by `import flambeau`. Next door are
`cuda/launch.py` (pointwise kernels), `cuda/rows.py` (reductions and functions of rows), `cuda/gemm.py` (matrix products),
`cuda/cudnn.py` (the door to cuDNN), `cuda/attention.py`, `cuda/gather.py` (reading, writing and adding by index), `cuda/cross_entropy.py` (cross entropy), `cuda/pooling.py`,
`cuda/join.py` (cat and stack), `cuda/recurrent.py` (recurrent networks), `cuda/norm.py` (batch and group norm), `cuda/convolution.py` (convolution),
`cuda/totals.py` (norms of lists), `cuda/error_notes.py` (how a bad index is reported), `cuda/updates.py` (steps of optimizers) and `cuda/random.py`.
"""

# ruff: noqa: F401 - this is the door of the CUDA room: what the files next door do is found here

from __future__ import annotations

import gc
from collections import deque
from functools import lru_cache

import cupy
import numpy as np
from cupy.cuda import Device, runtime

from flambeau import devices, dtypes, errors
from flambeau.errors import OutOfMemoryError
from flambeau.kernels import arrays, layout
from flambeau.kernels.cuda import attention, convolution, cudnn, gemm, launch, norm, norm_graphs, recurrent, totals
from flambeau.kernels.cuda.cross_entropy import class_gradients, class_losses
from flambeau.kernels.cuda.error_notes import checks_at_once, look
from flambeau.kernels.cuda.gather import along, at, spelled
from flambeau.kernels.cuda.gemm import linear, product, product_into, usual_product
from flambeau.kernels.cuda.join import join
from flambeau.kernels.cuda.launch import run
from flambeau.kernels.cuda.pooling import pooled
from flambeau.kernels.cuda.random import (
    Generator,
    binomial,
    default_generator,
    draw,
    dropout,
    gamma,
    manual_seed_all,
    multinomial,
    permutation,
    poisson,
)
from flambeau.kernels.cuda.rows import fold, rows, rows_and_totals
from flambeau.kernels.cuda.updates import update

ndarray = cupy.ndarray

# -- devices -------------------------------------------------------------------------------------------------------------


def device_count() -> int:
    """How many GPUs there are: 0 without a driver."""
    try:
        return runtime.getDeviceCount()
    except runtime.CUDARuntimeError:
        return 0


@lru_cache(1)
def only_one() -> bool:
    """Whether there is one GPU."""
    return device_count() == 1


def is_available() -> bool:
    """Whether there is a GPU."""
    return device_count() > 0


def is_capturing() -> bool:
    """Whether the current stream records its work into a graph instead of doing it."""
    return cupy.cuda.get_current_stream().is_capturing()


def current_device() -> int:
    """The index of the GPU that 'cuda' means."""
    need(None)
    return runtime.getDevice()


def need(index: int | None) -> None:
    """RuntimeError where the GPU asked for is not there."""
    count = device_count()
    if not count:
        raise RuntimeError("No CUDA GPUs are available: CuPy is installed, but it finds no driver or no device. Use device='cpu'")
    if index is not None and not 0 <= index < count:
        raise RuntimeError(f"CUDA error: invalid device ordinal: cuda:{index} was asked for, the last one is cuda:{count - 1}")


def on(device: devices.device | int | None) -> Device:
    """The GPU made current within a `with`."""
    index = device.index if isinstance(device, devices.device) else device
    need(index)
    return Device(index)


# -- memory --------------------------------------------------------------------------------------------------------------

pool = cupy.get_default_memory_pool()
refusals: dict[int, int] = {}  # device -> how often there was no room
peaks: dict[int, list[int]] = {}  # device -> the most bytes that were in use, and reserved, since the last reset
_at_most: dict[int, int] = {}  # device -> a bound for the bytes that are in use


def allocate(size: int):
    """Memory from CuPy's pool on the current device. All of CuPy allocates through this.

    To ask the pool what is in use, it walks through all of it. So that is only asked where more than ever may be: all that was allocated since
    it was last asked is added to what it said.
    """
    try:
        found = pool.malloc(size)
    except cupy.cuda.memory.OutOfMemoryError:
        raise out_of_memory(size) from None
    device = found.device_id
    bound = _at_most[device] = _at_most.get(device, 0) + found.mem.size
    known = peaks.get(device)
    if known is None or bound > known[0]:
        used = _at_most[device] = pool.used_bytes()
        if known is None:
            peaks[device] = [used, 0]
        elif used > known[0]:
            known[0] = used
    return found


cupy.cuda.set_allocator(allocate)


def out_of_memory(size: int) -> OutOfMemoryError:
    """The numbers that explain why there was no room."""
    index = runtime.getDevice()
    refusals[index] = refusals.get(index, 0) + 1
    free, total = runtime.memGetInfo()
    used, reserved = pool.used_bytes(), pool.total_bytes()
    return OutOfMemoryError(
        f"CUDA out of memory. Tried to allocate {amount(size)}. GPU {index} has a total capacity of {amount(total)} of which "
        f"{amount(free)} is free. Of the memory this process has reserved, {amount(used)} is held by tensors and "
        f"{amount(reserved - used)} is kept for reuse." + (errors.explanation(f"cuda:{index}", size) if size <= total else "")
    )


def amount(size: int) -> str:
    """A number of bytes as people write it."""
    power = min((size.bit_length() - 1) // 10, 3) if size else 0
    return f"{size / 1024**power:.{2 if power else 0}f} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def peak(index: int, which: int) -> int:
    """The most bytes that were in use (0) or reserved (1). What is reserved grows until it is given back, so it is its own peak."""
    known = peaks.get(index, (0, 0))[which]
    if not which:
        return known
    with Device(index):
        return max(known, pool.total_bytes())


def reset_peaks(index: int, which: int | None = None) -> None:
    """Start counting the peak of used (0) or reserved (1) bytes anew; both without `which`."""
    with Device(index):
        now = [pool.used_bytes(), pool.total_bytes()]
    before = peaks.get(index, now)
    peaks[index] = now if which is None else [n if i == which else b for i, (n, b) in enumerate(zip(now, before, strict=True))]


def empty_cache() -> None:
    """Give memory that is kept for reuse back to the driver."""
    gc.collect()
    for index in range(device_count()):
        peaks[index] = [peak(index, 0), peak(index, 1)]
    pool.free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()


# -- arrays --------------------------------------------------------------------------------------------------------------


def empty(shape, dtype: np.dtype, device: devices.device):
    """Uninitialised C-contiguous memory."""
    if device.index == runtime.getDevice() and 0 not in shape:
        return ndarray(tuple(shape), dtype)
    return empty_strided(shape, layout.contiguous_strides(tuple(shape)), dtype, device)


def empty_strided(shape, strides, dtype: np.dtype, device: devices.device):
    """Uninitialised memory with the given strides (in elements)."""
    shape, in_bytes = tuple(shape), tuple([s * dtype.itemsize for s in strides])
    if device.index == runtime.getDevice():
        return launch.strided(shape, in_bytes, dtype)
    with on(device):
        return launch.strided(shape, in_bytes, dtype)


def strided_view(array, shape, strides, offset: int):
    """A view of the same memory; strides and offset in elements."""
    return reinterpret(array, array.dtype, shape, strides, offset)


def reinterpret(array, dtype: np.dtype, shape, strides, offset: int = 0):
    """The array's bytes read as another dtype; shape, strides and offset in elements of it."""
    size = dtype.itemsize
    data = array.data
    if offset and data.ptr:  # memory of zero bytes has no address to move from
        data = data + offset * size
    return ndarray(tuple(shape), dtype, data, tuple([s * size for s in strides]))


def number(value, dtype: np.dtype, device: devices.device | None = None):
    """A 0-d array holding a Python number."""
    out = empty((), dtype, device or devices.device("cuda", current_device()))
    fill(out, value)
    return out


def fill(out, value) -> None:
    """Set every element to a number."""
    if out.dtype.kind in "iu" and isinstance(value, float):
        value = int(value)
    with np.errstate(all="ignore"):
        stored = np.asarray(value).astype(out.dtype)  # integers wrap around, as in C
    if not stored.tobytes().strip(b"\0") and out.flags.c_contiguous:
        with Device(out.data.device_id):
            out.data.memset_async(0, out.nbytes)
        return
    kernel = arrays.CASTS[dtypes.of_array(out).name]
    run(kernel, (stored.item() if out.dtype.kind in "biufc" else float(stored),), (), out.dtype, out.dtype, out=out)


# -- copies --------------------------------------------------------------------------------------------------------------

_in_use: deque = deque()  # (event, array): memory that a stream is still to read


def to_device(array, device: devices.device, non_blocking: bool = False):
    """A copy on another device, dense, in the order of dimensions the array has."""
    if type(array) is np.ndarray:
        return _from_host(array, device, non_blocking)
    if device.type == "cpu":
        return _to_host(array)
    return _between_gpus(array, device)


def _dense(array):
    """The array itself if its elements fill one stretch of memory, else a copy that does."""
    if layout.is_non_overlapping_and_dense(*arrays.view_of(array)):
        return array
    return arrays.copy(array)


def _from_host(array: np.ndarray, device: devices.device, non_blocking: bool):
    need(device.index)
    source = _dense(array)
    out = empty_strided(source.shape, arrays.element_strides(source), source.dtype, device)
    if not out.size:
        return out
    with Device(out.data.device_id):
        # From pageable memory the driver returns when the source has been read. From pinned memory it returns at once.
        out.data.copy_from_host_async(arrays.data_pointer(source), source.nbytes)
        if is_pinned(source):
            stream = cupy.cuda.get_current_stream()
            if non_blocking:
                keep_until_done(source, stream)
            else:
                stream.synchronize()
    return out


def keep_until_done(array, stream) -> None:
    """Hold memory until a stream has done what it was asked so far: nobody else may get it from the pool before."""
    while _in_use and _in_use[0][0].done:
        _in_use.popleft()
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    _in_use.append((event, array))


def _to_host(array) -> np.ndarray:
    with Device(array.data.device_id):
        source = _dense(array)
        out = arrays.empty_strided(source.shape, arrays.element_strides(source), source.dtype)
        if out.size:
            source.data.copy_to_host_async(arrays.data_pointer(out), source.nbytes)
            cupy.cuda.get_current_stream().synchronize()
            look()
    return out


def item(array):
    """The one element, as a Python number."""
    value = array.item()
    look()
    return value


def _between_gpus(array, device: devices.device):
    with Device(array.data.device_id):
        source = _dense(array)
        ready = cupy.cuda.get_current_stream().record()
    out = empty_strided(source.shape, arrays.element_strides(source), source.dtype, device)
    if not out.size:
        return out
    with Device(out.data.device_id):
        stream = cupy.cuda.get_current_stream()
        stream.wait_event(ready)
        out.data.copy_from_device_async(source.data, source.nbytes, stream)
        done = stream.record()
    with Device(array.data.device_id):  # the source must not be written over before it has been read
        cupy.cuda.get_current_stream().wait_event(done)
    return out


def pinned_empty(shape, dtype: np.dtype) -> np.ndarray:
    """Uninitialised main memory that a GPU reads directly: copies from it need not wait."""
    import cupyx

    need(None)
    return cupyx.empty_pinned(tuple(shape), dtype)


def is_pinned(array: np.ndarray) -> bool:
    """Whether a GPU can read this main memory directly."""
    if not array.size:
        return False
    return runtime.pointerGetAttributes(arrays.data_pointer(array)).type == 1  # cudaMemoryTypeHost


from_dlpack = cupy.from_dlpack  # a CuPy array over the memory of a DLPack capsule
