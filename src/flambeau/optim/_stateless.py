"""Trying other parameters and states in a living optimizer, and putting its own back."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from typing import Any

from flambeau.optim.optimizer import Optimizer
from flambeau.tensor import Tensor

__all__ = ["swap_in_optimizer_params_and_state"]


@contextmanager
def swap_in_optimizer_params_and_state(optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]):
    """Within it the optimizer works on these parameters, in the order of its groups, with the state and options of a state_dict()."""
    groups = _checked(optimizer, swapin_optim_state)
    given = list(swapin_parameters.values())
    if sum(len(g["params"]) for g in groups) > len(given):
        raise _refused("parameter state in the order of optimizer.param_groups")
    own_state, own_groups = optimizer.state, [dict(g) for g in optimizer.param_groups]
    try:
        state: defaultdict[Any, Any] = defaultdict(dict)
        for group, new in zip(optimizer.param_groups, groups, strict=True):
            params, given = given[: len(new["params"])], given[len(new["params"]) :]
            group.update(new)
            group["params"] = params
            for p, number in zip(params, new["params"], strict=True):
                state[p] = dict(swapin_optim_state["state"].get(number, {}))
        optimizer.state = state
        yield
    finally:
        for group, before in zip(optimizer.param_groups, own_groups, strict=True):
            group.clear()
            group.update(before)
        optimizer.state = own_state


def _refused(wanted: str) -> RuntimeError:
    return RuntimeError(f"swap_in_optimizer_params_and_state requires {wanted}")


def _checked(optimizer: Optimizer, found: Any) -> list[dict[str, Any]]:
    """The groups of a state dict, if it fits the optimizer."""
    if not optimizer.state:
        raise _refused("initialized optimizer state: take a step first")
    if not isinstance(found, dict) or not isinstance(found.get("state"), dict) or not isinstance(found.get("param_groups"), list):
        raise _refused("what optimizer.state_dict() gives: a dict with 'state' and 'param_groups'")
    state, groups = found["state"], found["param_groups"]
    if len(groups) != len(optimizer.param_groups):
        raise RuntimeError("the state to swap in has another number of parameter groups than the optimizer.")
    numbers: set[int] = set()
    for i, (own, new) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        params = new.get("params") if isinstance(new, dict) else None
        if not isinstance(params, list) or not all(isinstance(n, int) for n in params):
            raise _refused("param_groups of dicts whose 'params' are numbers, as in a state_dict()")
        if len(params) != len(own["params"]):
            raise RuntimeError(f"parameter group {i} of the state to swap in has another number of parameters than that of the optimizer.")
        if new.keys() != own.keys():
            raise _refused(f"the same options as the live optimizer has in group {i}; they differ in {sorted(new.keys() ^ own.keys())}")
        numbers.update(params)
    if any(not isinstance(n, int) or n not in numbers or not isinstance(s, dict) for n, s in state.items()):
        raise _refused("a dict for every number of a parameter in swapin_optim_state['state'], and nothing else")
    return groups
