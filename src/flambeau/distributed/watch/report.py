"""report(): who is where.

>>> print(dist.report())                                        # doctest: +SKIP
rank 0   pid 4711   is in all_reduce SUM float32 (4) at train.py:12, for 3.2 s
rank 1   pid 4712   is at train.py:40, after barrier at train.py:9
"""

from __future__ import annotations

from typing import Any

from flambeau.distributed.watch.watcher import Watcher, doing


class Report(list[dict[str, Any]]):
    """What each rank does, as records; printed, a line for each."""

    def __str__(self) -> str:
        return "\n".join(f"rank {rank}   {_line(state)}" for rank, state in enumerate(self))

    __repr__ = __str__


def report(watcher: Watcher) -> Report:
    """What each rank did when it was last heard of, at most a second ago."""
    states = watcher.states()
    return Report(states[rank] for rank in range(watcher.size))


def _line(state: dict[str, Any]) -> str:
    if "gone" in state:
        return state["gone"]
    if "pid" not in state:
        return "has not been heard of"
    seconds = f", for {state['open'][0]['seconds']:g} s" if state["open"] else ""
    return f"pid {state['pid']}   {doing(state)}{seconds}"
