"""torch._inductor.decomposition: how operations come apart for a compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

decompositions: dict[Any, Callable] = {}


def register_decomposition(ops: Any) -> Callable[[Callable], Callable]:
    """A decorator: the function that a compiler may put in the place of these operations. Kept; operations run as they are."""

    def register(function: Callable) -> Callable:
        decompositions.update(dict.fromkeys(ops if isinstance(ops, list | tuple) else [ops], function))
        return function

    return register
