"""Triangles to attend under, without the triangle: a causal mask that is known by its two lengths and the corner it starts from."""

from __future__ import annotations

import warnings
from enum import IntEnum
from typing import Any

from flambeau import dtypes
from flambeau.nn import functional as F
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """The corner in which the triangle sits; the two agree where there are as many queries as keys."""

    UPPER_LEFT = 1  # query i looks at keys 0 to i, as is_causal=True says
    LOWER_RIGHT = 2  # the last query looks at every key, which is what a cache of keys asks for


class CausalBias(Tensor):
    """The `attn_mask` of scaled_dot_product_attention that lets a query look at what came before it. Use one of the two functions below."""

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        super().__init__()
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv
        if variant is CausalVariant.LOWER_RIGHT and seq_len_q > seq_len_kv:
            text = f"a lower right causal bias of {seq_len_q} queries and {seq_len_kv} keys leaves the first queries nothing to look at"
            warnings.warn(text, stacklevel=2)

    def _materialize(self, device: Any = None) -> Tensor:
        """The triangle: True where a query may look. (seq_len_q, seq_len_kv)."""
        shift = self.seq_len_kv - self.seq_len_q if self.variant is CausalVariant.LOWER_RIGHT else 0
        return factories.ones(self.seq_len_q, self.seq_len_kv, dtype=dtypes.bool, device=device).tril(shift)

    def _attend(self, query, key, value, attn_mask, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if is_causal:
            raise ValueError("CausalBias should not be used with causal=True")
        square = self.seq_len_q == self.seq_len_kv or self.variant is CausalVariant.UPPER_LEFT
        mask = None if square else self._materialize(query.device)
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, square, scale=scale, enable_gqa=enable_gqa)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            bias = kwargs["attn_mask"] if "attn_mask" in kwargs else args[3]
            return bias._attend(*args, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    def __repr__(self) -> str:  # type: ignore[override]
        return repr(self._materialize())


def causal_upper_left(*size: int) -> CausalBias:
    """The bias of (queries, keys) whose triangle starts at the first key, as is_causal=True has it.

    >>> causal_upper_left(2, 3)
    tensor([[ True, False, False],
            [ True,  True, False]])
    """
    return _of(CausalVariant.UPPER_LEFT, "causal_upper_left", size)


def causal_lower_right(*size: int) -> CausalBias:
    """The bias of (queries, keys) whose triangle ends at the last key.

    >>> causal_lower_right(2, 3)
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    return _of(CausalVariant.LOWER_RIGHT, "causal_lower_right", size)


def _of(variant: CausalVariant, name: str, size: tuple[int, ...]) -> CausalBias:
    if len(size) != 2:
        raise AssertionError(f"{name} takes two lengths, of queries and of keys; got {len(size)}")
    return CausalBias(variant, *size)
