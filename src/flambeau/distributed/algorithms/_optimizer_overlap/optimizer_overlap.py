"""_as_overlapped_optim: an optimizer as a communication hook of DistributedDataParallel."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from flambeau.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from flambeau.distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks import _hook_then_optimizer, _OptimizerHookState
from flambeau.distributed.optim.utils import as_functional_optim, functional_optim_map
from flambeau.optim import Optimizer

_registered_overlapped_optims: dict[type, type] = {}


def register_overlapped(optim_cls: type) -> Callable[[type], type]:
    """Say, above a class, for which optimizers and their subclasses it is."""

    def register(overlapped: type) -> type:
        if optim_cls in _registered_overlapped_optims:
            raise ValueError(
                f"{overlapped} already registered with optim_cls {_registered_overlapped_optims[optim_cls]}, trying to re-register it for {optim_cls} is not supported."
            )
        _registered_overlapped_optims[optim_cls] = overlapped
        return overlapped

    return register


class OverlappedOptimizer(ABC):
    """An optimizer that can be given to a model, to be run while its backward runs."""

    def __init__(self, optim_cls: type) -> None:
        self.optim_cls = optim_cls

    @abstractmethod
    def register_ddp(self, ddp: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not support overlapped DDP.")

    @abstractmethod
    def register_fsdp(self, fsdp: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not support overlapped FSDP.")


@register_overlapped(Optimizer)
class _OverlappedStandardOptimizer(OverlappedOptimizer):
    """One of those that have a functional form."""

    def __init__(self, optim_cls: type, params: Any, *optim_args: Any, **optim_kwargs: Any) -> None:
        super().__init__(optim_cls)
        self._opt_hook_state = _OptimizerHookState(as_functional_optim(optim_cls, *optim_args, **optim_kwargs), params)

    def register_ddp(self, ddp_inst: Any) -> None:
        """Average each bucket, then make a step with it."""
        ddp_inst.register_comm_hook(None, _hook_then_optimizer(allreduce_hook, self._opt_hook_state))

    def register_fsdp(self, fsdp: Any) -> None:
        raise NotImplementedError(f"{self.optim_cls} does not support overlapped FSDP: _apply_optimizer_in_backward does")


def _as_overlapped_optim(optim_cls: type, params: Any, *args: Any, **kwargs: Any) -> OverlappedOptimizer:
    """The optimizer, to be registered with a model."""
    if optim_cls not in functional_optim_map:
        known = ", ".join(sorted(cls.__name__ for cls in functional_optim_map))
        raise ValueError(f"{optim_cls} has no functional form, which steps in the middle of backward need. There are some for {known}")
    for cls in inspect.getmro(optim_cls):
        if cls in _registered_overlapped_optims:
            return _registered_overlapped_optims[cls](optim_cls, params, *args, **kwargs)
    return _OverlappedStandardOptimizer(optim_cls, params, *args, **kwargs)
