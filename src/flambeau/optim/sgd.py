"""Stochastic gradient descent."""

from __future__ import annotations

from flambeau.factories import empty_like
from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, check, check_fused

__all__ = ["SGD"]


class SGD(Elementwise):
    """Descend along the gradient g, or along its running sum b.

    b <- momentum b + (1 - dampening) g,    p <- p - lr b            (nesterov: p - lr (g + momentum b))

    The buffer b begins as the first gradient. weight_decay adds weight_decay p to g. See Sutskever et al., On the importance of initialization
    and momentum in deep learning, whose lr multiplies g instead of b.
    """

    rule = updates.sgd

    def __init__(
        self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False, foreach=None,
        differentiable=False, fused=None,
    ):  # fmt: skip
        check(lr, momentum=momentum, weight_decay=weight_decay)
        defaults = dict(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, maximize=maximize,
            foreach=foreach, differentiable=differentiable, fused=fused,
        )  # fmt: skip
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, defaults)
        check_fused(fused, foreach, differentiable)

    def _names(self, group):
        return ("momentum_buffer",) if group["momentum"] != 0 else ()

    def _held(self, group, params):
        return [self.state[p] for p in params] if group["momentum"] != 0 else [{}] * len(params)

    def _move(self, group, params, grads):
        self._grads = grads  # the buffers begin with them, in their order of memory
        try:
            super()._move(group, params, grads)
        finally:
            del self._grads

    def _keys(self, group, held):
        """Whether this is a parameter's first step."""
        if group["momentum"] == 0:
            return [False]
        first = [state.get("momentum_buffer") is None for state in held]
        if any(first):
            for state, grad, begins in zip(held, self._grads, first, strict=True):
                if begins:
                    state["momentum_buffer"] = empty_like(grad)
        return first

    def _options(self, group, key):
        names = ("lr", "momentum", "dampening", "nesterov", "weight_decay", "maximize")
        return {name: group[name] for name in names} | {"first": key}
