"""OpenMP: not used. Flambeau has one pool of threads of its own, see `torch.set_num_threads`."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False
