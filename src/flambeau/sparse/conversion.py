"""Between layouts: dense, coordinates (COO), rows (CSR) and columns (CSC); coalescing; and reading off elements at given places.

A conversion changes how a tensor is stored and not what it means, so its gradient passes as it is.
"""

from __future__ import annotations

from typing import Any

from flambeau import layouts
from flambeau.autograd import modes
from flambeau.ops import OPS
from flambeau.ops.sparse_products import grouped, row_of_places, start_of_rows
from flambeau.sparse import history
from flambeau.sparse.parts import Compressed, Coo, Parts, SparseTensor, wrapped
from flambeau.tensor import Tensor


def _same(grad: Tensor, *saved: Any) -> Tensor:
    return grad


# -- coordinates -------------------------------------------------------------------------------------------------------


def flat(indices: Tensor, shape: tuple) -> Tensor:
    """One number for each column of the indices, in row-major order of the places. (D, nnz) -> (nnz)."""
    if not indices.shape[0]:
        return indices.new_zeros(indices.shape[1])
    key = indices[0]
    for d in range(1, indices.shape[0]):
        key = key * shape[d] + indices[d]
    return key


def unflat(keys: Tensor, shape: tuple) -> Tensor:
    """The inverse of `flat`: (nnz) -> (D, nnz)."""
    if len(shape) == 1:
        return keys.unsqueeze(0)
    rows = keys.new_empty((len(shape), keys.shape[0]))
    for d in reversed(range(len(shape))):
        rows[d] = keys % max(shape[d], 1)
        keys = keys // max(shape[d], 1)
    return rows


def merged(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """(keys in order, each once; the sums of the values of each). Gradients flow through the values."""
    found, place, order = grouped(keys)
    values = values[order]
    if found.shape[0] == keys.shape[0]:
        return found, values
    return found, values.new_zeros((found.shape[0], *values.shape[1:])).index_add(0, place, values)


def coalesce(self: SparseTensor) -> SparseTensor:
    """The same tensor with its coordinates in order and none of them twice; itself if that is so already."""
    if not isinstance(self, SparseTensor):
        raise RuntimeError("coalesce expected sparse coordinate tensor layout but got Strided")
    parts = self._coo("coalesce")
    if parts.coalesced:
        return self
    with modes.no_grad():
        shape = parts.shape[: parts.sparse_dim]
        keys, values = (flat(parts.indices, shape), parts.values) if parts.nnz < 2 else merged(flat(parts.indices, shape), parts.values)
        result = wrapped(Coo(unflat(keys, shape), values, parts.shape, True))
    return history.recorded(result, "CoalesceBackward0", (self,), (_same,))


def coordinates(parts: Parts) -> Tensor:
    """The indices of a tensor of any sparse layout. -> (D, nnz)."""
    if isinstance(parts, Coo):
        return parts.indices
    assert isinstance(parts, Compressed)
    lines, others = row_of_places(parts.starts), parts.others
    result = others.new_empty((2, others.shape[0])).long()
    by_rows = parts.layout is layouts.sparse_csr
    result[0], result[1] = (lines, others) if by_rows else (others, lines)
    return result


def values_at(self: Tensor, parts: Parts) -> Tensor:
    """The elements of a tensor, sparse or dense, at the places of `parts`. -> (nnz, *)."""
    if not isinstance(self, SparseTensor):
        return self[tuple(coordinates(parts).unbind(0))]
    own = self._array
    if own.layout is parts.layout and own.nnz == parts.nnz:
        if isinstance(own, Coo) and isinstance(parts, Coo) and own.coalesced and _equal(own.indices, parts.indices):
            return history.values(self)
        if (
            isinstance(own, Compressed)
            and isinstance(parts, Compressed)
            and _equal(own.starts, parts.starts)
            and _equal(own.others, parts.others)
        ):
            return history.values(self)
    self = coalesce(to_sparse_coo(self))
    own, shape = self._array, self._array.shape[: self._array.sparse_dim]
    have, wanted = flat(own.indices, shape), flat(coordinates(parts), shape)
    values = history.values(self)
    if not have.shape[0]:
        return values.new_zeros((wanted.shape[0], *values.shape[1:]))
    at = OPS["searchsorted"](have, wanted).clamp_max(have.shape[0] - 1)
    missing = (have[at] != wanted).reshape(-1, *[1] * (values.dim() - 1))
    return values[at].masked_fill(missing, 0)


def _equal(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.shape == b.shape and a._array is b._array) or (a.shape == b.shape and bool((a == b).all()))


# -- between layouts ---------------------------------------------------------------------------------------------------


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The tensor with all its elements, zeros included. Its gradient is read off at the places that are stored."""
    if not isinstance(self, SparseTensor):
        return self if dtype is None else self.to(dtype)
    parts = self._array
    with modes.no_grad():
        if not parts.sparse_dim:
            result = parts.values.sum(0, dtype=self.dtype)
        else:
            result = parts.values.new_zeros(parts.shape)
            once = not isinstance(parts, Coo) or parts.coalesced
            if parts.nnz:
                result.index_put_(tuple(coordinates(parts).unbind(0)), parts.values, accumulate=not once)
    mask = self.detach()
    result = history.recorded(result, "ToDenseBackward0", (self,), (lambda grad: sparse_mask(grad, coalesced_if_coo(mask)),))
    return result if dtype is None else result.to(dtype)


def coalesced_if_coo(self: SparseTensor) -> SparseTensor:
    """A tensor none of whose places stand twice; compressed ones never do."""
    return coalesce(self) if self.is_sparse else self


def to_sparse(
    self: Tensor, *args: Any, sparse_dim: int | None = None, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None
):
    """The tensor with only the elements that are not zero: to_sparse(sparse_dim), or to_sparse(layout=torch.sparse_csr)."""
    if args:
        if len(args) > 1 or sparse_dim is not None:
            raise TypeError("to_sparse() takes sparse_dim or layout=, not both")
        sparse_dim = args[0]
    if isinstance(sparse_dim, layouts.layout):
        sparse_dim, layout = None, sparse_dim
    if dense_dim:
        raise NotImplementedError(f"to_sparse(dense_dim={dense_dim}): compressed matrices of numbers only are available")
    if layout is layouts.sparse_csr or layout is layouts.sparse_csc:
        return _to_compressed(self, layout)
    if layout in (layouts.sparse_bsr, layouts.sparse_bsc):
        raise NotImplementedError(f"to_sparse(): matrices of blocks ({layout}) are not available. Try torch.sparse_csr")
    if layout not in (None, layouts.sparse_coo):
        raise RuntimeError(f"to_sparse(): expected a sparse layout, found {layout}")
    if isinstance(self, SparseTensor):
        if sparse_dim is not None and sparse_dim != self.sparse_dim():
            raise RuntimeError(f"to_sparse: conversion from {self.layout} to torch.sparse_coo with another sparse_dim is not supported")
        return to_sparse_coo(self)
    return _from_dense(self, self.dim() if sparse_dim is None else sparse_dim, sparse_dim is not None)


def _from_dense(self: Tensor, sparse_dim: int, said: bool) -> SparseTensor:
    if not (0 < sparse_dim <= self.dim() or sparse_dim == self.dim() == 0):
        raise RuntimeError(f"sparse_dim must be in range (0, {self.dim()}], got {sparse_dim}")
    with modes.no_grad():
        filled = self.detach() != 0
        if sparse_dim < self.dim():
            filled = filled.reshape(*self.shape[:sparse_dim], -1).any(-1)
        indices = filled.nonzero().t().contiguous()
        values = self.detach()[filled] if sparse_dim else self.detach().reshape(1)[: indices.shape[1]]
        result = wrapped(Coo(indices, values, self.shape, True))
    return history.recorded(result, "ToSparseBackward0" if said else "ToSparseBackward1", (self,), (lambda grad: to_dense(grad),))


def to_sparse_coo(self: Tensor) -> Any:
    """The tensor by its coordinates."""
    if not isinstance(self, SparseTensor):
        return to_sparse(self)
    if self.is_sparse:
        return self
    parts, layout = self._array, self.layout
    with modes.no_grad():
        result = wrapped(Coo(coordinates(parts), parts.values, parts.shape, layout is layouts.sparse_csr))
        result = result if layout is layouts.sparse_csr else coalesce(result)
    return history.recorded(result, "ToSparseBackward1", (self,), (lambda grad: to_layout(grad, layout),))


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Any:
    """The matrix by its rows."""
    return to_sparse(self, layout=layouts.sparse_csr, dense_dim=dense_dim)


def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Any:
    """The matrix by its columns."""
    return to_sparse(self, layout=layouts.sparse_csc, dense_dim=dense_dim)


def _to_compressed(self: Tensor, layout: layouts.layout) -> SparseTensor:
    if isinstance(self, SparseTensor) and self.layout is layout:
        return self
    if self.dim() != 2 or (isinstance(self, SparseTensor) and self.dense_dim()):
        raise NotImplementedError(f"to_sparse(layout={layout}): only matrices of numbers are available, found shape {tuple(self.shape)}")
    before = self.layout
    with modes.no_grad():
        coo = coalesce(to_sparse_coo(self.detach()))._array
        result = wrapped(compressed(coo, layout))
    name = "ToSparseCsrBackward0" if layout is layouts.sparse_csr else "ToSparseCscBackward0"
    return history.recorded(result, name, (self,), (lambda grad: to_layout(grad, before),))


def compressed(coo: Coo, layout: layouts.layout) -> Compressed:
    """A coalesced matrix by rows or columns."""
    row, col = coo.indices.unbind(0)
    if layout is layouts.sparse_csr:
        return Compressed(layout, start_of_rows(row, coo.shape[0]), col, coo.values, coo.shape)
    found, order = col.sort(stable=True)
    return Compressed(layout, start_of_rows(found, coo.shape[1]), row[order], coo.values[order], coo.shape)


def to_layout(self: Tensor, layout: layouts.layout) -> Tensor:
    """A tensor in any layout."""
    if layout is layouts.strided:
        return to_dense(self)
    return self if self.layout is layout else to_sparse(self, layout=layout)


def to_blocks(self: Tensor, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """Not available: matrices of blocks."""
    raise NotImplementedError("to_sparse_bsr and to_sparse_bsc: matrices of blocks are not available. Try to_sparse_csr()")


def sparse_mask(self: Tensor, mask: Tensor) -> SparseTensor:
    """The elements at the places that `mask`, a sparse tensor, stores."""
    if not isinstance(mask, SparseTensor):
        raise NotImplementedError("sparse_mask(): expected mask to have a sparse layout, found torch.strided. Try mask.to_sparse()")
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has {list(mask.shape)}"
        )
    parts, layout = mask._array, self.layout
    with modes.no_grad():
        result = wrapped(parts.with_values(values_at(self.detach(), parts)))

    def derivative(grad: Tensor) -> Tensor:
        return to_layout(history.build(parts, values_at(grad, parts)), layout)

    return history.recorded(result, "SparseMaskBackward0", (self,), (derivative,))
