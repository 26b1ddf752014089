"""Intel's MKL: not used. Matrix products go to OpenBLAS, Fourier transforms to NumPy."""

from __future__ import annotations

VERBOSE_OFF, VERBOSE_ON = 0, 1


def is_available() -> bool:
    """False."""
    return False
