"""LocalElasticAgent: meets the agents of other machines, starts the workers of this one, looks after them, and starts them again.

meet -> start -> watch -> all ended well, everywhere                         -> done
                    |--> one failed, here or elsewhere                       -> meet again, if it may; else tell why
                    |--> another machine would like to join, and may         -> meet again
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from contextlib import suppress
from string import Template
from typing import Any, NamedTuple

from flambeau.distributed.elastic.agent.server.api import RunResult, SimpleElasticAgent, WorkerSpec, WorkerState
from flambeau.distributed.elastic.agent.server.numbering import Machine, number
from flambeau.distributed.elastic.agent.server.other_agents import OtherAgents, description, lost_machine
from flambeau.distributed.elastic.agent.server.worker_environment import environment
from flambeau.distributed.elastic.multiprocessing import LogsSpecs, PContext, SignalException, start_processes
from flambeau.distributed.elastic.multiprocessing.context import GRACE, TELLING
from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure
from flambeau.distributed.elastic.multiprocessing.errors.failure import status_text
from flambeau.distributed.elastic.rendezvous.api import RendezvousGracefulExitError, RendezvousInfo
from flambeau.distributed.elastic.utils.api import macros
from flambeau.distributed.errors import DistError

__all__ = ["LocalElasticAgent"]
log = logging.getLogger(__name__)
LOOK = 0.2  # seconds between two looks at the other agents, at most
LONG = 3600.0
LEAVING = 5.0  # seconds that the store stays for agents that do not know yet how it ended


class Outcome(NamedTuple):
    """What ended the watch: SUCCEEDED, FAILED, or HEALTHY where the group must be made anew because another machine joins."""

    state: WorkerState
    return_values: dict[int, Any]
    failures: dict[int, ProcessFailure]


class LocalElasticAgent(SimpleElasticAgent):
    """The agent of one machine. Workers are programs or functions, as the spec's entrypoint is text or callable."""

    def __init__(
        self,
        spec: WorkerSpec,
        logs_specs: LogsSpecs,
        start_method: str = "spawn",
        exit_barrier_timeout: float = 300,
        log_line_prefix_template: str | None = None,
        shutdown_timeout: int = 30,
        health_check_server: Any = None,
        uninterruptible_state_timeout: float | None = None,
    ):
        super().__init__(spec, exit_barrier_timeout, shutdown_timeout)
        for name, value in (("health_check_server", health_check_server), ("uninterruptible_state_timeout", uninterruptible_state_timeout)):
            if value is not None:
                raise NotImplementedError(f"LocalElasticAgent({name}=...): agents answer no health checks")
        self._logs_specs = logs_specs
        self._start_method = start_method
        self._prefix = log_line_prefix_template
        self._context: PContext | None = None
        self._restart = 0
        self._others = OtherAgents(None, 0, 1)
        self._store: Any = None  # the workers' own

    def run(self, role: str = "default") -> RunResult:
        try:
            return self._run()
        except RendezvousGracefulExitError:
            return RunResult(WorkerState.SUCCEEDED)
        except SignalException as told:
            self._end_workers(told.sigval, self._shutdown_timeout)
            raise
        finally:
            self._end_workers(signal.SIGTERM, GRACE)
            self._leave_workers_store()

    def _run(self) -> RunResult:
        group = self._worker_group
        while True:
            self._start_workers()
            state, values, failures = self._watch()
            group.state = state
            if state == WorkerState.SUCCEEDED or (state == WorkerState.FAILED and self._remaining_restarts == 0):
                with suppress(DistError):
                    self._others.leave(LEAVING)
                return RunResult(state, values, failures)
            if state == WorkerState.FAILED:
                rank, failure = next(iter(failures.items()))
                self._remaining_restarts -= 1
                log.warning(
                    "rank %d on %s failed (%s): starting the group again, restart %d of %d",
                    *(rank, failure.host, status_text(failure.exitcode)),
                    *(group.spec.max_restarts - self._remaining_restarts, group.spec.max_restarts),
                )
            else:
                log.warning("another machine joins: starting the group again")
            self._restart += 1

    # -- starting ------------------------------------------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        spec, group = self._worker_group.spec, self._worker_group
        info = spec.rdzv_handler.next_rendezvous()
        self._others = OtherAgents(info.store, info.rank, info.world_size)
        machines, self._restart = self._others.introduce(Machine(spec.role, spec.local_world_size), self._restart)
        group.workers = number(machines, info.rank)
        group.group_rank, group.group_world_size, group.store = info.rank, info.world_size, info.store
        where = info.bootstrap_store_info
        group.master_addr, group.master_port = spec.master_addr or where.master_addr, spec.master_port or where.master_port
        self._leave_workers_store()
        self._meeting: RendezvousInfo = info
        use_agent_store = spec.rdzv_handler.use_agent_store
        run_id = spec.rdzv_handler.get_run_id()
        environments = {
            worker.local_rank: environment(group, worker, run_id=run_id, restart=self._restart, use_agent_store=use_agent_store)
            for worker in group.workers
        }
        self._context = start_processes(
            name=spec.role,
            entrypoint=spec.entrypoint,
            args={worker.local_rank: tuple(macros.substitute(list(spec.args), str(worker.local_rank))) for worker in group.workers},
            envs=environments,
            logs_specs=self._logs_specs,
            log_line_prefixes=self._prefixes(),
            start_method=self._start_method,
            numa_options=spec.numa_options,
            duplicate_stdout_filters=spec.duplicate_stdout_filters,
            duplicate_stderr_filters=spec.duplicate_stderr_filters,
        )
        self._context.on_failure = self._tell
        for worker in group.workers:
            worker.id = self._context.pids()[worker.local_rank]
        group.state = WorkerState.HEALTHY

    def _prefixes(self) -> dict[int, str] | None:
        template = self._prefix or os.environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
        if not template:
            return None
        return {
            worker.local_rank: Template(template).safe_substitute(
                role_name=self._worker_group.spec.role, rank=worker.global_rank, local_rank=worker.local_rank
            )
            for worker in self._worker_group.workers
        }

    # -- watching ------------------------------------------------------------------------------------------------------------------------

    def _watch(self) -> Outcome:
        """Wait until the group has ended, or must be ended; its workers here have ended then."""
        try:
            return self._watched()
        except DistError as problem:
            if self._others.count == 1:
                raise
            self._end_workers(signal.SIGTERM, GRACE)
            self._remaining_restarts = 0  # there is no place left to meet
            why = f"the agent that keeps the store is gone: {problem}"
            return Outcome(WorkerState.FAILED, {}, {-1: lost_machine(str(self._worker_group.master_addr), why)})

    def _watched(self) -> Outcome:
        assert self._context is not None
        values: dict[int, Any] | None = None
        alone = self._others.count == 1 and not self._may_grow()
        interval = LONG if alone else min(self._worker_group.spec.monitor_interval, LOOK)
        while True:
            if values is None:
                result = self._context.wait(interval, interval)
                if result is not None and result.is_failed():
                    return self._failed(self._by_rank(result.failures))
                if result is not None:
                    values = self._by_rank(result.return_values)
                    self._others.done()
            if values is not None and self._others.all_done():
                return Outcome(WorkerState.SUCCEEDED, values, {})
            if alone:
                continue
            if self._others.failure() is not None:
                return self._failed(self._end_after_failure_elsewhere())
            if values is None and self._may_grow() and self._worker_group.spec.rdzv_handler.num_nodes_waiting() > 0:
                self._end_workers(signal.SIGTERM, GRACE)
                return Outcome(WorkerState.HEALTHY, {}, {})
            if values is not None:
                time.sleep(LOOK)

    def _may_grow(self) -> bool:
        settings = getattr(self._worker_group.spec.rdzv_handler, "settings", None)
        return settings is None or settings.max_nodes > 1 if self._worker_group.spec.rdzv_handler.get_backend() != "static" else False

    def _by_rank(self, local: dict[int, Any]) -> dict[int, Any]:
        return {self._worker_group.workers[local_rank].global_rank: value for local_rank, value in local.items()}

    def _failed(self, failures: dict[int, ProcessFailure]) -> Outcome:
        """The first failure of all machines stands first, and counts as the first."""
        first = self._others.failure()
        if first is not None:
            rank, failure = first
            failure = failures.pop(rank, failure)
            failure.moment = -1.0  # the store decided who was first: clocks of machines differ
            return Outcome(WorkerState.FAILED, {}, {rank: failure, **failures})
        ordered = sorted(failures.items(), key=lambda item: (item[1].asked, item[1].moment))
        return Outcome(WorkerState.FAILED, {}, dict(ordered))

    def _end_after_failure_elsewhere(self) -> dict[int, ProcessFailure]:
        """Let the workers here learn of it by themselves for a moment, then end them."""
        assert self._context is not None
        result = self._context.wait(TELLING, TELLING)
        self._end_workers(signal.SIGTERM, GRACE)
        return self._by_rank(result.failures) if result is not None else {}

    def _end_workers(self, which: signal.Signals, grace: float) -> None:
        context, self._context = self._context, None
        if context is not None:
            context.close(which, grace)

    # -- telling -------------------------------------------------------------------------------------------------------------------------

    def _tell(self, local_rank: int, failure: ProcessFailure) -> None:
        """Say at once that a worker has failed: to the other agents, and to workers that wait for it."""
        rank = self._worker_group.workers[local_rank].global_rank
        with suppress(DistError, OSError):  # whoever keeps the store may be what is gone
            self._others.failed(rank, failure)
            self._workers_store().set(f"launcher/ended/{self._restart}/{rank}", json.dumps(description(rank, failure)))

    def _workers_store(self) -> Any:
        """The store of the workers: mostly the one in which the agents met."""
        met_in = getattr(self._meeting.store, "_underlying_non_prefix_store", self._meeting.store)
        if getattr(met_in, "port", None) == self._worker_group.master_port:
            return met_in
        if self._store is None:
            from flambeau.distributed.stores import TCPStore

            self._store = TCPStore(self._worker_group.master_addr, self._worker_group.master_port, is_master=False, wait_for_workers=False)
        return self._store

    def _leave_workers_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.goodbye()
