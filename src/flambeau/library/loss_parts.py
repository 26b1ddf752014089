"""Operators of PyTorch's that are losses and distances, which count their reductions: 0 none, 1 mean, 2 sum. As in parts.py."""

from __future__ import annotations

from collections.abc import Callable

from flambeau.library.parts import FOUND, enter, named, op, part
from flambeau.tensor import Tensor

REDUCTIONS = ("none", "mean", "sum")


def _loss(name: str) -> Callable:
    """A loss as a function that takes its reduction by number."""

    def loss(self, target, reduction=1, **options):
        given = {name: value for name, value in options.items() if value is not None}
        return op(f"nn.functional.{name}")(self, target, reduction=REDUCTIONS[reduction], **given)

    return loss


for _name in (
    "mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy", "multi_margin_loss", "multilabel_margin_loss",
    "l1_loss", "nll_loss",
):  # fmt: skip
    FOUND[_name] = _loss(_name)
enter({"nll_loss2d nll_loss_nd": FOUND["nll_loss"], "cross_entropy_loss": _loss("cross_entropy")})
enter(
    {"_cdist_forward": lambda x1, x2, p, compute_mode: named("cdist")(x1, x2, p), "_pdist_forward": lambda self, p: named("pdist")(self, p)}
)


@part("multilabel_margin_loss_forward")
def multilabel_margin_loss_forward(self, target, reduction):
    listed = (target < 0).cumsum(-1) == 0  # what stands before the first -1
    is_target = self.new_zeros(self.shape).scatter_add(-1, target.where(listed, target.new_zeros(())), listed.to(self.dtype)).clamp(max=1)
    return FOUND["multilabel_margin_loss"](self, target, reduction), is_target


@part("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(self, target, weight, reduction, ignore_index):
    found = FOUND["nll_loss"](self, target, reduction, weight=weight, ignore_index=ignore_index)
    return found, _total_weight(self, target, weight, reduction, ignore_index)


def _total_weight(self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int) -> Tensor:
    if reduction == 0:
        return self.new_zeros(())
    kept = target != ignore_index
    if weight is None:
        return kept.sum().to(self.dtype)
    return weight[target.where(kept, target.new_zeros(()))].masked_fill(~kept, 0).sum()


@part("_trilinear")
def _trilinear(i1, i2, i3, expand1, expand2, expand3, sumdim, unroll_dim):
    a, b, c = i1, i2, i3
    for t, dims in enumerate((expand1, expand2, expand3)):
        for dim in dims:
            a, b, c = [v.unsqueeze(dim) if at == t else v for at, v in enumerate((a, b, c))]
    product = a * b * c
    return product.sum(sumdim) if sumdim else product
