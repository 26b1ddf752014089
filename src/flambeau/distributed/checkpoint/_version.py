"""Which PyTorch wrote the checkpoint that is being read, where that is known; None otherwise."""

from __future__ import annotations

_derived_version: str | None = None
