"""The short cut of transformer layers in evaluation mode."""

from __future__ import annotations

_fastpath = True


def get_fastpath_enabled() -> bool:
    """Whether layers may take it. Every way gives the same result here."""
    return _fastpath


def set_fastpath_enabled(value: bool) -> None:
    """Remember the answer of `get_fastpath_enabled`."""
    global _fastpath
    _fastpath = value
