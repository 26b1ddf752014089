"""Tables of vectors: Embedding reads rows, EmbeddingBag reads bags of rows and combines each to one."""

from __future__ import annotations

from typing import Any

from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty
from flambeau.tensor.making.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """A weight of (num_embeddings, embedding_dim), and the options that both layers show."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    weight: Tensor
    max_norm: float | None
    norm_type: float
    scale_grad_by_freq: bool
    sparse: bool

    def _set_padding(self, padding_idx: int | None) -> None:
        if padding_idx is not None:
            if not -self.num_embeddings <= padding_idx < self.num_embeddings:
                found = f"found {padding_idx} for {self.num_embeddings} rows"
                raise AssertionError(f"padding_idx must be within num_embeddings: {found}")
            padding_idx %= self.num_embeddings
        self.padding_idx = padding_idx

    def _set_weight(self, given: Tensor | None, requires_grad: bool, device: Any, dtype: Any) -> None:
        shape = (self.num_embeddings, self.embedding_dim)
        if given is None:
            self.weight = Parameter(empty(shape, device=device, dtype=dtype), requires_grad)
            self.reset_parameters()
        else:
            if tuple(given.shape) != shape:
                found = f"found {tuple(given.shape)}, expected {shape}"
                raise AssertionError(f"Shape of weight does not match num_embeddings x embedding_dim: {found}")
            self.weight = Parameter(given, requires_grad)

    def reset_parameters(self) -> None:
        """Draw new rows from the standard normal distribution; the padding row is zero."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            self.weight.detach()[self.padding_idx].fill_(0)

    def _shown(self) -> list[str]:
        found = [f"{self.num_embeddings}, {self.embedding_dim}"]
        for name, usual in (("padding_idx", None), ("max_norm", None), ("norm_type", 2), ("scale_grad_by_freq", False), ("sparse", False)):
            if getattr(self, name) != usual:
                found.append(f"{name}={getattr(self, name)!r}")
        return found


class Embedding(_Table):
    """A vector for every number: reads rows of a table.

    Shape:
        input   (*), int64 or int32
        output  (*, embedding_dim)
        weight  (num_embeddings, embedding_dim), starts standard normal; the row padding_idx starts at zero and gets no gradient

    >>> Embedding(10, 3, padding_idx=-1)
    Embedding(10, 3, padding_idx=9)
    """

    __constants__ = ["num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"]

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self._set_padding(padding_idx)
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self._set_weight(_weight, not _freeze, device, dtype)
        self.sparse = sparse

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)

    def extra_repr(self) -> str:
        return ", ".join(self._shown())

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> Embedding:  # fmt: skip
        """An Embedding with this table, which does not learn if it is frozen. (num_embeddings, embedding_dim)."""
        if embeddings.dim() != 2:
            raise AssertionError(f"Embeddings parameter is expected to be a matrix, found shape {tuple(embeddings.shape)}")
        rows, width = embeddings.shape
        return cls(
            rows, width, _weight=embeddings, _freeze=freeze, padding_idx=padding_idx, max_norm=max_norm, norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq, sparse=sparse,
        )  # fmt: skip


class EmbeddingBag(_Table):
    """The sum, mean or maximum of the rows in each bag, without keeping the rows.

    Shape:
        input   (B, N), bags of equal size; or (N,) with offsets (B,), where each bag begins
        output  (B, embedding_dim); a bag without rows is zero
        weight  (num_embeddings, embedding_dim), starts standard normal
    """

    __constants__ = [
        "num_embeddings", "embedding_dim", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "include_last_offset",
        "padding_idx",
    ]  # fmt: skip

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type, self.scale_grad_by_freq = max_norm, norm_type, scale_grad_by_freq
        self._set_padding(padding_idx)
        self._set_weight(_weight, True, device, dtype)
        self.mode, self.sparse, self.include_last_offset = mode, sparse, include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse, per_sample_weights,
            self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        first, *rest = self._shown()
        padding = [text for text in rest if text.startswith("padding_idx")]
        return ", ".join([first, *(text for text in rest if text not in padding), f"mode={self.mode!r}", *padding])

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
        mode: str = "mean", sparse: bool = False, include_last_offset: bool = False, padding_idx: int | None = None,
    ) -> EmbeddingBag:  # fmt: skip
        """An EmbeddingBag with this table, which does not learn if it is frozen. (num_embeddings, embedding_dim)."""
        if embeddings.dim() != 2:
            raise AssertionError(f"Embeddings parameter is expected to be a matrix, found shape {tuple(embeddings.shape)}")
        rows, width = embeddings.shape
        bag = cls(
            rows, width, _weight=embeddings, max_norm=max_norm, norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, mode=mode,
            sparse=sparse, include_last_offset=include_last_offset, padding_idx=padding_idx,
        )  # fmt: skip
        bag.weight.requires_grad = not freeze
        return bag
