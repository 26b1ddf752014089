"""A way to carry out an operation along one dimension of a mesh, and what it costs to get there.

    Way((Shard(0), Replicate()), (Shard(0),))      the first operand cut by rows, the second whole on every rank: then the result is cut by rows

A way is true for every rank's pieces alike; rules (rules/) list the ways of an operation, and the cheapest is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _NormPartial, _StridedShard

if TYPE_CHECKING:
    from flambeau.distributed.tensor.calls import Call

R = Replicate()
SUM = Partial("sum")
LATENCY = 8192.0  # what a message costs before its first byte arrives, in bytes


class Way(NamedTuple):
    """Placements along one mesh dimension: one for each operand, one for each result."""

    operands: tuple[Placement, ...]
    results: tuple[Placement, ...]


class Question(NamedTuple):
    """What a rule is asked: in which ways can `call` be carried out along this dimension of the mesh?

    now     how the operands are placed along it
    shapes  their whole shapes
    results the whole shapes of the results; None where only the operation itself can tell
    ranks   how many there are along it
    """

    call: Call
    now: tuple[Placement, ...]
    shapes: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...] | None, ...]
    ranks: int

    def argument(self, name: str) -> Any:
        """An argument of the operation, by the name of its parameter."""
        return self.call.argument(name)

    def replicated(self) -> Way:
        """The way that works for every operation: everything everywhere."""
        return Way((R,) * len(self.now), (R,) * len(self.results))

    def everywhere(self, placement: Placement) -> Way:
        """All operands and results placed alike."""
        return Way((placement,) * len(self.now), (placement,) * len(self.results))


Rule = Callable[[Question], Sequence[Way]]


def moved(placement: Placement, dim: int) -> Placement:
    """A cut, through another dimension."""
    return _StridedShard(dim, split_factor=placement.split_factor) if isinstance(placement, _StridedShard) else Shard(dim)


def cuts(now: Sequence[Placement]) -> list[Any]:
    """The placements that cut something."""
    return [p for p in now if p.is_shard()]


def cheapest(question: Question, ways: Sequence[Way], bytes_of: Sequence[float]) -> Way | None:
    """The way that asks for the least to be sent; the first of several. None if there is none."""
    best, least = None, float("inf")
    for way in ways:
        if not all(map(_possible, way.operands, question.now, question.shapes, [question.ranks] * len(question.now))):
            continue
        price = sum(map(cost, question.now, way.operands, bytes_of, [question.ranks] * len(question.now)))
        if price < least:
            best, least = way, price
    return best


def _possible(wanted: Placement, now: Placement, shape: tuple[int, ...], ranks: int) -> bool:
    """A dimension that is not cut yet is cut only where every rank gets something; nothing but norms of pieces becomes norms of pieces."""
    if isinstance(wanted, _NormPartial):
        return wanted == now
    return wanted == now or not isinstance(wanted, (Shard, _StridedShard)) or (wanted.dim < len(shape) and shape[wanted.dim] >= ranks)


def cost(before: Placement, after: Placement, n_bytes: float, ranks: int) -> float:
    """What it takes to get from one placement to another, in bytes that are sent."""
    if before == after:
        return 0.0
    share = n_bytes * (ranks - 1) / ranks
    if before.is_replicate():
        return 1e-3 * n_bytes  # only memory is moved
    if after.is_replicate():
        return LATENCY + share * (2 if before.is_partial() else 1)
    if after.is_partial():
        return LATENCY * 4 + share * 4  # it grows to the whole, and has to be reduced later
    return LATENCY + (share if before.is_partial() else share / ranks)
