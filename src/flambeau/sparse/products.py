"""Products of matrices of which one or both are sparse.

All come down to `rows_product` (ops/sparse_products.py), rows of a sparse matrix times a dense one. `torch.mm` and its like give the whole
gradient of the sparse matrix, a dense one; those of `torch.sparse` only its elements at the places that are stored.
"""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.eager.overrides import overridable
from flambeau.ops import OPS
from flambeau.ops.sparse_products import row_dots, row_of_places, rows_product, start_of_rows
from flambeau.sparse import history
from flambeau.sparse.conversion import (
    as_rows,
    coalesce,
    coalesced_if_coo,
    coordinates,
    in_layout_of,
    merged,
    to_sparse,
    to_sparse_coo,
    unflat,
)
from flambeau.sparse.dispatch import refusal, rule
from flambeau.sparse.parts import KINDS, Coo, SparseTensor
from flambeau.tensor import Tensor, layouts
from flambeau.tensor.memory.typed_storage import OLD_NAME_OF


def _rows(x: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    """(values with their history, where each row begins, the column of each element)."""
    if x.is_sparse:
        x = coalesce(x)
        row, col = x._array.indices.unbind(0)
        return history.values(x), start_of_rows(row, x._array.shape[0]), col
    x = as_rows(x)
    return history.values(x), x._array.starts, x._array.others


def _check(name: str, a: Tensor, b: Tensor) -> None:
    if a.dim() != 2 or b.dim() != 2:
        raise RuntimeError(f"{name}: expected two matrices, found {a.dim()}-D and {b.dim()}-D tensors")
    if a.shape[1] != b.shape[0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({a.shape[0]}x{a.shape[1]} and {b.shape[0]}x{b.shape[1]})")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"mat1 dtype {OLD_NAME_OF[a.dtype]} does not match mat2 dtype {OLD_NAME_OF[b.dtype]}")


def masked_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b, of which the gradient of a sparse factor is sparse."""
    _check("sparse.mm", a, b)
    if isinstance(a, SparseTensor) and a.dense_dim():
        raise refusal("sparse.mm of a tensor with dense dimensions", (a, b))
    if isinstance(a, SparseTensor) and isinstance(b, SparseTensor):
        return _sparse_result(a, b)
    if isinstance(a, SparseTensor):
        values, crow, col = _rows(a)
        return rows_product(values, b, crow, col)
    if isinstance(b, SparseTensor):
        return masked_product(b.t(), a.t()).t()
    return a.mm(b)


def _sparse_result(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The product of two sparse matrices, a sparse one: every element of a meets the row of b that its column names."""
    left, right = coalesce(to_sparse_coo(a)), coalesce(to_sparse_coo(b))
    rows, inner = left._array.indices.unbind(0)
    starts = start_of_rows(right._array.indices[0].contiguous(), b.shape[0])
    mine, theirs = joined(starts[inner], starts[inner + 1])
    values = history.values(left)[mine] * history.values(right)[theirs]
    shape = a.shape[0], b.shape[1]
    keys = rows[mine] * shape[1] + right._array.indices[1][theirs]
    keys, values = merged(keys, values) if keys.shape[0] > 1 else (keys, values)
    result = history.build(Coo(unflat(keys, shape), values.detach(), shape, True), values, "SparseSparseMatmulBackward0")
    return in_layout_of(result, a._array)


def joined(starts: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs (k, p) with starts[k] <= p < ends[k], as two index tensors."""
    counts = ends - starts
    total = starts.new_zeros(counts.shape[0] + 1)
    total[1:] = counts.cumsum(0)
    mine = row_of_places(total)
    place = starts.new_tensor(range(0)) if not mine.shape[0] else starts.new_ones(mine.shape[0]).cumsum(0) - 1
    return mine, starts[mine] + place - total[mine]


@rule("mm", tensors=2)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    if isinstance(input, SparseTensor) and isinstance(mat2, SparseTensor):
        return masked_product(input, mat2)
    with modes.no_grad():
        result = masked_product(input.detach(), mat2.detach())
    derivatives = (lambda grad, a, b: grad.mm(_adjoint(b)), lambda grad, a, b: _adjoint(a).mm(grad))
    return history.recorded(result, "MmBackward0", (input, mat2), derivatives, (input, mat2))


def _adjoint(x: Tensor) -> Tensor:
    return x.t().conj() if x.is_complex() else x.t()


@rule("mv", tensors=2)
def mv(input: Tensor, vec: Tensor) -> Tensor:
    if not isinstance(input, SparseTensor) or isinstance(vec, SparseTensor):
        raise refusal("mv", (input, vec))
    with modes.no_grad():
        result = masked_product(input.detach(), vec.detach().unsqueeze(1)).squeeze(1)
    derivatives = (lambda grad, a, v: grad.outer(v.conj()), lambda grad, a, v: mv(_adjoint(a), grad))
    return history.recorded(result, "MvBackward0", (input, vec), derivatives, (input, vec))


@rule("addmv", tensors=3)
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _added(input, mv(mat, vec), beta, alpha)


@rule("addmv_", tensors=3)
def addmv_(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return self.mul_(beta).add_(mv(mat, vec), alpha=alpha)


@rule("matmul", tensors=2)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    dims = input.dim(), other.dim()
    if dims == (2, 2):
        return mm(input, other)
    if dims == (2, 1) and isinstance(input, SparseTensor):
        return mv(input, other)
    if dims == (1, 2) and isinstance(other, SparseTensor):
        return mv(other.t(), input)
    if dims == (3, 3) and isinstance(input, SparseTensor):
        return bmm(input, other)
    raise refusal("matmul", (input, other))


@rule("bmm", tensors=2)
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Batches of matrices as one large matrix that has them along its diagonal."""
    x = to_sparse_coo(input) if isinstance(input, SparseTensor) and not input.dense_dim() else None
    if x is None or x.sparse_dim() != 3 or isinstance(mat2, SparseTensor):
        raise refusal("bmm", (input, mat2))
    x = coalesce(x)
    (batch, rows, inner), columns = x.shape, mat2.shape[2]
    if tuple(mat2.shape[:2]) != (batch, inner):
        raise RuntimeError(f"bmm: expected batch2 of shape ({batch}, {inner}, *), found {list(mat2.shape)}")
    number, row, col = x._array.indices.unbind(0)
    crow = start_of_rows(number * rows + row, batch * rows)
    return rows_product(history.values(x), mat2.reshape(batch * inner, columns), crow, number * inner + col).reshape(batch, rows, columns)


@rule("addmm", tensors=3)
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return _recorded_sum("AddmmBackward0", input, mat1, mat2, mm, beta, alpha, masked=False)


def _recorded_sum(name: str, input: Tensor, mat1: Tensor, mat2: Tensor, product: Any, beta: Any, alpha: Any, masked: bool) -> Tensor:
    """beta * input + alpha * product(mat1, mat2), with its derivatives; that of a sparse mat1 may be `masked`."""
    with modes.no_grad():
        result = _added(input.detach(), product(mat1.detach(), mat2.detach()), beta, alpha)
    derivatives = (
        lambda grad, a, b: grad * beta,
        lambda grad, a, b: _whole_or_masked(grad, b, a, masked) * alpha,
        lambda grad, a, b: _adjoint(a).mm(grad) * alpha,
    )
    return history.recorded(result, name, (input, mat1, mat2), derivatives, (mat1, mat2))


def _whole_or_masked(grad: Tensor, other: Tensor, factor: Tensor, masked: bool) -> Tensor:
    """The gradient of the first factor of a product: all of it, or at the places that are stored."""
    if not masked or not isinstance(factor, SparseTensor) or isinstance(grad, SparseTensor):
        return grad.mm(_adjoint(other))
    factor = coalesced_if_coo(factor)
    row, col = coordinates(factor._array).unbind(0)
    return history.build(factor._array, row_dots(grad, other.conj(), row, col))


@rule("addmm_", tensors=3)
def addmm_(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return self.mul_(beta).add_(mm(mat1, mat2), alpha=alpha)


def _added(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    if isinstance(input, SparseTensor) and not isinstance(product, SparseTensor):
        raise RuntimeError(f"addmm: expected a strided input for a strided product, got one with layout {KINDS[input.layout]}")
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # what `input` holds is not looked at, NaN neither
        return product
    return (input if beta == 1 else input * beta) + product


@rule("nn.functional.linear", tensors=2)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight^T for a sparse weight (or input)."""
    flat_input = input if input.dim() == 2 or isinstance(input, SparseTensor) else input.reshape(-1, input.shape[-1])
    result = mm(flat_input, weight.t())
    result = result if bias is None else result + bias
    return result if flat_input is input else result.reshape(*input.shape[:-1], result.shape[-1])


# -- torch.sparse ------------------------------------------------------------------------------------------------------


def sparse_mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of a sparse matrix and a sparse or dense one. The gradient of a sparse factor is sparse.

    reduce (with CSR): "sum", or "mean", "amax", "amin" of the products instead of their sum; 0 for a row without elements.
    """
    if not isinstance(mat1, SparseTensor) and not isinstance(mat2, SparseTensor):
        return mat1.mm(mat2)
    if reduce is None:
        return masked_product(mat1, mat2)
    if reduce not in ("sum", "mean", "amax", "amin", "prod"):
        raise RuntimeError(f"sparse.mm: reduce argument must be either sum, mean, amax, amin or prod, got {reduce}")
    if not isinstance(mat1, SparseTensor) or mat1.layout is not layouts.sparse_csr or isinstance(mat2, SparseTensor):
        raise RuntimeError(f"sparse.mm with reduce: expected a CSR matrix and a dense one, found layouts {mat1.layout} and {mat2.layout}")
    _check("sparse.mm", mat1, mat2)
    values, crow, col = _rows(mat1)
    if reduce in ("sum", "mean"):
        result = rows_product(values, mat2, crow, col)
        return result if reduce == "sum" else result / (crow[1:] - crow[:-1]).clamp_min(1).unsqueeze(1).to(result.dtype)
    products = values.unsqueeze(1) * mat2.index_select(0, col)
    empty = products.new_zeros((mat1.shape[0], mat2.shape[1]))
    return empty.scatter_reduce(0, row_of_places(crow).long().unsqueeze(1).expand(products.shape), products, reduce, include_self=False)


def sparse_addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2). The gradient of a sparse factor is sparse."""
    if not isinstance(mat1, SparseTensor) or isinstance(mat2, SparseTensor):
        return _added(mat, masked_product(mat1, mat2), beta, alpha)
    return _recorded_sum("SparseAddmmBackward0", mat, mat1, mat2, masked_product, beta, alpha, masked=True)


def sampled_addmm(input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None) -> SparseTensor:
    """alpha * (mat1 @ mat2) + beta * input, but only at the places that `input`, a CSR matrix, stores."""
    if not isinstance(input, SparseTensor) or input.layout is not layouts.sparse_csr:
        raise NotImplementedError(f"sampled_addmm: Expected self to have sparse csr layout, but got {input.layout}")
    if out is not None:
        raise NotImplementedError("sampled_addmm(out=...) is not available for sparse tensors. Use the returned tensor instead")
    _check("sampled_addmm", mat1, mat2)
    parts = input._array
    values = row_dots(mat1, mat2.t(), row_of_places(parts.starts), parts.others) * alpha
    return history.build(parts, values + history.values(input) * beta if beta != 0 else values, "SparseSampledAddmmBackward0")


@overridable
def smm(input: SparseTensor, mat: Tensor) -> SparseTensor:
    """The product of a sparse and a dense matrix, as a sparse one."""
    return to_sparse(masked_product(input, mat))


@overridable
def sspaddmm(input: SparseTensor, mat1: SparseTensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> SparseTensor:
    """beta * input + alpha * (mat1 @ mat2), as a sparse tensor."""
    for name, x, kind, fine in (
        ("input", input, "sparse", input.is_sparse), ("mat1", mat1, "sparse", mat1.is_sparse),
        ("mat2", mat2, "strided", mat2.layout is layouts.strided),
    ):  # fmt: skip
        if not fine:
            raise RuntimeError(f"sspaddmm: expected '{name}' to have {kind} layout, got '{name}' with layout {KINDS[x.layout]}")
    return input * beta + smm(mat1, mat2) * alpha


@overridable
def hspmm(mat1: SparseTensor, mat2: Tensor) -> SparseTensor:
    """The product of a sparse and a dense matrix, as a sparse tensor of those rows that are not empty."""
    x = coalesce(to_sparse_coo(mat1))
    row, col = x._array.indices.unbind(0)
    starts, found = _compact(row)
    values = rows_product(history.values(x), mat2, starts, col)
    shape = (mat1.shape[0], mat2.shape[1])
    return history.build(Coo(found.unsqueeze(0), values.detach(), shape, True), values)


def _compact(row: Tensor) -> tuple[Tensor, Tensor]:
    """(where each of the rows that occur begins, which these are), for rows in order."""
    found, counts = OPS["unique_consecutive"](row, return_counts=True)
    starts = row.new_zeros(found.shape[0] + 1)
    starts[1:] = counts.cumsum(0)
    return starts, found


@overridable
def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """torch.mm under an old name."""
    return input.mm(mat2)


dsmm, hsmm, saddmm = spmm, hspmm, sspaddmm
