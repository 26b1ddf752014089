"""Which parameters a forward pass has used: those to which backward from its outputs will come.

>>> used, unused, x = (torch.ones(1, requires_grad=True) for _ in range(3))
>>> found = leaves_of(_find_tensors({"out": [used * x.detach()]}))
>>> id(used) in found, id(unused) in found
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from flambeau.autograd.engine import edges_from
from flambeau.tensor import Tensor
from flambeau.tensor.node import LEAF


def leaves_of(outputs: Iterable[Tensor]) -> set[int]:
    """The ids of the leaves that these tensors were computed from."""
    roots: list[Any] = []
    found = set()
    for tensor in outputs:
        node = tensor.grad_fn
        if node is not None:
            roots.append((node, tensor._nr))
        elif tensor.requires_grad:
            found.add(id(tensor))
    return found | {id(target) for target, nr in edges_from(roots) if nr == LEAF}


def _find_tensors(found: Any) -> list[Tensor]:
    """The tensors in lists, tuples, dicts and dataclasses, however deep."""
    if isinstance(found, Tensor):
        return [found]
    if isinstance(found, Mapping):
        return [tensor for value in found.values() for tensor in _find_tensors(value)]
    if isinstance(found, (list, tuple, set)):
        return [tensor for value in found for tensor in _find_tensors(value)]
    if is_dataclass(found) and not isinstance(found, type):
        return [tensor for field in fields(found) for tensor in _find_tensors(getattr(found, field.name))]
    return []
