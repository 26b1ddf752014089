"""Image files into tensors (C, H, W) of bytes and back, with Pillow."""

from __future__ import annotations

import io
import os
from enum import Enum
from typing import Any

import numpy as np

from flambeau.tensor import Tensor
from flambeau.tensor.making.interop import from_numpy
from flambeau.vision.picture import pillow
from flambeau.vision.transforms.functional import pil_to_tensor, to_pil_image

__all__ = ["ImageReadMode", "decode_image", "decode_jpeg", "decode_png", "encode_jpeg", "encode_png", "read_file", "read_image", "write_file",
           "write_jpeg", "write_png"]  # fmt: skip


class ImageReadMode(Enum):
    """Which channels: those of the file, or one (grey), two (grey and transparency), three (colours) or four."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}


def read_image(path: str | os.PathLike, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """The image in a file. -> (C, H, W) uint8"""
    return decode_image(read_file(path), mode, apply_exif_orientation)


def decode_image(input: Tensor | str | os.PathLike, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False) -> Tensor:
    """The image in the bytes of a file, or in a file. -> (C, H, W) uint8"""
    if not isinstance(input, Tensor):
        input = read_file(input)
    image = pillow("Image", "decode_image").open(io.BytesIO(input.numpy().tobytes()))
    if apply_exif_orientation:
        image = pillow("ImageOps").exif_transpose(image)
    name = mode.name if isinstance(mode, ImageReadMode) else str(mode).upper()
    wanted = MODES.get(name) or {"P": "RGB", "1": "L", "CMYK": "RGB"}.get(image.mode, image.mode)
    return pil_to_tensor(image if image.mode == wanted else image.convert(wanted))


decode_png = decode_jpeg = decode_image


def read_file(path: str | os.PathLike) -> Tensor:
    """The bytes of a file. -> (n,) uint8"""
    return from_numpy(np.fromfile(path, dtype=np.uint8))


def write_file(filename: str | os.PathLike, data: Tensor) -> None:
    """A file of the bytes of a tensor."""
    with open(filename, "wb") as file:
        file.write(data.numpy().tobytes())


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """The bytes of a PNG file of an image (C, H, W). -> (n,) uint8"""
    return _encoded(input, "PNG", compress_level=compression_level)


def encode_jpeg(input: Tensor, quality: int = 75) -> Tensor:
    """The bytes of a JPEG file of an image (C, H, W). -> (n,) uint8"""
    return _encoded(input, "JPEG", quality=quality)


def write_png(input: Tensor, filename: str | os.PathLike, compression_level: int = 6) -> None:
    write_file(filename, encode_png(input, compression_level))


def write_jpeg(input: Tensor, filename: str | os.PathLike, quality: int = 75) -> None:
    write_file(filename, encode_jpeg(input, quality))


def _encoded(image: Tensor, format: str, **options: Any) -> Tensor:
    pillow("Image", f"writing {format}")
    buffer = io.BytesIO()
    to_pil_image(image).save(buffer, format=format, **options)
    return from_numpy(np.frombuffer(bytearray(buffer.getvalue()), dtype=np.uint8))
