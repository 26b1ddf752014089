"""Hostile calls of the compiled kernels: whatever they are given, they answer, say NotImplemented or raise, and never crash.

    python tests/kernels/fuzz_launcher.py --count 1000000 [--seed 1]

Arrays of random shapes, strides (negative, zero, overlapping, unaligned), dtypes and memory, numbers, and things that are neither, in random
number and order. The suite tries a few thousand. Calls run in child processes: one that dies is reported with the seed it died of.
(Kernels with a dot in their name take addresses that Python has checked; they are not for strangers.)
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import resource
import struct
import time
from functools import lru_cache

import ml_dtypes
import numpy as np

from flambeau.kernels.native import native

DTYPES = [np.dtype(d) for d in "? b B h H i I l L q e f d F D".split()] + [
    np.dtype(ml_dtypes.bfloat16), np.dtype(ml_dtypes.float8_e5m2), np.dtype(">f4"), np.dtype("O"), np.dtype("S3"), np.dtype("M8[s]"),
]  # fmt: skip
REFUSALS = (TypeError, ValueError, MemoryError, OverflowError, RuntimeError, KeyError, BufferError, AttributeError, SystemError)
CHUNK = 20_000
LIMIT = 6 << 30  # bytes


def array(chance: random.Random, usual: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Any view of a little memory; most often of the usual dtype and shape, so that some calls are right."""
    dtype = usual if chance.random() < 0.8 else chance.choice(DTYPES)
    if chance.random() < 0.2:
        shape = random_shape(chance)
    made = np.zeros(shape, dtype) if chance.random() < 0.9 else np.ones(2, dtype)
    for _ in range(chance.choice([0, 0, 0, 1, 2, 3])):
        made = chance.choice(VIEWS)(made, chance)
    if chance.random() < 0.05:
        made.flags.writeable = False
    return made


def random_shape(chance: random.Random) -> tuple[int, ...]:
    shape = tuple(chance.choice([0, 1, 1, 2, 3, 5, 17, 300]) for _ in range(chance.choice([0, 1, 1, 2, 2, 3, 6])))
    while np.prod(shape, dtype=float) > 1e5:
        shape = shape[1:]
    return shape


def unaligned(a: np.ndarray, chance: random.Random) -> np.ndarray:
    if a.dtype.hasobject:
        return a
    raw = np.zeros(a.nbytes + 1, np.uint8)[1:]
    return raw.view(a.dtype).reshape(a.shape) if a.nbytes else a


VIEWS = [
    lambda a, chance: a.T,
    lambda a, chance: a[::-1] if a.ndim else a,
    lambda a, chance: a[::2] if a.ndim else a,
    lambda a, chance: a[..., None],
    lambda a, chance: np.broadcast_to(a, (chance.randrange(4), *a.shape)) if a.ndim < 6 and a.size < 1e4 else a,
    lambda a, chance: native.strided_view(a, (2, 2), (1, 1), 0) if a.size > 3 and a.flags.c_contiguous and not a.dtype.hasobject else a,
    unaligned,
]
THINGS = [
    None,
    True,
    0,
    -1,
    1 << 70,
    -(1 << 63),
    0.5,
    float("nan"),
    1e308,
    1j,
    "text",
    b"bytes",
    (),
    [1, 2],
    np.float32(1),
    object(),
    {},
    type,
]


def things(chance: random.Random, count: int) -> list:
    """Arguments: arrays, the same one again, numbers, and what is neither."""
    usual, shape = chance.choice(DTYPES[:16]), random_shape(chance)
    found: list = []
    for _ in range(count):
        way = chance.random()
        again = found and way < 0.2
        found.append(chance.choice(found) if again else array(chance, usual, shape) if way < 0.9 else chance.choice(THINGS))
    return found


@lru_cache(None)
def arity(name: str) -> int:
    """How many arguments a kernel takes."""
    for count in range(8):
        try:
            native.lib.Kernel(name)(*[np.ones(2, np.float32)] * count)
            return count
        except TypeError:
            pass
    return 2


def call(seed: int) -> str:
    """Make the call of a seed; what came of it."""
    chance = random.Random(seed)
    count = chance.choice([0, 1, 1, 2, 2, 2, 3, 3, 4, 5])
    try:
        if chance.random() < 0.75:
            name, into = chance.choice(KERNELS), chance.random() < 0.4
            kernel = native.lib.Kernel(name)
            result = (kernel.into if into else kernel)(*things(chance, arity(name) + into if chance.random() < 0.8 else count))
        else:
            name = chance.choice(["fold_all", "fold", "gemm", "matmul", "linear", "empty", "crc32", "address", "Kernel", "maker"])
            first = [chance.choice(["sum", "mean", "max", "prod", "any", "nothing"])] if name.startswith("fold") else []
            result = getattr(native.lib, name)(*first, *things(chance, count))
    except REFUSALS as problem:
        return type(problem).__name__
    return "NotImplemented" if result is NotImplemented else "answered"


KERNELS = sorted(native.kernels()) if native.lib is not None else []


def run(first: int, count: int) -> dict[str, int]:
    """Outcomes of so many calls, each chunk in a process of its own. AssertionError with the seed if one of them dies."""
    outcomes: dict[str, int] = {}
    for start in range(first, first + count, CHUNK):
        many = min(CHUNK, first + count - start)
        shared = mmap.mmap(-1, 1 << 12)
        child = os.fork()
        if not child:
            # Two small arrays may broadcast to more than the machine has. AddressSanitizer has taken terabytes of addresses, and a limit of its own.
            if "ASAN_OPTIONS" not in os.environ:
                resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
            found: dict[str, int] = {}
            for seed in range(start, start + many):
                struct.pack_into("<q", shared, 0, seed)
                outcome = call(seed)
                found[outcome] = found.get(outcome, 0) + 1
            text = repr(found).encode()
            struct.pack_into("<q", shared, 8, len(text))
            shared[16 : 16 + len(text)] = text
            os._exit(0)
        _, status = os.waitpid(child, 0)
        seed, length = struct.unpack_from("<qq", shared)
        assert not status, f"seed {seed} ended the process (status {status}): see call({seed})"
        for outcome, n in eval(shared[16 : 16 + length].decode()).items():
            outcomes[outcome] = outcomes.get(outcome, 0) + n
    return outcomes


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=1_000_000)
    arguments.add_argument("--seed", type=int, default=int(time.time()))
    given = arguments.parse_args()
    print(f"seeds {given.seed} to {given.seed + given.count - 1}: {run(given.seed, given.count)}")


if __name__ == "__main__":
    main()
