"""Files made to do harm, by a grammar: pickles of real instructions in unreal order, archives whose numbers lie.

    python tests/serialization/fuzz_files.py --minutes 5 [--seed 1]

The suite draws a few hundred (test_hostile_files.py); the command goes on for as long as it is told. Whatever is in a file, `load` must
return plain data or raise one of `REFUSALS`; quickly, in memory in proportion to the file, and without importing, opening or running
anything.
"""

from __future__ import annotations

import argparse
import io
import pickle
import random
import struct
import sys
import time
import tracemalloc

import flambeau
from flambeau.kernels import native
from flambeau.serialization.zip_writer import ZipWriter

REFUSALS = (pickle.UnpicklingError, RuntimeError, EOFError)
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
    b"torch load", b"torch.hub load", b"flambeau.pickling rebuild", b"importlib import_module", b"torch.nn.modules.linear Linear", b"copy_reg _reconstructor",
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


def storage(chance: random.Random) -> bytes:
    count = b"K" + bytes([chance.choice([4, 4, 4, 3, 16])]) if chance.random() < 0.7 else number(chance)
    kind = chance.choice([b"torch FloatStorage", b"torch FloatStorage", b"torch.storage UntypedStorage", b"torch Tensor", b"os system"])
    key = b"X\x01\x00\x00\x00" + chance.choice([b"0", b"0", b"1", b"9"])
    place = b"X\x03\x00\x00\x00cpu" if chance.random() < 0.8 else text(chance)
    return b"(X\x07\x00\x00\x00storagec" + kind.replace(b" ", b"\n") + b"\n" + key + place + count + b"tQ"


def geometry(chance: random.Random) -> bytes:
    dims = chance.randrange(4)
    return b"(" + b"".join(number(chance) for _ in range(dims)) + b"t"


def tensor(chance: random.Random) -> bytes:
    flag = chance.choice([b"\x88", b"\x89", b"\x89", b"N"])
    offset = b"K\x00" if chance.random() < 0.7 else number(chance)
    body = storage(chance) + offset + geometry(chance) + geometry(chance) + flag + b"ccollections\nOrderedDict\n)R"
    if chance.random() < 0.3:
        return b"ctorch._utils\n_rebuild_tensor_v3\n(" + body + b"ctorch\nuint16\ntR"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + body + (b"}X\x04\x00\x00\x00conj\x88s" if chance.random() < 0.1 else b"") + b"tR"


def name(chance: random.Random) -> bytes:
    return b"c" + chance.choice(GLOBALS).replace(b" ", b"\n") + b"\n"


def remembered(chance: random.Random, depth: int) -> bytes:
    return value(chance, depth + 1) + b"q" + bytes([chance.randrange(4)])


VALUES = [
    (4, lambda chance, depth: number(chance)),
    (4, lambda chance, depth: text(chance)),
    (4, lambda chance, depth: tensor(chance)),
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
    records = [("data.pkl", data), ("byteorder", b"little"), ("data/0", bytes(16)), ("data/1", bytes(12)), ("version", b"3\n")]
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
        found = [i for i in range(len(made)) if made.startswith(mark, i)]
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
        return (
            head
            + data
            + pickle.dumps(chance.choice([["0"], ["0", "1"], [1], "0"]), 2)
            + struct.pack("<q", chance.choice([4, 2**62]))
            + bytes(16)
        )
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
        assert native.lib.pool_stats()["peak"] - before < 5_000_000, "tensor memory"
    assert time.process_time() - start < 5, "it took too long"
    return outcome


def warm_up() -> None:
    """Import all that loading imports, so that an import afterwards is the file's doing; then watch."""
    buffer = io.BytesIO()
    flambeau.save({"a": flambeau.ones(2) + 0j, "p": flambeau.nn.Parameter(flambeau.ones(1))}, buffer)
    for legacy in (False, True):
        buffer = io.BytesIO()
        flambeau.save({"a": (flambeau.ones(2) + 0j).conj()}, buffer, _use_new_zipfile_serialization=not legacy)
        buffer.seek(0)
        flambeau.load(buffer)
    -flambeau.ones(2, device="meta")
    sys.addaudithook(_watch)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=5)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    given = arguments.parse_args()
    warm_up()
    seed, end, outcomes = given.seed, time.time() + 60 * given.minutes, dict[str, int]()
    while time.time() < end:
        data = hostile(random.Random(seed))
        try:
            outcome = attempt(data)
        except Exception:
            print(f"seed {seed}: {data!r}")
            raise
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        seed += 1
    print(f"seeds {given.seed} to {seed - 1}: {outcomes}")


if __name__ == "__main__":
    main()
