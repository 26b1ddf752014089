"""Adadelta."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, check

__all__ = ["Adadelta"]


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
