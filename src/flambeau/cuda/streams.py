"""Streams, which are queues of work on a GPU, and events, which are marks in them."""

from __future__ import annotations

import contextlib
from typing import Any

from flambeau import devices
from flambeau.cuda.choosing import gpus, index_of, is_available

__all__ = ["Event", "ExternalStream", "Stream"]


class Stream:
    """A queue of work on a GPU. Work of one stream runs in order; streams run beside each other and wait only where they are told to."""

    def __init__(self, device: Any = None, priority: int = 0, **kwargs):
        if not is_available():
            raise RuntimeError("torch.cuda.Stream requires CUDA support: there is no GPU that can be used here")
        room, index = gpus(), index_of(device)
        with room.Device(index):
            self._hold(room.cupy.cuda.Stream(non_blocking=True, priority=priority), index)

    def _hold(self, stream: Any, index: int) -> Stream:
        self._stream, self.device_index = stream, index
        return self

    @classmethod
    def _of(cls, stream: Any, index: int) -> Stream:
        return object.__new__(Stream)._hold(stream, index)

    @property
    def cuda_stream(self) -> int:
        """The address by which CUDA knows it."""
        return self._stream.ptr

    stream_id = cuda_stream

    @property
    def device(self) -> devices.device:
        """The GPU it belongs to."""
        return devices.device("cuda", self.device_index)

    @property
    def priority(self) -> int:
        """Negative numbers come first."""
        return self._stream.priority

    def query(self) -> bool:
        """Whether all its work is done."""
        return self._stream.done

    def synchronize(self) -> None:
        """Wait until all its work is done."""
        self._stream.synchronize()
        gpus().look()

    def record_event(self, event: Event | None = None) -> Event:
        """An event that happens when the work so far is done."""
        found = Event() if event is None else event
        found.record(self)
        return found

    def wait_event(self, event: Event) -> None:
        """Let future work wait for an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let future work wait for what another stream has been asked so far."""
        self.wait_event(stream.record_event())

    def __enter__(self) -> Stream:
        self._contexts = [*getattr(self, "_contexts", []), context := StreamContext(self)]
        context.__enter__()
        return self

    def __exit__(self, *problem) -> None:
        self._contexts.pop().__exit__(*problem)

    def __eq__(self, other) -> bool:
        return isinstance(other, Stream) and (self.cuda_stream, self.device_index) == (other.cuda_stream, other.device_index)

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by its address."""

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs):
        index = index_of(device)
        self._hold(gpus().cupy.cuda.ExternalStream(stream_ptr, index), index)


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """A stream that another library made, by its address."""
    return ExternalStream(data_ptr, device)


def default_stream(device: Any = None) -> Stream:
    """The stream of work that was given to no other."""
    return Stream._of(gpus().cupy.cuda.Stream.null, index_of(device))


def current_stream(device: Any = None) -> Stream:
    """The stream that work goes to now."""
    room, index = gpus(), index_of(device)
    with room.Device(index):
        return Stream._of(room.cupy.cuda.get_current_stream(), index)


def set_stream(stream: Stream | None) -> None:
    """Send work to this stream from now on; `with torch.cuda.stream(s):` is preferred."""
    if stream is not None:
        gpus().Device(stream.device_index).use()
        stream._stream.use()


class StreamContext:
    """`with torch.cuda.stream(s):` sends work to stream s; None changes nothing."""

    def __init__(self, stream: Stream | None):
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._inside = contextlib.ExitStack()
            self._inside.enter_context(gpus().Device(self.stream.device_index))
            self._inside.enter_context(self.stream._stream)

    def __exit__(self, *problem) -> None:
        if self.stream is not None:
            self._inside.close()


class Event:
    """A mark in a stream of work: it has happened when everything before it is done.

    >>> start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False):
        if not is_available():
            raise RuntimeError("Tried to instantiate dummy base class Event: there is no GPU that can be used here")
        room = gpus()
        self._event = room.cupy.cuda.Event(block=blocking, disable_timing=not enable_timing, interprocess=interprocess)
        self._recorded = False

    @property
    def cuda_event(self) -> int:
        """The address by which CUDA knows it."""
        return self._event.ptr

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark behind what the stream (the current one, if none is given) has been asked so far."""
        self._event.record((current_stream() if stream is None else stream)._stream)
        self._recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let future work of a stream wait for this event."""
        (current_stream() if stream is None else stream)._stream.wait_event(self._event)

    def query(self) -> bool:
        """Whether it has happened; also if it was never recorded."""
        return not self._recorded or self._event.done

    def synchronize(self) -> None:
        """Wait until it has happened."""
        self._event.synchronize()
        gpus().look()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another; both made with enable_timing=True."""
        if not self._recorded or not end_event._recorded:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return gpus().cupy.cuda.get_elapsed_time(self._event, end_event._event)

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.cuda_event:#x}>" if self._recorded else "<torch.cuda.Event uninitialized>"
