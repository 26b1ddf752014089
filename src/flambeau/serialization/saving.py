"""`save`: an object becomes a pickle that names its storages, and the storages become records beside it.

data.pkl            the object; a tensor in it says: window (offset, size, stride) on storage N
data/N              the bytes of storage N, written from where they are in memory
byteorder, version, .format_version, .storage_alignment, .data/serialization_id          a few words about the file itself
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import IO, Any, TypeAlias

from flambeau import devices, dtypes
from flambeau.generators import Generator
from flambeau.kernels import arrays
from flambeau.random import get_state
from flambeau.serialization import durable, names
from flambeau.serialization.locations import location_tag
from flambeau.serialization.options import current
from flambeau.serialization.versions import check_dill_version
from flambeau.serialization.zip_writer import CHUNK, ZipWriter
from flambeau.tensor import layouts
from flambeau.tensor.memory.typed_storage import LEGACY_STORAGES, TypedStorage, storage_name
from flambeau.tensor.memory.typed_storage import typed as typed_bytes
from flambeau.tensor.memory.untyped_storage import UntypedStorage, flat_view

DEFAULT_PROTOCOL = 2
FILE_LIKE: TypeAlias = str | os.PathLike[str] | IO[bytes]


def save(
    obj: object,
    f: FILE_LIKE,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write an object to a file, in the format of torch.save: PyTorch reads it, too.

    Given a path, the file is replaced as a whole, when everything has reached the disk: if anything fails, the process is killed or the
    machine stops, the old file is still there. (Given a file object, what happens to it is the caller's affair.) Elements of tensors are
    written from where they are; nothing is copied first.

        torch.save({"model": model.state_dict(), "step": step}, "checkpoint.pt")
    """
    check_dill_version(pickle_module)
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError(f"expected 'f' to be string, path, or something that can `write`, found {type(f).__name__}")
    data, storages = pickled(obj, pickle_module, pickle_protocol, legacy=not _use_new_zipfile_serialization)
    with _writing(f) as write:
        if _use_new_zipfile_serialization:
            _write_archive(write, _archive_name(f), data, storages, not _disable_byteorder_record)
        else:
            from flambeau.serialization import legacy_format

            legacy_format.write(write, data, storages, pickle_module, pickle_protocol)


def _write_archive(write: Callable, prefix: str, data: bytes, storages: dict[str, TypedStorage], byteorder: bool) -> None:
    archive = ZipWriter(write, prefix, checksums=current.crc32, alignment=current.storage_alignment)
    archive.record("data.pkl", data)
    archive.record(".format_version", b"1")
    archive.record(".storage_alignment", str(current.storage_alignment).encode())
    if byteorder:
        archive.record("byteorder", sys.byteorder.encode())
    for key, storage in storages.items():
        archive.record(f"data/{key}", bytes_of(storage))
    archive.record("version", b"3\n")
    # Forty digits that are the same for the same content.
    digest = hashlib.blake2b(repr(archive.sums).encode(), digest_size=16).digest()
    parts = (int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big"))
    archive.record(".data/serialization_id", "".join(f"{part:020d}" for part in parts).encode())
    archive.close()


def bytes_of(storage: TypedStorage) -> memoryview:
    """The bytes of a storage, without a copy if they are in main memory."""
    if current.skip_data:
        return memoryview(bytes(storage._storage.nbytes()))
    return memoryview(arrays.to_device(flat_view(storage._storage, dtypes.uint8), devices.cpu))


def _archive_name(f: FILE_LIKE) -> str:
    """What the records of a file are filed under: its name without the last ending."""
    if not isinstance(f, (str, os.PathLike)):
        return "archive"
    stem = os.path.splitext(os.path.basename(os.fspath(f)))[0]
    return stem if stem and stem.isascii() else "archive"


@contextmanager
def _writing(f: Any) -> Iterator[Callable]:
    """A function that writes all bytes it is given."""
    if isinstance(f, (str, os.PathLike)):
        with durable.replacing(f) as writer:
            yield writer.write
        return
    yield lambda data: _write_all(f, data)
    if hasattr(f, "flush"):
        f.flush()


def _write_all(file: Any, data: bytes | memoryview) -> None:
    """All of it to a file object. One that is not Python's own may want `bytes`; an unbuffered one may take a part and say so."""
    rest = memoryview(data)
    native = isinstance(file, io.IOBase)
    while rest:
        written = file.write(rest if native else bytes(rest[:CHUNK]))
        rest = rest[written if native and isinstance(written, int) else CHUNK :]


# -- pickling ------------------------------------------------------------------------------------------------------


def pickled(obj: object, module: Any, protocol: int, legacy: bool = False) -> tuple[bytes, dict[str, TypedStorage]]:
    """An object as a pickle, and the storages it names by their keys."""
    limit = sys.getrecursionlimit()
    try:
        return _pickled(obj, module, protocol, legacy)
    except RecursionError:  # the pickler in Python needs several calls for each level, where the one in C needs one
        sys.setrecursionlimit(DEEP * limit)
    try:
        return _pickled(obj, module, protocol, legacy)
    finally:
        sys.setrecursionlimit(limit)


DEEP = 10


def _pickled(obj: object, module: Any, protocol: int, legacy: bool) -> tuple[bytes, dict[str, TypedStorage]]:
    storages = _Storages(legacy)
    buffer = io.BytesIO()
    pickler = _pickler_class(module)(buffer, protocol=protocol)
    pickler.persistent_id = storages.persistent_id
    pickler.dump(obj)
    return buffer.getvalue(), storages.by_key


class _Storages:
    """Gives every storage that a pickler meets a key."""

    def __init__(self, legacy: bool):
        self.legacy = legacy
        self.by_key: dict[str, TypedStorage] = {}
        self.keys: dict[int, str] = {}
        self.kinds: dict[int, dtypes.dtype] = {}  # by address

    def persistent_id(self, obj: Any) -> tuple | None:
        """What stands for a storage in the pickle; None for everything else."""
        given = type(obj)
        if given is TypedStorage:
            dtype, kind = obj.dtype, LEGACY_STORAGES.get(storage_name(obj.dtype), UntypedStorage)
        elif given is UntypedStorage:
            dtype, kind = dtypes.uint8, UntypedStorage
        else:
            return None
        storage = obj._untyped_storage
        address = storage.data_ptr()
        if address and self.kinds.setdefault(address, dtype) is not dtype:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different types: PyTorch's format has one type per "
                "storage. Try .clone() on one of them"
            )
        key = self.keys.setdefault(id(storage._storage), str(len(self.keys)))
        self.by_key[key] = typed = typed_bytes(storage, dtypes.uint8 if kind is UntypedStorage else dtype)
        place = ("storage", kind, key, location_tag(storage), typed._size())
        return (*place, None) if self.legacy else place


def _pickler_class(module: Any) -> Any:
    """The Pickler of a module like `pickle`, taught PyTorch's names."""
    base = pickle._Pickler if module is pickle else module.Pickler  # type: ignore[attr-defined]  # the one in C cannot be taught
    if not hasattr(base, "save_global"):
        return type("Pickler", (base,), {})
    functions = {FunctionType: _TorchNames.save_global} if module is pickle else {}  # dill has its own way with functions
    return type("Pickler", (_TorchNames, base), {"dispatch": base.dispatch | _OWN_WAYS | functions})


class _TorchNames:
    """Writes classes and functions under the names PyTorch has for them."""

    def save_global(self, obj: Any, name: str | None = None) -> None:
        written = names.global_name(obj, name)
        if written is None:
            super().save_global(obj, name)  # type: ignore[misc]
            return
        module, name = written
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)


def _save_layout(pickler: Any, obj: layouts.layout) -> None:
    pickler.save_reduce(_get_layout, (str(obj),), obj=obj)


def _save_generator(pickler: Any, obj: Generator) -> None:
    pickler.save_reduce(Generator, (obj.device,), (obj.initial_seed(), None, get_state(obj)), obj=obj)


_OWN_WAYS = {layouts.layout: _save_layout, Generator: _save_generator}  # what PyTorch's files say about these


def _get_layout(name: str) -> layouts.layout:
    """The layout that is written as `torch.strided`."""
    found = getattr(layouts, name.removeprefix("torch."), None)
    if not isinstance(found, layouts.layout):
        raise RuntimeError(f"there is no layout {name!r}")
    return found
