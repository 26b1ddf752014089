"""Rprop."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, apply, check, like
from flambeau.tensor.making.factories import full_like

__all__ = ["Rprop", "rprop"]


class Rprop(Elementwise):
    """Resilient propagation: only the sign of the gradient counts. Each element has a step size of its own, which is multiplied by etas[1]
    while the sign stays and by etas[0] when it turns, within step_sizes. For whole batches. Riedmiller and Braun, 1993.
    """

    rule = updates.rprop
    states = ("prev", "step_size")

    def __init__(
        self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None, maximize=False,
        differentiable=False,
    ):  # fmt: skip
        check(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        defaults = dict(
            lr=lr,
            etas=etas,
            step_sizes=step_sizes,
            foreach=foreach,
            maximize=maximize,
            differentiable=differentiable,
            capturable=capturable,
        )
        super().__init__(params, defaults)

    def _start(self, p, group):
        lr = float(group["lr"])
        return {
            "step": self._counter(p, group), "prev": like(p), "step_size": full_like(p, complex(lr, lr) if p.is_complex() else lr),
        }  # fmt: skip

    def _options(self, group, key):
        (etaminus, etaplus), (low, high) = group["etas"], group["step_sizes"]
        return {"etaminus": etaminus, "etaplus": etaplus, "step_size_min": low, "step_size_max": high, "maximize": group["maximize"]}


def rprop(
    params, grads, prevs, step_sizes, state_steps, foreach=None, capturable=False, maximize=False, differentiable=False, has_complex=False,
    *, step_size_min, step_size_max, etaminus, etaplus,
):  # fmt: skip
    """A step of Rprop on tensors that the caller keeps."""
    states = {"step": state_steps, "prev": prevs, "step_size": step_sizes}
    apply(Rprop, params, grads, states, etas=(etaminus, etaplus), step_sizes=(step_size_min, step_size_max), maximize=maximize)
