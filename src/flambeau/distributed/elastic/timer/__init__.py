"""torch.distributed.elastic.timer: a worker that takes longer than it said is ended.

queue = multiprocessing.get_context("spawn").Queue()
LocalTimerServer(queue, max_interval=0.1).start()      # beside the agent

timer.configure(LocalTimerClient(queue))               # in every worker
with timer.expires(after=60):
    step()                                             # SIGKILL after a minute; the agent then starts the group again, or says who it was
"""

from __future__ import annotations

from flambeau.distributed.elastic.timer.api import TimerClient, TimerRequest, TimerServer, configure, expires
from flambeau.distributed.elastic.timer.file_based_local_timer import FileTimerClient, FileTimerRequest, FileTimerServer
from flambeau.distributed.elastic.timer.local_timer import LocalTimerClient, LocalTimerServer

__all__ = [
    "FileTimerClient", "FileTimerRequest", "FileTimerServer", "LocalTimerClient", "LocalTimerServer", "TimerClient", "TimerRequest",
    "TimerServer", "configure", "expires",
]  # fmt: skip
