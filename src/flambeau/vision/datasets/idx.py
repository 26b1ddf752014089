"""The idx format, in which MNIST and its relatives come: two zero bytes, the kind of numbers, the number of dimensions, the dimensions, the
numbers; all big-endian, and usually gzipped.

    00 00 08 03  0000ea60 0000001c 0000001c  ...        60000 x 28 x 28 bytes
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np

from flambeau.tensor import Tensor
from flambeau.tensor.making.interop import from_numpy

KINDS = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | os.PathLike) -> Tensor:
    """The tensor in an idx file, gzipped or not. A file that is not one, or not whole, is a ValueError that says so."""
    path = Path(path)
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            dtype, shape = _header(path, file.read(4), file.read)
            wanted = math.prod(shape) * dtype.itemsize
            # one byte more than wanted, and no more: a header that lies must not fill the memory
            data = file.read(wanted + 1) if packed or wanted < path.stat().st_size else file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise ValueError(f"{path}: the gzip file is damaged or incomplete ({problem}). Delete it and download it again") from None
    if len(data) != wanted:
        found = f"{len(data)}" if len(data) < wanted else "more"
        raise ValueError(f"{path}: the header says {'x'.join(map(str, shape))} {dtype.name}, {wanted} bytes; the file has {found} after it")
    array = np.frombuffer(data, dtype).reshape(shape)
    return from_numpy(array.astype(dtype.newbyteorder("="), copy=True))


def _header(path: Path, magic: bytes, read) -> tuple[np.dtype, tuple[int, ...]]:
    if len(magic) < 4:
        raise ValueError(f"{path}: not an idx file: it has only {len(magic)} bytes")
    zero, kind, dimensions = struct.unpack(">HBB", magic)
    if zero or kind not in KINDS:
        raise ValueError(
            f"{path}: not an idx file: it starts with {magic.hex(' ')}, an idx file with 00 00, one of "
            f"{' '.join(f'{known:02x}' for known in KINDS)}, and the number of dimensions"
        )
    lengths = read(4 * dimensions)
    if len(lengths) < 4 * dimensions:
        raise ValueError(f"{path}: the file ends in the middle of its header, which announces {dimensions} dimensions")
    return np.dtype(KINDS[kind]), struct.unpack(f">{dimensions}I", lengths)
