"""torch.nn.parallel.scatter_gather: batches cut up for several GPUs and put together again. DataParallel runs on one: names only."""

from __future__ import annotations

from flambeau import import_only

gather, scatter, scatter_kwargs = import_only.functions(
    "torch.nn.parallel.scatter_gather",
    "gather scatter scatter_kwargs",
    "DataParallel runs on one GPU in Flambeau, and nothing is shared out. x.chunk() and torch.cat() cut a batch and put it together",
)

__all__ = ["gather", "scatter", "scatter_kwargs"]
