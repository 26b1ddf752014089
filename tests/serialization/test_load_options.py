"""Where tensors go when they are loaded, and in which way they are read."""

from __future__ import annotations

import io
import mmap
import pickle
import struct
import zipfile

import numpy as np
import pytest
from exchange import torch

import flambeau
from flambeau.serialization import LoadEndianness, locations
from flambeau.serialization.sources import source_of
from flambeau.serialization.zip_reader import ZipReader
from flambeau.serialization.zip_writer import ZipWriter
from flambeau.tensor.memory import host_memory
from flambeau.tensor.memory.typed_storage import typed


@pytest.fixture
def path(tmp_path):
    flambeau.save({"w": flambeau.arange(6.0).reshape(2, 3), "b": flambeau.ones(2)}, tmp_path / "x.pt")
    return tmp_path / "x.pt"


def cuda_file(tmp_path):
    """A checkpoint that says its tensors were on a GPU."""
    buffer = io.BytesIO()
    torch.save({"w": torch.arange(3.0)}, buffer)
    made = tmp_path / "cuda.pt"
    with zipfile.ZipFile(buffer) as archive, open(made, "wb") as file:
        writer = ZipWriter(file.write, "archive")
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith("data.pkl"):
                content = content.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0")
            writer.record(name.partition("/")[2], content)
        writer.close()
    return made


@pytest.mark.parametrize(
    "where", ["cpu", flambeau.device("cpu"), {"cuda:0": "cpu"}, lambda storage, place: storage, b"cpu"], ids=lambda w: type(w).__name__
)
def test_tensors_of_a_gpu_come_to_the_cpu(where, tmp_path):
    """A form of map_location is not understood."""
    loaded = flambeau.load(cuda_file(tmp_path), map_location=where)
    assert loaded["w"].device.type == "cpu"
    assert loaded["w"].tolist() == [0, 1, 2]


def test_without_a_gpu_the_error_says_what_to_do(tmp_path):
    """Loading tensors of a GPU on a machine without one fails in another way than PyTorch's."""
    if flambeau.cuda.is_available():
        pytest.skip("there is a GPU")
    for lib in (torch, flambeau):
        with pytest.raises(RuntimeError, match=r"map_location=torch\.device"):
            lib.load(cuda_file(tmp_path))


def test_map_location_to_meta_reads_nothing(path, tmp_path):
    """Shapes alone were asked for, and the elements were read."""
    damaged = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        at = archive.getinfo("x/data/0").header_offset + 64
    damaged[at] ^= 1
    path.write_bytes(damaged)
    for where in ("meta", flambeau.device("meta"), {"cpu": "meta"}):
        loaded = flambeau.load(path, map_location=where)
        assert loaded["w"].is_meta
        assert (tuple(loaded["w"].shape), loaded["b"].stride()) == ((2, 3), (1,))


def test_map_location_as_a_function(path):
    """The function sees other arguments than PyTorch gives, or its None is not the default."""
    seen = []

    def chosen(storage, place):
        seen.append((type(storage), storage.nbytes(), place))
        return None

    assert flambeau.load(path, map_location=chosen)["w"].sum() == 15
    assert seen == [(flambeau.UntypedStorage, 24, "cpu"), (flambeau.UntypedStorage, 8, "cpu")]
    with pytest.raises(RuntimeError, match="bytes in place of"):
        flambeau.load(path, map_location=lambda storage, place: flambeau.UntypedStorage(3))


@pytest.mark.parametrize("where, kind", [("xyz", RuntimeError), ({"cpu": "xyz"}, RuntimeError), (3, TypeError)])
def test_places_that_are_not_known(where, kind, path):
    """An error has another type than PyTorch's."""
    for lib in (torch, flambeau):
        with pytest.raises(kind):
            lib.load(path, map_location=where)


def test_a_place_of_ones_own(path, monkeypatch):
    """register_package does not teach save and load another place."""
    monkeypatch.setattr(locations, "_registry", list(locations._registry))
    flambeau.serialization.register_package(
        5, lambda storage: "vault" if storage.nbytes() == 8 else None, lambda storage, place: storage if place == "vault" else None
    )
    buffer = io.BytesIO()
    flambeau.save([flambeau.ones(2), flambeau.ones(3)], buffer)
    assert b"vault" in buffer.getvalue()
    buffer.seek(0)
    assert flambeau.load(buffer)[0].tolist() == [1, 1]
    assert flambeau.serialization.location_tag(flambeau.ones(3).untyped_storage()) == "cpu"


def test_mmap_leaves_the_elements_on_the_disk(path):
    """mmap=True copies, gives other values, or lets writes reach the file."""
    before = path.read_bytes()
    loaded = flambeau.load(path, mmap=True)
    assert loaded["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    loaded["w"][0, 0] = 7.0
    assert loaded["w"][0, 0] == 7
    assert path.read_bytes() == before
    theirs = path.parent / "theirs.pt"
    torch.save({"w": torch.arange(4.0)}, theirs)
    assert flambeau.load(theirs, mmap=True)["w"].tolist() == [0, 1, 2, 3]


def test_mmap_shared_writes_to_the_file(path):
    """set_default_mmap_options(MAP_SHARED) is not followed, or not only in its block."""
    with flambeau.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        loaded = flambeau.load(path, mmap=True)
    loaded["b"].fill_(9.0)
    del loaded
    assert flambeau.serialization.get_default_mmap_options() == mmap.MAP_PRIVATE
    assert flambeau.load(path, mmap=True)["b"].tolist() == [9, 9]
    with pytest.raises(ValueError, match="MAP_PRIVATE"):
        flambeau.serialization.set_default_mmap_options(77)


def test_mmap_needs_a_path_and_an_archive(path, tmp_path):
    """mmap=True on what cannot be mapped fails in another way than PyTorch's."""
    torch.save([1], tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for lib in (torch, flambeau):
        with pytest.raises(ValueError, match="file path"):
            lib.load(io.BytesIO(path.read_bytes()), mmap=True)
        with pytest.raises(RuntimeError, match="mmap can only be used"):
            lib.load(tmp_path / "old.pt", mmap=True)


def in_other_order(order: bytes | None) -> io.BytesIO:
    """A checkpoint written by a machine of the other byte order, which says so or not."""
    buffer, result = io.BytesIO(), io.BytesIO()
    torch.save(
        {"f": torch.tensor([1.0, 2.0]), "c": torch.tensor([1 + 2j]), "i": torch.tensor([3], dtype=torch.int16), "b": torch.tensor([True])},
        buffer,
    )
    writer = ZipWriter(result.write, "archive")
    swapped = {"data/0": struct.pack(">2f", 1, 2), "data/1": struct.pack(">2f", 1, 2), "data/2": struct.pack(">h", 3), "data/3": b"\1"}
    with zipfile.ZipFile(buffer) as archive:
        for name in archive.namelist():
            short = name.partition("/")[2]
            if short != "byteorder":
                writer.record(short, swapped.get(short) or archive.read(name))
    if order:
        writer.record("byteorder", order)
    writer.close()
    result.seek(0)
    return result


def test_files_of_the_other_byte_order():
    """Numbers written by a big-endian machine come out swapped."""
    for lib in (torch, flambeau):
        loaded = lib.load(in_other_order(b"big"))
        assert loaded["f"].tolist() == [1, 2]
        assert loaded["c"].tolist() == [1 + 2j]
        assert (loaded["i"].tolist(), loaded["b"].tolist()) == ([3], [True])
        lib.serialization.set_default_load_endianness(lib.serialization.LoadEndianness.BIG)
        try:
            assert lib.load(in_other_order(None))["f"].tolist() == [1, 2]
        finally:
            lib.serialization.set_default_load_endianness(None)
    assert flambeau.load(in_other_order(None))["i"].tolist() == [3 << 8]
    assert flambeau.serialization.get_default_load_endianness() is None
    with pytest.raises(TypeError):
        flambeau.serialization.set_default_load_endianness(3)
    assert [e.value for e in LoadEndianness] == [1, 2, 3]


def test_structure_without_data(path, tmp_path):
    """skip_data writes or reads the elements, or changes the structure."""
    with flambeau.serialization.skip_data():
        flambeau.save({"w": flambeau.ones(3)}, tmp_path / "y.pt")
        assert tuple(flambeau.load(path)["w"].shape) == (2, 3)
    assert torch.load(tmp_path / "y.pt")["w"].tolist() == [0, 0, 0]
    assert flambeau.load(tmp_path / "y.pt")["w"].tolist() == [0, 0, 0]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_alone(tmp_path):
    """A storage that is saved by itself comes back as PyTorch gives it."""
    flambeau.save([flambeau.ones(3).untyped_storage(), flambeau.arange(3)._typed_storage()], tmp_path / "x.pt")
    for lib in (flambeau, torch):
        raw, typed = lib.load(tmp_path / "x.pt")
        assert (len(raw), typed.dtype, typed[2]) == (12, lib.int64, 2)


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_from_files_and_as_tensors(tmp_path):
    """What the safetensors package asks of storages."""
    (tmp_path / "raw").write_bytes(struct.pack("<4f", 1, 2, 3, 4))
    for lib in (torch, flambeau):
        storage = lib.UntypedStorage.from_file(str(tmp_path / "raw"), shared=False, nbytes=16)
        assert lib.asarray(storage, dtype=lib.float32).tolist() == [1, 2, 3, 4]
        part = lib.asarray(storage[4:12], dtype=lib.uint8)
        assert part.view(dtype=lib.float32).reshape([2]).tolist() == [2, 3]
        assert part.data_ptr() == storage.data_ptr() + 4
        with pytest.raises(RuntimeError, match="smaller"):
            lib.UntypedStorage.from_file(str(tmp_path / "raw"), False, 17)
        assert lib.FloatStorage.from_file(str(tmp_path / "raw"), False, 2)[1] == 2


def test_every_public_name_is_there():
    """A name of torch.serialization is missing."""
    assert [name for name in torch.serialization.__all__ if not hasattr(flambeau.serialization, name)] == []
    assert flambeau.serialization.StorageType("FloatStorage").dtype is flambeau.float32
    assert flambeau.serialization.normalize_storage_type(flambeau.FloatStorage) is flambeau.FloatStorage
    assert flambeau.serialization.storage_to_tensor_type(flambeau.ones(1)._typed_storage()) is flambeau.FloatTensor
    assert flambeau.serialization.check_module_version_greater_or_equal(np, (1, 20, 0))
    with pytest.raises(RuntimeError):
        flambeau.serialization.validate_hpu_device("hpu")


def test_safetensors_files_are_loaded(tmp_path):
    """torch.load reads .safetensors files, wherever map_location wants them; one that lies about itself is refused."""
    safetensors_torch = pytest.importorskip("safetensors.torch")
    path = tmp_path / "state.safetensors"
    stored = {
        "w": torch.randn(3, 4),
        "h": torch.ones(2, dtype=torch.bfloat16),
        "f": torch.ones(3).to(torch.float8_e4m3fn),
        "e": torch.empty(0, 2),
    }
    safetensors_torch.save_file(stored, path)
    for place in (None, "cpu", flambeau.device("cpu"), "meta"):
        found = flambeau.load(path, map_location=place)
        assert {name: (tuple(t.shape), str(t.dtype)) for name, t in found.items()} == {
            n: (tuple(t.shape), str(t.dtype)) for n, t in stored.items()
        }
        if place == "meta":
            assert all(t.is_meta for t in found.values())
        else:
            assert found["w"].tolist() == stored["w"].tolist() and found["f"].float().tolist() == [1, 1, 1]
    data = path.read_bytes()
    lies = [
        data[:-1],
        data[:4],
        b"\xff" * 8 + data[8:],
        data[:8] + b"[" + data[9:],
        data.replace(b"[3,4]", b"[3,9]"),
        data.replace(b"[3,4]", b"[-3,-4]"),
    ]
    for lie in [*lies, data.replace(b'"F32"', b'"F99"'), (2).to_bytes(8, "little") + b"[]", (200000).to_bytes(8, "little") + b"[" * 200000]:
        path.write_bytes(lie)
        with pytest.raises(RuntimeError, match="cannot be read"):
            flambeau.load(path)


def test_settings_of_a_program(tmp_path):
    """torch.utils.serialization.config: the settings that save and load follow."""
    config = flambeau.utils.serialization.config
    assert (config.load.mmap, config.save.compute_crc32, config.save.storage_alignment) == (False, True, 64)
    with pytest.raises(AttributeError, match="no setting"):
        config.load.strange = 1
    try:
        config.save.storage_alignment, config.load.mmap = 4096, True
        flambeau.save([flambeau.arange(3.0)], tmp_path / "f")
        with open(tmp_path / "f", "rb") as file:
            assert ZipReader(source_of(file)).find("data/0").start % 4096 == 0
        assert torch.load(tmp_path / "f")[0].tolist() == [0, 1, 2]
        assert host_memory.is_shared(flambeau.load(tmp_path / "f")[0]._shared_storage())
    finally:
        config.save.storage_alignment, config.load.mmap = 64, False


def test_empty_storages_of_several_dtypes():
    """Nothing has no address: two empty storages of different dtypes in one file must both come back."""
    empty = flambeau.tensor([])
    for legacy in (False, True):
        file = io.BytesIO()
        flambeau.save([empty, typed(empty.untyped_storage(), flambeau.int64)], file, _use_new_zipfile_serialization=not legacy)
        file.seek(0)
        tensor, storage = flambeau.load(file)
        assert (tensor.dtype, storage.dtype) == (flambeau.float32, flambeau.int64)


@pytest.mark.filterwarnings("ignore:pickle_load_args")
def test_text_of_python_2():
    """Strings of Python 2 are decoded as the caller says, or left alone."""
    head = b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    old = head + b"\x80\x02]U\x02\xc5\xbca." + pickle.dumps([], 2)
    for encoding, expected in (("utf-8", "ż"), ("latin1", "\xc5\xbc"), ("bytes", b"\xc5\xbc")):
        for t in (flambeau, torch):
            assert t.load(io.BytesIO(old), encoding=encoding) == [expected], (t, encoding)
