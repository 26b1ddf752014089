"""Where programs look for the type of compiled modules, and ask whether a compiler could run."""

from __future__ import annotations

from flambeau.compiler.eagerly import OptimizedModule

__all__ = ["OptimizedModule", "is_dynamo_supported"]


def is_dynamo_supported() -> bool:
    """Whether Python can be captured: no, it runs as it is."""
    return False
