"""Files from the network: fetched whole, checked, and only then given their name.

A download goes to a temporary file beside its goal, is compared with its md5, and is renamed. Whatever stops it, a file of that name
is always the right one.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import http.client
import lzma
import os
import shutil
import socket
import ssl
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

ATTEMPTS = 3  # at each address
PAUSE = 1.0  # seconds before the second attempt, doubled before each further one
TIMEOUT = 30.0  # seconds without a byte
CHUNK = 1 << 20

# What the network does to a program. A full disk is another matter, and is not tried again.
NETWORK = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError, EOFError)

PathLike = str | os.PathLike


class DownloadError(RuntimeError):
    """A file could not be fetched; the message says from where and why."""


def download_url(url: str, root: PathLike, filename: PathLike | None = None, md5: str | None = None, max_redirect_hops: int = 3) -> None:
    """Fetch a file into the folder `root`, unless it is there already and has this md5."""
    name = os.fspath(filename) if filename else os.path.basename(urllib.parse.urlparse(url).path)
    download_from([url], Path(root, name).expanduser(), md5)


def download_from(urls: Iterable[str], goal: Path, md5: str | None = None) -> None:
    """Fetch a file from the first of several addresses that has it, each tried a few times."""
    if check_integrity(goal, md5):
        return
    goal.parent.mkdir(parents=True, exist_ok=True)
    problems: Counter[str] = Counter()
    for url in urls:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                return _fetch(url, goal, md5)
            except NETWORK as problem:
                problems[f"{url}: {problem}"] += 1
                if _lasts(problem):
                    break
    tried = [f"    tried {line}{f' ({n} times)' if n > 1 else ''}" for line, n in problems.items()]
    raise DownloadError("\n".join([f"could not download {goal.name}", *tried]))


def _lasts(problem: BaseException) -> bool:
    """Whether trying again in a second is of no use: the server does not have the file, or its name is unknown here."""
    if isinstance(problem, urllib.error.HTTPError):
        problem.close()
        return 400 <= problem.code < 500
    reason = getattr(problem, "reason", None)
    return isinstance(reason, socket.gaierror) and reason.errno == socket.EAI_NONAME


def _fetch(url: str, goal: Path, md5: str | None) -> None:
    """One attempt: into a temporary file, which becomes `goal` when it is complete and has the right md5."""
    request = urllib.request.Request(url, headers={"User-Agent": "flambeau"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as source, _becoming(goal) as target:
        length = int(source.headers.get("Content-Length") or -1)
        digest, size = hashlib.md5(usedforsecurity=False), 0
        with _progress(goal.name, length) as bar:
            while piece := source.read(CHUNK):
                target.write(piece)
                digest.update(piece)
                size += len(piece)
                bar.update(len(piece))
        if length >= 0 and size != length:
            raise EOFError(f"the connection ended after {size} of {length} bytes")
        if md5 is not None and digest.hexdigest() != md5:
            raise EOFError(f"the file that came has md5 {digest.hexdigest()}, not {md5}")


@contextlib.contextmanager
def _becoming(goal: Path) -> Iterator[IO[bytes]]:
    """A temporary file beside `goal` that takes its name at the end, and disappears if anything goes wrong."""
    handle, name = tempfile.mkstemp(prefix=f".{goal.name}.", suffix=".part", dir=goal.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, goal)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _progress(name: str, length: int) -> Any:
    """A bar of tqdm on a terminal, and nothing elsewhere."""
    from tqdm import tqdm

    return tqdm(total=length if length >= 0 else None, unit="B", unit_scale=True, desc=name, disable=not sys.stderr.isatty())


# -- checksums -----------------------------------------------------------------------------------------------------


def calculate_md5(fpath: PathLike, chunk_size: int = CHUNK) -> str:
    """The md5 of a file, in hexadecimal digits: against accidents, not against attackers."""
    digest = hashlib.md5(usedforsecurity=False)
    with open(fpath, "rb") as file:
        while piece := file.read(chunk_size):
            digest.update(piece)
    return digest.hexdigest()


def check_md5(fpath: PathLike, md5: str, **kwargs: Any) -> bool:
    return md5 == calculate_md5(fpath, **kwargs)


def check_integrity(fpath: PathLike, md5: str | None = None) -> bool:
    """Whether a file is there, with this md5 if one is given."""
    return os.path.isfile(fpath) and (md5 is None or check_md5(fpath, md5))


# -- archives ------------------------------------------------------------------------------------------------------

COMPRESSIONS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


def extract_archive(from_path: PathLike, to_path: PathLike | None = None, remove_finished: bool = False) -> PathLike:
    """Unpack a .zip or .tar(.gz, .bz2, .xz) into a folder, or a .gz, .bz2 or .xz into a file of the same name without the ending.

    Members that point outside of the folder are refused.
    """
    source = Path(from_path)
    folder = Path(to_path) if to_path is not None else source.parent
    if source.suffix == ".zip":
        with zipfile.ZipFile(source) as archive:
            archive.extractall(folder)
        result: PathLike = folder
    elif source.suffix in (".tar", ".tgz", ".tbz", ".tbz2") or source.with_suffix("").suffix == ".tar":
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        result = folder
    elif source.suffix in COMPRESSIONS:
        result = decompress(source, source.with_suffix("") if to_path is None else folder / source.stem if folder.is_dir() else folder)
    else:
        known = [".zip", ".tar", ".tgz", *COMPRESSIONS]
        raise RuntimeError(f"Unknown compression or archive type: {source.suffix!r} of {source}. Known are {', '.join(known)}")
    if remove_finished:
        source.unlink()
    return result


def decompress(source: Path, goal: Path) -> Path:
    """Unpack one compressed file; it takes its name when it is complete."""
    with COMPRESSIONS[source.suffix](source, "rb") as packed, _becoming(goal) as unpacked:
        shutil.copyfileobj(packed, unpacked, CHUNK)
    return goal


def download_and_extract_archive(
    url: str,
    download_root: PathLike,
    extract_root: PathLike | None = None,
    filename: PathLike | None = None,
    md5: str | None = None,
    remove_finished: bool = False,
) -> None:
    """`download_url`, then `extract_archive`."""
    root = Path(download_root).expanduser()
    name = filename or os.path.basename(urllib.parse.urlparse(url).path)
    download_url(url, root, name, md5)
    extract_archive(root / name, extract_root or root, remove_finished)


# -- arguments -----------------------------------------------------------------------------------------------------


def verify_str_arg(value: Any, arg: str | None = None, valid_values: Iterable[str] | None = None, custom_msg: str | None = None) -> str:
    """The value, if it is one of the valid strings."""
    if not isinstance(value, str):
        raise ValueError(f"Expected type str{f' for argument {arg}' if arg else ''}, but got type {type(value)}.")
    if valid_values is not None and value not in (valid := list(valid_values)):
        raise ValueError(custom_msg or f"Unknown value '{value}'{f' for argument {arg}' if arg else ''}. Valid values are {valid}.")
    return value
