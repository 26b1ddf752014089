"""Work: a collective or a message that may still be under way."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from flambeau import futures
from flambeau.distributed.watch.place import begun_at
from flambeau.tensor import Tensor

Outputs = list[Tensor]


class Work:
    """What `async_op=True` gives. `wait()` returns when the result is there, or raises what went wrong."""

    def __init__(self, outputs: Any = (), source: int = -1, line: str = "") -> None:
        self._outputs = outputs
        self._line = line  # of the program, which has begun it
        self._source = source
        self._error: BaseException | None = None
        self._finished = threading.Event()
        self._future: futures.Future | None = None
        self._lock = threading.Lock()

    def is_completed(self) -> bool:
        """Whether it is over, well or badly."""
        return self._finished.is_set()

    def is_success(self) -> bool:
        """Whether it is over, and well."""
        return self._finished.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """What went wrong."""
        return self._error

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until the result is there. With a timeout of its own the wait, but not the collective, ends with an error after that time."""
        seconds = None if timeout is None or timeout <= timedelta(0) else timeout.total_seconds()
        if not self._finished.wait(seconds):
            raise RuntimeError(f"Wait timeout: the work was still under way after {seconds:g} s")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """As wait(): CUDA tensors, too, are there when it returns."""
        self.wait()

    def block_current_stream(self) -> None:
        """As wait(): nothing of later work starts before the result is there."""
        self.wait()

    def result(self) -> Outputs:
        """The tensors that hold the result."""
        self.wait()
        return list(self._outputs)

    def source_rank(self) -> int:
        """Who sent what was received."""
        if self._source < 0:
            raise RuntimeError("sourceRank() may only be called on work objects that correspond to a recv or recv-from-any call.")
        return self._source

    _source_rank = source_rank

    def get_future(self) -> futures.Future:
        """A future of the list of tensors that hold the result."""
        with self._lock:
            if self._future is None:
                self._future = futures.Future()
                if self._finished.is_set():
                    self._settle(self._future)
            return self._future

    def get_future_result(self) -> futures.Future:
        """A future of how the work ended: 0, or the exception."""
        result: futures.Future = futures.Future()

        def settle(future: futures.Future) -> None:
            try:
                future.value()
            except BaseException as problem:
                result.set_exception(problem)
            else:
                result.set_result(0)

        self.get_future().add_done_callback(settle)
        return result

    def boxed(self) -> Any:
        raise NotImplementedError("Work.boxed: works are Python objects here, there is no box to put them in")

    unbox = boxed

    def _finish(self, error: BaseException | None = None) -> None:
        with self._lock:
            self._error = error
            self._finished.set()
            future = self._future
        if future is not None:
            self._settle(future)

    def _settle(self, future: futures.Future) -> None:
        with begun_at(self._line):  # what the program has told the future to do then
            if self._error is None:
                future.set_result(list(self._outputs))
            else:
                future.set_exception(self._error)


_Work = Work  # its older name


class Done(Work):
    """Work that was over before anyone could ask."""

    def __init__(self, outputs: Any = (), source: int = -1) -> None:
        self._outputs, self._source, self._error, self._future = outputs, source, None, None

    def is_completed(self) -> bool:
        return True

    is_success = is_completed

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True

    def get_future(self) -> futures.Future:
        return futures.finished(list(self._outputs))


Step = Callable[[], None]
