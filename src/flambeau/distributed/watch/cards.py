"""Cards: what every rank shows the others before a collective, so that ranks that disagree are told so instead of summing garbage.

 0    8   the number of this call in its group
 8   16   a digest of what must be equal: operation, dtype, shape, root
16   20   how many bytes of `inline` are used
20   84   inline: a few numbers that travel with the card, which saves a small collective its second exchange
84  256   the same for people, with the line of the program: "all_reduce SUM float32 (4, 5) at train.py:12"
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from flambeau.distributed.errors import DistBackendError

SIZE = 256
INLINE = slice(20, 84)
ROOM = INLINE.stop - INLINE.start
TEXT = slice(84, SIZE)
HEAD = struct.Struct("<q8sI")
CHECKED = slice(0, 16)


class Cards:
    """The cards of a call: our own to fill in, and everyone's after the exchange."""

    def __init__(self, ranks: int):
        self.own = np.zeros(SIZE, np.uint8)
        self.all = np.zeros((ranks, SIZE), np.uint8)

    def write(self, number: int, said: str, line: str, inline: np.ndarray | None = None) -> None:
        """Fill in our own card. `inline` are bytes, at most ROOM of them."""
        length = 0 if inline is None else len(inline)
        own = self.own
        own.data[: HEAD.size] = HEAD.pack(number, digest(said), length)
        if inline is not None and length:
            own[INLINE.start : INLINE.start + length] = inline
        own.data[TEXT] = text(said, line)

    def inline(self, dtype: np.dtype, count: int) -> np.ndarray:
        """What all ranks wrote inline: (ranks, count)."""
        return self.all[:, INLINE.start : INLINE.start + count * dtype.itemsize].copy().view(dtype)

    def disagree(self) -> bool:
        """Whether somebody made another call than we did."""
        mine = self.own[CHECKED].tobytes()
        return any(card.tobytes() != mine for card in self.all[:, CHECKED])

    def read(self) -> list[str]:
        """What each rank called, and where."""
        return [card[TEXT].tobytes().rstrip(b"\0").decode(errors="replace") for card in self.all]


def mismatch(group: str, ranks: Sequence[int], said: Sequence[str]) -> DistBackendError:
    """The error that all ranks raise: who called what, and where."""
    table = "\n".join(f"    rank {rank}   {call}" for rank, call in zip(ranks, said, strict=True))
    return DistBackendError(
        f"the ranks of {group} do not make the same call:\n{table}\n"
        "    try      every rank makes the same calls in the same order, with tensors of the same shape and dtype: look for an `if` that some ranks "
        "enter and others do not, and for batches of another size"
    )


@lru_cache(1024)
def digest(said: str) -> bytes:
    return blake2b(said.encode(), digest_size=8).digest()


@lru_cache(1024)
def text(said: str, line: str) -> bytes:
    """Both, in as much room as there is; the end of the path is what tells."""
    room = TEXT.stop - TEXT.start
    call, place = said.encode(), f" at {line}".encode()
    if len(call) + len(place) > room:
        call = call[: max(room - len(place), 80)]
        place = place[-(room - len(call)) :]
    return (call + place).ljust(room, b"\0")
