"""flambeau.nn.functional: the operations whose name starts with `nn.functional.`; they are declared in the `ops` room."""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from flambeau.eager import bind as _bind

if _TYPE_CHECKING:
    from flambeau._surface.nn_functional import *

globals().update(vars(_bind.namespace("nn.functional")))
__all__ = sorted(vars(_bind.namespace("nn.functional")))

# What PyTorch's file of this name holds besides, and layers copied from PyTorch's ask it for: name -> (module, name there or None for itself).
_BESIDES: dict[str, tuple[str, str | None]] = {
    "Tensor": ("tensor", "Tensor"), "_Reduction": ("nn._reduction", None), "_VF": ("_VF", None), "grad": ("nn.grad", None),
    "_canonical_mask": ("ops.multihead", "canonical_mask"), "_none_or_dtype": ("ops.multihead", "none_or_dtype"),
    "_in_projection_packed": ("ops.multihead", "projected"), "_in_projection": ("ops.multihead", "projected_apart"),
    "_get_softmax_dim": ("ops.softmax", "implicit_dim"), "_mha_shape_check": ("ops.multihead", "check_shapes"),
    **{name: ("nn.scaled_products", name) for name in ("ScalingType", "SwizzleType", "scaled_grouped_mm", "scaled_mm")},
    **{name: ("nn.modules.utils", name) for name in ("_single", "_pair", "_triple", "_list_with_default")},
    **{name: ("overrides", name) for name in ("handle_torch_function", "has_torch_function", "has_torch_function_unary",
                                              "has_torch_function_variadic")},
}  # fmt: skip


def __getattr__(name: str):
    if name not in _BESIDES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, inside = _BESIDES[name]
    module = _import_module(f"flambeau.{home}")
    globals()[name] = found = module if inside is None else getattr(module, inside)
    return found
