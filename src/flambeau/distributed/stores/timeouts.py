"""What a store says when nobody set a key in time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from flambeau.distributed.errors import DistStoreError

DEFAULT = timedelta(seconds=300)


def nobody_set(step: str, missing: Sequence[bytes], asked: Sequence[bytes], timeout: float) -> DistStoreError:
    """The error of a step that waited in vain."""
    names = ", ".join(repr(key.decode(errors="replace")) for key in missing[:20]) + (", ..." if len(missing) > 20 else "")
    there = len(asked) - len(missing) if step in ("wait", "multi_get") else 0
    return DistStoreError(
        f"{step}: wait timeout after {timeout * 1000:.0f}ms, keys: {names}"
        + (f" ({there} of the {len(asked)} keys asked for are there)" if there > 0 else "")
        + "\n    expected  another process sets them"
        "\n    try       see whether that process is still running, and whether it uses the same prefix and names;"
        "\n              a longer wait is store.set_timeout(timedelta(...)), or timeout= where the group is started"
    )


def seconds(timeout: timedelta, what: str) -> float:
    """A duration in seconds. Stores take nothing but timedelta, as in PyTorch."""
    if not isinstance(timeout, timedelta):
        raise TypeError(f"{what}: the timeout must be a datetime.timedelta, not {timeout!r}. For seconds: timedelta(seconds={timeout!r})")
    return timeout.total_seconds()
