"""States of optimizers by names of parameters, so that they mean the same on any number of ranks, and for optimizers with other groups.

optimizer.state_dict()      {"state": {0: {"exp_avg": ...}},        "param_groups": [{"lr": 0.1, "params": [0]}]}
by names                    {"state": {"weight": {"exp_avg": ...}}, "param_groups": [{"lr": 0.1, "params": ["weight"]}]}
flat                        {"state.weight.exp_avg": ..., "param_groups.weight.lr": 0.1}
"""

from __future__ import annotations

from typing import Any

from flambeau.optim.optimizer import Optimizer
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import tensor, zeros_like

STATE, GROUPS, PARAMS = "state", "param_groups", "params"
ParamNames = dict[Tensor, list[str]]


def with_state(optimizer: Optimizer) -> None:
    """Have an optimizer make its state if it has none yet, by a step that changes nothing: all gradients are 0, and so is the learning rate. One that has
    gradients is in the middle of something, and left alone."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group[PARAMS]]
    if optimizer.state or any(parameter.grad is not None for parameter in parameters):
        return
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.grad = zeros_like(parameter)
    rates = [group.get("lr") for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = tensor(0.0) if isinstance(rate, Tensor) else 0.0
    optimizer.step(closure=None)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        if rate is not None:
            group["lr"] = rate
    optimizer.zero_grad(set_to_none=True)


def by_names(optimizer: Optimizer, names: ParamNames) -> dict[str, Any]:
    """The state of an optimizer by names of parameters."""
    with_state(optimizer)
    given = optimizer.state_dict()
    numbered = [parameter for group in optimizer.param_groups for parameter in group[PARAMS]]
    known = {number: _first_name(parameter, names) for number, parameter in enumerate(numbered)}
    return {
        STATE: {known[number]: state for number, state in given[STATE].items()},
        GROUPS: [{**group, PARAMS: [known[number] for number in group[PARAMS]]} for group in given[GROUPS]],
    }


def _first_name(parameter: Tensor, names: ParamNames) -> str:
    if parameter not in names:
        raise KeyError(
            f"an optimizer has a parameter of shape {tuple(parameter.shape)} that is not in the model: pass the model it was made for"
        )
    return names[parameter][0]


def by_numbers(optimizer: Optimizer, saved: dict[str, Any], names: ParamNames, strict: bool) -> dict[str, Any]:
    """What `optimizer.load_state_dict` takes, from a state by names: of the parameters this optimizer has, in its order and groups."""
    state, groups = {}, []
    number = 0
    for group in optimizer.param_groups:
        numbers, options = [], {key: value for key, value in group.items() if key != PARAMS}
        own: set[str] = set()
        for parameter in group[PARAMS]:
            name = next((name for name in names.get(parameter, ()) if name in saved[STATE]), None)
            own.update(names.get(parameter, ()))
            if name is not None:
                state[number] = saved[STATE][name]
            elif strict and parameter.requires_grad and optimizer.state.get(parameter):
                raise RuntimeError(
                    f"Missing optimizer state for parameter '{_first_name(parameter, names)}' in checkpoint. The parameter requires gradients but has no saved "
                    "optimizer state. To load anyway, use StateDictOptions(strict=False)."
                )
            elif parameter in optimizer.state:
                state[number] = optimizer.state[parameter]  # what it has already
            numbers.append(number)
            number += 1
        for saved_group in saved[GROUPS]:
            if own.intersection(saved_group[PARAMS]):
                options |= {key: value for key, value in saved_group.items() if key != PARAMS}
        groups.append({**options, PARAMS: numbers})
    return {STATE: state, GROUPS: groups}


# -- flat ----------------------------------------------------------------------------------------------------------


def flattened(state: dict[str, Any]) -> dict[str, Any]:
    """One dictionary for all: what a group says stands for each of its parameters, so that any other grouping can be made of it."""
    flat: dict[str, Any] = {}
    for name, entries in state[STATE].items():
        _flatten(entries, f"{STATE}.{name}", flat)
    for group in state[GROUPS]:
        options = {key: value for key, value in group.items() if key != PARAMS}
        for name in group[PARAMS]:
            _flatten(options, f"{GROUPS}.{name}", flat)
    return flat


def _flatten(entries: dict[Any, Any], prefix: str, flat: dict[str, Any]) -> None:
    for key, value in entries.items():
        if isinstance(value, dict):
            _flatten(value, f"{prefix}.{key}", flat)
        else:
            flat[f"{prefix}.{key}"] = value


def _taken(flat: dict[str, Any], prefix: str, like: Any) -> Any:
    """What stands in a flat state where an optimizer has `like`; nothing if it has not all of it."""
    if not isinstance(like, dict):
        return flat.get(prefix, NOTHING)
    found = {key: _taken(flat, f"{prefix}.{key}", inside) for key, inside in like.items()}
    return NOTHING if any(value is NOTHING for value in found.values()) else found


def _taken_of(flat: dict[str, Any], prefix: str, like: dict[Any, Any]) -> dict[Any, Any]:
    """Those entries of a dictionary that a flat state has."""
    found = {key: _taken(flat, f"{prefix}.{key}", value) for key, value in like.items()}
    return {key: value for key, value in found.items() if value is not NOTHING}


class NOTHING:
    """There is none."""


def unflattened(optimizer: Optimizer, flat: dict[str, Any], names: ParamNames, strict: bool) -> dict[str, Any]:
    """The state by names that a flat one says for this optimizer. RuntimeError where parameters of one group were saved with different options."""
    with_state(optimizer)
    state: dict[str, Any] = {}
    groups = []
    for group in optimizer.param_groups:
        options: dict[str, Any] = {}
        own: list[str] = []
        for parameter in group[PARAMS]:
            for name in names.get(parameter, ()):
                entries = _taken_of(flat, f"{STATE}.{name}", optimizer.state.get(parameter, {}))
                if entries:
                    state[name] = entries
                said = _taken_of(flat, f"{GROUPS}.{name}", {key: value for key, value in group.items() if key != PARAMS})
                differing = [key for key, value in said.items() if key in options and _differ(options[key], value)]
                if differing:
                    raise RuntimeError(
                        f"All the parameters in the same parameter group should have the same saved param_group value. But {name}.{differing[0]} is "
                        f"{said[differing[0]]!r} while {own[0]}'s is {options[differing[0]]!r}: put them into different groups, as they were when saved"
                    )
                if said or not strict:
                    own.append(name)
                options |= said
        groups.append({**options, PARAMS: own})
    return {STATE: state, GROUPS: groups}


def _differ(one: Any, other: Any) -> bool:
    return bool((one != other).any()) if isinstance(one, Tensor) else one != other
