"""The history of sparse tensors.

A node here is a name, the edges of its inputs and a function per input that turns the gradient of the result into the gradient of that
input. Gradients are tensors of either kind, and mean what they mean for the dense tensor: coalescing, or another layout, changes nothing
about them. Two functions carry most of the room, and let derivatives be those of dense operations on values:

    values(x)              the stored elements of a coalesced tensor, with a history
    build(parts, values)   a sparse tensor of values that may have one
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from flambeau import modes
from flambeau.eager.record import attach, start
from flambeau.eager.saved import edge_of, save, unpack
from flambeau.sparse.parts import Parts, SparseTensor, wrapped
from flambeau.tensor import Tensor
from flambeau.tensor.node import FREED, Node, freed_error


class SparseNode(Node):
    """derivatives: per input, a function (gradient of the result, *saved tensors) -> gradient of the input."""

    derivatives: Sequence[Callable]

    def apply(self, grad):
        if self.saved is FREED:
            raise freed_error()
        saved = [unpack(entry, self) for entry in self.saved or ()]
        return [None if edge is None else f(grad, *saved) for edge, f in zip(self.edges, self.derivatives, strict=True)]


@lru_cache(None)
def _node_class(name: str) -> type[SparseNode]:
    return type(name, (SparseNode,), {})


def recorded(result: Any, name: str, inputs: Sequence[Tensor], derivatives: Sequence[Callable], saved: Sequence[Any] = ()) -> Any:
    """`result`, with a node of this name where a gradient is wanted."""
    if not modes.state.grad or not result._is_float() or not any(x.requires_grad for x in inputs):
        return result
    node = _node_class(name)()
    node.derivatives = derivatives
    start(node, [edge_of(x) for x in inputs], [result._array])
    node.saved = [save(x) for x in saved] or None
    attach(result, node)
    return result


def renamed(result: Any, name: str) -> Any:
    """`result`, whose node (if it has one, of its own) gets another name."""
    if type(result._node).__base__ is SparseNode:
        result._node.__class__ = _node_class(name)
    return result


def values(x: SparseTensor) -> Tensor:
    """The stored elements of a compressed or coalesced tensor; their gradient is a sparse tensor with the same places."""
    parts = x._array
    return recorded(parts.values.detach(), "ValuesBackward0", (x,), (lambda grad: build(parts, grad),))


def build(parts: Parts, values: Tensor, name: str = "SparseCooTensorWithDimsAndTensorsBackward0") -> SparseTensor:
    """A sparse tensor with the places of `parts` and these values; their gradient is read off at these places."""
    result = wrapped(parts.with_values(values.detach()))
    return recorded(result, name, (values,), (lambda grad: masked_values(grad, parts),))


def masked_values(grad: Tensor, parts: Parts) -> Tensor:
    """The elements of a gradient at the places of `parts`."""
    from flambeau.sparse import conversion

    return conversion.values_at(grad, parts)
