"""Steps that all ranks take together: each does its part, the coordinator looks at all of them, and a failure anywhere is an exception everywhere.

reduce_scatter   every rank's part -> coordinator makes a list of them -> to each rank its own
all_reduce       every rank's part -> coordinator makes one thing of them -> to every rank
all_gather       every rank's part -> to every rank
broadcast        the coordinator's -> to every rank
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from flambeau import distributed as dist
from flambeau.distributed.checkpoint.api import WRAPPED_EXCEPTION, CheckpointException, _is_wrapped_exception, _wrap_exception

T = TypeVar("T")
R = TypeVar("R")


def _get_failure_dict(results: list[T | WRAPPED_EXCEPTION]) -> dict[int, WRAPPED_EXCEPTION]:
    """The failures among what the ranks have sent, by rank."""
    return {rank: result for rank, result in enumerate(results) if _is_wrapped_exception(result)}  # type: ignore[misc]


class _DistWrapper:
    """The ranks of a group, or this process alone if `use_dist` is False."""

    def __init__(self, group: Any, use_dist: bool, coordinator_rank: int):
        self.group, self.use_dist, self.coordinator_rank = group, use_dist, coordinator_rank
        self.rank, self.is_coordinator, self.global_coordinator_rank = 0, True, coordinator_rank
        if use_dist:
            self.rank = dist.get_rank(group)
            self.is_coordinator = self.rank == coordinator_rank
            if group is not None:
                self.global_coordinator_rank = dist.get_global_rank(group, coordinator_rank)

    def get_rank(self) -> int:
        """The rank of this process in the group."""
        return self.rank

    def get_world_size(self) -> int:
        """How many ranks there are."""
        return dist.get_world_size(self.group) if self.use_dist else 1

    # -- objects

    def broadcast_object(self, object: T | None) -> T:
        """The coordinator's object, on every rank."""
        objects = [object]
        if self.use_dist:
            dist.broadcast_object_list(objects, src=self.global_coordinator_rank, group=self.group)
        return objects[0]  # type: ignore[return-value]

    def gather_object(self, object: T) -> list[T] | None:
        """On the coordinator the objects of all ranks, None on the others."""
        if not self.use_dist:
            return [object]
        objects: list[Any] | None = [None] * self.get_world_size() if self.is_coordinator else None
        dist.gather_object(object, objects, dst=self.global_coordinator_rank, group=self.group)
        return objects

    def all_gather_object(self, object: T) -> list[T]:
        """The objects of all ranks, on every rank."""
        if not self.use_dist:
            return [object]
        objects: list[Any] = [None] * self.get_world_size()
        dist.all_gather_object(objects, object, group=self.group)
        return objects

    def scatter_object(self, object_list: list[T] | None) -> T:
        """To each rank its own of the coordinator's objects."""
        if not self.use_dist:
            assert object_list is not None
            return object_list[0]
        mine: list[Any] = [None]
        dist.scatter_object_list(mine, object_list if self.is_coordinator else None, src=self.global_coordinator_rank, group=self.group)
        return mine[0]

    def barrier(self) -> None:
        """Return when every rank has come here."""
        if self.use_dist:
            dist.barrier(group=self.group)

    # -- steps

    def reduce_scatter(self, step: str, map_fun: Callable[[], T], reduce_fun: Callable[[list[T]], list[R]]) -> R:
        """`map_fun()` on every rank, `reduce_fun` of the results on the coordinator, to each rank its own of what that gives."""
        local, problem = _attempt(map_fun)
        parts = self.gather_object(local)
        results: list[Any] | None = None
        if parts is not None:
            failures = _get_failure_dict(parts)
            if not failures:
                made, problem = _attempt(lambda: reduce_fun(parts))
                failures = {self.rank: made} if problem else {}
                results = made
            if failures:
                results = [CheckpointException(step, failures)] * self.get_world_size()
        return _unless_failed(self.scatter_object(results), problem)

    def all_reduce(self, step: str, map_fun: Callable[[], T], reduce_fun: Callable[[list[T]], R]) -> R:
        """`map_fun()` on every rank, `reduce_fun` of the results on the coordinator, what that gives to all."""
        local, problem = _attempt(map_fun)
        parts = self.gather_object(local)
        result: Any = None
        if parts is not None:
            failures = _get_failure_dict(parts)
            if not failures:
                result, problem = _attempt(lambda: reduce_fun(parts))
                failures = {self.rank: result} if problem else {}
            if failures:
                result = CheckpointException(step, failures)
        return _unless_failed(self.broadcast_object(result), problem)

    def all_gather(self, step: str, map_fun: Callable[[], T]) -> list[T]:
        """`map_fun()` on every rank; the results of all to all."""
        local, problem = _attempt(map_fun)
        parts = self.all_gather_object(local)
        failures = _get_failure_dict(parts)
        if failures:
            raise CheckpointException(step, failures) from problem
        return parts

    def broadcast(self, step: str, map_fun: Callable[[], T]) -> T:
        """`map_fun()` on the coordinator; the result to all."""
        result: Any = None
        problem = None
        if self.is_coordinator:
            result, problem = _attempt(map_fun)
            if problem:
                result = CheckpointException(step, {self.rank: result})
        return _unless_failed(self.broadcast_object(result), problem)


def _attempt(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """(result, None), or (the failure as it is sent, the exception itself)."""
    try:
        return function(), None
    except BaseException as problem:
        return sendable(problem), problem


def sendable(problem: BaseException) -> WRAPPED_EXCEPTION:
    """An exception that survives the journey: one whose class does not come back from a pickle is sent by its name and text."""
    wrapped = _wrap_exception(problem)
    try:
        if type(pickle.loads(pickle.dumps(wrapped))[0]) is type(problem):
            return wrapped
    except Exception:
        pass
    return RuntimeError(f"{type(problem).__name__}: {problem}"), wrapped[1]


def _unless_failed(result: Any, problem: BaseException | None) -> Any:
    if isinstance(result, CheckpointException):
        raise result from problem
    return result
