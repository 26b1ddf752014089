"""Events, averages and tables, where PyTorch's programs look for them. They are made in `tracing/`."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from flambeau.tracing.events import (  # noqa: F401
    DeviceType,
    EventList,
    FormattedTimesMixin,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
    Kernel,
)
from flambeau.tracing.table import _share as _format_time_share  # noqa: F401  programs that make tables of their own use these three
from flambeau.tracing.table import _size as _format_memory  # noqa: F401
from flambeau.tracing.table import _time as _format_time  # noqa: F401

__all__ = ["EventList", "FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "MemRecordsAcc", "StringTable"]

MEMORY_EVENT_NAME = "[memory]"
OUT_OF_MEMORY_EVENT_NAME = "[OutOfMemory]"


class StringTable(defaultdict):
    """Each string is its own translation, unless another was put in."""

    def __missing__(self, key: str) -> str:
        self[key] = key
        return key


class MemRecordsAcc:
    """Records of memory, (something with start_ns(), ...), found by the interval they fall into."""

    def __init__(self, mem_records: Any):
        self._records = sorted(mem_records, key=lambda record: record[0].start_ns())

    def in_interval(self, start_us: float, end_us: float):
        """Those between two times."""
        for record in self._records:
            if start_us * 1000 <= record[0].start_ns() <= end_us * 1000:
                yield record
