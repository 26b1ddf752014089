"""Who has the memory: `snapshot()` on demand, the same table in the error of an allocation that finds no room, `record()` for lines.

>>> import flambeau
>>> held = flambeau.ones(256, 1024)
>>> flambeau.memory.snapshot(device="cpu").kinds["other"] >= 2**20
True
"""

from flambeau.memory.recording import record
from flambeau.memory.remedies import Remedy
from flambeau.memory.snapshot import Block, Snapshot, explanation, reset_peak, snapshot, trim

__all__ = ["Block", "Remedy", "Snapshot", "explanation", "record", "reset_peak", "snapshot", "trim"]
