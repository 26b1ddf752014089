"""report(): who is where.

>>> print(dist.report())                                        # doctest: +SKIP
rank 0   pid 4711   is in all_reduce SUM float32 (4,) at train.py:12, for 3.2 s, and waits for rank 2
rank 1   pid 4712   is in all_reduce SUM float32 (4,) at train.py:12, for 2.9 s, and waits for rank 2
rank 2   pid 4713   is at data.py:40, for 3.4 s, after barrier at train.py:9
"""

from __future__ import annotations

import time
from typing import Any

from flambeau.distributed.stores.arrival import ranks
from flambeau.distributed.watch.deadlock import absent
from flambeau.distributed.watch.watcher import Watcher, doing, waited_for

SETTLED = 1.0  # seconds after which what was heard of the others is no longer older than what is said about them


class Report(list[dict[str, Any]]):
    """What each rank does, as records; printed, a line for each."""

    def __str__(self) -> str:
        several = len({state["host"] for state in self if "host" in state}) > 1
        states = dict(enumerate(self))
        return "\n".join(f"rank {rank}   {_line(state, states, several)}" for rank, state in states.items())

    __repr__ = __str__


def report(watcher: Watcher) -> Report:
    """What each rank did when it was last heard of, at most a second ago."""
    states, now = watcher.states(), time.time()
    for state in states.values():
        for entry in state.get("open", ()):
            entry["seconds"] = round(max(now - entry["began"], 0.0), 1)  # machines' clocks may differ
        state["seconds"] = round(max(now - state.get("since", now), 0.0), 1)
    return Report(states[rank] for rank in range(watcher.size))


def _line(state: dict[str, Any], states: dict[int, dict[str, Any]], several_hosts: bool) -> str:
    if "gone" in state:
        return state["gone"]
    if "pid" not in state:
        return "has not been heard of"
    where = f" on {state['host']}" if several_hosts else ""
    call = waited_for(state)
    seconds = state["seconds"] if call is None else call["seconds"]
    for_long = f", for {seconds:g} s" if call is not None or seconds >= SETTLED else ""
    missing = absent(call, states) if call is not None and seconds >= SETTLED else []
    waits = f", and waits for {'any of ' * call['any']}{ranks(missing)}" if call is not None and missing else ""
    return f"pid {state['pid']}{where}   {doing(state, for_long)}{waits}"
