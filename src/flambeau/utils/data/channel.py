"""The line between a loader and one of its workers: messages over a pair of sockets, and the numbers beside them in shared memory.

    loader                                   worker
      send(task)          ── socket ──▶        receive()
      receive()           ◀── socket ──        Shelf.send(batch)
      tensors over        ◀═ segment ═▶        arrays copied there once

A batch is pickled, but not its arrays: these are laid side by side in a segment of shared memory without a name, whose descriptor is
sent along the first time. The loader's tensors lie right there. When the last of them dies, the loader tells the worker with the next
task, and the worker uses the segment again: no fresh pages for every batch. Small batches go through the socket as they are.
"""

from __future__ import annotations

import array
import os
import pickle
import socket
import struct
import weakref
from collections.abc import Callable
from io import BytesIO
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from flambeau.kernels import arrays
from flambeau.multiprocessing.reductions import refuse_history
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.memory.anonymous_memory import Segment
from flambeau.tensor.memory.untyped_storage import UntypedStorage

INLINE = 32 << 10  # bytes up to which a batch goes through the socket: see benchmarks/cases/data.py
ALIGN = 64  # a cache line
HELD = 128  # segments that tensors of a loader may keep, of all workers; batches beyond are copied, so that descriptors do not run out
SPARE = 4  # unused segments a worker keeps

_HEADER = struct.Struct("<QI")  # length of the message, number of descriptors with it
_CAN_SEND_DESCRIPTORS = hasattr(socket, "CMSG_SPACE") and hasattr(socket, "SCM_RIGHTS")


class Channel:
    """Whole messages over a socket, with descriptors."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.unsent: list[memoryview] = []  # what the other side had no room for

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """The two ends of a line."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    def __getstate__(self) -> socket.socket:
        return self.line

    def __setstate__(self, line: socket.socket) -> None:
        self.__init__(line)  # type: ignore[misc]

    def fileno(self) -> int:
        """For poll."""
        return self.line.fileno()

    def send(self, message: bytes, descriptors: tuple[int, ...] = ()) -> None:
        """Send a message; waits until the other side has room for it."""
        header = _HEADER.pack(len(message), len(descriptors))
        if descriptors:
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))
            self.line.sendmsg([header], [rights])
            self.line.sendall(message)
        else:
            self.line.sendall(header + message)

    def post(self, message: bytes) -> None:
        """Send a message without waiting: what finds no room is sent by `flush`."""
        self.unsent.append(memoryview(_HEADER.pack(len(message), 0) + message))
        self.flush()

    def flush(self) -> bool:
        """Send what is waiting, as far as there is room. Whether nothing is left."""
        while self.unsent:
            try:
                sent = self.line.send(self.unsent[0], getattr(socket, "MSG_DONTWAIT", 0))
            except BlockingIOError:
                return False
            if sent == len(self.unsent[0]):
                self.unsent.pop(0)
            else:
                self.unsent[0] = self.unsent[0][sent:]
        return True

    def receive(self) -> tuple[bytearray, list[int]]:
        """The next message and its descriptors. EOFError when the other side is gone."""
        descriptors: list[int] = []
        header = b""
        while len(header) < _HEADER.size:
            if _CAN_SEND_DESCRIPTORS:
                part, rights, _, _ = self.line.recvmsg(_HEADER.size - len(header), socket.CMSG_SPACE(4))
                for _, _, raw in rights:
                    descriptors += array.array("i", raw[: len(raw) - len(raw) % 4])
            else:
                part = self.line.recv(_HEADER.size - len(header))
            if not part:
                raise EOFError("the other side is gone")
            header += part
        length, expected = _HEADER.unpack(header)
        message = bytearray(length)
        view = memoryview(message)
        while view:
            n = self.line.recv_into(view)
            if not n:
                raise EOFError("the other side is gone")
            view = view[n:]
        if len(descriptors) != expected:
            raise OSError(f"{expected} descriptors of shared memory were sent but {len(descriptors)} arrived: does `ulimit -n` allow more?")
        return message, descriptors

    def no_more(self) -> None:
        """Tell the other side that nothing will come any more; it can still send."""
        self.line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the line."""
        self.line.close()


# -- the worker's end ------------------------------------------------------------------------------------------------


class Shelf:
    """The segments of a worker: what it sends lies in one of them until the loader gives it back."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.segments: dict[int, Segment] = {}
        self.free: list[int] = []
        self.count = 0

    def back(self, numbers: list[int]) -> None:
        """The loader has no tensors over these segments any more."""
        self.free += [number for number in numbers if number in self.segments]

    def send(self, note: Any, data: Any) -> None:
        """Send a note and data, whose arrays go by shared memory if they are large."""
        buffers: list[pickle.PickleBuffer] = []
        main = _pickled(data, buffers)
        views = [buffer.raw() for buffer in buffers]
        nbytes = sum(view.nbytes for view in views) + len(main)
        if nbytes <= INLINE or not _CAN_SEND_DESCRIPTORS:
            self.channel.send(pickle.dumps((note, main, [bytearray(v) for v in views], None), 5))
            return
        if len(main) > INLINE:  # a batch of text, say: it would fill the socket, and the worker would wait instead of preparing the next
            views.append(memoryview(main))
            main = b""
        places, end = [], 0
        for view in views:
            places.append((end, view.nbytes))
            end += -(-view.nbytes // ALIGN) * ALIGN
        number, segment, fresh, dropped = self._segment(end)
        memory = segment.memory.data
        for (start, n), view in zip(places, views, strict=True):
            memory[start : start + n] = view
        lying = (number, segment.nbytes if fresh else 0, places, dropped)
        self.channel.send(pickle.dumps((note, main, None, lying), 5), (segment.descriptor,) if fresh else ())
        if fresh:
            segment.close()

    def _segment(self, nbytes: int) -> tuple[int, Segment, bool, list[int]]:
        """(number, segment, whether it is new, numbers of those given up) with room for a batch."""
        fitting = [number for number in self.free if self.segments[number].nbytes >= nbytes]
        if fitting:
            number = min(fitting, key=lambda number: self.segments[number].nbytes)
            self.free.remove(number)
            return number, self.segments[number], False, self._drop(SPARE)
        self.count += 1
        # An eighth more than needed, in whole pages, so that batches of slightly varying size fit too.
        self.segments[self.count] = segment = Segment.new(-(-(nbytes + nbytes // 8) // 4096) * 4096)
        return self.count, segment, True, self._drop(0)  # those that are free were too small

    def _drop(self, keep: int) -> list[int]:
        dropped = self.free[: max(0, len(self.free) - keep)]
        for number in dropped:
            del self.segments[number]
        self.free = self.free[len(dropped) :]
        return dropped


class _BatchPickler(pickle.Pickler):
    """Pickles a batch: plain tensors as a buffer and a shape, the rest as `multiprocessing` does."""

    dispatch_table = ForkingPickler(BytesIO()).dispatch_table  # type: ignore[attr-defined]

    def reducer_override(self, value):
        if not isinstance(value, (Tensor, UntypedStorage)):
            return NotImplemented
        if isinstance(value, Tensor):
            refuse_history(value)
        if type(value) is not Tensor or type(value._array) is not np.ndarray:
            # By value: the worker may be gone before the loader could fetch the descriptor of a shared storage.
            return value.__reduce_ex__(5)
        held = value._array
        if not held.flags.c_contiguous:
            held = held.copy(order="K")  # only what the tensor shows, not the storage behind it, in the same order of dimensions
        raw = held.ravel(order="K").view(np.uint8)
        strides = None if held.flags.c_contiguous else held.strides
        buffer = pickle.PickleBuffer(raw) if raw.size else b""
        return _tensor, (buffer, value._array.dtype, held.shape, strides, value.requires_grad)


def _tensor(raw: Any, dtype: np.dtype, shape: tuple, strides: tuple | None, needs: bool) -> Tensor:
    if not len(memoryview(raw)):
        tensor = wrap(arrays.empty(shape, dtype))
    else:
        flat = np.frombuffer(raw, np.uint8).view(dtype)
        tensor = wrap(np.ndarray(shape, dtype, flat, strides=strides) if strides else flat.reshape(shape))
    return tensor.requires_grad_() if needs else tensor


def _pickled(data: Any, buffers: list) -> bytes:
    out = BytesIO()
    _BatchPickler(out, 5, buffer_callback=buffers.append).dump(data)
    return out.getvalue()


# -- the loader's end ------------------------------------------------------------------------------------------------


class Table:
    """What a loader knows of the segments of one worker: their memory, and which of them tensors are looking at."""

    def __init__(self, channel: Channel, most: int) -> None:
        self.channel = channel
        self.most = most  # segments that may be held
        self.memory: dict[int, np.ndarray] = {}
        self.held: dict[int, weakref.ref] = {}
        self.returned: list[int] = []  # free again, to be told to the worker with the next task

    def receive(self) -> tuple[Any, Callable[[], Any]]:
        """The note of the next message, and a function that unpacks the data."""
        message, descriptors = self.channel.receive()
        note, main, inline, lying = pickle.loads(message)
        if lying is None:
            return note, lambda: pickle.loads(main, buffers=inline)
        number, fresh, places, dropped = lying
        for old in dropped:
            self.memory.pop(old, None)
        if fresh:
            try:
                self.memory[number] = Segment(descriptors[0], fresh).memory  # the descriptor closes with the segment, the mapping stays
            except BaseException:
                os.close(descriptors[0])
                raise
        return note, lambda: self._unpack(number, places, main)

    def take_returned(self) -> list[int]:
        """The segments that no tensor looks at any more, each told once."""
        self._collect()
        returned, self.returned = self.returned, []
        return returned

    def _collect(self) -> None:
        # Looked for, where a callback of the reference would tell: Ctrl-C in the middle of a callback is printed, and the program goes on.
        for number in [number for number, lease in self.held.items() if lease() is None]:
            del self.held[number]
            self.returned.append(number)

    def _unpack(self, number: int, places: list, main: bytes) -> Any:
        memory = self.memory[number]
        self._collect()
        if len(self.held) >= self.most:
            views = [bytearray(memory[start : start + n]) for start, n in places]
            self.returned.append(number)
        else:
            # All arrays of the batch are views of `lease`; it dies when the last of them does, and that is when the segment is free again.
            # (A view of a view refers to the first array of the chain: the memoryview makes `lease` that.)
            lease = np.frombuffer(memory.data, np.uint8)
            self.held[number] = weakref.ref(lease)
            views = [lease[start : start + n] for start, n in places]  # type: ignore[misc]
        if not main:
            main = bytes(views.pop())
        return pickle.loads(main, buffers=views)
