"""Letting go of what the tape has saved of whole parameters.

Note [whose memory a whole parameter is]

An operation saves its operands for backward: `linear` saves the weight, and so keeps its memory. A group that wants to free its parameters after forward
therefore goes through the tape of that forward, from the outputs back to the first operation of the module, and replaces every saved tensor that lies in its
memory by a note: which parameter it was, or which part of the memory with which strides. Backward reads such a note like any saved tensor, and finds the
memory into which the parameters have been gathered again.

What the walk does not reach (a tape that hangs on no output, a tensor that someone else holds) stays as it is: its memory stays, too, until it is dropped, and
its values are those that forward saw. So what is missed costs memory, never correctness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from flambeau.distributed.tensor import DTensor
from flambeau.distributed.tensor.sharded import Sharded
from flambeau.eager.saved import Hooked, edge_of
from flambeau.tensor import Tensor
from flambeau.tensor.node import LEAF


class Region:
    """Memory of the whole parameters of a group that have one dtype: `memory` while they are whole, None while there is none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.memory: Tensor | None = None
        self.wholes: frozenset[int] = frozenset()

    def fill(self, memory: Tensor, wholes: Iterable[Tensor]) -> None:
        """These parameters have come to lie in this memory."""
        self.memory = memory
        self.wholes = frozenset(map(id, wholes))

    def note(self, tensor: Tensor) -> Any:
        """What is enough to find this tensor again."""
        if id(tensor) in self.wholes:
            return tensor
        assert self.memory is not None
        return tuple(tensor.shape), tensor.stride(), tensor.storage_offset() - self.memory.storage_offset()

    def again(self, note: Any) -> Tensor:
        """The tensor of a note."""
        if self.memory is None:
            raise RuntimeError(
                f"backward has come to {self.name or 'a module'}, whose parameters are divided among ranks at the moment. They are gathered when the "
                "gradient of an output of its forward arrives: an output that was a view has been written to (try output.clone()), or was kept in a place "
                "where FSDP does not find it; or set_unshard_in_backward(False) has been said of a module that needs its parameters"
            )
        if isinstance(note, Tensor):
            return note
        shape, strides, offset = note
        return self.memory.as_strided(shape, strides, offset + self.memory.storage_offset())


def let_go(outputs: Iterable[Tensor], since: int, regions: Mapping[int, Region]) -> None:
    """Replace what nodes made after number `since` have saved of these regions, which are found by the id of their storage."""
    waiting = [edge[0] for edge in map(edge_of, outputs) if edge is not None and edge[1] != LEAF]
    seen: set[int] = set()
    while waiting:
        node = waiting.pop()
        if node.sequence <= since or id(node) in seen:
            continue
        seen.add(id(node))
        saved = node.saved
        if type(saved) is list:
            _replace(saved, regions)
        elif type(saved) is tuple and isinstance(node, Sharded):  # an operation on DTensors: this rank's piece of tape
            waiting += [root[0] for root in saved[0] if root is not None and root[1] != LEAF]
        elif type(saved) is tuple:
            node.saved = saved = list(saved)
            _replace(saved, regions)
        waiting += [edge[0] for edge in node.edges if edge is not None and edge[1] != LEAF]


def _replace(saved: list, regions: Mapping[int, Region]) -> None:
    for i, entry in enumerate(saved):
        if type(entry) is list:
            _replace(entry, regions)
        elif type(entry) is tuple and len(entry) == 3 and isinstance(entry[0], Tensor):
            tensor = entry[0]
            region = regions.get(id(tensor._storage))
            if region is not None and not isinstance(tensor, DTensor):
                saved[i] = Hooked(tensor, region.note, region.again, edge=edge_of(tensor))
