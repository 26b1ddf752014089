"""torch.distributed.checkpoint.utils: what stands for an index in a state, and a stretch of a file as a file of its own."""

from __future__ import annotations

import io
import os
from typing import Any

from flambeau.distributed.checkpoint.api import CheckpointException as CheckpointException
from flambeau.distributed.checkpoint.metadata import STATE_DICT_TYPE, MetadataIndex
from flambeau.distributed.checkpoint.resharding import is_dtensor, local_box
from flambeau.distributed.checkpoint.steps import _DistWrapper as _DistWrapper
from flambeau.distributed.checkpoint.steps import _get_failure_dict as _get_failure_dict
from flambeau.tensor import Tensor

__all__ = ["find_state_dict_object", "find_tensor_shard"]


def find_state_dict_object(state_dict: STATE_DICT_TYPE, index: MetadataIndex) -> Any:
    """The object or tensor that an index names. ValueError if there is none."""
    if index.fqn not in state_dict:
        raise ValueError(f"Could not find FQN: '{index.fqn}': the state has {', '.join(map(str, list(state_dict)[:10]))}")
    found = state_dict[index.fqn]
    if isinstance(found, Tensor):
        return find_tensor_shard(found, index)
    if index.offset is not None:
        raise ValueError(
            f"FQN: '{index.fqn}' is not a ShardedTensor, can't find by offset: '{index.offset}'. It is a {type(found).__name__}"
        )
    return found


def find_tensor_shard(tensor: Tensor, index: MetadataIndex) -> Tensor:
    """The box of a tensor that an index names, as this rank has it in memory. A tensor class of another library finds it by a method `__get_tensor_shard__`."""
    if hasattr(tensor, "__get_tensor_shard__") and not is_dtensor(tensor):
        return tensor.__get_tensor_shard__(index)
    return local_box(tensor, index)


class _ReaderView(io.IOBase):
    """`len` bytes of a stream from `offset` on. Reading moves the stream behind it."""

    def __init__(self, base_stream: Any, offset: int, len: int):
        super().__init__()
        self.base_stream, self.offset, self.len = base_stream, offset, len
        self.name = getattr(base_stream, "name", "")
        self.seek(0)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self.len}[whence] if whence else 0
        self.base_stream.seek(self.offset + max(0, start + offset))
        return self.tell()

    def tell(self) -> int:
        return self.base_stream.tell() - self.offset

    def readable(self) -> bool:
        return self.base_stream.readable()

    def seekable(self) -> bool:
        return self.base_stream.seekable()

    def readinto(self, b: Any) -> int:
        memory = memoryview(b)[: max(0, self.len - self.tell())]
        return self.base_stream.readinto(memory)

    def read(self, size: int = -1) -> bytes:
        left = max(0, self.len - self.tell())
        return self.base_stream.read(left if size is None or size < 0 else min(size, left))


def _create_file_view(file: Any, offset: int, length: int) -> Any:
    """The stretch as a file."""
    return _ReaderView(file, offset, length)
