"""The CUDA room: devices, memory and copies on GPUs, through CuPy. `arrays.py` comes here for everything that is a CuPy array.

Importing this file imports CuPy, so it is imported when a GPU is first asked for, never by `import flambeau`. Next door are
`cuda/launch.py` (pointwise kernels), `cuda/rows.py` (reductions and functions of rows), `cuda/gemm.py` (matrix products),
`cuda/cudnn.py` (the door to cuDNN), `cuda/attention.py`, `cuda/gather.py` (reading, writing and adding by index), `cuda/pooling.py`,
`cuda/join.py` (cat and stack), `cuda/recurrent.py` (recurrent networks), `cuda/norm.py` (batch and group norm), `cuda/convolution.py` (convolution),
`cuda/lists.py` (steps of optimizers, norms of lists), `cuda/error_notes.py` (how a bad index is reported) and `cuda/random.py`.
"""

# ruff: noqa: F401 - this is the door of the CUDA room: what the files next door do is found here

from __future__ import annotations

from collections import deque
from functools import lru_cache

import cupy
import numpy as np
from cupy.cuda import Device, runtime

from flambeau import devices, dtypes, errors
from flambeau.kernels import arrays, layout
from flambeau.kernels.cuda import (
    attention,
    convolution,
    cudnn,
    driver,
    gemm,
    graphs,
    launch,
    lists,
    memory,
    norm,
    norm_graphs,
    recurrent,
    rows,
)
from flambeau.kernels.cuda.error_notes import checks_at_once, look
from flambeau.kernels.cuda.gather import along, at, spelled
from flambeau.kernels.cuda.gemm import linear, product, product_into, usual_product
from flambeau.kernels.cuda.graphs import is_capturing
from flambeau.kernels.cuda.join import join
from flambeau.kernels.cuda.launch import formula, run
from flambeau.kernels.cuda.lists import advance, update, update_reading
from flambeau.kernels.cuda.memory import empty_cache
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
from flambeau.kernels.cuda.rows import Rows, fold, rows_and_totals, run_loop, spread
from flambeau.kernels.native.native import lib
from flambeau.kernels.templates.cuda_small import print_sleep

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


def sleep(cycles: int) -> None:
    """Let the current stream do nothing for so many cycles of the GPU's clock."""
    launch.compiled(print_sleep, "fl_sleep", runtime.getDevice())((1,), (1,), (cycles,))


# -- arrays --------------------------------------------------------------------------------------------------------------


def empty(shape, dtype: np.dtype, device: devices.device):
    """Uninitialised C-contiguous memory."""
    if device.index == runtime.getDevice():
        return launch.empty(tuple(shape), dtype)
    return empty_strided(shape, layout.contiguous_strides(tuple(shape)), dtype, device)


def empty_strided(shape, strides, dtype: np.dtype, device: devices.device):
    """Uninitialised memory with the given strides (in elements)."""
    shape, in_bytes = tuple(shape), tuple([s * dtype.itemsize for s in strides])
    if device.index == runtime.getDevice():
        return launch.strided(shape, in_bytes, dtype)
    with on(device):
        return launch.strided(shape, in_bytes, dtype)


strided_view = lib.gpu_view  # (array, shape, strides, offset): a view of the same memory; strides and offset in elements


def reinterpret(array, dtype: np.dtype, shape, strides, offset: int = 0):
    """The array's bytes read as another dtype; shape, strides and offset in elements of it."""
    return lib.gpu_view(array, shape, strides, offset, dtype)


def number(value, dtype: np.dtype, device: devices.device | None = None):
    """A 0-d array holding a Python number."""
    out = empty((), dtype, device or devices.device("cuda", current_device()))
    fill(out, value)
    return out


def fill(out, value) -> None:
    """Set every element to a number."""
    kind = out.dtype.kind
    usual = type(value) in (int, float) and (kind in "fV" or (kind in "iu" and 0 <= value <= 127))
    if not usual:
        if kind in "iu" and isinstance(value, float):
            value = int(value)
        with np.errstate(all="ignore"):
            stored = np.asarray(value).astype(out.dtype)  # integers wrap around, as in C
        if kind == "c" and not stored.tobytes().strip(b"\0") and out.flags.c_contiguous:
            with Device(out.data.device_id):
                out.data.memset_async(0, out.nbytes)
            return
        value = stored.item() if kind in "biufc" else float(stored)
    run(arrays.CASTS[dtypes.OF_NUMPY[out.dtype].name], (value,), (), out.dtype, out.dtype, out=out)


# -- copies --------------------------------------------------------------------------------------------------------------

READ_LATER = "Read it after the replay, from a tensor that the graph writes"
told_of_waits = 0  # 1: a warning says where a program waits for the GPU; 2: it is an error


def about_to_wait(what: str) -> None:
    """RuntimeError during a capture; what `set_sync_debug_mode` asks for otherwise."""
    graphs.refuse(what, READ_LATER)
    if told_of_waits:
        words = f"called a synchronizing CUDA operation: {what} waits for the GPU"
        if told_of_waits > 1:
            raise RuntimeError(words)
        errors.warn(words)


_in_use: deque = deque()  # (event, array): memory that a stream is still to read


def to_device(array, device: devices.device, non_blocking: bool = False):
    """A copy on another device, dense, in the order of dimensions the array has."""
    if type(array) is np.ndarray:
        return _from_host(array, device, non_blocking)
    if device.type == "cpu":
        return _to_host(array, non_blocking)
    return _between_gpus(array, device)


def carried(out, source, non_blocking: bool) -> bool:
    """Copy an array between main memory and a GPU into another that lies alike; False if it does not."""
    away, here = (source, out) if type(out) is np.ndarray else (out, source)
    if (
        type(here) is not np.ndarray
        or not arrays.on_gpu(away)
        or out.dtype != source.dtype
        or arrays.view_of(out) != arrays.view_of(source)
    ):
        return False
    if not layout.is_non_overlapping_and_dense(*arrays.view_of(out)):
        return False
    (_fetch if here is out else _send)(out, source, non_blocking)
    return True


def _dense(array):
    """The array itself if its elements fill one stretch of memory, else a copy that does."""
    if layout.is_non_overlapping_and_dense(*arrays.view_of(array)):
        return array
    return arrays.copy(array)


def _from_host(array: np.ndarray, device: devices.device, non_blocking: bool):
    need(device.index)
    source = _dense(array)
    out = empty_strided(source.shape, arrays.element_strides(source), source.dtype, device)
    _send(out, source, non_blocking)
    return out


def _send(out, source: np.ndarray, non_blocking: bool) -> None:
    if not out.size:
        return
    pinned = is_pinned(source)
    if not pinned:
        graphs.refuse(
            "a copy from ordinary main memory to the GPU", "Copy it before, or from pinned memory (.pin_memory()) that stays where it is"
        )
    with Device(out.data.device_id):
        # From pageable memory the driver returns when the source has been read. From pinned memory it returns at once.
        driver.copy(out.data.ptr, arrays.data_pointer(source), source.nbytes)
        if pinned:
            stream = cupy.cuda.get_current_stream()
            if non_blocking or graphs.underway:
                keep_until_done(source, stream)
            else:
                stream.synchronize()


def keep_until_done(array, stream) -> None:
    """Hold memory until a stream has done what it was asked so far: nobody else may get it from the pool before."""
    if graphs.underway and stream.is_capturing():
        graphs.keep(array)
        return
    while not graphs.underway and _in_use and _in_use[0][0].done:
        _in_use.popleft()
    event = cupy.cuda.Event(disable_timing=True)
    event.record(stream)
    _in_use.append((event, array))


def _to_host(array, non_blocking: bool) -> np.ndarray:
    with Device(array.data.device_id):
        source = _dense(array)
        strides = arrays.element_strides(source)
        if non_blocking and source.size:
            out = arrays.strided_view(pinned_empty((source.size,), source.dtype), source.shape, strides, 0)
        else:
            out = arrays.empty_strided(source.shape, strides, source.dtype)
        _fetch(out, source, non_blocking)
    return out


def _fetch(out: np.ndarray, source, non_blocking: bool) -> None:
    if not out.size:
        return
    at_once = not (non_blocking and is_pinned(out))
    if at_once:
        about_to_wait("a copy from the GPU to ordinary main memory")
    with Device(source.data.device_id):
        stream = cupy.cuda.get_current_stream()
        driver.copy(arrays.data_pointer(out), source.data.ptr, source.nbytes)
        if at_once:
            stream.synchronize()
            look()
        else:
            keep_until_done(out, stream)


def item(array):
    """The one element, as a Python number."""
    about_to_wait("reading a number from the GPU")
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
