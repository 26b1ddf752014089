"""Adam."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, apply, check, check_fused
from flambeau.optim.optimizer import _to_scalar, one_element
from flambeau.tensor import Tensor

__all__ = ["Adam", "adam"]


class Adam(Elementwise):
    """Steps of about the size lr, whatever the size of the gradients g.

    m <- beta1 m + (1 - beta1) g,    v <- beta2 v + (1 - beta2) g^2,    p <- p - lr m' / (sqrt(v') + eps)

    where m' = m / (1 - beta1^t) and v' = v / (1 - beta2^t) make up for starting at zero. amsgrad takes the largest v so far.
    weight_decay adds weight_decay p to g; decoupled (AdamW), it shrinks p itself. Kingma and Ba, Adam: A Method for Stochastic Optimization.
    """

    rule = updates.adam
    shown, instead = "Adam", ", please consider SparseAdam instead"

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None, maximize=False,
        capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False,
    ):  # fmt: skip
        for value, name in ((lr, "lr"), (betas[0], "betas[0]"), (betas[1], "betas[1]")):
            if isinstance(value, Tensor) and foreach and not capturable:
                raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
            one_element(value, name)
        check(lr, betas, eps=eps, weight_decay=weight_decay)
        if not all(isinstance(b, float) for b in betas) and not all(isinstance(b, Tensor) for b in betas):
            raise ValueError("betas must be either both floats or both Tensors: one moment is kept as the other")
        defaults = dict(
            lr=lr, betas=tuple(map(_to_scalar, betas)), eps=eps, weight_decay=weight_decay, amsgrad=amsgrad, maximize=maximize,
            foreach=foreach, capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=decoupled_weight_decay,
        )  # fmt: skip
        super().__init__(params, defaults)
        check_fused(fused, foreach, differentiable)

    def _init_group(self, group, params_with_grad, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps):
        """Begin what is to be remembered, and fill the lists that `adam` takes; whether a parameter is complex. For subclasses with a step of
        their own."""
        given = [p for p in group["params"] if p.grad is not None]
        for p in given:
            if p.grad.is_sparse:
                self._move_sparsely(group, p, p.grad)
        params_with_grad += given
        grads += [p.grad for p in given]
        for state in self._held(group, given):
            exp_avgs.append(state["exp_avg"])
            exp_avg_sqs.append(state["exp_avg_sq"])
            state_steps.append(state["step"])
            if group["amsgrad"]:
                max_exp_avg_sqs.append(state["max_exp_avg_sq"])
        return any(p.is_complex() for p in given)

    def _names(self, group):
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def _keys(self, group, held, params):
        if group["foreach"] and isinstance(group["lr"], Tensor) and not group["capturable"]:
            raise RuntimeError("lr as a Tensor is not supported for capturable=False and foreach=True")
        return super()._keys(group, held, params)

    def _options(self, group, key):
        names = ("lr", "eps", "weight_decay", "decoupled_weight_decay", "maximize")
        beta1, beta2 = group["betas"]
        return {name: group[name] for name in names} | {"beta1": beta1, "beta2": beta2, "step": key}


def adam(
    params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach=None, capturable=False, differentiable=False, fused=None,
    grad_scale=None, found_inf=None, has_complex=False, decoupled_weight_decay=False, *, amsgrad, beta1, beta2, lr, weight_decay, eps, maximize,
):  # fmt: skip
    """A step of Adam on tensors that the caller keeps."""
    states = {"step": state_steps, "exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "max_exp_avg_sq": max_exp_avg_sqs}
    apply(
        Adam, params, grads, states, foreach=foreach, capturable=capturable, decoupled_weight_decay=decoupled_weight_decay, amsgrad=amsgrad,
        betas=(beta1, beta2), lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip
