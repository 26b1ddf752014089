"""Modules without parameters of their own: `make_functional` and its relatives. torch.func.functional_call has taken their place."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau import errors
from flambeau.func.modules import functional_call, stack_module_state
from flambeau.nn.modules.module import Module
from flambeau.nn.utils import stateless
from flambeau.tensor import Tensor

Names = tuple[str, ...]


class FunctionalModuleWithBuffers(Module):
    """model(parameters, buffers, *args): `stateless_model` with these tensors.

    param_names, buffer_names   for each tensor, the names it has in the module: several if it is shared
    """

    def __init__(self, stateless_model: Module, param_names: Sequence[Names], buffer_names: Sequence[Names] = ()) -> None:
        super().__init__()
        self.stateless_model = stateless_model
        self.param_names, self.buffer_names = tuple(param_names), tuple(buffer_names)

    def forward(self, params: Sequence[Tensor], buffers: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        wanted, tensors = (*self.param_names, *self.buffer_names), (*params, *buffers)
        if len(wanted) != len(tensors):
            shown = ", ".join(names[0] for names in wanted)
            raise RuntimeError(f"expected {len(wanted)} parameters and buffers ({shown}), found {len(tensors)}")
        given = {name: tensor for names, tensor in zip(wanted, tensors, strict=True) for name in names}
        return functional_call(self.stateless_model, given, args, kwargs)


class FunctionalModule(FunctionalModuleWithBuffers):
    """The same of a module without buffers: model(parameters, *args)."""

    def forward(self, params: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        return super().forward(params, (), *args, **kwargs)


def make_functional(model: Module, disable_autograd_tracking: bool = False) -> tuple[FunctionalModule, tuple[Tensor, ...]]:
    """(the module as a function of its parameters, copies of these). With `disable_autograd_tracking` they require no gradient."""
    _renamed("make_functional", "torch.func.functional_call")
    if next(model.buffers(), None) is not None:
        raise RuntimeError("make_functional(model): the model has buffers, for which there is make_functional_with_buffers(model).")
    names, params = _taken(model.named_parameters(remove_duplicate=False), disable_autograd_tracking)
    return FunctionalModule(_hollow(model), names), params


def make_functional_with_buffers(
    model: Module, disable_autograd_tracking: bool = False
) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(the module as a function of its parameters and buffers, copies of both)."""
    _renamed("make_functional_with_buffers", "torch.func.functional_call")
    names, params = _taken(model.named_parameters(remove_duplicate=False), disable_autograd_tracking)
    buffer_names, buffers = _taken(model.named_buffers(remove_duplicate=False), False)
    return FunctionalModuleWithBuffers(_hollow(model), names, buffer_names), params, buffers


def combine_state_for_ensemble(models: Sequence[Module]) -> tuple[FunctionalModuleWithBuffers, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(one of the modules as a function, the parameters of all of them stacked, their buffers stacked): for vmap."""
    _renamed("combine_state_for_ensemble", "torch.func.stack_module_state")
    if not models:
        raise RuntimeError("combine_state_for_ensemble: Expected at least one model, found none.")
    params, buffers = stack_module_state(models)
    tied = [tuple(sorted(group)) for group in stateless._tied_groups(models[0])]
    names = [[next((group for group in tied if name in group), (name,)) for name in stacked] for stacked in (params, buffers)]
    model = FunctionalModuleWithBuffers(_hollow(models[0]), *names)
    return model, tuple(params.values()), tuple(buffers.values())


def _taken(named: Iterator[tuple[str, Tensor]], detached: bool) -> tuple[tuple[Names, ...], tuple[Tensor, ...]]:
    """(the names of each tensor, copies of the tensors)."""
    tensors: dict[int, Tensor] = {}
    names: dict[int, list[str]] = {}
    for name, tensor in named:
        tensors[id(tensor)] = tensor
        names.setdefault(id(tensor), []).append(name)
    copies = copy.deepcopy(list(tensors.values()))
    return tuple(map(tuple, names.values())), tuple(t.detach() for t in copies) if detached else tuple(copies)


def _hollow(model: Module) -> Module:
    """A copy of the module whose tensors hold nothing, so that they cannot be used by mistake."""
    return copy.deepcopy(model).to("meta")


def _renamed(name: str, today: str) -> None:
    errors.warn(f"functorch.{name} is deprecated: functorch became torch.func. Please use {today} instead.", FutureWarning)
