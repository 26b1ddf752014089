"""Files made to do harm: each is refused with a sentence, quickly, and in little memory."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
import zlib

import fuzz_files
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau
from flambeau.serialization import safe_pickle
from flambeau.serialization.zip_writer import ZipWriter

fuzz_files.warm_up()


def archive(data: bytes, **records: bytes) -> bytes:
    buffer = io.BytesIO()
    writer = ZipWriter(buffer.write, "archive")
    writer.record("data.pkl", data)
    for name, content in records.items():
        writer.record(name.replace("_", "/"), content)
    writer.close()
    return buffer.getvalue()


def refused(data: bytes, match: str) -> None:
    fuzz_files.attempt(data)
    with pytest.raises(fuzz_files.REFUSALS, match=match):
        flambeau.load(io.BytesIO(data))


# -- by grammar ------------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_whatever_the_grammar_makes_is_loaded_or_refused(chance):
    """A file made the loader run something, take too much time or memory, or fail with a puzzling exception."""
    fuzz_files.attempt(fuzz_files.hostile(chance))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=200), start=st.sampled_from([b"", b"\x80\x02", b"PK\3\4"]))
def test_noise_is_refused(data, start):
    """Random bytes were loaded, or gave a puzzling exception."""
    fuzz_files.attempt(start + data)


# -- pickles that want to run something --------------------------------------------------------------------------------


class Runs:
    """What an attacker writes: loading it would call any function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


ATTACKS = {
    "os.system": pickle.dumps(Runs(os.system, "touch /tmp/owned"), 2),
    "eval": pickle.dumps(Runs(eval, "1 + 1"), 4),
    "getattr": b"\x80\x02c__builtin__\ngetattr\nctorch\nTensor\nX\x08\x00\x00\x00__init__\x86R.",
    "an attribute of what is allowed": b"\x80\x02ccollections\nOrderedDict.fromkeys\n.",
    "a name by the stack": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
    "an extension code": b"\x80\x02\x82\x01.",
    "an instance the old way": b"(ios\nsystem\n.",
    "an object the old way": b"(cos\nsystem\nX\x04\x00\x00\x00trueo.",
    "calling what is no function": b"\x80\x02ctorch\nfloat32\n)R.",
    "calling a storage class": b"\x80\x02ctorch\nFloatStorage\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.",
    "calling the tensor class": b"\x80\x02ctorch\nTensor\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.",
    "a bytearray of a size": b"\x80\x02c__builtin__\nbytearray\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.",
    "bytes of a size": b"\x80\x02c__builtin__\nbytes\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.",
    "another encoding": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00xX\x03\x00\x00\x00zip\x86R.",
    "state of a list": b"\x80\x02]}b.",
    "state of a class": b"\x80\x02ccollections\nOrderedDict\n}X\x04\x00\x00\x00keysK\x01sb.",
    "a persistent name": b"\x80\x02X\x02\x00\x00\x00osQ.",
    "an old persistent name": b"Pos.system\n.",
    "a buffer": b"\x80\x05\x97.",
}


@pytest.mark.parametrize("data", ATTACKS.values(), ids=ATTACKS)
def test_nothing_runs(data):
    """A pickle got something called that is not on the list."""
    with pytest.raises(pickle.UnpicklingError):
        safe_pickle.loads(data)
    refused(archive(data), "Weights only load failed")


def tensor_pickle(
    function=b"torch._utils\n_rebuild_tensor_v2",
    offset=b"K\0",
    size=b"K\4\x85",
    stride=b"K\1\x85",
    after=b"",
    kind=b"torch\nFloatStorage",
    count=b"K\4",
):
    storage = b"(X\x07\0\0\0storagec" + kind + b"\nX\1\0\0\0" + b"0X\3\0\0\0cpu" + count + b"tQ"
    return b"\x80\x02c" + function + b"\n(" + storage + offset + size + stride + b"\x89ccollections\nOrderedDict\n)R" + after + b"tR"


BIG = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"  # 2^63 - 1
WINDOWS = {
    "offset": dict(offset=b"K\1"),
    "size": dict(size=b"K\5\x85"),
    "stride": dict(stride=b"K\2\x85"),
    "huge offset": dict(offset=BIG),
    "huge size": dict(size=BIG + b"\x85"),
    "huge stride": dict(stride=BIG + b"\x85"),
    "product of sizes": dict(size=BIG + BIG + b"\x86", stride=b"K\0K\0\x86"),
    "wrapping sizes": dict(size=b"\x8a\x09\0\0\0\0\0\0\0\0\1K\4\x86", stride=b"K\0K\1\x86"),
    "negative size": dict(size=b"\x8a\1\xff\x85"),
    "negative stride": dict(stride=b"\x8a\1\xff\x85"),
    "negative offset": dict(offset=b"\x8a\1\xff"),
    "too few strides": dict(stride=b")"),
    "no numbers": dict(size=b"N\x85"),
    "wider dtype": dict(function=b"torch._utils\n_rebuild_tensor_v3", after=b"ctorch\nfloat64\n"),
    "more elements than bytes": dict(count=b"K\5"),
    "absurd storage": dict(count=BIG),
    "negative storage": dict(count=b"\x8a\1\xff"),
    "a class that is no storage": dict(kind=b"torch\nTensor"),
}


@pytest.mark.parametrize("change", WINDOWS.values(), ids=WINDOWS)
def test_no_tensor_sees_memory_outside_its_storage(change):
    """A tensor was made that reaches outside of its storage."""
    honest = archive(tensor_pickle() + b".", data_0=struct.pack("<4f", 1, 2, 3, 4))
    assert flambeau.load(io.BytesIO(honest)).tolist() == [1, 2, 3, 4]
    refused(archive(tensor_pickle(**change) + b".", data_0=bytes(16)), "storage|tensor|numbers|record")


STATES = {
    "offset": b"K\1K\4\x85K\1\x85",
    "size": b"K\0K\5\x85K\1\x85",
    "negative stride": b"K\0K\4\x85\x8a\1\xff\x85",
    "negative offset": b"\x8a\1\xffK\1\x85K\1\x85",
    "huge stride": b"K\0K\2\x85" + BIG + b"\x85",
}


@pytest.mark.parametrize("window", STATES.values(), ids=STATES)
def test_nor_by_its_state(window):
    """The state that a file gives to a tensor moved it outside of its storage."""
    storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0" + b"0X\3\0\0\0cpuK\4tQ"
    honest = archive(tensor_pickle() + b"(" + storage + b"K\1K\3\x85K\1\x85tb.", data_0=struct.pack("<4f", 1, 2, 3, 4))
    assert flambeau.load(io.BytesIO(honest)).tolist() == [2, 3, 4]
    refused(archive(tensor_pickle() + b"(" + storage + window + b"tb.", data_0=bytes(16)), "tensor|storage")
    refused(archive(tensor_pickle() + b"(NK\0))tb.", data_0=bytes(16)), "storage")
    refused(archive(tensor_pickle() + b"(N\x89N\x88NtbN.", data_0=bytes(16)), "begins with a tensor")


@pytest.mark.parametrize("name", [b"_array", b"_storage", b"_node", b"_grad", b"__class__", b"_hooks"])
def test_the_inside_of_a_tensor_cannot_be_set(name):
    """A file replaced what a tensor keeps for itself."""
    state = b"}X" + struct.pack("<I", len(name)) + name + b"K\1s"
    inner = tensor_pickle()[2:]
    parameter = b"\x80\x02ctorch._utils\n_rebuild_parameter_with_state\n(" + inner + b"\x88N" + state + b"tR."
    refused(archive(parameter, data_0=bytes(16)), "may not set")
    arguments = inner[inner.index(b"(") : -1]  # without the call
    typed = (
        b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n" + arguments + state + b"tR."
    )
    refused(archive(typed, data_0=bytes(16)), "may not set")


# -- pickles that want to grow -----------------------------------------------------------------------------------------


def same_hash(i: int) -> bytes:
    """One of many tuples with one hash: Python's hash of -1 is that of -2."""
    return b"(" + b"".join(b"J" + struct.pack("<i", -1 - (i >> bit & 1)) for bit in range(9)) + b"t"


BOMBS = {
    "copies of one text": (
        b"X\x00\x00\x01\x00" + b"x" * 65536 + b"q\0" + b"c_codecs\nencode\nh\0X\6\0\0\0latin1\x86R0" * 3000 + b"N",
        "over and over",
    ),
    "copies of one list": (
        b"](" + b"".join(b"M" + struct.pack("<H", i) for i in range(3000)) + b"eq\0" + b"c__builtin__\nset\nh\0\x85R0" * 2000 + b"N",
        "over and over",
    ),
    "copies of one state": (
        b"}(" + b"".join(b"X\4\0\0\0%04dN" % i for i in range(3000)) + b"uq\0" + b"ccollections\nOrderedDict\n)Rh\0b0" * 2000 + b"N",
        "over and over",
    ),
    "a key that holds itself twice, sixty times": (b"}K\1\x85q\x000" + b"h\0h\0\x86q\x000" * 60 + b"h\0Ns", "parts|over and over"),
    "a deep key": (b"}N" + b"\x85" * 30_000 + b"Ns", "parts|over and over"),
    "a large key, again and again": (b"}(" + b"K\1" * 900 + b"tq\x000" + b"h\0Ns" * 5_000, "over and over"),
    "keys of one hash": (b"}(" + b"".join(same_hash(i) + b"N" for i in range(500)) + b"u", "same hash"),
    "members of one hash": (b"\x8f(" + b"".join(same_hash(i) for i in range(500)) + b"\x90", "same hash"),
    "a frozen set of one hash": (b"(" + b"".join(same_hash(i) for i in range(500)) + b"\x91", "same hash"),
    "an ordered dictionary of one hash": (
        b"ccollections\nOrderedDict\n](" + b"".join(same_hash(i) + b"N\x86" for i in range(500)) + b"e\x85R",
        "same hash",
    ),
    "deep lists": (b"](" * 30_000 + b"e" * 30_000, "deep"),
    "deep tuples": (b")" + b"\x85" * 30_000, "deep"),
    "deep dictionaries": (b"}K\1" * 20_000 + b"N" + b"s" * 20_000, "deep"),
    "an endless integer": (b"\x8b\xff\xff\xff\x7f", "announced"),
    "an endless text": (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", "announced"),
    "an integer as a key": (b"}\x8b\x00\x10\x00\x00" + b"\x01" * 4096 + b"Ns", "64 bits"),
    "an unknown memo": (b"j\xff\xff\xff\xff", "Memo"),
    "an empty stack": (b"\x87", "too early"),
    "a mark that is not there": (b"t", "too early"),
    "text that is no text": (b"X\2\0\0\0\xff\xfe", "UTF-8"),
    "a name that is no text": (b"c\xff\xfe\nx\n", "UTF-8"),
    "a name without end": (b"c" + b"a" * 5000, "name without end"),
    "no end": (b"K\1K\1"[:-1], "ends too early|announced"),
    "a key without value": (b"}(K\1u", "without a value"),
}


@pytest.mark.parametrize("instructions, match", BOMBS.values(), ids=BOMBS)
def test_pickles_that_want_to_grow(instructions, match):
    """A small pickle took much time or memory, overflowed the stack, or gave a puzzling error."""
    refused(archive(b"\x80\x02" + instructions + (b"." if match != "ends too early|announced" else b"")), match)


MANY = b"J" + struct.pack("<i", 150_000_000)
WIDE = dict(size=MANY + b"\x85", stride=b"K\0\x85")  # one element, 150 million times


def inner(**change) -> bytes:
    """A tensor inside of another object."""
    return tensor_pickle(**change)[2:]


def sparse(layout: bytes, *parts: bytes, size: bytes) -> bytes:
    name = b"ctorch.serialization\n_get_layout\nX" + struct.pack("<I", len(layout)) + layout + b"\x85R"
    return b"ctorch._utils\n_rebuild_sparse_tensor\n" + name + b"(" + b"".join(parts) + size + b"t\x86R"


def quantized(scales: bytes) -> bytes:
    start = inner(function=b"torch._utils\n_rebuild_qtensor", kind=b"torch\nQInt8Storage", count=b"K\x10", **WIDE)
    at = start.index(b"\x89ccollections")
    scheme = b"(ctorch\nper_channel_affine\n" + scales + scales + b"K\0t"
    return start[:at] + scheme + start[at:]


INDICES = dict(kind=b"torch\nLongStorage", count=b"K\2")
SEEN = {
    "negated": inner(after=b"}X\3\0\0\0neg\x88s", **WIDE),
    "conjugated": inner(after=b"}X\4\0\0\0conj\x88s", kind=b"torch\nComplexFloatStorage", count=b"K\2", **WIDE),
    "negated by another dtype": inner(function=b"torch._utils\n_rebuild_tensor_v3", after=b"ctorch\nfloat32\n}X\3\0\0\0neg\x88s", **WIDE),
    "overlapping and negated": inner(
        after=b"}X\3\0\0\0neg\x88s", size=(b"K\2" * 27).join([b"(", b"t"]), stride=(b"K\0" * 27).join([b"(", b"t"])
    ),
}
EXPANDED = {
    "starts of rows": sparse(
        b"torch.sparse_csr",
        inner(**INDICES, **WIDE),
        inner(kind=b"torch\nLongStorage", count=b"K\2", size=b"K\0\x85"),
        inner(size=b"K\0\x85", count=b"K\4").replace(b"0X\3\0\0\0cpu", b"1X\3\0\0\0cpu"),
        size=b"J" + struct.pack("<i", 149_999_999) + b"K\1\x86",
    ),
    "coordinates": sparse(
        b"torch.sparse_coo",
        inner(**INDICES, size=b"K\1" + MANY + b"\x86", stride=b"K\0K\0\x86"),
        inner(**WIDE).replace(b"0X\3\0\0\0cpu", b"1X\3\0\0\0cpu"),
        size=b"K\1\x85",
    ),
    "scales of channels": quantized(inner(**WIDE).replace(b"0X\3\0\0\0cpu", b"1X\3\0\0\0cpu")),
    "packed weights": b"ctorch\nScriptObject\n)\x81"
    + inner(size=MANY + b"K\1\x86", stride=b"K\0K\0\x86")
    + b"N\x86X\x38\0\0\0__torch__.torch.classes.quantized.LinearPackedParamsBase\x86b",
}


def whole_file(content: bytes, legacy: bool) -> bytes:
    data = b"\x80\x02" + content + b"."
    if not legacy:
        return archive(data, data_0=bytes(16), data_1=bytes(16))
    size = 1 if b"QInt8" in data else 8 if b"\nLong" in data or b"Complex" in data else 4
    stored = [struct.pack("<q", 16 // n) + bytes(16) for n in (size, 4)]
    return old_head() + data + pickle.dumps(["0", "1"] if b"1X\3\0\0\0cpu" in data else ["0"], 2) + b"".join(stored)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "old"])
@pytest.mark.parametrize("content", EXPANDED.values(), ids=EXPANDED)
def test_one_element_that_claims_to_be_millions(content, legacy):
    """A few hundred bytes took hundreds of megabytes: loading computed on every element of an expanded tensor."""
    refused(whole_file(content, legacy), "far more elements|looked at")


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "old"])
@pytest.mark.parametrize("content", SEEN.values(), ids=SEEN)
def test_a_conjugate_of_millions_costs_nothing(content, legacy):
    """A conjugated or negated tensor is a view, however many elements one number claims to be."""
    assert fuzz_files.attempt(whole_file(content, legacy)) == "loaded"


@pytest.mark.parametrize("dtype, kind, size", [(b"float8_e4m3fn", b"Byte", 1), (b"int64", b"Long", 8), (b"complex64", b"ComplexFloat", 8)])
def test_packed_weights_that_are_no_numbers_of_a_layer(dtype, kind, size):
    """Packed weights of another dtype were refused for the sake of an operation nobody had heard of, or became half precision."""
    square = dict(size=b"K\1K\1\x86", stride=b"K\1K\1\x86", count=b"K" + bytes([16 // size]), kind=b"torch\n" + kind + b"Storage")
    weight = inner(function=b"torch._utils\n_rebuild_tensor_v3", after=b"ctorch\n" + dtype + b"\n", **square)
    name = b"X\x38\0\0\0__torch__.torch.classes.quantized.LinearPackedParamsBase"
    refused(
        archive(b"\x80\x02ctorch\nScriptObject\n)\x81" + weight + b"N\x86" + name + b"\x86b.", data_0=bytes(16)), "weight of a linear layer"
    )


def test_one_tensor_looked_at_over_and_over():
    """A file had the same indices checked again and again: time grew with the square of its size."""
    indices = inner(kind=b"torch\nLongStorage", count=b"M\x10\x27", size=b"K\1M\x10\x27\x86", stride=b"K\0K\1\x86") + b"q\0"
    values = inner(kind=b"torch\nLongStorage", count=b"M\x10\x27", size=b"M\x10\x27\x85") + b"q\1"
    again = sparse(b"torch.sparse_coo", b"h\0h\1", size=b"K\1\x85") + b"0"
    refused(archive(b"\x80\x02" + indices + values + again * 2000 + b".", data_0=bytes(80_000)), "looked at")


def test_a_list_that_holds_itself():
    """Python has such lists, and so has PyTorch's loader: reading one must end."""
    found = flambeau.load(io.BytesIO(archive(b"\x80\x02]q\0h\0a.")))
    assert found[0] is found


# -- archives that lie -------------------------------------------------------------------------------------------------


def honest() -> bytes:
    buffer = io.BytesIO()
    flambeau.save({"a": flambeau.arange(4.0), "b": flambeau.ones(3)}, buffer)
    return buffer.getvalue()


def entry(data: bytes, name: bytes) -> int:
    """Where the directory's entry of a record begins."""
    at = data.rfind(b"PK\1\2", 0, data.rfind(name))
    return at


def changed(data: bytes, at: int, form: str, *values) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, at, *values)
    return bytes(changed)


def test_compressed_records_are_refused():
    """A zip bomb unpacked: 1 GB of zeros from 1 MB of file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("archive/data.pkl", tensor_pickle(count=b"J\0\0\0\x10") + b".")
        bomb.writestr("archive/data/0", bytes(1 << 24))
    refused(buffer.getvalue(), "compressed")


def test_sizes_and_places_that_lie():
    """A record reached outside of the file, over another one, or was taken from the wrong place."""
    data = honest()
    first, second = entry(data, b"archive/data/0"), entry(data, b"archive/data/1")
    refused(changed(data, first + 20, "<II", 1 << 30, 1 << 30), "beyond")
    refused(changed(data, first + 24, "<I", 1 << 30), "compressed")
    refused(changed(data, first + 20, "<II", 8, 8), "16|damaged")
    refused(changed(data, first + 20, "<II", 100, 100), "overlaps")
    refused(changed(data, first + 42, "<I", 1 << 30), "beyond")
    refused(changed(data, first + 42, "<I", 3), "header|overlaps")
    (elsewhere,) = struct.unpack_from("<I", data, second + 42)
    refused(changed(data, first + 42, "<I", elsewhere), "header|overlaps")
    refused(changed(data, first + 8, "<H", 1), "encrypted")
    refused(changed(data, first + 46, "<B", 0xFF), "UTF-8")
    refused(changed(data, first + 28, "<H", 0xFFFF), "directory is damaged")
    refused(changed(data, first + 20, "<II", 0xFFFFFFFF, 0xFFFFFFFF), "missing")


def test_directories_that_lie():
    """The directory of an archive claimed what cannot be, and was believed."""
    data = honest()
    last, wide = data.rfind(b"PK\6\7"), data.rfind(b"PK\6\6")
    refused(changed(data, wide + 24, "<QQ", 1 << 40, 1 << 40), "more than any")
    refused(changed(data, wide + 40, "<Q", 1 << 62), "should lie at")
    refused(changed(data, wide + 48, "<Q", 1 << 62), "should lie at")
    refused(changed(data, wide + 24, "<QQ", 1 << 19, 1 << 19), "too short")
    refused(changed(data, wide + 16, "<I", 1), "several files")
    refused(changed(data, last + 8, "<Q", (1 << 64) - 1), "damaged")
    refused(data + b"more", "no zip directory")
    refused(data[:-22], "no zip directory")


def test_two_records_of_one_name():
    """Of two records of one name one was chosen: programs disagree about which."""
    buffer = io.BytesIO()
    writer = ZipWriter(buffer.write, "archive")
    for value in (1, 2):
        writer.record("data.pkl", pickle.dumps(value, 2))
    writer.close()
    refused(buffer.getvalue(), "two records")


def old_head() -> bytes:
    """How files in the older format begin."""
    return pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)


def test_old_files_that_lie():
    """A file in the older format claimed more elements than it has, and memory was taken for them."""
    head = old_head()
    keys = pickle.dumps(["0"], 2)
    good = head + tensor_pickle() + b"." + keys + struct.pack("<q", 4) + struct.pack("<4f", 1, 2, 3, 4)
    assert flambeau.load(io.BytesIO(good)).tolist() == [1, 2, 3, 4]
    refused(good[:-1], "unexpected EOF")
    refused(head + tensor_pickle(count=BIG) + b"." + keys, "larger than the file")
    refused(head + tensor_pickle() + b"." + keys + struct.pack("<q", 1 << 40) + bytes(16), "wrong byte size")
    refused(head + tensor_pickle() + b"." + pickle.dumps(["1"], 2) + bytes(24), "nothing uses")
    refused(head + tensor_pickle() + b"." + pickle.dumps("0", 2) + bytes(24), "list of storages")
    refused(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(7, 2), "protocol version")
    refused(b"\x80\x02K\1." + bytes(600), "magic number")
    refused(bytes(257) + b"ustar" + bytes(300), "tar archive")


def test_the_checksum_of_a_lie_does_not_matter():
    """A hostile file has correct checksums: the tests above must not pass because of wrong ones."""
    data = archive(tensor_pickle(offset=b"K\1") + b".", data_0=bytes(16))
    at = entry(data, b"archive/data.pkl")
    (crc,) = struct.unpack_from("<I", data, at + 16)
    assert crc == zlib.crc32(tensor_pickle(offset=b"K\1") + b".")
