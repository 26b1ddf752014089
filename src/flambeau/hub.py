"""torch.hub: weights from the network, kept in a folder; models by the names that a repository's hubconf.py gives them.

The folder is `get_dir()`: what `set_dir` said, or $TORCH_HOME/hub, or ~/.cache/torch/hub as with PyTorch, so that files are downloaded once for both.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import tempfile
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

__all__ = ["download_url_to_file", "get_dir", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # names such as resnet18-bfd8deac.pth carry the beginning of their checksum
READ_DATA_CHUNK = 1 << 17
_dir: str | None = None


def load(
    repo_or_dir: str | os.PathLike, model: str, *args: Any, source: str = "github", trust_repo: Any = None, force_reload: bool = False,
    verbose: bool = True, skip_validation: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """What the function `model` of a repository's hubconf.py returns for the other arguments. source="local": the repository is a folder.

    Code from the network is not downloaded and run: clone the repository, look at it, and name its folder.
    """
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        raise NotImplementedError(
            f"torch.hub.load would download and run the code of {repo_or_dir}. Clone it with git, and load it with "
            f'torch.hub.load("path/to/it", {model!r}, source="local")'
        )
    if not isinstance(model, str):
        raise ValueError(f"hub: model is the name of a function, found {type(model).__name__}")
    folder = os.path.realpath(repo_or_dir)
    with _importing_from(folder):
        entry = getattr(_hubconf(folder), model, None)
        if not callable(entry):
            raise RuntimeError(f"Cannot find callable {model} in hubconf: {os.path.join(folder, 'hubconf.py')} has none of this name")
        return entry(*args, **kwargs)


@contextlib.contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    """hubconf.py imports what lies beside it."""
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _hubconf(folder: str) -> Any:
    """The module, once what it says it depends on can be imported."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("hubconf", os.path.join(folder, "hubconf.py"))
    if spec is None or spec.loader is None:
        raise RuntimeError(f"no module can be made of {folder}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing = [name for name in getattr(module, "dependencies", ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}. Try pip install")
    return module


def get_dir() -> str:
    """The folder that files are kept in."""
    if _dir is not None:
        return _dir
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    return os.path.join(os.path.expanduser(os.environ.get("TORCH_HOME", cache)), "hub")


def set_dir(d: str | os.PathLike) -> None:
    """Keep files in this folder."""
    global _dir
    _dir = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download a file. It appears under its name only when it is complete and its SHA-256 begins with `hash_prefix`.

    RuntimeError if the checksum is another, urllib.error.URLError if the file cannot be reached.
    """
    from tqdm import tqdm

    dst = os.path.expanduser(dst)
    checksum = hashlib.sha256()
    request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
    with urllib.request.urlopen(request) as source, contextlib.ExitStack() as undo:
        partial = tempfile.NamedTemporaryFile(dir=os.path.dirname(dst) or ".", suffix=".partial", delete=False)  # noqa: SIM115 - closed below
        undo.push(lambda *problem: Path(partial.name).unlink(missing_ok=True))
        undo.callback(partial.close)
        size = int(source.headers.get("Content-Length") or 0) or None
        with tqdm(total=size, disable=not progress, unit="B", unit_scale=True, unit_divisor=1024, file=sys.stderr) as bar:
            while block := source.read(READ_DATA_CHUNK):
                partial.write(block)
                checksum.update(block)
                bar.update(len(block))
        found = checksum.hexdigest()
        if hash_prefix and not found.startswith(hash_prefix):
            raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}") of {url}')
        partial.close()
        os.replace(partial.name, dst)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> dict[str, Any]:
    """The state dictionary at this address, downloaded unless it is in the folder already.

    weights_only: True, where PyTorch has False: what comes from an address is plain data and tensors, and can run no code.
    check_hash: the name ends in the beginning of the file's checksum, as in resnet18-bfd8deac.pth, which is compared. A zip archive with one file
    in it is unpacked.
    """
    from flambeau.serialization import load

    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else os.path.expanduser(model_dir)
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        print(f'Downloading: "{url}" to {path}')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found[1] if found else None, progress)
    return load(_unpacked(path, folder), map_location=map_location, weights_only=weights_only)


def _unpacked(path: str, folder: str) -> str:
    """The file in an old archive around a checkpoint; the path itself otherwise. (Today's checkpoints are zip archives of many files.)"""
    if not zipfile.is_zipfile(path):
        return path
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if len(members) != 1 or members[0].is_dir() or "/" in members[0].filename:
            return path
        return archive.extract(members[0], folder)
