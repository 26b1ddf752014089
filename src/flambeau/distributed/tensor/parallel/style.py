"""torch.distributed.tensor.parallel.style: the path by which programs import styles."""

# ruff: noqa: F401 - names are imported to be public

from __future__ import annotations

from flambeau.distributed.tensor.parallel.layers import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel
from flambeau.distributed.tensor.parallel.prepare import PrepareModuleInput, PrepareModuleInputOutput, PrepareModuleOutput
