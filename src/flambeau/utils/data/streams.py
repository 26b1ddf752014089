"""The random streams of a process: seeding them in a worker, finding those that a data set carries, saving and restoring their states.

A worker process is a copy of its parent, random generators included. Python's, NumPy's and Flambeau's global ones are seeded in every
worker, with PyTorch's seeds. A `numpy.random.Generator`, a `random.Random` or a `Generator` that the data set keeps for itself would draw
the same numbers in every worker, and again in every epoch; so it is given a stream of its own, a function of where it stands, the epoch's
seed and the worker's number (`separate`).
"""

from __future__ import annotations

import functools
import random
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.random as numpy_random

from flambeau.generators import Generator, default_generator
from flambeau.tensor import Tensor, wrap

GLOBAL = (random._inst, numpy_random.mtrand._rand, default_generator)  # type: ignore[attr-defined]  # these are seeded by `seed_worker`
KINDS = (random.Random, numpy_random.Generator, numpy_random.RandomState, numpy_random.BitGenerator, Generator)


def seed_worker(base_seed: int, worker_id: int) -> int:
    """Seed the global generators of a worker as PyTorch does, and return the worker's seed."""
    seed = base_seed + worker_id
    random.seed(seed)
    default_generator.manual_seed(seed)
    numpy_random.seed(words_for_worker(base_seed, worker_id))
    return seed


def words_for_worker(base_seed: int, worker_id: int) -> Any:
    """128 bits, because NumPy's global generator takes 32-bit words and seeds that differ by one must not give related streams."""
    return numpy_random.SeedSequence([worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32]).generate_state(4)


def separate(generators: list, base_seed: int, worker_id: int) -> None:
    """Move generators to streams of their own: functions of where they stand, the epoch's seed and the worker's number."""
    for generator in generators:
        key = numpy_random.SeedSequence([_draw(generator), base_seed], spawn_key=(worker_id,))
        if isinstance(generator, random.Random):
            generator.seed(int.from_bytes(key.generate_state(8).tobytes(), "little"))
        elif isinstance(generator, Generator):
            generator.manual_seed(int(key.generate_state(1, np.uint64)[0]))
        else:
            bits = _bits(generator)
            bits.state = type(bits)(key).state


def _draw(generator: Any) -> int:
    """64 bits of a stream."""
    if isinstance(generator, random.Random):
        return generator.getrandbits(64)
    if isinstance(generator, Generator):
        return int(generator.draw64(1)[0])
    high, low = (int(word) & 0xFFFFFFFF for word in _bits(generator).random_raw(2))
    return high << 32 | low


def _bits(generator: Any) -> Any:
    """The bit generator behind one of NumPy's generators."""
    if isinstance(generator, numpy_random.RandomState):
        return generator._bit_generator  # type: ignore[attr-defined]
    return getattr(generator, "bit_generator", generator)


# -- finding ---------------------------------------------------------------------------------------------------------

DEPTH = 6  # of attributes, containers and functions within each other
WIDE = 256  # entries: a longer container holds data, not transforms
MOST = 5000  # objects looked at: a data set may hold on to half of the program


def find(*roots: Any, apart_from: Any = None) -> list:
    """The generators that objects keep: in attributes, containers, partial functions, closures, and in global variables that their functions
    name; in the order in which they are met, each once. The global generators are not among them."""
    found: list = []
    seen = {id(apart_from), *map(id, GLOBAL)}
    for root in roots:
        _walk(root, DEPTH, found, seen)
    return found


def _walk(value: Any, depth: int, found: list, seen: set[int]) -> None:
    if id(value) in seen or depth < 0 or type(value) in _PLAIN or len(seen) > MOST:
        return
    seen.add(id(value))
    if isinstance(value, random.SystemRandom) or (isinstance(value, Generator) and value.device.type != "cpu"):
        return  # these do not repeat, or have no business in a worker
    if isinstance(value, KINDS):
        # NumPy's generators are two objects, of which the inner one has the state.
        if id(_bits(value)) not in seen or _bits(value) is value:
            seen.add(id(_bits(value)))
            found.append(value)
        return
    try:
        parts = _parts(value)
    except Exception:  # an attribute that raises when it is looked at is none of our business
        return
    for part in parts:
        _walk(part, depth - 1, found, seen)


_PLAIN = (int, float, bool, str, bytes, bytearray, type(None), np.ndarray, Tensor, range, type, types.ModuleType, np.dtype)


def _parts(value: Any) -> list:
    """Where a generator may hide in a value."""
    if isinstance(value, dict):
        return list(value.values()) if len(value) <= WIDE else []
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value) if len(value) <= WIDE else []
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, types.FunctionType):
        return _of_function(value)
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, Tensor):
        return []
    parts = list(getattr(value, "__dict__", {}).values())
    for kind in type(value).__mro__:
        parts += [getattr(value, name) for name in _slots(kind) if hasattr(value, name)]
        if kind.__module__.partition(".")[0] not in _LIBRARIES:
            parts += [f for f in vars(kind).values() if isinstance(f, types.FunctionType)]
    return parts


_LIBRARIES = {"builtins", "abc", "typing", "collections", "numpy", "flambeau", "functools", "multiprocessing", "threading", "io", "torch"}


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    return [s for s in ((slots,) if isinstance(slots, str) else slots) if not s.startswith("__")]


def _of_function(function: types.FunctionType) -> list:
    parts = list(function.__defaults__ or ())
    for cell in function.__closure__ or ():
        try:
            parts.append(cell.cell_contents)
        except ValueError:  # a variable that has no value yet
            continue
    names = [name for name in function.__code__.co_names if name in function.__globals__]
    return parts + [function.__globals__[name] for name in names]


# -- states ----------------------------------------------------------------------------------------------------------


def states(generators: Any) -> list:
    """Where generators stand: numbers, text, lists, dicts and arrays."""
    return [_state(g) for g in generators]


def restore(generators: Any, saved: list) -> None:
    """Put generators where `states` found them."""
    if len(generators) != len(saved):
        warnings.warn(
            f"the state was saved with {len(saved)} random generators in the data set or the samplers, and now there are {len(generators)}: "
            "random numbers will not go on exactly. Make generators where the object is made, not when the first item is asked for",
            stacklevel=2,
        )
    for generator, state in zip(generators, saved, strict=False):
        if isinstance(generator, Generator):
            generator.set_state_bytes(state)
        elif isinstance(generator, random.Random):
            version, words, gauss = state
            generator.setstate((version, tuple(words.tolist()), gauss))
        elif isinstance(generator, numpy_random.RandomState):
            generator.set_state(state)
        else:
            _bits(generator).state = state


def _state(generator: Any) -> Any:
    if isinstance(generator, Generator):
        return generator.get_state_bytes()
    if isinstance(generator, random.Random):
        version, words, gauss = generator.getstate()
        return [version, np.array(words, np.int64), gauss]
    if isinstance(generator, numpy_random.RandomState):
        return generator.get_state(legacy=False)
    return _bits(generator).state


def with_tensors(state: Any) -> Any:
    """States with tensors for arrays: what a checkpoint can hold."""
    if isinstance(state, dict):
        return {k: with_tensors(v) for k, v in state.items()}
    if isinstance(state, list):
        return [with_tensors(v) for v in state]
    if isinstance(state, np.generic):
        return state.item()
    return wrap(state.copy()) if isinstance(state, np.ndarray) else state


def with_arrays(state: Any) -> Any:
    """The reverse."""
    if isinstance(state, dict):
        return {k: with_arrays(v) for k, v in state.items()}
    if isinstance(state, list):
        return [with_arrays(v) for v in state]
    return state._array if isinstance(state, Tensor) else state


class Watch:
    """Notices whether random numbers were drawn, so that states travel only when they changed."""

    def __init__(self, generators: list) -> None:
        self.generators = [*GLOBAL, *generators]
        self.marks = [_mark(g) for g in self.generators]
        self.before: list = [None] * len(self.marks)
        self.saved: list = [None] * len(self.marks)

    def changes(self) -> list | None:
        """`states` of the global and the given generators, if they are not those of the last call."""
        changed = False
        for i, mark in enumerate(self.marks):
            now = mark()
            if now != self.before[i]:
                self.before[i], self.saved[i], changed = now, _state(self.generators[i]), True
        return self.saved if changed else None


def _mark(generator: Any) -> Callable[[], Any]:
    """A function whose result differs when the state does, and which is quick."""
    if isinstance(generator, Generator):
        return lambda: (generator.words.tobytes(), generator.next_normal)
    if isinstance(generator, random.Random):
        return generator.getstate
    if isinstance(generator, numpy_random.RandomState):
        return _mark_legacy(generator)
    bits = _bits(generator)
    return lambda: repr(bits.state)


def _mark_legacy(generator: Any) -> Callable[[], Any]:
    """NumPy makes the state of a Mersenne Twister in 100 microseconds; its memory can be read in one: 624 words and a position."""

    def whole() -> Any:
        name, key, *rest = generator.get_state()
        return name, key.tobytes(), rest

    bits = _bits(generator)
    if not isinstance(bits, numpy_random.MT19937):
        return whole
    import ctypes

    memory = np.ctypeslib.as_array((ctypes.c_uint32 * 625).from_address(bits.ctypes.state_address))
    state = bits.state["state"]
    if not np.array_equal(memory, [*state["key"], state["pos"]]):  # another version of NumPy, with another layout
        return whole
    last: list = [None, None]

    def quick() -> Any:
        # Taking the second number of a pair of normals changes nothing in the memory: as long as one is waiting, look at everything.
        words = memory.tobytes()
        if words != last[0] or last[1][2][1]:
            last[:] = words, whole()
        return last[1]

    return quick
