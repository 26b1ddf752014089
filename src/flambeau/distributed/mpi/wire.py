"""Wire: some ranks that exchange bytes. Everything above it speaks of ranks and arrays, everything below of MPI."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from flambeau.distributed.mpi import library as libraries
from flambeau.distributed.mpi.library import Library
from flambeau.distributed.mpi.waiting import EAGER, MPIError

DATA = 0  # the tag of what collectives move; messages have those above


class Wire:
    """A communicator, and what to look after while it waits.

    between  called a few times per second in every wait; raises if the wait is to end
    eager    seconds for which a wait keeps its core to itself
    """

    def __init__(self, library: Library, comm: Any):
        self.library, self.comm = library, comm
        self.between: Callable[[], None] = lambda: None
        self.eager = EAGER
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.posting = library.posting
        self.peers = [peer for peer in range(self.size) if peer != self.rank]

    def send(self, array: np.ndarray, peer: int, tag: int = DATA) -> Any:
        """A request that is done when `array` may change again."""
        return self._post(self.posting.send, array, peer, tag)

    def receive(self, array: np.ndarray, peer: int, tag: int = DATA) -> Any:
        """A request that is done when `array` holds what that peer sent. A peer of -1 is anyone."""
        return self._post(self.posting.receive, array, peer, tag)

    def wait(self, requests: Sequence[Any]) -> None:
        """Until all requests are done."""
        self.library.waiter.wait(requests, self.between, eager=self.eager)

    def gather(self, own: np.ndarray, everyone: np.ndarray) -> None:
        """Fill `everyone` with what the ranks have in `own`, as many bytes from each."""
        self.wait([self._post(self.posting.gather, own, everyone)])

    def broadcast(self, array: np.ndarray, root: int) -> None:
        """Fill `array` with what root has in it."""
        self.wait([self._post(self.posting.broadcast, array, root)])

    def _post(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(self.comm, *arguments)
        except self.library.mpi.Exception as problem:
            raise MPIError(str(problem)) from None

    def subset(self, ranks: Sequence[int], tag: int) -> Wire:
        """A wire between some of these ranks, which all call this with a tag that no other call has at the time."""
        return Wire(self.library, libraries.subset(self.library, self.comm, ranks, tag)) if len(ranks) > 1 else Alone()

    def close(self) -> None:
        """Nothing travels any more: the ranks have agreed on it."""
        self.comm.Free()


class Alone(Wire):
    """The wire of a group of one rank: no MPI is needed to talk to oneself."""

    def __init__(self) -> None:
        self.between = lambda: None
        self.eager = EAGER
        self.rank, self.size, self.peers = 0, 1, []

    def wait(self, requests: Sequence[Any]) -> None:
        """There is nobody to wait for."""

    def gather(self, own: np.ndarray, everyone: np.ndarray) -> None:
        everyone[:] = own

    def broadcast(self, array: np.ndarray, root: int) -> None:
        """Everyone has it."""

    def subset(self, ranks: Sequence[int], tag: int) -> Alone:
        return Alone()

    def close(self) -> None:
        """There is nothing to close."""
