"""Averaged stochastic gradient descent."""

from __future__ import annotations

from flambeau.eager.updates import OnGpu, advance, counted, read, write
from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, apply, check, like
from flambeau.optim.optimizer import _get_scalar_dtype
from flambeau.tensor.making.factories import full, ones, tensor, zeros

__all__ = ["ASGD", "asgd"]


class ASGD(Elementwise):
    """Gradient descent with steps eta(t) = lr / (1 + lambd lr t)^alpha, and from step t0 on the average of all points: state "ax".

    Polyak and Juditsky, Acceleration of stochastic approximation by averaging.
    """

    rule = updates.asgd
    states = ("ax",)

    def __init__(
        self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False, differentiable=False,
        capturable=False,
    ):  # fmt: skip
        check(lr, weight_decay=weight_decay)
        defaults = dict(
            lr=lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, foreach=foreach, maximize=maximize,
            differentiable=differentiable, capturable=capturable,
        )  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p, group):
        where = {"dtype": _get_scalar_dtype(), "device": p.device}
        return {"step": zeros((), **where), "eta": full((), float(group["lr"]), **where), "mu": ones((), **where), "ax": like(p)}

    def _keys(self, group, held, params):
        """(eta, mu) of this step; those of the next are written down."""
        etas, mus = [s["eta"] for s in held], [s["mu"] for s in held]
        if group.get("capturable"):
            return self._keys_on_gpu(group, [s["step"] for s in held], etas, mus)
        keys = list(zip(read(etas), read(mus), strict=True))
        steps, lr = advance([s["step"] for s in held]), float(group["lr"])
        write(etas, [_rounded(lr / (1 + group["lambd"] * lr * step) ** group["alpha"]) for step in steps])
        write(mus, [_rounded(1 / max(1, step - group["t0"])) for step in steps])
        return keys

    @staticmethod
    def _keys_on_gpu(group, steps, etas, mus):
        """The same, and nobody waits for a number."""
        key = OnGpu([eta.clone() for eta in etas]), OnGpu([mu.clone() for mu in mus])
        counted(steps)
        for step, eta, mu in zip(steps, etas, mus, strict=True):
            eta.copy_(group["lr"] / (1 + group["lambd"] * group["lr"] * step) ** group["alpha"])
            mu.copy_(1 / (step - group["t0"]).clamp(min=1))
        return [key] * len(steps)

    def _options(self, group, key):
        return {name: group[name] for name in ("lambd", "weight_decay", "maximize")} | {"eta": key[0], "mu": key[1]}


def _rounded(number: float) -> float:
    """As a tensor of the default dtype holds it: that is how PyTorch computes these, even where a loaded state could hold more."""
    return tensor(number).item()


def asgd(
    params, grads, axs, mus, etas, state_steps, foreach=None, maximize=False, differentiable=False, capturable=False, has_complex=False, *,
    lambd, lr, t0, alpha, weight_decay,
):  # fmt: skip
    """A step of ASGD on tensors that the caller keeps."""
    states = {"step": state_steps, "ax": axs, "mu": mus, "eta": etas}
    apply(ASGD, params, grads, states, lambd=lambd, lr=lr, t0=t0, alpha=alpha, weight_decay=weight_decay, maximize=maximize)
