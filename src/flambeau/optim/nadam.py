"""NAdam."""

from __future__ import annotations

from flambeau import modes
from flambeau.eager.updates import OnGpu, counted, read
from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, apply, check
from flambeau.tensor.making.factories import ones

__all__ = ["NAdam", "nadam"]


class NAdam(Elementwise):
    """Adam with Nesterov's momentum: the step looks ahead to the average that the next one will use.

    mu(t) = beta1 (1 - 0.96^(t momentum_decay) / 2) warms the momentum up; state "mu_product" is mu(1) ... mu(t).
    Dozat, Incorporating Nesterov Momentum into Adam.
    """

    rule = updates.nadam
    states = ("exp_avg", "exp_avg_sq")

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3, decoupled_weight_decay=False, *,
        foreach=None, maximize=False, capturable=False, differentiable=False,
    ):  # fmt: skip
        check(lr, betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay)
        defaults = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
            decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, foreach=foreach, capturable=capturable,
            differentiable=differentiable,
        )  # fmt: skip
        super().__init__(params, defaults)

    def _start(self, p, group):
        counter = self._counter(p, group)
        started = super()._start(p, group)
        return {"step": counter, "mu_product": ones((), dtype=counter.dtype, device=counter.device)} | started

    def _keys(self, group, held, params):
        """(step, product of all mu so far, mu of this step and of the next)."""
        steps, products = counted([s["step"] for s in held]), [s["mu_product"] for s in held]
        there = type(steps[0]) is OnGpu
        now, after = ([self._mu(group, t + ahead) for t in (steps[0].of if there else steps)] for ahead in (0, 1))
        for product, mu in zip(products, now, strict=True):
            product.mul_(mu)
        if there:
            return [(steps[0], OnGpu(products), OnGpu(now), OnGpu(after))] * len(held)
        return list(zip(steps, [p.clone() for p in products] if modes.state.grad else read(products), now, after, strict=True))

    @staticmethod
    def _mu(group, step):
        return float(group["betas"][0]) * (1.0 - 0.5 * 0.96 ** (step * group["momentum_decay"]))

    def _options(self, group, key):
        step, product, mu, mu_next = key
        beta1, beta2 = group["betas"]
        names = ("lr", "eps", "weight_decay", "decoupled_weight_decay", "maximize")
        numbers = {"step": step, "mu": mu, "mu_next": mu_next, "mu_product": product}
        return {name: group[name] for name in names} | {"beta1": beta1, "beta2": beta2} | numbers


def nadam(
    params, grads, exp_avgs, exp_avg_sqs, mu_products, state_steps, decoupled_weight_decay=False, foreach=None, capturable=False,
    differentiable=False, has_complex=False, maximize=False, *, beta1, beta2, lr, weight_decay, momentum_decay, eps,
):  # fmt: skip
    """A step of NAdam on tensors that the caller keeps."""
    states = {"step": state_steps, "exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "mu_product": mu_products}
    apply(
        NAdam, params, grads, states, decoupled_weight_decay=decoupled_weight_decay, betas=(beta1, beta2), lr=lr, weight_decay=weight_decay,
        momentum_decay=momentum_decay, eps=eps, maximize=maximize,
    )  # fmt: skip
