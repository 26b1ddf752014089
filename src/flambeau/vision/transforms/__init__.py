"""From an image to what a model is shown: conversion, size, and changes that a model should not mind.

    transform = Compose([RandomCrop(28, padding=2), ToTensor(), Normalize((0.1307,), (0.3081,))])

Everything takes tensors (..., C, H, W) and images of Pillow.
"""

from __future__ import annotations

from flambeau.vision.transforms import functional
from flambeau.vision.transforms.transforms import *
from flambeau.vision.transforms.transforms import __all__ as _names

__all__ = [*_names, "functional"]


def __getattr__(name: str) -> object:
    if name == "v2":
        from importlib import import_module

        return import_module(f"{__name__}.v2")
    raise AttributeError(f"flambeau.vision.transforms has no {name!r}: it has {', '.join(_names)}")
