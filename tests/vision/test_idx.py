"""The idx format: every kind of numbers, and every way in which a file can be wrong."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest

import flambeau
from flambeau.vision.datasets.idx import read_idx

KINDS = {"uint8": 0x08, "int8": 0x09, "int16": 0x0B, "int32": 0x0C, "float32": 0x0D, "float64": 0x0E}


def idx_bytes(array: np.ndarray) -> bytes:
    head = struct.pack(f">HBB{array.ndim}I", 0, KINDS[array.dtype.name], array.ndim, *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_numbers_is_read(tmp_path, kind, packed):
    """Numbers, shape and dtype of an idx file are those that were written, big-endian, gzipped or not."""
    array = np.array([[[1, 2, 3], [100, -1 if kind[0] != "u" else 255, 0]]]).astype(kind)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(idx_bytes(array)) if packed else idx_bytes(array))
    found = read_idx(path)
    assert str(found.dtype) == f"torch.{kind}" and tuple(found.shape) == array.shape
    assert np.array_equal(found.numpy(), array)
    found += 1  # in memory of its own


def test_an_empty_tensor_and_a_single_number_are_read(tmp_path):
    """A dimension of length 0, and no dimension at all, are in order."""
    (tmp_path / "empty").write_bytes(idx_bytes(np.zeros((0, 28), np.uint8)))
    (tmp_path / "single").write_bytes(idx_bytes(np.array(7, np.uint8)))
    assert tuple(read_idx(tmp_path / "empty").shape) == (0, 28)
    assert read_idx(tmp_path / "single").item() == 7


WHOLE = idx_bytes(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "only 0 bytes"),
        (b"<html>not found</html>", "3c 68 74 6d"),
        (b"\0\0\x0a\x01" + WHOLE[4:], "not an idx file"),
        (WHOLE[:7], "middle of its header"),
        (WHOLE[:-1], "3x4 uint8, 12 bytes; the file has 11"),
        (WHOLE + b"x", "the file has more"),
        (struct.pack(">HBB3I", 0, 8, 3, 2**31, 2**31, 2**31), "the file has 0"),
        (gzip.compress(WHOLE)[:-9], "gzip file is damaged or incomplete"),
        (gzip.compress(WHOLE)[:12] + b"?" + gzip.compress(WHOLE)[13:], "gzip file is damaged"),
        (gzip.compress(WHOLE[:-1]), "the file has 11"),
        (gzip.compress(WHOLE + b"x"), "the file has more"),
    ],
    ids=range(11),
)
def test_a_file_that_is_wrong_is_named_with_what_is_wrong(tmp_path, content, message):
    """A damaged file must not give wrong images: the error names it and says what is the matter."""
    path = tmp_path / "train-images"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_idx(path)
    assert str(path) in str(error.value)


def test_torchvisions_readers_check_what_they_read(tmp_path):
    """Labels are bytes in one dimension, images in three; anything else is a TypeError."""
    from flambeau.vision.datasets.mnist import read_image_file, read_label_file, read_sn3_pascalvincent_tensor

    (tmp_path / "labels").write_bytes(idx_bytes(np.arange(5, dtype=np.uint8)))
    (tmp_path / "images").write_bytes(idx_bytes(np.zeros((5, 2, 2), np.uint8)))
    assert read_label_file(str(tmp_path / "labels")).dtype is flambeau.int64
    assert read_image_file(str(tmp_path / "images")).shape == (5, 2, 2)
    assert read_sn3_pascalvincent_tensor(str(tmp_path / "labels")).shape == (5,)
    with pytest.raises(TypeError, match="labels are"):
        read_label_file(str(tmp_path / "images"))
    with pytest.raises(TypeError, match="images are"):
        read_image_file(str(tmp_path / "labels"))
