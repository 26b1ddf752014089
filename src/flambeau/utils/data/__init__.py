"""Where batches come from: data sets, the order in which they are read, and the loader that puts batches together, in worker processes if wanted.

>>> import flambeau as torch
>>> data = TensorDataset(torch.arange(6), torch.arange(6) ** 2)
>>> [x.tolist() for x, y in DataLoader(data, batch_size=4)]
[[0, 1, 2, 3], [4, 5]]
"""

from flambeau.utils.data import dataloader, dataset, distributed, sampler
from flambeau.utils.data.dataloader import *
from flambeau.utils.data.dataloader import _DatasetKind
from flambeau.utils.data.dataset import *
from flambeau.utils.data.distributed import *
from flambeau.utils.data.sampler import *

__all__ = ["_DatasetKind", *dataloader.__all__, *dataset.__all__, *distributed.__all__, *sampler.__all__]
