"""What stands for an index in a state: an object, a tensor, or the memory of one box of a tensor."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.checkpoint.metadata import STATE_DICT_TYPE, MetadataIndex
from flambeau.distributed.checkpoint.resharding import is_dtensor, local_box
from flambeau.tensor import Tensor


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
