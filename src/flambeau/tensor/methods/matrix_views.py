"""The transposed spellings of a tensor: T, mT, H, mH."""

from __future__ import annotations

import warnings

from flambeau.tensor.tensor import Tensor

_IDENTITY = "is deprecated on 0-D tensors, which it leaves as they are."


def T(self: Tensor) -> Tensor:
    """All dimensions in reverse order. For a matrix, its transpose."""
    n = self._array.ndim
    if n == 2:
        return self.permute((1, 0))
    others = "a tensor that is no matrix is deprecated. Say `x.mT` or `x.permute(...)`."
    warnings.warn(f"The use of `x.T` on {others}" if n else f"Tensor.T {_IDENTITY}", stacklevel=2)
    return self.permute(tuple(range(n - 1, -1, -1)))


def mT(self: Tensor) -> Tensor:
    """The last two dimensions exchanged: every matrix of a batch transposed. (*, M, N) -> (*, N, M)"""
    if self.dim() >= 2:
        return self.transpose(-2, -1)
    if self.dim() == 0:
        warnings.warn(f"Tensor.mT {_IDENTITY}", stacklevel=2)
        return self.permute(())
    raise RuntimeError("tensor.mT is only supported on matrices, found a 1-D tensor.")


def H(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix. (M, N) -> (N, M)"""
    if self.dim() > 2:
        raise RuntimeError(f"tensor.H is only supported on matrices, found {self.dim()} dimensions. tensor.mH is for batches of them")
    return _adjoint(self, "H")


def mH(self: Tensor) -> Tensor:
    """The conjugate transpose of every matrix of a batch. (*, M, N) -> (*, N, M)"""
    return _adjoint(self, "mH")


def _adjoint(self: Tensor, name: str) -> Tensor:
    if self.dim() == 0:
        warnings.warn(f"Tensor.{name} is deprecated on 0-D tensors: x.conj() is the same.", stacklevel=3)
    elif self.dim() == 1:
        raise RuntimeError(f"tensor.{name} is only supported on matrices, found a 1-D tensor.")
    transposed = self.transpose(-2, -1) if self.dim() else self.permute(())
    return transposed.conj() if self.is_complex() else transposed


for _property in (T, mT, H, mH):
    setattr(Tensor, _property.__name__, property(_property))
