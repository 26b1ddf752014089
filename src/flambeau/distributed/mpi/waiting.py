"""Waiting for requests of MPI, with the interpreter free and with an ear open for everything else that may end the wait.

A wait is cut into slices. Between two of them Ctrl-C arrives, and `between()` may raise: a rank has died, time is up. Each thread has a
bell, which ends the slice that is running; an alarm rings all of them.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.kernels.native import native

SLICE = 0.2  # seconds
EAGER = 50e-6  # seconds of looking without a pause: a message that is under way arrives within them


class MPIError(RuntimeError):
    """MPI could not move something: mostly because the other side is no more."""


class Bell:
    """One byte that ends the slice of the thread that looks at it."""

    def __init__(self) -> None:
        self.byte = np.zeros(1, np.uint8)
        self.at = self.byte.ctypes.data

    def ring(self) -> None:
        self.byte[0] = 1


class Waiter:
    """Waits for the requests of one process.

    eager      for so long a thread that waits keeps its core to itself
    abandoned  requests whose wait ended with an error: their memory may still be written to
    """

    def __init__(self, mpi: Any, test: int):
        self.address_of = mpi._addressof
        self.test = test  # the address of MPI_Test
        self.bells: weakref.WeakSet[Bell] = weakref.WeakSet()
        self.abandoned: list[Any] = []
        self.native = hasattr(native.lib, "poll")
        self._local = threading.local()

    def bell(self) -> Bell:
        """The bell of the calling thread."""
        try:
            return self._local.bell
        except AttributeError:
            bell = self._local.bell = Bell()
            self.bells.add(bell)
            return bell

    def alarm(self) -> None:
        """Let every wait look around."""
        for bell in list(self.bells):
            bell.ring()

    def wait(self, requests: Sequence[Any], between: Callable[[], None], *, eager: float = EAGER) -> None:
        """Return when all the requests are done."""
        bell = self.bell()
        bell.byte[0] = 0
        try:
            while not self.poll(requests, bell, eager, False):
                bell.byte[0] = 0
                between()
        except BaseException:
            self.abandoned.extend(requests)
            raise

    def poll(self, requests: Sequence[Any], bell: Bell, eager: float, first: bool) -> bool:
        """One slice: True if all requests, or with `first` any of them, were done before it ended."""
        if self.native:
            try:
                return native.lib.poll(self.test, bell.at, SLICE, eager, first, *map(self.address_of, requests))
            except RuntimeError as problem:
                raise MPIError(str(problem)) from None
        return _poll_in_python(requests, bell, eager, first)


def _poll_in_python(requests: Sequence[Any], bell: Bell, eager: float, first: bool) -> bool:
    start, waited = time.monotonic(), 0.0
    while not bell.byte[0]:
        finished = [bool(request.Test()) for request in requests]
        if (True in finished) if first else (False not in finished):
            return True
        if waited >= SLICE:
            return False
        if waited > eager:
            time.sleep(50e-6)
        waited = time.monotonic() - start
    return False
