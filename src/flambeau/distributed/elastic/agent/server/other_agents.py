"""OtherAgents: what the agents of one meeting tell each other, through the store they met in.

node/RANK    role, number of workers, restart
failed       the worker that failed first, on whichever machine
done/RANK    all workers of this machine have ended well
lost/RANK    set by the store itself when an agent is gone without having said goodbye
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from flambeau.distributed.elastic.agent.server.numbering import Machine
from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure

STORY = 20_000  # characters of a traceback that travel


class OtherAgents:
    """The agents of one meeting, seen from agent `rank`."""

    def __init__(self, room: Any, rank: int, count: int):
        self.room, self.rank, self.count = room, rank, count
        self.first: dict[str, Any] | None = None  # what `failed` says

    def introduce(self, own: Machine, restart: int) -> tuple[list[Machine], int]:
        """All machines, and the number of this restart: agents that came later have counted fewer."""
        if self.count == 1:
            return [own], restart
        self.room.will(f"lost/{self.rank}", json.dumps(socket.gethostname()))
        self.room.set(f"node/{self.rank}", json.dumps([*own, restart]))
        said = [json.loads(self.room.get(f"node/{rank}")) for rank in range(self.count)]
        return [Machine(role, size) for role, size, _ in said], max(one[2] for one in said)

    def failed(self, rank: int, failure: ProcessFailure) -> None:
        """Tell that a worker has failed; only the first counts."""
        if self.count > 1 and self.first is None:
            said = self.room.compare_set("failed", "", json.dumps(description(rank, failure)))
            self.first = json.loads(said)

    def done(self) -> None:
        """Tell that all workers here have ended well."""
        if self.count > 1:
            self.room.set(f"done/{self.rank}", "yes")

    def all_done(self) -> bool:
        """Whether all workers everywhere have."""
        return self.count == 1 or self.room.check([f"done/{rank}" for rank in range(self.count)])

    def leave(self, patience: float) -> None:
        """Say that this agent knows how it ended. The first, who keeps the store, lets the others find out before it goes."""
        if self.count == 1:
            return
        self.room.set(f"left/{self.rank}", "yes")
        until = time.monotonic() + patience
        while self.rank == 0 and time.monotonic() < until:
            said = self.room.multi_get_if_there([f"{word}/{rank}" for rank in range(1, self.count) for word in ("left", "lost")])
            if all(left is not None or lost is not None for left, lost in zip(said[::2], said[1::2], strict=True)):
                return
            time.sleep(0.02)

    def failure(self) -> tuple[int, ProcessFailure] | None:
        """The first failure of all, if there was one: a worker's, or that of a machine which is lost with its workers (rank -1)."""
        if self.count == 1:
            return None
        failed, *lost = self.room.multi_get_if_there(["failed", *(f"lost/{rank}" for rank in range(self.count))])
        if failed is not None:
            self.first = json.loads(failed)
        if self.first is not None:
            return self.first["rank"], ProcessFailure.elsewhere(self.first)
        gone = next((rank for rank, host in enumerate(lost) if host is not None and rank != self.rank), None)
        if gone is None or self.room.check([f"done/{gone}"]):
            return None
        return -1, lost_machine(json.loads(lost[gone]), f"the agent of node {gone} is gone, and its workers with it")


def description(rank: int, failure: ProcessFailure) -> dict[str, Any]:
    """What is told of a failure."""
    return {
        "rank": rank,
        "pid": failure.pid,
        "status": failure.exitcode,
        "node": failure.host,
        "local_rank": failure.local_rank,
        "at": failure.moment,
        "story": failure.story[-STORY:],
    }


def lost_machine(host: str, why: str) -> ProcessFailure:
    """The failure of a whole machine."""
    return ProcessFailure.elsewhere({"pid": 0, "status": -9, "node": host, "story": why})
