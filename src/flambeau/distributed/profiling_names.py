"""record_comm: a name for what is sent inside of a `with`, as a trace shows it.

with record_comm("gather layer 1"):
    all_gather_into_tensor(whole, part)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flambeau.autograd.profiler import record_function

__all__ = ["record_comm"]


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Let a profiler put the collectives inside under this name."""
    with record_function(name):
        yield
