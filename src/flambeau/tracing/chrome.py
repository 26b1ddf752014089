"""The trace file that Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

Its events: "X" something that took a while, "s" and "f" the ends of an arrow from an operation to its part of backward, "i" an allocation, "C" the
bytes that are in use, "M" names for processes and threads.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import threading
import time
from bisect import bisect_left
from typing import Any

from flambeau.tracing.recorder import line_of


def write(path: str, events: Any, recorder: Any = None, metadata: dict[str, Any] | None = None) -> None:
    """Write the trace; compressed if the name ends in .gz."""
    text = json.dumps(trace(events, recorder, metadata) | {"traceName": path}, separators=(",", ":"))
    if str(path).endswith(".gz"):
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(text)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def trace(events: Any, recorder: Any = None, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    """The trace as what JSON is made of."""
    pid, tid = os.getpid(), recorder.thread if recorder is not None else threading.get_native_id()
    listed = [_named("process_name", pid, 0, "python"), _named("thread_name", pid, tid, "thread (python)")]
    others = {} if recorder is None else {thread: name for thread, name, *_ in recorder.elsewhere if thread != tid}
    for thread, name in others.items():
        listed.append(_named("thread_name", pid, thread, name))
    for event in events:
        listed.append(_span(event, pid, tid if event.thread == 1 else event.thread))
    listed += _arrows(events, pid, tid)
    listed += _kernels(events, recorder)
    if recorder is not None and recorder.ledger is not None:
        listed += _memory(recorder, pid, tid)
    flags = {} if recorder is None else {
        "record_shapes": int(recorder.shapes), "with_stack": int(recorder.stacks), "with_modules": int(recorder.modules),
        "profile_memory": int(recorder.ledger is not None),
    }  # fmt: skip
    about = {"schemaVersion": 1, "deviceProperties": [], "host_name": platform.node(), "displayTimeUnit": "ms"}
    return about | flags | {"baseTimeNanoseconds": time.time_ns() - time.perf_counter_ns()} | (metadata or {}) | {"traceEvents": listed}


def _named(what: str, pid: Any, tid: Any, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "ts": 0, "pid": pid, "tid": tid, "args": {"name": name}}


def _span(event: Any, pid: int, tid: int) -> dict[str, Any]:
    args: dict[str, Any] = {"External id": event.id + 1, "Ev Idx": event.id}
    if event.sequence_nr >= 0:
        args["Sequence number"] = event.sequence_nr
        args["Fwd thread id"] = 1 if event.scope == 1 else 0
    if event.input_shapes:
        args["Input Dims"] = event.input_shapes
    if event.input_dtypes:
        args["Input type"] = event.input_dtypes
    if event.concrete_inputs:
        args["Concrete Inputs"] = ["" if v is None else str(v) for v in event.concrete_inputs]
    if event.line is not None:
        args["Line"] = f"{event.line[0].co_filename}:{line_of(*event.line)}"
    if event.stack:
        args["Call stack"] = ";".join(event.stack)
    if event.flops:
        args["Flops"] = event.flops
    start = round(event.time_range.start, 3)
    span = {"ph": "X", "cat": event.category, "name": event.trace_name, "pid": pid, "tid": tid, "ts": start, "args": args}
    return span | {"dur": round(event.time_range.elapsed_us(), 3)}


def _arrows(events: Any, pid: int, tid: int):
    """From each recorded operation to its nodes of backward. An operation that made several has the number of the last one."""
    made = {e.sequence_nr: e for e in events if e.sequence_nr >= 0 and e.scope == 0}
    numbers = sorted(made)
    nodes: dict[int, Any] = {}
    for e in events:
        if e.scope == 1 and numbers and numbers[0] <= e.sequence_nr <= numbers[-1]:
            nodes.setdefault(e.sequence_nr, e)
    for number, (sequence, node) in enumerate(nodes.items(), 1):
        maker = made[numbers[bisect_left(numbers, sequence)]]
        ends = {"id": number, "pid": pid, "tid": tid, "cat": "fwdbwd", "name": "fwdbwd"}
        yield ends | {"ph": "s", "ts": round(maker.time_range.start, 3)}
        yield ends | {"ph": "f", "ts": round(node.time_range.start, 3), "bp": "e"}


def _kernels(events: Any, recorder: Any):
    """What ran on a GPU, as a process of its own."""
    first = True
    for event in events:
        span = getattr(event, "device_span", None)
        if span is None:
            continue
        if first:
            yield _named("process_name", "GPU 0", 0, "GPU 0")
            first = False
        start = (span[0] - recorder.first) / 1e3
        yield {"ph": "X", "cat": "kernel", "name": event.name, "pid": "GPU 0", "tid": 7, "ts": round(start, 3),
               "dur": round((span[1] - span[0]) / 1e3, 3), "args": {"External id": event.id + 1, "device": 0, "stream": 7}}  # fmt: skip


def _memory(recorder: Any, pid: int, tid: int):
    total = {"cpu": 0, "cuda": 0}
    for when, address, size, device in sorted(recorder.ledger.changes):
        total[device] += size
        at = round((when - recorder.first) / 1e3, 3)
        kind = 0 if device == "cpu" else 1
        yield {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": pid, "tid": tid, "ts": at,
               "args": {"Total Allocated": total[device], "Bytes": size, "Addr": address, "Device Type": kind, "Device Id": kind - 1}}  # fmt: skip
        yield {"ph": "C", "name": f"{device} memory (bytes since start)", "pid": pid, "ts": at, "args": {"bytes": total[device]}}
