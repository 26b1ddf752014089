"""What an agent knows: WorkerSpec (what to run), WorkerGroup and Worker (who is who), RunResult (what came of it)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure
from flambeau.distributed.elastic.rendezvous.api import RendezvousHandler

__all__ = ["ElasticAgent", "RunResult", "SimpleElasticAgent", "Worker", "WorkerGroup", "WorkerSpec", "WorkerState"]


@dataclass
class WorkerSpec:
    """What the workers of one machine run, how many there are, how machines meet, and how often a group is started again."""

    role: str
    local_world_size: int
    rdzv_handler: RendezvousHandler
    fn: Callable | None = None  # the old name of `entrypoint`
    entrypoint: Callable | str | None = None
    args: tuple = ()
    max_restarts: int = 3
    monitor_interval: float = 0.1
    master_port: int | None = None
    master_addr: str | None = None
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False

    def __post_init__(self) -> None:
        if self.local_world_size <= 0:
            raise AssertionError(f"local_world_size must be > 0, got {self.local_world_size}")
        if self.monitor_interval <= 0:
            raise AssertionError(f"monitor_interval must be > 0, got {self.monitor_interval}")
        self.entrypoint = self.entrypoint if self.entrypoint is not None else self.fn
        if not self.entrypoint:
            raise AssertionError("WorkerSpec needs an entrypoint: a function, or the path of a program")

    def get_entrypoint_name(self) -> str:
        """The name of the function, or of the program."""
        return self.entrypoint if isinstance(self.entrypoint, str) else self.entrypoint.__name__


class Worker:
    """One worker: its number on this machine, among all, and among those of its role."""

    __slots__ = ("global_rank", "id", "local_rank", "role_rank", "role_world_size", "world_size")

    def __init__(self, local_rank: int, global_rank: int = -1, role_rank: int = -1, world_size: int = -1, role_world_size: int = -1):
        self.id: Any = None  # its process id, while it runs
        self.local_rank = local_rank
        self.global_rank = global_rank
        self.role_rank = role_rank
        self.world_size = world_size
        self.role_world_size = role_world_size

    def __repr__(self) -> str:
        return f"Worker({', '.join(f'{name}={getattr(self, name)}' for name in ('local_rank', 'global_rank', 'role_rank', 'world_size'))})"


class WorkerState(str, Enum):  # noqa: UP042 - prints as PyTorch's does
    """What has become of a group."""

    UNKNOWN = "UNKNOWN"
    INIT = "INIT"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    STOPPED = "STOPPED"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"

    @staticmethod
    def is_running(state: WorkerState) -> bool:
        """Whether there are processes, in whatever health."""
        return state in (WorkerState.HEALTHY, WorkerState.UNHEALTHY)


class WorkerGroup:
    """The workers of one machine, and their place among all."""

    __slots__ = ("group_rank", "group_world_size", "master_addr", "master_port", "spec", "state", "store", "workers")

    def __init__(self, spec: WorkerSpec):
        self.spec = spec
        self.workers = [Worker(local_rank) for local_rank in range(spec.local_world_size)]
        self.store: Any = None
        self.group_rank: int | None = None
        self.group_world_size: int | None = None
        self.master_addr: str | None = None
        self.master_port: int | None = None
        self.state = WorkerState.INIT


@dataclass
class RunResult:
    """How a run ended: what the workers returned, or how they failed, by global rank."""

    state: WorkerState
    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)

    def is_failed(self) -> bool:
        """Whether it failed."""
        return self.state == WorkerState.FAILED


class ElasticAgent(ABC):
    """What every agent can do."""

    @abstractmethod
    def run(self, role: str = "default") -> RunResult:
        """Start the workers, look after them until they end, and start them again if they fail and may."""

    @abstractmethod
    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        """The workers."""


class SimpleElasticAgent(ElasticAgent):
    """An agent of workers of one role. `exit_barrier_timeout` is accepted: an agent waits for the others as long as they live."""

    def __init__(self, spec: WorkerSpec, exit_barrier_timeout: float = 300, shutdown_timeout: int = 30):
        self._worker_group = WorkerGroup(spec)
        self._remaining_restarts = spec.max_restarts
        self._exit_barrier_timeout = exit_barrier_timeout
        self._shutdown_timeout = shutdown_timeout

    def get_worker_group(self, role: str = "default") -> WorkerGroup:
        return self._worker_group
