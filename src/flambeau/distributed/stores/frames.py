"""What travels between a TCPStore and its server: frames of bytes, whose length comes first.

    length 4   code 1   limit 8   (length 4   bytes)*

`code` is the number of a step, or what kind of answer this is; `limit` is how many seconds a step may wait.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

HEAD = struct.Struct("!IBd")
LENGTH = struct.Struct("!I")
INSIDE = HEAD.size - LENGTH.size  # of the head, what `length` counts

# Answers.
DONE, LATE, PROBLEM = 0, 1, 2

# What a connection says that is no step of the table.
HELLO, PROOF, WELCOME, REFUSED, WILL, GOODBYE = range(250, 256)

MOST_FROM_STRANGERS = 256  # bytes of a frame, before its sender has shown that it knows the secret
MOST = 1 << 30

Frame = tuple[int, float, list[bytes]]


class Malformed(Exception):
    """These bytes are no frame."""


def pack(code: int, fields: Sequence[bytes] = (), limit: float = 0.0) -> bytes:
    """One frame."""
    body = b"".join([part for field in fields for part in (LENGTH.pack(len(field)), field)])
    return HEAD.pack(INSIDE + len(body), code, limit) + body


def unpack(data: bytes | bytearray | memoryview, most: int = MOST) -> tuple[Frame | None, int]:
    """The frame at the beginning of `data` and how many bytes it takes; None and how many bytes are needed where it is not complete."""
    have = len(data)
    if have < LENGTH.size:
        return None, HEAD.size
    (length,) = LENGTH.unpack_from(data)
    if not INSIDE <= length <= most:
        raise Malformed(f"a frame of {length} bytes")
    end = LENGTH.size + length
    if have < end:
        return None, end
    _, code, limit = HEAD.unpack_from(data)
    fields = []
    place = HEAD.size
    while place < end:
        if place + LENGTH.size > end:
            raise Malformed("a field without its length")
        (size,) = LENGTH.unpack_from(data, place)
        place += LENGTH.size
        if place + size > end:
            raise Malformed("a field that is longer than its frame")
        fields.append(bytes(data[place : place + size]))
        place += size
    return (code, limit, fields), end
