"""Timers of workers: who asks for one (`expires`), what is sent (`TimerRequest`), and who ends those that are late (`TimerServer`)."""

from __future__ import annotations

import abc
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["RequestQueue", "TimerClient", "TimerRequest", "TimerServer", "configure", "expires"]

log = logging.getLogger(__name__)
RELEASED = -1.0  # the expiration time of a request that takes a timer back


@dataclass(slots=True, eq=True, unsafe_hash=False)
class TimerRequest:
    """The worker `worker_id` will have left `scope_id` by `expiration_time` (seconds since 1970); a negative time says that it has."""

    worker_id: Any
    scope_id: str
    expiration_time: float


class TimerClient(abc.ABC):
    """A worker's end."""

    @abc.abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Promise to have released this scope by then."""

    @abc.abstractmethod
    def release(self, scope_id: str) -> None:
        """The promise is kept."""


class RequestQueue(abc.ABC):
    """Where a server takes requests from."""

    @abc.abstractmethod
    def size(self) -> int:
        """How many requests are waiting, at least."""

    @abc.abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """Up to `size` requests, those that come within `timeout` seconds."""


class TimerServer(abc.ABC):
    """Takes requests in a thread, and ends workers whose time is over. A subclass says how timers are kept and how a worker is ended."""

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True):
        super().__init__()
        self._request_queue = request_queue
        self._max_interval = max_interval
        self._daemon = daemon
        self._watchdog_thread: threading.Thread | None = None
        self._stop_signaled = False

    @abc.abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Begin and end the timers that these requests are about."""

    @abc.abstractmethod
    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Forget the timers of these workers."""

    @abc.abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """By worker, the timers that should have been released by `deadline`."""

    @abc.abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool:
        """End a worker. Whether it has ended; otherwise it is tried again."""

    def start(self) -> None:
        """Watch, in a thread of its own."""
        self._stop_signaled = False
        self._watchdog_thread = threading.Thread(target=self._watchdog_loop, name="flambeau.timers", daemon=self._daemon)
        self._watchdog_thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stop_signaled = True
        thread, self._watchdog_thread = self._watchdog_thread, None
        if thread is not None:
            thread.join(self._max_interval)

    def _watchdog_loop(self) -> None:
        while not self._stop_signaled:
            try:
                self._run_watchdog()
            except Exception:  # the thread has to outlive a bad request
                log.exception("a round of the timers failed")

    def _run_watchdog(self) -> None:
        """One round: what has been asked for, then who is late."""
        self.register_timers(self._request_queue.get(max(1, self._request_queue.size()), self._max_interval))
        late = self.get_expired_timers(time.time())
        for worker_id, timers in late.items():
            log.warning("worker %s has not left %s in time: it is ended", worker_id, ", ".join(timer.scope_id for timer in timers))
        self.clear_timers({worker_id for worker_id in late if self._reap_worker_no_throw(worker_id)})

    def _reap_worker_no_throw(self, worker_id: Any) -> bool:
        try:
            return self._reap_worker(worker_id)
        except Exception:
            log.exception("worker %s could not be ended: its timers are forgotten", worker_id)
            return True


_client: TimerClient | None = None


def configure(timer_client: TimerClient) -> None:
    """Let `expires` ask this client from now on."""
    global _client
    _client = timer_client


@contextmanager
def expires(after: float, scope: str | None = None, client: TimerClient | None = None) -> Iterator[None]:
    """What stands under this takes at most `after` seconds, or the worker is ended. A scope has one timer; it is named after the line unless `scope` is given."""
    client = client or _client
    if client is None:
        raise RuntimeError(
            "expires: there is no timer client. Call configure(LocalTimerClient(queue)) first, with the queue of a LocalTimerServer"
        )
    if scope is None:
        caller = sys._getframe(2)  # behind contextlib's __enter__
        scope = f"{caller.f_code.co_filename}#{caller.f_lineno}"
    client.acquire(scope, time.time() + after)
    try:
        yield
    finally:
        client.release(scope)
