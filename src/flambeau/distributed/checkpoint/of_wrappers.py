"""States of models with FullyShardedDataParallel inside: the wrappers gather and divide them by themselves, if they are told in which form.

full_state_dict         whole tensors: FULL_STATE_DICT, with cpu_offload on rank 0 alone
otherwise               DTensors: SHARDED_STATE_DICT
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau.distributed.checkpoint.canonical_names import _loaded, canonical
from flambeau.distributed.checkpoint.optimizer_names import STATE, with_state
from flambeau.nn.modules.module import Module
from flambeau.optim.optimizer import Optimizer


def wrappers(model: Module) -> list[Any]:
    """Those in a tree; none, if nobody has imported the class."""
    kinds = tuple(_loaded("flambeau.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"))
    return [module for module in model.modules() if isinstance(module, kinds)] if kinds else []


@contextmanager
def in_form(model: Module, *, whole: bool, cpu_offload: bool) -> Iterator[None]:
    """Within it, state_dict and load_state_dict of the wrappers in a tree are about whole tensors, or DTensors."""
    if not wrappers(model):
        yield
        return
    from flambeau.distributed.fsdp import api
    from flambeau.distributed.fsdp.fully_sharded_data_parallel import _set_type

    kind: Any = api.StateDictType.FULL_STATE_DICT if whole else api.StateDictType.SHARDED_STATE_DICT
    config = api.FullStateDictConfig(cpu_offload, rank0_only=cpu_offload) if whole else api.ShardedStateDictConfig(cpu_offload)
    optim_config = (
        api.FullOptimStateDictConfig(cpu_offload, rank0_only=cpu_offload) if whole else api.ShardedOptimStateDictConfig(cpu_offload)
    )
    before = _set_type(model, kind, config, optim_config)
    try:
        yield
    finally:
        _set_type(model, before.state_dict_type, before.state_dict_config, before.optim_state_dict_config)


def names_in_flat(model: Module, modifiers: str) -> Iterator[tuple[Any, list[str]]]:
    """(flat parameter, the canonical names of what lies in it)."""
    found = {id(wrapper): wrapper._handle for wrapper in wrappers(model)}
    for prefix, module in model.named_modules():
        unit = found.get(id(module))
        if unit is not None and not unit._use_orig_params:
            start = canonical(model, prefix, modifiers) + "." if canonical(model, prefix, modifiers) else ""
            yield unit.flat_param, [start + place.names[0] for place in unit.layout.places]


def optimizer_state(model: Module, optimizer: Optimizer, *, whole: bool, cpu_offload: bool) -> dict[str, Any]:
    """The state of an optimizer by names."""
    from flambeau.distributed.fsdp._wrapped import optim_state

    with_state(optimizer)
    return optim_state.by_names(
        model, optimizer.param_groups, optimizer.state_dict(), whole=whole, rank0_only=whole and cpu_offload, on_cpu=cpu_offload, group=None
    )


def load_optimizer(model: Module, optimizer: Optimizer, state: dict[str, Any], names: dict[Any, list[str]], strict: bool) -> None:
    """Load a state by names, with whole tensors or DTensors, into an optimizer of pieces."""
    from flambeau.distributed.fsdp._wrapped import optim_state

    needed: Sequence[str] = [
        name for p in optimizer.state if p.requires_grad and p.numel() for name in names.get(p, ()) if optimizer.state[p]
    ]
    missing = [name for name in needed if name not in state[STATE]]
    if strict and missing:
        raise RuntimeError(
            f"Missing optimizer state for parameter '{missing[0]}' in checkpoint. The parameter requires gradients but has no saved "
            "optimizer state. To load anyway, use StateDictOptions(strict=False)."
        )
    optimizer.load_state_dict(optim_state.to_load(model, optimizer.param_groups, state))
