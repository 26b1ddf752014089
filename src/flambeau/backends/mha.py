"""The short cut of transformer encoders in evaluation mode: nothing is computed for padding, whose results are zero then."""

from __future__ import annotations

from flambeau import settings


def get_fastpath_enabled() -> bool:
    """Whether encoders may take it."""
    return settings.encoder_fastpath


def set_fastpath_enabled(value: bool) -> None:
    """Let encoders take it, or not."""
    settings.encoder_fastpath = value
