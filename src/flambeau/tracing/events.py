"""Events: the notes of a recorder with names, parents and children; and their averages.

The classes have PyTorch's names and attributes (torch.autograd.profiler_util). Times are in microseconds.
"""

from __future__ import annotations

import enum
import os
import sys
from bisect import bisect_left, bisect_right
from collections import namedtuple
from functools import cache
from itertools import accumulate
from typing import Any

from flambeau.dtypes import OF_NUMPY
from flambeau.tracing import flops, names
from flambeau.tracing.kinds import BACKWARD, FUNCTION, LEAF, MODULE, NODE, OPERATION
from flambeau.tracing.recorder import Recorder, is_ours, line_of


class DeviceType(enum.IntEnum):
    """Where an event took place."""

    CPU = 0
    CUDA = 1

    def __str__(self) -> str:
        return f"DeviceType.{self.name}"


Kernel = namedtuple("Kernel", ["name", "device", "duration"])


class Interval:
    """A stretch of time."""

    def __init__(self, start: float, end: float):
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """Its length."""
        return self.end - self.start


def _time(value: float) -> str:
    """Microseconds in the unit that suits them."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if value >= size:
            return f"{value / size:.3f}{unit}"
    return f"{value:.3f}us"


class FormattedTimesMixin:
    """Averages, and times as text, for whatever has totals and a count."""

    count: int
    cpu_time_total: float
    device_time_total: float

    @property
    def cpu_time(self) -> float:
        return 0.0 if self.count == 0 else self.cpu_time_total / self.count

    @property
    def device_time(self) -> float:
        return 0.0 if self.count == 0 else self.device_time_total / self.count

    cuda_time = device_time


def _as_text(name: str) -> property:
    return property(lambda self: _time(getattr(self, name)))


for _name in ("cpu_time", "device_time", "cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total"):
    setattr(FormattedTimesMixin, f"{_name}_str", _as_text(_name))


class FunctionEvent(FormattedTimesMixin):
    """Something that was done once: an operation, a node of backward, a range of the program."""

    def __init__(
        self, id: int, name: str, thread: int, start_us: float, end_us: float, overload_name: str | None = None, fwd_thread: int | None = None,
        input_shapes: Any = None, stack: Any = None, scope: int = 0, use_device: str | None = None, cpu_memory_usage: int = 0,
        device_memory_usage: int = 0, is_async: bool = False, is_remote: bool = False, sequence_nr: int = -1, node_id: int = -1,
        device_type: DeviceType = DeviceType.CPU, device_index: int = 0, device_resource_id: int | None = None, is_legacy: bool = False,
        flops: int | None = None, trace_name: str | None = None, concrete_inputs: Any = None, kwinputs: Any = None,
        is_user_annotation: bool = False, is_python_function: bool = False, **more: Any,
    ):  # fmt: skip
        self.id, self.name, self.thread, self.time_range = id, name, thread, Interval(start_us, end_us)
        self.overload_name, self.trace_name, self.fwd_thread = overload_name, trace_name or name, fwd_thread
        self.input_shapes, self.concrete_inputs, self.kwinputs = input_shapes, concrete_inputs, kwinputs
        self.stack, self.scope, self.use_device = stack, scope, use_device
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.sequence_nr, self.node_id = is_async, is_remote, sequence_nr, node_id
        self.device_type, self.device_index, self.device_resource_id = device_type, device_index, device_resource_id or thread
        self.is_legacy, self.flops = is_legacy, flops
        self.is_user_annotation, self.is_python_function = is_user_annotation, is_python_function
        self.count, self.kernels = 1, []  # type: ignore[var-annotated]
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_dtypes = more.get("input_dtypes")
        self.category = more.get("category", "cpu_op")
        self.line: Any = more.get("line")

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Add what ran on a device."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Add an event that took place inside this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Say inside which event this one took place."""
        self.cpu_parent = parent

    @property
    def key(self) -> str:
        return self.name

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        return self.time_range.elapsed_us() if self.device_type == DeviceType.CPU else 0

    @property
    def self_cpu_time_total(self) -> float:
        if self.is_async or self.device_type != DeviceType.CPU:
            return 0
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def device_time_total(self) -> float:  # type: ignore[override]
        return sum(k.duration for k in self.kernels) + sum(child.device_time_total for child in self.cpu_children)

    cuda_time_total = device_time_total

    @property
    def self_device_time_total(self) -> float:
        return self.device_time_total - sum(child.device_time_total for child in self.cpu_children)

    self_cuda_time_total = self_device_time_total

    @property
    def self_cpu_memory_usage(self) -> int:
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def self_device_memory_usage(self) -> int:
        return self.device_memory_usage - sum(child.device_memory_usage for child in self.cpu_children)

    self_cuda_memory_usage = self_device_memory_usage

    def __repr__(self) -> str:
        children = [child.id for child in self.cpu_children]
        return (
            f"<FunctionEvent id={self.id} name={self.name} device_type={self.device_type} cpu_time={_time(self.cpu_time)} "
            f"start_us={self.time_range.start} end_us={self.time_range.end} cpu_children={children} "
            f"device_time={_time(self.device_time)} thread={self.thread} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage} device_memory_usage={self.device_memory_usage} seq_nr={self.sequence_nr}>"
        )


class FunctionEventAvg(FormattedTimesMixin):
    """All events of one name (and shapes, or stack) together."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.node_id, self.is_async, self.is_remote, self.is_legacy, self.is_user_annotation = 0, False, False, False, False
        self.use_device: str | None = None
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = 0.0
        self.cpu_memory_usage = self.self_cpu_memory_usage = self.device_memory_usage = self.self_device_memory_usage = 0
        self.input_shapes: Any = None
        self.overload_name: str | None = None
        self.stack: Any = None
        self.scope: int | None = None
        self.cpu_children: Any = None
        self.cpu_parent: Any = None
        self.device_type = DeviceType.CPU
        self.flops = 0

    def add(self, other: Any) -> FunctionEventAvg:
        """Take in one more event, or another average of the same key."""
        if self.key is None:
            for name in ("key", "node_id", "is_async", "is_remote", "cpu_parent", "cpu_children", "overload_name", "input_shapes", "stack",
                         "scope", "device_type", "is_legacy", "use_device", "is_user_annotation"):  # fmt: skip
                setattr(self, name, getattr(other, name))
        for name in ("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total", "cpu_memory_usage",
                     "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage", "count"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={_time(self.self_cpu_time_total)} cpu_time={_time(self.cpu_time)} "
            f" self_cuda_time={_time(self.self_device_time_total)} cuda_time={_time(self.device_time)} "
            f"input_shapes={self.input_shapes or ''} cpu_memory_usage={self.cpu_memory_usage} cuda_memory_usage={self.device_memory_usage}>"
        )


class EventList(list):
    """Events or averages, and ways to look at them."""

    def __init__(self, *args: Any, **kwargs: Any):
        self._use_device = kwargs.pop("use_device", None)
        self._profile_memory = kwargs.pop("profile_memory", False)
        self._with_flops = kwargs.pop("with_flops", False)
        self._recorder: Any = kwargs.pop("recorder", None)
        super().__init__(*args, **kwargs)

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """All time that was spent in some event."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The events of one name taken together; with the first option those of one name and the same shapes, with the second those that
        were called from the same innermost lines."""
        found: dict[tuple, FunctionEventAvg] = {}
        for event in self:
            key = (event.key, event.node_id, event.device_type, event.is_legacy, event.is_user_annotation)
            key += (str(event.input_shapes),) if group_by_input_shapes else ()
            key += tuple((event.stack or [])[:group_by_stack_n])
            found.setdefault(key, FunctionEventAvg()).add(event)
        for average in found.values():
            average.stack = (average.stack or [])[:group_by_stack_n]
            if not group_by_input_shapes:
                average.input_shapes = ""
        return EventList(
            found.values(), use_device=self._use_device, profile_memory=self._profile_memory, with_flops=self._with_flops,
            recorder=self._recorder,
        )  # fmt: skip

    def total_average(self) -> FunctionEventAvg:
        """Everything taken together."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
            total.key = None
        total.key = "Total"
        return total

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
        max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False, time_unit: str | None = None,
    ) -> str:  # fmt: skip
        """The events as a table, the largest by `sort_by` first; row_limit=-1 shows all."""
        from flambeau.tracing.table import build

        return build(
            self, sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header, top_level_events_only,
            time_unit,
        )  # fmt: skip

    @property
    def supported_export_stacks_metrics(self) -> list[str]:
        return ["self_cpu_time_total", "self_cuda_time_total", "self_device_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """A line for each stack, outermost call first, and its time: what flame-graph programs read."""
        if metric not in self.supported_export_stacks_metrics:
            raise ValueError("metric should be one of: " + str(self.supported_export_stacks_metrics))
        table = str.maketrans(" ;\t\n", "____")
        with open(path, "w", encoding="utf-8") as file:
            for event in self:
                value = int(getattr(event, metric.replace("cuda", "device")))
                if event.stack and value > 0:
                    frames = [entry.translate(table) for entry in reversed(event.stack)]
                    file.write(";".join([*frames, event.name.translate(table)]) + f" {value}\n")

    def export_chrome_trace(self, path: str) -> None:
        """A file for Perfetto (https://ui.perfetto.dev) or chrome://tracing."""
        from flambeau.tracing import chrome

        chrome.write(path, self, self._recorder)


# -- from notes to events ----------------------------------------------------------------------------------------------


def build(recorder: Recorder, with_flops: bool = False, use_device: str | None = None) -> EventList:
    """The events of a recorder, in the order in which they began."""
    notes = [note for _, note in sorted(enumerate(recorder.notes), key=lambda pair: (pair[1][0], -pair[1][1], -pair[0]))]
    events = EventList(use_device=use_device, profile_memory=recorder.ledger is not None, with_flops=with_flops, recorder=recorder)
    maker = _Maker(recorder, events, with_flops, use_device)
    for note in notes:
        if note[2] != BACKWARD:
            maker.add(note)
    maker.finish()
    for thread, _, what, start, end in recorder.elsewhere:
        us = (start - recorder.first) / 1e3, (end - recorder.first) / 1e3
        events.append(FunctionEvent(len(events), what, thread, *us, stack=[], use_device=use_device, input_shapes=[]))
    events.sort(key=lambda event: event.time_range.start)
    for i, event in enumerate(events):
        event.id = i
    return events


class _Maker:
    """Makes events of notes that come sorted by time, an outer one before what is inside it."""

    def __init__(self, recorder: Recorder, events: EventList, with_flops: bool, use_device: str | None):
        self.recorder, self.events, self.with_flops, self.use_device = recorder, events, with_flops, use_device
        self.open: list[FunctionEvent] = []
        self.modules: dict[int, str] = {}
        self.leaves: list[tuple[FunctionEvent, str, int]] = []  # operations, which may turn out to have no parts
        self.devices: list[tuple[FunctionEvent, tuple[int, int]]] = []

    def add(self, note: tuple) -> None:
        start, end, kind, what, line, more = note
        if kind == OPERATION:
            sequence, looks, device = (more, None, None) if type(more) is int else more
            name = names.of(what)
            event = self.event(f"aten::{name}", start, end, line, sequence_nr=sequence)
            if not self.leaves or self.leaves[-1][0] is not event:  # else it forwards to an operation of its own name
                self.describe(event, what, name, looks)
                self.leaves.append((event, name, sequence))
            if device is not None:
                self.devices.append((event, self.recorder.clock.spans[device]))
        elif kind == NODE:
            sequence, looks, device = (more, None, None) if type(more) is int else more
            name = what.__name__
            for shown in (f"autograd::engine::evaluate_function: {name}", name):
                event = self.event(shown, start, end, line, sequence_nr=sequence, scope=1, fwd_thread=self.recorder.thread)
                event.input_shapes = _shapes(looks) if looks is not None else []
            if device is not None:
                self.devices.append((event, self.recorder.clock.spans[device]))
        elif kind == LEAF:
            name = "torch::autograd::AccumulateGrad"
            for shown in (f"autograd::engine::evaluate_function: {name}", name):
                self.event(shown, start, end, line)
        elif kind == FUNCTION:
            self.event(what, start, end, line)
        elif kind == MODULE:
            self.event(what, start, end, line, is_python_function=True, category="python_function")
        else:
            if what.startswith("ProfilerStep#"):
                more = {"trace_name": what}
                what = "ProfilerStep*"  # all steps are one row of a table; a trace has their numbers
            else:
                more = {}
            self.event(what, start, end, line, **more, is_user_annotation=True, category="user_annotation", scope=7)

    def event(self, name: str, start: int, end: int, line: Any, **more: Any) -> FunctionEvent:
        zero = self.recorder.first
        us = (start - zero) / 1e3, (end - zero) / 1e3
        while self.open and self.open[-1].time_range.end < us[1]:
            self.open.pop()
        parent = self.open[-1] if self.open else None
        stacks = self.recorder.stacks
        stack = _stack(line) if stacks and line else []
        place = None if not line else next((e for e in line if not is_ours(e[0])), None) if stacks else line
        event = FunctionEvent(len(self.events), name, 1, *us, stack=stack, use_device=self.use_device, input_shapes=[], line=place, **more)
        if parent is not None:
            if parent.name == name and not event.is_user_annotation and not parent.cpu_children:
                return parent  # a name that forwards to the operation of the same name is one event
            event.cpu_parent = parent
            parent.cpu_children.append(event)
        self.events.append(event)
        self.open.append(event)
        return event

    def describe(self, event: FunctionEvent, what: Any, name: str, looks: Any) -> None:
        if looks is None:
            return
        given, keywords = looks
        event.input_shapes = _shapes(given)
        event.input_dtypes = [_dtype(v) for v in given]
        event.concrete_inputs = [_concrete(v) for v in given]
        if self.with_flops:
            parameters = () if isinstance(what, str) else what.op.parameters
            ordered = dict(zip(parameters, given[: len(given) - len(keywords)], strict=False))
            ordered |= dict(zip(keywords, given[len(given) - len(keywords) :], strict=True))
            event.flops = flops.count(name, [v[0] if isinstance(v, tuple) else None for v in given], ordered)

    def finish(self) -> None:
        """Give operations that turned out to have no parts their inside, then memory and device times to whom they belong."""
        seen: set[int] = set()
        for event, _, _ in reversed(self.leaves):  # the innermost operation made the node, and arrows start there
            if event.sequence_nr in seen:
                event.sequence_nr = -1
            seen.add(event.sequence_nr)
        for event, name, _ in self.leaves:
            if not event.cpu_children:
                self.put_inside(event, name)
        for event in self.events:
            if event.flops and any(child.flops for child in event.cpu_children):
                event.flops = None  # the part that computes has them
        self.events.sort(key=lambda e: (e.time_range.start, -e.time_range.end, e.id))
        for event, (start, end) in reversed(self.devices):  # what is inside first: a composite has no time of its own
            if not event.device_time_total:
                event.append_kernel(event.name, 0, (end - start) / 1e3)
                event.device_span = start, end  # type: ignore[attr-defined]
        made = {e.sequence_nr: e.stack for e in self.events if e.sequence_nr >= 0 and e.scope == 0}
        for event in self.events:
            if event.scope == 1 and event.stack == []:  # backward happens in the engine; where it comes from is what people ask
                event.stack = made.get(event.sequence_nr, [])
        if self.recorder.ledger is not None:
            self.memory()

    def put_inside(self, event: FunctionEvent, name: str) -> None:
        ranks = [len(shape) for shape in event.input_shapes or [] if shape]
        outer = event
        for inner in names.inside(name, ranks, len(ranks) or 3):
            child = FunctionEvent(
                event.id, f"aten::{inner}", 1, outer.time_range.start, outer.time_range.end, stack=event.stack, use_device=self.use_device,
                input_shapes=event.input_shapes, sequence_nr=-1, line=event.line, flops=outer.flops, input_dtypes=event.input_dtypes,
                concrete_inputs=event.concrete_inputs,
            )  # fmt: skip
            outer.flops, child.cpu_parent = None, outer
            outer.cpu_children.append(child)
            self.events.append(child)
            outer = child

    def memory(self) -> None:
        zero = self.recorder.first
        for device, attribute in (("cpu", "cpu_memory_usage"), ("cuda", "device_memory_usage")):
            changes = sorted((when, size) for when, _, size, where in self.recorder.ledger.changes if where == device)
            times = [when for when, _ in changes]
            sums = [0, *accumulate(size for _, size in changes)]
            for event in self.events:
                first = bisect_left(times, event.time_range.start * 1e3 + zero - 0.5)  # ns, after a detour through floats
                last = bisect_right(times, event.time_range.end * 1e3 + zero + 0.5)
                setattr(event, attribute, sums[last] - sums[first])


def _shapes(looks: list) -> list:
    return [list(v[0]) if isinstance(v, tuple) else [x for x in _shapes(v) if x] if isinstance(v, list) else [] for v in looks]


def _concrete(look: Any) -> Any:
    """A number, a word, or a list of them; nothing of tensors."""
    if isinstance(look, list):
        return [_concrete(v) for v in look] if not any(isinstance(v, tuple) for v in look) else None
    return None if isinstance(look, tuple) else look


def _dtype(look: Any) -> str:
    if isinstance(look, tuple):
        return str(OF_NUMPY[look[2]]).removeprefix("torch.") if look[2] in OF_NUMPY else str(look[2])
    return "Scalar" if isinstance(look, (int, float)) else ""


def _stack(line: tuple) -> list[str]:
    """The calls that led to an event, innermost first, without the machinery that runs operations."""
    entries = list(line)
    while entries and entries[0][0].co_filename.startswith(_MACHINERY):
        entries.pop(0)
    return [f"{_short(code.co_filename)}({line_of(code, offset)}): {code.co_name}" for code, offset in entries]


@cache
def _short(path: str) -> str:
    """A path without the folder it was imported from."""
    folders = [f.rstrip(os.sep) + os.sep for f in (os.getcwd(), *sys.path) if f]
    return path.removeprefix(max((f for f in folders if path.startswith(f)), key=len, default=""))


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MACHINERY = tuple(
    _PACKAGE + part for part in ("tracing", "eager", "autograd/profiler.py", "factories.py", "nn/modules/watched.py", "nn/modules/hooks.py")
)
