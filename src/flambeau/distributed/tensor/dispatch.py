"""What happens when an operation meets a DTensor: its rule says which placements it can work with, the cheapest are chosen, operands are brought there,
and the operation runs on this rank's pieces.

    call       an operation with its arguments (calls.py)
    rule       call -> the ways it can be carried out along one mesh dimension (ways.py; rules/, by subject)
    way        placements of the operands and, with them, of the results
    decision   a way for each mesh dimension: worked out once for calls of one kind
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import modes
from flambeau.distributed.tensor import indexing, making, sharded
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor.calls import Call, listed
from flambeau.distributed.tensor.decisions import Decision, decision
from flambeau.distributed.tensor.rules import COMPOSED, WHOLE, load
from flambeau.eager.indexing import getitem, setitem
from flambeau.interpreters.by_name import DisableTorchFunction

state = modes.state


def dispatch(cls: type, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
    """Run any function of tensors, some of which are DTensors."""
    kwargs = kwargs or {}
    out = kwargs.get("out")
    kwargs = {name: value for name, value in kwargs.items() if name != "out"}
    if out is not None:
        return _delivered(dispatch(cls, function, types, args, kwargs), out)
    op = getattr(function, "op", None)
    if op is None:
        return _no_operation(function, args, kwargs)
    load()
    if op.name in COMPOSED:
        return COMPOSED[op.name](*args, **kwargs)
    in_place = function is getattr(op, "call_inplace", None)
    if op.kind == "choice":
        chosen, *operands = op.forward(*args, **kwargs)
        return chosen.call_inplace(*operands) if in_place else chosen.call(*operands)
    if op.kind == "composite" and op.name not in WHOLE:
        return (
            op.call_inplace.__wrapped__(*args, **kwargs)
            if in_place and hasattr(op.call_inplace, "__wrapped__")
            else _composite(op, in_place, args, kwargs)
        )
    call = Call(op, args, kwargs, in_place)
    return _written(call) if in_place else _result(call)


DTensor.__torch_function__ = classmethod(dispatch)  # type: ignore[assignment, method-assign]


def _composite(op: Any, in_place: bool, args: tuple, kwargs: dict) -> Any:
    """An operation made of others, each of which comes here by itself."""
    result = op.forward(*args, **kwargs)
    return args[0].copy_(result) if in_place else result


def _no_operation(function: Callable, args: tuple, kwargs: dict) -> Any:
    if function is getitem:
        return indexing.getitem(*args)
    if function is setitem:
        return indexing.setitem(*args)
    return making.made(function, args, kwargs)


def _delivered(result: Any, out: Any) -> Any:
    if not isinstance(out, DTensor) or not isinstance(result, DTensor):
        raise NotImplementedError(f"out= of an operation on DTensors takes one DTensor, found {type(out).__name__}. Use the result instead")
    return out.copy_(result)


def _result(call: Call) -> Any:
    found = decision(call)
    results = _carried_out(call, found)
    return call.delivered(results, found.several)


def _carried_out(call: Call, found: Decision) -> list[DTensor]:
    operands = [sharded.redistributed(x, placements) for x, placements in zip(call.tensors, found.operands, strict=True)]
    results = list(zip(found.results, found.metas, strict=True))
    run = lambda pieces: listed(found.run(call, pieces))  # noqa: E731
    return sharded.carried_out(call.node_name, run, operands, results, call.differentiable)


def _written(call: Call) -> DTensor:
    """Tensor.<name>_: the piece of the first operand is written to, wherever the others have to be brought for that."""
    target = call.values[0]
    if not isinstance(target, DTensor):
        raise RuntimeError(
            f"{call.shown}_: a plain tensor cannot be written to with DTensors. Try DTensor.to_local() or full_tensor() on the others"
        )
    found = decision(call)
    recorded = state.grad and call.differentiable and target._is_float() and any(x.requires_grad for x in call.tensors)
    if recorded:
        return _written_and_recorded(call, found, target)
    operands = [sharded.redistributed(x, placements) for x, placements in zip(call.tensors, found.operands, strict=True)]
    with DisableTorchFunction(), modes.no_grad():
        found.run(call, [x._local_tensor for x in operands])
    return target


def _written_and_recorded(call: Call, found: Decision, target: DTensor) -> DTensor:
    """A write with a history: computed beside what was there, then written over it."""
    if target.is_leaf and target.requires_grad:
        raise RuntimeError(
            f"a leaf Variable that requires grad is being used in an in-place operation ({call.shown}_). Try torch.no_grad(), or {call.shown}"
        )
    if target._view_mode == "shares":
        raise NotImplementedError(
            f"{call.shown}_ of a view of a DTensor, with gradients, is not implemented. Use {call.shown}, which gives a new tensor"
        )
    call.in_place = False
    (result,) = _carried_out(call, found)
    result = sharded.redistributed(result, target.placements)
    with DisableTorchFunction(), modes.no_grad():
        target._local_tensor.copy_(result._local_tensor)
    target._node, target._nr, target._needs = result._node, result._nr, result._needs
    return target
