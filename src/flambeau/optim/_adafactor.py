"""Adafactor: a second moment of rows and columns instead of every element."""

from __future__ import annotations

from flambeau.dtypes import finfo
from flambeau.eager.updates import advance
from flambeau.ops.formats import preserve_format
from flambeau.optim.optimizer import OneByOne, _get_scalar_dtype, _to_scalar, one_element
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import tensor, zeros, zeros_like

__all__ = ["Adafactor"]


class Adafactor(OneByOne):
    """Steps relative to the size of a parameter, with the memory of one row and one column for a matrix.

    The squared gradients' averages over rows and columns estimate the second moment, V = r c / mean(r), of matrices (and of the last two
    dimensions of anything larger); beta2 grows as 1 - t^beta2_decay. The update g / sqrt(V) is clipped to root mean square d, and applied
    with step max(eps[1], RMS(p)) min(lr, 1 / sqrt(t)). Shazeer and Stern, Adafactor: Adaptive Learning Rates with Sublinear Memory Cost.
    """

    def __init__(self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None, maximize=False):
        one_element(lr)
        for holds, words, value in (
            (lr >= 0.0, "Learning rate should be >= 0", lr), (beta2_decay <= 0.0, "beta2_decay should be <= 0", beta2_decay),
            (eps[0] is None or eps[0] >= 0.0, "epsilon1 should be >= 0", eps[0]), (eps[1] >= 0.0, "epsilon2 should be >= 0", eps[1]),
            (d >= 1.0, "Clipping threshold d should be >= 1", d), (weight_decay >= 0.0, "weight_decay should be >= 0", weight_decay),
        ):  # fmt: skip
            if not holds:
                raise ValueError(f"{words} but is: {value}")
        defaults = dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay, foreach=foreach, maximize=maximize)
        super().__init__(params, defaults)

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            for p in group["params"]:
                own = self.state.get(p, {})
                if own and not isinstance(own["step"], Tensor):
                    own["step"] = tensor(float(own["step"]), dtype=_get_scalar_dtype())

    def _start(self, grad: Tensor) -> dict[str, Tensor]:
        step = zeros((), dtype=_get_scalar_dtype())
        if grad.dim() < 2:
            return {"step": step, "variance": zeros_like(grad, memory_format=preserve_format)}
        *batch, rows, columns = grad.shape
        return {"step": step, "row_var": grad.new_zeros((*batch, rows, 1)), "col_var": grad.new_zeros((*batch, 1, columns))}

    def _move(self, p: Tensor, grad: Tensor, group: dict) -> None:
        state = self.state[p]
        if not state:
            state.update(self._start(grad))
        lr, (eps1, eps2) = float(_to_scalar(group["lr"])), group["eps"]
        eps1 = finfo(p.dtype).eps if eps1 is None else eps1
        (step,) = advance([state["step"]])
        forget = step ** group["beta2_decay"]  # 1 - beta2
        size = max(eps2, _rms(p)) * min(lr, 1 / step**0.5)
        if group["weight_decay"] != 0:
            p.mul_(1 - lr * group["weight_decay"])
        square = grad * grad
        if grad.dim() > 1:
            row, column = state["row_var"], state["col_var"]
            row.lerp_(square.mean(-1, keepdim=True), forget)
            column.lerp_(square.mean(-2, keepdim=True), forget)
            moment = (row @ column).div_(row.mean(-2, keepdim=True).clamp_(min=eps1))
        else:
            moment = state["variance"].lerp_(square, forget)
        update = moment.clamp(min=eps1 * eps1).rsqrt_().mul_(grad)
        size = size / max(1.0, _rms(update) / group["d"])
        p.add_(update, alpha=size if group["maximize"] else -size)


def _rms(x: Tensor) -> float:
    """The root of the mean square."""
    return x.norm(2).item() / x.numel() ** 0.5
