"""Products of tensors over chosen dimensions: tensordot, inner, kron, and the cross product of 3-vectors."""

from __future__ import annotations

from math import prod

from flambeau.kernels import arrays, layout
from flambeau.ops import specs
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.matrix import conj
from flambeau.ops.views import _unsafe_view, whole


@composite(method=False, out="same detached", autocast="cuda widest")
def tensordot(a, b, dims=2):
    """The product of two tensors summed over `dims` pairs of dimensions: the last of a and the first of b, or two lists of dimensions.

    tensordot(a, b, dims=2)               (..., I, J), (I, J, ...) -> (..., ...)
    tensordot(a, b, dims=([1], [0]))      a matrix product
    """
    if a.dtype is not b.dtype:
        raise RuntimeError(f"tensordot: both inputs should have same dtype, found {a.dtype} and {b.dtype}")
    of_a, of_b = _paired_dims(a, b, dims)
    for i, j in zip(of_a, of_b, strict=True):
        m, n = a.shape[i], b.shape[j]
        if m == 1 != n:
            b = b.sum(j, keepdim=True, dtype=b.dtype)  # a size of 1 broadcasts: the one element multiplies them all
        elif n == 1 != m:
            a = a.sum(i, keepdim=True, dtype=a.dtype)
        elif m != n:
            raise RuntimeError(f"contracted dimensions need to match, found {m} in dim {i} of the first and {n} in dim {j} of the second")
    free_a = [d for d in range(a.dim()) if d not in of_a]
    free_b = [d for d in range(b.dim()) if d not in of_b]
    summed = prod(a.shape[d] for d in of_a)
    shape = [a.shape[d] for d in free_a] + [b.shape[d] for d in free_b]
    left = a.permute([*free_a, *of_a]).reshape((prod(a.shape[d] for d in free_a), summed))
    right = b.permute([*of_b, *free_b]).reshape((summed, prod(b.shape[d] for d in free_b)))
    return left.mm(right).reshape(shape)


def _paired_dims(a, b, dims) -> tuple[list[int], list[int]]:
    """The dimensions of a and of b to sum over, from either way of giving them."""
    if hasattr(dims, "_array"):
        dims = dims.tolist()
    if isinstance(dims, (tuple, list)):
        if len(dims) == 1:
            dims = dims[0]
        else:
            of_a, of_b = ([layout.wrap_dim(whole(d), t.dim()) for d in given] for t, given in zip((a, b), dims, strict=True))
            if len(of_a) != len(of_b):
                raise RuntimeError(f"both dimension lists should have same length, got {len(of_a)} and {len(of_b)}")
            return of_a, of_b
    count = whole(dims)
    if count < 0:
        raise RuntimeError(f"tensordot expects dims >= 0, but got dims={count}")
    if count > min(a.dim(), b.dim()):
        raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={count} for {a.dim()} and {b.dim()} dimensions")
    return list(range(a.dim() - count, a.dim())), list(range(count))


def _autocast(device: str, given: dict) -> str | None:
    """inner of two vectors is no matrix product on the CPU."""
    return "given" if device == "cpu" and all(getattr(given.get(name), "ndim", 0) == 1 for name in ("input", "other")) else None


@composite(out=True, autocast=_autocast)
def inner(input, other):
    """The products of rows: (..., K), (..., K) summed over K, every row of `input` with every row of `other`. A 0-d tensor multiplies."""
    if input.dim() == 0 or other.dim() == 0:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        shapes = f"{list(input.shape)} and {list(other.shape)}"
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes {shapes}")
    return tensordot(input, other, ([-1], [-1]))


@composite(out="cast rows", grad_name="UnsafeViewBackward0")
def kron(input, other):
    """The Kronecker product: every element of `input` replaced by itself times `other`. (A, B), (C, D) -> (A C, B D)."""
    ndim = max(input.dim(), other.dim())
    a, b = ((1,) * (ndim - t.dim()) + tuple(t.shape) for t in (input, other))
    inputs, others = [n for size in a for n in (size, 1)], [n for size in b for n in (1, size)]
    if ndim > 1 and min(a[-1], b[-1]) > 1 and b[-1] < LONG < a[-1] * b[-1]:  # rows of the result as they lie: short loops would take longer
        products = _rows(input, inputs, a[-1], b[-1]) * _rows(other, others, a[-1], b[-1])
    else:
        products = input.reshape(inputs) * other.reshape(others)
    return _unsafe_view(products, tuple([m * n for m, n in zip(a, b, strict=True)]))


LONG = 256  # elements that make a loop worth starting


def _rows(tensor, shape: list[int], m: int, n: int):
    """The tensor in this shape, its last two dimensions repeated to (m, n) and joined."""
    return tensor.reshape(shape).expand([*shape[:-2], m, n]).reshape([*shape[:-2], m * n])


@on_arrays(public=False, method=False, promote=("input", "other"), grad_name="LinalgCrossBackward0", meta=specs.broadcast)
def _cross(input, other, dim):
    """The cross product along `dim`, which has size 3 in both."""
    xp = arrays.module_of(input)
    shape = layout.broadcast_shapes(tuple(input.shape), tuple(other.shape))
    out = arrays.empty_beside(input, shape, input.dtype)
    near = (arrays.contiguous(input), arrays.contiguous(other), out)  # each element is read twice, and once from afar will do
    a, b, c = ([x[(..., i, *(slice(None),) * (-dim - 1))] for i in range(3)] for x in near)
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        xp.subtract(a[j] * b[k], a[k] * b[j], out=c[i])
    return out


_cross.derivative(
    input=lambda grad, other, dim: _cross(conj(other), grad, dim), other=lambda grad, input, dim: _cross(grad, conj(input), dim)
)


@composite(method=False, out="cast apart", name="linalg.cross", autocast="cuda given")
def linalg_cross(input, other, *, dim=-1):
    """The cross product of 3-vectors along `dim`; other dimensions broadcast."""
    if input.dim() != other.dim():
        raise RuntimeError(f"linalg.cross: inputs must have the same number of dimensions, found {input.dim()} and {other.dim()}")
    at = layout.wrap_dim(whole(dim), input.dim())
    if input.shape[at] != 3 or other.shape[at] != 3:
        raise RuntimeError(f"linalg.cross: dimension {dim} of the inputs must have length 3, found {input.shape[at]} and {other.shape[at]}")
    return _cross(input, other, at - input.dim())


@composite(out="cast apart", autocast="cuda widest")
def cross(input, other, dim=None):
    """The cross product of 3-vectors along `dim`: the first dimension of size 3 if none is named."""
    if dim is None:
        shape = layout.broadcast_shapes(tuple(input.shape), tuple(other.shape))
        if 3 not in shape:
            raise RuntimeError(f"no dimension of size 3 in input: linalg.cross takes 3-vectors, found shape {shape}")
        dim = shape.index(3)
    return linalg_cross(input, other, dim=dim)
