"""torch.distributed.checkpoint.quantized_hf_storage: to be imported."""

from __future__ import annotations

from flambeau import import_only

WHY = "tensors in blocks of float8 with a scale each are not multiplied out. HuggingFaceStorageReader reads files of plain tensors"
__all__ = import_only.fill(__name__, WHY, classes="QuantizedHuggingFaceStorageReader")
