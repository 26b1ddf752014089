"""Timers through a named pipe, to be imported."""

from __future__ import annotations

from flambeau import import_only

__all__ = ["FileTimerClient", "FileTimerRequest", "FileTimerServer"]

FileTimerClient, FileTimerRequest, FileTimerServer = import_only.classes(
    "torch.distributed.elastic.timer",
    "FileTimerClient FileTimerRequest FileTimerServer",
    "timers go through a multiprocessing queue here: LocalTimerClient and LocalTimerServer",
)
