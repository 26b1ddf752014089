"""Files made to do harm, by a grammar: pickles of real instructions in unreal order, archives whose numbers lie.

    python tests/serialization/fuzz_files.py --count 1000000 [--jobs 2] [--minutes 5] [--seed 1]

The suite draws a few hundred (test_hostile_files.py); the command tries as many, or goes on for as long, as it is told. Whatever is in a file, `load` must
return plain data or raise one of `REFUSALS`; quickly, in memory in proportion to the file, and without importing, opening or running
anything.
"""

from __future__ import annotations

import argparse
import io
import pickle
import random
import re
import struct
import sys
import time
import tracemalloc
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor

import flambeau
from flambeau.kernels.native import native
from flambeau.serialization.zip_writer import ZipWriter

REFUSALS = (pickle.UnpicklingError, RuntimeError, EOFError)
CHUNK = 1000  # files a process tries before it says what came of them
FORBIDDEN = (
    "compile",
    "ctypes.dlopen",
    "exec",
    "import",
    "open",
    "os.system",
    "os.exec",
    "os.fork",
    "os.remove",
    "socket.connect",
    "subprocess.Popen",
)

# -- pickles ---------------------------------------------------------------------------------------------------------

GLOBALS = [
    b"collections OrderedDict", b"collections Counter", b"__builtin__ set", b"__builtin__ complex", b"__builtin__ bytearray", b"_codecs encode",
    b"torch._utils _rebuild_tensor_v2", b"torch._utils _rebuild_tensor_v3", b"torch._utils _rebuild_tensor", b"torch._utils _rebuild_parameter",
    b"torch._utils _rebuild_parameter_with_state", b"torch._tensor _rebuild_from_type_v2", b"torch._utils _rebuild_meta_tensor_no_storage",
    b"torch FloatStorage", b"torch ByteStorage", b"torch.storage UntypedStorage", b"torch.storage TypedStorage", b"torch Tensor", b"torch Size",
    b"torch device", b"torch float32", b"torch uint16", b"torch.nn.parameter Parameter", b"torch.serialization _get_layout", b"torch FloatTensor",
    b"os system", b"__builtin__ eval", b"__builtin__ getattr", b"__builtin__ exec", b"subprocess Popen", b"numpy.core.multiarray _reconstruct",
    b"torch load", b"torch.hub load", b"flambeau.tensor.making.pickling rebuild", b"importlib import_module", b"torch.nn.modules.linear Linear", b"copy_reg _reconstructor",
]  # fmt: skip
SIZES = [0, 1, 2, 3, 4, 7, 255, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64, -1, -(2**31), 2**200]


def number(chance: random.Random) -> bytes:
    value = chance.choice(SIZES) if chance.random() < 0.5 else chance.randrange(8)
    if 0 <= value < 256 and chance.random() < 0.8:
        return b"K" + bytes([value])
    size = (value.bit_length() + 8) // 8
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def text(chance: random.Random) -> bytes:
    value = chance.choice(
        [b"cpu", b"xla:0", b"meta", b"0", b"1", b"2", b"latin1", b"conj", b"_array", b"__class__", b"x" * 50, b"\xff\xfe", "é".encode()]
    )
    length = len(value) if chance.random() < 0.95 else chance.choice([2**32 - 1, 1000, 0])
    return b"X" + struct.pack("<I", length) + value


def many(chance: random.Random, depth: int, most: int = 4) -> bytes:
    return b"".join(value(chance, depth + 1) for _ in range(chance.randrange(most)))


KINDS = {
    b"Float": 4,
    b"Byte": 16,
    b"Long": 2,
    b"Double": 2,
    b"ComplexFloat": 2,
    b"ComplexDouble": 1,
    b"QInt8": 16,
    b"QUInt8": 16,
    b"QInt32": 4,
}


def storage(chance: random.Random, kind: bytes | None = None) -> bytes:
    kind = kind or chance.choice(list(KINDS))
    named = b"torch " + kind + b"Storage"
    if chance.random() < 0.2:
        named = chance.choice([b"torch.storage UntypedStorage", b"torch Tensor", b"os system"])
    count = b"K" + bytes([KINDS[kind]]) if chance.random() < 0.8 else number(chance)
    key = b"X\x01\x00\x00\x00" + chance.choice([b"0", b"0", b"1", b"9"])
    place = b"X\x03\x00\x00\x00cpu" if chance.random() < 0.9 else text(chance)
    return b"(X\x07\x00\x00\x00storagec" + named.replace(b" ", b"\n") + b"\n" + key + place + count + b"tQ"


def tuple_of(parts: list[bytes]) -> bytes:
    return b"(" + b"".join(parts) + b"t"


MANY = [1, 4, 1000, 1 << 20, 150_000_000]


def geometry(chance: random.Random, dims: int | None = None) -> bytes:
    """Size and stride: numbers without sense, a window that fits, or few elements that claim to be many."""
    dims = chance.randrange(4) if dims is None else dims
    way = chance.randrange(3)
    if way == 0:
        return tuple_of([number(chance) for _ in range(dims)]) + tuple_of([number(chance) for _ in range(dims)])
    if way == 1:
        return tuple_of([b"K" + bytes([chance.randrange(3)])] * dims) + tuple_of([b"K\1"] * dims)
    sizes = [b"J" + struct.pack("<i", chance.choice(MANY)) for _ in range(dims)]
    return tuple_of(sizes) + tuple_of([b"K\0"] * dims)


def metadata(chance: random.Random) -> bytes:
    bits = [b"X\x04\x00\x00\x00conj\x88", b"X\x03\x00\x00\x00neg\x88", b"X\x03\x00\x00\x00neg\x89"]
    return b"}(" + b"".join(chance.sample(bits, chance.randrange(3))) + b"u"


def tensor(chance: random.Random, kind: bytes | None = None, dims: int | None = None) -> bytes:
    flag = chance.choice([b"\x88", b"\x89", b"\x89", b"N"])
    offset = b"K\x00" if chance.random() < 0.7 else number(chance)
    body = storage(chance, kind) + offset + geometry(chance, dims) + flag + b"ccollections\nOrderedDict\n)R"
    more = metadata(chance) if chance.random() < 0.3 else b""
    if chance.random() < 0.2:
        dtype = chance.choice([b"uint16", b"float32", b"complex64", b"bool", b"float8_e4m3fn"])
        return b"ctorch._utils\n_rebuild_tensor_v3\n(" + body + b"ctorch\n" + dtype + b"\n" + more + b"tR"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + body + more + b"tR"


def sparse(chance: random.Random) -> bytes:
    """Coordinates or rows, and values; sometimes made of remembered parts, again and again."""
    layout = chance.choice([b"coo", b"coo", b"csr", b"csc", b"bsr"])
    head = b"ctorch._utils\n_rebuild_sparse_tensor\n" + layout_named(b"torch.sparse_" + layout)
    parts = [tensor(chance, b"Long", 2)] if layout == b"coo" else [tensor(chance, b"Long", 1), tensor(chance, b"Long", 1)]
    parts.append(tensor(chance, dims=1))
    size = tuple_of([b"J" + struct.pack("<i", chance.choice(MANY) - chance.randrange(2)) for _ in range(chance.choice([1, 2, 2]))])
    made = b"".join(part + b"q" + bytes([i]) for i, part in enumerate(parts))
    again = head + b"(" + b"".join(b"h" + bytes([i]) for i in range(len(parts))) + size + b"t\x86R"
    return b"](" + made + again * chance.choice([1, 1, 1, 300]) + b"e"


def layout_named(name: bytes) -> bytes:
    return b"ctorch.serialization\n_get_layout\nX" + struct.pack("<I", len(name)) + name + b"\x85R"


def quantized(chance: random.Random) -> bytes:
    by_channel = tuple_of([b"ctorch\nper_channel_affine\n", tensor(chance, b"Double", 1), tensor(chance, b"Long", 1), b"K\0"])
    by_tensor = tuple_of([b"ctorch\nper_tensor_affine\n", b"G\x3f\xf0" + bytes(6), b"K\3"])
    window = storage(chance, chance.choice([b"QInt8", b"QUInt8", b"QInt32"])) + b"K\0" + geometry(chance)
    return b"ctorch._utils\n_rebuild_qtensor\n(" + window + chance.choice([by_channel, by_tensor]) + b"\x89ccollections\nOrderedDict\n)RtR"


def packed(chance: random.Random) -> bytes:
    name = chance.choice([b"__torch__.torch.classes.quantized.LinearPackedParamsBase", b"__torch__.torch.classes.rnn.CellParamsBase"])
    weight = chance.choice([quantized(chance), tensor(chance, b"Float", 2)])
    content = chance.choice([tuple_of([weight, b"N"]), tuple_of([text(chance), b"]", b"]", b"]", b"](" + many(chance, 3) + b"e"])])
    return b"ctorch\nScriptObject\n)\x81(" + content + b"X" + struct.pack("<I", len(name)) + name + b"tb"


def same_hash(chance: random.Random) -> bytes:
    """A dictionary or a set of tuples with one hash."""
    keys = [tuple_of([b"J" + struct.pack("<i", -1 - (i >> bit & 1)) for bit in range(12)]) for i in range(chance.choice([3, 3, 3, 4096]))]
    return chance.choice([b"}(" + b"".join(key + b"N" for key in keys) + b"u", b"\x8f(" + b"".join(keys) + b"\x90"])


def name(chance: random.Random) -> bytes:
    return b"c" + chance.choice(GLOBALS).replace(b" ", b"\n") + b"\n"


def remembered(chance: random.Random, depth: int) -> bytes:
    return value(chance, depth + 1) + b"q" + bytes([chance.randrange(4)])


VALUES = [
    (4, lambda chance, depth: number(chance)),
    (4, lambda chance, depth: text(chance)),
    (4, lambda chance, depth: tensor(chance)),
    (2, lambda chance, depth: sparse(chance)),
    (1, lambda chance, depth: quantized(chance)),
    (1, lambda chance, depth: packed(chance)),
    (1, lambda chance, depth: storage(chance)),
    (2, lambda chance, depth: name(chance)),
    (2, lambda chance, depth: chance.choice([b"N", b"\x88", b"\x89", b")", b"]", b"}", b"\x8f"])),
    (3, remembered),
    (3, lambda chance, depth: b"h" + bytes([chance.randrange(4)])),
    (3, lambda chance, depth: b"(" + many(chance, depth) + b"t"),
    (3, lambda chance, depth: b"](" + many(chance, depth) + b"e"),
    (3, lambda chance, depth: b"}(" + many(chance, depth, 6) + b"u"),
    (1, lambda chance, depth: b"\x8f(" + many(chance, depth) + b"\x90"),
    (1, lambda chance, depth: b"(" + many(chance, depth) + b"\x91"),
    (3, lambda chance, depth: name(chance) + b"(" + many(chance, depth, 6) + b"tR"),
    (1, lambda chance, depth: name(chance) + b"(" + many(chance, depth, 3) + b"t\x81"),
    (2, lambda chance, depth: value(chance, depth + 1) + value(chance, depth + 1) + b"b"),
    (1, lambda chance, depth: value(chance, depth + 1) + b"Q"),
    (1, lambda chance, depth: bytes([chance.randrange(256)])),
    (1, lambda chance, depth: b"\x85" * chance.choice([3, 2000])),
    (1, lambda chance, depth: b"](" * chance.choice([3, 2000])),
    (1, lambda chance, depth: b"h\x00\x86q\x00" * 60),
    (0.2, lambda chance, depth: same_hash(chance)),
    (1, lambda chance, depth: b"c_codecs\nencode\nh\x00h\x01\x86R" * 20),
]


def value(chance: random.Random, depth: int = 0) -> bytes:
    """A random object, as instructions."""
    choices = VALUES if depth < 5 else VALUES[:2]
    (make,) = chance.choices([make for _, make in choices], [weight for weight, _ in choices])
    return make(chance, depth)


def pickled(chance: random.Random) -> bytes:
    data = b"\x80" + bytes([chance.choice([2, 2, 2, 4, 9])]) + value(chance) + b"."
    if chance.random() < 0.2:
        mutable = bytearray(data)
        for _ in range(chance.randrange(1, 4)):
            mutable[chance.randrange(len(mutable))] = chance.randrange(256)
        data = bytes(mutable)
    return data


# -- archives --------------------------------------------------------------------------------------------------------


def archive(chance: random.Random, data: bytes) -> bytes:
    buffer = io.BytesIO()
    writer = ZipWriter(buffer.write, "archive")
    records = [("data.pkl", data), ("byteorder", b"little"), ("data/0", bytes(16)), ("data/1", bytes(16)), ("version", b"3\n")]
    if chance.random() < 0.1:
        records.append(chance.choice(records))
    for name, content in records:
        writer.record(name, content)
    writer.close()
    made = bytearray(buffer.getvalue())
    if chance.random() < 0.3:
        lie(chance, made)
    return bytes(made)


def lie(chance: random.Random, made: bytearray) -> None:
    """Change numbers of the headers, where they are."""
    for _ in range(chance.randrange(1, 3)):
        mark = chance.choice([b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7"])
        found = [match.start() for match in re.finditer(mark, made)]
        if not found:
            continue
        at = chance.choice(found) + chance.randrange(4, 56)
        lies = chance.choice(
            [struct.pack("<I", chance.choice([0, 1, 0xFFFFFFFF, 0x7FFFFFFF, 64])), struct.pack("<Q", 2**63), b"\xff\xfe", bytes(8)]
        )
        made[at : at + len(lies)] = lies
    if chance.random() < 0.2:
        del made[chance.randrange(len(made)) :]


def hostile(chance: random.Random) -> bytes:
    """A file."""
    data = pickled(chance)
    if chance.random() < 0.15:  # the older format: pickles in a row, then storages
        head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
        keys = pickle.dumps(chance.choice([["0"], ["0"], ["0", "1"], [1], "0"]), 2)
        return head + data + keys + b"".join(struct.pack("<q", chance.choice([1, 2, 4, 16, 2**62])) + bytes(16) for _ in range(2))
    return archive(chance, data)


# -- loading them ----------------------------------------------------------------------------------------------------

watching: list[str] | None = None


def _watch(event: str, arguments: tuple) -> None:
    if watching is not None and event in FORBIDDEN:
        watching.append(f"{event}{arguments!r:.200}")


def attempt(data: bytes) -> str:
    """Load a hostile file; what came of it. AssertionError if it did harm."""
    global watching
    done: list[str] = []
    start = time.process_time()
    tracemalloc.start()
    if native.lib is not None:
        before = native.lib.pool_stats(True)["live"]
    watching = done
    try:
        flambeau.load(io.BytesIO(data))
        outcome = "loaded"
    except REFUSALS as problem:
        outcome = type(problem).__name__
        assert len(str(problem)) < 20_000
    finally:
        watching = None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert not done, f"the file made Python do {done}"
    assert peak < 5_000_000 + 200 * len(data), f"{peak} bytes of memory for a file of {len(data)}"
    if native.lib is not None:
        assert native.lib.pool_stats()["peak"] - before < 8_000_000 + 20 * len(data), "tensor memory"
    assert time.process_time() - start < 5, "it took too long"
    return outcome


def warm_up() -> None:
    """Import all that loading imports, so that an import afterwards is the file's doing; then watch."""
    ones = flambeau.ones(2)
    channels = flambeau.quantize_per_channel(flambeau.ones(2, 2), ones, flambeau.zeros(2, dtype=flambeau.int64), 0, flambeau.qint8)
    lstm = flambeau.ao.quantization.quantize_dynamic(flambeau.nn.Sequential(flambeau.nn.LSTM(2, 2), flambeau.nn.Linear(2, 2)))
    everything = {"p": flambeau.nn.Parameter(ones), "q": [flambeau.quantize_per_tensor(ones, 0.5, 3, flambeau.quint8), channels]}
    everything |= {
        "s": [flambeau.eye(2).to_sparse(), flambeau.eye(2).to_sparse_csr()],
        "c": (ones + 0j).conj(),
        "packed": lstm.state_dict(),
    }
    for legacy in (False, True):
        buffer = io.BytesIO()
        flambeau.save(everything, buffer, _use_new_zipfile_serialization=not legacy)
        buffer.seek(0)
        flambeau.load(buffer)
    for place in ("cpu", "meta"):
        ones.to(place).to(flambeau.float64, copy=True).int().to(flambeau.complex64).conj().to(flambeau.int64)
        ones.to(place).to(flambeau.float8_e5m2).to(flambeau.int64)
    -flambeau.ones(2, device="meta")
    sys.addaudithook(_watch)


def run(first: int, count: int) -> Counter[str]:
    """What came of so many files; the seed is printed if one of them did harm."""
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + count):
        data = hostile(random.Random(seed))
        try:
            outcomes[attempt(data)] += 1
        except BaseException:
            print(f"seed {seed}: {data!r:.2000}")
            raise
    return outcomes


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=1_000_000)
    arguments.add_argument("--minutes", type=float, default=1e9)
    arguments.add_argument("--jobs", type=int, default=1)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    given = arguments.parse_args()
    start, outcomes, under_way = time.time(), Counter[str](), list[tuple[int, Future]]()
    seed, end = given.seed, given.seed + given.count
    with ProcessPoolExecutor(given.jobs, initializer=warm_up) as pool:
        while under_way or seed < end:
            while len(under_way) < 2 * given.jobs and seed < end:
                many = min(CHUNK, end - seed)
                under_way.append((seed, pool.submit(run, seed, many)))
                seed += many
            first, found = under_way.pop(0)
            try:
                outcomes += found.result()
            except BaseException:  # an AssertionError, or BrokenProcessPool: a process died, and said no seed
                print(f"among the seeds {first} to {seed - 1}, after {outcomes}")
                raise
            end = end if time.time() - start < 60 * given.minutes else seed
    print(f"seeds {given.seed} to {seed - 1} in {(time.time() - start) / 60:.0f} minutes: {dict(outcomes)}")


if __name__ == "__main__":
    main()
