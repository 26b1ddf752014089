"""Whether the parts of a sparse tensor fit together. Looking at every index takes time, so it is done when asked for: by
`check_invariants=True`, or by default after `check_sparse_tensor_invariants.enable()`."""

from __future__ import annotations

import functools
from typing import Any

from flambeau import dtypes
from flambeau.sparse.parts import BY_ROWS, OF_BLOCKS, Compressed
from flambeau.tensor import Tensor, layouts
from flambeau.tensor.memory.typed_storage import OLD_NAME_OF


class check_sparse_tensor_invariants:
    """Look at the invariants of sparse tensors that are made: as a function, a context manager or a decorator."""

    enabled = False

    @staticmethod
    def is_enabled() -> bool:
        """Whether they are looked at by default."""
        return check_sparse_tensor_invariants.enabled

    @staticmethod
    def enable() -> None:
        """Look at them from now on."""
        check_sparse_tensor_invariants.enabled = True

    @staticmethod
    def disable() -> None:
        """Look at them no more, unless a call asks for it."""
        check_sparse_tensor_invariants.enabled = False

    def __init__(self, enable: bool = True):
        self.wanted = enable
        self.before: bool | None = None

    def __enter__(self) -> None:
        if self.before is not None:
            raise RuntimeError(
                "This context manager instance is already activated. Use a different context manager instance for context nesting"
            )
        self.before, check_sparse_tensor_invariants.enabled = self.enabled, self.wanted

    def __exit__(self, *exc: Any) -> None:
        check_sparse_tensor_invariants.enabled, self.before = bool(self.before), None

    def __call__(self, function):
        @functools.wraps(function)
        def checked(*args, **kwargs):
            with type(self)(self.wanted):
                return function(*args, **kwargs)

        return checked


def check_coo_shapes(indices: Tensor, values: Tensor, shape: tuple) -> None:
    """RuntimeError unless the shapes of the parts fit together. Cheap: always looked at."""
    sparse_dim, nnz = indices.shape
    dense_dim = values.dim() - 1
    if len(shape) != sparse_dim + dense_dim:
        found = f"len(size) = {len(shape)}, sparse_dim = {sparse_dim}, dense_dim = {dense_dim}"
        raise RuntimeError(f"'len(size) == sparse_dim + dense_dim' is not satisfied: {found}")
    expected = [nnz, *shape[sparse_dim:]]
    if list(values.shape) != expected:
        raise RuntimeError(f"values has incorrect size, expected {expected}, got {list(values.shape)}")


def check_coo(indices: Tensor, shape: tuple, coalesced: bool | None) -> None:
    """RuntimeError unless every index is within the shape, and they are in order where that was said."""
    if indices.shape[1]:
        low, high = indices.amin(1).tolist(), indices.amax(1).tolist()
        for d in range(indices.shape[0]):
            if low[d] < 0:
                raise RuntimeError(f"found negative index {low[d]} for dim {d}")
            if high[d] >= shape[d]:
                raise RuntimeError(f"size is inconsistent with indices: for dim {d}, size is {shape[d]} but found index {high[d]}")
    if coalesced:
        from flambeau.sparse.conversion import flat

        keys = flat(indices, shape)
        if not bool((keys[1:] > keys[:-1]).all()):
            raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")


def _words(layout: layouts.layout) -> tuple[str, str, str, str, str]:
    """(the compressed indices, the others, how many lines there are, how far they reach, what a line is)."""
    blocks = " block" if layout in OF_BLOCKS else ""
    if layout in BY_ROWS:
        return "crow_indices", "col_indices", "nrows", "ncols", f"row{blocks}"
    return "ccol_indices", "row_indices", "ncols", "nrows", f"column{blocks}"


def check_compressed_shapes(layout: layouts.layout, starts: Tensor, others: Tensor, values: Tensor, shape: tuple) -> None:
    """RuntimeError unless the shapes of the parts fit together. Cheap: always looked at."""
    first, second, _, _, line = _words(layout)
    batch, blocks = starts.dim() - 1, 2 if layout in OF_BLOCKS else 0
    if batch < 0:
        raise RuntimeError(f"{first} must have dimensionality >= 1 but got 0")
    if others.dim() != starts.dim():
        found = f"{starts.dim()} and {others.dim()}, respectively"
        raise RuntimeError(f"{first} and {second} dimensionalities must be equal but got {found}")
    if values.dim() <= batch + blocks:
        sum_of = f"sum of batch and block dimensionalities (={batch} + {blocks})"
        raise RuntimeError(f"values must have dimensionality > {sum_of} but got {values.dim()}")
    inner = values.dim() - batch - blocks - 1
    if len(shape) != batch + 2 + inner:
        sum_of = f"sum of batch, base, and dense dimensionalities (={batch} + 2 + {inner})"
        raise RuntimeError(f"tensor dimensionality must be {sum_of} but got {len(shape)}")
    batches = [list(t.shape[:batch]) for t in (starts, others, values)]
    if any(b != list(shape[:batch]) for b in batches):
        names = " and ".join(f"{n} (={b})" for n, b in zip((f"{first} (={batches[0]}), {second}", "values"), batches[1:], strict=True))
        names = names.replace(" and values", ", and values")
        raise RuntimeError(f"all batch dimensions of {names} must be equal to tensor batch dimensions (={list(shape[:batch])})")
    block = values.shape[batch + 1 : batch + 3] if blocks else (1, 1)
    for d in range(2):
        if not block[d] or shape[batch + d] % block[d]:
            found = f"tensor shape[{batch + d}] (={shape[batch + d]}) must be divisible with blocksize[{d}] (={block[d]})"
            raise RuntimeError(f"{found} as defined by values shape")
    lines = shape[batch] // block[0] if layout in BY_ROWS else shape[batch + 1] // block[1]
    if starts.shape[-1] != lines + 1:
        raise RuntimeError(f"{first}.shape[-1] must be equal to the number of {line}s + 1 (={lines + 1}), but got {starts.shape[-1]}")
    if others.shape[-1] != values.shape[batch]:
        found = f"nnz (={values.shape[batch]}) as defined by values.shape[{batch}], but got {others.shape[-1]}"
        raise RuntimeError(f"{second}.shape[-1] must be equal to {found}")
    if list(values.shape[batch + 1 + blocks :]) != list(shape[batch + 2 :]):
        found = f"values dense shape {list(values.shape[batch + 1 + blocks :])}, tensor dense shape {list(shape[batch + 2 :])}"
        raise RuntimeError(f"dense dimensions of values and tensor must be equal: {found}")


def check_compressed(parts: Compressed) -> None:
    """RuntimeError unless lines begin one after the other, and the places in each are in order and within the shape."""
    first, second, line, extent, _ = _words(parts.layout)
    starts, others, nnz = parts.starts, parts.others, parts.nnz
    for name, indices in ((first, starts), (second, others)):
        if indices.shape[-1] > 1 and indices.stride(-1) != 1:
            raise RuntimeError(f"expected {name} to be a contiguous tensor per batch")
    if starts.dtype is not others.dtype:
        found = " and ".join(OLD_NAME_OF[t.dtype] for t in (starts, others))
        raise RuntimeError(f"{first} and {second} must have the same dtype, bot got {found}, respectively")
    if starts.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(f"{first} and {second} dtype must be Int or Long, but got {OLD_NAME_OF[starts.dtype]}")
    if starts.is_meta:
        return
    size = parts.shape[parts.batch_dim + (1 if parts.by_rows else 0)] // parts.block[1 if parts.by_rows else 0]
    counts = starts[..., 1:] - starts[..., :-1]
    for fine, sentence in (
        ((starts[..., 0] == 0), f"`{first}[..., 0] == 0`"),
        ((starts[..., -1] == nnz), f"`{first}[..., -1] == nnz`"),
        (((counts >= 0) & (counts <= size)), f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {extent}`"),
        (((others >= 0) & (others < size)), f"`0 <= {second} < {extent}`"),
    ):
        if not bool(fine.all()):
            raise RuntimeError(f"{sentence} is not satisfied.")
    from flambeau.sparse.conversion import coordinates, flat

    single = Compressed(layouts.sparse_csr, starts, others, others, (*parts.shape[: parts.batch_dim], starts.shape[-1] - 1, size))
    keys = flat(coordinates(single), single.shape)
    if not bool((keys[1:] > keys[:-1]).all()):
        raise RuntimeError(
            f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {line} are sorted and distinct along the last "
            "dimension values` is not satisfied."
        )


def _validate_sparse_coo_tensor_args(indices: Tensor, values: Tensor, size: Any, is_coalesced: bool | None = None) -> None:
    """RuntimeError unless these are the parts of a COO tensor."""
    check_coo_shapes(indices, values, tuple(size))
    check_coo(indices, tuple(size), is_coalesced)


def _validate_sparse_compressed_tensor_args(starts: Tensor, others: Tensor, values: Tensor, size: Any, layout: layouts.layout) -> None:
    """RuntimeError unless these are the parts of a tensor of this compressed layout."""
    check_compressed_shapes(layout, starts, others, values, tuple(size))
    check_compressed(Compressed(layout, starts, others, values, tuple(size)))
