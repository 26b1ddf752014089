"""Noise that looks like a data set, for trying out a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.random import Generator
from flambeau.tensor.making.random_factories import randint, randn
from flambeau.vision.datasets.vision import VisionDataset, transformed
from flambeau.vision.transforms.functional import to_pil_image


class FakeData(VisionDataset):
    """Images of noise, the same at each call: item i is drawn with the seed i + random_offset."""

    def __init__(
        self,
        size: int = 1000,
        image_size: tuple[int, int, int] = (3, 224, 224),
        num_classes: int = 10,
        transform: Callable | None = None,
        target_transform: Callable | None = None,
        random_offset: int = 0,
    ):
        super().__init__(transform=transform, target_transform=target_transform)
        self.size, self.image_size, self.num_classes, self.random_offset = size, image_size, num_classes, random_offset

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        if index >= len(self):
            raise IndexError(f"{type(self).__name__} index out of range")
        stream = Generator().manual_seed(index + self.random_offset)
        img = to_pil_image(randn(*self.image_size, generator=stream))
        target = int(randint(0, self.num_classes, size=(1,), generator=stream).item())
        return transformed(self, img, target)

    def __len__(self) -> int:
        return self.size
