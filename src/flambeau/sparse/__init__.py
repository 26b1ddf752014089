"""`torch.sparse`: tensors of which only some elements are stored."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes, import_only
from flambeau.errors import refusal
from flambeau.sparse import dispatch, masked, pointwise, products, reductions, shaping  # noqa: F401 - they declare the rules
from flambeau.sparse.checking import as_sparse_gradcheck
from flambeau.sparse.conversion import to_layout
from flambeau.sparse.invariants import check_sparse_tensor_invariants
from flambeau.sparse.making import coo, old_constructor
from flambeau.sparse.parts import SparseTensor
from flambeau.sparse.products import sampled_addmm
from flambeau.sparse.products import sparse_addmm as addmm
from flambeau.sparse.products import sparse_mm as mm
from flambeau.sparse.reductions import log_softmax, softmax
from flambeau.sparse.reductions import sparse_sum as sum
from flambeau.tensor import Tensor, layouts
from flambeau.tensor.memory.typed_storage import OLD_NAME_OF, OLD_NAMES

__all__ = [
    "SparseSemiStructuredTensor", "SparseSemiStructuredTensorCUSPARSELT", "SparseSemiStructuredTensorCUTLASS", "addmm", "as_sparse_gradcheck",
    "check_sparse_tensor_invariants", "log_softmax", "mm", "sampled_addmm", "softmax", "spdiags", "spsolve", "sum", "to_sparse_semi_structured",
]  # fmt: skip


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Tensor:
    """A matrix with the rows of `diagonals` along its diagonals: element j of a row stands in column j, `offset` above the main diagonal."""
    if len(shape) != 2:
        raise RuntimeError(f"Output shape must be 2d, found {tuple(shape)}")
    if offsets.dim() > 1:
        raise RuntimeError(f"Offsets must be scalar or vector, found shape {list(offsets.shape)}")
    if offsets.dtype is not dtypes.int64:
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {OLD_NAME_OF.get(offsets.dtype, offsets.dtype)}")
    if diagonals.dim() not in (1, 2):
        raise RuntimeError(f"Diagonals must be vector or matrix, found shape {list(diagonals.shape)}")
    diagonals = diagonals if diagonals.dim() == 2 else diagonals.unsqueeze(0)
    offsets = offsets.reshape(-1)
    rows, columns = tuple(shape)
    if offsets.shape[0] != diagonals.shape[0]:
        raise RuntimeError(f"Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets ({offsets.shape[0]})")
    if len(set(offsets.tolist())) != offsets.shape[0]:
        raise RuntimeError("Offset tensor contains duplicate values")
    if layout not in (None, layouts.sparse_coo, layouts.sparse_csr, layouts.sparse_csc):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsr, SparseCsc) are supported, got {layout}")
    column = offsets.new_ones(diagonals.shape[1], dtype=dtypes.int64).cumsum(0).sub(1).expand(diagonals.shape)
    row = column - offsets.unsqueeze(1)
    inside = (row >= 0) & (row < rows) & (column < columns)
    indices = row.new_empty((2, int(inside.sum())))
    indices[0], indices[1] = row[inside], column[inside]
    return to_layout(coo(indices, diagonals[inside], (rows, columns)), layout or layouts.sparse_coo)


spsolve = refusal("spsolve", NotImplementedError, "is not available: there is no sparse solver here. Try torch.linalg.solve on .to_dense()")
to_sparse_semi_structured = refusal("to_sparse_semi_structured", NotImplementedError, "is not available: it is for GPUs with 2:4 sparsity")
SparseSemiStructuredTensor, SparseSemiStructuredTensorCUTLASS, SparseSemiStructuredTensorCUSPARSELT = import_only.classes(
    "torch.sparse",
    "SparseSemiStructuredTensor SparseSemiStructuredTensorCUTLASS SparseSemiStructuredTensorCUSPARSELT",
    "products with 2:4 sparsity are for GPUs that have them in hardware, and are not here",
)
SparseSemiStructuredTensor._DEFAULT_ALG_ID = 0  # which libraries put into their defaults


class _OldType(type):
    """torch.sparse.FloatTensor(indices, values, size) makes a COO tensor, and isinstance asks for layout and dtype."""

    dtype: dtypes.dtype

    def __call__(cls, *args: Any, **kwargs: Any) -> SparseTensor:
        return old_constructor(args, dtype=cls.dtype, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, SparseTensor) and instance.is_sparse and instance.dtype is cls.dtype


for _name in ("BFloat16", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"):
    globals()[f"{_name}Tensor"] = _OldType(
        f"{_name}Tensor",
        (),
        {"dtype": OLD_NAMES[_name], "__module__": "torch.sparse", "__doc__": f"The old constructor of COO tensors of {OLD_NAMES[_name]}."},
    )
