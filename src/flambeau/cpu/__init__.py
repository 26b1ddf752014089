"""torch.cpu: the CPU as a device among others, for programs that ask every device the same questions.

There is one CPU; its work is done when a call returns, so streams and events have nothing to wait for.
"""

from __future__ import annotations

from typing import Any

from flambeau.cpu import amp

__all__ = [
    "Event", "Stream", "StreamContext", "amp", "current_device", "current_stream", "device_count", "is_available", "is_initialized", "set_device",
    "stream", "synchronize",
]  # fmt: skip


def is_available() -> bool:
    """True."""
    return True


def is_initialized() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """ "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing to choose from."""


def synchronize(device: Any = None) -> None:
    """Nothing to wait for."""


class Stream:
    """The one order in which things happen."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for."""

    def record_event(self) -> Event:
        """A moment in this stream: now."""
        return Event()

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for."""


class Event:
    """A moment that has passed already."""

    def query(self) -> bool:
        """True: it has passed."""
        return True

    def record(self, stream: Stream | None = None) -> None:
        """Now."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for."""


_default = Stream()


def current_stream(device: Any = None) -> Stream:
    """The one stream there is."""
    return _default


class StreamContext:
    """Within it things happen in `stream`, which changes nothing."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        pass


def stream(stream: Stream) -> StreamContext:
    """A context in which things happen in `stream`."""
    return StreamContext(stream)
