"""torch.distributed.elastic.events: what happened to a run, for whoever collects that. `record` hands it to a logging handler chosen by name."""

from __future__ import annotations

import logging
import os
import socket
import traceback

from flambeau.distributed.elastic.events.api import Event, EventMetadataValue, EventSource, NodeState, RdzvEvent
from flambeau.distributed.elastic.events.handlers import get_logging_handler

__all__ = [
    "Event", "EventMetadataValue", "EventSource", "NodeState", "RdzvEvent", "construct_and_record_rdzv_event", "get_logging_handler",
    "record", "record_rdzv_event",
]  # fmt: skip

_events_loggers: dict[str, logging.Logger] = {}


def record(event: Event, destination: str = "null") -> None:
    """Hand an event to the handler `destination`."""
    _logger(destination).info(event.serialize())


def record_rdzv_event(event: RdzvEvent) -> None:
    """Hand an event of a meeting to the handler for those."""
    _logger("dynamic_rendezvous").info(event.serialize())


def construct_and_record_rdzv_event(
    run_id: str,
    message: str,
    node_state: NodeState,
    name: str = "",
    hostname: str = "",
    pid: int | None = None,
    master_endpoint: str = "",
    local_id: int | None = None,
    rank: int | None = None,
) -> None:
    """Make an event of a meeting, and record it if anybody listens."""
    if isinstance(get_logging_handler("dynamic_rendezvous"), logging.NullHandler):
        return
    trace = traceback.format_exc() if node_state == NodeState.FAILED else ""
    record_rdzv_event(
        RdzvEvent(
            name=name,
            run_id=run_id,
            message=message,
            hostname=hostname or socket.getfqdn(),
            pid=os.getpid() if pid is None else pid,
            node_state=node_state,
            master_endpoint=master_endpoint,
            rank=rank,
            local_id=local_id,
            error_trace=trace,
        )
    )


def _logger(destination: str) -> logging.Logger:
    if destination not in _events_loggers:
        logger = logging.getLogger(f"torchelastic-events-{destination}")
        logger.setLevel(os.environ.get("LOGLEVEL", "INFO"))
        logger.propagate = False
        logger.addHandler(get_logging_handler(destination))
        _events_loggers[destination] = logger
    return _events_loggers[destination]
