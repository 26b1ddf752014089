"""States of models and optimizers under the names of the model alone: the same with and without wrappers, on any number of ranks.

model_state, optimizer_state = get_state_dict(model, optimizer)
dist.checkpoint.load({"model": model_state, "optimizer": optimizer_state}, checkpoint_id="checkpoint")
set_state_dict(model, optimizer, model_state_dict=model_state, optim_state_dict=optimizer_state)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flambeau import devices
from flambeau.distributed.checkpoint import of_wrappers
from flambeau.distributed.checkpoint.canonical_names import ALWAYS, canonical, names_of_tensors
from flambeau.distributed.checkpoint.optimizer_names import GROUPS, PARAMS, STATE, by_names, by_numbers, flattened, unflattened, with_state
from flambeau.distributed.checkpoint.resharding import local_tensor
from flambeau.distributed.checkpoint.whole_tensors import broadcast_like, distributed_like, gathered, offloaded
from flambeau.distributed.collectives.world import _get_pg_default_device
from flambeau.modes import no_grad
from flambeau.nn.modules.module import Module, _IncompatibleKeys
from flambeau.optim.optimizer import Optimizer
from flambeau.tensor import Tensor

__all__ = [
    "FQNS_T", "DictValueType", "ListDictValueType", "OptimizerStateType", "PrimitiveType", "StateDictOptions", "ValueType",
    "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict", "set_optimizer_state_dict",
    "set_state_dict",
]  # fmt: skip

FQNS_T: TypeAlias = set[str]
PrimitiveType: TypeAlias = Tensor | int | float | str
ValueType: TypeAlias = Any  # a PrimitiveType, or lists, tuples and dictionaries of them
DictValueType: TypeAlias = dict[str, ValueType]
ListDictValueType: TypeAlias = list[DictValueType]
OptimizerStateType: TypeAlias = dict[str, DictValueType | ListDictValueType]


@dataclass
class StateDictOptions:
    """What the functions of this file do besides.

    full_state_dict                whole tensors instead of each rank's part
    cpu_offload                    in main memory; together with full_state_dict, on rank 0 alone
    ignore_frozen_params           without parameters that take no gradients
    keep_submodule_prefixes        deprecated, with `submodules`: False takes the module's own name off
    strict                         as in load_state_dict
    broadcast_from_rank0           when setting: only rank 0 has the state, and sends it; with full_state_dict
    flatten_optimizer_state_dict   one flat dictionary for an optimizer, which can be loaded into other groups
    dsd_fqn_modifiers              the method of modules that says which names are left out
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, ValueType]:
    """`model.state_dict()` under canonical names, and as `options` say."""
    return _model_state(model, _View.of(model, options, submodules))


def get_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> OptimizerStateType:
    """The states of optimizers together, by canonical names of the parameters in place of numbers. An optimizer that has not made a step yet makes its state
    first, so that there is something that a checkpoint can be loaded into."""
    return _optimizer_state(_tuple(optimizers, required=True), _View.of(model, options, submodules))


def get_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, ValueType], OptimizerStateType]:
    """(state of the model, state of the optimizers)."""
    view = _View.of(model, options, submodules)
    chosen = _tuple(optimizers)
    return _model_state(model, view), _optimizer_state(chosen, view) if chosen else {}


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, ValueType], *, options: StateDictOptions | None = None
) -> _IncompatibleKeys:
    """`model.load_state_dict` with canonical names; whole tensors, as `full_state_dict` makes them, are cut into the parts of each rank."""
    view = _View.of(model, options)
    return _load_model(model, _unflatten_model_state_dict(model, model_state_dict), view)


def set_optimizer_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    optim_state_dict: OptimizerStateType,
    *,
    options: StateDictOptions | None = None,
) -> None:
    """`load_state_dict` of each optimizer with its own of a state by names."""
    _load_optimizers(_tuple(optimizers, required=True), optim_state_dict, _View.of(model, options))


def set_state_dict(
    model: Module,
    optimizers: Optimizer | Iterable[Optimizer],
    *,
    model_state_dict: dict[str, ValueType],
    optim_state_dict: OptimizerStateType,
    options: StateDictOptions | None = None,
) -> _IncompatibleKeys:
    """Both at once. The model comes first: an optimizer may have to make its state, which has the shapes of the parameters."""
    view = _View.of(model, options)
    found = _load_model(model, _unflatten_model_state_dict(model, model_state_dict), view)
    chosen = _tuple(optimizers)
    if chosen:
        _load_optimizers(chosen, optim_state_dict, view)
    return found


# -- one model, seen through the options ---------------------------------------------------------------------------


@dataclass
class _View:
    """A model with the options: what its tensors are called."""

    model: Module
    options: StateDictOptions
    names: dict[Tensor, list[str]] = field(default_factory=dict)  # canonical names, several for a shared tensor
    prefixes: tuple[str, ...] = ()  # of the submodules asked for

    @staticmethod
    def of(model: Module, options: StateDictOptions | None, submodules: set[Module] | None = None) -> _View:
        options = StateDictOptions() if options is None else options
        if options.broadcast_from_rank0 and not options.full_state_dict:
            raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True: rank 0 sends whole tensors")
        view = _View(model, options)
        for _, name, found in names_of_tensors(model, options.dsd_fqn_modifiers):
            known = view.names.setdefault(found, [])
            if name not in known:
                known.append(name)
        view.names.update(of_wrappers.names_in_flat(model, options.dsd_fqn_modifiers))
        if submodules:
            warnings.warn(
                "Getting submodules only model/optim state_dict is deprecated and will be removed in 2.5. Take the entries you want out of what "
                "get_state_dict returns",
                FutureWarning,
                stacklevel=3,
            )
            view.prefixes = tuple(f"{canonical(model, name)}." for name, module in model.named_modules() if module in submodules)
        return view

    def is_wanted(self, tensor: Any) -> bool:
        """Whether `ignore_frozen_params` leaves a parameter in."""
        return tensor.requires_grad or not self.options.ignore_frozen_params


def _tuple(optimizers: Optimizer | Iterable[Optimizer], required: bool = False) -> tuple[Optimizer, ...]:
    found = (optimizers,) if isinstance(optimizers, Optimizer) else tuple(optimizers)
    if required and not found:
        raise RuntimeError("Optimizers are not passed in but optim_only is set to True: give at least one optimizer")
    return found


def _as_wanted(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    if options.full_state_dict:
        return gathered(state, cpu_offload=options.cpu_offload, rank0_only=options.cpu_offload)
    return offloaded(state) if options.cpu_offload else state


def _device_of(tensors: Iterable[Tensor]) -> devices.device:
    """Where tensors that are sent between ranks can be: where the model is, or where the group sends from."""
    found = {local_tensor(tensor).device for tensor in tensors if tensor.device.type != "meta"}
    if len(found) > 1:
        raise ValueError(
            f"Multiple devices found: {', '.join(sorted(map(str, found)))}. Whole tensors are sent from one: bring the model to it first"
        )
    if found:
        return found.pop()
    return devices.device(_get_pg_default_device())


# -- models --------------------------------------------------------------------------------------------------------


def _model_state(model: Module, view: _View) -> dict[str, ValueType]:
    options = view.options
    with of_wrappers.in_form(model, whole=options.full_state_dict, cpu_offload=options.cpu_offload):
        given = model.state_dict()
    for name in list(given):  # renaming moves an entry to the end: done for all, the order stays
        given[canonical(model, name, options.dsd_fqn_modifiers)] = given.pop(name)
    if view.prefixes:
        short = {
            name if options.keep_submodule_prefixes else name[len(prefix) :]: value
            for name, value in given.items()
            for prefix in view.prefixes
            if name.startswith(prefix)
        }
        given = type(given)(short)
    if options.ignore_frozen_params:
        for parameter in model.parameters():
            for name in view.names[parameter] if not parameter.requires_grad else ():
                given.pop(name, None)
    with no_grad():
        return _as_wanted(given, options)


def _load_model(model: Module, state: dict[str, ValueType], view: _View) -> _IncompatibleKeys:
    options = view.options
    if not state and not options.broadcast_from_rank0:
        if options.strict and not options.ignore_frozen_params and not (options.cpu_offload and options.full_state_dict):
            raise RuntimeError(
                "The option indicates that model state_dict is required to save or load, but model state_dict is empty: with broadcast_from_rank0=True, rank 0's "
                "is used on all ranks"
            )
        return _IncompatibleKeys([], [])
    like = {name: found for found, names in view.names.items() for name in names}
    assign = False
    divided = bool(of_wrappers.wrappers(model))  # by wrappers, which cut whole tensors themselves
    if options.broadcast_from_rank0:
        state = broadcast_like(state, {} if divided else like, _device_of(like.values()))
    elif options.full_state_dict and not divided:
        state = distributed_like(state, like)
    if options.full_state_dict:
        assign = any(found.device.type == "meta" for found in like.values())
    wrapped = {canonical_name: name for name, canonical_name, _ in names_of_tensors(model, options.dsd_fqn_modifiers)}
    wrapped |= {canonical(model, name, options.dsd_fqn_modifiers): name for name in _extra_states(model)}
    named = {_as_loaded(wrapped.get(name, name)): value for name, value in state.items()}
    with of_wrappers.in_form(model, whole=options.full_state_dict, cpu_offload=False):
        return model.load_state_dict(named, strict=options.strict, assign=assign)


def _as_loaded(name: str) -> str:
    """A name as load_state_dict takes it: some wrappers put themselves into names of their own accord."""
    return ".".join(part for part in name.split(".") if part not in ALWAYS)


def _extra_states(model: Module) -> list[str]:
    """The names of states that modules have besides tensors."""
    suffix = "_extra_state"
    own = Module.get_extra_state
    modules = model.named_modules(remove_duplicate=False)
    return [f"{name}.{suffix}" if name else suffix for name, module in modules if type(module).get_extra_state is not own]


def _unflatten_model_state_dict(model: Module, state_dict: dict[Any, Any]) -> dict[str, ValueType]:
    """A state by names, from one that may have modules as keys, each with the state of that module."""
    if not state_dict or isinstance(next(iter(state_dict)), str):
        return state_dict
    warnings.warn(
        "Passing model_state_dict as a ``Dict[nn.Module, Dict[str, Any]]``is deprecated and will be removed in 2.5: use names for keys",
        FutureWarning,
        stacklevel=3,
    )
    names = {module: canonical(model, name) for name, module in model.named_modules()}
    return {
        f"{names[module]}.{name}" if names[module] else name: value for module, state in state_dict.items() for name, value in state.items()
    }


# -- optimizers ----------------------------------------------------------------------------------------------------


def _optimizer_state(optimizers: tuple[Optimizer, ...], view: _View) -> OptimizerStateType:
    together: dict[str, Any] = {STATE: {}, GROUPS: []}
    divided = of_wrappers.wrappers(view.model)
    for optimizer in optimizers:
        if divided:
            how = {"whole": view.options.full_state_dict, "cpu_offload": view.options.cpu_offload}
            one = of_wrappers.optimizer_state(view.model, optimizer, **how) or {STATE: {}, GROUPS: []}
        else:
            one = by_names(optimizer, view.names)
        together[STATE].update(one[STATE])
        together[GROUPS].extend(one[GROUPS])
    wanted = flattened(together) if view.options.flatten_optimizer_state_dict else together
    with no_grad():
        return _as_wanted(wanted, view.options)


def _load_optimizers(optimizers: tuple[Optimizer, ...], state: dict[str, Any], view: _View) -> None:
    options = view.options
    if not state and not options.broadcast_from_rank0:
        if options.cpu_offload and options.full_state_dict:
            return
        raise RuntimeError(
            "The option indicates that model state_dict is required to save, or load but optim state_dict is empty. {}: save what get_optimizer_state_dict "
            "gives, on every rank"
        )
    for optimizer in optimizers:
        with_state(optimizer)
    divided = of_wrappers.wrappers(view.model)
    if options.broadcast_from_rank0:
        state = broadcast_like(state, {} if divided else _likeness(optimizers, state, view), _device_of(view.names))
    elif options.full_state_dict and not divided:
        state = distributed_like(state, _likeness(optimizers, state, view))
    for optimizer in optimizers:
        own = state if STATE in state else unflattened(optimizer, state, view.names, options.strict)
        if divided:
            of_wrappers.load_optimizer(view.model, optimizer, own, view.names, options.strict)
            continue
        optimizer.load_state_dict(by_numbers(optimizer, own, view.names, options.strict))


def _likeness(optimizers: tuple[Optimizer, ...], state: dict[str, Any], view: _View) -> dict[str, Any]:
    """The states that the optimizers have now, in the form of the one to be loaded and under every name of a parameter: how its entries are laid out."""
    by_name: dict[str, Any] = {}
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group[PARAMS]:
                by_name |= {name: optimizer.state.get(parameter, {}) for name in view.names.get(parameter, ())}
    flat = {f"{STATE}.{name}.{key}": value for name, entries in by_name.items() for key, value in entries.items()}
    return {STATE: by_name, **flat}
