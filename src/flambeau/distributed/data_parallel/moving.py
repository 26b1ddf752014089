"""Inputs on their way to the device of a model: tensors in lists, tuples, named tuples, dicts and dataclasses move, everything else stays."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from flambeau.tensor import Tensor


def moved(inputs: Any, device: Any) -> Any:
    """The same structure, its tensors on `device`."""
    return mapped(lambda tensor: tensor.to(device, non_blocking=True), inputs)


def mapped(change: Callable[[Tensor], Any], found: Any) -> Any:
    """The same structure with every tensor changed.

    >>> mapped(lambda t: t + 1, {"a": [torch.zeros(2)], "b": 3})
    {'a': [tensor([1., 1.])], 'b': 3}
    """
    if isinstance(found, Tensor):
        return change(found)
    if isinstance(found, tuple) and hasattr(found, "_fields"):
        return type(found)(*[mapped(change, one) for one in found])
    if isinstance(found, (list, tuple)):
        return type(found)([mapped(change, one) for one in found])
    if isinstance(found, Mapping):
        changed = {key: mapped(change, value) for key, value in found.items()}
        if type(found) is dict:
            return changed
        other = copy.copy(found)
        if hasattr(other, "update"):
            other.update(changed)
            return other
        return type(found)(changed)  # type: ignore[call-arg]
    if is_dataclass(found) and not isinstance(found, type):
        record: Any = copy.copy(found)  # type: ignore[arg-type]  # mypy takes it for a Mapping still
        for field in fields(found):
            object.__setattr__(record, field.name, mapped(change, getattr(found, field.name)))
        return record
    return found
