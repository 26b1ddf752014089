"""torch.distributed.checkpoint.quantized_hf_storage: to be imported."""

from __future__ import annotations

from flambeau import import_only

__all__ = ["QuantizedHuggingFaceStorageReader"]

(QuantizedHuggingFaceStorageReader,) = import_only.classes(
    "torch.distributed.checkpoint.quantized_hf_storage",
    "QuantizedHuggingFaceStorageReader",
    "tensors in blocks of float8 with a scale each are not multiplied out. HuggingFaceStorageReader reads files of plain tensors",
)
