"""torch.nn.attention.flex_attention: attention with a function of the scores. The names are here for programs that choose another attention."""

from __future__ import annotations

from flambeau import import_only

WHY = "use torch.nn.functional.scaled_dot_product_attention with a mask"

AuxOutput, AuxRequest, BlockMask = import_only.classes("torch.nn.attention.flex_attention", "AuxOutput AuxRequest BlockMask", WHY)
and_masks, create_block_mask, create_mask, flex_attention, noop_mask, or_masks = import_only.functions(
    "torch.nn.attention.flex_attention", "and_masks create_block_mask create_mask flex_attention noop_mask or_masks", WHY
)
_DEFAULT_SPARSE_BLOCK_SIZE = 128

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask", "or_masks",
]  # fmt: skip
