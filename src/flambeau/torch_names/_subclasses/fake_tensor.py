"""torch._subclasses.fake_tensor: tensors without data that claim to be on a device. See dispatch/fake.py."""

from __future__ import annotations

from flambeau.dispatch.fake import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorDeviceMismatchError,
    FakeTensorMode,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
    is_fake,
    maybe_get_fake_mode,
    unset_fake_temporarily,
)

__all__ = [
    "DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorDeviceMismatchError", "FakeTensorMode", "UnsupportedFakeTensorException",
    "UnsupportedOperatorException", "is_fake", "maybe_get_fake_mode", "unset_fake_temporarily",
]  # fmt: skip
