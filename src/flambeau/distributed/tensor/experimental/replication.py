"""implicit_replication: plain tensors beside DTensors count as replicated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from flambeau.distributed.tensor.calls import replicated_implicitly


@contextlib.contextmanager
def implicit_replication() -> Iterator[None]:
    """Within it, a plain tensor in an operation with DTensors counts as replicated: every rank has the same. That is the program's promise."""
    before = replicated_implicitly[0]
    replicated_implicitly[0] = True
    try:
        yield
    finally:
        replicated_implicitly[0] = before
