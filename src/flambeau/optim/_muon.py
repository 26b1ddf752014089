"""Muon: momentum made orthogonal."""

from __future__ import annotations

import math

from flambeau.ops import OPS
from flambeau.ops.formats import preserve_format
from flambeau.optim.optimizer import OneByOne, _to_scalar, one_element
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros_like

__all__ = ["Muon"]


class Muon(OneByOne):
    """For matrices: the momentum U S V^T is replaced by about U V^T, so that every direction moves by as much.

    b <- momentum b + (1 - momentum) g,    p <- (1 - lr weight_decay) p - lr' orthogonal(b)     (nesterov: of g mixed with b)

    A few Newton-Schulz iterations in bfloat16 take the singular values near 1. adjust_lr_fn says how lr' follows from lr and the shape:
    "original" sqrt(max(1, rows / columns)), "match_rms_adamw" 0.2 sqrt(max(rows, columns)). Other parameters need another optimizer, such
    as AdamW. Jordan et al., Muon: An optimizer for hidden layers in neural networks.
    """

    def __init__(
        self, params, lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=True, ns_coefficients=(3.4445, -4.775, 2.0315), eps=1e-7, ns_steps=5,
        adjust_lr_fn=None,
    ):  # fmt: skip
        one_element(lr)
        for words, value in (("Learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay)):
            if not value >= 0.0:
                raise ValueError(f"{words} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Muon: adjust_lr_fn {adjust_lr_fn} is not supported: try 'original' or 'match_rms_adamw'")
        defaults = dict(
            lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, ns_coefficients=ns_coefficients, eps=eps,
            ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn,
        )  # fmt: skip
        super().__init__(params, defaults)
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim != 2:
                    raise ValueError(f"Muon only supports 2D parameters, found {p.size()}. Give others to another optimizer")

    def _move(self, p: Tensor, grad: Tensor, group: dict) -> None:
        if grad.ndim != 2:
            raise ValueError("Param gradient must be a 2D matrix")
        state, momentum, lr = self.state[p], group["momentum"], _to_scalar(group["lr"])
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = zeros_like(grad, memory_format=preserve_format)
        buffer = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        direction = orthogonal(grad.lerp(buffer, momentum) if group["nesterov"] else buffer, group)
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(direction.to(p.dtype), alpha=-float(lr) * _adjustment(group["adjust_lr_fn"], *p.shape))


def orthogonal(matrix: Tensor, group: dict) -> Tensor:
    """The matrix with its singular values taken to about 1: x <- a x + (b x x^T + c (x x^T)^2) x, repeated. In bfloat16."""
    if group["ns_steps"] >= 100:
        raise ValueError("Muon: ns_steps must be less than 100; a handful is enough")
    if len(group["ns_coefficients"]) != 3:
        raise ValueError("Muon: ns_coefficients are 3 numbers, and should be a tuple of them")
    a, b, c = group["ns_coefficients"]
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.bfloat16()
    x = x.T if tall else x
    x = x / x.norm().clamp(min=group["eps"])
    addmm = OPS["addmm"]
    for _ in range(group["ns_steps"]):
        gram = x @ x.T
        x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _adjustment(name: str | None, rows: int, columns: int) -> float:
    return 0.2 * math.sqrt(max(rows, columns)) if name == "match_rms_adamw" else math.sqrt(max(1, rows / columns))
