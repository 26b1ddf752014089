"""What several ranks hold alike is written once, by the rank that has the least to write so far."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from flambeau.distributed.checkpoint.metadata import MetadataIndex
from flambeau.distributed.checkpoint.planner import SavePlan, WriteItem

__all__ = ["dedup_save_plans"]


def dedup_save_plans(all_plans: list[SavePlan], save_to_lowest_rank: bool = False) -> list[SavePlan]:
    """The plans of all ranks, each item left in one of them: the first that has it, or the one with the fewest bytes so far."""
    holders: dict[MetadataIndex, list[int]] = defaultdict(list)
    items: dict[MetadataIndex, WriteItem] = {}
    for rank, plan in enumerate(all_plans):
        for item in plan.items:
            holders[item.index].append(rank)
            items.setdefault(item.index, item)
    load = [0] * len(all_plans)
    writer: dict[MetadataIndex, int] = {}
    for index, ranks in holders.items():
        chosen = min(ranks) if save_to_lowest_rank else min(ranks, key=load.__getitem__)
        writer[index] = chosen
        load[chosen] += items[index].tensor_storage_size() or 1
    return [replace(plan, items=_own(plan, rank, writer)) for rank, plan in enumerate(all_plans)]


def _own(plan: SavePlan, rank: int, writer: dict[MetadataIndex, int]) -> list[WriteItem]:
    """The items of a plan that its rank is to write, each once."""
    kept = {item.index: item for item in reversed(plan.items) if writer[item.index] == rank}
    return list(reversed(kept.values()))
