"""DistributedSampler: each of several processes that train together reads a share of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from flambeau import errors
from flambeau.random import Generator
from flambeau.tensor.making.random_factories import randperm
from flambeau.utils.data.dataset import Dataset
from flambeau.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]

_T_co = TypeVar("_T_co", covariant=True)


class DistributedSampler(Sampler[_T_co]):
    """Every `num_replicas`-th index, beginning with number `rank`, of an order that all replicas share.

    All shares have the same length: either indices from the beginning are repeated at the end, or (drop_last) the tail is left out.
    `set_epoch` before each epoch makes its order; without it every epoch has the same.

    >>> [list(DistributedSampler(range(5), num_replicas=2, rank=r, shuffle=False)) for r in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """

    def __init__(
        self,
        dataset: Dataset,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            group = _process_group()
            num_replicas = group.get_world_size() if num_replicas is None else num_replicas
            rank = group.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(f"Invalid rank {rank}: there are ranks 0 to {num_replicas - 1}")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        items = len(dataset)  # type: ignore[arg-type]
        self.num_samples = items // num_replicas if drop_last and items % num_replicas else math.ceil(items / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed
        self._asked: int | None = 0  # how often an order was asked for; None once set_epoch was called

    def __iter__(self) -> Iterator[_T_co]:
        return iter(self._order().tolist())

    def _order(self) -> np.ndarray:
        """This replica's indices in this epoch. -> (num_samples,) int64"""
        items = len(self.dataset)  # type: ignore[arg-type]
        if self.shuffle:
            self._notice_repetition()
            order = randperm(items, generator=Generator().manual_seed(self.seed + self.epoch))._array
        else:
            order = np.arange(items)
        # np.resize repeats from the beginning, as often as it takes, or cuts the tail off.
        return np.resize(order, self.total_size)[self.rank :: self.num_replicas]

    def _notice_repetition(self) -> None:
        if self._asked is not None and self.epoch == 0 and self.num_replicas > 1:
            self._asked += 1
            if self._asked == 2:
                errors.warn(
                    "DistributedSampler: the second epoch has the order of the first, because set_epoch was never called. Call "
                    "sampler.set_epoch(epoch) at the beginning of every epoch"
                )

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of an epoch: seed + epoch is the seed of the shuffle."""
        self.epoch = epoch
        self._asked = None


def _process_group():
    """The room of process groups, when there is a group to ask."""
    from flambeau import distributed as group

    if not group.is_available() or not group.is_initialized():
        raise ValueError(
            "DistributedSampler: Default process group has not been initialized, so the number of replicas and the rank of this one are "
            "not known. Call init_process_group first, or give both: DistributedSampler(dataset, num_replicas=4, rank=0)"
        )
    return group
