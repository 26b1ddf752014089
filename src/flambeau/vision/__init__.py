"""Images: data sets, transforms and grids of them. Programs know it as torchvision.

    from flambeau.vision import datasets, transforms

    train = datasets.FashionMNIST("data", train=True, download=True, transform=transforms.ToTensor())

Each part is imported when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from flambeau import version

__version__ = version.torchvision_version  # the torchvision whose names and numbers these are

ROOMS = ("datasets", "io", "models", "ops", "transforms", "utils")
__all__ = [*ROOMS]


def __getattr__(name: str) -> Any:
    if name in ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: of torchvision there are {', '.join(ROOMS)}")


def __dir__() -> list[str]:
    return sorted({*globals(), *ROOMS})


def get_image_backend() -> str:
    """What images are loaded with: Pillow."""
    return "PIL"


def set_image_backend(backend: str) -> None:
    if backend != "PIL":
        raise ValueError(f"Invalid backend {backend!r}: images are loaded with 'PIL' (Pillow)")
