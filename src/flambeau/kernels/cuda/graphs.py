"""Graphs: work that a stream notes instead of doing it, to be done again and again by one launch. Calls of CUDA's driver."""

from __future__ import annotations

import ctypes
from typing import Any

import cupy
import numpy as np

from flambeau.kernels.cuda import memory
from flambeau.kernels.cuda.driver import call
from flambeau.kernels.cuda.launch import compiled, empty
from flambeau.kernels.templates.cuda_small import print_set_words

MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
FREE_ON_LAUNCH = 1  # CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
VERBOSE = 1
underway: list[Capture] = []  # captures that have begun and not ended


def is_capturing() -> bool:
    """Whether the current stream notes its work."""
    return cupy.cuda.get_current_stream().is_capturing()


def refuse(what: str, instead: str) -> None:
    """RuntimeError if the current stream notes its work, which `what` cannot be part of."""
    if underway and is_capturing():
        raise RuntimeError(f"{what} while the current stream is capturing a CUDA graph: a replay could not repeat it. {instead}")


class Capture:
    """What one stream notes from `begin` to `end`.

    pool   whose memory is allocated meanwhile
    kept   what replays read that nobody else may keep
    """

    def __init__(self, device: int, pool: tuple[int, int]):
        self.device, self.pool = device, pool
        self.kept: list[Any] = []
        self.draws: dict[Any, Drawn] = {}  # by generator
        self.stream: Any = None

    def begin(self, mode: str, generators: list) -> None:
        """From here on the current stream notes what it is asked."""
        self.stream = cupy.cuda.get_current_stream()
        self.draws = {generator: Drawn(generator, self.device) for generator in generators}
        call("cuStreamBeginCapture_v2", ctypes.c_void_p(self.stream.ptr), MODES[mode])
        memory.begin(self.device, self.pool, self._number())
        for generator, drawn in self.draws.items():
            generator.drawn = drawn
        underway.append(self)

    def _number(self) -> int:
        status, number = ctypes.c_int(), ctypes.c_ulonglong()
        call("cuStreamGetCaptureInfo_v2", ctypes.c_void_p(self.stream.ptr), ctypes.byref(status), ctypes.byref(number), None, None, None)
        return number.value

    def end(self) -> ctypes.c_void_p:
        """The graph of what was noted."""
        graph = ctypes.c_void_p()
        for generator in self.draws:
            generator.drawn = None
        underway.remove(self)
        try:
            call("cuStreamEndCapture", ctypes.c_void_p(self.stream.ptr), ctypes.byref(graph))
        finally:
            memory.end(self.device, self.pool)
        return graph


class Drawn:
    """What a graph draws from a generator: every replay goes on where the generator stands then.

    words   seed and offset, on the GPU, where the graph's kernels read them
    count   how much of the stream a replay uses
    """

    def __init__(self, generator: Any, device: int):
        self.generator, self.seed, self.count = generator, generator.initial_seed(), 0
        self.words = empty((2,), np.dtype(np.uint64))
        self.kernel = compiled(print_set_words, "fl_set_words", device)

    def take(self, count: int) -> tuple[int, int, int]:
        """(0, where these numbers begin within the graph, the address of the words)"""
        before = self.count
        self.count += count
        return 0, before, self.words.data.ptr

    def replay(self) -> None:
        """Say where the generator stands, and let it move on."""
        if self.count:
            self.kernel((1,), (1,), (self.words.data.ptr, self.generator.initial_seed(), self.generator.take(self.count)))


def keep(thing: Any) -> None:
    """Let what is captured now keep something that its replays read."""
    underway[-1].kept.append(thing)


# -- graphs that can be launched -----------------------------------------------------------------------------------------


def instantiated(graph: ctypes.c_void_p) -> ctypes.c_void_p:
    """The graph made ready for launches."""
    found = ctypes.c_void_p()
    call("cuGraphInstantiateWithFlags", ctypes.byref(found), graph, ctypes.c_ulonglong(FREE_ON_LAUNCH))
    return found


def launch(executable: ctypes.c_void_p) -> None:
    """Do all that was noted, on the current stream."""
    call("cuGraphLaunch", executable, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr))


def destroy(graph: ctypes.c_void_p | None, executable: ctypes.c_void_p | None) -> None:
    """Give both back."""
    if executable:
        call("cuGraphExecDestroy", executable)
    if graph:
        call("cuGraphDestroy", graph)


def write_dot(graph: ctypes.c_void_p, path: str) -> None:
    """Write down what was noted, for Graphviz."""
    call("cuGraphDebugDotPrint", graph, ctypes.c_char_p(path.encode()), VERBOSE)
