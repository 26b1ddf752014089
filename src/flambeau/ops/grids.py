"""Tensors put together from coordinates: meshgrid, cartesian_prod, combinations, block_diag, vander, one_hot."""

from __future__ import annotations

import itertools

import numpy as np

from flambeau import dtypes, errors
from flambeau.kernels import arrays
from flambeau.kernels.indexing import gather
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.joining import stack
from flambeau.ops.promotion import promoted


@composite(method=False)
def meshgrid(*tensors, indexing=None):
    """Coordinates of all points of a grid, one view per axis. vectors of N1, N2, ... -> each (N1, N2, ...), with "xy" (N2, N1, ...)"""
    axes = _listed(tensors)
    if not axes:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing is None:
        errors.warn("torch.meshgrid: one day programs will be required to pass the indexing argument; indexing='ij' keeps what it does now")
    elif indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be one of "xy" or "ij", found {indexing!r}')
    for t in axes:
        if t.dim() > 1:
            raise RuntimeError(f"meshgrid: Expected 0D or 1D tensor, found shape {tuple(t.shape)}")
        if t.device != axes[0].device:
            raise RuntimeError(f"torch.meshgrid expects all tensors to have the same device, found {axes[0].device} and {t.device}")
        if t.dtype is not axes[0].dtype:
            raise RuntimeError(f"torch.meshgrid expects all tensors to have the same dtype, found {axes[0].dtype} and {t.dtype}")
    swap = indexing == "xy" and len(axes) > 1
    if swap:
        axes[0], axes[1] = axes[1], axes[0]
    shape = tuple(t.numel() for t in axes)
    grids = [t.reshape([-1 if i == j else 1 for j in range(len(axes))]).expand(shape) for i, t in enumerate(axes)]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def _listed(tensors) -> list:
    """The tensors of f(a, b) and of f([a, b])."""
    return list(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else list(tensors)


@composite(method=False)
def cartesian_prod(*tensors):
    """All combinations of one element from each vector. vectors of N1, ..., Nk -> (N1 ... Nk, k), or the vector itself if there is one"""
    axes = _listed(tensors)
    for t in axes:
        if t.dim() != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(axes) == 1:
        return axes[0]
    return stack([c.reshape(-1) for c in meshgrid(*axes, indexing="ij")], 1)


@composite(method=True)
def combinations(input, r=2, with_replacement=False):
    """All choices of r elements of a vector, in order. (N,) -> (number of choices, r)"""
    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(choose(range(input.numel()), r))
    flat = input.new_tensor([i for row in rows for i in row], dtype=dtypes.int64)
    return input.index_select(0, flat).reshape(len(rows), r)


@composite(method=False)
def block_diag(*tensors):
    """Matrices along a diagonal with zeros elsewhere; a vector is a row. (M1, N1), (M2, N2), ... -> (M1 + M2 + ..., N1 + N2 + ...)"""
    blocks = _listed(tensors)
    if not blocks:
        return OPS["mul"](0.0, 0.0).new_empty((1, 0))  # of numbers a tensor of the default dtype, on the default device
    for i, t in enumerate(blocks):
        if t.dim() > 2:
            raise RuntimeError(f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {t.dim()} dimensions")
    common = promoted(*blocks)  # before they all become matrices: a 0-d tensor has less of a say
    return _block_diag([(t.reshape(1, -1) if t.dim() < 2 else t).to(common) for t in blocks])


@on_arrays
def _block_diag(tensors):
    """Matrices of one dtype along a diagonal."""
    out = arrays.empty_beside(tensors[0], (sum(t.shape[0] for t in tensors), sum(t.shape[1] for t in tensors)), tensors[0].dtype)
    arrays.fill(out, 0)
    row = column = 0
    for t in tensors:
        arrays.write(out[row : row + t.shape[0], column : column + t.shape[1]], t)
        row, column = row + t.shape[0], column + t.shape[1]
    return out


_block_diag.derivative(tensors=lambda grad, tensors_shape: _blocks_of(grad, tensors_shape))


def _blocks_of(grad, shapes) -> list:
    """The blocks of a gradient, one for each matrix."""
    found, row, column = [], 0, 0
    for m, n in shapes:
        found.append(grad.narrow(0, row, m).narrow(1, column, n))
        row, column = row + m, column + n
    return found


_block_diag.meta(lambda tensors: ((sum(t.shape[0] for t in tensors), sum(t.shape[1] for t in tensors)), tensors[0].dtype))


@composite(method=False)
def vander(x, N=None, increasing=False):
    """The Vandermonde matrix: the powers N - 1, ..., 1, 0 of each element in a row (0, 1, ... if increasing). (M,) -> (M, N)"""
    if x.dim() != 1:
        raise RuntimeError(f"x must be a one-dimensional tensor, found shape {tuple(x.shape)}")
    n = x.numel() if N is None else N
    if n < 0:
        raise RuntimeError(f"N must be non-negative, found {n}")
    if x.dtype.category < dtypes.FLOAT:
        x = x.to(dtypes.int64)
    powers = x.new_ones((x.numel(), n))
    if n > 1:
        powers.narrow(1, 1, n - 1).copy_(x.unsqueeze(1).expand(x.numel(), n - 1).cumprod(1))
    return powers if increasing else powers.flip(1)


@on_arrays(name="nn.functional.one_hot", method=False)
def one_hot(input, num_classes=-1):
    """A row of zeros with a one at the place each class number names. (*) int64 -> (*, num_classes) int64"""
    if input.dtype != "int64":
        raise RuntimeError(f"one_hot takes indices of type LongTensor, found {input.dtype}. Try .long()")
    n = num_classes
    if type(input) is not np.ndarray or n <= 0 or gather.out_of_bounds(input, n) is not None:
        n = _classes(input, num_classes)
    found = arrays.zeros((*input.shape, n), input.dtype, arrays.device_of(input))
    found.reshape(-1)[arrays.module_of(input).arange(input.size) * n + input.reshape(-1)] = 1
    return found


@one_hot.work
def _(input, num_classes):
    if num_classes <= 0 or not 0 < input.size * num_classes <= 4096 or input.dtype != np.int64 or not input.flags.c_contiguous:
        return None
    shape, numbers = (*input.shape, 1), np.arange(num_classes)
    equal, cast = OPS["eq"].kernel.launch, arrays.casting(input.dtype)

    def compared(input):
        if gather.out_of_bounds(input, num_classes) is not None:
            return NotImplemented
        return cast(equal(input.reshape(shape), numbers))

    return compared


def _classes(input, num_classes: int) -> int:
    """How many classes there are; RuntimeError if a number is not one of them."""
    if not input.size:
        if num_classes <= 0:
            raise RuntimeError("one_hot: an empty tensor does not say how many classes there are. Pass num_classes")
    elif int(input.min()) < 0:
        raise RuntimeError(f"Class values must be non-negative, found {int(input.min())}")
    n = num_classes if num_classes != -1 else int(input.max()) + 1
    if input.size and int(input.max()) >= n:
        raise RuntimeError(f"Class values must be smaller than num_classes: found class {int(input.max())}, num_classes={n}")
    return n


@one_hot.meta
def _(input, num_classes=-1):
    if num_classes < 0:
        raise RuntimeError("one_hot on the meta device needs num_classes: there are no values to count")
    return (*input.shape, num_classes), input.dtype
