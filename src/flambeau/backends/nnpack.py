"""NNPACK: not used; convolutions are compiled loops of Flambeau's own."""

from __future__ import annotations

from contextlib import AbstractContextManager

from flambeau.backends import for_a_while

enabled = True


def is_available() -> bool:
    """False."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Set the switch; what it was before."""
    global enabled
    before, enabled = enabled, _enabled
    return (before,)


def flags(enabled: bool = False) -> AbstractContextManager[None]:
    """The switch within a `with`."""
    return for_a_while(globals(), {"enabled": enabled})
