"""A step for each parameter as soon as its gradient is there: gradients need not be kept until backward ends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.optim import Optimizer
from flambeau.tensor import Tensor

__all__: list[str] = []


def _apply_optimizer_in_backward(
    optimizer_class: type[Optimizer], params: Iterable[Tensor], optimizer_kwargs: dict[str, Any], register_hook: bool = True
) -> None:
    """Give each parameter an optimizer of its own, which makes a step and forgets the gradient when backward has brought it.

    A parameter may be given several optimizers, one call after the other: they make their steps in that order.
    """
    for param in params:
        optimizer = optimizer_class([param], **optimizer_kwargs)
        first = not hasattr(param, "_in_backward_optimizers")
        if first:
            param._in_backward_optimizers = []
        param._in_backward_optimizers.append(optimizer)
        param._optimizer_classes = [*getattr(param, "_optimizer_classes", []), optimizer_class]
        param._optimizer_kwargs = [*getattr(param, "_optimizer_kwargs", []), optimizer_kwargs]
        if first and register_hook:
            param._acc_grad_hooks = [param.register_post_accumulate_grad_hook(_step)]


def _step(param: Tensor) -> None:
    for optimizer in param._in_backward_optimizers:
        optimizer.step()
    param.grad = None


def _get_in_backward_optimizers(module: Module) -> list[Optimizer]:
    """The optimizers of a module's parameters."""
    return [optimizer for p in module.parameters() for optimizer in getattr(p, "_in_backward_optimizers", [])]
