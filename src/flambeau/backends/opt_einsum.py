"""opt_einsum, a package that orders the products of `einsum`: not used. They are taken from left to right."""

from __future__ import annotations

from typing import Any

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False."""
    return False


def get_opt_einsum() -> Any:
    """None: it is not used."""
    return None
