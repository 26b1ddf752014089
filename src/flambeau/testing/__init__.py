"""torch.testing: comparing tensors with a report of the differences, and making tensors to compare."""

from __future__ import annotations

from flambeau.testing.comparison import assert_close
from flambeau.testing.making import make_tensor

__all__ = ["assert_close", "make_tensor"]
