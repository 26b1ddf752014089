"""torch.cuda: GPUs as a program sees them: which there are, their memory, streams, events and random numbers.

Everything here can be imported on a machine without a GPU or without CuPy, where `is_available()` is False, `device_count()` is 0, and
whatever needs a GPU says so. The work itself is done in `kernels/cuda/gpu.py`.

>>> x = torch.ones(3, device="cuda" if torch.cuda.is_available() else "cpu")
"""

from __future__ import annotations

import importlib
import itertools
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Literal

from flambeau import dtypes
from flambeau.cuda import graphs, memory, nvtx, random, sensors, streams
from flambeau.cuda.choosing import device_count, gpus, index_of, is_available, is_initialized
from flambeau.cuda.graphs import *
from flambeau.cuda.memory import *
from flambeau.cuda.random import *
from flambeau.cuda.random import default_generators
from flambeau.cuda.sensors import *
from flambeau.cuda.streams import *
from flambeau.cuda.streams import StreamContext, current_stream, default_stream, get_stream_from_external, set_stream
from flambeau.errors import AcceleratorError, OutOfMemoryError
from flambeau.tensor import Tensor
from flambeau.tensor.making import legacy
from flambeau.tensor.memory.typed_storage import CUDA_STORAGES

stream = StreamContext

# -- which GPUs there are ------------------------------------------------------------------------------------------------


def init() -> None:
    """Make sure that there is a GPU. Nothing else has to be prepared."""
    gpus()


def current_device() -> int:
    """The index of the GPU that 'cuda' means."""
    return gpus().current_device()


def set_device(device: Any) -> None:
    """Choose the GPU that 'cuda' means from now on, in this thread."""
    if isinstance(device, int) and device < 0:
        return
    gpus().Device(index_of(device)).use()


class device:
    """The GPU that 'cuda' means within a `with`: `with torch.cuda.device(1): ...`. A negative index, or None, changes nothing."""

    def __init__(self, device: Any):
        self.idx = -1 if device is None or (isinstance(device, int) and device < 0) else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = current_device()
            set_device(self.idx)

    def __exit__(self, *problem) -> Literal[False]:
        if self.idx >= 0:
            set_device(self.prev_idx)
        return False


class device_of(device):
    """The GPU of a tensor made current within a `with`; for a tensor elsewhere nothing changes."""

    def __init__(self, obj: Tensor):
        super().__init__(obj.device if obj.is_cuda else -1)


def synchronize(device: Any = None) -> None:
    """Wait until a GPU has done everything it was asked to."""
    room = gpus()
    room.Device(index_of(device)).synchronize()
    room.look()


def _sleep(cycles: int) -> None:
    """Let the current stream of the GPU do nothing for so many cycles of its clock."""
    gpus().sleep(cycles)


# What PyTorch calls the properties of a GPU: what CUDA calls them.
PROPERTIES = {
    "major": "major", "minor": "minor", "total_memory": "totalGlobalMem", "multi_processor_count": "multiProcessorCount",
    "warp_size": "warpSize", "regs_per_multiprocessor": "regsPerMultiprocessor",
    "max_threads_per_multi_processor": "maxThreadsPerMultiProcessor", "max_threads_per_block": "maxThreadsPerBlock",
    "shared_memory_per_block": "sharedMemPerBlock", "shared_memory_per_block_optin": "sharedMemPerBlockOptin",
    "shared_memory_per_multiprocessor": "sharedMemPerMultiprocessor", "L2_cache_size": "l2CacheSize", "is_integrated": "integrated",
    "is_multi_gpu_board": "isMultiGpuBoard",
}  # fmt: skip


class DeviceProperties(SimpleNamespace):
    """What a GPU is."""

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Name, size and abilities of a GPU."""
    return _properties(index_of(device))


@lru_cache(None)
def _properties(index: int) -> DeviceProperties:
    found = gpus().runtime.getDeviceProperties(index)
    digits = bytes(found.get("uuid", b"")).hex()
    return DeviceProperties(
        name=found["name"].decode() if isinstance(found["name"], bytes) else found["name"],
        uuid="-".join(digits[a:b] for a, b in itertools.pairwise((0, 8, 12, 16, 20, 32))),
        **{name: bool(found.get(cuda, 0)) if name.startswith("is_") else found.get(cuda, 0) for name, cuda in PROPERTIES.items()},
    )


def get_device_name(device: Any = None) -> str:
    """The name of a GPU, as 'NVIDIA H200'."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(major, minor) of a GPU's compute capability."""
    found = get_device_properties(device)
    return found.major, found.minor


def get_arch_list() -> list[str]:
    """The architectures kernels can be compiled for: those of the GPUs that are there."""
    return sorted({"sm_{}{}".format(*get_device_capability(i)) for i in range(device_count())})


def get_gencode_flags() -> str:
    """The compiler flags for these architectures."""
    return " ".join(f"-gencode compute={a.replace('sm', 'compute')},code={a}" for a in get_arch_list())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a GPU computes with bfloat16."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    """Whether a GPU multiplies float32 matrices with shortened factors, if it is allowed to."""
    return is_available() and get_device_capability()[0] >= 8


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one GPU reads the memory of another directly."""
    return bool(gpus().runtime.deviceCanAccessPeer(index_of(device), index_of(peer_device)))


def current_blas_handle() -> int:
    """The handle of cuBLAS, for libraries that are called directly."""
    from cupy.cuda.device import get_cublas_handle

    gpus()
    return get_cublas_handle()


def ipc_collect() -> None:
    """Nothing: memory of GPUs is not shared between processes here."""
    gpus()


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Say where a program waits for the GPU, by reading a number or copying from there: "default" (0) not, "warn" (1), or "error" (2)."""
    modes = ("default", "warn", "error")
    if isinstance(debug_mode, str):
        if debug_mode not in modes:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = modes.index(debug_mode)
    gpus().told_of_waits = debug_mode


def get_sync_debug_mode() -> int:
    """What `set_sync_debug_mode` was told."""
    return gpus().told_of_waits


def cudart() -> Any:
    """CUDA's runtime, as CuPy has it."""
    return gpus().runtime


has_half, has_magma = True, False

# -- names ---------------------------------------------------------------------------------------------------------------

BFloat16Tensor = legacy.tensor_type("BFloat16", dtypes.bfloat16, "cuda")
for _name, _type in legacy.TENSOR_TYPES.items():
    globals()[_name] = legacy.tensor_type(_name.removesuffix("Tensor"), _type.dtype, "cuda")
globals().update(CUDA_STORAGES)
_ROOMS = (graphs, memory, random, sensors, streams)
__all__ = [
    "AcceleratorError", "OutOfMemoryError", "StreamContext", "current_stream", "default_generators", "default_stream", "device_count",
    "get_stream_from_external", "graphs", "has_half", "has_magma", "is_available", "is_initialized", "memory", "nvtx", "random",
    "set_stream", "stream", "streams",
]  # fmt: skip
__all__ += [n for room in _ROOMS for n in room.__all__]
__all__ += [n for n, found in globals().items() if getattr(found, "__module__", "") == __name__ and not n.startswith("_")]


def __getattr__(name: str):
    if name == "amp":  # imported when asked for
        return importlib.import_module("flambeau.cuda.amp")
    if name == "_initialized":  # layers that run twice ask, before they save the states of GPUs' random numbers
        return is_initialized()
    raise AttributeError(f"module 'flambeau.cuda' has no attribute {name!r}")
