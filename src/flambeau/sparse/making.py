"""Making sparse tensors of their parts: sparse_coo_tensor, sparse_csr_tensor and their relatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import dtypes
from flambeau.eager.overrides import overridable
from flambeau.sparse import history, invariants
from flambeau.sparse.parts import BY_COLUMNS, BY_ROWS, KINDS, OF_BLOCKS, Compressed, Coo, Parts, SparseTensor, wrapped
from flambeau.tensor import Size, Tensor, layouts
from flambeau.tensor.arguments import device_of, dtype_of, shape_of
from flambeau.tensor.making.factories import as_tensor, zeros


@overridable
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


def old_constructor(args: tuple, **options: Any) -> SparseTensor:
    """What torch.sparse.FloatTensor(*args) and x.new(*args) make: an empty tensor of a size, or one of indices and values."""
    if not args or isinstance(args[0], int):
        return sparse_coo_tensor(args or (0,), **options)
    if len(args) == 1 and not isinstance(args[0], Size):
        raise TypeError(f"expected sizes, a torch.Size, or indices and values, found {type(args[0]).__name__}")
    return sparse_coo_tensor(*args, **options)


def coo(indices: Tensor, values: Tensor, size: Any = None, check: bool | None = None, coalesced: bool | None = None) -> SparseTensor:
    """A COO tensor of these tensors, which it shares; gradients flow to the values."""
    if indices.dim() != 2:
        raise RuntimeError(f"indices must be (sparse dimensions, elements), found {list(indices.shape)}")
    if not values.dim():
        values = values.expand(indices.shape[1]) if indices.shape[1] else values.reshape(1)[:0]
    if indices.shape[1] != values.shape[0]:
        found = f"nnz from indices: {indices.shape[1]}, nnz from values: {values.shape[0]}"
        raise RuntimeError(f"indices and values must have same nnz, found {found}")
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


@overridable
def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any = None, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """A matrix, or a batch of them, by rows or columns, as `layout` says: torch.sparse_csr, _csc, or of blocks _bsr, _bsc."""
    return _compressed_tensor(
        "sparse_compressed_tensor", layout, compressed_indices, plain_indices, values, size, dtype, device, requires_grad, check_invariants
    )


def _compressed_tensor(
    name: str, layout: layouts.layout | None, starts: Any, others: Any, values: Any, size: Any, dtype: Any, device: Any,
    requires_grad: bool, check: bool | None,
) -> SparseTensor:  # fmt: skip
    if layout not in BY_ROWS + BY_COLUMNS:
        raise RuntimeError(f"{name} expected sparse compressed tensor layout but got {KINDS.get(layout, 'none')}")  # type: ignore[arg-type]
    assert layout is not None
    elements = _elements(name, values, dtype, device)
    checked = check if check is not None else invariants.check_sparse_tensor_invariants.enabled
    first, second = (_integers(t, elements.device, None if not checked or not isinstance(t, Tensor) else t.dtype) for t in (starts, others))
    shape = _needed_matrix(layout, first, second, elements) if size is None else _shape(size)
    invariants.check_compressed_shapes(layout, first, second, elements, shape)
    parts = Compressed(layout, first.detach(), second.detach(), elements.detach(), shape)
    if checked:
        invariants.check_compressed(parts)
    return _finish(history.build(parts, elements, "SparseCompressedTensorBackward0"), requires_grad)


def _needed_matrix(layout: layouts.layout, starts: Tensor, others: Tensor, values: Tensor) -> tuple:
    """The smallest size that has room for the indices."""
    batch, blocks = starts.dim() - 1, 2 if layout in OF_BLOCKS else 0
    if batch < 0 or values.dim() <= batch + blocks:
        return ()  # which the check of the shapes explains
    lines, across = max(starts.shape[-1] - 1, 0), int(others.max()) + 1 if others.numel() else 0
    rows, columns = (lines, across) if layout in BY_ROWS else (across, lines)
    high, wide = values.shape[batch + 1 : batch + 3] if blocks else (1, 1)
    return (*starts.shape[:batch], rows * high, columns * wide, *values.shape[batch + 1 + blocks :])


def _of_layout(name: str, layout: layouts.layout, doc: str) -> Callable:
    """sparse_compressed_tensor with the layout in its name."""
    first, second = ("crow_indices", "col_indices") if layout in BY_ROWS else ("ccol_indices", "row_indices")

    def make(*args: Any, **options: Any) -> SparseTensor:
        if "layout" in options:
            raise TypeError(f"{name}() got an unexpected keyword argument 'layout'")
        for old, new in ((first, "compressed_indices"), (second, "plain_indices")):
            if old in options:
                options[new] = options.pop(old)
        return sparse_compressed_tensor(*args, layout=layout, **options)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{name}({first}, {second}, values, size=None): {doc}"
    return overridable(make)


sparse_csr_tensor = _of_layout(
    "sparse_csr_tensor", layouts.sparse_csr, "A matrix by its rows: where each begins, the columns of its elements."
)
sparse_csc_tensor = _of_layout(
    "sparse_csc_tensor", layouts.sparse_csc, "A matrix by its columns: where each begins, the rows of its elements."
)
sparse_bsr_tensor = _of_layout("sparse_bsr_tensor", layouts.sparse_bsr, "A matrix by rows of blocks. values (nnz, *block).")
sparse_bsc_tensor = _of_layout("sparse_bsc_tensor", layouts.sparse_bsc, "A matrix by columns of blocks. values (nnz, *block).")


# -- servants ----------------------------------------------------------------------------------------------------------


def empty_parts(shape: tuple, dtype: Any = None, device: Any = None, sparse_dim: int | None = None) -> Coo:
    """A COO tensor without elements."""
    sparse_dim = len(shape) if sparse_dim is None else sparse_dim
    values = zeros((0, *shape[sparse_dim:]), dtype=dtype, device=device)
    return Coo(zeros((sparse_dim, 0), dtype=dtypes.int64, device=values.device), values, shape, True)


def empty_like(parts: Parts, layout: layouts.layout, dtype: Any, device: Any) -> SparseTensor:
    """A tensor of another or the same layout, of the size, dense dimensions and blocks of this one, without elements."""
    if layout is layouts.sparse_coo:
        return wrapped(empty_parts(parts.shape, dtype, device, parts.sparse_dim + parts.batch_dim))
    block = getattr(parts, "block", (1, 1))
    if layout in OF_BLOCKS and parts.layout not in OF_BLOCKS:
        raise RuntimeError(f"empty_like: expected a tensor of blocks for layout {layout}, found {parts.layout}")
    batch = parts.ndim - parts.dense_dim - 2
    return _without_places(parts.shape, layout, dtype, device, batch, block)


def _without_places(shape: tuple, layout: layouts.layout, dtype: Any, device: Any, batch: int, block: tuple) -> SparseTensor:
    lines = shape[batch] // block[0] if layout in BY_ROWS else shape[batch + 1] // block[1]
    inner = (*(block if layout in OF_BLOCKS else ()), *shape[batch + 2 :])
    values = zeros((*shape[:batch], 0, *inner), dtype=dtype, device=device)
    starts, others = (zeros((*shape[:batch], n), dtype=dtypes.int64, device=values.device) for n in (lines + 1, 0))
    return wrapped(Compressed(layout, starts, others, values, shape))


def without_elements(shape: tuple, layout: layouts.layout, dtype: Any, device: Any, requires_grad: bool = False) -> SparseTensor:
    """zeros(..., layout=torch.sparse_coo) and its like."""
    shape = tuple(shape)
    if layout in OF_BLOCKS:
        raise RuntimeError(f"zeros_sparse_compressed: rows or columns without blocks were expected, not {KINDS[layout]}")
    if layout is layouts.sparse_coo:
        return _finish(wrapped(empty_parts(shape, dtype, device)), requires_grad)
    if len(shape) < 2:
        raise RuntimeError(f"torch.empty: Only batched sparse compressed (non-block) tensors are supported, but got size {list(shape)}")
    return _finish(_without_places(shape, layout, dtype, device, len(shape) - 2, (1, 1)), requires_grad)


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
