"""Where batches come from: data sets, the order in which they are read, and the loader that puts batches together, in worker processes if wanted.

>>> import flambeau as torch
>>> data = TensorDataset(torch.arange(6), torch.arange(6) ** 2)
>>> [x.tolist() for x, y in DataLoader(data, batch_size=4)]
[[0, 1, 2, 3], [4, 5]]
"""

from flambeau.utils.data.dataloader import DataLoader, _DatasetKind, default_collate, default_convert, get_worker_info
from flambeau.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from flambeau.utils.data.distributed import DistributedSampler
from flambeau.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "DistributedSampler", "IterableDataset", "RandomSampler",
    "Sampler", "SequentialSampler", "StackDataset", "Subset", "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler",
    "_DatasetKind", "default_collate", "default_convert", "get_worker_info", "random_split",
]  # fmt: skip
