"""torch.distributed.checkpoint.hf_storage: checkpoints in Hugging Face's layout of safetensors files. To be imported, not used yet."""

from __future__ import annotations

from flambeau import import_only

__all__ = ["HuggingFaceStorageReader", "HuggingFaceStorageWriter"]

HuggingFaceStorageReader, HuggingFaceStorageWriter = import_only.classes(
    "torch.distributed.checkpoint.hf_storage",
    "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "safetensors files are not divided among ranks yet. FileSystemWriter and FileSystemReader write and read a checkpoint of many ranks",
)
