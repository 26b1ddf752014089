"""flambeau.func: programs as functions. So far `functional_call`, which makes a module a function of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.nn.utils import stateless
from flambeau.tensor import Tensor

__all__ = ["functional_call"]


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
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        keys = [key for d in parameter_and_buffer_dicts for key in d]
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        given = {key: tensor for d in parameter_and_buffer_dicts for key, tensor in d.items()}
    else:
        wanted = "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts"
        raise ValueError(f"{wanted}, but got {type(parameter_and_buffer_dicts)}")
    return stateless._functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)
