"""Tensors that several plans have are kept in the first of them: the way before plans were balanced by size."""

from __future__ import annotations

from dataclasses import replace

from flambeau.distributed.checkpoint.metadata import MetadataIndex
from flambeau.distributed.checkpoint.planner import SavePlan, WriteItemType

__all__ = ["dedup_tensors"]


def dedup_tensors(all_plans: list[SavePlan]) -> list[SavePlan]:
    """The plans, without the boxes of tensors that an earlier plan has, too."""
    seen: set[MetadataIndex] = set()
    kept = []
    for plan in all_plans:
        items = [item for item in plan.items if item.type is WriteItemType.BYTE_IO or item.index not in seen]
        seen.update(item.index for item in items)
        kept.append(replace(plan, items=items))
    return kept
