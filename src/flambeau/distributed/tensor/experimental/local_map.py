"""local_map: a function of plain tensors, applied to the pieces of DTensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor._utils import normalize_placements
from flambeau.distributed.tensor.placement_types import Placement
from flambeau.tensor import Tensor

Placed = Sequence[Placement] | None


def local_map(
    func: Callable | None = None, out_placements: Placed | tuple[Placed, ...] = None, in_placements: tuple[Placed, ...] | None = None,
    in_grad_placements: tuple[Placed, ...] | None = None, device_mesh: DeviceMesh | None = None, *, redistribute_inputs: bool = False,
) -> Callable:  # fmt: skip
    """A function of DTensors that runs func on this rank's pieces, and makes DTensors of what it returns. Also a decorator.

    out_placements       how each result is placed; None for one that is no tensor
    in_placements        how each argument has to be placed; None for one that is no DTensor. Left out: as it comes
    in_grad_placements   how the gradients of the pieces are placed, if not as the pieces
    redistribute_inputs  whether arguments that are placed otherwise are brought there, or refused
    """
    if func is None:
        return functools.partial(
            local_map, out_placements=out_placements, in_placements=in_placements, in_grad_placements=in_grad_placements, device_mesh=device_mesh,
            redistribute_inputs=redistribute_inputs,
        )  # fmt: skip

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if in_placements is not None and len(in_placements) != len(args):
            raise AssertionError(f"in_placements length {len(in_placements)} does not match the number of input args {len(args)}!")
        mesh = device_mesh or next((a.device_mesh for a in args if isinstance(a, DTensor)), None)
        if mesh is None:
            return func(*args, **kwargs)
        wanted: Any = in_placements or (None,) * len(args)
        grads: Any = in_grad_placements or (None,) * len(args)
        pieces = [
            _piece(a, mesh, p, g, in_placements is not None, redistribute_inputs) for a, p, g in zip(args, wanted, grads, strict=True)
        ]
        return _results(func(*pieces, **kwargs), mesh, out_placements)

    return wrapped


def _piece(value: Any, mesh: DeviceMesh, wanted: Placed, grads: Placed, given: bool, redistribute: bool) -> Any:
    if not isinstance(value, DTensor):
        if wanted is not None and isinstance(value, Tensor):
            raise TypeError(
                f"local_map: in_placements say {wanted} for a plain tensor. It takes DTensors there: give None for plain tensors"
            )
        return value
    if given:
        if wanted is None:
            raise ValueError("local_map: in_placements is None for an argument that is a DTensor. Say how it has to be placed")
        placed = normalize_placements(wanted, mesh, value.dim())
        if value.placements != placed:
            if not redistribute:
                raise ValueError(
                    f"arg {value.placements} in local_map has a mismatched placements: expected {placed}. If redistribute_inputs is wanted, set "
                    "redistribute_inputs=True to local_map."
                )
            value = value.redistribute(mesh, placed)
    return value.to_local(grad_placements=grads)


def _results(found: Any, mesh: DeviceMesh, placements: Any) -> Any:
    if not isinstance(found, (tuple, list)):
        return _result(found, mesh, placements)
    several = isinstance(placements, tuple) and all(p is None or isinstance(p, (list, tuple)) for p in placements)
    each = placements if several else (placements,) * len(found)
    if len(each) != len(found):
        raise AssertionError(
            f"local_map requires one PlacementType be provided for each output value, received {len(each)} for {len(found)}!"
        )
    return type(found)([_result(x, mesh, p) for x, p in zip(found, each, strict=True)])


def _result(value: Any, mesh: DeviceMesh, placements: Any) -> Any:
    if not isinstance(value, Tensor) or isinstance(value, DTensor):
        if placements is not None and not isinstance(value, Tensor):
            raise AssertionError(f"Non-tensor output expects None placements but received {placements}!")
        return value
    return value if placements is None else DTensor.from_local(value, mesh, placements, run_check=False)
