"""States of optimizers by names of the program's parameters, with whole tensors or DTensors; and back to what an optimizer of the pieces takes.

    of the optimizer   {"state": {0: {"exp_avg": (this rank's part)}},       "param_groups": [{"lr": 0.1, "params": [0]}]}
    by names           {"state": {"0.weight": {"exp_avg": (5, 3)}, ...},     "param_groups": [{"lr": 0.1, "params": ["0.weight", "0.bias"]}]}

What has the shape of the parameter is gathered as the parameter is: for each wrapper, one collective for each entry. Numbers and tensors without dimensions are
the same on all ranks that have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from flambeau import distributed as dist
from flambeau import dtypes
from flambeau.distributed.checkpoint.whole_tensors import broadcast_like
from flambeau.distributed.fsdp._wrapped.ignored import is_wrapper
from flambeau.distributed.fsdp._wrapped.layout import Place, clean
from flambeau.distributed.fsdp._wrapped.state_dicts import _on_cpu
from flambeau.distributed.fsdp._wrapped.unit import Unit
from flambeau.distributed.tensor import DTensor
from flambeau.modes import no_grad
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories

STATE, GROUPS, PARAMS = "state", "param_groups", "params"
State = dict[str, Any]


class Part(NamedTuple):
    """A parameter of the program, in a unit."""

    unit: Unit
    place: Place


class Model:
    """The parameters of a model by their names."""

    def __init__(self, model: Module):
        self.units: list[Unit] = []
        self.parts: dict[str, Part] = {}
        self.names: dict[int, list[str]] = {}  # by the id of what the optimizer has
        for prefix, module in model.named_modules():
            unit = module._handle if is_wrapper(module) else None  # type: ignore[attr-defined]
            if unit is not None:
                self._add(unit, clean(f"{prefix}." if prefix else ""))
        for name, parameter in model.named_parameters():
            self.names.setdefault(id(parameter), [clean(name)])

    def _add(self, unit: Unit, prefix: str) -> None:
        self.units.append(unit)
        for place in unit.layout.places:
            name = prefix + place.names[0]
            self.parts[name] = Part(unit, place)
            self.names.setdefault(id(place.parameter if unit._use_orig_params else unit.flat_param), []).append(name)

    def names_of(self, parameter: Any) -> list[str]:
        """Of what an optimizer has: one name, or those in a flat parameter."""
        if id(parameter) not in self.names:
            raise KeyError(
                f"an optimizer has a parameter of shape {tuple(parameter.shape)} that is not in the model: it was made before the model was wrapped, or for "
                "another one. Make it from model.parameters() after wrapping"
            )
        return self.names[id(parameter)]


def groups_of(model: Module, optimizer: Any, optim_input: Any = None) -> list[dict[str, Any]]:
    """The parameter groups of an optimizer, or what it would have been made from: groups, parameters, or all of the model."""
    if optim_input is None and optimizer is not None:
        return optimizer.param_groups
    given: list[Any] = list(model.parameters() if optim_input is None else optim_input)
    if given and isinstance(given[0], dict):
        return [{**group, PARAMS: list(group[PARAMS])} for group in given]
    return [{PARAMS: given}]


# -- to names ------------------------------------------------------------------------------------------------------


def by_names(
    model: Module, groups: Sequence[dict[str, Any]], state: State, *, whole: bool, rank0_only: bool, on_cpu: bool, group: Any
) -> State:
    """The state of an optimizer by names. All ranks take part; with rank0_only the others get nothing."""
    known = Model(model)
    parameters = [p for one in groups for p in one[PARAMS]]
    empty = rank0_only and dist.get_rank(group) != 0
    own: dict[str, dict[str, Any]] = {}  # by the first name of what the optimizer has
    for key, entries in state[STATE].items():
        own[clean(key) if isinstance(key, str) else known.names_of(parameters[key])[0]] = entries
    everyone = _outlines(own, known, group)
    found: dict[str, dict[str, Any]] = {}
    with no_grad():
        for unit in known.units:
            _gather(unit, known, own, everyone, found, whole=whole, on_cpu=on_cpu, empty=empty)
        for name, entries in own.items():
            if name not in known.parts:  # nobody divides it
                found[name] = {key: _on_cpu(value) if on_cpu and isinstance(value, Tensor) else value for key, value in entries.items()}
    if empty:
        return {}
    order = [name for p in parameters for name in known.names_of(p)]
    listed = []
    for one in state[GROUPS]:
        keys = [known.names_of(parameters[key]) if not isinstance(key, str) else [clean(key)] for key in one[PARAMS]]
        listed.append({**one, PARAMS: [name for names in keys for name in names]})
    return {STATE: {name: found[name] for name in [*order, *(set(found) - set(order))] if name in found}, GROUPS: listed}


class _Outline(NamedTuple):
    """That there is a tensor of the shape of the parameter, on some rank."""

    dtype: Any


def _outlines(own: dict[str, dict[str, Any]], known: Model, group: Any) -> dict[str, dict[str, Any]]:
    """What any rank has, by names: outlines of tensors, and the rest as it is. A rank whose part of a parameter is empty has no state of it."""
    mine = {name: {key: _outline(value) for key, value in entries.items()} for name, entries in own.items() if name in known.parts}
    everyone: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group=group)
    together: dict[str, dict[str, Any]] = {}
    for one in everyone:
        for name, entries in one.items():
            together.setdefault(name, {}).update({key: value for key, value in entries.items() if key not in together.get(name, {})})
    return together


def _outline(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return _Outline(str(value.dtype)) if value.dim() else value.detach().cpu()


def _gather(
    unit: Unit, known: Model, own: dict[str, dict[str, Any]], everyone: dict[str, dict[str, Any]], found: dict[str, dict[str, Any]], *, whole: bool,
    on_cpu: bool, empty: bool,
) -> None:  # fmt: skip
    """The states of the parameters of a unit."""
    named = {name: part.place for name, part in known.parts.items() if part.unit is unit}
    sources = dict.fromkeys(named) if unit._use_orig_params else {next(iter(named)): None}  # the names under which optimizers have a state
    keys = dict.fromkeys(key for name in sources for key, value in everyone.get(name, {}).items() if isinstance(value, _Outline))
    for key in keys:
        dtype = next(value.dtype for name in sources if isinstance(value := everyone.get(name, {}).get(key), _Outline))
        piece = factories.zeros((unit.layout.per_rank,), dtype=_dtype(dtype), device=unit.device)
        for name in sources:
            value = own.get(name, {}).get(key)
            if isinstance(value, Tensor):
                start, stop = unit.layout.extent(named[name]) if unit._use_orig_params else (0, unit.layout.per_rank)
                _check_size(value, stop - start, name, key)
                piece[start:stop].copy_(value.reshape(-1))
        flat = unit.gathered(piece)
        for name, place in named.items():
            if empty or (unit._use_orig_params and not isinstance(everyone.get(name, {}).get(key), _Outline)):
                continue
            value = unit.layout.view(flat, place)
            value = value.clone() if whole or not unit.uses_sharded_strategy else unit.distributed(value)
            found.setdefault(name, {})[key] = _on_cpu(value) if on_cpu else value
        del flat
    for name in named:
        for key, value in everyone.get(name if unit._use_orig_params else next(iter(named)), {}).items():
            if not isinstance(value, _Outline):
                found.setdefault(name, {})[key] = value.clone() if isinstance(value, Tensor) else value


def _check_size(value: Tensor, elements: int, name: str, key: str) -> None:
    if value.numel() != elements:
        raise ValueError(
            f"the state {key!r} of {name} has {value.numel()} elements where this rank has {elements} of the parameter: only states of the shape of their "
            "parameters, and numbers, can be gathered"
        )


def _dtype(name: str) -> Any:
    return getattr(dtypes, name.removeprefix("torch."))


# -- from names ----------------------------------------------------------------------------------------------------


def to_load(
    model: Module, groups: Sequence[dict[str, Any]], state: State, *, sent: bool = False, by_name: bool = False, group: Any = None
) -> State:
    """What an optimizer with these groups takes for a state by names. `sent`: rank 0 has it, and sends it."""
    known = Model(model)
    if sent:
        device = known.units[0].device if known.units else None
        state = broadcast_like(state if dist.get_rank(group) == 0 else {}, {}, device, group)
    parameters = [p for one in groups for p in one[PARAMS]]
    found: dict[Any, dict[str, Any]] = {}
    with no_grad():
        for number, parameter in enumerate(parameters):
            names = known.names_of(parameter)
            entries = _entries(known, names, state[STATE])
            if entries:
                found[names[0] if by_name else number] = entries
    listed, number = [], 0
    for one in groups:
        own = {name for p in one[PARAMS] for name in known.names_of(p)}
        saved = next((other for other in state[GROUPS] if own.intersection(other[PARAMS])), one)
        ids = list(range(number, number + len(one[PARAMS])))
        number += len(ids)
        keys: list[Any] = [known.names_of(p)[0] for p in one[PARAMS]] if by_name else ids
        listed.append({**{key: value for key, value in saved.items() if key != PARAMS}, PARAMS: keys})
    return {STATE: found, GROUPS: listed}


def _entries(known: Model, names: Sequence[str], saved: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the optimizer has for one parameter of its own: for a flat one, of all that lie in it."""
    if names[0] not in known.parts:
        return dict(saved.get(names[0], {}))
    entries: dict[str, Any] = {}
    for name in names:
        unit, place = known.parts[name]
        start, stop = unit.layout.extent(place)
        for key, value in saved.get(name, {}).items():
            if not isinstance(value, Tensor) or not value.dim():
                entries.setdefault(key, value)
                continue
            whole = value.full_tensor() if isinstance(value, DTensor) else value
            if whole.size() != place.shape:
                raise ValueError(
                    f"the state {key!r} of {name} has shape {tuple(whole.shape)}, the parameter {tuple(place.shape)}: they are of two models"
                )
            begin = unit.layout.rank * unit.layout.per_rank + start - place.start
            own = whole.reshape(-1)[begin : begin + stop - start] if stop > start else whole.reshape(-1)[:0]
            if unit._use_orig_params:
                entries[key] = own.clone() if unit.uses_sharded_strategy else own.clone().view(place.shape)
            else:
                if key not in entries:
                    entries[key] = factories.zeros((unit.layout.per_rank,), dtype=whole.dtype, device=whole.device)
                entries[key][start:stop].copy_(own)
    here = [known.parts[name] for name in names]
    if here[0].unit._use_orig_params and not any(stop > start for start, stop in (unit.layout.extent(place) for unit, place in here)):
        return {}  # nothing of it is on this rank
    return entries


def rekeyed(model: Module, groups: Sequence[dict[str, Any]], state: State, *, by_name: bool) -> State:
    """The state of an optimizer of a model without wrappers, by names in place of numbers or the other way round."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    order = [names[id(p)] for one in groups for p in one[PARAMS]]
    new: dict[Any, Any] = dict(enumerate(order)) if by_name else {name: number for number, name in enumerate(order)}

    def keys(given: Iterable[Any]) -> list[Any]:
        return [new[key] for key in given]

    return {
        STATE: {new[key]: entries for key, entries in state[STATE].items()},
        GROUPS: [{**one, PARAMS: keys(one[PARAMS])} for one in state[GROUPS]],
    }
