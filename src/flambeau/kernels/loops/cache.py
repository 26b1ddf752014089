"""Compiled libraries on disk, between runs: found by a key that says all they were made of.

A file is called KEY-CHECKSUM.so and written under another name first: of two processes that write at once, one is the last, and both are right. What was cut
short, or altered, does not have its checksum and is thrown away. Libraries are code: a folder that is not the user's own, or that others may write
to or look into, is not used, and neither are files in it that are not his.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path


def folder() -> Path | None:
    """$FLAMBEAU_CACHE, or flambeau in the user's cache; in it, `loops`. None where it cannot be made or trusted."""
    root = os.environ.get("FLAMBEAU_CACHE")
    try:
        place = (Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flambeau") / "loops"
        place.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
        return place if _is_own(place, stat.S_ISDIR) and not place.lstat().st_mode & 0o077 else None
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None


def library(key: str, make: Callable[[Path], None], use: Callable[[Path], object]) -> object:
    """use(path) of the library with this key, which make(path) writes if it is not there."""
    place = folder()
    if place is None:
        with tempfile.TemporaryDirectory(prefix="flambeau-") as own:  # for this process alone; what is loaded stays when its file is gone
            made = Path(own) / "loops.so"
            make(made)
            return use(made)
    for found in _kept(place, key):
        return use(found)
    return use(_written(place, key, make))


def _kept(place: Path, key: str) -> Iterator[Path]:
    for path in sorted(place.glob(f"{key}-*.so")):
        with contextlib.suppress(OSError):
            if _is_own(path, stat.S_ISREG) and path.name == _name(key, path.read_bytes()):
                yield path
            else:
                path.unlink()


def _written(place: Path, key: str, make: Callable[[Path], None]) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{key[:16]}-", suffix=".tmp", dir=place)
    os.close(descriptor)
    temporary = Path(name)
    try:
        make(temporary)
        final = place / _name(key, temporary.read_bytes())
        temporary.replace(final)
        return final
    finally:
        temporary.unlink(missing_ok=True)


def _name(key: str, content: bytes) -> str:
    return f"{key}-{hashlib.sha256(content).hexdigest()[:32]}.so"


def _is_own(path: Path, kind: Callable[[int], bool]) -> bool:
    found = path.lstat()  # no link: it could lead anywhere
    return kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
