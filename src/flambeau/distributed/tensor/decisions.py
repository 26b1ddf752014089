"""Which way a call takes along each dimension of the mesh, worked out once for all calls of its kind."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from flambeau.distributed.tensor._dtensor_spec import TensorMeta
from flambeau.distributed.tensor.calls import Call
from flambeau.distributed.tensor.placement_types import Placement
from flambeau.distributed.tensor.rules import RULES, RUNS, elementwise
from flambeau.distributed.tensor.ways import Question, Way, cheapest


class Decision(NamedTuple):
    """How the operands have to be placed, how the results are placed then and what they look like, and what each rank does.

    several  whether the operation returns a tuple
    run      run(call, this rank's pieces, this decision) -> this rank's results
    """

    operands: tuple[tuple[Placement, ...], ...]
    results: tuple[tuple[Placement, ...], ...]
    metas: tuple[TensorMeta | None, ...]
    several: bool
    how: Callable

    def run(self, call: Call, pieces: list) -> Any:
        """What this rank does."""
        return self.how(call, pieces, self)


_known: dict[Any, Decision] = {}


def decision(call: Call) -> Decision:
    """The decision for this call."""
    try:
        key = call.key()
    except TypeError:
        return _decided(call)
    found = _known.get(key)
    if found is None:
        if len(_known) > 5000:
            _known.clear()
        found = _known[key] = _decided(call)
    return found


def _decided(call: Call) -> Decision:
    rule = RULES.get(call.name) or (elementwise if call.op.kind == "pointwise" else None)
    if rule is None:
        raise NotImplementedError(
            f"{call} on {call.mesh}: there is no sharding rule for {call.shown}. Try it on x.full_tensor(), or on x.to_local() where pieces can be "
            "worked on one by one (torch.distributed.tensor.experimental.local_map does both ways)"
        )
    metas, several = call.metas()
    ways = [_chosen(call, rule, metas, i) for i in range(call.mesh.ndim)]
    operands = tuple(tuple(way.operands[k] for way in ways) for k in range(len(call.tensors)))
    results = tuple(tuple(way.results[k] for way in ways) for k in range(len(metas)))
    if metas == [None] and not all(p.is_replicate() for p in results[0]):
        raise NotImplementedError(f"{call}: what the result looks like is known only once it is computed. Try it on x.full_tensor()")
    return Decision(operands, results, tuple(metas), several, RUNS.get(call.name, _as_it_is))


def _as_it_is(call: Call, pieces: list, found: Decision) -> Any:
    return call.run_on(pieces)


def _chosen(call: Call, rule: Callable, metas: list, i: int) -> Way:
    now = tuple(t.placements[i] for t in call.tensors)
    shapes = tuple(tuple(t._array.shape) for t in call.tensors)
    question = Question(call, now, shapes, tuple(None if m is None else tuple(m.shape) for m in metas), call.mesh.size(i))
    ways = list(rule(question))
    if call.in_place:
        ways = [way for way in ways if way.operands[0] == now[0] and way.results[0] == now[0]]
        if not ways:
            raise RuntimeError(
                f"{call.shown}_: in-place operations that require placement changes are not supported. The input is placed {now[0]}, and {call} cannot "
                "be carried out there. Use the out-of-place version of this operation instead."
            )
    sizes = [prod(shape) * t.element_size() for shape, t in zip(shapes, call.tensors, strict=True)]
    way = cheapest(question, ways, sizes)
    if way is None:
        raise RuntimeError(f"{call} on {call.mesh}: no way to carry it out with these placements. Redistribute the operands first")
    return way
