"""PMI, the protocol by which MPI's ranks learn of each other, answered from the store that the group has anyway.

MPICH asks whoever started it over the file descriptor in PMI_FD. Nobody needs to have started it: a thread of the same process answers at the
other end of a pair of sockets. What a rank says about itself (`put`) goes to the store at the next barrier, together with what the others say.

    MPICH   cmd=init pmi_version=1 pmi_subversion=1
    us      cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
    MPICH   cmd=put kvsname=world key=r2h0 value=...
    us      cmd=put_result rc=0 msg=success
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

VARIABLES = ("PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID", "PMI_SPAWNED")
LENGTHS = "cmd=maxes kvsname_max=256 keylen_max=256 vallen_max=1024"


class Answerer:
    """Answers one MPICH for as long as it asks: `keys` holds what all ranks have said."""

    def __init__(self, store: Any, rank: int, size: int, name: str):
        self.store, self.rank, self.size, self.name = store, rank, size, name
        self.keys: dict[str, str] = {}
        self.said: dict[str, str] = {}  # by this rank, since the last barrier
        self.barriers = 0
        self.problem: BaseException | None = None  # why the other end was hung up on

    def serve(self, wire: socket.socket) -> None:
        """Answer line by line until the other end closes."""
        waiting = b""
        try:
            while received := wire.recv(4096):
                *lines, waiting = (waiting + received).split(b"\n")
                for line in lines:
                    wire.sendall(self.answer(line.decode()).encode() + b"\n")
        except BaseException as problem:
            self.problem = problem
            wire.shutdown(socket.SHUT_RDWR)

    def answer(self, line: str) -> str:
        """The answer to one line."""
        asked = dict(word.split("=", 1) for word in line.split())
        match asked["cmd"]:
            case "init":
                return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"
            case "get_maxes":
                return LENGTHS
            case "get_appnum":
                return "cmd=appnum appnum=0"
            case "get_my_kvsname":
                return f"cmd=my_kvsname kvsname={self.name}"
            case "get_universe_size":
                return f"cmd=universe_size size={self.size}"
            case "put":
                self.said[asked["key"]] = asked["value"]
                return "cmd=put_result rc=0 msg=success"
            case "get" if asked["key"] in self.keys:
                return f"cmd=get_result rc=0 msg=success value={self.keys[asked['key']]}"
            case "get":
                return "cmd=get_result rc=-1 msg=key_not_found value=unknown"
            case "barrier_in":
                self.barrier()
                return "cmd=barrier_out rc=0"
            case "finalize":
                return "cmd=finalize_ack rc=0"
        raise RuntimeError(f"MPICH asked something that is no part of PMI-1: {line!r}")

    def barrier(self) -> None:
        """Tell the others what this rank has said, and wait for what they say."""
        said = [f"{self.name}/{self.barriers}/{rank}" for rank in range(self.size)]
        self.store.set(said[self.rank], json.dumps(self.said))
        for key in said:
            self.keys.update(json.loads(self.store.get(key)))
        self.barriers += 1
        self.said = {}


@contextmanager
def answering(store: Any, rank: int, size: int, name: str) -> Iterator[Answerer]:
    """What MPICH needs in order to start inside this block, on its own thread as well as on this one."""
    ours, theirs = socket.socketpair()
    os.set_inheritable(theirs.fileno(), False)
    answerer = Answerer(store, rank, size, name)
    threading.Thread(target=answerer.serve, args=(ours,), name="flambeau-pmi", daemon=True).start()
    before = {name: os.environ.pop(name) for name in VARIABLES if name in os.environ}
    os.environ.update(PMI_FD=str(theirs.detach()), PMI_RANK=str(rank), PMI_SIZE=str(size))
    try:
        yield answerer
    finally:
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)
