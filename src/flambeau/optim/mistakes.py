"""What an optimizer notices of the loop around it: mistakes that raise nothing, and that look like a model that does not learn.

A step is told to a `Watch` before and after. It looks at the gradient of one parameter, in the first steps, and at one flag of the model: a quarter of a
microsecond. It says each thing once.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from flambeau import errors
from flambeau.modes import state
from flambeau.tensor import Tensor

FORGOTTEN = (
    "optimizer.step(): the gradients of the last step were never set to zero, and those of this backward() were added to them. Every step repeats "
    "all steps before it, so the loss explodes or does not fall. Call optimizer.zero_grad() before loss.backward()"
)
NAN = (
    "optimizer.step(): the loss is nan and so are gradients, and a step with them makes the weights nan for good. Usually the learning rate is too "
    "high: lower it, or clip gradients with torch.nn.utils.clip_grad_norm_. Or something like log(0) or 0/0 was computed: "
    "torch.autograd.detect_anomaly() names the first operation that gave a nan"
)
FROZEN = (
    "optimizer.step() moves nothing: none of the {} tensors of this optimizer requires grad. detach() and clone() of a parameter are plain tensors: "
    "wrap them in nn.Parameter, or call requires_grad_()"
)
STILL_IN_EVAL = (
    "optimizer.step(): {} was in training mode at an earlier step and is in evaluation mode now, so that {} no longer does what it does in training. "
    "Was model.eval() called for validation? Call model.train() before going on"
)


class Watch:
    """The mistakes of one training loop. `owners` are the modules whose parameters the optimizer moves, as far as they are known."""

    def __init__(self, owners: Iterable[Any]) -> None:
        self.owners = [weakref.ref(owner) for owner in owners if hasattr(owner, "training")]
        self.witness: Tensor | None = (
            None  # the smallest parameter with a gradient, see Note [forgotten zero_grad] in autograd/accumulate.py
        )
        self.steps_to_see = 8  # a loop that zeroes its gradients in these does so in all
        self.has_trained = False
        self.told: set[str] = set()

    def before_step(self, groups: list[dict[str, Any]]) -> None:
        """The gradients are there, and nothing has moved yet."""
        if state.nan_loss:
            state.nan_loss = False
            if any(bool(p.grad.isnan().any()) for group in groups for p in group["params"] if p.grad is not None):
                self.tell(NAN)
        if self.steps_to_see and self.witness is not None:
            grad = self.witness.grad
            if grad is not None and grad._storage is not None and grad._storage.mixed:
                self.tell(FORGOTTEN)
        for reference in self.owners:
            model = reference()
            if model is None:
                continue
            if model.training:
                self.has_trained = True
            elif self.has_trained:
                layer = _layer_with_modes(model)
                if layer:
                    self.tell(STILL_IN_EVAL.format(type(model).__name__, layer))

    def after_step(self, groups: list[dict[str, Any]]) -> None:
        """Mark the gradient of the witness as spent."""
        if not self.steps_to_see:
            return
        if self.witness is None:
            params = [p for group in groups for p in group["params"]]
            self.witness = min((p for p in params if p.grad is not None), key=lambda p: p.numel(), default=None)
            if self.witness is None and params and not any(p.requires_grad for p in params):
                self.tell(FROZEN.format(len(params)))
        grad = None if self.witness is None else self.witness.grad
        if grad is not None:
            self.steps_to_see -= 1
            storage = grad._storage or grad._shared_storage()
            storage.spent, storage.mixed = storage.version, False

    def tell(self, words: str) -> None:
        """Once."""
        if words not in self.told:
            self.told.add(words)
            errors.warn(words)


def _layer_with_modes(model: Any) -> str:
    """The path of a layer that does something else in evaluation: dropout, or a norm with running statistics; "" if there is none."""
    for path, module in model.named_modules():
        kind = type(module).__name__
        if "Dropout" in kind or getattr(module, "running_mean", None) is not None:
            return f"{path} ({kind})"
    return ""
