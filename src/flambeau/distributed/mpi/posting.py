"""Posting: starting what MPI moves, with the interpreter held.

mpi4py lets other threads run during every call. Beside a thread that computes in Python, each time costs up to 5 ms (sys.getswitchinterval) until the
interpreter is back, and what only starts something is over in a microsecond. An all_reduce of 64 MB beside a Python loop took 1.4 s so, 0.5 s now.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from flambeau.distributed.mpi.waiting import MPIError

MOST = 2**31 - 1  # bytes that one call can name: C's int


class Posting:
    """The calls of one MPI that begin something. Each returns a request, which holds the memory that is under way."""

    def __init__(self, mpi: Any, library: ctypes.CDLL):
        holding = ctypes.PyDLL("MPI", handle=library._handle)
        pointer, handle, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        one_side = pointer, number, handle
        self._send = _declared(holding.MPI_Isend, *one_side, number, number, handle, pointer)
        self._receive = _declared(holding.MPI_Irecv, *one_side, number, number, handle, pointer)
        self._gather = _declared(holding.MPI_Iallgather, *one_side, *one_side, handle, pointer)
        self._broadcast = _declared(holding.MPI_Ibcast, *one_side, number, handle, pointer)
        self._mpi, self._handle_of, self._address_of = mpi, mpi._handleof, mpi._addressof
        self._byte, self._anyone = mpi._handleof(mpi.BYTE), mpi.ANY_SOURCE
        self._request = type("Request", (mpi.Request,), {"memory": None})

    def send(self, comm: Any, array: np.ndarray, peer: int, tag: int) -> Any:
        if array.nbytes > MOST:
            return comm.Isend([array, self._mpi.BYTE], peer, tag)
        return self._posted(self._send, array, *self._bytes(array), peer, tag, self._handle_of(comm))

    def receive(self, comm: Any, array: np.ndarray, peer: int, tag: int) -> Any:
        """A peer of -1 is anyone."""
        peer = self._anyone if peer < 0 else peer
        if array.nbytes > MOST:
            return comm.Irecv([array, self._mpi.BYTE], peer, tag)
        return self._posted(self._receive, array, *self._bytes(array), peer, tag, self._handle_of(comm))

    def gather(self, comm: Any, own: np.ndarray, everyone: np.ndarray) -> Any:
        if own.nbytes > MOST:
            return comm.Iallgather([own, self._mpi.BYTE], [everyone, self._mpi.BYTE])
        address = everyone.__array_interface__["data"][0]
        return self._posted(self._gather, (own, everyone), *self._bytes(own), address, own.nbytes, self._byte, self._handle_of(comm))

    def broadcast(self, comm: Any, array: np.ndarray, root: int) -> Any:
        if array.nbytes > MOST:
            return comm.Ibcast([array, self._mpi.BYTE], root)
        return self._posted(self._broadcast, array, *self._bytes(array), root, self._handle_of(comm))

    def _bytes(self, array: np.ndarray) -> tuple[int, int, int]:
        return array.__array_interface__["data"][0], array.nbytes, self._byte

    def _posted(self, call: Any, memory: Any, *arguments: int) -> Any:
        request = self._request()
        request.memory = memory
        if error := call(*arguments, self._address_of(request)):
            raise MPIError(self._mpi.Get_error_string(error))
        return request


def _declared(function: Any, *types: Any) -> Any:
    function.argtypes, function.restype = types, ctypes.c_int
    return function
