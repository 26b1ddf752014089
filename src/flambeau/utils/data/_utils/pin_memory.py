"""pin_memory: a batch in memory that a GPU can read directly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flambeau.tensor import Tensor
from flambeau.utils.data._utils.collate import is_namedtuple, like_mapping, like_sequence


def pin_memory(data: Any, device: Any = None) -> Any:
    """Tensors in any nesting pinned, and objects with a `pin_memory()` method of their own by that; everything else as it is."""
    if isinstance(data, Tensor):
        return data.pin_memory(device)
    if isinstance(data, (str, bytes)):
        return data
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, Mapping):
        return like_mapping(data, {key: pin_memory(value, device) for key, value in data.items()})
    if is_namedtuple(data):
        return type(data)(*[pin_memory(value, device) for value in data])
    if isinstance(data, Sequence):
        return like_sequence(data, [pin_memory(value, device) for value in data])
    return data
