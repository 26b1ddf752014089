"""Settings of the process that decide what an operation does: the default dtype, determinism, which ways attention may take.

What has been worked out under the old ones does not hold under the new: whoever keeps such things listens, and forgets them.
"""

from __future__ import annotations

from collections.abc import Callable

listeners: list[Callable[[], object]] = []  # called after a setting has changed
not_again: list[Callable[[], object]] = []  # called when an operation does what a call like it is to do again, such as warn


def announce() -> None:
    """A setting has changed."""
    for listener in listeners:
        listener()


def each_time() -> None:
    """What is being done now is more than a result: the next call like this is to do it, too."""
    for listener in not_again:
        listener()
