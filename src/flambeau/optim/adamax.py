"""Adamax."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, apply, check

__all__ = ["Adamax", "adamax"]


class Adamax(Elementwise):
    """Adam with the infinity norm: m as there, u <- max(beta2 u, |g| + eps), p <- p - lr / (1 - beta1^t) m / u."""

    rule = updates.adamax
    states = ("exp_avg", "exp_inf")

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False, differentiable=False,
        capturable=False,
    ):  # fmt: skip
        check(lr, betas, eps=eps, weight_decay=weight_decay)
        defaults = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, foreach=foreach, maximize=maximize, differentiable=differentiable,
            capturable=capturable,
        )  # fmt: skip
        super().__init__(params, defaults)

    def _options(self, group, key):
        beta1, beta2 = group["betas"]
        return {name: group[name] for name in ("lr", "eps", "weight_decay", "maximize")} | {"beta1": beta1, "beta2": beta2, "step": key}


def adamax(
    params, grads, exp_avgs, exp_infs, state_steps, foreach=None, maximize=False, differentiable=False, capturable=False, has_complex=False,
    *, eps, beta1, beta2, lr, weight_decay,
):  # fmt: skip
    """A step of Adamax on tensors that the caller keeps."""
    states = {"step": state_steps, "exp_avg": exp_avgs, "exp_inf": exp_infs}
    apply(Adamax, params, grads, states, eps=eps, betas=(beta1, beta2), lr=lr, weight_decay=weight_decay, maximize=maximize)
