"""The collectives of a group whose ranks are connected by a Wire: every device, staged through the CPU's memory where it is another.

Each call is a step on the group's lane: the ranks show each other their cards, and if they agree, bytes move.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from flambeau.distributed import options
from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.groups import messages
from flambeau.distributed.groups.engine import Engine, Tensors, describe, dtype_name, unique
from flambeau.distributed.groups.folds import fold_of, premultiplied
from flambeau.distributed.groups.memory import flat, is_flat, store, together
from flambeau.distributed.groups.work import Work
from flambeau.distributed.mpi import transfers
from flambeau.distributed.mpi.wire import Wire
from flambeau.distributed.watch.cards import ROOM
from flambeau.distributed.watch.watcher import Watcher
from flambeau.tensor import Tensor
from flambeau.tensor.making.interop import from_numpy

TAGS = 1 << 14  # subgroups that are made at the same time
BLOCKING = options.BarrierOptions(asyncOp=False)


class OnMPI(Engine):
    """The collectives and the messages of one group."""

    def __init__(self, wire: Wire, watcher: Watcher, name: str, desc: str, ranks: Sequence[int], timeout: timedelta):
        super().__init__(wire, watcher, name, desc, ranks, timeout)
        self.messages = messages.Messages(self)

    def abort(self) -> None:
        super().abort()
        self.messages.close()

    def subgroup(self, ranks: Sequence[int], name: str, desc: str, timeout: timedelta) -> OnMPI | None:
        """A group of some of the ranks of this one, which all call this; None for those outside."""
        made: list[OnMPI] = []

        def step() -> None:
            if self.rank in ranks:
                made.append(self.part(ranks, name, desc, timeout, self.calls % TAGS))

        self.run(f"new_group {list(ranks)}", BLOCKING, step, [])
        return made[0] if made else None

    def part(self, ranks: Sequence[int], name: str, desc: str, timeout: timedelta, tag: int) -> OnMPI:
        """A group of some of the ranks of this one, which alone call this."""
        return OnMPI(self.wire.subset(ranks, tag), self.watcher, name, desc, [self.ranks[rank] for rank in ranks], timeout)

    # ---- messages ----

    def send(self, tensors: Tensors, to: int, tag: int = 0, *, wait: bool = False) -> Work:
        (tensor,) = tensors
        return self.messages.send(tensor, to, tag, wait)

    def recv(self, tensors: Tensors, source: int, tag: int = 0, *, wait: bool = False) -> Work:
        (tensor,) = tensors
        return self.messages.receive(tensor, source, tag, wait)

    def recv_anysource(self, tensors: Tensors, tag: int = 0, *, wait: bool = False) -> Work:
        return self.recv(tensors, messages.ANYONE, tag, wait=wait)

    # ---- the collectives ----

    def broadcast(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.BroadcastOptions()
        (tensor,) = tensors
        root, array = opts.rootRank, flat(tensor)

        def step() -> None:
            self.wire.broadcast(transfers.raw(array), root)
            if self.rank != root:
                store(array, tensor)

        return self.run(f"broadcast from {self.ranks[root]} {describe(tensor)}", opts, step, [tensor])

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.AllreduceOptions()
        (tensor,) = tensors
        array = premultiplied(opts.reduceOp, flat(tensor))
        fold, own = fold_of(opts.reduceOp, array.dtype), is_flat(tensor) and opts.reduceOp._factor is None
        inline = transfers.raw(array) if self.checked and array.nbytes <= ROOM else None

        def step() -> None:
            if inline is not None:  # the cards have brought everyone's numbers
                fold(list(self.cards.inline(array.dtype, len(array))), array)
            else:
                transfers.all_reduce(self.wire, array, fold)
            if not own:
                store(array, tensor)

        return self.run(f"all_reduce {opts.reduceOp.op.name} {describe(tensor)}", opts, step, [tensor], inline)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.AllreduceCoalescedOptions()
        array, apart = together(tensors)
        array = premultiplied(opts.reduceOp, array)
        fold = fold_of(opts.reduceOp, array.dtype)

        def step() -> None:
            transfers.all_reduce(self.wire, array, fold)
            apart(array)

        return self.run(f"all_reduce_coalesced {opts.reduceOp.op.name} {describe(*tensors)}", opts, step, list(tensors))

    def reduce(self, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.ReduceOptions()
        (tensor,) = tensors
        root, array = opts.rootRank, premultiplied(opts.reduceOp, flat(tensor))
        fold = fold_of(opts.reduceOp, array.dtype)

        def step() -> None:
            transfers.reduce(self.wire, array, root, fold)
            if self.rank == root:
                store(array, tensor)

        return self.run(f"reduce {opts.reduceOp.op.name} to {self.ranks[root]} {describe(tensor)}", opts, step, [tensor])

    def allgather(self, outputs: Sequence[Tensors], tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.AllgatherOptions()
        (out,), (tensor,) = outputs, tensors
        self.expect(tensor, out[self.rank], "all_gather: the output for this rank")
        arrays, array = [flat(one) for one in out], flat(tensor)

        def step() -> None:
            transfers.exchange(self.wire, [array] * self.size, arrays)
            for one, got in zip(out, arrays, strict=True):
                store(got, one)

        return self.run(f"all_gather {describe(*unique(out))}", opts, step, list(out))

    def _allgather_base(self, out: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        opts = opts or options.AllgatherOptions()
        array, got = flat(tensor), flat(out)

        def step() -> None:
            transfers.exchange(self.wire, [array] * self.size, transfers.split(got, self.size))
            store(got, out)

        return self.run(f"all_gather_into_tensor {describe(tensor)}", opts, step, [out])

    def gather(self, outputs: Sequence[Tensors], tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.GatherOptions()
        (tensor,), root, array = tensors, opts.rootRank, flat(tensors[0])
        out = list(outputs[0]) if outputs else []
        arrays = [flat(one) for one in out]

        def step() -> None:
            transfers.gather(self.wire, array, root, arrays)
            for one, got in zip(out, arrays, strict=True):
                store(got, one)

        return self.run(f"gather to {self.ranks[root]} {describe(tensor)}", opts, step, out)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        opts = opts or options.ScatterOptions()
        (out,), root, got = outputs, opts.rootRank, flat(outputs[0])
        arrays = [flat(one) for one in inputs[0]] if inputs else []

        def step() -> None:
            transfers.scatter(self.wire, arrays, root, got)
            store(got, out)

        return self.run(f"scatter from {self.ranks[root]} {describe(out)}", opts, step, [out])

    def reduce_scatter(self, outs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        opts = opts or options.ReduceScatterOptions()
        (out,), parts = outs, inputs[0]
        self.expect(parts[self.rank], out, "reduce_scatter: the output of this rank")
        arrays, got = [premultiplied(opts.reduceOp, flat(part)) for part in parts], flat(out)
        fold = fold_of(opts.reduceOp, got.dtype)

        def step() -> None:
            transfers.reduce_scatter(self.wire, arrays, got, fold)
            store(got, out)

        return self.run(f"reduce_scatter {opts.reduceOp.op.name} {describe(*unique(parts))}", opts, step, [out])

    def _reduce_scatter_base(self, out: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        opts = opts or options.ReduceScatterOptions()
        array, got = premultiplied(opts.reduceOp, flat(tensor)), flat(out)
        fold = fold_of(opts.reduceOp, got.dtype)

        def step() -> None:
            transfers.reduce_scatter(self.wire, transfers.split(array, self.size), got, fold)
            store(got, out)

        return self.run(f"reduce_scatter_tensor {opts.reduceOp.op.name} {describe(tensor)}", opts, step, [out])

    def alltoall_base(self, out: Tensor, tensor: Tensor, out_splits: Sequence[int], in_splits: Sequence[int], opts: Any = None) -> Work:
        opts = opts or options.AllToAllOptions()
        array, got = flat(tensor), flat(out)
        sending = rows(array, in_splits, tensor.shape, self.size, "input")
        receiving = rows(got, out_splits, out.shape, self.size, "output")
        name = "all_to_all_single" if not (in_splits or out_splits) else "all_to_all_single with splits"
        said = f"{name} {describe(tensor) if not (in_splits or out_splits) else dtype_name(tensor)}"
        return self.all_to_all(said, sending, receiving, opts, [out], lambda: store(got, out))

    def alltoall(self, outs: Tensors, tensors: Tensors, opts: Any = None) -> Work:
        opts = opts or options.AllToAllOptions()
        sending, receiving = [flat(one) for one in tensors], [flat(one) for one in outs]

        def done() -> None:
            for one, got in zip(outs, receiving, strict=True):
                store(got, one)

        return self.all_to_all(f"all_to_all {dtype_name(tensors[0])}", sending, receiving, opts, list(outs), done)

    def all_to_all(self, said: str, sending: list[np.ndarray], receiving: list[np.ndarray], opts: Any, outputs: Tensors, done: Any) -> Work:
        """Everyone sends everyone something of another length; the lengths are compared before."""
        lengths = np.array([len(one) for one in sending], np.int64)

        def step() -> None:
            if self.checked and self.size > 1:
                everyone = np.empty((self.size, self.size), np.int64)
                self.wire.gather(transfers.raw(lengths), transfers.raw(everyone))
                self.compare_lengths(everyone, receiving)
            transfers.exchange(self.wire, sending, receiving)
            done()

        return self.run(said, opts, step, outputs)

    def compare_lengths(self, sent: np.ndarray, receiving: list[np.ndarray]) -> None:
        expected = np.array([len(one) for one in receiving], np.int64)
        everyone = np.empty_like(sent)
        self.wire.gather(transfers.raw(expected), transfers.raw(everyone))
        wrong = np.argwhere(sent != everyone.T)
        if len(wrong):
            table = "\n".join(
                f"    rank {self.ranks[a]} sends rank {self.ranks[b]} {sent[a, b]} elements, which expects {everyone[b, a]}"
                for a, b in wrong[:8]
            )
            self.in_the_air = False
            raise DistBackendError(
                f"all_to_all: the lengths do not fit each other:\n{table}\n    try      output_split_sizes of one are input_split_sizes of the others"
            )

    def barrier(self, opts: Any = None) -> Work:
        opts = opts or options.BarrierOptions()
        nothing = np.zeros(1, np.uint8)

        def step() -> None:
            if not self.checked:  # else the cards have made everyone wait
                self.wire.gather(nothing, np.empty(self.size, np.uint8))

        return self.run("barrier", opts, step, [])

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier at which rank 0 says who did not come: the first of them, or all."""
        seconds = self.seconds(timeout)
        deadline = time.monotonic() + seconds
        token = from_numpy(np.zeros(1, np.uint8))

        def left() -> timedelta:
            return timedelta(seconds=max(deadline - time.monotonic(), 0.01))

        if self.rank != 0:
            self.messages.send(token, 0, messages.BARRIER_TAG, True, timedelta(seconds=seconds))
            self.messages.receive(token, 0, messages.BARRIER_TAG, True, timedelta(seconds=2 * seconds))
            return
        absent = []
        for peer in self.wire.peers:
            try:
                self.messages.receive(token, peer, messages.BARRIER_TAG, True, left())
            except DistBackendError:
                absent.append(peer)
                if not wait_all_ranks:
                    break
        if absent:
            who = ", ".join(str(self.ranks[peer]) for peer in absent)
            what = f"rank 0, in monitoredBarrier: rank{'s' * (len(absent) > 1)} {who} failed to pass monitoredBarrier in {seconds * 1000:.0f} ms"
            self.watcher.fail(what)
            raise RuntimeError(what)
        for peer in self.wire.peers:
            self.messages.send(token, peer, messages.BARRIER_TAG, True, left())


def rows(array: np.ndarray, splits: Sequence[int], shape: Sequence[int], ranks: int, which: str) -> list[np.ndarray]:
    """The part of a tensor's elements that is of each rank."""
    bounds = np.cumsum([0, *heights_of(shape, splits, ranks, which)]) * prod(shape[1:])
    return [array[start:end] for start, end in pairwise(bounds)]


def heights_of(shape: Sequence[int], splits: Sequence[int], ranks: int, which: str) -> list[int]:
    """The number of rows that are of each rank: as many as `splits` says, or equally many."""
    height = shape[0] if shape else 1
    if not splits:
        if height % ranks:
            raise RuntimeError(
                f"all_to_all_single: the {which} has {height} rows, which do not divide by {ranks} ranks: pass {which}_split_sizes"
            )
        return [height // ranks] * ranks
    if len(splits) != ranks or sum(splits) != height:
        raise RuntimeError(
            f"all_to_all_single: {which}_split_sizes {list(splits)} must be {ranks} numbers that sum to the {height} rows of the {which}"
        )
    return list(splits)
