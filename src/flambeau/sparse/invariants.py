"""Whether the parts of a sparse tensor fit together. Looking at every index takes time, so it is done when asked for: by
`check_invariants=True`, or by default after `check_sparse_tensor_invariants.enable()`."""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import Any

from flambeau import layouts
from flambeau.tensor import Tensor


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
            raise RuntimeError("This context manager is already activated: make another instance for a nested block")
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


def check_compressed(layout: layouts.layout, starts: Tensor, others: Tensor, shape: tuple) -> None:
    """RuntimeError unless lines begin one after the other, and the places in each are in order and within the shape."""
    by_rows = layout is layouts.sparse_csr
    first, second = ("crow_indices", "col_indices") if by_rows else ("ccol_indices", "row_indices")
    lines, size = shape if by_rows else shape[::-1]
    line, extent = ("nrows", "ncols") if by_rows else ("ncols", "nrows")
    nnz, places = others.shape[0], starts.tolist()
    if len(places) != lines + 1:
        raise RuntimeError(f"{first}.shape[-1] must be equal to {line} + 1 = {lines + 1}, but got {len(places)}")
    if places[0] != 0:
        raise RuntimeError(f"`{first}[..., 0] == 0` is not satisfied.")
    if places[-1] != nnz:
        raise RuntimeError(f"`{first}[..., -1] == nnz` is not satisfied.")
    if any(not 0 <= b - a <= size for a, b in pairwise(places)):
        raise RuntimeError(f"`0 <= {first}[..., 1:] - {first}[..., :-1] <= {extent}` is not satisfied.")
    if nnz and not bool(((others >= 0) & (others < size)).all()):
        raise RuntimeError(f"`0 <= {second} < {extent}` is not satisfied.")
    from flambeau.ops.sparse_products import row_of_places

    keys = row_of_places(starts) * size + others
    if not bool((keys[1:] > keys[:-1]).all()):
        raise RuntimeError(
            f"`{second}[..., {first}[..., i - 1]:{first}[..., i]] for all i = 1, ..., {line} are sorted and distinct along the last "
            "dimension values` is not satisfied."
        )
