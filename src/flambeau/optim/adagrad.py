"""Adagrad."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.ops.formats import preserve_format
from flambeau.optim.elementwise import Elementwise, apply, check, check_fused
from flambeau.tensor.making.factories import full_like

__all__ = ["Adagrad", "adagrad"]


class Adagrad(Elementwise):
    """Steps that shrink with all the gradients there were: s <- s + g^2, p <- p - lr' g / (sqrt(s) + eps), lr' = lr / (1 + (t-1) lr_decay).

    Duchi et al., Adaptive Subgradient Methods for Online Learning and Stochastic Optimization.
    """

    rule = updates.adagrad
    states = ("sum",)

    def __init__(
        self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *, maximize=False,
        differentiable=False, fused=None,
    ):  # fmt: skip
        check(lr, lr_decay=lr_decay, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value, eps=eps)
        defaults = dict(
            lr=lr, lr_decay=lr_decay, eps=eps, weight_decay=weight_decay, initial_accumulator_value=initial_accumulator_value,
            foreach=foreach, maximize=maximize, differentiable=differentiable, fused=fused,
        )  # fmt: skip
        super().__init__(params, defaults)
        check_fused(fused, foreach, differentiable)
        for group in self.param_groups:
            self._held(group, group["params"])

    def _start(self, p, group):
        value = self.defaults["initial_accumulator_value"]
        filled = full_like(p, complex(value, value) if p.is_complex() else value, memory_format=preserve_format)
        return {"step": self._counter(p, group), "sum": filled}

    def _move_sparsely(self, group, p, grad):
        if group["weight_decay"] != 0:
            raise RuntimeError("Adagrad: weight_decay would make sparse gradients dense. Leave it at 0 for them")
        self._move_rows(group, p, grad)

    def share_memory(self) -> None:
        """Move the sums to memory that other processes see."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def _options(self, group, key):
        return {name: group[name] for name in ("lr", "lr_decay", "eps", "weight_decay", "maximize")} | {"step": key}


def adagrad(
    params, grads, state_sums, state_steps, fused=None, grad_scale=None, found_inf=None, has_sparse_grad=False, foreach=None,
    differentiable=False, has_complex=False, *, lr, weight_decay, lr_decay, eps, maximize,
):  # fmt: skip
    """A step of Adagrad on tensors that the caller keeps."""
    states = {"step": state_steps, "sum": state_sums}
    apply(Adagrad, params, grads, states, lr=lr, weight_decay=weight_decay, lr_decay=lr_decay, eps=eps, maximize=maximize)
