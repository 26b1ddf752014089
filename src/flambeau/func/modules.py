"""Modules as functions: of their parameters and buffers, one set at a time or many of them stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from flambeau.nn.modules.module import Module
from flambeau.nn.utils import stateless
from flambeau.ops import OPS
from flambeau.tensor import Tensor


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """module(*args, **kwargs) with the tensors of a dictionary (or several) in the place of its parameters and buffers.

    tie_weights  a tensor given for one name of a shared parameter stands for its other names, too
    strict       all parameters and buffers must be given, and nothing else
    """
    if isinstance(parameter_and_buffer_dicts, dict):
        given = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        if not all(isinstance(d, dict) for d in parameter_and_buffer_dicts):
            raise ValueError("functional_call: parameters and buffers are given in dictionaries, and one of these is none")
        keys = [key for d in parameter_and_buffer_dicts for key in d]
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        if repeated:
            raise ValueError(f"functional_call: {repeated} appeared in multiple dictionaries; which one is meant?")
        given = {key: tensor for d in parameter_and_buffer_dicts for key, tensor in d.items()}
    else:
        wanted = "Expected parameter_and_buffer_dicts to be a dict, or several in a list or tuple"
        raise ValueError(f"{wanted}, but got {type(parameter_and_buffer_dicts)}")
    return stateless._functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models: Sequence[Module] | Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(parameters, buffers) of several modules of one class, each name's tensors stacked: what vmap maps functional_call over.

    >>> parameters, buffers = stack_module_state([nn.Linear(2, 3) for _ in range(4)])
    >>> tuple(parameters["weight"].shape)
    (4, 3, 2)
    """
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: some models train and some do not; all need the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = {name: _stacked([dict(m.named_parameters())[name] for m in models]) for name, _ in models[0].named_parameters()}
    buffers = {name: _stacked([dict(m.named_buffers())[name] for m in models]) for name, _ in models[0].named_buffers()}
    return parameters, buffers


def _stacked(tensors: list[Tensor]) -> Tensor:
    """Leaves stay leaves: the stack is a new parameter, not a function of the old ones."""
    if all(t.requires_grad and t.is_leaf for t in tensors):
        return OPS["stack"](tensors).detach().requires_grad_()
    if not any(t.requires_grad for t in tensors):
        return OPS["stack"](tensors)
    raise RuntimeError("Expected all parameters that are stacked to have the same .requires_grad, and to be leaves.")


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Make all batch norms below `root` forget their running statistics and use those of each batch: they could not be updated inside vmap."""
    for module in root.modules():
        if isinstance(module, (BatchNorm1d, BatchNorm2d, BatchNorm3d)):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
