"""FakeSparsity: a parametrization that multiplies a weight by a mask; and the names by which weights are found in a model."""

from __future__ import annotations

from typing import Any

from flambeau.nn import Module
from flambeau.tensor import Tensor

__all__ = ["FakeSparsity", "fqn_to_module", "get_arg_info_from_tensor_fqn", "module_to_fqn"]


class FakeSparsity(Module):
    """weight -> mask * weight. The mask belongs to whoever made it, and is in no state_dict."""

    mask: Tensor

    def __init__(self, mask: Tensor):
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        if self.mask.shape != x.shape:
            raise AssertionError(f"FakeSparsity: mask shape ({self.mask.shape}) and x shape ({x.shape}) must match")
        return self.mask * x

    def state_dict(self, *args: Any, **kwargs: Any) -> dict:
        """Nothing: the sparsifier keeps the mask."""
        return {}


def fqn_to_module(model: Module | None, path: str) -> Any:
    """What has a name such as "layers.0.linear" in a model; None if nothing has."""
    found: Any = model
    for name in path.split(".") if path else ():
        found = getattr(found, name, None)
    return found


def module_to_fqn(model: Module, module: Module, prefix: str = "") -> str | None:
    """The name of a module in a model; None if it is not there."""
    return next((prefix + name for name, found in model.named_modules() if found is module), None)


def get_arg_info_from_tensor_fqn(model: Module, tensor_fqn: str) -> dict[str, Any]:
    """The module that a parameter is in, and both names, of the parameter's full name."""
    path, _, name = tensor_fqn.rpartition(".")
    return {"module_fqn": path, "module": fqn_to_module(model, path), "tensor_name": name, "tensor_fqn": tensor_fqn}
