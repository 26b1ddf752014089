"""CUDA's driver by ctypes, for what is asked of it seldom. What is asked of it at every call is compiled (kernels/native/csrc/gpu_driver.c)."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from cupy.cuda import get_current_stream

PATH = os.environ.get("FLAMBEAU_CUDA_DRIVER", "libcuda.so.1")  # for machines that have it in an odd place
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_...


@lru_cache(1)
def library() -> ctypes.CDLL:
    """The driver's library."""
    return ctypes.CDLL(PATH)


def call(name: str, *args: Any) -> None:
    """A function of the driver; RuntimeError where it fails."""
    driver = library()
    status = getattr(driver, name)(*args)
    if status:
        words = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(words))
        raise RuntimeError(f"CUDA error: {(words.value or b'unknown').decode()} ({name} gave {status})")


@contextlib.contextmanager
def relaxed() -> Iterator[None]:
    """Within the `with` this thread may do what a capture forbids otherwise: what is done is no part of the graph."""
    mode = ctypes.c_int(RELAXED)
    call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))


def copy(to: int, source: int, size: int) -> None:
    """Copy bytes between main memory and GPUs on the current stream. From pinned memory, and to it, this does not wait."""
    call("cuMemcpyAsync", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), ctypes.c_void_p(get_current_stream().ptr))
