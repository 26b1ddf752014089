"""Timers through a named pipe, to be imported."""

from __future__ import annotations

from flambeau import import_only

WHY = "timers go through a multiprocessing queue here: LocalTimerClient and LocalTimerServer"
__all__ = import_only.fill(__name__, WHY, classes="FileTimerClient FileTimerRequest FileTimerServer", of="torch.distributed.elastic.timer")
