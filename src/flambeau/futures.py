"""torch.futures: a value that is promised now and comes later, from another thread or from the same one.

>>> promise = Future()
>>> doubled = promise.then(lambda future: 2 * future.wait())
>>> promise.set_result(21)
>>> doubled.wait()
42
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """Holds a result or an exception once it is done; `then` and `add_done_callback` say what happens after that.

    Callbacks run in the thread that completes the future, in the order they were added; at once, if it is done already. `devices` names the GPUs
    that the value may lie on: work on them is in order here, so nothing has to be waited for besides the value.
    """

    def __init__(self, *, devices: list | None = None):
        from flambeau.devices import device

        for place in map(device, devices or ()):
            if place.type == "cpu":
                raise ValueError(f"Expected devices to have indices, got {place}: a CPU needs no mention")
        self._changed = threading.Condition()
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable] = []

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("Can not pickle torch.futures.Future: others wait for it in this process. Send what wait() gives")

    def done(self) -> bool:
        """Whether there is a result or an exception."""
        return self._done

    def wait(self) -> T:
        """The result, as soon as there is one; the exception is raised."""
        with self._changed:
            self._changed.wait_for(lambda: self._done)
        return self.value()

    def value(self) -> T:
        """The result of a future that is done; the exception is raised."""
        if not self._done:
            raise RuntimeError("Future.value() before the future is done: wait() waits for it")
        if self._error is not None:
            raise self._error
        return self._value

    def set_result(self, result: T) -> None:
        """Complete it."""
        self._complete(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Complete it with something to be raised by those who wait."""
        if not isinstance(result, Exception):
            raise AssertionError(f"set_exception takes an exception, found {result} of {type(result)}.")
        self._complete(None, result)

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of what `callback(self)` returns; RuntimeError for those who wait if it raises."""
        later: Future[S] = Future()

        def go_on(future: Future[T]) -> None:
            try:
                result = callback(future)
            except Exception as problem:
                error = RuntimeError(f"Got the following error when running the callback: {type(problem).__name__}: {problem}")
                error.__cause__ = problem
                later.set_exception(error)
            else:
                later.set_result(result)

        self._when_done(go_on)
        return later

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call `callback(self)` when it is done. What it raises is logged, and nothing else happens: `then` passes it on."""

        def call(future: Future[T]) -> None:
            try:
                callback(future)
            except Exception as problem:
                logging.getLogger(__name__).error("a callback of a Future raised %s: %s", type(problem).__name__, problem)

        self._when_done(call)

    def _complete(self, value: Any, error: BaseException | None) -> None:
        with self._changed:
            if self._done:
                raise RuntimeError("this is done: Future can only be marked completed once.")
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in callbacks:
            callback(self)

    def _when_done(self, callback: Callable) -> None:
        with self._changed:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)


def finished(value: T) -> Future[T]:
    """A future that is done."""
    future: Future[T] = Future()
    future.set_result(value)
    return future


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A future of these futures, done when all of them are; of several exceptions, that of the first in the list is raised."""
    if None in futures:
        raise RuntimeError("Future can't be None")
    together: Future[list[Future]] = Future()
    open_ones = len(futures)
    lock = threading.Lock()

    def one_less(_: Future) -> None:
        nonlocal open_ones
        with lock:
            open_ones -= 1
            last = open_ones == 0
        if last:
            errors = [future._error for future in futures if future._error is not None]
            together._complete(futures, errors[0] if errors else None)

    for future in futures:
        future._when_done(one_less)
    if not futures:
        together.set_result(futures)
    return together


def wait_all(futures: list[Future]) -> list:
    """Their results, when all are done; the first exception is raised."""
    return [future.wait() for future in collect_all(futures).wait()]
