"""RAdam."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, apply, check

__all__ = ["RAdam", "radam"]


class RAdam(Elementwise):
    """Adam that trusts its second moment only once enough gradients went into it: before, it is momentum alone; then a factor that grows
    to 1 corrects the variance of the step. Liu et al., On the Variance of the Adaptive Learning Rate and Beyond.
    """

    rule = updates.radam
    states = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *, foreach=None, maximize=False,
        capturable=False, differentiable=False,
    ):  # fmt: skip
        check(lr, betas, eps=eps, weight_decay=weight_decay)
        defaults = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
            decoupled_weight_decay=decoupled_weight_decay, differentiable=differentiable,
        )  # fmt: skip
        super().__init__(params, defaults)

    def _options(self, group, key):
        beta1, beta2 = group["betas"]
        names = ("lr", "eps", "weight_decay", "decoupled_weight_decay", "maximize")
        return {name: group[name] for name in names} | {"beta1": beta1, "beta2": beta2, "step": key}


def radam(
    params, grads, exp_avgs, exp_avg_sqs, state_steps, decoupled_weight_decay=False, foreach=None, differentiable=False, capturable=False,
    has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay, eps,
):  # fmt: skip
    """A step of RAdam on tensors that the caller keeps."""
    states = {"step": state_steps, "exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs}
    apply(
        RAdam, params, grads, states, decoupled_weight_decay=decoupled_weight_decay, betas=(beta1, beta2), lr=lr, weight_decay=weight_decay,
        eps=eps, maximize=maximize,
    )  # fmt: skip
