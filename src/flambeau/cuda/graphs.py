"""CUDA graphs: work on a GPU that is noted once, and then done again by one launch, without Python.

    static_x, static_y = torch.empty(...), torch.empty(...)    # what a replay reads lies where it lay
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):                              # once or more the ordinary way: kernels are compiled, memory is found
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = step()

    for x, y in data:
        static_x.copy_(x), static_y.copy_(y)
        graph.replay()                                         # static_loss holds the new loss

Memory that is allocated meanwhile belongs to the graph's pool: replays write there again, so nobody else gets it. Random numbers are new at every replay: the
kernels read where the generator stands (kernels/cuda/random.py), which moves on by what a replay uses. What has to wait for the GPU, such as
`item()`, cannot be part of a graph, and says so.
"""

from __future__ import annotations

import gc
import warnings
from typing import Any

from flambeau.cuda import memory, streams
from flambeau.cuda.choosing import gpus, is_available, is_initialized
from flambeau.cuda.graphed import make_graphed_callables
from flambeau.cuda.random import default_generators
from flambeau.kernels import arrays

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def is_current_stream_capturing() -> bool:
    """Whether the current stream notes its work for a graph instead of doing it."""
    return is_initialized() and arrays.cuda().is_capturing()


def graph_pool_handle() -> tuple[int, int]:
    """The name of a new pool, for graphs that are to share their memory: they are then replayed in the order they were captured in."""
    return gpus().memory.new_pool(True)


class CUDAGraph:
    """Work that was captured, to be replayed. See the top of this file; `torch.cuda.graph` does the steps of a capture in their order.

    keep_graph   whether what was noted can still be looked at after the capture (`raw_cuda_graph`); `instantiate` may then be called later
    """

    def __init__(self, keep_graph: bool = False):
        if not is_available():
            raise RuntimeError("Tried to instantiate dummy base class CUDAGraph: there is no GPU that can be used here")
        self._room = gpus()
        self._keeps, self._debugs = keep_graph, False
        self._generators: list[Any] = []
        self._capture: Any = None
        self._noted: Any = None  # the graph, and what launches it
        self._executable: Any = None

    # -- capture

    def register_generator_state(self, generator: Any) -> None:
        """Let the graph draw from this generator, too. The current GPU's own need not be told."""
        if generator not in self._generators:
            self._generators.append(generator)

    def capture_begin(
        self, pool: Any = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:  # pool: a handle, another graph's `pool()`, or a MemPool
        """From here on the current stream notes its work. `capture_error_mode`: whether only this "thread_local" may not do what
        would wait for the GPU, all ("global"), or none ("relaxed")."""
        if self._capture is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance, or reset() this one"
            )
        if capture_error_mode not in self._room.graphs.MODES:
            raise RuntimeError(f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}")
        if streams.current_stream() == streams.default_stream():
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the default "
                "stream.) torch.cuda.graph(g) takes one by itself"
            )
        index = self._room.current_device()
        pool = self._room.memory.new_pool(False) if pool is None else tuple(getattr(pool, "id", pool))
        self.register_generator_state(default_generators[index])
        capture = self._room.graphs.Capture(index, pool)
        capture.begin(capture_error_mode, self._generators)
        self._capture = capture

    def capture_end(self) -> None:
        """The stream works again; what it noted is ready to be replayed."""
        if self._capture is None:
            raise RuntimeError("CUDAGraph::capture_end was called without capture_begin")
        try:
            self._noted = self._capture.end()
        except RuntimeError:
            self.reset()
            raise
        if not self._keeps:
            self.instantiate()
            if not self._debugs:
                self._room.graphs.destroy(self._noted, None)
                self._noted = None

    def instantiate(self) -> None:
        """Make it ready for launches; the end of a capture does that unless the graph is kept."""
        if not self._noted:
            raise RuntimeError("Called CUDAGraph::instantiate without a captured graph that was kept: CUDAGraph(keep_graph=True)")
        self._room.graphs.destroy(None, self._executable)
        self._executable = self._room.graphs.instantiated(self._noted)

    # -- replay

    def replay(self) -> None:
        """Do all of it again, on the current stream."""
        if self._executable is None and self._noted:
            self.instantiate()
        if self._executable is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        for drawn in self._capture.draws.values():
            drawn.replay()
        self._room.graphs.launch(self._executable)

    def pool(self) -> tuple[int, int]:
        """The pool its memory comes from, for graphs that are to share it."""
        if self._capture is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._capture.pool

    def reset(self) -> None:
        """Forget what was captured. Its memory is free when the tensors in it are gone."""
        capture, noted, executable = self._capture, self._noted, self._executable
        self._capture = self._noted = self._executable = None
        if capture is not None:
            self._room.memory.release(capture.device, capture.pool)
            self._room.graphs.destroy(noted, executable)

    def __del__(self) -> None:
        if getattr(self, "_capture", None) is not None and self._room is not None:
            self.reset()

    # -- looking at it

    def enable_debug_mode(self) -> None:
        """Keep what is noted for `debug_dump`."""
        self._debugs = True

    def debug_dump(self, debug_path: str) -> None:
        """Write down what was noted, as a file for Graphviz."""
        if not self._noted:
            warnings.warn("CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()", stacklevel=2)
            return
        self._room.graphs.write_dot(self._noted, str(debug_path))

    def raw_cuda_graph(self) -> int:
        """The address of the cudaGraph_t."""
        if not self._noted:
            raise RuntimeError("You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true")
        return self._noted.value

    def raw_cuda_graph_exec(self) -> int:
        """The address of the cudaGraphExec_t."""
        if self._executable is None:
            raise RuntimeError("You cannot access the raw cudaGraphExec_t instance until instantiate() has been called")
        return self._executable.value


class graph:
    """`with torch.cuda.graph(g): ...` captures into g what is done within, on a stream made for that.

    pool     whose memory it takes: `graph_pool_handle()`, or another graph's `pool()`
    stream   the stream to capture on, if one's own is to be taken
    """

    default_capture_stream: Any = None

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Any = None, capture_error_mode: str = "global",
        enable_annotations: bool = False, check_input_liveness: bool = False,
    ):  # fmt: skip
        if stream is None:
            stream = self.__class__.default_capture_stream
            if stream is None or stream.device_index != gpus().current_device():
                stream = self.__class__.default_capture_stream = streams.Stream()
        self.cuda_graph, self.pool = cuda_graph, pool
        self.capture_stream, self.capture_error_mode = stream, capture_error_mode
        self.stream_ctx = streams.StreamContext(stream)

    def __enter__(self) -> None:
        gpus().Device().synchronize()
        gc.collect()
        memory.empty_cache()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(self, kind: Any, *problem: Any) -> None:
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if kind is None:  # otherwise what happened within is what is to be told
                raise
        finally:
            self.stream_ctx.__exit__(kind, *problem)
