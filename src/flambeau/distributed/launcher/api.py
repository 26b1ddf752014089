"""elastic_launch: run a program or a function as a group of workers, and give back what they return.

def train(name): ...
config = LaunchConfig(min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend="c10d", rdzv_endpoint="localhost:0")
values = elastic_launch(config, train)("first run")      # {0: ..., 1: ...}, by rank
"""

from __future__ import annotations

import os
import secrets
import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.elastic import events, metrics
from flambeau.distributed.elastic.agent.server import LocalElasticAgent, WorkerSpec
from flambeau.distributed.elastic.multiprocessing import DefaultLogsSpecs, LogsSpecs, signals
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError
from flambeau.distributed.elastic.rendezvous import RendezvousParameters
from flambeau.distributed.elastic.rendezvous.registry import get_rendezvous_handler
from flambeau.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from flambeau.distributed.mpi.machine import environment

__all__ = ["LaunchConfig", "elastic_launch", "launch_agent"]

SECRET = "FLAMBEAU_DIST_SECRET"
SHUTDOWN = 30


@dataclass
class LaunchConfig:
    """How to launch: how many machines and workers, how they meet, how often they start again, and where their output goes."""

    min_nodes: int
    max_nodes: int
    nproc_per_node: int
    logs_specs: LogsSpecs | None = None
    run_id: str = ""
    role: str = "default_role"
    rdzv_endpoint: str = ""
    rdzv_backend: str = "etcd"
    rdzv_configs: dict[str, Any] = field(default_factory=dict)
    rdzv_timeout: int = -1
    max_restarts: int = 3
    monitor_interval: float = 0.1
    start_method: str = "spawn"
    log_line_prefix_template: str | None = None
    metrics_cfg: dict[str, str] = field(default_factory=dict)
    local_addr: str | None = None
    event_log_handler: str = "null"
    numa_options: Any = None
    signals_to_handle: str = signals.default_signals
    duplicate_stdout_filters: list[str] | None = None
    duplicate_stderr_filters: list[str] | None = None
    virtual_local_rank: bool = False
    shutdown_timeout: int | None = None

    def __post_init__(self) -> None:
        if self.rdzv_timeout != -1:
            self.rdzv_configs["timeout"] = self.rdzv_timeout
        elif "timeout" not in self.rdzv_configs:
            self.rdzv_configs["timeout"] = 900
        self.logs_specs = self.logs_specs or DefaultLogsSpecs()
        if self.shutdown_timeout is None:
            self.shutdown_timeout = int(os.environ.get("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", SHUTDOWN))


class elastic_launch:
    """A function that launches: called with the arguments of `entrypoint`, it returns what the workers return, by rank."""

    def __init__(self, config: LaunchConfig, entrypoint: Callable | str | None, health_check_server: Any = None):
        self._config = config
        self._entrypoint = entrypoint
        self._health_check_server = health_check_server

    def __call__(self, *args: Any) -> dict[int, Any]:
        return launch_agent(self._config, self._entrypoint, list(args), self._health_check_server)


def launch_agent(
    config: LaunchConfig, entrypoint: Callable | str | None, args: list[Any], health_check_server: Any = None
) -> dict[int, Any]:
    """Be the agent of this machine until the run has ended. ChildFailedError if it failed, SignalException if it was told to end."""
    if not config.run_id:
        config.run_id = uuid.uuid4().hex
    assert config.logs_specs is not None and config.shutdown_timeout is not None, "LaunchConfig fills them in"
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    metrics.initialize_metrics(metrics.MetricsConfig(config.metrics_cfg))
    with _surroundings(config):
        handler = get_rendezvous_handler(parameters)
        try:
            master_addr, master_port = _get_addr_and_port(parameters)
            spec = WorkerSpec(
                role=config.role,
                local_world_size=config.nproc_per_node,
                entrypoint=entrypoint,
                args=tuple(args),
                rdzv_handler=handler,
                max_restarts=config.max_restarts,
                monitor_interval=config.monitor_interval,
                master_addr=master_addr,
                master_port=master_port,
                local_addr=config.local_addr,
                event_log_handler=config.event_log_handler,
                numa_options=config.numa_options,
                duplicate_stdout_filters=config.duplicate_stdout_filters,
                duplicate_stderr_filters=config.duplicate_stderr_filters,
                virtual_local_rank=config.virtual_local_rank,
            )
            agent = LocalElasticAgent(
                spec,
                config.logs_specs,
                config.start_method,
                log_line_prefix_template=config.log_line_prefix_template,
                shutdown_timeout=config.shutdown_timeout,
                health_check_server=health_check_server,
            )
            result = agent.run()
        except signals.SignalException:
            _tidy(config)
            raise
        finally:
            handler.shutdown()
    name = _get_entrypoint_name(entrypoint, args)
    events.record(
        events.Event(name, events.EventSource.AGENT, metadata={"run_id": config.run_id, "state": result.state.value}),
        config.event_log_handler,
    )
    if result.is_failed():
        raise ChildFailedError(name, result.failures)
    _tidy(config)
    return result.return_values


def _tidy(config: LaunchConfig) -> None:
    if isinstance(config.logs_specs, DefaultLogsSpecs):
        config.logs_specs._tidy()


def _surroundings(config: LaunchConfig) -> AbstractContextManager[None]:
    """The environment of this process while workers run: which signals end them, and the secret by which they know each other.

    Machines cannot guess each other's secret: where there are several it must be given.
    """
    wanted = {signals.VARIABLE: config.signals_to_handle}
    if config.max_nodes == 1 and not os.environ.get(SECRET):
        wanted[SECRET] = secrets.token_hex(32)
    return environment(wanted)


def _get_entrypoint_name(entrypoint: Callable | str | None, args: list[Any]) -> str:
    """What runs: the name of a function, a program, or the script or module that is Python's first argument."""
    if isinstance(entrypoint, str):
        if entrypoint != os.environ.get("PYTHON_EXEC", sys.executable):
            return entrypoint
        words = [str(arg) for arg in args]
        behind = words.index("-u") + 1 if "-u" in words else 0  # Python's other options come before, some of them with values
        return next((word for word in words[behind:] if not word.startswith("-")), "")
    return "" if entrypoint is None else getattr(entrypoint, "__qualname__", str(entrypoint))


def _get_addr_and_port(rdzv_parameters: RendezvousParameters) -> tuple[str | None, int | None]:
    """Where users said that the first machine is; nothing where the meeting decides."""
    if rdzv_parameters.backend != "static":
        return None, None
    if not rdzv_parameters.endpoint.strip():
        raise ValueError("the static backend needs an endpoint: --master_addr and --master_port")
    host, port = parse_rendezvous_endpoint(rdzv_parameters.endpoint, default_port=-1)
    if port == -1:
        raise ValueError(f"the endpoint {rdzv_parameters.endpoint!r} of the static backend has no port: give --master_port")
    return host, port or None
