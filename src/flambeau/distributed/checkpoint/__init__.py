"""torch.distributed.checkpoint: states of many processes in one checkpoint, loaded by any number of them."""

from __future__ import annotations

from flambeau.doors import door

__getattr__, __dir__, __all__ = door(__name__, {
    "api": "CheckpointException",
    "default_planner": "DefaultLoadPlanner DefaultSavePlanner",
    "folder_reader": "FileSystemReader",
    "folder_writer": "FileSystemWriter",
    "hf_storage": "HuggingFaceStorageReader HuggingFaceStorageWriter",
    "metadata": "BytesStorageMetadata ChunkStorageMetadata Metadata TensorStorageMetadata",
    "optimizer": "load_sharded_optimizer_state_dict",
    "planner": "LoadPlan LoadPlanner ReadItem SavePlan SavePlanner WriteItem",
    "quantized_hf_storage": "QuantizedHuggingFaceStorageReader",
    "state_dict_loader": "load load_state_dict",
    "state_dict_saver": "async_save save save_state_dict",
    "storage": "StorageReader StorageWriter",
})  # fmt: skip
