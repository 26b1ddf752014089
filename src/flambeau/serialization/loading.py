"""`load`: the way back from a file to the object.

What the pickle says is followed by the careful interpreter of `safe_pickle`, or, with weights_only=False, by Python's own. The bytes of the
storages are read by several threads meanwhile, each piece summed while it is in the cache.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from flambeau import devices, dtypes
from flambeau.kernels import arrays
from flambeau.serialization import names, safe_pickle
from flambeau.serialization.damage import report, shown
from flambeau.serialization.locations import MAP_LOCATION, destination, restorer
from flambeau.serialization.options import MAP_SHARED, LoadEndianness, current
from flambeau.serialization.reading import RecordReader
from flambeau.serialization.saving import FILE_LIKE
from flambeau.serialization.sources import Source, source_of
from flambeau.serialization.versions import check_dill_version
from flambeau.serialization.zip_reader import ZipReader
from flambeau.tensor.memory.typed_storage import TypedStorage, typed
from flambeau.tensor.memory.untyped_storage import UntypedStorage
from flambeau.tensor.storage import Storage


def load(
    f: FILE_LIKE,
    map_location: MAP_LOCATION = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read an object that `save`, ours or PyTorch's, wrote.

    weights_only   True (the default): plain data, tensors and what `add_safe_globals` allows; a file can run no code. False: anything
                   that can be pickled; only for files you trust.
    map_location   where storages go: a device or its name, a dict {"cuda:0": "cpu"}, or a function (storage, location) -> storage.
    mmap           leave the elements on the disk until they are used. Their checksums are not verified then.

    Otherwise checksums are verified, and a damaged tensor is named.

        checkpoint = torch.load("checkpoint.pt", map_location="cpu")
    """
    weights_only = _weights_only(weights_only, pickle_module)
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights with an explicit pickle_module: leave it out, or pass weights_only=False")
    check_dill_version(pickle_module)
    if weights_only and pickle_load_args:
        warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=2)
    is_path = isinstance(f, (str, os.PathLike))
    mmap = current.mmap if mmap is None else mmap
    if mmap and not is_path:
        raise ValueError("f must be a file path: with mmap, the elements stay in a file")
    pickle_module = pickle if pickle_module is None else pickle_module
    pickle_load_args.setdefault("encoding", "utf-8")

    def unpickle(data: bytes, persistent_load: Callable[[Any], Any]) -> Any:
        if weights_only:
            return safe_pickle.loads(data, persistent_load, source.size, pickle_load_args["encoding"])
        return _unpickle(data, persistent_load, pickle_module, pickle_load_args)

    with ExitStack() as closing:
        source = _open(f, closing)
        if source.size >= 4 and source.read(0, 4) == b"PK\3\4":
            try:
                return _load_archive(source, map_location, unpickle, str(f) if mmap else None)
            except pickle.UnpicklingError as problem:
                raise _explained(problem, source.name, weights_only) from None
        if is_path and os.fspath(f).endswith(".safetensors"):  # type: ignore[arg-type, union-attr]
            from flambeau.serialization import safetensors_format

            return safetensors_format.read(source, map_location)
        if mmap:
            raise RuntimeError(f"mmap can only be used with files in the zip format, which {source.name} is not: load it and save it again")
        from flambeau.serialization import legacy_format

        try:
            result, size = legacy_format.read(source, map_location, weights_only, pickle_module, pickle_load_args)
        except pickle.UnpicklingError as problem:
            raise _explained(problem, source.name, weights_only) from None
        if not is_path:
            f.seek(source.base + size)  # type: ignore[union-attr]
        return result


def _weights_only(asked: bool | None, pickle_module: Any) -> bool:
    """The environment may decide for programs that cannot be changed, as PyTorch's users know it."""
    force = {
        name: os.environ.get(f"TORCH_FORCE_{name}", "").lower() in ("1", "y", "yes", "true")
        for name in ("WEIGHTS_ONLY_LOAD", "NO_WEIGHTS_ONLY_LOAD")
    }
    if all(force.values()):
        raise RuntimeError("Only one of TORCH_FORCE_WEIGHTS_ONLY_LOAD and TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD may be set")
    if force["WEIGHTS_ONLY_LOAD"]:
        return True
    if asked is None and force["NO_WEIGHTS_ONLY_LOAD"]:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, and `weights_only` was not passed to "
            "`torch.load`, forcing weights_only=False: the file can run any code",
            stacklevel=3,
        )
        return False
    return pickle_module is None if asked is None else bool(asked)


def _open(f: Any, closing: ExitStack) -> Source:
    if isinstance(f, (str, os.PathLike)):
        f = closing.enter_context(open(f, "rb"))  # noqa: SIM115 - `closing` is the context manager
    for method in ("read", "seek", "tell"):
        if not hasattr(f, method):
            raise AttributeError(
                f"{type(f).__name__!r} object has no attribute {method!r}. You can only torch.load from a file that is seekable. Please "
                "pre-load the data into a buffer like io.BytesIO and try to load from it instead."
            )
    source = source_of(f)
    if not source.size:
        raise EOFError(f"{source.name}: no bytes are left to read. After writing, f.seek(0) goes back to the beginning")
    return source


def _explained(problem: pickle.UnpicklingError, name: str, weights_only: bool) -> pickle.UnpicklingError:
    if not weights_only:
        return pickle.UnpicklingError(f"{name} cannot be read: {problem}")
    return pickle.UnpicklingError(
        f"Weights only load failed for {name}: {problem}\nOnly if you trust where the file comes from: torch.load(..., weights_only=False) "
        "reads anything, and can run any code that is in the file."
    )


# -- archives ------------------------------------------------------------------------------------------------------


def _load_archive(source: Source, map_location: MAP_LOCATION, unpickle: Callable, mapped_file: str | None) -> Any:
    archive = ZipReader(source)
    if "constants.pkl" in archive:
        raise NotImplementedError(
            f"{source.name} is a TorchScript archive, a program; load its weights in PyTorch and save the state_dict()"
        )
    storages = _Storages(archive, map_location, mapped_file)
    with storages.reader:
        problem: BaseException | None = None
        result = None
        try:
            result = unpickle(archive.read("data.pkl"), storages.persistent_load)
        except Exception as found:
            problem = found
        # Damaged bytes can make what is built on them fail: the damage is the better explanation.
        damaged = storages.reader.damaged(waiting=problem is None)
        if damaged:
            raise RuntimeError(report(source.name, result, {r.name: storages.by_key.get(r.name) for r in damaged})) from problem
        if problem is not None:
            raise problem
    return result


class _Storages:
    """Answers the pickle's questions for storages."""

    def __init__(self, archive: ZipReader, map_location: MAP_LOCATION, mapped_file: str | None):
        self.archive, self.map_location = archive, map_location
        self.restore = restorer(map_location)
        self.reader = RecordReader(archive)
        self.by_key: dict[str, TypedStorage] = {}
        self.swapped = _is_swapped(archive)
        self.mapped = None
        if mapped_file is not None:
            mode = "r+" if current.mmap_flags == MAP_SHARED else "c"
            self.mapped = np.memmap(mapped_file, np.uint8, mode).view(np.ndarray)  # type: ignore[call-overload]

    def persistent_load(self, saved_id: Any) -> TypedStorage:
        """The storage that ("storage", class, key, location, number of elements) stands for."""
        kind, key, location, count = storage_id(saved_id, 5)
        dtype = getattr(kind, "_dtype", dtypes.uint8)
        name = f"data/{key}"
        if name not in self.by_key:
            nbytes = count * dtype.itemsize
            storage = self._restored(name, nbytes, location)
            if storage.nbytes() != nbytes:
                raise RuntimeError(f"map_location gave a storage of {storage.nbytes()} bytes in place of one of {nbytes}")
            if self.swapped and not current.skip_data:
                _swap(storage, dtype, kind)
            found = typed(storage, dtype)
            if not nbytes:  # storages of several dtypes may be the same nothing
                return found
            self.by_key[name] = found
        return self.by_key[name]

    def _restored(self, name: str, nbytes: int, location: str) -> UntypedStorage:
        place = destination(self.map_location, location)
        if place == "meta":
            return UntypedStorage(nbytes, device="meta")
        record = self.archive.find(name)
        if record.size != nbytes:
            self.archive.refuse(
                f"record size ({record.size} bytes) does not match expected size ({nbytes} bytes) of {name!r} in the pickle"
            )
        if current.skip_data:
            memory = arrays.empty((nbytes,), np.dtype(np.uint8), devices.cpu)
        elif self.mapped is not None and not record.start % 16:
            memory = self.mapped[record.start : record.start + nbytes]
        else:
            memory = self.reader.memory(record, ahead=place == "cpu")
        restored = self.restore(UntypedStorage._of(Storage(memory)), location)
        return restored._untyped_storage


def storage_id(saved_id: Any, length: int) -> tuple[type, str, str, int]:
    """(class, key, location, number of elements) of what a pickle says about a storage."""
    good = (
        isinstance(saved_id, tuple)
        and len(saved_id) >= length
        and type(saved_id[0]) in (str, bytes)
        and saved_id[0] in ("storage", b"storage")
    )
    if good:
        kind, key, location, count = saved_id[1:5]
        key, location = (text.decode("ascii") if isinstance(text, bytes) else text for text in (key, location))
        known = kind is UntypedStorage or isinstance(getattr(kind, "_dtype", None), dtypes.dtype)
        good = known and type(key) is str and type(location) is str and type(count) is int and count >= 0
    if not good:
        kind = type(saved_id[0] if isinstance(saved_id, tuple) and saved_id else saved_id)
        raise pickle.UnpicklingError(f"Only persistent_load of storage is allowed, but got {kind}: the pickle asks for {shown(saved_id)}")
    return kind, key, location, count


def _is_swapped(archive: ZipReader) -> bool:
    """Whether the numbers in the file have the other byte order than this machine's."""
    if "byteorder" in archive:
        order = archive.read("byteorder")
        if order not in (b"little", b"big"):
            archive.refuse(f"its byte order is {order!r:.40}")
        return order.decode() != sys.byteorder
    chosen = current.endianness
    if chosen in (None, LoadEndianness.LITTLE):
        return sys.byteorder != "little"
    return chosen is LoadEndianness.BIG and sys.byteorder != "big"


def _swap(storage: UntypedStorage, dtype: dtypes.dtype, kind: type) -> None:
    if storage.device.type == "meta":
        return
    if kind is UntypedStorage or storage.device.type != "cpu":
        raise NotImplementedError(
            "a file of the other byte order with storages of unknown type, or for a GPU: load it on the CPU in PyTorch first"
        )
    storage.byteswap(dtype)


# -- pickles that are trusted --------------------------------------------------------------------------------------


def _unpickle(data: bytes, persistent_load: Callable[[Any], Any], module: Any, options: dict[str, Any]) -> Any:
    return unpickler_class(module, persistent_load)(io.BytesIO(data), **options).load()


def unpickler_class(module: Any, load_persistent: Callable[[Any], Any]) -> type:
    """The Unpickler of a module like `pickle`, for which PyTorch's names mean ours."""

    class Unpickler(module.Unpickler):
        def find_class(self, mod_name: str, name: str) -> Any:
            if names.is_ours(mod_name) and "." not in name:
                return names.find(mod_name, name)
            try:
                return super().find_class(mod_name, name)
            except (AttributeError, ModuleNotFoundError) as problem:
                problem.add_note(
                    f"(the file names {mod_name}.{name}: an object was saved, a whole model perhaps, and not only tensors. It loads only while the "
                    "code has this class under this name. Put it back, load, and save model.state_dict() instead)"
                )
                raise

        def persistent_load(self, saved_id: Any) -> Any:
            return load_persistent(saved_id)

    return Unpickler


def get_unsafe_globals_in_checkpoint(f: FILE_LIKE) -> list[str]:
    """The classes and functions a file names that load(weights_only=True) would refuse. Nothing of the file is run."""
    with ExitStack() as closing:
        source = _open(f, closing)
        if source.size < 4 or source.read(0, 4) != b"PK\3\4":
            raise ValueError(f"Expected input to be a checkpoint in the zip format of torch.save, which {source.name} is not")
        return safe_pickle.unsafe_globals(ZipReader(source).read("data.pkl"))
