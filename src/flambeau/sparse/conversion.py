"""Between layouts: dense, coordinates (COO), rows and columns (CSR, CSC) and those of blocks (BSR, BSC); coalescing; and reading off elements
at given places. Between two sparse layouts the way is by coordinates: `coordinates` unfolds any layout, `compressed` folds it.

A conversion changes how a tensor is stored and not what it means, so its gradient passes as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from flambeau import dtypes, modes
from flambeau.ops import OPS
from flambeau.ops.sparse_products import grouped, row_of_places, start_of_rows
from flambeau.sparse import history
from flambeau.sparse.parts import KINDS, OF_BLOCKS, Compressed, Coo, Parts, SparseTensor, wrapped
from flambeau.tensor import Tensor, layouts
from flambeau.tensor.making.ranges import arange


def _same(grad: Tensor, *saved: Any) -> Tensor:
    return grad


# -- coordinates -------------------------------------------------------------------------------------------------------


def flat(indices: Tensor | Sequence[Tensor], shape: tuple) -> Tensor:
    """One number for each column of the indices, in row-major order of the places. (D, nnz) -> (nnz)."""
    if not len(indices):
        return indices.new_zeros(indices.shape[1])  # type: ignore[union-attr]
    key = indices[0]
    for d in range(1, len(indices)):
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
    """The indices of all stored elements of a tensor of any sparse layout, in the order of `parts.elements`. -> (D, n)."""
    if isinstance(parts, Coo):
        return parts.indices
    assert isinstance(parts, Compressed)
    batch, lines = parts.shape[: parts.batch_dim], parts.starts.shape[-1] - 1
    line, other = row_of_places(_one_after_the_other(parts)).long(), parts.others.reshape(-1).long()
    rows = list(unflat(line // max(lines, 1), batch).unbind(0)) if batch else []
    line = line % max(lines, 1) if batch else line
    rows += [line, other] if parts.by_rows else [other, line]
    if parts.layout in OF_BLOCKS:
        (high, wide), at = parts.block, {"device": line.device}
        rows = [r.reshape(-1, 1, 1) for r in rows]
        rows[-2], rows[-1] = rows[-2] * high + arange(high, **at).reshape(-1, 1), rows[-1] * wide + arange(wide, **at)
        rows = [r.expand(-1, high, wide).reshape(-1) for r in rows]
    return OPS["stack"](rows)


def _one_after_the_other(parts: Compressed) -> Tensor:
    """Where each line begins, if the matrices of a batch are seen as one, each below the one before. -> (batches * lines + 1)."""
    if not parts.batch_dim:
        return parts.starts
    starts, nnz = parts.starts.reshape(-1, parts.starts.shape[-1]), parts.nnz
    shifted = starts[:, :-1] + arange(starts.shape[0], dtype=starts.dtype, device=starts.device).unsqueeze(1) * nnz
    return OPS["cat"]([shifted.reshape(-1), starts.new_full((1,), starts.shape[0] * nnz)])


def values_at(self: Tensor, parts: Parts) -> Tensor:
    """The elements of a tensor, sparse or dense, at the places of `parts`. -> the shape of its values."""
    if isinstance(self, SparseTensor) and same_places(self._array, parts):
        return history.values(self)
    where = coordinates(parts)
    shape = (*parts.value.shape[: parts.value.dim() - parts.dense_dim], *self.shape[where.shape[0] :])
    if isinstance(self, SparseTensor) and self._array.batch_dim + self.sparse_dim() != where.shape[0]:
        self = to_dense(self)
    if not isinstance(self, SparseTensor):
        return self[tuple(where.unbind(0))].reshape(shape) if where.shape[0] else self.expand(shape)
    self = coalesce(to_sparse_coo(self))
    own, size = self._array, self._array.shape[: self._array.sparse_dim]
    have, wanted = flat(own.indices, size), flat(where, size)
    values = history.values(self)
    if not have.shape[0]:
        return values.new_zeros(shape)
    at = OPS["searchsorted"](have, wanted).clamp_max(have.shape[0] - 1)
    missing = (have[at] != wanted).reshape(-1, *[1] * (values.dim() - 1))
    return values[at].masked_fill(missing, 0).reshape(shape)


def same_places(a: Parts, b: Parts) -> bool:
    """Whether two tensors of one layout store the same elements, in the same order."""
    if isinstance(a, Coo) and isinstance(b, Coo):
        return a.coalesced and a.nnz == b.nnz and _equal(a.indices, b.indices)
    if not isinstance(a, Compressed) or not isinstance(b, Compressed) or a.layout is not b.layout or a.block != b.block:
        return False
    return _equal(a.starts, b.starts) and _equal(a.others, b.others)


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
            if parts.values.numel():
                result.index_put_(tuple(coordinates(parts).unbind(0)), parts.elements, accumulate=not once)
    mask = self.detach()
    derivative = _same if masked_grad is False else lambda grad: sparse_mask(grad, coalesced_if_coo(mask))
    result = history.recorded(result, "ToDenseBackward0", (self,), (derivative,))
    return result if dtype is None else result.to(dtype)


def coalesced_if_coo(self: SparseTensor) -> SparseTensor:
    """A tensor none of whose places stand twice; compressed ones never do."""
    return coalesce(self) if self.is_sparse else self


def to_sparse(
    self: Tensor, *args: Any, sparse_dim: int | None = None, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None
):
    """The tensor with only the elements that are not zero: to_sparse(sparse_dim), or to_sparse(layout=torch.sparse_csr)."""
    if args:
        if len(args) > 1 or sparse_dim is not None or (layout is not None and not isinstance(args[0], layouts.layout)):
            raise TypeError("to_sparse() takes sparse_dim or layout=, not both")
        sparse_dim = args[0]
    if isinstance(sparse_dim, layouts.layout):
        sparse_dim, layout = None, sparse_dim
    layout = layouts.sparse_coo if layout is None else layout
    blocksize = (blocksize, blocksize) if hasattr(blocksize, "__index__") else blocksize
    name = _conversion(self, layout)
    if blocksize is not None and len(blocksize) != 2:
        raise RuntimeError(f"{name}: blocksize is a tuple of size 2, but got {len(blocksize)}")
    words = f"{name}: conversion from {KINDS[self.layout]} to {KINDS[layout]}"
    if (blocksize is not None) != (layout in OF_BLOCKS) and (layout is not self.layout or blocksize is not None):
        raise RuntimeError(f"{words} with{'out' if blocksize is None else ''} blocksize argument given is not supported")
    if layout is layouts.strided:
        if dense_dim:
            raise RuntimeError(f"{name}: dense_dim argument must be in [0,0] range, but {dense_dim} is given")
        return to_dense(self)
    if isinstance(self, SparseTensor):
        if dense_dim is not None:
            raise RuntimeError(f"{words} with dense_dim argument given is not supported")
        if sparse_dim is not None and sparse_dim != self.sparse_dim():
            expected = "self.sparse_dim()" if self.is_sparse else 2
            raise RuntimeError(f"{words} with sparse_dim argument !={expected} is not supported")
    if layout is layouts.sparse_coo:
        if isinstance(self, SparseTensor):
            return to_sparse_coo(self)
        sparse_dim = self.dim() - dense_dim if dense_dim is not None else sparse_dim
        return _from_dense(self, self.dim() if sparse_dim is None else sparse_dim, sparse_dim is not None)
    return _to_compressed(self, layout, blocksize, dense_dim or 0)


def _conversion(self: Tensor, layout: layouts.layout) -> str:
    """The name of a conversion in messages."""
    if layout is self.layout or layout not in KINDS:
        return "to_sparse"
    origin = "dense" if not isinstance(self, SparseTensor) else "coo" if self.is_sparse else "sparse_compressed"
    return f"{origin}_to_sparse" + ("" if layout is layouts.sparse_coo else f"_{KINDS[layout][6:].lower()}")


def _from_dense(self: Tensor, sparse_dim: int, said: bool) -> SparseTensor:
    if not (0 < sparse_dim <= self.dim() or sparse_dim == self.dim() == 0):
        raise RuntimeError(f"sparse_dim must be in range (0, {self.dim()}], got {sparse_dim}")
    with modes.no_grad():
        indices, values = _nonzero(self.detach(), sparse_dim)
        result = wrapped(Coo(indices, values, self.shape, True))
    return history.recorded(result, "ToSparseBackward0" if said else "ToSparseBackward1", (self,), (to_dense,))


def _nonzero(dense: Tensor, dims: int) -> tuple[Tensor, Tensor]:
    """(the places, in the first dimensions, where not all elements are zero; the elements there)."""
    filled = dense != 0
    if dims < dense.dim():
        filled = filled.reshape(*dense.shape[:dims], -1).any(-1) if dense.numel() else dense.new_zeros(dense.shape[:dims]).bool()
    indices = filled.nonzero().t().contiguous()
    return indices, dense[filled] if dims else dense.reshape(1)[: indices.shape[1]]


def to_sparse_coo(self: Tensor) -> Any:
    """The tensor by its coordinates."""
    if not isinstance(self, SparseTensor):
        return to_sparse(self)
    if self.is_sparse:
        return self
    parts = self._array
    with modes.no_grad():
        result = wrapped(Coo(coordinates(parts), parts.elements, parts.shape, self.layout is layouts.sparse_csr))
    return history.recorded(result, "ToSparseBackward1", (self,), (lambda grad: in_layout_of(grad, parts),))


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Any:
    """The matrix, or the last two dimensions before the dense ones, by rows."""
    return to_sparse(self, layout=layouts.sparse_csr, dense_dim=dense_dim)


def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Any:
    """The matrix, or the last two dimensions before the dense ones, by columns."""
    return to_sparse(self, layout=layouts.sparse_csc, dense_dim=dense_dim)


def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Any:
    """The matrix by rows of blocks, of those that are not all zero."""
    return to_sparse(self, layout=layouts.sparse_bsr, blocksize=blocksize, dense_dim=dense_dim)


def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Any:
    """The matrix by columns of blocks, of those that are not all zero."""
    return to_sparse(self, layout=layouts.sparse_bsc, blocksize=blocksize, dense_dim=dense_dim)


def _to_compressed(self: Tensor, layout: layouts.layout, blocksize: Any, dense_dim: int) -> SparseTensor:
    _check_conversion(self, layout, blocksize, dense_dim)
    if self.layout is layout:
        return self  # type: ignore[return-value]
    before = self._array if isinstance(self, SparseTensor) else None
    result = _folded(self, layout, blocksize, dense_dim)
    name = "ToSparse" + KINDS[layout][6:] + "Backward0"
    return history.recorded(result, name, (self,), (lambda grad: in_layout_of(grad, before),))


def _folded(self: Tensor, layout: layouts.layout, blocksize: Any, dense_dim: int = 0) -> SparseTensor:
    """The tensor in a compressed layout, without history."""
    block = tuple(blocksize) if layout in OF_BLOCKS else None
    with modes.no_grad():
        if not isinstance(self, SparseTensor):
            indices, values = _nonzero(self.detach(), self.dim() - dense_dim)
            return wrapped(compressed(indices, values, tuple(self.shape), layout, block))
        parts = coalesce(self.detach())._array if self.is_sparse else self._array
        return wrapped(compressed(coordinates(parts), parts.elements, parts.shape, layout, block, getattr(parts, "starts", None)))


def _check_conversion(self: Tensor, layout: layouts.layout, blocksize: Any, dense_dim: int) -> None:
    """RuntimeError for the conversions that PyTorch has not."""
    name, origin, target = _conversion(self, layout), KINDS[self.layout], KINDS[layout]
    words = f"conversion from {origin} to {target}"
    parts = self._array if isinstance(self, SparseTensor) else None
    if parts is None and not 0 <= dense_dim <= self.dim() - 2:
        if self.dim() < 2:
            raise IndexError(f"{name}: a matrix has two dimensions, found shape {list(self.shape)}")
        raise RuntimeError(f"{name}: dense_dim argument must be in [0,{self.dim() - 2}] range, but {dense_dim} is given")
    if isinstance(parts, Coo) and parts.sparse_dim != 2:
        raise RuntimeError(f"{name}: {words} for input tensors with sparse_dim()!=2 is not supported")
    if layout not in OF_BLOCKS or blocksize is None:
        if self.layout in OF_BLOCKS and self.layout is not layout:
            raise RuntimeError(f"{name}: expected SparseCsr or SparseCsc layout but got {origin}")
        return
    if min(blocksize) <= 0:
        raise RuntimeError(f"{name}: blocksize needs to be positive, but got {list(blocksize)}")
    if isinstance(parts, Compressed) and parts.layout in OF_BLOCKS and tuple(parts.block) != tuple(blocksize):
        name = "to_sparse_bsr" if parts.layout is layout is layouts.sparse_bsr else "to_sparse_bsc" if parts.layout is layout else name
        changed = f"with blocksize changed from {list(parts.block)} to {list(blocksize)}"
        raise RuntimeError(f"{name}: {words} {changed} is not supported")
    if isinstance(parts, Compressed) and parts.layout not in OF_BLOCKS and parts.batch_dim:
        raise RuntimeError(f"{name}: {words} for batched inputs is not supported")
    first = 0 if isinstance(parts, Coo) else parts.batch_dim if parts is not None else self.dim() - dense_dim - 2
    rows, columns = self.shape[first : first + 2]
    if rows % blocksize[0] or columns % blocksize[1]:
        given = f"({blocksize[0]},{blocksize[1]})"
        raise RuntimeError(f"{name}: tensor sparse size ({rows},{columns}) must be divisible by given blocksize {given}")


def compressed(
    indices: Tensor, values: Tensor, shape: tuple, layout: layouts.layout, block: tuple | None = None, like: Tensor | None = None
) -> Compressed:
    """Elements, none of which stands twice, by rows or columns. All but the last two indices count matrices of a batch.

    block  the size of the blocks, if it is to be those that are stored; like  a tensor of indices whose dtype those of the result have
    """
    *batch_indices, row, col = indices.unbind(0)
    *batch, rows, columns = shape[: indices.shape[0]]
    high, wide = block or (1, 1)
    by_rows = layout in (layouts.sparse_csr, layouts.sparse_bsr)
    line, other = (row // high, col // wide) if by_rows else (col // wide, row // high)
    lines, across = (rows // high, columns // wide) if by_rows else (columns // wide, rows // high)
    keys = flat([*batch_indices, line, other], (*batch, lines, across))
    if block is not None:
        keys, place, order = grouped(keys)
        stored = values.new_zeros((keys.shape[0], high, wide, *values.shape[1:]))
        stored[place, (row % high)[order], (col % wide)[order]] = values[order]
    elif not bool((keys[1:] > keys[:-1]).all()):
        keys, order = keys.sort()
        stored = values[order]
    else:
        stored = values
    number = prod(batch)
    ends = start_of_rows(keys // max(across, 1), number * lines)
    at = arange(number, device=keys.device).unsqueeze(1) * lines + arange(lines + 1, device=keys.device)
    table = ends[at] - ends[at[:, :1]]
    if not bool((table[:, -1:] == table[:1, -1:]).all()):
        raise RuntimeError("Expect the same number of specified elements per batch.")
    nnz, dtype = keys.shape[0] // max(number, 1), dtypes.int64 if like is None else like.dtype
    starts, others = table.reshape(*batch, lines + 1).to(dtype), (keys % max(across, 1)).reshape(*batch, nnz).to(dtype)
    return Compressed(layout, starts, others, stored.reshape(*batch, nnz, *stored.shape[1:]), shape)


def to_layout(self: Tensor, layout: layouts.layout) -> Tensor:
    """A tensor in any layout but those of blocks."""
    if layout is layouts.strided:
        return to_dense(self)
    return to_sparse_coo(self) if layout is layouts.sparse_coo else to_sparse(self, layout=layout)


def in_layout_of(self: Tensor, parts: Parts | None) -> Tensor:
    """A tensor in the layout that `parts` have, blocks and all; dense if there are none."""
    if parts is None:
        return to_dense(self)
    if isinstance(parts, Coo):
        return to_sparse_coo(self)
    assert isinstance(parts, Compressed)
    own = self._array if isinstance(self, SparseTensor) else None
    if isinstance(own, Compressed) and own.layout is parts.layout and own.block == parts.block:
        return self
    if own is not None and own.batch_dim + own.sparse_dim != parts.batch_dim + 2:
        self, own = to_dense(self), None
    folded = _folded(self, parts.layout, parts.block, parts.dense_dim)
    return history.recorded(folded, "ToSparseBackward1", (self,), (lambda grad: in_layout_of(grad, own),))


def as_rows(self: SparseTensor) -> SparseTensor:
    """A matrix of any sparse layout by rows (CSR): what products work on."""
    if self.layout is layouts.sparse_csr:
        return self
    before = self._array
    result = _folded(self, layouts.sparse_csr, None)
    return history.recorded(result, "ToSparseCsrBackward0", (self,), (lambda grad: in_layout_of(grad, before),))


def sparse_mask(self: Tensor, mask: Tensor) -> SparseTensor:
    """The elements at the places that `mask`, a sparse tensor, stores."""
    if not isinstance(mask, SparseTensor):
        raise NotImplementedError("sparse_mask(): expected mask to have a sparse layout, found torch.strided. Try mask.to_sparse()")
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(f"sparse_mask(): operands have incompatible sizes, {list(self.shape)} and a mask of {list(mask.shape)}")
    parts, own = mask._array, self._array if isinstance(self, SparseTensor) else None
    with modes.no_grad():
        result = wrapped(parts.with_values(values_at(self.detach(), parts)))

    def derivative(grad: Tensor) -> Tensor:
        return in_layout_of(history.build(parts, values_at(grad, parts)), own)

    return history.recorded(result, "SparseMaskBackward0", (self,), (derivative,))
