"""torch.distributed.elastic.timer: a worker that takes longer than it said is ended. Not here yet.

What it is mostly used for is: a collective that does not end in time raises in every rank (`timeout=` of `init_process_group`).
"""

from __future__ import annotations

from flambeau import import_only

WHY = "workers have no expiration timers. A collective that hangs raises by itself: give init_process_group a timeout="

(
    FileTimerClient, FileTimerRequest, FileTimerServer, LocalTimerClient, LocalTimerServer, TimerClient, TimerRequest, TimerServer,
) = import_only.classes(
    "torch.distributed.elastic.timer",
    "FileTimerClient FileTimerRequest FileTimerServer LocalTimerClient LocalTimerServer TimerClient TimerRequest TimerServer",
    WHY,
)  # fmt: skip
configure, expires = import_only.functions("torch.distributed.elastic.timer", "configure expires", WHY)

__all__ = [
    "FileTimerClient",
    "FileTimerRequest",
    "FileTimerServer",
    "LocalTimerClient",
    "LocalTimerServer",
    "TimerClient",
    "TimerRequest",
    "TimerServer",
    "configure",
    "expires",
]
