"""A switch for masks written as functions of indices."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any


class TransformGetItemToIndex(AbstractContextManager):
    """Within it, `x[i]` under vmap takes a 0-d tensor as an index, not as a number to be read. Flambeau's vmap does so always."""

    def __exit__(self, *problem: Any) -> None:
        return None
