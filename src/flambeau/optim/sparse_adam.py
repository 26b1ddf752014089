"""SparseAdam."""

from __future__ import annotations

from flambeau.ops import updates
from flambeau.optim.elementwise import Elementwise, check, like
from flambeau.optim.optimizer import Optimizer
from flambeau.tensor import Tensor

__all__ = ["SparseAdam"]


class SparseAdam(Elementwise):
    """Adam that moves only the elements that a sparse gradient has, such as that of an Embedding with sparse=True.

    The moments of the other elements stay as they are, and do not fade while nothing happens to them; the step is counted for all.
    """

    rule = updates.sparse_adam
    states = ("exp_avg", "exp_avg_sq")

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        check(lr, betas)
        if not lr > 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        lr = lr.item() if isinstance(lr, Tensor) else lr
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        found = [[i, j] for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"]) if p.is_sparse]
        if found:
            raise ValueError(f"SparseAdam requires dense parameter tensors (their gradients are sparse), found sparse ones at {found}")

    def _start(self, p, group):
        return {"step": 0} | {name: like(p) for name in self.states}

    def _keys(self, group, held, params):
        for state in held:
            state["step"] += 1
        return [state["step"] for state in held]

    def _options(self, group, key):
        beta1, beta2 = group["betas"]
        return {"beta1": beta1, "beta2": beta2, "step": key} | {name: group[name] for name in ("lr", "eps", "maximize")}

    def _move(self, group, params, grads):
        raise RuntimeError("SparseAdam does not support dense gradients: Adam does")

    def _move_sparsely(self, group, p, grad):
        self._move_rows(group, p, grad)

    def __setstate__(self, state):
        Optimizer.__setstate__(self, state)  # steps are plain numbers here
