"""Placements: what the ranks along one dimension of a mesh hold of a tensor.

    Replicate()      all of it, each
    Shard(dim)       a piece of dimension `dim`: chunks of ceil(n / ranks), so that the last ranks may have less, or nothing
    Partial("sum")   something of the whole shape, and it is the sum (or mean, or maximum, ...) of them that is meant

Along with its arithmetic (which rank has which piece) each placement knows how to print itself. How one becomes another is in `redistribute.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from flambeau.tensor import Tensor

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """The base of all placements."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether pieces of a dimension lie on the ranks, of this one if `dim` is given."""
        return isinstance(self, (Shard, _StridedShard)) and (dim is None or self.dim == dim)

    def is_replicate(self) -> bool:
        """Whether every rank has all of it."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the ranks' tensors have yet to be reduced, by `reduce_op` if that is given."""
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


@dataclass(frozen=True, repr=False)
class Shard(Placement):
    """Each rank has a piece of dimension `dim`."""

    dim: int

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """(how many of `curr_local_size` rows rank `rank` of `num_chunks` has, which is its first). Behind the end, the first is the end."""
        chunk = -(-curr_local_size // num_chunks)
        first = min(chunk * rank, curr_local_size)
        return min(chunk, curr_local_size - first), first

    def _local_shard_size_and_offset(self, curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        return Shard.local_shard_size_and_offset(curr_local_size, num_chunks, rank)

    def _split_tensor(
        self, tensor: Tensor, num_chunks: int, *, with_padding: bool = True, contiguous: bool = True
    ) -> tuple[list[Tensor], list[int]]:
        """(the piece of every rank, how many rows each lacks to the longest). With padding, all are as long as the longest."""
        sizes = [Shard.local_shard_size_and_offset(tensor.shape[self.dim], num_chunks, i) for i in range(num_chunks)]
        pieces = [tensor.narrow(self.dim, first, size) for size, first in sizes]
        lacking = [sizes[0][0] - size for size, _ in sizes]
        if with_padding:
            pieces = [padded(piece, self.dim, n) for piece, n in zip(pieces, lacking, strict=True)]
        return [piece.contiguous() if contiguous else piece for piece in pieces], lacking


@dataclass(frozen=True, repr=False)
class _StridedShard(Placement):
    """A Shard whose pieces come from `split_factor` blocks: where a dimension is sharded twice, by the inner mesh dimension first.

    8 rows over 2 ranks with split_factor 2: rank 0 has rows 0 1 4 5, rank 1 has 2 3 6 7.
    """

    dim: int
    split_factor: int

    def __init__(self, dim: int, *, split_factor: int = 1, sf: int | None = None):
        object.__setattr__(self, "dim", dim)
        object.__setattr__(self, "split_factor", split_factor if sf is None else sf)

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"

    def rows(self, size: int, num_chunks: int, rank: int) -> list[int]:
        """Which of `size` rows a rank has."""
        blocks = [Shard.local_shard_size_and_offset(size, self.split_factor, i) for i in range(self.split_factor)]
        found: list[int] = []
        for length, first in blocks:
            own, at = Shard.local_shard_size_and_offset(length, num_chunks, rank)
            found += range(first + at, first + at + own)
        return found

    def _local_shard_size_and_offset(self, curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        rows = self.rows(curr_local_size, num_chunks, rank)
        return len(rows), rows[0] if rows else curr_local_size

    def _split_tensor(
        self, tensor: Tensor, num_chunks: int, *, with_padding: bool = True, contiguous: bool = True
    ) -> tuple[list[Tensor], list[int]]:
        """(the piece of every rank, how many rows each lacks to the longest)."""
        from flambeau.tensor.making.factories import tensor as tensor_of

        rows = [self.rows(tensor.shape[self.dim], num_chunks, i) for i in range(num_chunks)]
        pieces = [tensor.index_select(self.dim, tensor_of(r, device=tensor.device).long()) for r in rows]
        lacking = [max(map(len, rows)) - len(r) for r in rows]
        if with_padding:
            pieces = [padded(piece, self.dim, n) for piece, n in zip(pieces, lacking, strict=True)]
        return pieces, lacking


@dataclass(frozen=True, repr=False)
class Replicate(Placement):
    """Each rank has all of it."""

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, repr=False)
class Partial(Placement):
    """What the ranks have is to be reduced: "sum", "avg", "product", "max", "min", "band", "bor" or "bxor" of it is the tensor."""

    reduce_op: str = "sum"

    LINEAR_REDUCE_OPS: ClassVar[tuple[str, ...]] = ("sum", "avg")
    ALL_REDUCE_OPS: ClassVar[tuple[str, ...]] = ("sum", "avg", "product", "max", "min", "band", "bor", "bxor")

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"


@dataclass(frozen=True, repr=False)
class _NormPartial(Partial):
    """Norms of the ranks' pieces. Of p = 2, the whole norm is the root of the sum of their squares; of infinity, their maximum."""

    norm_type: Any = 2

    def __init__(self, norm_type: Any = 2):
        kinds = {float("inf"): "max", float("-inf"): "min"}
        object.__setattr__(self, "reduce_op", kinds.get(norm_type, "sum"))
        object.__setattr__(self, "norm_type", norm_type)

    def __repr__(self) -> str:
        return f"_NormPartial({self.norm_type})"

    def __str__(self) -> str:
        return f"_NormP({self.norm_type})"


def padded(tensor: Tensor, dim: int, lacking: int) -> Tensor:
    """With as many more rows of zeros at the end of a dimension."""
    if not lacking:
        return tensor
    from flambeau.nn import functional

    return functional.pad(tensor, [0, 0] * (tensor.dim() - dim - 1) + [0, lacking])
