"""torch._subclasses: tensors that pretend, for compilers. There are none: the types can be asked for, and nothing is of them."""

from __future__ import annotations

from flambeau._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["FakeTensor", "FakeTensorMode"]
