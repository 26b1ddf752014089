"""RendezvousHandler: what an agent asks of a way of meeting others. RendezvousInfo: what came of it."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = [
    "RendezvousClosedError", "RendezvousConnectionError", "RendezvousError", "RendezvousGracefulExitError", "RendezvousHandler",
    "RendezvousHandlerCreator", "RendezvousHandlerRegistry", "RendezvousInfo", "RendezvousParameters", "RendezvousStateError",
    "RendezvousStoreInfo", "RendezvousTimeoutError", "rendezvous_handler_registry",
]  # fmt: skip


@dataclass
class RendezvousStoreInfo:
    """Where the store of the workers is: what they find as MASTER_ADDR and MASTER_PORT."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"
    master_addr: str
    master_port: int

    @staticmethod
    def build(rank: int, store: Any, local_addr: str | None, server_port: int | None = None) -> RendezvousStoreInfo:
        """Let the first agent say where it is, and all others read it."""
        if rank == 0:
            store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, local_addr or socket.getfqdn())
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(server_port or free_port()))
        address = store.get(RendezvousStoreInfo.MASTER_ADDR_KEY).decode()
        return RendezvousStoreInfo(address, int(store.get(RendezvousStoreInfo.MASTER_PORT_KEY)))


class RendezvousInfo:
    """A meeting: this agent's number among `world_size`, a store that they share, and where the workers' store is."""

    def __init__(self, store: Any, rank: int, world_size: int, bootstrap_store_info: RendezvousStoreInfo):
        self._store, self._rank, self._world_size, self._bootstrap_store_info = store, rank, world_size, bootstrap_store_info

    @property
    def store(self) -> Any:
        """Shared by the agents of this meeting, and empty when it began."""
        return self._store

    @property
    def rank(self) -> int:
        """The number of this agent."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many agents there are."""
        return self._world_size

    @property
    def bootstrap_store_info(self) -> RendezvousStoreInfo:
        """Where the workers' store is."""
        return self._bootstrap_store_info


class RendezvousHandler(ABC):
    """A way of meeting."""

    @abstractmethod
    def get_backend(self) -> str:
        """The name by which it is chosen."""

    @property
    def use_agent_store(self) -> bool:
        """Whether workers share a store that an agent keeps; otherwise rank 0 makes one."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Meet the others, again if need be. Waits for them."""

    @abstractmethod
    def is_closed(self) -> bool:
        """Whether there will be no further meeting."""

    @abstractmethod
    def set_closed(self) -> None:
        """Let there be none."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """How many agents came after the meeting and would like to join."""

    @abstractmethod
    def get_run_id(self) -> str:
        """What tells this run from others in the same store."""

    def shutdown(self) -> bool:
        """Leave for good. Whether all went well."""
        return True


class RendezvousParameters:
    """How agents meet: the backend, where, as which run, how many, and what else the backend wants to know."""

    def __init__(
        self, backend: str, endpoint: str, run_id: str, min_nodes: int, max_nodes: int, local_addr: str | None = None, **kwargs: Any
    ) -> None:
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string, as in --rdzv_backend=c10d")
        if min_nodes < 1:
            raise ValueError(f"The minimum number of rendezvous nodes must be greater than zero, not {min_nodes}")
        if max_nodes < min_nodes:
            raise ValueError(f"The maximum number of rendezvous nodes ({max_nodes}) must not be below the minimum ({min_nodes})")
        self.backend = backend
        self.endpoint = endpoint
        self.run_id = run_id
        self.min_nodes = min_nodes
        self.max_nodes = max_nodes
        self.config = kwargs
        self.local_addr = local_addr

    def get(self, key: str, default: Any = None) -> Any:
        """An option of the backend."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """The same as a truth value: 1, t, true, y, yes or 0, f, false, n, no."""
        value = self.get(key, default)
        if value is None or isinstance(value, bool):
            return value
        text = str(value).lower()
        if text in ("1", "t", "true", "y", "yes"):
            return True
        if text in ("0", "f", "false", "n", "no"):
            return False
        raise ValueError(f"The rendezvous configuration option {key!r} must be true or false, not {value!r}")

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """The same as a whole number."""
        value = self.get(key, default)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError:
            raise ValueError(f"The rendezvous configuration option {key!r} must be a whole number, not {value!r}") from None


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Ways of meeting by name."""

    def __init__(self) -> None:
        self._registry: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Add one. A name means one thing."""
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string")
        if self._registry.get(backend, creator) is not creator:
            raise ValueError(f"The rendezvous backend {backend!r} is registered already, with {self._registry[backend]!r}")
        self._registry[backend] = creator

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """The handler that `params` ask for."""
        creator = self._registry.get(params.backend)
        if creator is None:
            raise ValueError(f"There is no rendezvous backend {params.backend!r}, only {', '.join(sorted(self._registry))}")
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(f"The rendezvous backend {params.backend!r} made a handler of {handler.get_backend()!r}")
        return handler


rendezvous_handler_registry = RendezvousHandlerRegistry()


def free_port() -> int:
    """A port of this machine that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


# -- why agents do not find each other --------------------------------------------------------------------------------------


class RendezvousError(Exception):
    """Agents could not meet."""


class RendezvousClosedError(RendezvousError):
    """The run has ended: nobody is waiting for this agent any more."""


class RendezvousTimeoutError(RendezvousError):
    """Not enough agents came in time."""


class RendezvousConnectionError(RendezvousError):
    """The store in which they meet could not be reached."""


class RendezvousStateError(RendezvousError):
    """What the store says about the meeting makes no sense."""


class RendezvousGracefulExitError(RendezvousError):
    """This agent is not needed, and ends as it should."""
