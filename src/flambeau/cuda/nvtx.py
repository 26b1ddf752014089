"""Names on the time line of NVIDIA's profilers: a range opened and closed, a moment, or the range of a `with`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def _marks() -> Any:
    from cupy.cuda import nvtx

    return nvtx


def range_push(msg: str) -> int:
    """Open a range; ranges lie within each other."""
    return _marks().RangePush(msg)


def range_pop() -> int:
    """Close the innermost range."""
    return _marks().RangePop()


def range_start(msg: str) -> int:
    """Open a range that `range_end` closes, wherever others begin and end; its number."""
    return _marks().RangeStart(msg)


def range_end(range_id: int) -> None:
    """Close a range by its number."""
    _marks().RangeEnd(range_id)


def mark(msg: str) -> None:
    """A moment."""
    _marks().Mark(msg)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A named range within a `with`."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
