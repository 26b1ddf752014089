"""Random state as tensors: what users call to seed, save and restore the generators. The streams themselves are in `generators.py`.

>>> _ = manual_seed(0); state = get_rng_state()
>>> tuple(state.shape), state.dtype
((5056,), torch.uint8)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from flambeau.devices import device as Device
from flambeau.errors import refusal
from flambeau.generators import ELSEWHERE, Generator, default_generator
from flambeau.kernels import arrays
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.memory.host_memory import cuda_is_available

__all__ = ["Generator", "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


def manual_seed(seed: Any) -> Generator:
    """Start the stream of int(seed) on every device; the CPU's generator is returned."""
    seed = int(seed)
    _seed_gpus(seed)
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Start a stream nobody can predict on every device, and return its seed."""
    chosen = default_generator.seed()
    _seed_gpus(chosen)
    return chosen


def _seed_gpus(seed: int) -> None:
    """Nothing to do before a GPU has been used: its generator starts from the seed of the CPU's."""
    if "flambeau.kernels.cuda.gpu" in sys.modules:
        arrays.cuda().manual_seed_all(seed)


def initial_seed() -> int:
    """The seed the CPU's default generator started from."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the CPU's default generator, in PyTorch's own format. -> (5056,) uint8"""
    return get_state(default_generator)


def set_rng_state(new_state: Tensor) -> None:
    """Put the CPU's default generator where `get_rng_state` found it."""
    set_state(default_generator, new_state)


def get_state(self: Generator) -> Tensor:
    """Everything that determines the rest of the stream. -> (5056,) uint8"""
    return wrap(self.get_state_bytes())


def set_state(self: Generator, new_state: Tensor) -> Generator:
    """Continue where the generator that gave `new_state` stood."""
    if not isinstance(new_state, Tensor) or new_state._array.dtype != np.uint8:
        found = new_state.dtype if isinstance(new_state, Tensor) else type(new_state).__name__
        raise TypeError(f"RNG state must be a torch.ByteTensor (a tensor of uint8), found {found}")
    self.set_state_bytes(np.ascontiguousarray(new_state.cpu()._array))
    return self


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled=True, _caller="fork_rng", _devices_kw="devices", device_type="cuda") -> Iterator[None]:
    """Within it random numbers may be drawn and seeds set; afterwards the generators stand where they stood before."""
    if not enabled:
        yield
        return
    if devices is None:
        devices = range(arrays.cuda().device_count()) if cuda_is_available() else ()
    generators = [default_generator, *(arrays.cuda().default_generator(Device(i)) for i in devices)]
    states = [g.get_state_bytes() for g in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state_bytes(state)


ELSEWHERE["cuda"] = lambda: arrays.cuda().Generator if cuda_is_available() else Generator
Generator.get_state = get_state
Generator.set_state = set_state
Generator.graphsafe_get_state = lambda self: self
Generator.graphsafe_set_state = lambda self, state: self.set_state_bytes(state.get_state_bytes())
for _name in ("get_offset", "set_offset"):
    setattr(Generator, _name, refusal(_name, RuntimeError, "is for generators of GPUs: one on the CPU has a state, not an offset"))
