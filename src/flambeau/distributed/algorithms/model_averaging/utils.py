"""The mean of parameters over a group: the name of this file is PyTorch's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from flambeau.autograd.grad_mode import no_grad
from flambeau.distributed.data_parallel.arguments import default_group
from flambeau.ops.joining import cat
from flambeau.tensor import Tensor

__all__ = ["average_parameters", "average_parameters_or_parameter_groups", "get_params_to_average"]


def average_parameters(params: Iterator[Tensor], process_group: Any) -> None:
    """Replace the parameters by their mean over the group; those who do not belong to it do nothing."""
    group = process_group if process_group is not None else default_group(None, None)
    if not hasattr(group, "allreduce"):  # what is not a member
        return
    tensors = list(params)
    with no_grad():
        flat = cat([p.detach().reshape(-1) for p in tensors])
        flat /= group.size()
        group.allreduce([flat]).wait()
        start = 0
        for p in tensors:
            p.copy_(flat[start : start + p.numel()].view_as(p))
            start += p.numel()


def get_params_to_average(params: Iterable[Tensor] | Iterable[dict[str, Any]]) -> list[Tensor]:
    """Those with a gradient, of a list of parameters or of an optimizer's groups."""
    found: list[Tensor] = []
    for given in params:
        if isinstance(given, Tensor):
            listed = [given]
        elif isinstance(given, dict):
            listed = given["params"]
        else:
            raise NotImplementedError(
                f"Parameter input of type {type(given)} is not supported: give parameters, or an optimizer's param_groups"
            )
        found += [p for p in listed if p.grad is not None]
    return found


def average_parameters_or_parameter_groups(params: Iterable[Tensor] | Iterable[dict[str, Any]], process_group: Any) -> None:
    """Average those that have a gradient."""
    average_parameters(iter(get_params_to_average(params)), process_group)
