"""`torch.autograd.profiler`: profiling without a schedule, named ranges, and marks for NVIDIA's tools.

with profile(record_shapes=True) as prof:
    model(x)
print(prof.key_averages().table(sort_by="self_cpu_time_total"))
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from flambeau.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg, MemRecordsAcc
from flambeau.tracing import events
from flambeau.tracing.kinds import RANGE
from flambeau.tracing.recorder import Recorder, active

__all__ = [
    "EnforceUnique", "EventList", "FunctionEvent", "KinetoStepTracker", "MemRecordsAcc", "emit_itt", "emit_nvtx", "load_nvprof",
    "parse_nvprof_trace", "profile", "record_function",
]  # fmt: skip


class profile:
    """Notes every operation of this thread inside a `with`, and shows them as a table or a trace."""

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None, record_shapes: bool = False,
        with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False,
        use_kineto: bool = False, use_cpu: bool = True, experimental_config: Any = None, acc_events: bool = False,
        custom_trace_id_callback: Callable | None = None, post_processing_timeout_s: float | None = None, activity_filters: Any = None,
    ):  # fmt: skip
        self.enabled, self.entered = enabled, False
        self.use_device = "cuda" if use_cuda else use_device
        self.record_shapes, self.with_flops, self.profile_memory = record_shapes or with_flops, with_flops, profile_memory
        self.with_stack, self.with_modules, self.acc_events = with_stack, with_modules, acc_events
        self.recorder: Recorder | None = None
        self.trace_id = ""
        self._events: EventList | None = None
        self._earlier: list[FunctionEvent] = []

    def __enter__(self) -> profile | None:  # type: ignore[return]
        if not self.enabled:
            return None
        if self.entered and not self.acc_events:
            raise RuntimeError("Profiler context manager is not reentrant: make a new profile(), or use profiler.profile with a schedule")
        self.entered = True
        self._start()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.enabled:
            self._stop()

    def _start(self) -> None:
        if self.acc_events and self.recorder is not None:
            self._earlier = list(self.function_events)
        self._events = None
        self.recorder = Recorder(
            self.record_shapes, self.profile_memory, self.with_stack, self.with_modules or self.with_stack, self.use_device == "cuda"
        )
        self.recorder.start()

    def _stop(self) -> None:
        if self.recorder is not None:
            self.recorder.stop()

    @property
    def function_events(self) -> EventList:
        """The events, in the order in which they began."""
        if self.recorder is None:
            raise RuntimeError("Profiler didn't finish running: there are events when its `with` block is over")
        if self._events is None:
            found = events.build(self.recorder, self.with_flops, self.use_device)
            found[:0] = self._earlier
            self._events = found
        return self._events

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The events of one name taken together; see EventList.key_averages."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """Everything taken together."""
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """All time that was spent in some event, in microseconds."""
        return self.function_events.self_cpu_time_total

    def table(self, *args: Any, **kwargs: Any) -> str:
        """The events, one by one, as a table."""
        return self.function_events.table(*args, **kwargs)

    def export_chrome_trace(self, path: str) -> None:
        """Write a file for Perfetto or chrome://tracing."""
        self.function_events.export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write what flame-graph programs read."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self.function_events.export_stacks(path, metric)

    def toggle_collection_dynamic(self, enabled: bool, activities: Any = None) -> None:
        """Stop noting for a while, and go on."""
        if self.recorder is None:
            return
        if enabled and active() is None:
            first = self.recorder.first
            self.recorder.start()
            self.recorder.first = first
        elif not enabled and active() is self.recorder:
            self.recorder.stop()

    def __repr__(self) -> str:
        return "<unfinished torch.autograd.profile>" if self.recorder is None else repr(self.function_events)

    def __str__(self) -> str:
        return "<unfinished torch.autograd.profile>" if self.recorder is None else str(self.function_events)


def _profiler_enabled() -> bool:
    """Whether this thread is being profiled."""
    return active() is not None


def kineto_available() -> bool:
    """Whether traces can be written: they can, without the library that PyTorch needs for it."""
    return True


def __getattr__(name: str) -> Any:
    if name == "_is_profiler_enabled":
        return _profiler_enabled()
    raise AttributeError(f"module 'torch.autograd.profiler' has no attribute {name!r}")


class record_function:
    """A named range on the time line, as a context manager or a decorator; nothing where nobody profiles.

    >>> with record_function("augment"):
    ...     pass
    """

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self.begun: list[tuple] = []

    def __enter__(self) -> record_function:
        recorder = active()
        self.begun.append((recorder, None if recorder is None else recorder.line(), perf_counter_ns()))
        return self

    def __exit__(self, *exc: Any) -> None:
        recorder, line, start = self.begun.pop()
        if recorder is not None and active() is recorder:
            recorder.note((start, perf_counter_ns(), RANGE, self.name, line, self.args))

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def ranged(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return ranged


class _Marks(Recorder):
    """A recorder that keeps nothing: it opens and closes ranges on the time line of another tool."""

    def __init__(self, push: Callable, pop: Callable):
        super().__init__()
        self.push, self.pop = push, pop
        self.plain = False  # so that nodes come here too

    def run_whole(self, function: Callable, name: Any, args: tuple, kwargs: dict) -> Any:
        from flambeau.tracing import names

        self.push(f"aten::{names.of(name)}")
        try:
            return super().run_whole(function, name, args, kwargs)
        finally:
            self.pop()
            self.rows.clear()

    def handle_node(self, node: Any, grads: Any, next: Callable) -> list:
        self.push(f"{type(node).__name__}, seq = {node.sequence}")
        try:
            return super().handle_node(node, grads, next)
        finally:
            self.pop()
            self.rows.clear()


class emit_nvtx:
    """Within it, every operation is a range on the time line of NVIDIA's profilers (nsys)."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        self.enabled, self.record_shapes = enabled, record_shapes
        self.marks: _Marks | None = None

    def __enter__(self) -> emit_nvtx | None:
        if not self.enabled:
            return None
        from flambeau.tensor.memory.host_memory import cuda_is_available

        if not cuda_is_available():
            raise RuntimeError(
                "NVTX functions not installed: emit_nvtx marks ranges for NVIDIA's profilers, and there is no CUDA device here"
            )
        from flambeau.kernels import arrays

        nvtx: Any = arrays.cuda().cupy.cuda.nvtx
        self.marks = _Marks(nvtx.RangePush, nvtx.RangePop)
        self.marks.start()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.marks is not None:
            self.marks.stop()


class emit_itt:
    """Marks for Intel's VTune, which are not made here."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False):
        self.enabled = enabled

    def __enter__(self) -> emit_itt | None:
        if not self.enabled:
            return None
        raise NotImplementedError("emit_itt: marks for Intel VTune are not made here. Try profiler.profile() and its export_chrome_trace()")

    def __exit__(self, *exc: Any) -> None:
        pass


def parse_nvprof_trace(path: str) -> list:
    """Files of nvprof, which NVIDIA has given up, are not read."""
    raise NotImplementedError("parse_nvprof_trace: nvprof's files are not read here. Use nsys with emit_nvtx, or profiler.profile()")


def load_nvprof(path: str) -> EventList:
    """Files of nvprof, which NVIDIA has given up, are not read."""
    return EventList(parse_nvprof_trace(path))


class EnforceUnique:
    """RuntimeError if a key is seen twice."""

    def __init__(self) -> None:
        self.seen: set = set()

    def see(self, *key: Any) -> None:
        """Note a key."""
        if key in self.seen:
            raise RuntimeError("duplicate key: " + str(key))
        self.seen.add(key)


class KinetoStepTracker:
    """The number of the step the program is at, as the largest that anybody who counts steps has reached."""

    _current_step = 0
    _counts: dict[str, int] = {}  # of the whole program, as in PyTorch: name of who counts -> its count

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Somebody starts to count, from where the program is."""
        cls._counts |= {requester: cls._current_step}

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Somebody counts no more. -> whether it did"""
        counted = requester in cls._counts
        if counted:
            del cls._counts[requester]
        return counted

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Somebody has done a step. -> where the program is then"""
        reached = cls._counts.get(requester, cls._current_step) + 1
        cls._counts |= {requester: reached}
        cls._current_step = max(reached, cls._current_step)
        return cls._current_step

    @classmethod
    def current_step(cls) -> int:
        """Where the program is."""
        return cls._current_step
