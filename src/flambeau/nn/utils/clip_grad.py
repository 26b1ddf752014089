"""Clipping gradients: by the norm of all of them together, or each value by itself."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from types import GeneratorType
from typing import Any

from flambeau import modes
from flambeau.eager import bind, updates
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_"]


def _listed(tensors: Any) -> list[Tensor]:
    """A tensor, or an iterable of them, as a list."""
    if isinstance(tensors, Tensor):
        return [tensors]
    found = list(tensors)
    if not found and isinstance(tensors, GeneratorType):
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    return found


def _gradients(parameters: Any) -> list[Tensor]:
    return [p.grad for p in _listed(parameters) if p.grad is not None]


@modes.no_grad()
def get_total_norm(
    tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all tensors as if they were one vector.

    `foreach` chooses between ways to compute the same number in PyTorch; here there is one.
    """
    tensors = _listed(tensors)
    norm_type = float(norm_type)
    if not tensors:
        return factories.tensor(0.0)
    together = getattr(type(tensors[0]), "_total_norm", updates.total_norm)  # tensors that lie on several processes know how
    total = together(tensors, norm_type)
    if total is None:
        vector_norm, stack = bind.functions["linalg.vector_norm"], bind.functions["stack"]
        first = tensors[0].device
        norms = [vector_norm(t, norm_type) for t in tensors]
        total = vector_norm(stack([n if n.device == first else n.to(first) for n in norms]), norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        cure = "set `error_if_nonfinite=False` to scale by it all the same; autograd.detect_anomaly() finds where it comes from"
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients is non-finite, and no factor makes it small. To go on, {cure}."
        )
    return total


@modes.no_grad()
def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scale the gradients in place by max_norm / total_norm, if that is less than one."""
    grads = _gradients(parameters)
    if not grads:
        return
    if getattr(type(grads[0]), "_clip", updates.clip)(grads, total_norm, float(max_norm)):
        return
    # No question to the GPU: the factor is clamped to one instead.
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    if factor.is_cpu and updates.on_cpu(grads):
        number = factor.item()
        if number != 1.0:
            updates.scale(grads, number)
        return
    for grad in grads:
        grad.mul_(factor if grad.device == factor.device else factor.to(grad.device))


@modes.no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients of the parameters in place so that their norm, taken together, is at most `max_norm`. Returns the norm before."""
    parameters = _listed(parameters)
    total = get_total_norm([p.grad for p in parameters if p.grad is not None], norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The old name of clip_grad_norm_."""
    said = "`torch.nn.utils.clip_grad_norm` is now deprecated: its name ends with an underscore, `clip_grad_norm_`."
    warnings.warn(said, FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@modes.no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Bring every element of the gradients into [-clip_value, clip_value], in place."""
    clip_value = float(clip_value)
    for grad in _gradients(parameters):
        grad.clamp_(min=-clip_value, max=clip_value)


_get_total_norm, _clip_grads_with_norm_ = get_total_norm, clip_grads_with_norm_
