"""One `.safetensors` file: 8 bytes for the length of a table, the table as JSON, then the bytes of the tensors it lists.

    {"__metadata__": {"format": "pt"}, "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}

Files of one rank of several say besides, under DCP_SHARDING_INFO, where in the whole tensor each of theirs begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from flambeau.distributed.checkpoint.metadata import MetadataIndex
from flambeau.dtypes import dtype
from flambeau.serialization.safetensors_format import DTYPES
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making.factories import empty, frombuffer

SUFFIX, INDEX = ".safetensors", "model.safetensors.index.json"
SHARDING, OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"
MOST = 100_000_000  # bytes of a table, as the safetensors library allows
_NAMES = {kind: name for name, kind in DTYPES.items()}


@dataclass(frozen=True)
class Box:
    """A tensor of a file: a box of the whole tensor `name`, and the bytes of the file that it has."""

    path: str
    name: str
    kind: str
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    first: int
    last: int

    @property
    def dtype(self) -> dtype:
        return DTYPES[self.kind]

    @property
    def index(self) -> MetadataIndex:
        return MetadataIndex(self.name, Size(self.offsets))

    def bytes_of(self, stream: Any) -> bytes:
        """What the file holds of it."""
        stream.seek(self.first)
        return stream.read(self.last - self.first)

    def tensor(self, stream: Any) -> Tensor:
        """The box, on memory of its own."""
        if self.first == self.last:
            return empty(self.shape, dtype=self.dtype)
        return frombuffer(bytearray(self.bytes_of(stream)), dtype=self.dtype).reshape(self.shape)


def boxes(stream: Any, path: str) -> list[Box]:
    """The tensors that a file lists; RuntimeError where its table does not fit it."""
    size = stream.seek(0, 2)
    stream.seek(0)
    length = int.from_bytes(stream.read(8), "little")
    if size < 8 or length > min(size - 8, MOST):
        raise RuntimeError(f"{path} is no safetensors file: its table is longer than the file")
    try:
        table = json.loads(stream.read(length))
        notes = table.pop("__metadata__", None) or {}
        sharding = json.loads(notes.get(SHARDING, "{}"))
        return [_box(path, name, entry, sharding, 8 + length, size) for name, entry in table.items()]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise RuntimeError(f"{path} cannot be read as a safetensors file: {problem!r:.200}") from problem


def _box(path: str, name: str, entry: dict[str, Any], sharding: dict[str, Any], start: int, size: int) -> Box:
    shape, (first, last) = tuple(entry["shape"]), entry["data_offsets"]
    offsets = tuple(sharding[name][OFFSETS]) if name in sharding else (0,) * len(shape)
    if not all(type(n) is int and n >= 0 for n in (*shape, *offsets, first, last)) or len(offsets) != len(shape):
        raise ValueError(f"the shape or the place of {name!r} is no list of numbers")
    if last - first != prod(shape) * DTYPES[entry["dtype"]].itemsize or start + last > size:
        raise ValueError(f"the bytes of {name!r} do not fit its shape, or the file")
    return Box(path, name, entry["dtype"], offsets, shape, start + first, start + last)


def write_table(stream: Any, tensors: Iterable[tuple[str, str, tuple[int, ...]]], notes: Mapping[str, str]) -> None:
    """Begin a file whose tensors (name, dtype in the format's words, shape) follow in this order."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt", **notes}}
    at = 0
    for name, kind, shape in tensors:
        end = at + prod(shape) * DTYPES[kind].itemsize
        table[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors are aligned
    stream.write(len(text).to_bytes(8, "little"))
    stream.write(text)


def kind_of(tensor: Tensor, name: str) -> str:
    """The format's word for a dtype."""
    if tensor.dtype not in _NAMES:
        raise ValueError(f"safetensors has no {tensor.dtype}, which {name!r} has: there are {', '.join(_NAMES.values())}")
    return _NAMES[tensor.dtype]


def file_name(index: int, highest: int, shard: int | None = None) -> str:
    """model-00001-of-00002.safetensors; with the rank's number in front for a file of one rank of several."""
    whose = "" if shard is None else f"shard-{shard:05}-"
    return f"{whose}model-{index:05}-of-{highest:05}{SUFFIX}"
