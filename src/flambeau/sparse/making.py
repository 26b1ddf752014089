"""Making sparse tensors of their parts: sparse_coo_tensor, sparse_csr_tensor and their relatives."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes, layouts
from flambeau.factories import as_tensor, device_of, dtype_of, shape_of, zeros
from flambeau.sparse import history, invariants
from flambeau.sparse.parts import Compressed, Coo, SparseTensor, wrapped
from flambeau.tensor import Tensor


def sparse_coo_tensor(
    *args: Any, size: Any = None, indices: Any = None, values: Any = None, dtype: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None, is_coalesced: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """A tensor of elements and their coordinates: sparse_coo_tensor(indices, values, size), or sparse_coo_tensor(size) for an empty one.

    indices (sparse_dim, nnz), values (nnz, *dense shape). Without a size, it is just large enough. Elements with equal coordinates add up.
    """
    if len(args) == 1 and indices is None and values is None:
        return _finish(wrapped(empty_parts(_shape(args[0]), dtype, device)), requires_grad)
    if not args and indices is None and size is not None:
        return _finish(wrapped(empty_parts(_shape(size), dtype, device)), requires_grad)
    given = [*args, *[v for v in (indices, values)[len(args) :] if v is not None]]
    if len(given) < 2 or len(given) > 3:
        raise TypeError(f"sparse_coo_tensor(): expected (indices, values, size), (indices, values) or (size), found {len(given)} arguments")
    size = given[2] if len(given) == 3 else size
    elements = _elements("sparse_coo_tensor", given[1], dtype, device)
    places = _integers(given[0], elements.device, dtypes.int64)
    return _finish(coo(places, elements, size, check_invariants, is_coalesced), requires_grad)


def coo(indices: Tensor, values: Tensor, size: Any = None, check: bool | None = None, coalesced: bool | None = None) -> SparseTensor:
    """A COO tensor of these tensors, which it shares; gradients flow to the values."""
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(indices.shape)}")
    if not values.dim():
        values = values.expand(indices.shape[1]) if indices.shape[1] else values.reshape(1)[:0]
    if indices.shape[1] != values.shape[0]:
        found = f"nnz from indices: {indices.shape[1]}, nnz from values: {values.shape[0]}"
        raise RuntimeError(f"indices and values must have same nnz, but got {found}")
    if size is None:
        shape = (*_needed(indices), *values.shape[1:])
    else:
        shape = _shape(size)
        invariants.check_coo_shapes(indices, values, shape)
    if check if check is not None else invariants.check_sparse_tensor_invariants.enabled:
        invariants.check_coo(indices, shape, coalesced)
    known = bool(coalesced) or values.shape[0] == 0 or (coalesced is None and values.shape[0] < 2)
    return history.build(Coo(indices.detach(), values.detach(), shape, known), values)


def coo_values(self: Tensor, indices: Tensor, shape: tuple) -> SparseTensor:
    """These values at these places, which are known to be within the shape: what derivatives make of a dense gradient."""
    return history.build(Coo(indices, self.detach(), shape, False), self)


def _needed(indices: Tensor) -> list[int]:
    """The smallest sizes that have room for the indices."""
    if not indices.shape[1]:
        return [0] * indices.shape[0]
    for d, least in enumerate(indices.amin(1).tolist()):
        if least < 0:
            raise RuntimeError(f"found negative index {least} for dim {d}")
    return [n + 1 for n in indices.amax(1).tolist()]


def _compressed_tensor(
    name: str, layout: layouts.layout | None, starts: Any, others: Any, values: Any, size: Any, dtype: Any, device: Any,
    requires_grad: bool, check: bool | None,
) -> SparseTensor:  # fmt: skip
    if layout is None:
        raise RuntimeError(f"{name} expected sparse compressed tensor layout but got none")
    if layout in (layouts.sparse_bsr, layouts.sparse_bsc):
        raise NotImplementedError(f"{name}: matrices of blocks ({layout}) are not available. Try torch.sparse_csr")
    if layout not in (layouts.sparse_csr, layouts.sparse_csc):
        raise RuntimeError(f"{name} expected sparse compressed tensor layout but got {layout}")
    elements = _elements(name, values, dtype, device)
    first, second = _integers(starts, elements.device), _integers(others, elements.device)
    if elements.dim() != 1 or first.dim() != 1 or second.dim() != 1:
        shapes = f"{tuple(first.shape)}, {tuple(second.shape)}, {tuple(elements.shape)}"
        raise NotImplementedError(f"{name}: only single matrices of numbers are available, found indices and values of shapes {shapes}")
    if second.shape != elements.shape:
        raise RuntimeError(
            f"{name}: indices and values must have the same number of elements, found {second.numel()} and {elements.numel()}"
        )
    by_rows = layout is layouts.sparse_csr
    if size is None:
        lines, across = first.shape[0] - 1, int(second.max()) + 1 if second.numel() else 0
        shape: tuple = (lines, across) if by_rows else (across, lines)
    else:
        shape = _shape(size)
        if len(shape) != 2:
            raise NotImplementedError(f"{name}: only single matrices are available, found size {shape}")
        if first.shape[0] != shape[0 if by_rows else 1] + 1:
            raise RuntimeError(
                f"{name}: expected {shape[0 if by_rows else 1] + 1} compressed indices for size {shape}, got {first.shape[0]}"
            )
    if check if check is not None else invariants.check_sparse_tensor_invariants.enabled:
        invariants.check_compressed(layout, first, second, shape)
    parts = Compressed(layout, first.detach(), second.detach(), elements.detach(), shape)
    return _finish(history.build(parts, elements, "SparseCompressedTensorBackward0"), requires_grad)


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """A matrix by its rows or columns, as `layout` says: torch.sparse_csr or torch.sparse_csc."""
    return _compressed_tensor(
        "sparse_compressed_tensor", layout, compressed_indices, plain_indices, values, size, dtype, device, requires_grad, check_invariants
    )


def sparse_csr_tensor(
    crow_indices: Any, col_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """A matrix by its rows: where each begins, the columns of its elements, and these."""
    return _compressed_tensor(
        "sparse_csr_tensor", layouts.sparse_csr, crow_indices, col_indices, values, size, dtype, device, requires_grad, check_invariants
    )


def sparse_csc_tensor(
    ccol_indices: Any, row_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, device: Any = None, pin_memory: bool = False,
    requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """A matrix by its columns: where each begins, the rows of its elements, and these."""
    return _compressed_tensor(
        "sparse_csc_tensor", layouts.sparse_csc, ccol_indices, row_indices, values, size, dtype, device, requires_grad, check_invariants
    )


def sparse_bsr_tensor(*args: Any, **kwargs: Any) -> SparseTensor:
    """Not available: rows of blocks."""
    raise NotImplementedError("sparse_bsr_tensor: matrices of blocks are not available. Try torch.sparse_csr_tensor")


def sparse_bsc_tensor(*args: Any, **kwargs: Any) -> SparseTensor:
    """Not available: columns of blocks."""
    raise NotImplementedError("sparse_bsc_tensor: matrices of blocks are not available. Try torch.sparse_csc_tensor")


# -- servants ----------------------------------------------------------------------------------------------------------


def empty_parts(shape: tuple, dtype: Any = None, device: Any = None, sparse_dim: int | None = None) -> Coo:
    """A COO tensor without elements."""
    sparse_dim = len(shape) if sparse_dim is None else sparse_dim
    values = zeros((0, *shape[sparse_dim:]), dtype=dtype, device=device)
    return Coo(zeros((sparse_dim, 0), dtype=dtypes.int64, device=values.device), values, shape, True)


def without_elements(shape: tuple, layout: layouts.layout, dtype: Any, device: Any, requires_grad: bool = False) -> SparseTensor:
    """zeros(..., layout=torch.sparse_coo) and its like."""
    from flambeau.sparse.conversion import to_layout

    found: Any = to_layout(wrapped(empty_parts(tuple(shape), dtype, device)), layout)
    return _finish(found, requires_grad)


def _shape(size: Any) -> tuple[int, ...]:
    return shape_of("sparse_coo_tensor", (size,))


def _elements(name: str, values: Any, dtype: Any, device: Any) -> Tensor:
    wanted = dtype_of(name, dtype)
    if isinstance(values, Tensor):
        return values.to(device=None if device is None else device_of(device), dtype=wanted)
    return as_tensor(values, dtype=wanted, device=device)


def _integers(indices: Any, device: Any, dtype: dtypes.dtype | None = None) -> Tensor:
    """Indices as integers: int64, or (of compressed ones) what they are if that is int32."""
    found = indices if isinstance(indices, Tensor) else as_tensor(indices)
    wanted = dtype or (dtypes.int32 if found.dtype is dtypes.int32 else dtypes.int64)
    return found.to(device=device, dtype=wanted)


def _finish(tensor: SparseTensor, requires_grad: bool) -> SparseTensor:
    if requires_grad and tensor.requires_grad:
        tensor = tensor.detach()
    return tensor.requires_grad_() if requires_grad else tensor
