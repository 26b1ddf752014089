"""What a DTensor has in place of an array: the geometry of the whole tensor, and the tensor that lies on this rank."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from flambeau.kernels.meta import MetaArray
from flambeau.tensor import Size, Tensor


class Pieces(MetaArray):
    """Looks like an array of the whole tensor as far as its geometry goes. Code that wants the numbers fails loudly.

    value  this rank's part, a plain tensor without history
    spec   on which mesh, placed how
    """

    __slots__ = ("spec", "value")
    flags = SimpleNamespace(fnc=False, c_contiguous=False)
    base = np.zeros(0)  # never memory that a gradient could take over

    def __init__(self, value: Tensor, spec: DTensorSpec):
        meta = spec._meta
        super().__init__(meta.shape, meta.dtype.numpy, meta.stride)
        self.value, self.spec = value, spec

    def as_tensor(self) -> Any:
        """A tensor of these pieces, without history."""
        from flambeau.distributed.tensor._api import wrapped

        return wrapped(self.value, self.spec)

    def item(self) -> Any:
        """The element of a tensor that has one."""
        return self.as_tensor().item()


def meta_of(tensor: Tensor) -> TensorMeta:
    """What a tensor looks like."""
    return TensorMeta(Size(tensor.shape), tuple(tensor.stride()), tensor.dtype)
