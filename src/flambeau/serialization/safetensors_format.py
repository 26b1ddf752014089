"""Reading `.safetensors` files: the length of a table, the table as JSON, then the bytes of the tensors it lists. Nothing else can be in one."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import numpy as np

from flambeau import devices, dtypes
from flambeau.kernels import arrays
from flambeau.serialization.locations import MAP_LOCATION, destination, restorer
from flambeau.serialization.sources import Source
from flambeau.tensor import Tensor
from flambeau.tensor.making.pickling import rebuild
from flambeau.tensor.memory.untyped_storage import UntypedStorage
from flambeau.tensor.storage import Storage

DTYPES = {
    "F64": dtypes.float64, "F32": dtypes.float32, "F16": dtypes.float16, "BF16": dtypes.bfloat16, "C64": dtypes.complex64,
    "I64": dtypes.int64, "I32": dtypes.int32, "I16": dtypes.int16, "I8": dtypes.int8, "U8": dtypes.uint8, "U16": dtypes.uint16,
    "U32": dtypes.uint32, "U64": dtypes.uint64, "BOOL": dtypes.bool, "F8_E4M3": dtypes.float8_e4m3fn, "F8_E5M2": dtypes.float8_e5m2,
    "F8_E8M0": dtypes.float8_e8m0fnu,
}  # fmt: skip


def read(source: Source, map_location: MAP_LOCATION) -> dict[str, Tensor]:
    """The tensors of a file by their names, each on memory of its own."""
    table, start = _table(source)
    restore = restorer(map_location)
    found = {}
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        dtype, shape, first, last = _checked(source, name, entry, start)
        if destination(map_location, "cpu") == "meta":
            storage = UntypedStorage(last - first, device="meta")
        else:
            memory = arrays.empty((last - first,), np.dtype(np.uint8), devices.cpu)
            source.read_into(first, memoryview(memory))
            storage = restore(UntypedStorage._of(Storage(memory)), "cpu")
        strides = tuple(prod(shape[d + 1 :]) for d in range(len(shape)))
        found[name] = rebuild(storage, 0, shape, strides, dtype)
    return found


def _table(source: Source) -> tuple[dict[str, Any], int]:
    """What the file lists, and where the bytes begin."""
    length = int.from_bytes(source.read(0, 8), "little") if source.size >= 8 else source.size
    if length + 8 > source.size:
        raise RuntimeError(f"{source.name} cannot be read: its table of {length} bytes is longer than the file")
    try:
        table = json.loads(source.read(8, length))
    except (ValueError, RecursionError) as problem:
        raise RuntimeError(f"{source.name} cannot be read: its table is not JSON ({str(problem)[:100]})") from None
    if not isinstance(table, dict):
        raise RuntimeError(f"{source.name} cannot be read: its table is a {type(table).__name__}, not a dictionary")
    return table, 8 + length


def _checked(source: Source, name: str, entry: Any, start: int) -> tuple[dtypes.dtype, tuple[int, ...], int, int]:
    """(dtype, shape, first byte, the byte behind the last) of a tensor, if that is in the file."""
    try:
        dtype, shape, (first, last) = DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        good = all(type(n) is int and n >= 0 for n in (*shape, first, last)) and len(shape) <= 64 and start + last <= source.size
        good = good and last - first == prod(shape) * dtype.itemsize
    except (KeyError, TypeError, ValueError):
        good = False
    if not good:
        raise RuntimeError(f"{source.name} cannot be read: tensor {name[:100]!r} has a dtype, shape or place that does not fit the file")
    return dtype, shape, start + first, start + last
