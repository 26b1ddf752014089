"""Operations that are one here, and several in PyTorch: as those that PyTorch has kernels for.

The histories of these are then what the parts say. Values are the same up to the order in which products are summed.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from flambeau.ops import OPS
from flambeau.tensor import Tensor

DECOMPOSED: dict[str, Callable] = {}


def decomposition(*names: str) -> Callable:
    """Register what operations of these names are made of."""

    def register(function: Callable) -> Callable:
        DECOMPOSED.update(dict.fromkeys(names, function))
        return function

    return register


@decomposition("nn.functional.linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias."""
    turned = weight.t()
    if bias is None:
        return matmul(input, turned)
    if input.dim() == 2:
        return OPS["addmm"].call(bias, input, turned)
    if input.dim() == 3 and input.is_contiguous():
        rows = OPS["addmm"].call(bias, input.view(-1, input.shape[-1]), turned)
        return rows.view(*input.shape[:-1], rows.shape[-1])
    return matmul(input, turned) + bias


@decomposition("matmul", "_matmul")
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The product by the number of dimensions: dot, mv, mm, or bmm of broadcast batches."""
    a, b = input.dim(), other.dim()
    if not a or not b:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D")
    if a == b == 1:
        return OPS["dot"].call(input, other)
    if a == 2 and b == 1:
        return OPS["mv"].call(input, other)
    if a == 1 and b == 2:
        return OPS["mm"].call(input.unsqueeze(0), other).squeeze(0)
    if a == b == 2:
        return OPS["mm"].call(input, other)
    if b <= 2 and a > b:
        return _folded(input, other)
    return _batched(input, other)


@decomposition("nn.functional.layer_norm", "layer_norm")
def layer_norm(input: Tensor, normalized_shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, **_) -> Tensor:
    """The kernel gives mean and deviation besides."""
    return OPS["native_layer_norm"].call(input, normalized_shape, weight, bias, eps)[0]


@decomposition("nn.functional.cross_entropy")
def cross_entropy(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0
) -> Tensor:  # fmt: skip
    """-log softmax of the classes that are meant; of probabilities, or smoothed, by its own formula."""
    whole = OPS["nn.functional.cross_entropy"]
    if label_smoothing or target.is_floating_point() or size_average is not None or reduce is not None:
        return whole.forward(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
    scores = OPS["log_softmax"].call(input, 0 if input.dim() == 1 else 1)
    return OPS["nn.functional.nll_loss"].call(scores, target, weight, ignore_index=ignore_index, reduction=reduction)


MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
PADDINGS = {"zeros": 0, "border": 1, "reflection": 2}


@decomposition("nn.functional.grid_sample")
def grid_sample(input: Tensor, grid: Tensor, mode="bilinear", padding_mode="zeros", align_corners=None) -> Tensor:
    """The kernel takes numbers for the modes."""
    if input.dim() not in (4, 5) or mode not in MODES or padding_mode not in PADDINGS or align_corners is None:
        return OPS["nn.functional.grid_sample"].forward(input, grid, mode, padding_mode, align_corners)
    kernel = OPS[f"grid_sampler_{input.dim() - 2}d"]
    return kernel.call(input, grid, MODES[mode], PADDINGS[padding_mode], bool(align_corners))


def _folded(input: Tensor, other: Tensor) -> Tensor:
    """Many rows times one matrix or vector: all rows at once."""
    rows = input.reshape(-1, input.shape[-1])
    if other.dim() == 1:
        return _shaped(OPS["mv"].call(rows, other), input.shape[:-1])
    return _shaped(OPS["mm"].call(rows, other), (*input.shape[:-1], other.shape[-1]))


def _shaped(tensor: Tensor, shape: tuple) -> Tensor:
    return OPS["_unsafe_view"].call(tensor, tuple(shape))


def _batched(input: Tensor, other: Tensor) -> Tensor:
    from flambeau.kernels.layout import broadcast_shapes

    left = input.unsqueeze(0) if input.dim() == 1 else input
    right = other.unsqueeze(1) if other.dim() == 1 else other
    batch = broadcast_shapes(tuple(left.shape[:-2]), tuple(right.shape[:-2]))
    n, m, p = left.shape[-2], left.shape[-1], right.shape[-1]
    one = left.expand(*batch, n, m).reshape(prod(batch), n, m)
    two = right.expand(*batch, right.shape[-2], p).reshape(prod(batch), right.shape[-2], p)
    shape = (*batch, *([n] if input.dim() > 1 else []), *([p] if other.dim() > 1 else []))
    return _shaped(OPS["bmm"].call(one, two), shape)
