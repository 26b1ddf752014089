"""Random numbers on a GPU: Philox, a generator without memory.

A stream is a seed and an offset. Thread t of a launch encrypts the counters (offset / 4, t), (offset / 4 + 1, t), ... with the seed as key
and gets four words each time; afterwards the offset moves on by what was used. The same words go to the same elements as in PyTorch on a
GPU with as many multiprocessors, so uniform and normal numbers agree with it.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

import math
from _thread import RLock
from functools import lru_cache
from typing import Any

import cupy
import numpy as np
from cupy.cuda import Device, runtime

from flambeau import devices, dtypes
from flambeau.generators import DEFAULT_SEED, _checked_seed
from flambeau.generators import Generator as CpuGenerator
from flambeau.generators import default_generator as cpu_generator
from flambeau.kernels import arrays
from flambeau.kernels.cuda import graphs
from flambeau.kernels.cuda.launch import compiled, empty, strided
from flambeau.kernels.language.print_cuda import THREADS
from flambeau.kernels.random import checks, sampling
from flambeau.kernels.templates.cuda_random import FORMULAS, INTEGERS, per_turn, print_dropout, print_random


class Generator(CpuGenerator):
    """A stream on a GPU: `seed` and `offset`, which counts in steps of 4."""

    def __init__(self, device: Any = "cuda"):
        found = devices.device(device)
        self.device = devices.device("cuda", runtime.getDevice() if found.index is None else found.index)
        self.lock = RLock()
        self.drawn: graphs.Drawn | None = None  # while a graph is captured: what that draws
        self._seed = self.offset = 0
        self.manual_seed(DEFAULT_SEED)

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of `seed` and return self."""
        seed = _checked_seed(seed)
        if graphs.underway and graphs.is_capturing():
            if seed != self._seed:
                raise RuntimeError(
                    "a generator can be seeded while a CUDA graph is captured only with the seed it has: replays go on with the generator's stream"
                )
            return self
        self._seed, self.offset = seed, 0
        return self

    def seed(self) -> int:
        """Start a stream nobody can predict; its seed."""
        _not_while_capturing("Generator.seed()")
        return super().seed()

    def initial_seed(self) -> int:
        """The seed the stream started from."""
        _not_while_capturing("Generator.initial_seed()")
        return self._seed

    def take(self, count: int) -> int:
        """Move on by `count`, a multiple of 4, and return where the stream stood."""
        _not_while_capturing("drawing numbers whose place in the stream is fixed")
        with self.lock:
            before = self.offset
            self.offset += count
        return before

    def draws(self, count: int) -> tuple[int, int, int]:
        """(seed, offset, 0) for kernels that use `count` of the stream, a multiple of 4, by which it moves on.

        While a graph is captured: (0, offset within the graph, the address of the seed and the offset at which a replay goes on).
        """
        if graphs.underway and graphs.is_capturing():
            if self.drawn is None:
                raise RuntimeError(
                    "this generator is not known to the CUDA graph that is captured: graph.register_generator_state(generator)"
                )
            return self.drawn.take(count)
        return self._seed, self.take(count), 0

    def get_offset(self) -> int:
        """How much of the stream has been used."""
        _not_while_capturing("Generator.get_offset()")
        return self.offset

    def set_offset(self, offset: int) -> Generator:
        """Continue at another place of the stream."""
        if offset % 4:
            raise RuntimeError(f"offset must be a multiple of 4, but got {offset}")
        self.offset = int(offset)
        return self

    def get_state_bytes(self) -> np.ndarray:
        """Seed and offset, in PyTorch's own format. -> (16,) uint8"""
        _not_while_capturing("Generator.get_state()")
        return np.frombuffer(np.array([self._seed, self.offset], np.uint64).tobytes(), np.uint8).copy()

    def set_state_bytes(self, state: np.ndarray) -> Generator:
        """Continue where the generator that gave `state` stood."""
        if state.size != 16:
            raise RuntimeError(f"RNG state is wrong size: that of a generator on a GPU has 16 bytes, but this one has {state.size}")
        seed, offset = np.frombuffer(np.ascontiguousarray(state).tobytes(), np.uint64)
        self._seed, self.offset = int(seed), int(offset)
        return self


def _not_while_capturing(what: str) -> None:
    graphs.refuse(what, "Its replays draw from the generator as it stands then")


# -- one stream per GPU --------------------------------------------------------------------------------------------------

_generators: dict[int, Generator] = {}
_seed_of_new: int | None = None  # what manual_seed_all said, for devices that have not drawn yet


def default_generator(device: devices.device) -> Generator:
    """The stream of a GPU; seeded as the CPU's was when it is first asked for."""
    index = runtime.getDevice() if device.index is None else device.index
    found = _generators.get(index)
    if found is None:
        found = _generators[index] = Generator(devices.device("cuda", index))
        found.manual_seed(cpu_generator.initial_seed() if _seed_of_new is None else _seed_of_new)
    return found


def manual_seed_all(seed: int) -> None:
    """Start the stream of `seed` on every GPU."""
    global _seed_of_new
    _seed_of_new = int(seed)
    for generator in _generators.values():
        generator.manual_seed(seed)


# -- distributions -------------------------------------------------------------------------------------------------------


def draw(kind: str, generator: Generator, shape, dtype: np.dtype, device: devices.device, **parameters):
    """A fresh contiguous array of samples: `kind` and its parameters are those of a function of `sampling.py`."""
    parameters.pop("contiguous", None)
    dtype = np.dtype(dtype)
    with Device(device.index):
        if dtype.kind == "c":
            return _complex(kind, generator, shape, dtype, device, parameters)
        if kind == "randint":
            return _integers(generator, shape, dtype, parameters["low"], parameters["high"])
        if kind == "random_full":
            return _all_integers(generator, shape, dtype)
        if any(isinstance(p, cupy.ndarray) for p in parameters.values()):
            return _elementwise(kind, generator, shape, dtype, device, parameters)
        return _sampled(kind, generator, shape, dtype, *_checked(kind, dtype, tuple(parameters.items())))


@lru_cache(256)
def _checked(kind: str, dtype: np.dtype, parameters: tuple) -> tuple[float, float]:
    """(a, b) of a formula, after the checks that the CPU's sampler makes: it is asked for one sample, of a stream nobody else sees."""
    p = dict(parameters)
    getattr(sampling, kind)(CpuGenerator(), (1,), dtype=dtype, **p)
    if kind == "uniform":
        return p.get("low", 0.0), p.get("high", 1.0)
    if kind == "geometric":
        return math.log1p(-p["p"]), 0.0
    first, second = {"normal": (0.0, 1.0), "log_normal": (1.0, 2.0), "cauchy": (0.0, 1.0)}.get(kind, (1.0, 0.0))
    given = [float(p[name]) for name in ("mean", "lambd", "median", "p") if name in p]
    return given[0] if given else first, float(p.get("std", p.get("sigma", second)))


def _sampled(kind: str, generator: Generator, shape, dtype: np.dtype, a: float, b: float):
    out = empty(shape, dtype)
    compute = "float32" if dtype.itemsize <= 4 and dtype.kind not in "iu" else "float64"
    _fill(generator, out, *FORMULAS[kind], compute, a, b, kind == "uniform")
    return out


def _complex(kind: str, generator: Generator, shape, dtype: np.dtype, device, parameters: dict):
    """Real and imaginary parts are drawn alike; normal ones share the variance."""
    if kind == "normal":
        parameters["std"] = parameters.get("std", 1.0) / math.sqrt(2)
    real = np.dtype(np.float32 if dtype == np.complex64 else np.float64)
    return draw(kind, generator, (*shape, 2), real, device, **parameters).view(dtype)[..., 0]


def _elementwise(kind: str, generator: Generator, shape, dtype: np.dtype, device, parameters: dict):
    """Parameters that are arrays: standard samples, scaled and shifted."""
    single = np.dtype(np.float64 if dtype == np.float64 else np.float32)
    wide = {n: arrays.cast(p, single) if isinstance(p, cupy.ndarray) else p for n, p in parameters.items()}
    if kind == "bernoulli":
        given, p = parameters["p"], wide["p"]
        if dtypes.OF_NUMPY[given.dtype].category != dtypes.FLOAT:
            raise NotImplementedError(f"bernoulli: probabilities must be floating point, but found {given.dtype.name}")
        if p.size and not bool(((p >= 0) & (p <= 1)).all()):
            raise RuntimeError(f"bernoulli: every probability must lie in [0, 1], but they span {float(p.min())} to {float(p.max())}")
        found = _sampled("uniform", generator, shape, single, 0.0, 1.0) < wide["p"]
    elif kind == "normal":
        std = wide.get("std", 1.0)
        if isinstance(std, cupy.ndarray) and bool((std < 0).any()):
            raise RuntimeError(f"normal: every standard deviation must be 0 or more, but the smallest is {float(std.min())}")
        found = _sampled("normal", generator, shape, single, 0.0, 1.0) * std + wide.get("mean", 0.0)
    else:
        raise NotImplementedError(f"{kind}: parameters that are tensors are not supported on a GPU")
    return arrays.cast(arrays.contiguous(found), dtype)


def _integers(generator: Generator, shape, dtype: np.dtype, low: int, high: int | None):
    if high is None and low == -(2**63):
        return _words(generator, shape, dtype, 0, 0, 64)
    low, span = checks.integer_range(dtype, low, high)
    return _words(generator, shape, dtype, low, span, 64 if span >= 2**28 else 32)


def _all_integers(generator: Generator, shape, dtype: np.dtype):
    _, largest, digits = checks.integer_limits(dtype)
    span = (2**digits if digits else int(largest)) + 1
    return _words(generator, shape, dtype, 0, span, 64 if dtype.itemsize == 8 else 32)


def _words(generator: Generator, shape, dtype: np.dtype, low: int, span: int, bits: int):
    """low + word % span as `dtype`; a span of 0 stands for all words."""
    out = empty(shape, dtype)
    a, b = np.uint64(low % 2**64), np.uint64(span % 2**64)
    _fill(generator, out, f"word{bits}", INTEGERS, "int64", a, b)
    return out


def permutation(generator: Generator, n: int, dtype: np.dtype, device: devices.device):
    """0 to n - 1 in random order: the order that sorts random words. -> (n,)"""
    checks.check_permutation(n, np.dtype(dtype))
    with Device(device.index):
        order = cupy.argsort(_words(generator, (n,), np.dtype(np.int64), 0, 0, 64))
        return arrays.cast(order, np.dtype(dtype))


def multinomial(generator: Generator, weights, num_samples: int, replacement: bool):
    """Category numbers drawn with the given weights. (rows, categories) -> (rows, num_samples) int64; also (C,) -> (S,)"""
    with Device(weights.data.device_id):
        checks.check_multinomial(arrays.to_device(weights, devices.cpu), num_samples, replacement)
        wide = arrays.cast(weights, np.dtype(np.float64 if weights.dtype == np.float64 else np.float32))
        rows = cupy.ascontiguousarray(wide).reshape(-1, weights.shape[-1])
        if replacement and num_samples > 1:
            chosen = _by_inversion(generator, rows, num_samples)
        else:
            race = rows / _sampled("exponential", generator, rows.shape, rows.dtype, 1.0, 0.0)  # see sampling.multinomial
            chosen = race.argmax(-1)[:, None] if num_samples == 1 else cupy.argsort(-race, axis=-1)[:, :num_samples]
        return cupy.ascontiguousarray(chosen.reshape(*weights.shape[:-1], num_samples))


def _by_inversion(generator: Generator, rows, num_samples: int):
    """For each uniform u the first category whose cumulative probability reaches u. (R, C) -> (R, S)"""
    count, categories = rows.shape
    cumulative = rows.astype(np.float64).cumsum(axis=-1)
    cumulative /= cumulative[:, -1:].copy()
    cumulative[:, -1] = 1
    u = 1 - _sampled("uniform", generator, (count, num_samples), np.dtype(np.float64), 0.0, 1.0)  # in (0, 1]
    shift = cupy.arange(count)[:, None]  # one search for all rows: row r occupies the numbers from r to r + 1
    found = cupy.searchsorted((cumulative + shift).ravel(), (u + shift).ravel()).reshape(count, num_samples)
    return cupy.clip(found - shift * categories, 0, categories - 1)


def poisson(generator: Generator, rates):
    """A Poisson number for each rate."""
    with Device(rates.data.device_id):
        drawn = _cupys(generator, rates.size).poisson(rates.astype(np.float64), rates.shape)
        return arrays.cast(drawn.astype(np.float64), rates.dtype)


def binomial(generator: Generator, count, prob):
    """How many of `count` trials succeed, each with probability `prob`."""
    with Device(count.data.device_id):
        trials, p = cupy.broadcast_arrays(count.astype(np.int64), prob.astype(np.float64))
        drawn = _cupys(generator, trials.size).binomial(cupy.ascontiguousarray(trials), cupy.ascontiguousarray(p), trials.shape)
        return arrays.cast(drawn.astype(np.float64), count.dtype)


def gamma(generator: Generator, shape):
    """A gamma number of scale 1 for each shape parameter. -> float64"""
    with Device(shape.data.device_id):
        return _cupys(generator, shape.size).standard_gamma(cupy.ascontiguousarray(shape.astype(np.float64)), shape.shape)


def _cupys(generator: Generator, count: int):
    """A generator of CuPy's, for distributions that are found by rejection; it starts where ours stands."""
    _not_while_capturing("poisson(), binomial() and gamma(), which draw again and again until a number fits,")
    offset = generator.take((count + 3) // 4 * 4)
    return cupy.random.Generator(cupy.random.Philox4x3210((generator.initial_seed() ^ (offset * 0x9E3779B97F4A7C15)) % 2**63))


# -- kernels -------------------------------------------------------------------------------------------------------------


@lru_cache(None)
def _most_blocks(device: int) -> int:
    """How many blocks PyTorch would launch at most."""
    attributes = Device(device).attributes
    return attributes["MultiProcessorCount"] * (attributes["MaxThreadsPerMultiProcessor"] // THREADS)


def _fill(generator: Generator, out, source: str, formula: str, compute: str, a, b, wraps: bool = False) -> None:
    """Compile and launch: every thread computes some values a turn, a grid's width apart."""
    n, dtype = out.size, dtypes.OF_NUMPY[out.dtype].name
    if not n:
        return
    name = f"fl_random_{source}_{dtype}"
    kernel = compiled(print_random, name, out.data.device_id, name, source, formula, compute, dtype, wraps)
    blocks, *stand = _turned(generator, n, per_turn(source, compute), out.data.device_id)
    kernel((blocks,), (THREADS,), (out, n, *stand, a, b))


def dropout(generator: Generator, x, keep: float, scale: float):
    """(x * scale where a number drawn for it is at most `keep`, else x * 0; which those are), from a dense array, in the order of its memory.

    The numbers are those that draw("bernoulli") takes for as many elements.
    """
    n, dtype, device = x.size, dtypes.OF_NUMPY[x.dtype].name, x.data.device_id
    with Device(device):
        out = strided(x.shape, x.strides, x.dtype)
        kept = strided(x.shape, tuple([s // x.itemsize for s in x.strides]), np.dtype(bool))
        if n:
            compute = "float32" if x.dtype.itemsize <= 4 else "float64"
            kernel = compiled(print_dropout, "fl_dropout", device, "fl_dropout", compute, dtype)
            blocks, *stand = _turned(generator, n, per_turn("unit", compute), device)
            rounded = float(np.asarray(scale).astype(x.dtype))  # as the noise is that other forms multiply by
            kernel((blocks,), (THREADS,), (out, kept, x, n, *stand, float(keep), rounded))
    return out, kept


def _turned(generator: Generator, n: int, per_turn: int, device: int) -> tuple[int, int, int, int]:
    """(blocks, seed, counter, address of what replays of a graph add to these, or 0) for n values, by which the stream moves on."""
    blocks = min((n + THREADS - 1) // THREADS, _most_blocks(device))
    turns = (n - 1) // (THREADS * blocks * per_turn) + 1
    seed, offset, words = generator.draws(turns * 4)
    return blocks, seed, offset // 4, words
