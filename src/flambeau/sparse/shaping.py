"""Sparse tensors in other shapes, and parts of them."""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.kernels import layout
from flambeau.ops import OPS
from flambeau.ops.promotion import promoted
from flambeau.sparse import history
from flambeau.sparse.conversion import coalesce, to_sparse_coo
from flambeau.sparse.dispatch import refusal, rule
from flambeau.sparse.parts import BY_COLUMNS, BY_ROWS, OF_BLOCKS, Compressed, Coo, SparseTensor, wrapped
from flambeau.tensor import Tensor


@rule("permute")
def permute(input: SparseTensor, *args: Any, dims: Any = None) -> SparseTensor:
    """The dimensions in another order, sparse ones among themselves and dense ones among themselves."""
    dims = dims if not args else args[0] if len(args) == 1 and not hasattr(args[0], "__index__") else args
    parts, sparse_dim = input._array, input.sparse_dim()
    if len(dims) != input.dim():
        counts = f"{input.dim()} and {len(dims)}"
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions does not match the length of the desired order of dimensions: {counts}"
        )
    order = [layout.wrap_dim(d, input.dim()) for d in dims]
    if len(set(order)) != len(order):
        raise RuntimeError(f"permute(sparse_coo): duplicate dims are not allowed, found {tuple(dims)}")
    if isinstance(parts, Compressed):
        return _reordered(input, list(order))
    if sorted(order[:sparse_dim]) != list(range(sparse_dim)):
        raise RuntimeError(
            f"transpositions between sparse and dense dimensions are not allowed, found {tuple(order)}, of which the first "
            f"{sparse_dim} are sparse"
        )
    with modes.no_grad():
        indices = parts.indices if list(order[:sparse_dim]) == list(range(sparse_dim)) else parts.indices[list(order[:sparse_dim])]
        values = parts.values.permute(0, *[d - sparse_dim + 1 for d in order[sparse_dim:]])
        # PyTorch looks at the first dimension as it was given, so that -4 of 4 dimensions forgets that the order is kept.
        kept = parts.coalesced and list(order[:sparse_dim]) == list(range(sparse_dim)) and not any(d < 0 for d in dims[:1])
        result = wrapped(Coo(indices, values, tuple(parts.shape[d] for d in order), kept))
    back = [list(order).index(d) for d in range(len(order))]
    return history.recorded(result, "PermuteBackward0", (input,), (lambda grad: grad.permute(back),))


def _reordered(x: SparseTensor, order: list[int]) -> SparseTensor:
    """permute of a compressed tensor, by one exchange of dimensions after the other."""
    now = list(range(len(order)))
    for d, wanted in enumerate(order):
        other = now.index(wanted)
        if other != d:
            x, now[d], now[other] = _turned(x, d, other), now[other], now[d]
    return x


@rule("transpose")
def transpose(input: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    first, second = (layout.wrap_dim(d, input.dim()) for d in (dim0, dim1))
    if isinstance(input._array, Compressed):
        return _turned(input, first, second)
    order = list(range(input.dim()))
    order[first], order[second] = second, first
    return history.renamed(permute(input, order), "TransposeBackward0")


@rule("_t")
def t(input: SparseTensor) -> SparseTensor:
    return history.renamed(transpose(input, 0, 1), "TBackward0") if input.dim() == 2 else input


OTHER = dict(zip(BY_ROWS + BY_COLUMNS, BY_COLUMNS + BY_ROWS, strict=True))


def _turned(x: SparseTensor, first: int, second: int) -> SparseTensor:
    """The columns of a matrix are the rows of its transpose: nothing moves, but for the elements within blocks."""
    parts = x._array
    kinds = [_kind(parts, d) for d in (first, second)]
    if kinds[0] != kinds[1]:
        found = f"got {first}({kinds[0]}) and {second}({kinds[1]})"
        raise RuntimeError(f"transpose(): can only transpose dimensions of the same type (Batch, Sparse, Dense), {found}")
    if first == second:
        return x
    shape = list(parts.shape)
    shape[first], shape[second] = shape[second], shape[first]
    kept, starts, others, values = parts.layout, parts.starts, parts.others, parts.values
    if kinds[0] == "Batch":
        starts, others, values = (t.transpose(first, second) for t in (starts, others, values))
    elif kinds[0] == "Dense":
        values = values.transpose(first - parts.ndim, second - parts.ndim)
    else:
        kept = OTHER[kept]
        values = values.transpose(parts.batch_dim + 1, parts.batch_dim + 2) if kept in OF_BLOCKS else values
    result = wrapped(Compressed(kept, starts, others, values, shape))
    return history.recorded(result, "TransposeBackward0", (x,), (lambda grad: grad.transpose(first, second),))


def _kind(parts: Compressed, dim: int) -> str:
    return "Batch" if dim < parts.batch_dim else "Sparse" if dim < parts.batch_dim + 2 else "Dense"


@rule("unsqueeze")
def unsqueeze(input: SparseTensor, dim: int) -> SparseTensor:
    x = _only_coo("unsqueeze", input)
    dim = layout.wrap_dim(dim, x.dim() + 1)
    parts, sparse_dim = x._array, x.sparse_dim()
    shape = (*parts.shape[:dim], 1, *parts.shape[dim:])
    if dim > sparse_dim:
        values = history.values(x).unsqueeze(dim - sparse_dim + 1)
        return history.build(Coo(parts.indices, values.detach(), shape, parts.coalesced), values, "UnsqueezeBackward0")
    zeros = parts.indices.new_zeros((1, parts.nnz))
    indices = OPS["cat"]([parts.indices[:dim], zeros, parts.indices[dim:]])
    return history.build(Coo(indices, parts.values, shape, parts.coalesced), history.values(x), "UnsqueezeBackward0")


def _only_coo(name: str, x: SparseTensor) -> SparseTensor:
    """A COO tensor, coalesced if its gradient is wanted: only then do its values have one."""
    if not x.is_sparse:
        raise refusal(name, (x,))
    return coalesce(x) if x.requires_grad and modes.state.grad else x


@rule("cat", "concat", "concatenate")
def cat(tensors: Any, dim: int = 0) -> SparseTensor:
    for i, t in enumerate(tensors):
        if not isinstance(t, SparseTensor):
            raise RuntimeError(f"Concatenating sparse tensors, but a dense tensor was found at position {i}.")
    tensors = [_only_coo("cat", t) for t in tensors]
    first, dim = tensors[0]._array, layout.wrap_dim(dim, tensors[0].dim())
    sparse = first.sparse_dim
    for i, t in enumerate(tensors[1:], 1):
        other = t._array
        if other.sparse_dim != sparse or other.ndim != first.ndim:
            found = f"{sparse}, {first.dense_dim}, but tensor at position {i} has {other.sparse_dim}, {other.dense_dim}"
            raise RuntimeError(f"All tensors must have the same numbers of sparse and dense dimensions: {found}.")
        if any(a != b for d, (a, b) in enumerate(zip(first.shape, other.shape, strict=True)) if d != dim):
            found = f"{list(first.shape)} (except in the concatenating dimension), but tensor at position {i} has shape {list(other.shape)}"
            raise RuntimeError(f"All tensors must have the same shape: {found}")
    common = promoted(*tensors)
    join, shifted, elements, begin = OPS["cat"], [], [], 0
    total = sum(t._array.shape[dim] for t in tensors)
    for t in tensors:
        indices, values, end = t._array.indices.clone(), history.values(t).to(common), begin + t._array.shape[dim]
        if dim < sparse:
            indices[dim] += begin
        else:  # each element, with zeros on either side
            before, behind = ([*values.shape] for _ in range(2))
            before[dim - sparse + 1], behind[dim - sparse + 1] = begin, total - end
            values = join([values.new_zeros(before), values, values.new_zeros(behind)], dim - sparse + 1)
        shifted.append(indices)
        elements.append(values)
        begin = end
    values = join(elements)
    shape = (*first.shape[:dim], total, *first.shape[dim + 1 :])
    return history.build(Coo(join(shifted, 1), values.detach(), shape, False), values, "CatBackward0")


@rule("stack", "_stack")
def stack(tensors: Any, dim: int = 0) -> SparseTensor:
    if not all(isinstance(t, SparseTensor) for t in tensors):
        raise refusal("stack of sparse and dense tensors", (tensors,))
    dim = layout.wrap_dim(dim, tensors[0].dim() + 1)
    return cat([unsqueeze(t, dim) for t in tensors], dim)


@rule("select")
def select(input: SparseTensor, dim: int, index: int) -> Tensor:
    parts, dim = input._array, layout.wrap_dim(dim, input.dim())
    if isinstance(parts, Compressed) and _kind(parts, dim) == "Sparse" and parts.batch_dim:
        raise RuntimeError("select(): selecting sparse dimensions is not supported for batched sparse compressed tensors.")
    if isinstance(parts, Compressed) and _kind(parts, dim) != "Sparse":
        at = dim if dim < parts.batch_dim else dim - parts.ndim
        starts, others = (t.select(dim, index) if at >= 0 else t for t in (parts.starts, parts.others))
        shape = (*parts.shape[:dim], *parts.shape[dim + 1 :])
        values = history.values(input).select(at, index)
        return history.build(Compressed(parts.layout, starts, others, values.detach(), shape), values, "SelectBackward0")
    x = to_sparse_coo(input)
    x = coalesce(x) if x.requires_grad or not input.is_sparse else x
    parts = x._array
    size, index = parts.shape[dim], int(index)
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(parts.shape)} at dimension {dim}")
    index %= size
    shape = (*parts.shape[:dim], *parts.shape[dim + 1 :])
    values = history.values(x)
    if dim >= parts.sparse_dim:
        values = values.select(dim - parts.sparse_dim + 1, index)
        return history.build(Coo(parts.indices, values.detach(), shape, parts.coalesced), values, "SelectBackward0")
    here = (parts.indices[dim] == index).nonzero().squeeze(1)
    values = values.index_select(0, here)
    if parts.sparse_dim == 1:
        return values.sum(0, dtype=values.dtype)
    kept = [d for d in range(parts.sparse_dim) if d != dim]
    return history.build(Coo(parts.indices[kept][:, here], values.detach(), shape, parts.coalesced), values, "SelectBackward0")


@rule("getitem")
def getitem(self: SparseTensor, index: Any) -> Tensor:
    found, dim = self, 0
    for entry in index if isinstance(index, tuple) else (index,):
        if entry is Ellipsis:
            dim = -1
        elif isinstance(entry, slice) and entry == slice(None):
            dim += 1
        elif hasattr(entry, "__index__") and not isinstance(entry, bool) and not getattr(entry, "ndim", 0):
            found = found.select(dim, entry)
        elif entry is None:
            found = found.unsqueeze(dim)
            dim += 1
        else:
            raise NotImplementedError(
                f"x[{entry!r}] of a sparse tensor: whole numbers, None and : are available. Try index_select or to_dense()"
            )
    return found


@rule("select_copy")
def select_copy(input: SparseTensor, dim: int, index: int) -> Tensor:
    return select(input, dim, index).clone()


@rule("__setitem__")
def setitem(self: SparseTensor, index: Any, value: Any) -> None:
    raise TypeError("Cannot assign to a sparse tensor. Try to_dense(), or a new tensor of other values")


@rule("unbind")
def unbind(input: SparseTensor, dim: int = 0) -> tuple:
    dim = layout.wrap_dim(dim, input.dim())
    return tuple([select(input, dim, i) for i in range(input.shape[dim])])


@rule("index_select")
def index_select(input: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    from flambeau.sparse.products import joined

    x = _only_coo("index_select", input)
    parts, dim = x._array, layout.wrap_dim(dim, x.dim())
    shape = (*parts.shape[:dim], index.shape[0], *parts.shape[dim + 1 :])
    if dim >= parts.sparse_dim:
        values = history.values(x).index_select(dim - parts.sparse_dim + 1, index)
        return history.build(Coo(parts.indices, values.detach(), shape, parts.coalesced), values, "IndexSelectBackward0")
    with modes.no_grad():
        size = parts.shape[dim]
        if index.shape[0] and not bool(((index >= -size) & (index < size)).all()):
            raise IndexError(f"index_select(): index out of range for dimension {dim} of size {size}")
        index = index.masked_fill(index < 0, 0) + (index % max(size, 1)).masked_fill(
            index >= 0, 0
        )  # -1 is the last, for sparse tensors only
        find = OPS["searchsorted"]
        at, order = parts.indices[dim].sort(stable=True)
        position, place = joined(find(at, index), find(at, index, right=True))
        place = order[place]
        indices = parts.indices[:, place]
        indices[dim] = position
    values = history.values(x).index_select(0, place)
    return history.build(Coo(indices, values.detach(), shape, False), values, "IndexSelectBackward0")


@rule("narrow_copy", "narrow")
def narrow_copy(input: SparseTensor, dim: int, start: int, length: int) -> SparseTensor:
    x = _only_coo("narrow_copy", input)
    parts = x._array
    if not 0 <= dim < x.dim():
        raise RuntimeError(f"narrow_copy: Dimension {dim} out of range. Expecting 0 <= dim < {x.dim()}.")
    if not 0 <= start <= start + length <= parts.shape[dim]:
        raise RuntimeError(f"narrow_copy: invalid range from {start} of length {length} for dimension {dim} of size {parts.shape[dim]}")
    shape = (*parts.shape[:dim], length, *parts.shape[dim + 1 :])
    values = history.values(x)
    if dim >= parts.sparse_dim:
        values = values.narrow(dim - parts.sparse_dim + 1, start, length).clone()
        return history.build(Coo(parts.indices, values.detach(), shape, parts.coalesced), values)
    here = ((parts.indices[dim] >= start) & (parts.indices[dim] < start + length)).nonzero().squeeze(1)
    indices = parts.indices[:, here]
    indices[dim] -= start
    values = values.index_select(0, here)
    return history.build(Coo(indices, values.detach(), shape, parts.coalesced), values)


# -- in place ----------------------------------------------------------------------------------------------------------


def _own_coo(name: str, x: Tensor) -> Coo:
    if not isinstance(x, SparseTensor):
        raise RuntimeError(f"{name}: expected a tensor of layout torch.sparse_coo, found torch.strided")
    return x._coo(name)


def sparse_resize_(self: SparseTensor, size: Any, sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Give a COO tensor another size, at least its own; its elements stay."""
    parts, shape = _own_coo("sparse_resize_", self), tuple(size)
    if len(shape) != sparse_dim + dense_dim:
        raise RuntimeError(f"number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}), but got {len(shape)}")
    if parts.nnz and (sparse_dim != parts.sparse_dim or any(a < b for a, b in zip(shape, parts.shape, strict=False))):
        raise RuntimeError(
            f"a non-empty sparse tensor can only grow, with the same dimensions: from {list(parts.shape)} to {list(shape)} is not that"
        )
    if not parts.nnz:
        return sparse_resize_and_clear_(self, size, sparse_dim, dense_dim)
    values = parts.values
    if shape[sparse_dim:] != parts.shape[sparse_dim:]:
        wider = values.new_zeros((parts.nnz, *shape[sparse_dim:]))
        wider[tuple(slice(n) for n in values.shape)] = values
        values = wider
    self._array = Coo(parts.indices, values, shape, parts.coalesced)
    self._bump()
    return self


def sparse_resize_and_clear_(self: SparseTensor, size: Any, sparse_dim: int, dense_dim: int) -> SparseTensor:
    """Give a COO tensor another size and no elements."""
    from flambeau.sparse.making import empty_parts

    _own_coo("sparse_resize_and_clear_", self)
    if len(tuple(size)) != sparse_dim + dense_dim:
        raise RuntimeError(f"number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}), but got {len(tuple(size))}")
    self._array = empty_parts(tuple(size), self.dtype, self.device, sparse_dim)
    self._bump()
    return self


def resize_as_sparse_(self: SparseTensor, other: SparseTensor) -> SparseTensor:
    """Give a COO tensor the size of another."""
    return sparse_resize_(self, other.shape, other.sparse_dim(), other.dense_dim())
