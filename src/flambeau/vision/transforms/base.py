"""What transforms share: how they show themselves, and how they draw.

Random transforms draw from the default generator what torchvision draws, in its order, so that a seed means the same crops.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from numbers import Number
from typing import Any

import numpy as np

from flambeau.generators import default_generator
from flambeau.kernels.random import sampling
from flambeau.nn.modules.module import Module


class Transform(Module):
    """A module without parameters whose repr is its options."""

    shown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_text(getattr(self, name))}' for name in self.shown)})"


def _text(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)


class Sometimes(Transform):
    """A change that is made with probability p, and otherwise is not: `class RandomInvert(Sometimes, of=F.invert)`."""

    shown = ("p",)
    of: Callable

    def __init_subclass__(cls, of: Callable | None = None):
        if of is not None:
            cls.of = staticmethod(of)

    def __init__(self, p: float = 0.5):
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return self.change(img) if chance() < self.p else img

    def change(self, img: Any) -> Any:
        return self.of(img)


# -- draws ---------------------------------------------------------------------------------------------------------

FLOAT = np.dtype(np.float32)

# A transform draws one number at a time. These are the numbers of the calls that torchvision makes, without a tensor around each.


def chance() -> float:
    """A number in [0, 1): torch.rand(1).item()."""
    return (default_generator.draw_one() & 0xFFFFFF) * 2.0**-24


def uniform(low: float, high: float) -> float:
    """A number between two others: torch.empty(1).uniform_(low, high).item()."""
    return float(sampling.uniform(default_generator, (1,), FLOAT, low, high)[0])


def whole(low: int, high: int) -> int:
    """A whole number, from low to just below high: torch.randint(low, high, (1,)).item()."""
    return low + default_generator.draw_one() % (high - low)


# -- options -------------------------------------------------------------------------------------------------------


def size_pair(size: Any, message: str) -> tuple[int, int]:
    """(h, w) of a number or of a sequence of one or two."""
    if isinstance(size, Number):
        return int(size), int(size)  # type: ignore[call-overload]
    if isinstance(size, (tuple, list)) and len(size) == 1:
        return size[0], size[0]
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise ValueError(message)
    return size  # type: ignore[return-value]


def sequence_of(value: Any, name: str, lengths: tuple[int, ...]) -> None:
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{name} should be a sequence of length {' or '.join(map(str, lengths))}.")
    if len(value) not in lengths:
        raise ValueError(f"{name} should be a sequence of length {' or '.join(map(str, lengths))}.")


def angles(value: Any, name: str, lengths: tuple[int, ...] = (2,)) -> list[float]:
    """[-v, v] of a number, and the numbers of a sequence."""
    if isinstance(value, Number):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return [-float(value), float(value)]  # type: ignore[arg-type]
    sequence_of(value, name, lengths)
    return [float(angle) for angle in value]
