"""MIOpen, AMD's counterpart of cuDNN: not used."""

from __future__ import annotations

from contextlib import AbstractContextManager

from flambeau.backends import for_a_while

immediate = False


def set_flags(_immediate: bool | None = None) -> tuple[bool]:
    """Set the switch if it is not None; what it was before."""
    global immediate
    before = immediate
    if _immediate is not None:
        immediate = _immediate
    return (before,)


def flags(immediate: bool = False) -> AbstractContextManager[None]:
    """The switch within a `with`."""
    return for_a_while(globals(), {"immediate": immediate})
