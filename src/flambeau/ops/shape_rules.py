"""What results look like, for tensors without data: the rules that many operations share. See `ArrayOp.meta`."""

from __future__ import annotations

from flambeau.kernels import layout


def like_input(input, **_):
    """The shape and dtype of the input."""
    return input.shape, input.dtype


def broadcast(**operands):
    """The common shape of all arrays, in the dtype of the first."""
    arrays = [a for a in operands.values() if hasattr(a, "dtype")]
    return layout.broadcast_shapes(*(tuple(a.shape) for a in arrays)), arrays[0].dtype


def system(A, B, **_):
    """The shape of X in A X = B: that of B, the batches broadcast."""
    return (*layout.broadcast_shapes(tuple(A.shape[:-2]), tuple(B.shape[:-2])), *B.shape[-2:]), B.dtype
