"""Tensors without data that claim to be on a device. Flambeau's have none and say so: they are on the device "meta"."""

from __future__ import annotations

from typing import Any

from flambeau import import_only

__all__ = ["FakeTensor", "FakeTensorMode", "is_fake"]

FakeTensor, FakeTensorMode = import_only.classes(
    "torch._subclasses.fake_tensor", "FakeTensor FakeTensorMode", "shapes without data are tensors on the device 'meta'"
)


def is_fake(x: Any) -> bool:
    """Whether a tensor pretends to be on a device: none does."""
    return isinstance(x, FakeTensor)
