"""RMSprop."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, apply, check

__all__ = ["RMSprop", "rmsprop"]


class RMSprop(Elementwise):
    """Gradients divided by their recent size: s <- alpha s + (1 - alpha) g^2, p <- p - lr g / (sqrt(s) + eps).

    centered: by their standard deviation. momentum: b <- momentum b + g / (...), p <- p - lr b. From Hinton's lectures.
    """

    rule = updates.rmsprop

    def __init__(
        self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False, foreach=None,
        maximize=False, differentiable=False,
    ):  # fmt: skip
        check(lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        defaults = dict(
            lr=lr, momentum=momentum, alpha=alpha, eps=eps, centered=centered, weight_decay=weight_decay, capturable=capturable,
            foreach=foreach, maximize=maximize, differentiable=differentiable,
        )  # fmt: skip
        super().__init__(params, defaults)

    def _names(self, group):
        return ("square_avg", *(("momentum_buffer",) if group["momentum"] > 0 else ()), *(("grad_avg",) if group["centered"] else ()))

    def _options(self, group, key):
        return {name: group[name] for name in ("lr", "alpha", "eps", "momentum", "weight_decay", "maximize")}


def rmsprop(
    params, grads, square_avgs, grad_avgs, momentum_buffer_list, state_steps, foreach=None, maximize=False, differentiable=False,
    capturable=False, has_complex=False, *, lr, alpha, eps, weight_decay, momentum, centered,
):  # fmt: skip
    """A step of RMSprop on tensors that the caller keeps."""
    states = {"step": state_steps, "square_avg": square_avgs, "grad_avg": grad_avgs, "momentum_buffer": momentum_buffer_list}
    apply(
        RMSprop, params, grads, states, lr=lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum, centered=centered,
        maximize=maximize,
    )  # fmt: skip
