"""HierarchicalModelAverager: often among neighbours, seldom among all.

HierarchicalModelAverager(OrderedDict([(2, 4), (8, 16)]), warmup_steps=100)
    every 2 steps the mean of 4 ranks next to each other, every 8 steps instead that of all 16
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from flambeau import distributed
from flambeau.distributed.algorithms.model_averaging import averagers, utils
from flambeau.tensor import Tensor

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(averagers.ModelAverager):
    """Averages in the largest group of which it is time.

    period_group_size_dict  period in steps -> number of ranks; both rise, and each divides the next. The last group is everybody
    """

    def __init__(self, period_group_size_dict: OrderedDict[int, int] | None = None, warmup_steps: int = 0, process_group: Any = None):
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty: OrderedDict([(steps, ranks), ...])")
        self._periods = list(period_group_size_dict.keys())
        if self._periods[0] <= 0:
            raise ValueError("The minimum period in arg ``period_group_size_dict`` must be a positive value.")
        if self._periods[-1] == 1:
            warnings.warn(
                "with period 1 for all ranks, parameters are averaged in every step: DistributedDataParallel does the same with gradients, and "
                "quicker",
                stacklevel=2,
            )
        everybody = self.process_group.size()
        sizes = list(period_group_size_dict.values())
        if sizes[-1] != everybody:
            raise ValueError(
                f"The last value in arg ``period_group_size_dict`` must be equal to the size of ``process_group``, {everybody}, found {sizes[-1]}."
            )
        if any(after % before for before, after in pairwise(sizes)):
            raise ValueError(f"the group sizes {sizes} must divide each other, so that the larger groups are made of the smaller ones")
        self.period_process_group_dict: OrderedDict[int, Any] = OrderedDict()
        for period, size in period_group_size_dict.items():
            whole = size == everybody
            self.period_process_group_dict[period] = (
                self.process_group if whole else distributed.new_subgroups(group_size=size, group=self.process_group)[0]
            )
        if warmup_steps < 0:
            raise ValueError(f"Arg ``warmup_steps`` must be a non-negative number, found {warmup_steps}.")
        self.warmup_steps = warmup_steps

    def _find_process_group(self) -> Any:
        """The largest group whose period divides the step; None if it is no group's time."""
        for period in reversed(self._periods):
            if self.step % period == 0:
                return self.period_process_group_dict[period]
        return None

    def average_parameters(self, params: Iterable[Tensor] | Iterable[dict[str, Any]]) -> None:
        """Average them, if it is time."""
        if self.step >= self.warmup_steps:
            group = self._find_process_group()
            if group is not None:
                utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1
