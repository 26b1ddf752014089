"""Event and RdzvEvent: one thing that happened, as data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum

__all__ = ["Event", "EventSource", "NodeState", "RdzvEvent"]

EventMetadataValue = str | int | float | bool | None


class EventSource(str, Enum):  # noqa: UP042 - prints as PyTorch's does
    """Who tells it."""

    AGENT = "AGENT"
    WORKER = "WORKER"


class NodeState(str, Enum):  # noqa: UP042 - prints as PyTorch's does
    """How a machine is doing in a meeting."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


class _AsJson:
    """What is written as JSON."""

    def __str__(self) -> str:
        return self.serialize()

    def serialize(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))  # type: ignore[call-overload]


@dataclass
class Event(_AsJson):
    """Something that an agent or a worker has to say."""

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, EventMetadataValue] = field(default_factory=dict)

    @staticmethod
    def deserialize(data: str | Event) -> Event:
        """From JSON."""
        if isinstance(data, Event):
            return data
        fields = json.loads(data)
        return Event(**{**fields, "source": EventSource(fields["source"])})


@dataclass
class RdzvEvent(_AsJson):
    """Something that happened while agents met."""

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    @staticmethod
    def deserialize(data: str | RdzvEvent) -> RdzvEvent:
        """From JSON."""
        if isinstance(data, RdzvEvent):
            return data
        fields = json.loads(data)
        return RdzvEvent(**{**fields, "node_state": NodeState(fields["node_state"])})
