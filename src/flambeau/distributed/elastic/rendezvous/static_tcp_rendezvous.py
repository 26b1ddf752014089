"""StaticTCPRendezvous: every agent was told its number; the first keeps the store, at an address that all were told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flambeau.distributed.elastic.rendezvous.api import (
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from flambeau.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from flambeau.distributed.errors import DistError, DistStoreError
from flambeau.distributed.stores import PrefixStore, TCPStore

__all__ = ["StaticTCPRendezvous", "create_rdzv_handler"]

TIMEOUT = 600


class StaticTCPRendezvous(RendezvousHandler):
    """`world_size` agents with numbers of their own. Nobody joins later."""

    def __init__(self, master_addr: str, master_port: int, rank: int, world_size: int, run_id: str, timeout: int):
        self.master_addr = master_addr
        self.master_port = master_port
        self.rank = rank
        self.world_size = world_size
        self.run_id = run_id
        self.timeout = timedelta(seconds=timeout)
        self.meetings = 0
        self._store: Any = None

    def get_backend(self) -> str:
        return "static"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """The next meeting of the same agents: everybody comes to it, however often."""
        if self._store is None:
            first = self.rank == 0
            try:
                self._store = TCPStore(self.master_addr, self.master_port, is_master=first, timeout=self.timeout, wait_for_workers=False)
            except DistError as problem:
                role = "keeps the store" if first else "looks for the store of node 0"
                raise RendezvousConnectionError(
                    f"node {self.rank} of {self.world_size} {role} at {self.master_addr}:{self.master_port}: {problem}"
                ) from problem
        room = PrefixStore(f"torch.rendezvous/{self.run_id}/{self.meetings}", self._store)
        self.meetings += 1
        room.set(f"here/{self.rank}", "yes")
        others = [f"here/{rank}" for rank in range(self.world_size)]
        try:
            room.wait(others)
        except DistStoreError as problem:
            missing = [rank for rank, key in enumerate(others) if not room.check([key])]
            raise RendezvousTimeoutError(f"nodes {missing} of {self.world_size} did not come within {self.timeout}") from problem
        return RendezvousInfo(room, self.rank, self.world_size, RendezvousStoreInfo(self.master_addr, self._store.port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Nothing to do: agents come when they are told to."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self.run_id

    def shutdown(self) -> bool:
        """Leave the store; the first agent's ends with it."""
        store, self._store = self._store, None
        if store is not None:
            store.goodbye()
        return True


def create_rdzv_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler for an endpoint and the options `rank` and `timeout`."""
    if "rank" not in params.config:
        raise ValueError("rank is absent in RendezvousParameters: the static backend needs the number of this node, --node_rank")
    if not params.endpoint:
        raise ValueError(
            "endpoint is absent in RendezvousParameters: the static backend needs the address of node 0, --master_addr and --master_port"
        )
    host, port = parse_rendezvous_endpoint(params.endpoint, -1)
    if port == -1:
        raise ValueError(f"the endpoint {params.endpoint!r} has no port: give --master_port")
    rank, timeout = int(params.get("rank")), int(params.get("timeout", TIMEOUT))
    if not 0 <= rank < params.max_nodes:
        raise ValueError(f"--node_rank={rank}, but nodes are numbered from 0 to {params.max_nodes - 1} (--nnodes={params.max_nodes})")
    return StaticTCPRendezvous(host, port, rank, params.max_nodes, params.run_id, timeout)
