"""torch._subclasses.meta_utils: how a compiler turns tensors into ones without data."""

from __future__ import annotations

from flambeau import import_only

(MetaConverter,) = import_only.classes(
    "torch._subclasses.meta_utils", "MetaConverter", "FakeTensorMode.from_tensor and Tensor.to('meta') make tensors without data"
)

__all__ = ["MetaConverter"]
