"""torch.distributed.checkpoint.utils: names that PyTorch keeps here."""

# ruff: noqa: F401 - names are imported to be found here

from __future__ import annotations

from flambeau.distributed.checkpoint.api import CheckpointException
from flambeau.distributed.checkpoint.file_view import _create_file_view, _ReaderView
from flambeau.distributed.checkpoint.finding import find_state_dict_object, find_tensor_shard
from flambeau.distributed.checkpoint.steps import _DistWrapper, _get_failure_dict

__all__ = ["find_state_dict_object", "find_tensor_shard"]
