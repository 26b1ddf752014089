"""Sums, norms and softmax over the elements of sparse tensors."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes, modes
from flambeau.kernels import layout
from flambeau.ops import OPS
from flambeau.sparse import history
from flambeau.sparse.conversion import coalesce, flat, in_layout_of, merged, to_dense, to_sparse_coo, unflat
from flambeau.sparse.dispatch import refusal, rule
from flambeau.sparse.parts import Coo, SparseTensor
from flambeau.tensor import Tensor


def sparse_sum(input: SparseTensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """The sum of all elements, or over some dimensions: sparse, unless no sparse dimension is left. Its gradient is sparse."""
    if not isinstance(input, SparseTensor):
        raise RuntimeError("torch.sparse.sum expects a sparse tensor, found a dense one. Try x.sum()")
    x = coalesce(input)
    parts, values = x._array, history.values(x)
    values = values if dtype is None else values.to(dtype)
    if dim is None:
        return values.sum()
    dims = set(layout.wrap_dims((dim,) if hasattr(dim, "__index__") else dim, x.dim()))
    return _summed(parts, values, dims)


def _summed(parts: Coo, values: Tensor, dims: set[int]) -> Tensor:
    inner = [d - parts.sparse_dim + 1 for d in dims if d >= parts.sparse_dim]
    values = values.sum(inner) if inner else values
    kept = [d for d in range(parts.sparse_dim) if d not in dims]
    if not kept:
        return values.sum(0)
    shape = tuple(parts.shape[d] for d in kept)
    if len(kept) < parts.sparse_dim:
        keys = flat(parts.indices[kept], shape)
        keys, values = merged(keys, values) if parts.nnz > 1 else (keys, values)
        indices = unflat(keys, shape)
    else:
        indices = parts.indices
    return history.build(Coo(indices, values.detach(), (*shape, *values.shape[1:]), True), values, "SparseSumBackward0")


@rule("sum")
def sum(input: SparseTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """As for dense tensors: the gradient of the sum of all elements is dense."""
    if dim is not None and dim != ():
        if not input.is_sparse and not keepdim:
            raise RuntimeError(f"reduction operations on tensors of layout {input.layout} with keepdim=False is unsupported")
        dims = sorted(layout.wrap_dims((dim,) if hasattr(dim, "__index__") else dim, input.dim()))
        dtype = dtypes.int64 if dtype is None and input.dtype.category < dtypes.FLOAT else dtype
        with modes.no_grad():
            found = sparse_sum(to_sparse_coo(input.detach()), dims, dtype)
            for d in dims if keepdim else ():
                found = found.unsqueeze(d)
            found = found if input.is_sparse else in_layout_of(found, input._array)

        def spread(grad: Tensor) -> Tensor:
            grad = to_dense(grad)
            for d in () if keepdim else dims:
                grad = grad.unsqueeze(d)
            return grad.expand(input.shape)

        return history.recorded(found, "SumBackward1", (input,), (spread,))
    shape = input._array.shape
    with modes.no_grad():
        total = input._array.values.sum(dtype=dtype)
    return history.recorded(total, "SumBackward0", (input,), (lambda grad: grad.expand(shape),))


@rule("any")
def any(input: SparseTensor, *dims: Any, **options: Any) -> Tensor:
    if dims or options:
        raise refusal("any over dimensions", (input,))
    return input._array.values.any()


@rule("norm")
def norm(input: SparseTensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    if dtype is not None and p in ("fro", None):
        raise ValueError("dtype argument is not supported in frobenius norm")
    if keepdim:
        raise RuntimeError("norm_sparse currently does not support keepdim=True")
    if dim is not None and sorted(layout.wrap_dims((dim,) if hasattr(dim, "__index__") else dim, input.dim())) != list(range(input.dim())):
        raise RuntimeError("norm_sparse currently only supports full reductions: 'dim' names all dimensions, or none")
    if dtype is not None:
        raise RuntimeError("norm_sparse currently does not support 'dtype' argument")
    return vector_norm(input, 2 if p in ("fro", None) else p)


@rule("linalg.vector_norm")
def vector_norm(x: SparseTensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Of the stored values; the least of them (ord=-inf) is that of the stored ones, too."""
    if dim is not None:
        raise refusal(f"vector_norm of order {ord} over dimensions {dim}", (x,))
    values = history.values(coalesce(to_sparse_coo(x)))
    return OPS["linalg.vector_norm"](values.reshape(-1), ord, dtype=dtype)


# -- softmax -----------------------------------------------------------------------------------------------------------


def softmax(input: SparseTensor, dim: int, dtype: Any = None) -> SparseTensor:
    """Softmax of the stored elements of each line along `dim`: those that are not stored count as minus infinity."""
    return _normalized(input, dim, dtype, logarithm=False)


def log_softmax(input: SparseTensor, dim: int, dtype: Any = None) -> SparseTensor:
    """The logarithm of `softmax`."""
    return _normalized(input, dim, dtype, logarithm=True)


def _normalized(input: SparseTensor, dim: int, dtype: Any, logarithm: bool) -> SparseTensor:
    if not isinstance(input, SparseTensor) or not input.is_sparse:
        raise refusal("sparse.softmax", (input,))
    x = coalesce(input)
    parts, values, dim = x._array, history.values(x), layout.wrap_dim(dim, x.dim())
    values = values if dtype is None else values.to(dtype)
    name = "SparseLogSoftmaxBackward0" if logarithm else "SparseSoftmaxBackward0"
    if dim >= parts.sparse_dim:
        inner = dim - parts.sparse_dim + 1
        return history.build(parts, values.log_softmax(inner) if logarithm else values.softmax(inner), name)
    if not parts.nnz:
        return history.build(parts, values.clone(), name)
    line, lines = _lines(parts, dim)
    at = line.reshape(-1, *[1] * (values.dim() - 1)).expand(values.shape)
    start = values.detach().new_zeros((lines, *values.shape[1:]))
    peak = start.scatter_reduce(0, at, values.detach(), "amax", include_self=False)
    shifted = values - peak[line]
    weights = shifted.exp()
    total = start.index_add(0, line, weights)
    return history.build(parts, shifted - total.log()[line] if logarithm else weights / total[line], name)


def _lines(parts: Coo, dim: int) -> tuple[Tensor, int]:
    """(the line along `dim` that each element is in, how many such lines there are)."""
    kept = [d for d in range(parts.sparse_dim) if d != dim]
    if not kept:
        return parts.indices.new_zeros(parts.nnz), 1
    keys = flat(parts.indices[kept], tuple(parts.shape[d] for d in kept))
    found, line = OPS["unique"](keys, return_inverse=True)
    return line, found.shape[0]
