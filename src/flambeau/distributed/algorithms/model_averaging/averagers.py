"""PeriodicModelAverager: the mean of all ranks' parameters, every so many steps."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from flambeau.distributed.algorithms.model_averaging import utils
from flambeau.distributed.data_parallel.arguments import default_group
from flambeau.tensor import Tensor

__all__ = ["ModelAverager", "PeriodicModelAverager"]


class ModelAverager(ABC):
    """Averages parameters when a subclass finds that it is time.

    step  how often it was asked
    """

    def __init__(self, process_group: Any = None):
        self.process_group = process_group if process_group is not None else default_group(None, None)
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Any) -> None:
        raise NotImplementedError


class PeriodicModelAverager(ModelAverager):
    """Averages in step `warmup_steps` and every `period` steps after it. To be asked after each step of the optimizer."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None):
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError(f"Arg ``warmup_steps`` must be a non-negative number, found {warmup_steps}.")
        self.warmup_steps = warmup_steps
        if period < 1:
            raise ValueError(f"Arg ``period`` must be a positive value, found {period}.")
        if period == 1:
            warnings.warn(
                "with period 1, parameters are averaged in every step: averages of gradients, which DistributedDataParallel makes, cost the same and "
                "go on while backward runs",
                stacklevel=2,
            )
        self.period = period

    def average_parameters(self, params: Iterable[Tensor] | Iterable[dict[str, Any]]) -> None:
        """Average them, if it is time."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            utils.average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
