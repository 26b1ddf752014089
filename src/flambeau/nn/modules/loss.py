"""Losses as modules: they remember the options with which they call the function of the same subject in `nn.functional`.

All reduce the losses of elements or samples by "mean" (the default), "sum" or "none". Formulas stand in `ops/losses.py`, `ops/cross_entropy.py`,
`ops/margin_losses.py` and `ops/ctc.py`. Weights are buffers: they move with the module, and are in its state.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.nn import functional as F
from flambeau.nn.modules.distance import PairwiseDistance
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.ops.loss_reduction import chosen
from flambeau.tensor import Tensor

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss", "HingeEmbeddingLoss",
    "HuberLoss", "KLDivLoss", "L1Loss", "LinearCrossEntropyLoss", "MSELoss", "MarginRankingLoss", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
    "TripletMarginLoss", "TripletMarginWithDistanceLoss",
]  # fmt: skip


class _Loss(Module):
    """What all losses share: the reduction, which old programs ask for by `size_average` and `reduce`."""

    __constants__ = ["reduction"]
    reduction: str

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        asked_by_flags = size_average is not None or reduce is not None
        self.reduction = chosen(reduction, size_average, reduce) if asked_by_flags else reduction


class _WeightedLoss(_Loss):
    """A loss with a weight for each class or element, kept as a buffer."""

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


# -- distances ---------------------------------------------------------------------------------------------------------------


class MSELoss(_Loss):
    """(input - target)^2. Shape: (*), the same -> (), or (*) for "none"."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target) if self.reduction == "mean" else F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """|input - target|. Shape: (*), the same -> (), or (*) for "none"."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """(input - target)^2 / (2 beta) where that is less than beta away, a straight line beyond. Shape: (*), the same -> (), or (*)."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """(input - target)^2 / 2 where that is at most delta away, a straight line of slope delta beyond. Shape: (*), the same -> (), or (*)."""

    __constants__ = ["reduction", "delta"]

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not isinstance(delta, (float, int)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


# -- classes -----------------------------------------------------------------------------------------------------------------


class CrossEntropyLoss(_WeightedLoss):
    """-log(softmax(input)[target]): of logits and class numbers, or of logits and probabilities.

    Shape:
        input   (N, C), (C) or (N, C, d1, ...)
        target  (N), () or (N, d1, ...) of class numbers, or probabilities of the input's shape
        output  (), or for "none" (N), () or (N, d1, ...)
    """

    __constants__ = ["ignore_index", "reduction", "label_smoothing"]

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None,
        reduction: str = "mean", label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        weight = self._buffers["weight"]
        if weight is None and self.reduction == "mean" and self.ignore_index == -100 and not self.label_smoothing:
            return F.cross_entropy(input, target)  # the usual case, which is quick if nothing else is said
        return F.cross_entropy(
            input, target, weight=weight, ignore_index=self.ignore_index, reduction=self.reduction, label_smoothing=self.label_smoothing
        )


class LinearCrossEntropyLoss(_WeightedLoss):
    """CrossEntropyLoss of a Linear layer of its own: its input are features, its parameters the scores' weights.

    Shape:
        input   (N, in_features) or (in_features)
        target  (N), () or (N, *out_features) of class numbers, or probabilities (N, num_classes, *out_features)
    """

    __constants__ = ["num_classes", "out_features", "reduction", "ignore_index", "label_smoothing"]

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: Sequence[int] = (), bias: bool = False, device: Any = None,
        dtype: Any = None, reduction: str = "mean", weight: Tensor | None = None, ignore_index: int | None = None,
        label_smoothing: float = 0.0, options: Any = None,
    ) -> None:  # fmt: skip
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], found {label_smoothing}")
        super().__init__(weight, reduction=reduction)
        self.num_classes, self.out_features = num_classes, out_features
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing
        self.linear = Linear(in_features, math.prod(out_features, start=num_classes), bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape, bias = (self.num_classes, *self.out_features), self.linear.bias
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape((*shape, self.linear.in_features)), target,
            linear_bias=None if bias is None else bias.reshape(shape), weight=self.weight, reduction=self.reduction,
            ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, options=self.options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


class NLLLoss(_WeightedLoss):
    """-input[target], of logarithms of probabilities. Shape: as of CrossEntropyLoss, with class numbers."""

    __constants__ = ["ignore_index", "reduction"]

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class NLLLoss2d(NLLLoss):
    """NLLLoss, by the name it once had for images."""

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        warnings.warn("`NLLLoss2d` has been deprecated: `NLLLoss` takes images, too.", FutureWarning, stacklevel=2)
        super().__init__(weight, size_average, ignore_index, reduce, reduction)


class CTCLoss(_Loss):
    """-log of the probability that a sequence of distributions spells the target (Graves et al. 2006).

    Shape:
        log_probs      (T, N, C) or (T, C)
        targets        (N, S), or all texts one after another (sum of target_lengths)
        input_lengths, target_lengths   (N) or (), or tuples of N
    """

    __constants__ = ["blank", "reduction"]

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return F.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)


class MultiMarginLoss(_WeightedLoss):
    """max(0, margin - x[target] + x)^p over the wrong classes. Shape: (N, C) or (C), (N) or () -> (), or like the target."""

    __constants__ = ["p", "margin", "reduction"]

    def __init__(
        self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError(f"only p == 1 and p == 2 supported, found {p}")
        if weight is not None and weight.dim() != 1:
            raise ValueError(f"weight must be None or 1D, found {tuple(weight.shape)}")
        self.p, self.margin = p, margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, p=self.p, margin=self.margin, weight=self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """max(0, 1 - x[right] + x[wrong]) over all pairs of classes. Shape: (N, C) or (C), the same -> (), or (N) or ()."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The binary cross entropy of each class, averaged. Shape: (N, C), the same -> (), or (N)."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, weight=self.weight, reduction=self.reduction)


# -- probabilities -----------------------------------------------------------------------------------------------------------


class BCELoss(_WeightedLoss):
    """-(y log(x) + (1 - y) log(1 - x)), of probabilities. Shape: (*), the same -> (), or (*) for "none"."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """BCELoss of sigmoid(input), without its rounding; `pos_weight` weighs the positive answers. Shape: (*), the same -> (), or (*)."""

    __constants__ = None  # type: ignore[assignment]
    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction)


class KLDivLoss(_Loss):
    """y (log(y) - x): how far the distribution exp(x) is from y. Shape: (*), the same -> (), or (*) for "none"."""

    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", log_target: bool = False
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """rate - target * log(rate): the surprise at a count. Shape: (*), the same -> (), or (*) for "none"."""

    __constants__ = ["log_input", "full", "eps", "reduction"]

    def __init__(
        self, log_input: bool = True, full: bool = False, size_average: bool | None = None, eps: float = 1e-8, reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(log_input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(_Loss):
    """(log(var) + (input - target)^2 / var) / 2. Shape: (*), the same, var the same or with a last dimension less or of 1 -> (), or (*)."""

    __constants__ = ["full", "eps", "reduction"]

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)


# -- signs and embeddings ----------------------------------------------------------------------------------------------------


class SoftMarginLoss(_Loss):
    """log(1 + exp(-x y)) for targets of 1 and -1. Shape: (*), the same -> (), or (*) for "none"."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class HingeEmbeddingLoss(_Loss):
    """x where the target is 1, max(0, margin - x) where it is -1. Shape: (*), the same -> (), or (*) for "none"."""

    __constants__ = ["margin", "reduction"]

    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class MarginRankingLoss(_Loss):
    """max(0, margin - y (x1 - x2)). Shape: (N) or (), three times -> (), or (N) for "none"."""

    __constants__ = ["margin", "reduction"]

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_Loss):
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1. Shape: (N, D), (N, D), (N) or (D), (D), ()."""

    __constants__ = ["margin", "reduction"]

    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, margin=self.margin, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, margin + |anchor - positive| - |anchor - negative|) in the p-norm. Shape: (N, D) or (D), three times -> (), or (N) or ()."""

    __constants__ = ["margin", "p", "eps", "swap", "reduction"]

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, size_average: bool | None = None,
        reduce: bool | None = None, reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be positive, found {margin}")
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, margin=self.margin, p=self.p, eps=self.eps, swap=self.swap, reduction=self.reduction
        )


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance of one's own, a function or a module; the Euclidean one if none is given."""

    __constants__ = ["margin", "swap", "reduction"]

    def __init__(
        self, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, margin: float = 1.0, swap: bool = False,
        reduction: str = "mean",
    ) -> None:  # fmt: skip
        super().__init__(reduction=reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginWithDistanceLoss: expected margin to be positive, found {margin}")
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin, self.swap = margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )
