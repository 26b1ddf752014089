"""flambeau.signal: window functions for signals."""

from flambeau.signal import windows

__all__ = ["windows"]
