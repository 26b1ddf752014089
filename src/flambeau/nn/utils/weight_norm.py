"""Weight normalization as a hook: w = g v / ‖v‖, recomputed before every forward. `parametrizations.weight_norm` is the newer form."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.eager import bind
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import is_lazy
from flambeau.tensor import Tensor
from flambeau.tensor.making.parameter import Parameter

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def norm_except(v: Tensor, dim: int | None) -> Tensor:
    """The norm over all dimensions but one (over all, if dim is None or -1), with dimensions kept."""
    return bind.functions["norm_except_dim"](v, 2, -1 if dim is None else dim)


def weight_of(g: Tensor, v: Tensor, dim: int | None) -> Tensor:
    """g v / ‖v‖."""
    return v * (g / norm_except(v, dim))


def numbers_of(kind: type, module: Module, name: str) -> list[int]:
    """The numbers under which hooks of a kind that make the parameter `name` are registered."""
    return [number for number, hook in module._forward_pre_hooks.items() if isinstance(hook, kind) and hook.name == name]  # type: ignore[attr-defined]


def check_free(kind: type, module: Module, name: str, said: str) -> None:
    """An error if a parameter already is made by a hook of this kind, or has no shape yet."""
    if numbers_of(kind, module, name):
        raise RuntimeError(f"Cannot register two {said} hooks on one parameter: {name} of {module._get_name()} has one")
    if is_lazy(getattr(module, name)):
        raise ValueError(f"{kind.__name__}: {module._get_name()} must not have uninitialized parameters. Call it once, on a sample, before")


class WeightNorm:
    """The hook. The parameter `name` of a module gives way to two, its length `name_g` and its direction `name_v`."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    @property
    def parts(self) -> tuple[str, str]:
        """The names of length and direction."""
        return f"{self.name}_g", f"{self.name}_v"

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Take the parameter apart, and put it together again before every forward."""
        check_free(WeightNorm, module, name, "weight_norm")
        hook = WeightNorm(name, dim)
        whole = module._parameters.pop(name).detach()
        for part, value in zip(hook.parts, (norm_except(whole, hook.dim), whole), strict=True):
            module.register_parameter(part, Parameter(value))
        hook(module, ())
        module.register_forward_pre_hook(hook)
        return hook

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))

    def compute_weight(self, module: Module) -> Any:
        """The parameter as its parts say it is now."""
        length, direction = (getattr(module, part) for part in self.parts)
        return weight_of(length, direction, self.dim)

    def remove(self, module: Module) -> None:
        """One parameter again, with the present value."""
        value = self.compute_weight(module).detach()
        for attribute in (self.name, *self.parts):
            delattr(module, attribute)
        module.register_parameter(self.name, Parameter(value))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Replace the parameter `name` by its length (name_g) and direction (name_v)."""
    said = "`torch.nn.utils.weight_norm` is deprecated: `torch.nn.utils.parametrizations.weight_norm` does the same, and can be stacked"
    warnings.warn(said, FutureWarning, stacklevel=2)
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make the parameter an ordinary one again, with its present value."""
    for number in numbers_of(WeightNorm, module, name)[:1]:
        hook: Any = module._forward_pre_hooks.pop(number)
        hook.remove(module)
        return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
