"""The door to cuDNN, by NVIDIA's package nvidia-cudnn-frontend: graphs of operations, and the plans that cuDNN makes of them.

Nobody needs it: without the package, or the library, our own kernels do all of this work. Which of the two does a piece of work is decided in
attention.py and convolution.py, and they tell cuDNN nothing that it was seen to do wrong:

    attention of float32       it plans it, and then reads past the end of memory
    a mask of one row          for all queries: gradients are wrong without a word, so that masks get all their rows first
    convolution in float64     it plans it, and returns something else

A graph names its tensors by numbers, and is run with a table from these to addresses. It is made for a GPU and for certain shapes, strides and
options, all of which take milliseconds (attention: tenths of a second, where a kernel has to be compiled); so whoever makes one keeps it.
"""

from __future__ import annotations

import sys
import threading
import time
from functools import lru_cache
from typing import Any

import cupy
import ml_dtypes
import numpy as np
from cupy.cuda import get_current_stream, runtime

from flambeau import determinism
from flambeau.kernels import libraries

Sizes = tuple[int, ...]
FLOAT16, BFLOAT16, FLOAT32 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)
ALIGNED = 16  # what addresses are multiples of: the library reads so many bytes at a time
NAMES = {FLOAT16: "HALF", BFLOAT16: "BFLOAT16", FLOAT32: "FLOAT"}
# Ways to convolve that add and subtract whole patches: infinity would spoil numbers that it does not meet.
SPREADING = ("FFT", "WINOGRAD", "WINOGRAD_TILE_4x4", "WINOGRAD_TILE_6x6", "WINOGRAD_TILE_13x13")
USUAL_LIMIT = 10  # plans that are tried
ROUNDS = 3  # how often a plan is run where the quickest is looked for


@lru_cache(1)
def package() -> Any:
    """NVIDIA's package with its library; None where one of them is not installed."""
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # the package imports PyTorch where it finds it, which takes seconds
    try:
        import cudnn

        cudnn.backend_version()
    except (ImportError, OSError, RuntimeError, AttributeError):
        return None
    finally:
        if hidden:
            del sys.modules["torch"]
    return cudnn


def is_used() -> bool:
    """Whether work may go to cuDNN."""
    return libraries.enabled and package() is not None


def version() -> int | None:
    """The library's, as PyTorch counts: 91900 is 9.19.0."""
    return None if package() is None else package().backend_version()


def deterministic() -> bool:
    """Whether results have to be the same bits in every run."""
    return libraries.deterministic or determinism.are_deterministic_algorithms_enabled()


class Handle:
    """What cuDNN keeps for a thread and a GPU, and the stream that it was told last."""

    def __init__(self):
        self.destroy = package().destroy_handle
        self.handle, self.stream = package().create_handle(), 0

    def __del__(self):
        if not sys.is_finalizing() and "handle" in self.__dict__:
            self.destroy(self.handle)


_of_thread = threading.local()


def handle() -> Any:
    """That of this thread, for the current GPU and stream."""
    known, device = _of_thread.__dict__, runtime.getDevice()
    found = known.get(device)
    if found is None:
        found = known[device] = Handle()
    stream = get_current_stream().ptr
    if stream != found.stream:
        package().set_stream(found.handle, stream)
        found.stream = stream
    return found.handle


@lru_cache(256)
def number(value: float) -> np.ndarray:
    """A number in main memory, where the library reads it while a graph is launched."""
    return np.array([value], np.float32)


class Graph:
    """Some operations, and how cuDNN carries them out. Everything is computed in float32, whatever it is stored in."""

    def __init__(self, dtype: np.dtype):
        kinds, self.dtype = package().data_type, dtype
        self.nodes = package().pygraph(
            io_data_type=self.kind(dtype), intermediate_data_type=kinds.FLOAT, compute_data_type=kinds.FLOAT, handle=handle()
        )
        self.workspace, self.chosen = 0, -1

    def kind(self, dtype: np.dtype) -> Any:
        """What the package calls a dtype."""
        return getattr(package().data_type, NAMES[dtype])

    def tensor(self, number: int, shape: Sizes, strides: Sizes, dtype: np.dtype | None = None) -> Any:
        """Something that lies in memory, with strides in elements."""
        kind = self.kind(self.dtype if dtype is None else dtype)
        return self.nodes.tensor(dim=list(shape), stride=list(strides), data_type=kind, uid=number)

    def number(self, number: int, dims: int) -> Any:
        """One number of float32, which is read from main memory."""
        one, kind = [1] * dims, package().data_type.FLOAT
        return self.nodes.tensor(dim=one, stride=one, data_type=kind, is_pass_by_value=True, uid=number)

    def result(self, made: Any, number: int, shape: Sizes, strides: Sizes, dtype: np.dtype | None = None) -> None:
        """Something that is to lie in memory."""
        kind = self.kind(self.dtype if dtype is None else dtype)
        made.set_output(True).set_dim(list(shape)).set_stride(list(strides)).set_data_type(kind).set_uid(number)

    def planned(self, exact: bool) -> Graph | None:
        """The graph, ready to run; None if cuDNN has no way to carry it out. `exact` allows no shorter formats for numbers on the way."""
        notes, modes = package().numerical_note, package().heur_mode
        unwanted = [getattr(notes, name) for name in SPREADING]
        unwanted += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS] if exact else []
        unwanted += [notes.REDUCED_PRECISION_REDUCTION] if self.dtype == FLOAT32 else []
        unwanted += [notes.NONDETERMINISTIC] if deterministic() else []
        try:
            self.nodes.validate()
            self.nodes.build_operation_graph()
            self.nodes.create_execution_plans([modes.A, modes.FALLBACK])
            self.nodes.deselect_numeric_notes(unwanted)
            self.nodes.check_support()
            self.nodes.build_plans()
        except (RuntimeError, package().cudnnGraphNotSupportedError):
            return None
        self.workspace = self.nodes.get_workspace_size()
        return self

    def run(self, addresses: dict[int, int]) -> None:
        """Launch it on the current stream. Workspace goes back to our allocator when that has been done."""
        room = cupy.cuda.alloc(self.workspace) if self.workspace else None
        space = 0 if room is None else room.ptr
        if self.chosen < 0:
            self.nodes.execute(addresses, space, handle=handle())
        else:
            self.nodes.execute_plan_at_index(addresses, space, self.chosen, handle=handle())

    def tune(self, addresses: dict[int, int]) -> None:
        """Run several plans, and from now on the quickest. They write their results to where they are to lie in the end."""
        nodes, quickest = self.nodes, float("inf")
        count = nodes.get_execution_plan_count()
        most = USUAL_LIMIT if libraries.benchmark_limit is None else libraries.benchmark_limit
        for i in range(min(count, most or count)):
            try:
                nodes.build_plan_at_index(i)
                size = nodes.get_workspace_size_plan_at_index(i)
                room = cupy.cuda.alloc(max(size, 1))
                took = _time(lambda i=i, room=room: nodes.execute_plan_at_index(addresses, room.ptr, i, handle=handle()))
            except (RuntimeError, package().cudnnGraphNotSupportedError):
                continue
            if took < quickest:
                quickest, self.chosen, self.workspace = took, i, size


def _time(function) -> float:
    """Seconds that the GPU takes for it, the least of a few tries."""
    stream, least = get_current_stream(), float("inf")
    function()
    for _ in range(ROUNDS):
        stream.synchronize()
        start = time.perf_counter()
        function()
        stream.synchronize()
        least = min(least, time.perf_counter() - start)
    return least
