"""torch.distributed.tensor.parallel: layers of a model cut over the ranks of a mesh."""

from flambeau.distributed.tensor.parallel.api import parallelize_module
from flambeau.distributed.tensor.parallel.layers import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel
from flambeau.distributed.tensor.parallel.loss import loss_parallel
from flambeau.distributed.tensor.parallel.prepare import PrepareModuleInput, PrepareModuleInputOutput, PrepareModuleOutput

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel",
    "loss_parallel", "parallelize_module",
]  # fmt: skip
