"""Where random numbers come from: one Mersenne Twister per `Generator`, word for word PyTorch's.

A generator is 624 words of 32 bits and a position in them. Taking a word tempers it and moves the position; when all
624 are used, the whole block is twisted into the next one. Everything random in Flambeau (initial weights, dropout
masks, shuffles) is a function of these words, so the same seed gives the same run as PyTorch, digit by digit. How words
become uniform, normal or integer numbers is told in `kernels/random/sampling.py`; this file has never heard of a distribution.

>>> g = Generator().manual_seed(5489)
>>> int(g.draw32(1)[0])                    # the first output of the published reference implementation
3499211612

M. Matsumoto, T. Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform pseudo-random number
generator", ACM TOMACS 8 (1998).
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from flambeau import forks
from flambeau.devices import device as Device

DEFAULT_SEED = 67280421310721  # a prime factor of 2**128 + 1; PyTorch starts here, so do we
STATE_BYTES = 5056

N = 624  # words in a block
M = 397  # word i of the next block mixes words i, i + 1 and i + M of this one
LEFT, NEXT = N, N + 1  # places of the two counters behind the words, see `Generator.words`

# Device type -> a function that gives the class of its generators. The rooms that know other devices put theirs here.
ELSEWHERE: dict[str, Callable[[], type[Generator]]] = {}


class Generator:
    """A stream of 32-bit words that a seed determines.

    words            (626,) uint32: the block of 624, then `left` and `next`. The same layout as `struct mt19937` in
                     csrc/random.c, so that a compiled kernel can draw from this very memory.
                     `next` is the position of the next word, `left - 1` the number of words before the next twist.
    next_normal      the second value of the last Box-Muller pair, if nobody has taken it yet (float64), else None.
    next_float_normal  PyTorch's state has a place for a float32 one too; nothing on the CPU fills it, we carry it along.
    lock             held by a sampler for a whole call, so that two threads never share a word or tear a pair.

    >>> Generator().initial_seed() == DEFAULT_SEED
    True
    """

    def __new__(cls, device: str | Device = "cpu") -> Generator:
        elsewhere = ELSEWHERE.get(Device(device).type) if cls is Generator else None
        return object.__new__(cls if elsewhere is None else elsewhere())

    def __init__(self, device: str | Device = "cpu") -> None:
        self.device = Device(device)
        if self.device.type != "cpu":
            raise RuntimeError(f"Generator: this one draws on the CPU, but device='{self.device}' was asked for. Try Generator()")
        self.lock = RLock()
        self.words = np.empty(N + 2, np.uint32)
        self.manual_seed(DEFAULT_SEED)

    # -- seeding -------------------------------------------------------------------------------------------------------

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed`, any integer from -2**63 to 2**64 - 1, and return self.

        The seed is remembered with 64 bits (a negative one as its two's complement); the words depend on the low 32.
        """
        seed = _checked_seed(seed)
        with self.lock:
            self._seed = seed
            self.words[:N] = _first_block(seed & 0xFFFFFFFF)
            # One word "left" although none is: the first draw twists. PyTorch saves exactly this in its states.
            self.words[LEFT], self.words[NEXT] = 1, 0
            self.next_normal: float | None = None
            self.next_float_normal: float | None = None
        return self

    def seed(self) -> int:
        """Start a stream nobody can predict, from the operating system's entropy, and return its seed."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """The seed this stream started from, as an unsigned 64-bit number."""
        return self._seed

    # -- drawing -------------------------------------------------------------------------------------------------------

    def draw32(self, count: int) -> np.ndarray:
        """The next `count` words. -> (count,) uint32"""
        out = np.empty(count, np.uint32)
        with self.lock:
            block, filled = self.words[:N], 0
            left, position = int(self.words[LEFT]), int(self.words[NEXT])
            while filled < count:
                if left == 1:
                    _twist(block)
                    left, position = N + 1, 0
                take = min(left - 1, count - filled)
                out[filled : filled + take] = block[position : position + take]
                filled, position, left = filled + take, position + take, left - take
            self.words[LEFT], self.words[NEXT] = left, position
        return _temper(out)

    def draw_one(self) -> int:
        """The next word as a number: a single draw, without the cost of arrays."""
        with self.lock:
            words = self.words
            left, position = int(words[LEFT]), int(words[NEXT])
            if left == 1:
                _twist(words[:N])
                left, position = N + 1, 0
            word = int(words[position])
            words[LEFT], words[NEXT] = left - 1, position + 1
        return _temper(word)

    def draw64(self, count: int) -> np.ndarray:
        """The next `count` pairs of words as 64-bit numbers, the earlier word on top. -> (count,) uint64"""
        pairs = self.draw32(2 * count).reshape(count, 2).astype(np.uint64)
        return (pairs[:, 0] << np.uint64(32)) | pairs[:, 1]

    # -- states --------------------------------------------------------------------------------------------------------

    def get_state_bytes(self) -> np.ndarray:
        """Everything that determines the rest of the stream, in PyTorch's own format. -> (5056,) uint8"""
        state = np.zeros((), _STATE)
        with self.lock:
            state["seed"], state["seeded"] = self._seed, 1
            state["left"], state["next"] = self.words[LEFT], self.words[NEXT]
            state["block"] = self.words[:N]
            if self.next_normal is not None:
                state["next_normal"], state["has_next_normal"] = self.next_normal, 1
            if self.next_float_normal is not None:
                state["next_float_normal"], state["has_next_float_normal"] = self.next_float_normal, 1
        return np.frombuffer(state.tobytes(), np.uint8).copy()

    def set_state_bytes(self, state: np.ndarray) -> Generator:
        """Continue where the generator that gave `state` stood, ours or PyTorch's. Returns self."""
        saved = _checked_state(state)
        with self.lock:
            self._seed = int(saved["seed"])
            self.words[:N] = saved["block"]
            self.words[LEFT], self.words[NEXT] = saved["left"], saved["next"]
            self.next_normal = float(saved["next_normal"]) if saved["has_next_normal"] else None
            self.next_float_normal = float(saved["next_float_normal"]) if saved["has_next_float_normal"] else None
        return self

    def clone_state(self) -> Generator:
        """A second generator at the same place in the same stream."""
        return type(self)(self.device).set_state_bytes(self.get_state_bytes())

    def __reduce__(self) -> tuple:  # a lock cannot be pickled or copied, the state can
        return type(self), (self.device,), self.get_state_bytes()

    def __setstate__(self, state) -> None:
        # In PyTorch's files: (seed, offset, bytes of the state as a tensor).
        self.set_state_bytes(np.asarray(state[2]) if isinstance(state, tuple) else state)

    def __repr__(self) -> str:
        return f"Generator(device='{self.device}', initial_seed={self._seed})"


# -- the twister -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16)  # every new generator starts from the same seed, and this takes longer than all the rest of making one
def _first_block(seed: int) -> np.ndarray:
    """The 624 words that a 32-bit seed expands to, each a hash of the one before (Knuth's multiplier). -> (624,) uint32"""
    words = [seed]
    for i in range(1, N):
        seed = (1812433253 * (seed ^ (seed >> 30)) + i) & 0xFFFFFFFF
        words.append(seed)
    return np.array(words, np.uint32)


def _twist(block: np.ndarray) -> None:
    """Replace the block by the next one, in place.

    new[i] = old[i + M] ^ mix(old[i], old[i + 1]), indices modulo 624. From i = 227 on, index i + M wraps to a word that
    is already new, 227 places back; so the block is walked in stretches of at most 227, each free of dependences.
    """
    mixed = np.bitwise_and(block, 0x80000000)
    following = np.roll(block, -1)  # of the last word: block[0], still old here and replaced below
    gap = N - M
    for start in range(0, N, gap):
        stop = min(start + gap, N)
        if stop == N:
            following[-1] = block[0]
        low = following[start:stop]
        mix = mixed[start:stop] | (low & 0x7FFFFFFF)
        mix >>= 1
        mix ^= (low & 1) * np.uint32(0x9908B0DF)
        source = block[M : M + stop - start] if start == 0 else block[start - gap : stop - gap]
        np.bitwise_xor(source, mix, out=block[start:stop])


def _temper(words: Any) -> Any:
    """Scramble words so that consecutive ones look independent, an array of them in place; the stream's last step."""
    words ^= words >> 11
    words ^= (words << 7) & 0x9D2C5680
    words ^= (words << 15) & 0xEFC60000
    words ^= words >> 18
    return words


# -- checks --------------------------------------------------------------------------------------------------------------


def _checked_seed(seed: int) -> int:
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise RuntimeError(f"manual_seed: the seed must be an integer, but {seed!r} is of type {type(seed).__name__}. Try int(seed)")
    seed = seed.__index__()
    if not -(2**63) <= seed < 2**64:
        what = f"the seed must fit in 64 bits (-2**63 to 2**64 - 1), but {seed} does not"
        raise ValueError(f"manual_seed: Overflow when unpacking long long: {what}. Try seed % 2**64")
    return seed % 2**64


def _checked_state(state: np.ndarray) -> np.ndarray:
    """The bytes of a state as a record, or an error that says what is wrong with them."""
    if not isinstance(state, np.ndarray) or state.dtype != np.uint8:
        found = getattr(state, "dtype", type(state).__name__)
        raise TypeError(f"set_state: a generator's state is an array of {STATE_BYTES} bytes (uint8), but found {found}")
    if state.size != STATE_BYTES:
        raise RuntimeError(f"set_state: the state of a CPU's generator has {STATE_BYTES} bytes, but this array has {state.size}")
    saved = np.frombuffer(state.tobytes(), _STATE)[0]
    left, position = int(saved["left"]), int(saved["next"])
    fresh = (left, position) == (1, 0)
    if not saved["seeded"] or not (fresh or (1 <= left <= N and left + position == N + 1)):
        found = f"seeded={int(saved['seeded'])}, left={left}, next={position}, expected left + next = {N + 1}"
        raise RuntimeError(f"set_state: these bytes are not the state of a Mersenne Twister: {found}")
    return saved


# PyTorch's state, as its C++ lays it out in memory; normal_x, normal_rho and the gaps are relics, always zero.
_STATE = np.dtype([
    ("seed", np.uint64), ("left", np.int32), ("seeded", np.int32), ("next", np.uint64), ("block", np.uint64, N),
    ("normal_x", np.float64), ("next_normal", np.float64), ("normal_rho", np.float64), ("has_next_normal", np.int32), ("gap", np.int32),
    ("next_float_normal", np.float32), ("has_next_float_normal", np.bool_), ("end", np.uint8, 3),
])  # fmt: skip


# -- the default generator -------------------------------------------------------------------------------------------

default_generator = Generator()
default_generator.seed()  # every program gets numbers of its own, unless it calls manual_seed

forks.renewed(default_generator, "lock", RLock)
