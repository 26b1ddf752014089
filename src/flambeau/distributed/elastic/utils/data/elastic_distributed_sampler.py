"""ElasticDistributedSampler: the rest of an epoch, divided among the ranks that there are now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.random import Generator
from flambeau.tensor.making.random_factories import randperm
from flambeau.utils.data.distributed import DistributedSampler

__all__ = ["ElasticDistributedSampler"]


class ElasticDistributedSampler(DistributedSampler):
    """A DistributedSampler of the samples from `start_index` on, shuffled by epoch; the ranks get the same number each, the first ones repeated if need be."""

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, start_index: int = 0):
        super().__init__(dataset=dataset, num_replicas=num_replicas, rank=rank)
        if not hasattr(dataset, "__len__"):
            raise TypeError(f"ElasticDistributedSampler takes a dataset with a length, not {type(dataset).__name__}")
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.left = len(dataset) - start_index
        self.num_samples = -(-self.left // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        generator = Generator()
        generator.manual_seed(self.epoch)
        order = [self.start_index + number for number in randperm(self.left, generator=generator).tolist()]
        order += order[: self.total_size - len(order)]
        return iter(order[self.rank : self.total_size : self.num_replicas])
