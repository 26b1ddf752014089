"""cuSPARSELt: not used."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False


def version() -> int | None:
    """None: it is not there."""
    return None
