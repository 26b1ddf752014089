"""Allocations and releases, as far as tensors show them: which results are new memory, and when it is given back.

An array that owns its memory tells us itself when it dies. An array from the pool does not own it: a capsule does, which all views of it hold.
When such an array dies while views live on, its capsule waits in `lingering`, and is looked at again with every later note.
"""

from __future__ import annotations

import sys
import weakref
from time import perf_counter_ns as now
from typing import Any

from flambeau.eager.arguments import tensors_in
from flambeau.kernels.mirrored import Mirrored


class Ledger:
    """changes: (time, address, bytes, device), bytes negative where memory is given back."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, int, int, str]] = []
        self.live: dict[int, tuple] = {}  # id of the owner -> (reference to the array, its capsule or None, bytes, device)
        self.lingering: dict[int, tuple] = {}

    def note(self, results: Any, given: tuple, when: int) -> None:
        """Results of something that was given these arguments: those in memory that is not the arguments' are new."""
        if self.lingering:
            self._look_again(when)
        old = {id(_owner(t._array)[1]) for t in tensors_in(given) if hasattr(t._array, "nbytes")}
        for tensor in [t for t in tensors_in(results) if hasattr(t._array, "nbytes")]:
            array, owner = _owner(tensor._array)
            key = id(owner)
            if key in old or key in self.live or key in self.lingering or not array.nbytes:
                continue
            device = "cpu" if type(array).__module__.startswith("numpy") else "cuda"
            try:
                reference = weakref.ref(array, lambda _, key=key: self._died(key))  # type: ignore[misc]
            except TypeError:
                continue  # memory of a foreign kind, which cannot tell when it goes
            self.live[key] = reference, None if owner is array else owner, array.nbytes, device
            self.changes.append((when, key, array.nbytes, device))

    def close(self) -> None:
        """Note no more, and let go of what is watched: a finished profile keeps no memory of the program's."""
        self.live.clear()
        self.lingering.clear()

    def _died(self, key: int) -> None:
        entry = self.live.pop(key, None)
        if entry is None:
            return
        capsule = entry[1]
        # held by the entry, by `capsule`, by the array that is dying, and by the call itself
        if capsule is None or sys.getrefcount(capsule) <= 4:
            self.changes.append((now(), key, -entry[2], entry[3]))
        else:
            self.lingering[key] = entry

    def _look_again(self, when: int) -> None:
        for key, entry in list(self.lingering.items()):
            if sys.getrefcount(entry[1]) <= 2:
                del self.lingering[key]
                self.changes.append((when, key, -entry[2], entry[3]))


def _owner(array: Any) -> tuple[Any, Any]:
    """(the array nearest to the memory, what owns the memory: that array itself, or whatever it got it from)."""
    array = array.memory if type(array) is Mirrored else array
    base = getattr(array, "base", None)
    while base is not None and type(base) is type(array):
        array, base = base, base.base
    return array, array if base is None else base
