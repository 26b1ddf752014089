"""Damage is noticed, and named: no tensor comes back with other bytes than were saved."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import random
import signal
import subprocess
import sys
import weakref
import zipfile
import zlib

import numpy as np
import pytest
from exchange import torch

import flambeau
from flambeau.serialization import checksum, options, reading, sources
from flambeau.serialization.sources import source_of
from flambeau.serialization.zip_reader import ZipReader


def model() -> dict:
    return {
        "model": {"encoder.weight": flambeau.arange(300.0), "encoder.bias": flambeau.ones(7)},
        "list": [flambeau.zeros(3, dtype=flambeau.int64)],
    }


def places(data: bytes) -> dict[str, tuple[int, int]]:
    """(first byte, last byte + 1) of every record."""
    return {name: (record.start, record.start + record.size) for name, record in ZipReader(source_of(io.BytesIO(data))).records.items()}


@pytest.mark.parametrize("lib", [flambeau, torch], ids=["our file", "PyTorch's file"])
def test_any_flipped_bit_of_the_elements_is_noticed_and_named(lib):
    """A flipped bit of a tensor was loaded without a word, or another tensor was blamed."""
    buffer = io.BytesIO()
    lib.save({"model": {"encoder.weight": lib.arange(300.0), "encoder.bias": lib.ones(7)}, "list": [lib.zeros(3)]}, buffer)
    data, chance = buffer.getvalue(), random.Random(0)
    names = {"data/0": "model.encoder.weight", "data/1": "model.encoder.bias", "data/2": "list.0"}
    for record, name in names.items():
        start, end = places(data)[record]
        for at in {start, end - 1, *(chance.randrange(start, end) for _ in range(20))}:
            damaged = bytearray(data)
            damaged[at] ^= 1 << chance.randrange(8)
            with pytest.raises(RuntimeError, match=f"damaged.*\n *{record}: {name}\n"):
                flambeau.load(io.BytesIO(damaged))


def test_every_byte_of_every_record_is_checked():
    """A changed byte in data.pkl or in a small record was not noticed."""
    buffer = io.BytesIO()
    flambeau.save(model(), buffer)
    data = buffer.getvalue()
    for record in ("data.pkl", "byteorder"):
        for at in range(*places(data)[record]):
            damaged = bytearray(data)
            damaged[at] ^= 0x20
            with pytest.raises(RuntimeError, match=f"record '{record}' is damaged"):
                flambeau.load(io.BytesIO(damaged))


def test_a_file_cut_short_anywhere():
    """A file that was cut short was loaded, or the error says nothing."""
    buffer = io.BytesIO()
    flambeau.save(model(), buffer)
    data = buffer.getvalue()
    for length in [*range(4, len(data), 97), len(data) - 1]:
        with pytest.raises(RuntimeError, match="cannot be read"):
            flambeau.load(io.BytesIO(data[:length]))


def test_damage_inside_a_module_and_in_large_files_read_by_threads(tmp_path, monkeypatch):
    """Damage is not found when pieces of a record are read by several threads, or inside objects."""
    monkeypatch.setattr(reading, "WORTH_THREADS", 0)
    monkeypatch.setattr(reading, "PIECE", 1000)
    monkeypatch.setattr(sources, "CHUNK", 300)
    before = flambeau.get_num_threads()
    flambeau.set_num_threads(3)
    try:
        path = tmp_path / "x.pt"
        whole = flambeau.nn.Sequential(flambeau.nn.Linear(50, 60), flambeau.nn.Linear(60, 10))
        flambeau.save(whole, path)
        back = flambeau.load(path, weights_only=False)
        assert flambeau.equal(back[0].weight, whole[0].weight)
        data = bytearray(path.read_bytes())
        data[places(bytes(data))["data/2"][0] + 2345] ^= 1
        path.write_bytes(data)
        with pytest.raises(RuntimeError, match=r"data/2: \S*1\.\S*weight"):
            flambeau.load(path, weights_only=False)
        assert flambeau.load(path, weights_only=False, mmap=True) is not None  # not checked, and documented so
    finally:
        flambeau.set_num_threads(before)


def test_a_file_is_read_and_summed_in_one_call(tmp_path):
    """The compiled reader gives other bytes or sums than plain reading, or does not notice where the file ends."""
    data = np.random.default_rng(0).bytes(300_001)  # more than two chunks, none of them whole at the end
    (tmp_path / "x").write_bytes(data)
    with open(tmp_path / "x", "rb") as file:
        source = sources.source_of(file)
        for at, size in ((0, 300_001), (7, 131_072), (131_072, 100), (299_999, 2), (5, 0)):
            memory = bytearray(size)
            assert source.read_summed(at, memoryview(memory)) == sources.Source.read_summed(source, at, memoryview(bytearray(size)))
            assert bytes(memory) == data[at : at + size]
            assert source.read_summed(at, memoryview(memory)) == zlib.crc32(memory)
        with pytest.raises(RuntimeError, match="there are only 300001"):
            source.read_summed(300_000, memoryview(bytearray(2)))
    with pytest.raises(OSError):
        source.read_summed(0, memoryview(bytearray(2)))


@contextlib.contextmanager
def random_source(path: pathlib.Path, size: int):
    """(bytes, a file of them, an array of as many zeros)."""
    data = np.random.default_rng(size).bytes(size)
    path.write_bytes(data)
    with open(path, "rb") as file:
        yield data, sources.source_of(file), flambeau.zeros(size, dtype=flambeau.uint8).numpy()


needs_compiled = pytest.mark.skipif(not checksum.is_compiled, reason="files are copied from memory by the compiled extension")


@needs_compiled
def test_a_mapped_file_is_copied_and_summed(tmp_path):
    """The copy or its checksum is wrong for some size, place or alignment; bytes around it are touched."""
    with random_source(tmp_path / "x", 1 << 16) as (data, source, room):
        chance = random.Random(2)
        for size in [*range(0, 1100, 13), 4096, 50_003, 1 << 16]:
            at = chance.randint(0, len(data) - size)
            for start in (0, 5):  # what does not begin at 64 bytes is read, not copied
                room[:] = 7
                memory = memoryview(room)[start : start + size]
                if len(memory) < size:
                    continue
                assert source._copy_and_sum(at, memory) == zlib.crc32(data[at : at + size])
                assert room.tobytes() == b"\7" * start + data[at : at + size] + b"\7" * (len(room) - start - size)
        with pytest.raises(RuntimeError, match="there are only 65536"):
            source._copy_and_sum(60_000, memoryview(room)[:6000])


@needs_compiled
def test_large_cached_files_are_read_either_way(tmp_path):
    """Whichever way of reading is chosen, other bytes come back, or damage is not seen."""
    with random_source(tmp_path / "x", 5 << 20) as (data, source, memory):
        for _ in range(4):
            memory[:] = 0
            assert source.read_summed(0, memoryview(memory)) == zlib.crc32(data)
            assert memory.tobytes() == data
        assert source._is_cached(0) is False or len(source.pace) == 2  # both were tried
    gone = weakref.ref(source)
    del source
    assert gone() is None  # with it the mapping, which holds a descriptor


CUT_SHORT = """
import faulthandler, mmap, os, sys
import flambeau
from flambeau.serialization import sources
if "handler" in sys.argv: faulthandler.enable()
path = sys.argv[1]
with open(path, "r+b") as file, open(path, "rb") as read:
    source = sources.source_of(read)
    memory = memoryview(flambeau.zeros(1 << 20, dtype=flambeau.uint8).numpy())
    source._copy_and_sum(0, memory)
    file.truncate(5000)
    for _ in range(2):
        try: source._copy_and_sum(0, memory)
        except RuntimeError as problem: print(problem)
    found = mmap.mmap(file.fileno(), 5000)
    file.truncate(0)
    print("and now a fault that is not ours", flush=True)
    found[4500]
"""


@needs_compiled
@pytest.mark.parametrize("handler", ["", "handler"])
def test_a_file_cut_short_while_it_is_copied(tmp_path, handler):
    """A file cut short by another program kills this one; or a fault elsewhere no longer does."""
    (tmp_path / "x").write_bytes(bytes(1 << 20))
    path = str(pathlib.Path(flambeau.__file__).parents[1])
    found = subprocess.run(
        [sys.executable, "-c", CUT_SHORT, str(tmp_path / "x"), handler],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    message = "bytes 0 to 1048576 are wanted, but there are only 5000"
    assert found.stdout.count(message) == 2 and found.stdout.endswith("not ours\n"), found.stderr
    assert found.returncode == -signal.SIGBUS and ("Bus error" in found.stderr) == bool(handler)


def test_damage_is_the_reason_given_when_it_makes_something_else_fail():
    """A damaged state makes an object fail while it is made: the error does not mention the damage."""
    buffer = io.BytesIO()
    flambeau.save(flambeau.Generator(), buffer)
    data = bytearray(buffer.getvalue())
    start, _ = places(bytes(data))["data/0"]
    data[start + 24 : start + 40] = bytes(range(100, 116))
    with pytest.raises(RuntimeError, match="is damaged") as caught:
        flambeau.load(io.BytesIO(data), weights_only=False)
    assert "data/0" in str(caught.value)


def test_files_without_checksums(tmp_path):
    """A file written without checksums (an option of PyTorch's) is called damaged."""
    for lib in (torch, flambeau):
        lib.serialization.set_crc32_options(False)
        try:
            lib.save({"a": lib.ones(3)}, tmp_path / "x.pt")
        finally:
            lib.serialization.set_crc32_options(True)
        assert flambeau.load(tmp_path / "x.pt")["a"].tolist() == [1, 1, 1]
        assert torch.load(tmp_path / "x.pt")["a"].tolist() == [1, 1, 1]
    assert options.current.crc32


def test_checksums_are_zlibs():
    """The checksum in C, or of pieces put together, is not CRC-32."""

    chance = random.Random(1)
    for length in [*range(0, 700), 4096, 100_003, 131_071, 131_072]:
        data, start = chance.randbytes(length), chance.getrandbits(32)
        assert checksum.crc32(data, start) == zlib.crc32(data, start)
        cut = chance.randint(0, length)
        assert checksum.combine(zlib.crc32(data[:cut]), zlib.crc32(data[cut:]), length - cut) == zlib.crc32(data)


CRC_PROGRAM = """
import mmap, random, zlib
import flambeau
from flambeau.kernels.native import native
from flambeau.serialization.checksum import crc32
for length in (*range(60, 700, 7), 5000, 100_003):
    data = random.randbytes(length)
    assert crc32(data, 7) == zlib.crc32(data, 7), length
    with mmap.mmap(-1, length) as mapped:
        mapped[:] = data
        copy = flambeau.zeros(1 << 17, dtype=flambeau.uint8).numpy()[:length]
        assert native.lib is None or native.lib.copy_summed(mapped, 0, copy) == zlib.crc32(data) and copy.tobytes() == data, length
"""


@pytest.mark.parametrize("variant", ["baseline", "avx2"])
def test_checksums_on_older_machines(variant):
    """The checksum that narrower vectors compute is another one."""
    path = str(pathlib.Path(flambeau.__file__).parents[1])
    subprocess.run([sys.executable, "-c", CRC_PROGRAM], env={**os.environ, "PYTHONPATH": path, "FLAMBEAU_CPU": variant}, check=True)


def test_64_bit_archives(monkeypatch, tmp_path):
    """Sizes and places beyond 4 GiB, here pretended, are written as PyTorch and zip programs do not read them."""
    from flambeau.serialization import zip_writer

    monkeypatch.setattr(zip_writer, "LIMIT", 500)
    flambeau.save(model(), tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        assert archive.testzip() is None
    for lib in (torch, flambeau):
        assert lib.load(tmp_path / "x.pt")["model"]["encoder.weight"].tolist() == list(range(300))
