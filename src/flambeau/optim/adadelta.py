"""Adadelta."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, apply, check

__all__ = ["Adadelta", "adadelta"]


class Adadelta(Elementwise):
    """Steps in the units of the parameter: d = sqrt(a + eps) / sqrt(s + eps) g, where s averages g^2 and a averages d^2; p <- p - lr d.

    Zeiler, ADADELTA: An Adaptive Learning Rate Method.
    """

    rule = updates.adadelta
    states = ("square_avg", "acc_delta")

    def __init__(
        self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False, maximize=False, differentiable=False
    ):
        check(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check(lr, eps=eps, weight_decay=weight_decay)
        defaults = dict(
            lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, capturable=capturable, foreach=foreach,
            differentiable=differentiable,
        )  # fmt: skip
        super().__init__(params, defaults)

    def _options(self, group, key):
        return {name: group[name] for name in ("lr", "rho", "eps", "weight_decay", "maximize")}


def adadelta(
    params, grads, square_avgs, acc_deltas, state_steps, capturable=False, foreach=None, differentiable=False, has_complex=False, *, lr,
    rho, eps, weight_decay, maximize,
):  # fmt: skip
    """A step of Adadelta on tensors that the caller keeps."""
    states = {"step": state_steps, "square_avg": square_avgs, "acc_delta": acc_deltas}
    apply(Adadelta, params, grads, states, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize)
