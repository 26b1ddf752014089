"""DebugLevel: how closely a program wants its groups watched. TORCH_DISTRIBUTED_DEBUG says it from outside: OFF, INFO or DETAIL.

Collectives compare what the ranks call at every level (FLAMBEAU_DIST_CHECK=0 ends that), so the level is for programs that ask for it.
"""

from __future__ import annotations

import enum
import os

__all__ = ["DebugLevel", "get_debug_level", "set_debug_level", "set_debug_level_from_env"]

VARIABLE = "TORCH_DISTRIBUTED_DEBUG"


class DebugLevel(enum.IntEnum):
    """The three levels."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def from_env() -> DebugLevel:
    """The level that the environment asks for."""
    text = os.environ.get(VARIABLE, "OFF")
    if text.upper() not in DebugLevel.__members__:
        raise ValueError(f"{VARIABLE} must be OFF, INFO or DETAIL, it is {text!r}")
    return DebugLevel[text.upper()]


_level: DebugLevel | None = None  # None until somebody asks: an odd variable must not break an import


def get_debug_level() -> DebugLevel:
    """The level: what was set last, at first by the environment.

    >>> get_debug_level()
    <DebugLevel.OFF: 0>
    """
    global _level
    if _level is None:
        _level = from_env()
    return _level


def set_debug_level(level: DebugLevel) -> None:
    """Set the level, whatever the environment says."""
    global _level
    if not isinstance(level, DebugLevel):
        raise TypeError(f"set_debug_level() takes a DebugLevel, such as DebugLevel.INFO, not {level!r}")
    _level = level


def set_debug_level_from_env() -> None:
    """Set the level that the environment asks for now."""
    global _level
    _level = from_env()
