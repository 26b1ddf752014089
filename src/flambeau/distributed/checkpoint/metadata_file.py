"""The file `.metadata`: written under PyTorch's names, read without trusting it.

Reading follows the pickle with the careful interpreter of `serialization.safe_pickle`: it can make the dataclasses of a checkpoint, plain data, dtypes and
sizes, and nothing else. A program that puts objects of its own into a plan's `planner_data` allows them with torch.serialization.add_safe_globals.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from pickle import UnpicklingError
from typing import Any

from flambeau import dtypes
from flambeau.distributed.checkpoint import metadata as kinds
from flambeau.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, Metadata
from flambeau.distributed.checkpoint.places import _StorageInfo, _StoragePrefix
from flambeau.serialization import allowed, safe_pickle, saving
from flambeau.tensor import Size, layouts

PROTOCOL = 4
PACKAGE = "torch.distributed.checkpoint"


def dump(metadata: Metadata) -> bytes:
    """The content of `.metadata`."""
    meta = metadata.storage_meta
    if meta is not None and isinstance(meta.checkpoint_id, os.PathLike):  # what a path is called in a pickle depends on Python's version
        metadata = replace(metadata, storage_meta=replace(meta, checkpoint_id=os.fspath(meta.checkpoint_id)))
    data, storages = saving.pickled(metadata, pickle, PROTOCOL)
    if storages:
        raise ValueError(
            "the metadata of a checkpoint has a tensor in it: planner_data is for names and numbers, tensors go into the state itself"
        )
    return data


def parse(data: bytes, name: str) -> Metadata:
    """What the bytes of the file `name` say. RuntimeError if they are no metadata, or want more than metadata needs."""
    try:
        found = MetadataInterpreter(data).run()
    except (UnpicklingError, EOFError, RuntimeError) as problem:
        raise RuntimeError(f"{name} cannot be read as the metadata of a checkpoint: {problem}") from problem
    if type(found) is not Metadata:
        raise RuntimeError(f"{name} holds a {type(found).__name__}: the metadata of a checkpoint were expected")
    return found


class MetadataInterpreter(safe_pickle.Interpreter):
    """The stack machine, with the classes of checkpoints."""

    def __init__(self, data: bytes):
        super().__init__(data)
        self.caller = MetadataCaller(len(data), len(data))

    def _push_global(self, module: str, name: str) -> None:
        found = _known().get(f"{module}.{name}")
        if found is None:
            super()._push_global(module, name)
        else:
            self.stack.append(found)


class MetadataCaller(allowed.Caller):
    """Makes the dataclasses of checkpoints and gives them their state, if the fields are what they should be."""

    def make(self, kind: Any, args: Any, keywords: dict | None = None) -> Any:
        if kind in FIELDS and not args and not keywords:
            return object.__new__(kind)
        return super().make(kind, args, keywords)

    def build(self, instance: Any, state: Any) -> None:
        fields = FIELDS.get(type(instance))
        if fields is None:
            super().build(instance, state)
            return
        if isinstance(state, tuple):
            state = _of_properties(type(instance), state)
        self._attributes(state)
        for name, value in state.items():
            if name not in fields or not fields[name](value):
                raise UnpicklingError(
                    f"{type(instance).__name__}.{name} of a checkpoint is a {type(value).__name__}, which does not belong there"
                )
        lacking = [name for name in REQUIRED[type(instance)] if name not in state]
        if lacking:
            raise UnpicklingError(f"a {type(instance).__name__} of a checkpoint has no {' and no '.join(lacking)}")
        if type(instance) is kinds.TensorProperties:
            instance.__setstate__(tuple(state.values()))
        else:
            vars(instance).update(state)

    def call(self, function: Any, args: Any) -> Any:
        if function is _MEM_FORMAT_ENCODING:
            return _MEM_FORMAT_ENCODING(*args)
        if function in PATHS:
            if not all(type(part) is str for part in args):
                raise UnpicklingError("a path is made of texts")
            return function(*args)
        return super().call(function, args)


# -- what may be in the file ---------------------------------------------------------------------------------------

PATHS = (PurePosixPath if os.name == "nt" else Path, PureWindowsPath)


@lru_cache(None)
def _known() -> dict[str, Any]:
    """Classes by their names in files: today's, and those of PyTorch before 2.3."""
    found: dict[str, Any] = {f"{PACKAGE}.metadata.{kind.__name__}": kind for kind in (*FIELDS, _MEM_FORMAT_ENCODING)}
    found |= {f"{PACKAGE}.filesystem.{kind.__name__}": kind for kind in (_StorageInfo, _StoragePrefix)}
    old = "torch.distributed._shard.sharded_tensor.metadata"
    found |= {f"{old}.TensorProperties": kinds.TensorProperties, f"{old}.MEM_FORMAT_ENCODING": _MEM_FORMAT_ENCODING}
    for module in ("pathlib", "pathlib._local"):
        found |= {
            f"{module}.{kind}{path}": made for path, made in zip(("PosixPath", "WindowsPath"), PATHS, strict=True) for kind in ("", "Pure")
        }
    return found


def _of_properties(kind: type, state: tuple) -> dict[str, Any]:
    names = list(FIELDS[kinds.TensorProperties])
    if kind is not kinds.TensorProperties or len(state) != len(names):
        raise UnpicklingError(f"the state of a {kind.__name__} is not a tuple of {len(state)}")
    return dict(zip(names, state, strict=True))


def _is(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


def _each(of_key: Callable[[Any], bool], of_value: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(of_key(key) and of_value(inside) for key, inside in value.items())


def _list(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, (list, tuple)) and all(map(of, value))


def _size(value: Any) -> bool:
    return isinstance(value, Size) and all(type(n) is int and n >= 0 for n in value)


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _anything(value: Any) -> bool:
    return True


_text, _path = _is(str), _is(str, PurePath)
FIELDS: dict[type, dict[str, Callable[[Any], bool]]] = {
    Metadata: {
        "state_dict_metadata": _each(_text, _is(kinds.TensorStorageMetadata, kinds.BytesStorageMetadata)),
        "planner_data": _anything,
        "storage_data": _anything,  # a storage's own affair; the reader of folders looks at it
        "storage_meta": _or_none(_is(kinds.StorageMeta)),
        "version": _or_none(_text),
    },
    kinds.TensorStorageMetadata: {
        "properties": _is(kinds.TensorProperties),
        "size": _size,
        "chunks": _list(_is(kinds.ChunkStorageMetadata)),
    },
    kinds.BytesStorageMetadata: {},
    kinds.ChunkStorageMetadata: {"offsets": _size, "sizes": _size},
    kinds.MetadataIndex: {"fqn": _text, "offset": _or_none(_size), "index": _or_none(_count)},
    kinds.TensorProperties: {
        "dtype": _is(dtypes.dtype),
        "layout": _is(layouts.layout),
        "requires_grad": _is(bool),
        "memory_format": _is(_MEM_FORMAT_ENCODING),
        "pin_memory": _is(bool),
    },
    kinds.StorageMeta: {"checkpoint_id": _or_none(_path), "save_id": _or_none(_text), "load_id": _or_none(_text), "modules": _list(_text)},
    _StorageInfo: {"relative_path": _text, "offset": _count, "length": _count, "transform_descriptors": _or_none(_list(_text))},
    _StoragePrefix: {"prefix": _text},
}
REQUIRED: dict[type, tuple[str, ...]] = {kind: tuple(fields) for kind, fields in FIELDS.items()} | {
    Metadata: ("state_dict_metadata",),
    kinds.StorageMeta: (),
    kinds.MetadataIndex: ("fqn",),
    _StorageInfo: ("relative_path", "offset", "length"),
}
