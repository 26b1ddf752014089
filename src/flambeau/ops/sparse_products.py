"""The product of a sparse and a dense matrix, on the parts of the sparse one: what `sparse.mm` and its like come down to. And what puts the
parts in order."""

from __future__ import annotations

from flambeau.kernels import arrays
from flambeau.kernels.templates import sorting as order
from flambeau.kernels.templates import sparse
from flambeau.ops import specs
from flambeau.ops.declare import on_arrays


@on_arrays(public=False, method=False, name="_rows_product", grad_name="SparseAddmmBackward0")
def rows_product(values, dense, crow, col):
    """The rows of a sparse matrix (CSR) times a dense one. (nnz), (K, N), (M + 1), (nnz) -> (M, N)."""
    return sparse.product(crow, col, values, dense)


rows_product.derivative(
    values=lambda grad, dense, crow, col: row_dots(grad, dense.conj(), row_of_places(crow), col),
    dense=lambda grad, values, crow, col, dense_shape: rows_product(*_turned(values.conj(), crow, col, dense_shape[0], grad)),
)
rows_product.meta(lambda values, dense, crow, col: ((crow.shape[0] - 1, dense.shape[1]), dense.dtype))


def _turned(values, crow, col, columns: int, grad) -> tuple:
    """The arguments for the product of the transposed matrix with the gradient."""
    at, order = col.sort(stable=True)
    return values[order], grad, start_of_rows(at, columns), row_of_places(crow)[order]


@on_arrays(public=False, method=False, name="_row_dots")
def row_dots(a, b, row, col):
    """Scalar products of rows: a[row[k]] with b[col[k]]. (M, N), (K, N), (nnz), (nnz) -> (nnz)."""
    return sparse.dots(row, col, a, b)


row_dots.meta(lambda a, b, row, col: (row.shape, a.dtype))
row_dots.derivative(
    a=lambda grad, b, row, col, a_shape: _spread(grad, b, row, col, a_shape[0]),
    b=lambda grad, a, row, col, b_shape: _spread(grad, a, col, row, b_shape[0]),
)


def _spread(grad, other, to, source, rows: int):
    """sum over k of grad[k] other[source[k]], in row to[k]."""
    at, order = to.sort(stable=True)
    return rows_product(grad[order], other.conj(), start_of_rows(at, rows), source[order])


@on_arrays(public=False, method=False, name="_row_of_places", differentiable=False, meta=specs.of_data)
def row_of_places(crow):
    """The row of every place. (M + 1) -> (nnz)."""
    return arrays.cast(sparse.expanded(crow), crow.dtype)


@on_arrays(public=False, method=False, name="_start_of_rows", differentiable=False)
def start_of_rows(row, rows):
    """Where the places of every row begin, if their rows are in order; last, where the last ends. (nnz), M -> (M + 1)."""
    xp = arrays.module_of(row)
    return xp.searchsorted(row, xp.arange(rows + 1, dtype=row.dtype)).astype(row.dtype)


start_of_rows.meta(lambda row, rows: ((rows + 1,), row.dtype))


@on_arrays(public=False, method=False, name="_grouped", differentiable=False, meta=specs.of_data)
def grouped(keys):
    """(the keys in order, each once; which of these each place has; the places in order). (n) -> (m), (n), (n)."""
    xp = arrays.module_of(keys)
    places = order.argsort(keys, 0, False)
    found = keys[places]
    new = xp.ones(found.shape, bool)
    new[1:] = found[1:] != found[:-1]
    return found[new], xp.cumsum(new) - 1, places
