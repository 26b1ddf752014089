"""torch.utils.deterministic: whether memory that was never written to gets values under `use_deterministic_algorithms`."""

from __future__ import annotations

import sys
import types

from flambeau import determinism


class _Switches(types.ModuleType):
    """A module whose attribute is a setting: programs assign to it."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        """If True, which it is to begin with, `torch.empty` gives NaN, or the largest number, while deterministic algorithms are asked for."""
        return determinism.fill_uninitialized_memory

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, fill: bool) -> None:
        if not isinstance(fill, bool):
            raise TypeError(f"fill_uninitialized_memory must be bool, not {type(fill).__name__}")
        determinism.fill_uninitialized_memory = fill


sys.modules[__name__].__class__ = _Switches
