"""torch.nested: tensors whose rows have different lengths. Flambeau has none: the names can be imported, and say so when they are used."""

from __future__ import annotations

from flambeau import import_only

WHY = (
    "Flambeau has no nested tensors. nn.utils.rnn.pad_sequence makes one tensor of pieces of different lengths, pack_sequence a packed one"
)
__all__ = import_only.fill(
    __name__, WHY, functions="as_nested_tensor masked_select narrow nested_tensor nested_tensor_from_jagged to_padded_tensor"
)
