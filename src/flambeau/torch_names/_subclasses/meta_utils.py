"""torch._subclasses.meta_utils: how a compiler turns tensors into ones without data."""

from __future__ import annotations

from flambeau import import_only

__all__ = import_only.fill(__name__, "FakeTensorMode.from_tensor and Tensor.to('meta') make tensors without data", classes="MetaConverter")
