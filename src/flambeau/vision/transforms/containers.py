"""Transforms made of transforms: one after the other, some of them, in any order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.vision.transforms.base import chance

__all__ = ["Compose", "Lambda", "RandomApply", "RandomChoice", "RandomOrder"]


def _lines(owner: Any, transforms: Any, first: tuple[str, ...] = ()) -> str:
    return "\n    ".join([f"{type(owner).__name__}(", *first, *(str(t) for t in transforms)]) + "\n)"


class Compose:
    """One after the other.

    >>> Compose([str.strip, len])("  four ")
    4
    """

    def __init__(self, transforms: Sequence[Callable]):
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return _lines(self, self.transforms)


class Lambda:
    """Any function as a transform."""

    def __init__(self, lambd: Callable):
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    def __repr__(self) -> str:
        return "Lambda()"


class RandomApply(Module):
    """All of them, or none: all with probability p."""

    def __init__(self, transforms: Sequence[Callable], p: float = 0.5):
        super().__init__()
        self.transforms = transforms
        self.p = p

    def forward(self, img: Any) -> Any:
        if self.p < chance():
            return img
        for transform in self.transforms:
            img = transform(img)
        return img

    def __repr__(self) -> str:
        return _lines(self, self.transforms, (f"p={self.p}",))


class _Several:
    def __init__(self, transforms: Sequence[Callable]):
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        self.transforms = transforms

    def __repr__(self) -> str:
        return _lines(self, self.transforms)


class RandomOrder(_Several):
    """All of them, in an order drawn by Python's `random`, as torchvision does."""

    def __call__(self, img: Any) -> Any:
        order = list(range(len(self.transforms)))
        random.shuffle(order)
        for i in order:
            img = self.transforms[i](img)
        return img


class RandomChoice(_Several):
    """One of them, drawn by Python's `random` with weights p, as torchvision does."""

    def __init__(self, transforms: Sequence[Callable], p: Sequence[float] | None = None):
        super().__init__(transforms)
        if p is not None and not isinstance(p, Sequence):
            raise TypeError("Argument p should be a sequence")
        self.p = p

    def __call__(self, *args: Any) -> Any:
        return random.choices(self.transforms, weights=self.p)[0](*args)

    def __repr__(self) -> str:
        return f"{super().__repr__()}(p={self.p})"
