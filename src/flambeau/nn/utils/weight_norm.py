"""Weight normalization as a hook: w = g v / ‖v‖, recomputed before every forward. `parametrizations.weight_norm` is the newer form."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.eager import bind
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import UninitializedParameter
from flambeau.parameter import Parameter
from flambeau.tensor import Tensor

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """The norm over all dimensions but one (over all, if dim is None or -1), with dimensions kept."""
    return bind.functions["norm_except_dim"](v, 2, -1 if dim is None else dim)


def weight_of(g: Tensor, v: Tensor, dim: int | None) -> Tensor:
    """g v / ‖v‖."""
    return v * (g / norm_except(v, dim))


class WeightNorm:
    """The hook: it sets the weight of the module from g and v."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Any:
        return weight_of(getattr(module, self.name + "_g"), getattr(module, self.name + "_v"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        made = WeightNorm(name, dim)
        weight = getattr(module, name)
        if isinstance(weight, UninitializedParameter):
            raise ValueError("The module passed to `WeightNorm` can't have uninitialized parameters: run a dummy forward first")
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(norm_except(weight, made.dim).data))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, made.compute_weight(module))
        module.register_forward_pre_hook(made)
        return made

    def remove(self, module: Module) -> None:
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replace the parameter `name` by its length (name_g) and direction (name_v)."""
    said = "`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`."
    warnings.warn(said, FutureWarning, stacklevel=2)
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the parameter an ordinary one again, with its present value."""
    for number, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[number]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
