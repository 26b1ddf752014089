"""Join: a loop in which some ranks run out of data before others.

    with Join([model, optimizer]):
        for x, y in my_batches:          # each rank has another number of them
            ...

Whoever makes collectives in each iteration is a Joinable, and says by a JoinHook what a rank without data does instead.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, NamedTuple

from flambeau.distributed.options import AllreduceOptions
from flambeau.tensor.making.factories import full, ones

__all__ = ["Join", "JoinHook", "Joinable"]

MANY = 1000  # iterations of waiting for others, after which something may be wrong


class JoinHook:
    """What a rank without data does. Both methods do nothing unless a subclass says more."""

    def main_hook(self) -> None:
        """In each iteration of the others: the collectives they make."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Once, when no rank has data any more; `is_last_joiner` where the data lasted longest."""


class _JoinConfig(NamedTuple):
    """What a Joinable is to know of the context it is in."""

    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        """Outside of any context."""
        return _JoinConfig(False, False, False)


class Joinable(ABC):
    """Something that makes collectives in each iteration, and calls `Join.notify_join_context(self)` before the first of them."""

    @abstractmethod
    def __init__(self) -> None:
        super().__init__()
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without data does instead. The keyword arguments are those of Join."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Where the tensors of the context's own collectives are made."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """The processes that wait for each other."""


class Join:
    """The context around the loop.

    enable                      False: inputs are known to be even, and nothing is asked before each iteration
    throw_on_early_termination  an error on all ranks as soon as one runs out of data, instead of going on without it
    kwargs                      are passed to each joinable's `join_hook`
    """

    def __init__(self, joinables: list[Joinable], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any):
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables = joinables
        self._join_hooks = [joinable.join_hook(**kwargs) for joinable in joinables]
        self._enable = enable
        self._throw_on_early_termination = throw_on_early_termination
        for place, joinable in enumerate(joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, place == 0)
        first = joinables[0]
        self._process_group, self._device = first.join_process_group, first.join_device
        for other in joinables[1:]:
            if other.join_process_group is not self._process_group:
                raise ValueError("Using join context manager with multiple process groups: all joinables must be of the same processes")
        self._rank = self._process_group.rank()

    def __enter__(self) -> None:
        pass

    def __exit__(self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        """This rank has no data any more: take part until nobody has."""
        try:
            if self._enable and type is None:
                self._take_part()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig.construct_disabled_join_config()

    def _take_part(self) -> None:
        last, iterations = True, 0
        while self._get_num_nonjoined_procs():
            if self._throw_on_early_termination:
                self._notify_procs_to_terminate()
            last = False
            for hook in self._join_hooks:
                hook.main_hook()
            iterations += 1
            if iterations == MANY:
                warnings.warn(
                    f"Detected uneven input skew of more than {MANY} iterations: rank {self._rank} has had no data for so long while others went on. "
                    "Whoever has little data for so long makes no use of its processor: share the data out more evenly, or see whether the loop of "
                    "another rank ever ends",
                    stacklevel=3,
                )
        for hook in self._join_hooks:
            hook.post_hook(last)

    def _get_num_nonjoined_procs(self) -> int:
        """How many ranks still have data."""
        return int(_sum(self._process_group, 0.0, self._device))

    def _notify_procs_to_terminate(self) -> None:
        """Tell the ranks that have data that it is over, and raise here what they will raise there."""
        _sum(self._process_group, 1.0, self._device)
        raise RuntimeError(
            f"Rank {self._rank} exhausted all inputs: the others are told to end, as throw_on_early_termination=True asks for"
        )

    @staticmethod
    def notify_join_context(joinable: Joinable) -> Any:
        """Say that this rank has data for another iteration; a Work whose result is how many have. None outside of a context, or if said already."""
        config = getattr(joinable, "_join_config", None)
        if config is None:
            raise AssertionError(
                f"Check that the {type(joinable).__name__} constructor calls the `Joinable` constructor: it has no _join_config, which that one sets"
            )
        if not config.is_first_joinable or not config.enable:
            return None
        work = joinable.join_process_group.allreduce([ones(1, device=joinable.join_device)])
        if config.throw_on_early_termination and _sum(joinable.join_process_group, 0.0, joinable.join_device):
            raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return work


def _sum(group: Any, value: float, device: Any) -> float:
    said, opts = full((1,), value, device=device), AllreduceOptions()
    opts.asyncOp = False
    group.allreduce([said], opts).wait()
    return said.item()
