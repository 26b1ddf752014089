"""What results look like, worked out without data: the rules that many operations share. See `ArrayOp.meta`.

A rule takes what the operation takes, with shapes, strides and dtypes in the place of arrays (`MetaArray`). It answers (shape, dtype) for a
row-major result, (shape, dtype, strides in elements) for another, a list of these for several results; and raises what the operation raises for
shapes that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout


def contiguous(*given, **named):
    """Shape and dtype of the first operand, row-major."""
    first = (*given, *named.values())[0]
    return first.shape, first.dtype


def like(*given, **named):
    """As the first operand: shape, dtype and order of dimensions, without gaps. What PyTorch calls preserve_format."""
    first = (*given, *named.values())[0]
    return first.shape, first.dtype, layout.preserve_format_strides(*arrays.view_of(first))


def pointwise(**operands):
    """As of a formula for each element: the common shape of all arrays, laid out as they agree on, in the dtype of the first."""
    found = [a for a in operands.values() if hasattr(a, "dtype")]
    shape = layout.broadcast_shapes(*(tuple(a.shape) for a in found))
    return shape, found[0].dtype, layout.pointwise_strides(shape, *map(arrays.view_of, found))


def broadcast(**operands):
    """The common shape of all arrays, row-major, in the dtype of the first."""
    return pointwise(**operands)[:2]


def by_columns(shape: Sequence[int], dtype: np.dtype):
    """Matrices stored column after column, as LAPACK leaves them."""
    *batch, rows, columns = shape
    return shape, dtype, layout.transpose((*batch, columns, rows), layout.contiguous_strides((*batch, columns, rows)), -1, -2)[1]


def in_kind(input, shape: Sequence[int], dtype: np.dtype | None = None):
    """A result in the memory format of the input: channels last if that is, else row-major."""
    shape = tuple(shape)
    last = layout.looks_channels_last(*arrays.view_of(input)) and len(shape) == input.ndim and 0 not in shape
    strides = layout.channels_last_strides(shape) if last else layout.contiguous_strides(shape)
    return shape, input.dtype if dtype is None else dtype, strides


def of_data(**_) -> NoReturn:
    """For results whose size is in the data."""
    raise NotImplementedError("how large the result is depends on the elements, and a tensor on the meta device has none. Try device 'cpu'")


KINDS: dict[str, Callable[[np.dtype], Any]] = {
    "real": lambda dtype: dtypes.OF_NUMPY[dtype].to_real().numpy,
    "complex": lambda dtype: dtypes.complex_of(dtypes.OF_NUMPY[dtype]).numpy,
    "int32": lambda dtype: np.dtype(np.int32),
    "int64": lambda dtype: np.dtype(np.int64),
}


def factors(words: str, A, columns: bool = True) -> list:
    """The results of a factorisation of matrices A (..., M, N), said in words: "M K, K real, K N" is (..., M, K), (..., K) real, (..., K, N).

    K is min(M, N); 0 an empty result. Matrices are stored by columns, if `columns`."""
    *batch, m, n = A.shape
    sizes = {"M": m, "N": n, "K": min(m, n)}
    found = []
    for word in words.split(","):
        parts = word.split()
        dtype = KINDS[parts.pop()](A.dtype) if parts and parts[-1] in KINDS else A.dtype
        if parts == ["0"]:
            found.append(((0,), dtype))
            continue
        shape = (*batch, *[sizes[letter] for letter in parts])
        found.append(by_columns(shape, dtype) if columns and len(parts) == 2 else (shape, dtype))
    return found
