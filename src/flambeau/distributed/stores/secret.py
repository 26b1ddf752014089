"""The secret that the processes of one program share, and that strangers do not know.

A launcher makes one for its program and hands it down in FLAMBEAU_DIST_SECRET. Processes that were started without it find one in a file
that only their user may read, so they find each other on one machine and nowhere else.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

VARIABLE = "FLAMBEAU_DIST_SECRET"


def secret() -> bytes:
    """The secret of this program: from the environment, otherwise from the user's file."""
    if given := os.environ.get(VARIABLE):
        return given.encode()
    return _from_file(_file())


def origin() -> str:
    """Where the secret comes from, for error messages."""
    return f"the variable {VARIABLE}" if os.environ.get(VARIABLE) else f"the file {_file()}"


def _file() -> Path:
    """In the user's runtime folder, where there is one: that one is of this machine and of no other."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime, "flambeau", "secret")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flambeau" / "secret"


def _from_file(path: Path) -> bytes:
    try:
        try:
            return _read(path)
        except FileNotFoundError:
            _create(path)
            return _read(path)
    except OSError as problem:
        raise RuntimeError(
            f"the processes of a program need a common secret, and {path} cannot be used for it: {problem.strerror}. "
            f"Set {VARIABLE} to the same long random text for all processes"
        ) from problem


def _read(path: Path) -> bytes:
    # Owner and mode are those of the file that is read, not of one that took its place in between.
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise RuntimeError(
                f"{path} holds the secret by which your processes know each other, but others can read or own it "
                f"(owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}). Delete it: the next program makes a new one"
            )
        return file.read()


def _create(path: Path) -> None:
    """Make the file whole or not at all. Of several processes that try at once, one wins and all read what it wrote."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink(missing_ok=True)
