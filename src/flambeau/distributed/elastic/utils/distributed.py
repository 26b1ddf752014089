"""A TCPStore for agents, and ports that are free."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

from flambeau.distributed.elastic.utils.api import get_socket_with_port
from flambeau.distributed.elastic.utils.store import barrier
from flambeau.distributed.errors import DistError, DistStoreError
from flambeau.distributed.stores import TCPStore

__all__ = ["create_c10d_store", "get_free_port", "get_socket_with_port"]


def get_free_port() -> int:
    """A port of this machine that is free now. Another process may take it before you do: port 0 of a TCPStore is safe from that."""
    with closing(get_socket_with_port()) as held:
        return held.getsockname()[1]


def create_c10d_store(
    is_server: bool,
    server_addr: str,
    server_port: int = -1,
    world_size: int = 1,
    timeout: float = 600,
    wait_for_workers: bool = True,
    retries: int = 3,
    use_libuv: bool | None = None,
) -> TCPStore:
    """The store at `server_addr`, hosted by this process if `is_server`; port -1 is any that is free. With `wait_for_workers` it returns when all
    `world_size` processes have theirs."""
    if server_port == -1 and world_size > 1:
        raise ValueError(f"server_port must be specified when world_size > 1: {world_size} processes have to know the same one")
    attempts = retries if server_port == -1 else 1
    for attempt in range(attempts):
        port = get_free_port() if server_port == -1 else server_port
        try:
            store = TCPStore(server_addr, port, world_size, is_server, timedelta(seconds=timeout), wait_for_workers)
            break
        except DistError as problem:
            if "EADDRINUSE" not in str(problem) or attempt == attempts - 1:  # somebody took the port in between
                raise
    if wait_for_workers:
        try:
            barrier(store, world_size, "_tcp_store/num_members", barrier_timeout=timeout)
        except DistStoreError as problem:
            raise TimeoutError(f"timed out waiting for all {world_size} members to join within {timeout} s") from problem
    return store
