"""Messages from one rank to another: send, recv, and their forms that do not wait.

A message is a head of 256 bytes, which says what comes and from where in the program, and the elements: inside the head if they are few,
else behind it, under a tag that the head names. A receiver compares the head with what it expects before it lets anything into its tensor.

    0     4   who sends
    4     8   the tag of the elements, or 0 if they are inside
    8    16   how many there are
   16    24   a digest of their dtype
   24    84   a few elements
   84   256   the same for people: "send float32, 12 elements, to rank 1 at train.py:12"
"""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.groups.memory import flat, store
from flambeau.distributed.groups.pump import Pump
from flambeau.distributed.groups.work import Done, Work
from flambeau.distributed.mpi.transfers import raw
from flambeau.distributed.mpi.waiting import MPIError
from flambeau.distributed.watch.board import Entry
from flambeau.distributed.watch.cards import digest, text
from flambeau.distributed.watch.place import line_of_caller
from flambeau.tensor import Tensor

if TYPE_CHECKING:
    from flambeau.distributed.groups.on_mpi import OnMPI

SIZE = 256
HEAD = struct.Struct("<iiq8s")
INSIDE = slice(HEAD.size, 84)
TEXT = slice(84, SIZE)
ANYONE = -1
BARRIER_TAG = -1  # of the messages of monitored_barrier
TAGS = 1 << 14  # tags of elements that are under way at the same time

Requests = Sequence[Any]


class Messages:
    """The messages of one group."""

    def __init__(self, group: OnMPI):
        self.group = group
        self.pump = Pump(f"flambeau messages {group.name}", group.wire)
        self._number = itertools.count().__next__

    def send(self, tensor: Tensor, to: int, tag: int, wait: bool, timeout: timedelta | None = None) -> Work:
        """Send a tensor to a rank of the group."""
        ranks, me = self.group.ranks, self.group.rank
        array = flat(tensor)
        said = f"send {_kind(array)}, to rank {ranks[to]}"
        name = f"{me}>{to} {tag} {self.group.name}"
        entry = self._entry(said, [ranks[to]], f"send {name}", [f"recv {name}", f"recv {ANYONE}>{to} {tag} {self.group.name}"])
        return self._run(entry, self._sending(array, to, tag, entry), [tensor], wait, timeout)

    def receive(self, tensor: Tensor, source: int, tag: int, wait: bool, timeout: timedelta | None = None) -> Work:
        """Receive a tensor from a rank of the group, or from ANYONE."""
        ranks, me = self.group.ranks, self.group.rank
        sources = self.group.wire.peers if source == ANYONE else [source]
        name, whom = f"{tag} {self.group.name}", "anyone" if source == ANYONE else f"rank {ranks[source]}"
        array = flat(tensor)
        entry = self._entry(
            f"receive {_kind(array)}, from {whom}",
            [ranks[peer] for peer in sources],
            f"recv {source}>{me} {name}",
            [f"send {peer}>{me} {name}" for peer in sources],
        )
        entry.any = source == ANYONE
        return self._run(entry, self._receiving(tensor, array, source, tag, entry), [tensor], wait, timeout)

    def close(self) -> None:
        """The group ends."""
        self.pump.close()

    def _entry(self, said: str, peers: Sequence[int], match: str, wants: Sequence[str]) -> Entry:
        label = f"message {self._number()} {self.group.name}"
        self.group.watcher.board.called()
        return Entry(self.group.name, 0, said, line_of_caller(), peers, label, match, wants, self.group.among)

    def _run(
        self, entry: Entry, steps: Generator[Requests, None, int], outputs: Sequence[Tensor], wait: bool, timeout: timedelta | None
    ) -> Work:
        self.group.watcher.check(entry)
        message = Message(self, entry, steps, outputs, self.group.seconds(timeout))
        if wait:
            message.run()
            return Done(outputs, message._source)
        self.pump.add(message)
        return message

    # ---- the two sides: generators of what to wait for ----

    def _sending(self, array: np.ndarray, to: int, tag: int, entry: Entry) -> Generator[Requests, None, int]:
        head = np.zeros(SIZE, np.uint8)
        inside = array.nbytes <= INSIDE.stop - INSIDE.start
        place = 0 if inside else 2 * (self._number() % TAGS) + 1
        head.data[: HEAD.size] = HEAD.pack(self.group.rank, place, len(array), digest(array.dtype.name))
        head.data[TEXT] = text(entry.said, entry.line)
        if inside:
            head[INSIDE.start : INSIDE.start + array.nbytes] = raw(array)
        requests = [self.group.wire.send(head, to, _tag(tag))]
        if not inside:
            requests.append(self.group.wire.send(raw(array), to, place))
        yield requests
        return ANYONE

    def _receiving(self, tensor: Tensor, array: np.ndarray, source: int, tag: int, entry: Entry) -> Generator[Requests, None, int]:
        head = np.empty(SIZE, np.uint8)
        yield [self.group.wire.receive(head, source, _tag(tag))]
        source, place, count, dtype = HEAD.unpack(head.data[: HEAD.size])
        if (count, dtype) != (len(array), digest(array.dtype.name)):
            raise self._mismatch(source, head, entry)
        if place:
            yield [self.group.wire.receive(raw(array), source, place)]
        else:
            raw(array)[:] = head[INSIDE.start : INSIDE.start + array.nbytes]
        store(array, tensor)
        return source

    def _mismatch(self, source: int, head: np.ndarray, entry: Entry) -> DistBackendError:
        sent = head[TEXT].tobytes().rstrip(b"\0").decode(errors="replace")
        ranks = self.group.ranks
        what = (
            "a message is not what its receiver expects:\n"
            f"    rank {ranks[source]}   {sent}\n    rank {ranks[self.group.rank]}   {entry.said} at {entry.line}\n"
            "    try      receive into a tensor of the dtype and the number of elements that are sent"
        )
        self.group.watcher.fail(what)
        return DistBackendError(what)


class Message(Work):
    """A message under way. It moves on when somebody waits for it, or else on the thread of the pump.

    steps     yields requests, and goes on when all of them are done; returns who sent it
    requests  those that are not done
    """

    def __init__(self, messages: Messages, entry: Entry, steps: Generator[Requests, None, int], outputs: Sequence[Tensor], seconds: float):
        super().__init__(outputs, line=entry.line)
        self.entry, self.steps, self.seconds = entry, steps, seconds
        self.pump, self.watcher = messages.pump, messages.group.watcher
        self.deadline = time.monotonic() + seconds
        self.requests: Requests = []
        self.key = self.watcher.board.enter(entry)
        self._step()

    def run(self) -> None:
        """Move on to the end, on this thread."""
        waiter = self.pump.wire.library.waiter
        with self.watcher.board.waiting(self.entry.label):
            while not self._finished.is_set():
                try:
                    waiter.wait(self.requests, self.between)
                except MPIError as problem:
                    self._end(self.watcher.explain(self.entry, problem))
                    break
                except BaseException as problem:
                    self._end(problem)
                    raise
                self.requests = []
                self._step()
        if self._error is not None:
            raise self._error

    def advance(self) -> None:
        """Move on as far as it goes without a wait."""
        while not self._finished.is_set():
            try:
                self.requests = [request for request in self.requests if not request.Test()]
            except RuntimeError as problem:  # mpi4py's own errors are such
                self._end(self.watcher.explain(self.entry, problem))
                return
            if self.requests:
                return
            self._step()

    def wait(self, timeout: timedelta | None = None) -> bool:
        if timeout is None and not self._finished.is_set() and self.pump.take(self):
            self.run()
            return True
        with self.watcher.board.waiting(self.entry.label):
            return super().wait(timeout)

    def between(self) -> None:
        """Called every now and then while it waits: is there any hope left?"""
        self.watcher.check(self.entry)
        if time.monotonic() > self.deadline:
            raise self.watcher.missing(self.entry, self.seconds)

    def look(self) -> None:
        """As between(), but an error ends it."""
        try:
            self.between()
        except DistBackendError as problem:
            self.pump.wire.library.waiter.abandoned.extend(self.requests)
            self._end(problem)

    def _step(self) -> None:
        try:
            self.requests = next(self.steps)
        except StopIteration as end:
            self._source = end.value
            self._end(None)
        except BaseException as problem:
            self._end(problem)

    def _end(self, problem: BaseException | None) -> None:
        self.requests = []
        with suppress(KeyError):
            self.watcher.board.leave(self.key)
        self._finish(problem)


def _tag(tag: int) -> int:
    """The tags of heads are even, those of elements odd, and 0 is of collectives."""
    return 2 * tag + 4


def _kind(array: np.ndarray) -> str:
    return f"{array.dtype.name}, {len(array)} elements"
