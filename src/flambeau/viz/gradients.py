"""`gradients(model)`: per parameter how large its gradient is, and what is odd about it. Call it after backward.

w.describe() tells of one tensor; here all gradients stand side by side, so that one that vanishes or explodes stands out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.tables import html_table, table
from flambeau.tensor import Tensor

TITLES, SIDES = ["Parameter", "Shape", "Norm", "Mean", "Std", "Largest", "Zero", "Norm / weight", ""], "<<>>>>>><"


@dataclass
class Row:
    """One parameter. Numbers are None where it has no gradient; they leave out what is not finite, which nan and inf count."""

    name: str
    shape: tuple[int, ...]
    norm: float | None = None
    mean: float | None = None
    std: float | None = None
    largest: float | None = None
    zero: float | None = None
    ratio: float | None = None
    nan: int = 0
    inf: int = 0
    needs_grad: bool = True

    @property
    def remark(self) -> str:
        """What is odd about it, in a few words."""
        if not self.needs_grad:
            return "frozen"
        if self.norm is None:
            return "no gradient: not part of the loss, or backward has not run"
        if self.nan or self.inf:
            return ", ".join(f"{n} {what}" for n, what in ((self.nan, "NaN"), (self.inf, "infinite")) if n)
        if self.zero == 1:
            return "all zero: nothing arrives here (dead units, a detach, a mask?)"
        if self.norm < 1e-7:
            return "vanishing"
        if self.norm > 1e3:
            return "exploding: try clip_grad_norm_, or a smaller learning rate"
        return ""


class Gradients:
    """rows: a Row per parameter;  total_norm: of all gradients together, what clip_grad_norm_ compares with its limit."""

    def __init__(self, rows: list[Row]):
        self.rows = rows
        self.total_norm = sum(row.norm**2 for row in rows if row.norm is not None) ** 0.5

    def __getitem__(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def _cells(self) -> list[list[str]]:
        return [
            [r.name, str(r.shape), *map(_number, (r.norm, r.mean, r.std, r.largest)), "-" if r.zero is None else f"{r.zero * 100:.0f} %",
             _number(r.ratio), r.remark]
            for r in self.rows
        ]  # fmt: skip

    def __str__(self) -> str:
        return f"{table(TITLES, self._cells(), SIDES)}\nTotal norm {self.total_norm:.4g}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(TITLES, self._cells(), SIDES, [f"Total norm {self.total_norm:.4g}"])


def gradients(model: Module | Iterable) -> Gradients:
    """Statistics of the gradients of a module's parameters, or of tensors: a list of them, or of (name, tensor).

    >>> from flambeau import nn
    >>> layer = nn.Linear(2, 1)
    >>> layer(layer.weight.detach()).sum().backward()
    >>> gradients(layer)["bias"].norm
    1.0
    """
    if isinstance(model, Module):
        named = list(model.named_parameters())
    else:
        items = list(model.items()) if isinstance(model, dict) else list(model)
        named = [item if isinstance(item, tuple) else (f"[{i}]", item) for i, item in enumerate(items)]
    return Gradients([_row(name, tensor) for name, tensor in named])


def _row(name: str, parameter: Tensor) -> Row:
    row = Row(name, tuple(parameter.shape), needs_grad=parameter.requires_grad)
    grad = parameter.grad
    if grad is None or not grad.numel():
        return row
    values: Any = grad.detach().double()
    finite = values.isfinite()
    row.nan, row.inf = int(values.isnan().sum()), int(values.isinf().sum())
    row.zero = float((values == 0).double().mean())
    kept = values if bool(finite.all()) else values[finite]
    if kept.numel():
        row.norm, row.mean, row.largest = float(kept.norm()), float(kept.mean()), float(kept.abs().max())
        row.std = float(kept.std()) if kept.numel() > 1 else 0.0
        weight = float(parameter.detach().double().norm())
        row.ratio = row.norm / weight if weight else None
    else:
        row.norm = 0.0
    return row


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
