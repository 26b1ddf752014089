"""What transforms share: how they show themselves, and how they draw.

Random transforms draw from the default generator with the calls torchvision makes, in its order, so that a seed means the same crops.
"""

from __future__ import annotations

from enum import Enum
from numbers import Number
from typing import Any

from flambeau.factories import empty
from flambeau.nn.modules.module import Module
from flambeau.random_factories import rand, randint


class Transform(Module):
    """A module without parameters whose repr is its options."""

    shown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_text(getattr(self, name))}' for name in self.shown)})"


def _text(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)


class Sometimes(Transform):
    """A change that is made with probability p, and otherwise is not: subclasses say which in `change`."""

    shown = ("p",)

    def __init__(self, p: float = 0.5):
        super().__init__()
        self.p = p

    def forward(self, img: Any) -> Any:
        return self.change(img) if rand(1).item() < self.p else img

    def change(self, img: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not say what it changes: define change(img)")


def uniform(low: float, high: float) -> float:
    """A number between two others."""
    return float(empty(1).uniform_(low, high).item())


def whole(low: int, high: int) -> int:
    """A whole number, from low to just below high."""
    return int(randint(low, high, size=(1,)).item())


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
