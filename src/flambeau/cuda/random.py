"""The streams of random numbers of GPUs: Philox, whose state is a seed and an offset (kernels/cuda/random.py)."""

from __future__ import annotations

from typing import Any

from flambeau import devices
from flambeau import random as rng
from flambeau.cuda.choosing import device_count, gpus, index_of, is_available
from flambeau.tensor import Tensor

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state",
    "set_rng_state_all",
]  # fmt: skip


def manual_seed(seed: int) -> None:
    """Start the stream of random numbers of `seed` on the current GPU. Without a GPU nothing happens."""
    if is_available():
        default_generators[index_of(None)].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Start the stream of random numbers of `seed` on every GPU. Without a GPU nothing happens."""
    if is_available():
        gpus().manual_seed_all(int(seed))


def seed() -> None:
    """Start a stream nobody can predict on the current GPU."""
    if is_available():
        default_generators[index_of(None)].seed()


def seed_all() -> None:
    """Start streams nobody can predict on every GPU."""
    for i in range(device_count()):
        default_generators[i].seed()


def initial_seed() -> int:
    """The seed that the current GPU's stream started from."""
    return default_generators[index_of(None)].initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The state of a GPU's stream: seed and offset. -> (16,) uint8, on the CPU"""
    return rng.get_state(default_generators[index_of(device)])


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Put a GPU's stream where `get_rng_state` found it."""
    rng.set_state(default_generators[index_of(device)], new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all GPUs' streams."""
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: list[Tensor]) -> None:
    """Put all GPUs' streams where `get_rng_state_all` found them."""
    for i, state in enumerate(new_states):
        set_rng_state(state, i)


class _Generators:
    """The streams of all GPUs by index, made when asked for."""

    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: int):
        count = device_count()
        if not -count <= index < count:
            raise IndexError(f"there are {count} GPUs, so there is no generator {index}")
        return gpus().default_generator(devices.device("cuda", index % count))


default_generators = _Generators()
