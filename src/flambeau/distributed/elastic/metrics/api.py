"""Numbers that an agent or a program reports: streams of them, and handlers that take them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

__all__ = [
    "ConsoleMetricHandler", "MetricData", "MetricHandler", "MetricStream", "MetricsConfig", "NullMetricHandler", "configure", "getStream",
    "get_elapsed_time_ms", "prof", "put_metric",
]  # fmt: skip


class MetricData(NamedTuple):
    """One number: when, in which group, what, how much."""

    timestamp: int
    group_name: str
    name: str
    value: float


class MetricsConfig:
    """Options of handlers."""

    __slots__ = ("params",)

    def __init__(self, params: dict[str, str] | None = None):
        self.params = {} if params is None else params


class MetricHandler(ABC):
    """Takes numbers."""

    @abstractmethod
    def emit(self, metric_data: MetricData) -> None:
        """Take one."""


class ConsoleMetricHandler(MetricHandler):
    """Prints them."""

    def emit(self, metric_data: MetricData) -> None:
        print(f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}")


class NullMetricHandler(MetricHandler):
    """Forgets them."""

    def emit(self, metric_data: MetricData) -> None:
        """Forget it."""


class MetricStream:
    """The numbers of one group."""

    def __init__(self, group_name: str, handler: MetricHandler):
        self.group_name = group_name
        self.handler = handler

    def add_value(self, metric_name: str, metric_value: int) -> None:
        """Report one, now."""
        self.handler.emit(MetricData(int(time.time()), self.group_name, metric_name, metric_value))


_metrics_map: dict[str, MetricHandler] = {}
_default_metrics_handler: MetricHandler = NullMetricHandler()


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """Let a handler take the numbers of one group, or of all that have none of their own."""
    global _default_metrics_handler
    if group is None:
        _default_metrics_handler = handler
    else:
        _metrics_map[group] = handler


def getStream(group: str) -> MetricStream:
    """The stream of a group."""
    return MetricStream(group, _metrics_map.get(group, _default_metrics_handler))


def put_metric(metric_name: str, metric_value: int, metric_group: str = "torchelastic") -> None:
    """Report a number."""
    getStream(metric_group).add_value(metric_name, metric_value)


def prof(fn: Callable | None = None, group: str = "torchelastic") -> Any:
    """Decorate a function: its calls report how they went, and how long they took (ms)."""

    def decorate(function: Callable) -> Callable:
        name = function.__qualname__.rpartition(".<locals>.")[2]

        @wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            start = time.time()
            try:
                result = function(*args, **kwargs)
            except Exception:
                put_metric(f"{name}.failure", 1, group)
                raise
            else:
                put_metric(f"{name}.success", 1, group)
                return result
            finally:
                put_metric(f"{name}.duration.ms", get_elapsed_time_ms(start), group)

        return measured

    return decorate if fn is None else decorate(fn)


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    """Milliseconds since `time.time()` was that."""
    return int((time.time() - start_time_in_seconds) * 1000)
