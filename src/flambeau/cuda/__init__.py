"""torch.cuda: GPUs as a program sees them: which there are, their memory, streams, events and random numbers.

Everything here can be imported on a machine without a GPU or without CuPy, where `is_available()` is False, `device_count()` is 0, and
whatever needs a GPU says so. The work itself is done in `kernels/cuda/gpu.py`.

>>> x = torch.ones(3, device="cuda" if torch.cuda.is_available() else "cpu")
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Literal

from flambeau import devices, dtypes
from flambeau import random as rng
from flambeau.cuda.graphs import CUDAGraph as CUDAGraph
from flambeau.cuda.graphs import graph as graph
from flambeau.errors import AcceleratorError, OutOfMemoryError
from flambeau.kernels import arrays
from flambeau.tensor import Tensor
from flambeau.tensor.making import legacy
from flambeau.tensor.memory.host_memory import cuda_device_count, cuda_is_available
from flambeau.tensor.memory.typed_storage import CUDA_STORAGES

# -- which GPUs there are ------------------------------------------------------------------------------------------------


@lru_cache(None)
def _installed() -> bool:
    """Whether CuPy is; looking for a package that is not there takes too long to do it every time."""
    return importlib.util.find_spec("cupy") is not None


def is_available() -> bool:
    """Whether there is a GPU that can be used."""
    return _installed() and cuda_is_available()


def device_count() -> int:
    """How many GPUs there are."""
    return cuda_device_count() if _installed() else 0


def _runtime_version() -> str | None:
    """The version of the CUDA that CuPy runs on, as "13.0"; None without a GPU."""
    if not is_available():
        return None
    from cupy.cuda import runtime

    number = runtime.runtimeGetVersion()
    return f"{number // 1000}.{number % 1000 // 10}"


def _gpus():
    """The CUDA room, where there is a GPU. AssertionError without CuPy, RuntimeError without a GPU, as PyTorch has it."""
    room = arrays.cuda()
    room.need(None)
    return room


def _index(device: Any) -> int:
    """The index of a GPU given as an index, a name, a device, or None for the current one."""
    room = _gpus()
    if isinstance(device, Tensor):
        device = device.device
    if device is None:
        return room.current_device()
    found = devices.device(device)
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    index = room.current_device() if found.index is None else found.index
    room.need(index)
    return index


def init() -> None:
    """Make sure that there is a GPU. Nothing else has to be prepared."""
    _gpus()


def is_initialized() -> bool:
    """Whether this process has used a GPU."""
    return "flambeau.kernels.cuda.gpu" in sys.modules and is_available()


def current_device() -> int:
    """The index of the GPU that 'cuda' means."""
    return _gpus().current_device()


def set_device(device: Any) -> None:
    """Choose the GPU that 'cuda' means from now on, in this thread."""
    if isinstance(device, int) and device < 0:
        return
    _gpus().Device(_index(device)).use()


class device:
    """The GPU that 'cuda' means within a `with`: `with torch.cuda.device(1): ...`. A negative index, or None, changes nothing."""

    def __init__(self, device: Any):
        self.idx = -1 if device is None or (isinstance(device, int) and device < 0) else _index(device)
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
    gpus = _gpus()
    gpus.Device(_index(device)).synchronize()
    gpus.look()


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
    return _properties(_index(device))


@lru_cache(None)
def _properties(index: int) -> DeviceProperties:
    found = _gpus().runtime.getDeviceProperties(index)
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
    return bool(_gpus().runtime.deviceCanAccessPeer(_index(device), _index(peer_device)))


def current_blas_handle() -> int:
    """The handle of cuBLAS, for libraries that are called directly."""
    from cupy.cuda.device import get_cublas_handle

    _gpus()
    return get_cublas_handle()


has_half, has_magma = True, False

# -- memory --------------------------------------------------------------------------------------------------------------


def _counter(name: str, which: int, peak: bool, meaning: str) -> Callable[..., int]:
    """Bytes in use (0) or reserved (1) on a GPU, now or at most. 0 where nothing was ever used."""

    def counter(device: Any = None) -> int:
        if not is_initialized():
            return 0
        room, index = arrays.cuda(), _index(device)
        if peak:
            return room.peak(index, which)
        with room.Device(index):
            return room.pool.total_bytes() if which else room.pool.used_bytes()

    counter.__name__, counter.__doc__ = name, meaning
    return counter


memory_allocated = _counter("memory_allocated", 0, False, "Bytes that tensors occupy.")
memory_reserved = _counter("memory_reserved", 1, False, "Bytes taken from the driver: those of tensors, and what is kept for reuse.")
max_memory_allocated = _counter("max_memory_allocated", 0, True, "The most bytes that tensors occupied since `reset_peak_memory_stats`.")
max_memory_reserved = _counter("max_memory_reserved", 1, True, "The most bytes taken from the driver since `reset_peak_memory_stats`.")
memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def reset_peak_memory_stats(device: Any = None) -> None:
    """Start counting the peaks anew."""
    _gpus().reset_peaks(_index(device))


def reset_max_memory_allocated(device: Any = None) -> None:
    """Start counting the peak of bytes in use anew."""
    _gpus().reset_peaks(_index(device), 0)


def reset_max_memory_cached(device: Any = None) -> None:
    """Start counting the peak of reserved bytes anew."""
    _gpus().reset_peaks(_index(device), 1)


def memory_stats(device: Any = None) -> dict[str, int]:
    """The counters above, under PyTorch's names. A GPU's memory is not split here, so nothing of it is inactive."""
    if not is_initialized():
        return {}
    index = _index(device)
    now = {
        "allocated": (memory_allocated(index), max_memory_allocated(index)),
        "reserved": (memory_reserved(index), max_memory_reserved(index)),
    }
    values = {"num_alloc_retries": 0, "num_ooms": arrays.cuda().refusals.get(index, 0)}
    for name, (current, peak) in (*now.items(), ("active", now["allocated"]), ("requested", now["allocated"]), ("inactive_split", (0, 0))):
        for pool in ("all", "large_pool"):
            values |= {f"{name}_bytes.{pool}.current": current, f"{name}_bytes.{pool}.peak": peak}
    return values


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """The same, a dictionary for each part of a name."""
    return _nested(memory_stats(device))


def _nested(values: dict[str, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        inner = found
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Count refusals anew."""
    _gpus().refusals.pop(_index(device), None)


def memory_snapshot(*args: Any, **kwargs: Any) -> list:
    """Not available: segments of PyTorch's allocator are not those of CuPy's. `flambeau.memory.snapshot(device)` says who has the memory."""
    raise NotImplementedError(
        "torch.cuda.memory_snapshot: CuPy's pool has no such list. flambeau.memory.snapshot('cuda') says who has the memory"
    )


def get_allocator_backend() -> str:
    """Which allocator serves GPUs: a pool in this process, which PyTorch calls native."""
    return "native"


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The counters above as a table."""
    room, index = _gpus(), _index(device)
    free, total = mem_get_info(index)
    rows = [
        ("Allocated memory", memory_allocated(index), max_memory_allocated(index)),
        ("GPU reserved memory", memory_reserved(index), max_memory_reserved(index)),
        ("GPU memory of all processes", total - free, total),
    ]
    head = f"|{f'CUDA memory summary, device ID {index}':^62}|\n| {'Metric':<28}| {'Current':>14} | {'Peak (or all)':>13} |\n"
    return head + "".join(f"| {name:<28}| {room.amount(now):>14} | {room.amount(most):>13} |\n" for name, now, most in rows)


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a GPU, all processes counted."""
    room = _gpus()
    with room.Device(_index(device)):
        return room.runtime.memGetInfo()


def empty_cache() -> None:
    """Give memory that is kept for reuse back to the driver."""
    if is_initialized():
        arrays.cuda().empty_cache()


def ipc_collect() -> None:
    """Nothing: memory of GPUs is not shared between processes here."""
    _gpus()


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let this process take at most this part of a GPU's memory; beyond it, OutOfMemoryError."""
    if not isinstance(fraction, float):
        raise TypeError(f"Invalid type for fraction, a float is needed, found {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value {fraction}: it lies between 0 and 1")
    room = _gpus()
    with room.Device(_index(device)):
        room.pool.set_limit(fraction=fraction)


def get_per_process_memory_fraction(device: Any = None) -> float:
    """The part of a GPU's memory this process may take."""
    room = _gpus()
    with room.Device(_index(device)):
        limit, (_, total) = room.pool.get_limit(), room.runtime.memGetInfo()
        return limit / total if limit else 1.0


# -- streams and events --------------------------------------------------------------------------------------------------


class Stream:
    """A queue of work on a GPU. Work of one stream runs in order; streams run beside each other and wait only where they are told to."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs):
        if not is_available():
            raise RuntimeError("torch.cuda.Stream requires CUDA support: there is no GPU that can be used here")
        room, index = _gpus(), _index(device)
        with room.Device(index):
            self._hold(room.cupy.cuda.Stream(non_blocking=True, priority=priority), index)

    def _hold(self, stream: Any, index: int) -> Stream:
        self._stream, self.device_index = stream, index
        return self

    @classmethod
    def _of(cls, stream: Any, index: int) -> Stream:
        return object.__new__(Stream)._hold(stream, index)

    @property
    def cuda_stream(self) -> int:
        """The address by which CUDA knows it."""
        return self._stream.ptr

    stream_id = cuda_stream

    @property
    def device(self) -> devices.device:
        """The GPU it belongs to."""
        return devices.device("cuda", self.device_index)

    @property
    def priority(self) -> int:
        """Negative numbers come first."""
        return self._stream.priority

    def query(self) -> bool:
        """Whether all its work is done."""
        return self._stream.done

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        self._stream.synchronize()
        _gpus().look()

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens when the work so far is done."""
        found = Event() if event is None else event
        found.record(self)
        return found

    def wait_event(self, event: Event) -> None:
        """Let future work wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let future work wait for what another stream has been asked so far."""
        self.wait_event(stream.record_event())

    def __enter__(self) -> Stream:
        self._contexts = [*getattr(self, "_contexts", []), context := StreamContext(self)]
        context.__enter__()
        return self

    def __exit__(self, *problem) -> None:
        self._contexts.pop().__exit__(*problem)

    def __eq__(self, other) -> bool:
        return isinstance(other, Stream) and (self.cuda_stream, self.device_index) == (other.cuda_stream, other.device_index)

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by its address."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs):
        index = _index(device)
        self._hold(_gpus().cupy.cuda.ExternalStream(stream_ptr, index), index)


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """A stream that another library made, by its address."""
    return ExternalStream(data_ptr, device)


def default_stream(device: Any = None) -> Stream:
    """The stream of work that was given to no other."""
    return Stream._of(_gpus().cupy.cuda.Stream.null, _index(device))


def current_stream(device: Any = None) -> Stream:
    """The stream that work goes to now."""
    room, index = _gpus(), _index(device)
    with room.Device(index):
        return Stream._of(room.cupy.cuda.get_current_stream(), index)


def set_stream(stream: Stream | None) -> None:
    """Send work to this stream from now on; `with torch.cuda.stream(s):` is preferred."""
    if stream is not None:
        set_device(stream.device_index)
        stream._stream.use()


class StreamContext:
    """`with torch.cuda.stream(s):` sends work to stream s; None changes nothing."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._inside = contextlib.ExitStack()
            self._inside.enter_context(device(self.stream.device_index))
            self._inside.enter_context(self.stream._stream)

    def __exit__(self, *problem) -> None:
        if self.stream is not None:
            self._inside.close()


stream = StreamContext


class Event:
    """A mark in a stream of work: it has happened when everything before it is done.

    >>> start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False):
        if not is_available():
            raise RuntimeError("Tried to instantiate dummy base class Event: there is no GPU that can be used here")
        room = _gpus()
        self._event = room.cupy.cuda.Event(block=blocking, disable_timing=not enable_timing, interprocess=interprocess)
        self._recorded = False

    @property
    def cuda_event(self) -> int:
        """The address by which CUDA knows it."""
        return self._event.ptr

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind what the stream (the current one, if none is given) has been asked so far."""
        self._event.record((current_stream() if stream is None else stream)._stream)
        self._recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let future work of a stream wait for this event."""
        (current_stream() if stream is None else stream)._stream.wait_event(self._event)

    def query(self) -> bool:
        """Whether it has happened; also if it was never recorded."""
        return not self._recorded or self._event.done

    def synchronize(self) -> None:
        """Wait until it has happened."""
        self._event.synchronize()
        _gpus().look()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; both made with enable_timing=True."""
        if not self._recorded or not end_event._recorded:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return _gpus().cupy.cuda.get_elapsed_time(self._event, end_event._event)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self._recorded else "<torch.cuda.Event uninitialized>"


def is_current_stream_capturing() -> bool:
    """Whether the current stream records its work into a graph instead of doing it."""
    return is_initialized() and arrays.cuda().is_capturing()


def _marks():
    from cupy.cuda import nvtx as marks

    return marks


class nvtx:
    """Names on the time line of NVIDIA's profilers: a range opened and closed, a moment, or the range of a `with`."""

    range_push = staticmethod(lambda msg: _marks().RangePush(msg))
    range_pop = staticmethod(lambda: _marks().RangePop())
    mark = staticmethod(lambda msg: _marks().Mark(msg))

    @staticmethod
    @contextlib.contextmanager
    def range(msg: str, *args, **kwargs) -> Iterator[None]:
        """A named range within a `with`."""
        nvtx.range_push(msg.format(*args, **kwargs))
        try:
            yield
        finally:
            nvtx.range_pop()


# -- random numbers ------------------------------------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    """Start the stream of random numbers of `seed` on the current GPU. Without a GPU nothing happens."""
    if is_available():
        default_generators[current_device()].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Start the stream of random numbers of `seed` on every GPU. Without a GPU nothing happens."""
    if is_available():
        arrays.cuda().manual_seed_all(int(seed))


def seed() -> None:
    """Start a stream nobody can predict on the current GPU."""
    if is_available():
        default_generators[current_device()].seed()


def seed_all() -> None:
    """Start streams nobody can predict on every GPU."""
    for i in range(device_count()):
        default_generators[i].seed()


def initial_seed() -> int:
    """The seed that the current GPU's stream started from."""
    return default_generators[current_device()].initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The state of a GPU's stream: seed and offset. -> (16,) uint8, on the CPU"""
    return rng.get_state(default_generators[_index(device)])


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Put a GPU's stream where `get_rng_state` found it."""
    rng.set_state(default_generators[_index(device)], new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all GPUs' streams."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: list[Tensor]) -> None:
    """Put all GPUs' streams where `get_rng_state_all` found them."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


class _Generators:
    """The streams of all GPUs by index, made when asked for."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: int):
        count = device_count()
        if not -count <= index < count:
            raise IndexError(f"there are {count} GPUs, so there is no generator {index}")
        return arrays.cuda().default_generator(devices.device("cuda", index % count))


default_generators = _Generators()

# -- names ---------------------------------------------------------------------------------------------------------------

# PyTorch has these in files of their own.
memory = random = streams = sys.modules[__name__]
BFloat16Tensor = legacy.tensor_type("BFloat16", dtypes.bfloat16, "cuda")
for _name, _type in legacy.TENSOR_TYPES.items():
    globals()[_name] = legacy.tensor_type(_name.removesuffix("Tensor"), _type.dtype, "cuda")
globals().update(CUDA_STORAGES)
__all__ = ["AcceleratorError", "OutOfMemoryError", "has_half", "has_magma", "memory", "random", "streams"]
__all__ += [n for n, found in globals().items() if getattr(found, "__module__", "") == __name__ and not n.startswith("_")]


def __getattr__(name: str):
    if name == "amp":  # imported when asked for
        return importlib.import_module("flambeau.cuda.amp")
    if name == "_initialized":  # layers that run twice ask, before they save the states of GPUs' random numbers
        return is_initialized()
    raise AttributeError(f"module 'flambeau.cuda' has no attribute {name!r}")
