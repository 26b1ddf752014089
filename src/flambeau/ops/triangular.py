"""Triangles and diagonals of matrices: tril, triu, diag, diag_embed, diagflat."""

from __future__ import annotations

import numpy as np

from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import triangles
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.formats import contiguous_format
from flambeau.ops.views import whole


def _triangle(name: str, side: str, outside) -> None:
    """Declare tril or triu; outside(columns, first) says which columns of a row, whose diagonal is at column `first`, are cleared."""

    def within(input, diagonal) -> int:
        """The diagonal, or the nearest beyond all elements: kernels count in 64 bits."""
        return min(max(whole(diagonal), -input.shape[-2]), input.shape[-1])

    def check(input) -> None:
        if len(input.shape) < 2:
            raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions, found shape {tuple(input.shape)}")

    kept = f"elements on and {'below' if side == 'lower' else 'above'} a diagonal (0 the main one, positive above it)"

    @on_arrays(name=name, inplace=True, out="same", doc=f"The {side} triangle: {kept}, zeros elsewhere. (*, M, N) -> (*, M, N)")
    def triangle(input, diagonal=0):
        check(input)
        found = triangles.triangle(input, side == "lower", within(input, diagonal)) if type(input) is np.ndarray else None
        if found is None:
            found = arrays.contiguous_copy(input)
            clear(found, diagonal)
        return found

    triangle.work(lambda input, diagonal: triangles.ready(input, side == "lower", within(input, diagonal)))

    @triangle.writes
    def clear(input, diagonal=0):
        check(input)
        xp, diagonal = arrays.module_of(input), within(input, diagonal)
        if xp is np and triangles.clear(input, side == "lower", diagonal):
            return
        rows, columns = input.shape[-2:]
        first = xp.arange(rows).reshape(-1, 1) + diagonal
        xp.copyto(input, xp.zeros((), input.dtype), where=outside(xp.arange(columns), first))

    @triangle.meta
    def _(input, diagonal=0):
        check(input)
        return input.shape, input.dtype

    triangle.derivative(input=lambda grad, diagonal: getattr(grad, name)(diagonal))


_triangle("tril", "lower", lambda columns, first: columns > first)
_triangle("triu", "upper", lambda columns, first: columns < first)


@on_arrays
def diag_embed(input, offset=0, dim1=-2, dim2=-1):
    """Matrices with the last dimension of `input` on a diagonal and zeros elsewhere. (*, N) -> (*, N, N) for offset 0"""
    shape, dim1, dim2 = _embedded(input.shape, offset, dim1, dim2)
    out = arrays.empty_beside(input, shape, input.dtype)
    arrays.fill(out, 0)
    diagonal = layout.diagonal(*arrays.view_of(out), 0, offset, dim1, dim2)
    arrays.write(arrays.strided_view(out, *diagonal), input)
    return out


def _embedded(shape, offset: int, dim1: int, dim2: int) -> tuple[tuple[int, ...], int, int]:
    """The shape with the two dimensions of the new matrices, and where they are."""
    ndim = len(shape) + 1
    first, second = layout.wrap_dim(dim1, ndim), layout.wrap_dim(dim2, ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    n = shape[-1] + abs(offset)
    new = list(shape[:-1])
    for d in sorted((first, second)):
        new.insert(d, n)
    return tuple(new), first, second


diag_embed.meta(lambda input, offset=0, dim1=-2, dim2=-1: (_embedded(input.shape, offset, dim1, dim2)[0], input.dtype))


diag_embed.derivative(input=lambda grad, offset, dim1, dim2: grad.diagonal(offset, dim1, dim2))


@composite(out=True)
def diag(input, diagonal=0):
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector. (N,) -> (N, N), (N, N) -> (N,)"""
    if input.dim() == 1:
        return diag_embed(input, diagonal)
    if input.dim() == 2:
        return input.diagonal(diagonal).clone(memory_format=contiguous_format)
    raise RuntimeError(f"diag() takes 1D or 2D tensors, found {input.dim()}D. Try diagonal() or diag_embed() for batches")


@composite
def diagflat(input, offset=0):
    """All elements of `input`, in order, as the diagonal of a matrix. n elements -> (n, n) for offset 0"""
    return diag_embed(input.reshape(-1), offset)
