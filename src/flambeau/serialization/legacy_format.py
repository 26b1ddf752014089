"""The format of PyTorch before 1.6: five pickles in a row (a magic number, a version, the sizes of C types, the object, the keys of its
storages), then the storages, each as its number of elements and their bytes. It carries no checksums."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from struct import pack, unpack
from typing import Any

import numpy as np

from flambeau import devices, dtypes
from flambeau.kernels import arrays
from flambeau.serialization import safe_pickle
from flambeau.serialization.damage import shown
from flambeau.serialization.loading import storage_id, unpickler_class
from flambeau.serialization.locations import MAP_LOCATION, restorer
from flambeau.serialization.saving import bytes_of
from flambeau.serialization.sources import Source
from flambeau.tensor.making.pickling import elements_come_later
from flambeau.tensor.memory.typed_storage import TypedStorage, typed
from flambeau.tensor.memory.untyped_storage import UntypedStorage
from flambeau.tensor.storage import Storage

MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001
STORAGE_KEY_SEPARATOR = ","


def read(source: Source, map_location: MAP_LOCATION, weights_only: bool, pickle_module: Any, options: dict[str, Any]) -> tuple[Any, int]:
    """The object in a file of the old format, and how many bytes it took: another one may follow."""
    if source.size >= 262 and source.read(257, 5) == b"ustar":
        raise RuntimeError(
            f"{source.name} is in PyTorch's oldest format (a tar archive, before 0.1.10), which is not read here. PyTorch does: load it there "
            "with weights_only=False, if you trust it, and save it again"
        )
    data = source.read(0, source.size)
    storages = _Storages(source, map_location)

    def next_pickle(start: int, persistent_load: Callable | None = None) -> tuple[Any, int]:
        if weights_only:
            return safe_pickle.load_from(data, start, persistent_load, options["encoding"])
        stream = io.BytesIO(data)
        stream.seek(start)
        return unpickler_class(pickle_module, persistent_load or _no_storage)(stream, **options).load(), stream.tell()

    try:
        magic, at = safe_pickle.load_from(data, 0)
    except pickle.UnpicklingError:
        magic = None
    if type(magic) is not int or magic != MAGIC_NUMBER:
        kind = RuntimeError if data[:1] == pickle.PROTO and not weights_only else pickle.UnpicklingError
        raise kind("Invalid magic number; corrupt file? It is neither a zip archive nor in PyTorch's older format")
    version, at = safe_pickle.load_from(data, at)
    if type(version) is not int or version != PROTOCOL_VERSION:
        raise RuntimeError(f"Invalid protocol version: {shown(version)}, expected {PROTOCOL_VERSION}")
    system, at = safe_pickle.load_from(data, at)
    later = elements_come_later.set(True)
    try:
        result, end = next_pickle(at, storages.persistent_load)
    finally:
        elements_come_later.reset(later)
    keys, first = safe_pickle.load_from(data, end)
    little = not isinstance(system, dict) or system.get("little_endian", True)
    last = storages.fill(data, first, keys, swapped=bool(little) != (sys.byteorder == "little"))
    if data.find(b"_rebuild_sparse_tensor", at, end) > 0:  # its indices are checked: they are there only now
        result, _ = next_pickle(at, storages.persistent_load)
    return result, last


def _no_storage(saved_id: Any) -> Any:
    raise pickle.UnpicklingError("a storage where none belongs")


class _Storages:
    """Storages are made when the object names them, and filled when their bytes come, at the end of the file."""

    def __init__(self, source: Source, map_location: MAP_LOCATION):
        self.source = source
        self.restore = restorer(map_location)
        self.left = source.size  # all storages together are not larger than the file
        self.found: dict[str, tuple[TypedStorage, TypedStorage]] = {}  # in main memory, and where it was wanted

    def persistent_load(self, saved_id: Any) -> Any:
        if isinstance(saved_id, tuple) and len(saved_id) == 4 and type(saved_id[0]) is str and saved_id[0] == "module":
            return saved_id[1]  # a class and its source at the time: PyTorch warns of changes, and uses the class as it is now
        kind, key, location, count = storage_id(saved_id, 5)
        dtype = getattr(kind, "_dtype", dtypes.uint8)
        if key not in self.found:
            nbytes = count * dtype.itemsize
            self.left -= nbytes
            if self.left < 0:
                raise RuntimeError(f"{self.source.name} cannot be read: its storages are larger than the file")
            self.found[key] = self._made(nbytes, dtype, location)
        view = saved_id[5] if len(saved_id) > 5 else None
        if view is not None:
            return self._part(key, dtype, view)
        return self.found[key][1] if count else typed(self.found[key][1]._untyped_storage, dtype)  # nothing is of any dtype

    def _made(self, nbytes: int, dtype: dtypes.dtype, location: str) -> tuple[TypedStorage, TypedStorage]:
        memory = UntypedStorage._of(Storage(arrays.empty((nbytes,), np.dtype(np.uint8), devices.cpu)))
        wanted = self.restore(memory, location)._untyped_storage
        return typed(memory, dtype), typed(wanted, dtype)

    def _part(self, key: str, dtype: dtypes.dtype, view: Any) -> TypedStorage:
        """A part of a storage that the file calls a storage of its own: (key, first element, number of elements)."""
        if not (isinstance(view, tuple) and len(view) == 3 and all(type(n) is int and n >= 0 for n in view[1:])):
            raise pickle.UnpicklingError("a part of a storage is a key and two numbers")
        name = f"{key}/{view[0]}"
        if name not in self.found:
            size, whole = dtype.itemsize, self.found[key][1]._untyped_storage
            if (view[1] + view[2]) * size > whole.nbytes():
                raise RuntimeError(f"{self.source.name} cannot be read: a part of a storage reaches beyond it")
            part = typed(whole[view[1] * size : (view[1] + view[2]) * size], dtype)
            self.found[name] = (part, part)
        return self.found[name][1]

    def fill(self, data: bytes, at: int, keys: Any, swapped: bool) -> int:
        """Read the bytes of all storages; where they end."""
        if not isinstance(keys, list):
            raise pickle.UnpicklingError("the list of storages is missing")
        for key in keys:
            key = key.decode("ascii") if isinstance(key, bytes) else key
            if type(key) is not str or key not in self.found:
                raise pickle.UnpicklingError(f"the file has bytes for a storage {shown(key)} that nothing uses")
            memory, wanted = self.found[key]
            count, nbytes = memory._size(), memory._untyped_storage.nbytes()
            if at + 8 + nbytes > len(data):
                raise RuntimeError(
                    f"{self.source.name} cannot be read: unexpected EOF, storage {key} ends beyond the file. The file is incomplete"
                )
            if unpack("<q" if sys.byteorder == "little" else ">q", data[at : at + 8])[0] != count:
                raise RuntimeError(
                    f"{self.source.name} cannot be read: storage has wrong byte size: expected {count} elements. The file is damaged"
                )
            raw = np.frombuffer(data, np.uint8, nbytes, at + 8)
            memory._untyped_storage._values()[...] = raw
            if swapped:
                memory._untyped_storage.byteswap(memory.dtype)
            place = wanted._storage.place()
            if wanted._storage is not memory._storage and place.type != "meta":
                wanted._untyped_storage.copy_(memory._untyped_storage.to(device=place))
            at += 8 + nbytes
        return at


def write(write: Callable, data: bytes, storages: dict[str, TypedStorage], module: Any, protocol: int) -> None:
    """The old format, from what `saving.pickled` gives."""
    sizes = dict(protocol_version=PROTOCOL_VERSION, little_endian=sys.byteorder == "little", type_sizes=dict(short=2, int=4, long=4))
    for head in (MAGIC_NUMBER, PROTOCOL_VERSION, sizes):
        write(module.dumps(head, protocol))
    write(data)
    keys = sorted(storages)
    write(module.dumps(keys, protocol))
    for key in keys:
        write(pack("=q", storages[key]._size()))
        write(bytes_of(storages[key]))
