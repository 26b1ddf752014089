"""torch._subclasses: tensors that pretend to be on a device, for programs that want to know what would come out."""

from __future__ import annotations

from flambeau._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from flambeau.library.fake_checking import CrossRefFakeMode

__all__ = ["CrossRefFakeMode", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode", "UnsupportedFakeTensorException"]
