"""WeightNormSparsifier: the blocks of a weight with the smallest norms are zeros, or the smallest numbers within every block."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from flambeau.ao.pruning.sparsifier import BaseSparsifier
from flambeau.nn import Module, functional
from flambeau.tensor import Tensor

__all__ = ["WeightNormSparsifier"]

NORMS: dict[Any, Callable[[Tensor], Tensor]] = {1: lambda x: x.abs(), 2: lambda x: x * x, None: lambda x: x * x}


class WeightNormSparsifier(BaseSparsifier):
    """Blocks of `sparse_block_shape` go by the mean of their norm.

    sparsity_level    which part of all blocks is masked
    zeros_per_block   how many numbers of a masked block are zeros: all, unless given
    norm              1 for |x|, 2 for x^2, or a function of the weight
    """

    def __init__(
        self, sparsity_level: float = 0.5, sparse_block_shape: tuple[int, int] = (1, 4), zeros_per_block: int | None = None, norm: Callable | int | None = None
    ):  # fmt: skip
        if not callable(norm) and norm not in NORMS:
            raise NotImplementedError(f"L-{norm} is not yet implemented.")
        self.norm_fn: Callable[[Tensor], Tensor] = norm if callable(norm) else NORMS[norm]
        zeros = prod(sparse_block_shape) if zeros_per_block is None else zeros_per_block
        super().__init__({"sparsity_level": sparsity_level, "sparse_block_shape": sparse_block_shape, "zeros_per_block": zeros})

    def update_mask(  # type: ignore[override]
        self,
        module: Module,
        tensor_name: str,
        sparsity_level: float,
        sparse_block_shape: tuple[int, int],
        zeros_per_block: int,
        **kwargs: Any,
    ) -> None:
        size = prod(sparse_block_shape)
        if zeros_per_block > size:
            raise ValueError("Number of zeros per block cannot be more than the total number of elements in that block.")
        if zeros_per_block < 0:
            raise ValueError("Number of zeros per block should be positive.")
        mask = module.parametrizations[tensor_name][0].mask  # type: ignore[index, union-attr, operator]
        if sparsity_level <= 0 or zeros_per_block == 0:
            mask.data = mask.new_ones(mask.shape)
            return
        if sparsity_level >= 1 and zeros_per_block == size:
            mask.data = mask.new_zeros(mask.shape)
            return
        norms = self.norm_fn(getattr(module, tensor_name))
        found = _of_blocks(norms, sparsity_level, sparse_block_shape)
        mask.data = found if zeros_per_block == size else found.logical_or(_within_blocks(norms, sparse_block_shape, zeros_per_block))


def _of_blocks(norms: Tensor, level: float, block: tuple[int, int]) -> Tensor:
    """Zeros in the part of all blocks whose mean is smallest."""
    h, w = norms.shape[-2:]
    if level <= 0 or level >= 1:
        return norms.new_full((h, w), float(level <= 0))
    means = functional.avg_pool2d(norms[None, None], block, block, ceil_mode=True)[0, 0]
    count = max(0, min(means.numel() - 1, round(level * means.numel())))
    smallest = means.flatten().topk(count, largest=False).indices
    kept = means.new_ones(means.numel()).index_fill(0, smallest, 0).reshape(means.shape)
    return kept.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)[:h, :w].contiguous()


def _within_blocks(norms: Tensor, block: tuple[int, int], zeros: int) -> Tensor:
    """Zeros for so many of the smallest numbers of every block."""
    h, w = norms.shape[-2:]
    padded = functional.pad(norms, (0, -w % block[1], 0, -h % block[0]), value=float("nan"))
    columns = functional.unfold(padded[None, None], block, stride=block)
    smallest = columns.topk(zeros, dim=1, largest=False).indices
    kept = columns.new_ones(columns.shape).scatter(1, smallest, 0)
    return functional.fold(kept, padded.shape, block, stride=block)[0, 0, :h, :w].contiguous()
