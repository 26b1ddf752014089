"""Timers of workers of this machine, known by process id, through a multiprocessing queue."""

from __future__ import annotations

import logging
import os
import signal
import time
from queue import Empty
from typing import Any

from flambeau.distributed.elastic.timer.api import RELEASED, RequestQueue, TimerClient, TimerRequest, TimerServer

__all__ = ["LocalTimerClient", "LocalTimerServer", "MultiprocessingRequestQueue"]
log = logging.getLogger(__name__)


class LocalTimerClient(TimerClient):
    """A worker's end of the queue."""

    def __init__(self, mp_queue: Any):
        super().__init__()
        self._mp_queue = mp_queue

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id: str) -> None:
        self._mp_queue.put(TimerRequest(os.getpid(), scope_id, RELEASED))


class MultiprocessingRequestQueue(RequestQueue):
    """The server's end of the queue."""

    def __init__(self, mp_queue: Any):
        super().__init__()
        self._mp_queue = mp_queue

    def size(self) -> int:
        return self._mp_queue.qsize()

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        requests: list[TimerRequest] = []
        end = time.monotonic() + timeout
        while len(requests) < size and (left := end - time.monotonic()) > 0:
            try:
                requests.append(self._mp_queue.get(timeout=left))
            except Empty:
                break
        return requests


class LocalTimerServer(TimerServer):
    """Ends processes of this machine with SIGKILL: whoever hangs may not listen to anything else."""

    def __init__(self, mp_queue: Any, max_interval: float = 60, daemon: bool = True):
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)
        self._timers: dict[tuple[int, str], TimerRequest] = {}

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        for request in timer_requests:
            if request.expiration_time < 0:
                self._timers.pop((request.worker_id, request.scope_id), None)
            else:
                self._timers[request.worker_id, request.scope_id] = request

    def clear_timers(self, worker_ids: set[int]) -> None:
        self._timers = {key: timer for key, timer in self._timers.items() if key[0] not in worker_ids}

    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        late: dict[Any, list[TimerRequest]] = {}
        for timer in self._timers.values():
            if timer.expiration_time <= deadline:
                late.setdefault(timer.worker_id, []).append(timer)
        return late

    def _reap_worker(self, worker_id: int) -> bool:
        try:
            os.kill(worker_id, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended by itself
        except OSError as problem:
            log.error("process %d cannot be ended: %s", worker_id, problem)
            return False
        return True
