"""How linear_cross_entropy goes through a batch in chunks, so that its logits are never all in memory."""

from __future__ import annotations

from dataclasses import dataclass

from flambeau import dtypes

__all__ = ["LinearCrossEntropyOptions"]


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """Options of the chunked form. Backward computes the logits of a chunk again, so nothing of them is kept.

    batch_chunk_size    samples of a chunk; None: as `chunking_method` says
    chunking_method     "aspect_ratio": a chunk's logits take as much memory as the input; "aspect_ratio:N": the N-th part of that; "auto"
                        is one of these; None: `batch_chunk_size`, or everything at once
    allow_retain_graph  is always true here
    acc_policy, acc_dtype   in PyTorch, which intermediates are kept in float32. Here sums of half precision are always carried in float32
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: dtypes.dtype | None = None

    def __post_init__(self) -> None:
        if self.acc_policy not in ("auto", "accurate", "balanced", "compact"):
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}. Try 'auto', 'accurate', 'balanced' or 'compact'")
        name, _, factor = (self.chunking_method or "auto").partition(":")
        if name != "auto" and (name != "aspect_ratio" or not (factor or "1").isdigit() or int(factor or 1) < 1):
            raise ValueError(f"invalid chunking_method: {self.chunking_method!r}. Try 'auto', 'aspect_ratio' or 'aspect_ratio:2'")
        size = self.batch_chunk_size
        if size is not None and (not isinstance(size, int) or size < 1):
            raise ValueError(f"batch_chunk_size must be positive int or None, found {size!r}")
        if self.acc_dtype is not None and not self.acc_dtype.is_floating_point:
            raise ValueError(f"acc_dtype must be None or a floating dtype, got {self.acc_dtype!r}")
