"""Engine: how a group makes a call, whatever moves the bytes.

A call is a *step*, a function without arguments. Before it runs the ranks compare their cards; while it waits, it looks around for
news that nobody will come; what it leaves behind when it fails makes the group unusable.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from time import perf_counter_ns
from typing import Any

import numpy as np

from flambeau.distributed import options
from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.groups.lane import Lane
from flambeau.distributed.groups.work import Done, Work
from flambeau.distributed.mpi.waiting import EAGER, MPIError
from flambeau.distributed.mpi.wire import Wire
from flambeau.distributed.watch.board import Entry
from flambeau.distributed.watch.cards import Cards, mismatch
from flambeau.distributed.watch.place import line_of_caller
from flambeau.distributed.watch.watcher import Watcher
from flambeau.futures import collect_all
from flambeau.interpreters import stack
from flambeau.tensor import Tensor

Tensors = Sequence[Tensor]
ASYNC_EAGER = 5e-6  # seconds for which the lane's thread, which others compute beside, keeps its core to itself


class Engine:
    """What makes the calls of one group.

    kind     what it is called: gloo, mpi, nccl
    ranks    the ranks of the whole program that are its members, in order
    checked  whether ranks show each other their cards; FLAMBEAU_DIST_CHECK=0 saves that
    """

    kind = "undefined"

    def __init__(self, wire: Wire, watcher: Watcher, name: str, desc: str, ranks: Sequence[int], timeout: timedelta):
        self.wire, self.watcher, self.name, self.desc, self.ranks, self.timeout = wire, watcher, name, desc, list(ranks), timeout
        self.rank, self.size = wire.rank, wire.size
        self.peers = [self.ranks[peer] for peer in wire.peers]
        self.title = title(desc, name, self.ranks)
        self.among = "" if desc == "default_pg" else f" of {self.title}"
        self.lane = Lane(f"flambeau group {name}")
        self.cards = Cards(wire.size)
        self.checked = os.environ.get("FLAMBEAU_DIST_CHECK", "1") != "0"
        self.calls = 0
        self.entry: Entry | None = None  # the call that runs, and until when it may
        self.deadline = float("inf")
        self.in_the_air = False  # whether a call that fails now leaves something behind
        self.broken: str | None = None  # the call that did not end: what it left in the air makes the next ones meaningless
        wire.between = self.between

    # ---- how a call runs ----

    def run(self, said: str, opts: Any, step: Callable[[], None], outputs: Any, inline: np.ndarray | None = None) -> Work:
        """Make a call: now if the program waits for it anyway, else on the lane's thread. `inline` are bytes that the cards may carry."""
        line = line_of_caller()
        self.watcher.board.called()
        recorder = stack.at(stack.PROFILE)

        def call() -> None:
            start = perf_counter_ns()
            self.perform(said, line, opts.timeout, step, inline)
            if recorder is not None:
                recorder.ended_elsewhere(f"{self.kind}:{said.partition(' ')[0]}", start)

        if not opts.asyncOp:
            with self.watcher.board.waiting(self.name):
                self.lane.now(call)
            return Done(outputs)
        work = LaneWork(outputs, self, line)
        self.lane.later(call, work)
        return work

    def perform(self, said: str, line: str, timeout: timedelta, step: Callable[[], None], inline: np.ndarray | None) -> None:
        """Make sure that all ranks make this call, and make it."""
        if self.broken is not None:
            raise DistBackendError(
                f"{said} at {line}: the ranks of {self.title} have come apart, because an earlier call did not end: {self.broken}"
            )
        self.calls += 1
        entry = self.entry = Entry(self.name, self.calls, said, line, self.peers, among=self.among)
        self.watcher.check(entry)
        seconds = self.seconds(timeout)
        self.deadline = time.monotonic() + seconds
        self.wire.eager = ASYNC_EAGER if self.lane.on_own_thread() else EAGER
        board = self.watcher.board
        key = board.enter(entry)
        self.in_the_air = True
        try:
            if self.checked:
                self.agree(said, line, inline)
            step()
        except TimeoutError:
            self.broken = f"{said} at {line}"
            raise self.watcher.missing(entry, seconds) from None
        except MPIError as problem:
            self.broken = f"{said} at {line}"
            raise self.watcher.explain(entry, problem) from None
        except BaseException:
            if self.in_the_air:
                self.broken = f"{said} at {line}"
            raise
        finally:
            board.leave(key)

    def agree(self, said: str, line: str, inline: np.ndarray | None) -> None:
        """Show our card, and read everyone's."""
        self.cards.write(self.calls, said, line, inline)
        self.wire.gather(self.cards.own, self.cards.all.reshape(-1))
        if self.cards.disagree():
            self.in_the_air = False
            raise mismatch(self.title, self.ranks, self.cards.read())

    def between(self) -> None:
        """Called every now and then while a call waits: is there any hope left?"""
        assert self.entry is not None
        self.watcher.check(self.entry)
        if time.monotonic() > self.deadline:
            raise TimeoutError

    def seconds(self, timeout: timedelta | None) -> float:
        """How long a call may take."""
        return (self.timeout if timeout is None or timeout <= options.UNSET_TIMEOUT else timeout).total_seconds()

    # ---- several calls as one ----

    def allgather_coalesced(self, outputs: Sequence[Tensors], tensors: Tensors, opts: Any = None) -> Work:
        """outputs[rank][i] receives tensor i of that rank."""
        calls = [([[row[i] for row in outputs]], [tensor]) for i, tensor in enumerate(tensors)]
        return self._one_by_one(self.allgather, calls, opts or options.AllgatherOptions(), [t for row in outputs for t in row])

    def allgather_into_tensor_coalesced(self, outs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        return self._one_by_one(self._allgather_base, zip(outs, tensors, strict=True), opts or options.AllgatherOptions(), outs)

    def reduce_scatter_tensor_coalesced(self, outs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        return self._one_by_one(self._reduce_scatter_base, zip(outs, tensors, strict=True), opts or options.ReduceScatterOptions(), outs)

    def _one_by_one(self, call: Callable[..., Work], arguments: Iterable[tuple], opts: Any, outputs: Tensors) -> Work:
        works = [call(*each, opts) for each in arguments]
        return Together(works, list(outputs)) if opts.asyncOp else Done(list(outputs))

    @staticmethod
    def expect(given: Tensor, wanted: Tensor, what: str) -> None:
        if given.dtype != wanted.dtype or given.numel() != wanted.numel():
            raise ValueError(
                f"{what} has dtype {wanted.dtype} and shape {tuple(wanted.shape)}, expected {given.dtype} and {tuple(given.shape)}"
            )

    def drain(self) -> None:
        """Wait until all calls have been made."""
        self.lane.now(lambda: None)

    def close(self) -> None:
        """The group ends, when what was called is done."""
        if self.broken is None:
            self.drain()
        self.abort()
        if self.broken is None:
            self.wire.close()

    def abort(self) -> None:
        """The group ends; what has been called may never be done."""
        self.lane.close()


class LaneWork(Work):
    """A call that runs on the thread of a lane."""

    def __init__(self, outputs: Tensors, group: Engine, line: str):
        super().__init__(outputs, line=line)
        self._group = group

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._group.lane.reach(self)
        if self._finished.is_set():
            return super().wait()
        with self._group.watcher.board.waiting(self._group.name):
            return super().wait(timeout)


class Together(Work):
    """Several works as one."""

    def __init__(self, works: Sequence[Work], outputs: Tensors):
        super().__init__(outputs)
        self._works = works

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> BaseException | None:
        return next((work.exception() for work in self._works if work.exception()), None)

    def wait(self, timeout: timedelta | None = None) -> bool:
        return all([work.wait(timeout) for work in self._works])

    def get_future(self) -> Any:
        return collect_all([work.get_future() for work in self._works]).then(lambda _: self._outputs)


def title(desc: str, name: str, ranks: Sequence[int]) -> str:
    """What a group is called, for people.

    >>> title("default_pg", "0", range(4)), title("undefined", "3", [0, 2]), title("data parallel", "4", [1, 3])
    ('the group of all ranks', 'group 3 of ranks [0, 2]', 'group data parallel of ranks [1, 3]')
    """
    if desc == "default_pg":
        return "the group of all ranks"
    return f"group {name if desc in ('', 'undefined') else desc} of ranks {list(ranks)}"


def describe(*tensors: Tensor) -> str:
    """Dtype and shape, which are equal on all ranks of a call that is right: "float32 (4, 5)"."""
    return ", ".join([f"{dtype_name(tensor)} {tuple(n for n in tensor.shape if n != 1)}" for tensor in tensors])


def dtype_name(tensor: Tensor) -> str:
    return tensor._array.dtype.name


def unique(tensors: Tensors) -> Tensors:
    """One tensor if all are alike, else all of them."""
    first = tensors[0]
    return [first] if all(one.shape == first.shape for one in tensors) else tensors
