"""Who can never go on: ranks whose main threads wait for each other in a circle.

A rank that waits needs all ranks that have not come to its call (one of them, if a message from anyone will do). Ranks that compute may
come; whoever waits only for ranks that may come, may come too. The others never will.

>>> wait = lambda group, *peers: {"waits": group, "begun": {group: 1}, "open": [entry(group, peers)]}
>>> entry = lambda group, peers: {"label": group, "group": group, "number": 1, "peers": peers, "any": False}
>>> stuck({0: wait("a", 1), 1: wait("b", 0)})
[0, 1]
>>> stuck({0: wait("a", 1), 1: {"waits": None, "begun": {}, "open": []}})
[]
>>> stuck({0: wait("a", 1, 2), 1: wait("b", 0)}, gone=[2])
[]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

State = Mapping[str, Any]


def stuck(states: Mapping[int, State], gone: Iterable[int] = ()) -> list[int]:
    """The ranks that wait in vain, given what every rank does. Who waits for one that is gone is told so, and goes on."""
    going: set[int] = set()
    ended = frozenset(gone)
    while more := {rank for rank in states.keys() - going if _may_go_on(states[rank], states, going, ended)}:
        going |= more
    return sorted(states.keys() - going)


def absent(entry: State, states: Mapping[int, State]) -> list[int]:
    """The peers that have not come to this call."""
    return [peer for peer in entry["peers"] if not _has_come(entry, states.get(peer))]


def _may_go_on(state: State, states: Mapping[int, State], going: set[int], gone: frozenset[int]) -> bool:
    waits_for = [entry for entry in state["open"] if entry["label"] == state["waits"]]
    for entry in waits_for:
        missing = absent(entry, states)
        if entry["any"]:
            if len(missing) == len(entry["peers"]) and not going.intersection(missing):
                return False
        elif not going.issuperset(missing) and gone.isdisjoint(missing):
            return False
    return True


def _has_come(entry: State, peer: State | None) -> bool:
    if peer is None:
        return False
    if entry["number"]:
        return peer["begun"].get(entry["group"], 0) >= entry["number"]
    return any(other["match"] in entry["wants"] for other in peer["open"])
