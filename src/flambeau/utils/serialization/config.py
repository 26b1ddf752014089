"""Settings of `save` and `load` for a whole program: `config.load.mmap = True`, `config.save.compute_crc32 = False`.

Those that `torch.serialization` has functions for are the same settings. There is no copy from a GPU that memory of its own would speed up, and
places of storages are always looked up in the archive: `use_pinned_memory_for_d2h` and `calculate_storage_offsets` change nothing.
"""

from __future__ import annotations

from typing import Any

from flambeau.serialization.options import current


class _Settings:
    """Attributes that stand for those of `options.current`."""

    def __init__(self, **names: str):
        object.__setattr__(self, "_names", names)

    def __getattr__(self, name: str) -> Any:
        return getattr(current, self._known(name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(current, self._known(name), value)

    def _known(self, name: str) -> str:
        names = object.__getattribute__(self, "_names")
        if name not in names:
            raise AttributeError(f"there is no setting {name!r}: known are {', '.join(names)}")
        return names[name]


load = _Settings(mmap="mmap", endianness="endianness", mmap_flags="mmap_flags", calculate_storage_offsets="calculate_storage_offsets")
save = _Settings(compute_crc32="crc32", use_pinned_memory_for_d2h="use_pinned_memory_for_d2h", storage_alignment="storage_alignment")
