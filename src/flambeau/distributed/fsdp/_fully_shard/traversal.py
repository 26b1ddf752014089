"""Which modules and parameters belong to a call of fully_shard: all below the given modules that no earlier call has taken."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from flambeau.distributed.fsdp._fully_shard.state import state_of
from flambeau.distributed.tensor import DTensor
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor


def check_modules(modules: Sequence[Module]) -> None:
    """ValueError for what has no forward, AssertionError for what has been given to fully_shard before."""
    for module in modules:
        if not isinstance(module, Module):
            raise ValueError(f"fully_shard expects a module or a list of modules, found {type(module).__name__}")
        if isinstance(module, (ModuleList, ModuleDict)) and type(module).forward is Module.forward:
            raise ValueError(
                f"fully_shard does not support containers that do not implement forward: {module}\nCall it on each of the modules in it, or on the "
                "list of them, fully_shard([*modules]), which makes one group of all"
            )
        if state_of(module) is not None:
            raise AssertionError(
                "Each distinct composable distributed API can only be applied to a module once. fully_shard has already been applied to the following "
                f"module:\n{module}"
            )


def managed(modules: Sequence[Module]) -> list[Module]:
    """The modules, and those below them that no earlier call has taken, each once, the innermost first."""
    found: dict[Module, None] = {}

    def visit(module: Module) -> None:
        if module in found or (module not in modules and state_of(module) is not None):
            return
        for child in module.children():
            visit(child)
        found[module] = None

    for module in modules:
        visit(module)
    return list(found)


def parameters(modules: Sequence[Module], ignored: Collection[Parameter]) -> list[Parameter]:
    """The parameters of these modules, each once."""
    left_out = set(map(id, ignored))
    found: dict[int, Any] = {}
    for module in modules:
        for name, param in module._parameters.items():
            if param is None or id(param) in left_out:
                continue
            if not param.dim():
                raise ValueError(
                    f"fully_shard doesn't support scalar parameters. Change {name} of {type(module).__name__} to a 1D tensor with numel equal to 1"
                )
            found[id(param)] = param
    return list(found.values())


def move(tensors: Sequence[Tensor], device: Any) -> None:
    """Bring parameters and buffers to where the mesh is; those on the meta device stay, to be made later."""
    for tensor in tensors:
        if tensor.is_meta:
            continue
        if isinstance(tensor, DTensor):
            if tensor.device_mesh.device_type != device.type:
                raise ValueError(
                    "Requires DTensor to have mesh of the same type as the FSDP mesh "
                    f"but got {tensor.device_mesh.device_type} for DTensor and {device.type} for FSDP"
                )
        elif tensor.device != device:
            tensor.data = tensor.data.to(device)
