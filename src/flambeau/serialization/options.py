"""Settings of `save` and `load` for a whole program, or for a block of it."""

from __future__ import annotations

import mmap
import threading
from enum import Enum
from typing import Any

MAP_SHARED, MAP_PRIVATE = getattr(mmap, "MAP_SHARED", 1), getattr(mmap, "MAP_PRIVATE", 2)


class LoadEndianness(Enum):
    """The byte order to assume for files that do not say theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


class _Options(threading.local):
    """Each thread has its own, as in PyTorch; what is set here is where a thread begins."""

    endianness: LoadEndianness | None = None
    mmap_flags: int = MAP_PRIVATE
    crc32 = True
    mmap = False
    storage_alignment = 64
    calculate_storage_offsets = use_pinned_memory_for_d2h = False  # see utils/serialization/config.py
    skip_data = False


current = _Options()


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order assumed for files that do not say theirs; None stands for little."""
    return current.endianness


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Choose the byte order to assume for files that do not say theirs (those of PyTorch before 2.1)."""
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(f"Invalid argument type in function set_default_load_endianness: expected LoadEndianness, found {endianness!r}")
    current.endianness = endianness


def get_crc32_options() -> bool:
    """Whether `save` computes checksums."""
    return current.crc32


def set_crc32_options(compute_crc32: bool) -> None:
    """Choose whether `save` computes checksums. Without them, nothing can notice later that a file was damaged."""
    current.crc32 = bool(compute_crc32)


def get_default_mmap_options() -> int | None:
    """How `load(mmap=True)` maps files: MAP_PRIVATE or MAP_SHARED."""
    return current.mmap_flags


class set_default_mmap_options:
    """Choose how `load(mmap=True)` maps files: with MAP_PRIVATE writes to tensors stay in memory, with MAP_SHARED they reach the file.

    As a context manager, for the block alone.
    """

    def __init__(self, flags: int) -> None:
        if flags not in (MAP_PRIVATE, MAP_SHARED):
            raise ValueError(f"set_default_mmap_options: expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, found {flags}")
        self.prev, current.mmap_flags = current.mmap_flags, flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        current.mmap_flags = self.prev


class skip_data:
    """In this block `save` writes zeros in place of the elements of tensors, and `load` does not read them: structure alone, quickly.

    What a tensor loaded this way holds is undefined until something is written to it.
    """

    def __init__(self, materialize_fake_tensors: bool = False):
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self.before, current.skip_data = current.skip_data, True

    def __exit__(self, *exc: Any) -> None:
        current.skip_data = self.before
