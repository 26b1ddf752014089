"""summon_full_params: for a while, the modules hold whole parameters that a program may read, and write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from warnings import warn

from flambeau import distributed as dist
from flambeau.distributed.fsdp._wrapped.unit import Unit
from flambeau.modes import no_grad
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories


def check(wrapper: Any, writeback: bool, rank0_only: bool, offload_to_cpu: bool, with_grads: bool) -> None:
    """NotImplementedError for what cannot go together."""
    unit = wrapper._handle
    if with_grads and (offload_to_cpu or not wrapper._use_orig_params):
        raise NotImplementedError(
            f"with_grads={with_grads}, use_orig_params={wrapper._use_orig_params}, offload_to_cpu={offload_to_cpu} is not supported yet"
        )
    if offload_to_cpu and unit is not None and not unit.uses_sharded_strategy:
        raise NotImplementedError("offload_to_cpu=True and NO_SHARD is not supported yet")
    if writeback and rank0_only:
        raise NotImplementedError("writeback=True and rank0_only=True is not supported yet")
    if offload_to_cpu and not rank0_only and wrapper.compute_device.type != "cpu":
        warn(
            "offload_to_cpu=True and rank0_only=False: every process of this machine will have all parameters in main memory. Try rank0_only=True",
            stacklevel=5,
        )


@contextmanager
def whole_parameters(
    wrapper: Any, *, writeback: bool = False, rank0_only: bool = False, offload_to_cpu: bool = False, with_grads: bool = False
) -> Iterator[None]:
    """The parameters of one wrapper, without those of wrappers inside it. All ranks take part; with rank0_only, the first alone sees something of it."""
    unit: Unit | None = wrapper._handle
    if unit is None or unit.summoned:
        yield
        return
    unit.refresh()
    whole = unit.gathered(unit.flat_param.data)
    grad = _gathered_grad(unit) if with_grads else None
    if rank0_only and wrapper.rank:
        del whole, grad
        yield
        return
    if offload_to_cpu:
        whole = whole.cpu()
    with unit.holding_whole(whole, grad):
        yield
    if writeback and unit.uses_sharded_strategy:
        with no_grad():
            unit.flat_param.data.copy_(unit.layout.piece(whole))
            own = unit.flat_grad() if grad is not None else None
            if own is not None and grad is not None:
                _write_grads(unit, unit.layout.piece(grad))


def _gathered_grad(unit: Unit) -> Tensor | None:
    """The whole gradient; zeros where ranks have none; None if no rank has one."""
    own = unit.flat_grad()
    if not unit.uses_sharded_strategy:
        return own
    some = factories.tensor([float(own is not None)], device=unit.device)
    dist.all_reduce(some, group=unit.meshes.shard_group)
    if not some.item():
        return None
    return unit.gathered(factories.zeros_like(unit.flat_param.data) if own is None else own)


def _write_grads(unit: Unit, piece: Tensor) -> None:
    for place in unit.layout.places:
        grad = place.parameter.grad
        if grad is not None:
            grad.copy_(unit._piece(piece, place))
