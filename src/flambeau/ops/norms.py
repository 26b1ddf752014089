"""Norms of vectors and matrices, and what is made of them: torch.norm, linalg.norm, dist, renorm.

A vector norm of order p is (sum |x|^p)^(1/p): 2 is the length, inf the largest, -inf the smallest, 0 the number of what is not zero.
A matrix norm is 'fro' (the length of all elements), 'nuc' (the sum of singular values), 2 or -2 (the largest or smallest singular value),
1 or -1 (of the sums of columns), inf or -inf (of the sums of rows).
"""

from __future__ import annotations

from math import inf

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.reductions import folding
from flambeau.kernels.reductions.reduce import count, reduce, unhalved
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.reductions import checked_dtype, dims_of, reduced_shape, unreduced
from flambeau.ops.views import whole

# -- vectors ---------------------------------------------------------------------------------------------------------------


@on_arrays(public=False, method=False, grad_name="LinalgVectorNormBackward0")
def _vector_norm(input, ord, dims, keepdim, dtype):
    """The norm of order `ord` over `dims`, in the real dtype of `dtype`."""
    out_dtype = _norm_dtype(input, dtype)
    _check_identity(input.shape, ord, dims)
    xp = arrays.module_of(input)
    input = arrays.cast(input, input.dtype if dtype is None else dtypes.asked(dtype).numpy)
    if input.dtype.kind == "c":
        input = xp.asarray(xp.hypot(input.real, input.imag))  # the bits of abs(): the derivative asks which of them was the largest
    if ord in (1, 2):
        found = folding.fold(f"norm{int(ord)}", input, dims, keepdim, out_dtype)
        if found is not None:
            return found
    size = xp.asarray(abs(unhalved(input)))
    if ord in (inf, -inf):
        return reduce("max" if ord > 0 else "min", size, dims, keepdim, out_dtype)
    if ord == 0:
        return reduce("count_nonzero", size, dims, keepdim, out_dtype)
    return _power_sum(size, ord, dims, keepdim, out_dtype)


def _power_sum(size, p, dims, keepdim, out_dtype):
    """(sum size^p)^(1/p), summed in double precision."""
    xp = arrays.module_of(size)
    with np.errstate(all="ignore"):
        powers = xp.asarray(size if p == 1 else size * size if p == 2 else size**p)
        total = reduce("sum", powers.astype("float64"), dims, keepdim, dtypes.float64.numpy)
        root = total if p == 1 else xp.sqrt(total) if p == 2 else total ** (1 / p)
        return xp.asarray(root, dtype=out_dtype)


def _norm_dtype(array, dtype):
    """NumPy's dtype of a norm: real, of the precision of the input, or as asked for."""
    own = dtypes.OF_NUMPY[array.dtype]
    if own.category < dtypes.FLOAT:
        raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor, found {own.name}. Try x.float()")
    if dtype is None:
        return own.to_real().numpy
    dtype = checked_dtype("linalg.vector_norm", dtype)
    if dtype.category < dtypes.FLOAT or dtype.is_complex != own.is_complex:
        kind = "complex for complex" if own.is_complex else "real for real"
        raise RuntimeError(f"linalg.vector_norm: dtype should be floating point and {kind} inputs, but got {dtype.name}")
    if dtypes.promote_types(own, dtype) is not dtype:
        raise RuntimeError(f"linalg.vector_norm: {own.name} does not fit into dtype ({dtype.name})")
    return dtype.to_real().numpy


def _check_identity(shape, ord, dims) -> None:
    """RuntimeError where the norm of nothing would be asked for, and has no value."""
    if (ord < 0 or ord == inf) and count(shape, dims) == 0:
        raise RuntimeError(f"linalg.vector_norm cannot compute norm {ord} of {tuple(shape)}, an empty tensor: it has no identity")


@_vector_norm.work
def _(input, ord, dims, keepdim, dtype):
    known = dtype is None and input.size and input.dtype.kind == "f" and ord in (1, 2)
    return folding.ready(f"norm{int(ord)}", input, dims, keepdim, input.dtype) if known else None


_vector_norm.meta(lambda input, ord, dims, keepdim, dtype: (reduced_shape(input.shape, dims, keepdim), _norm_dtype(input, dtype)))


def _vector_norm_gradient(grad, input, result, ord, dims, keepdim, dtype):
    """The derivative of |x|_p: sgn(x) (|x| / |x|_p)^(p - 1). Where the norm has a kink (at 0, say) the smallest subgradient."""
    x = input if dtype is None else input.to(dtype)
    shape = tuple(input.shape)
    grad, norm = unreduced(grad, shape, dims, keepdim), unreduced(result, shape, dims, keepdim)
    if ord == 0:
        return x.new_zeros(shape)
    if ord == 1:
        return x.sgn() * grad
    nothing = norm == 0
    safe = norm.masked_fill(nothing, 1)  # so that derivatives of this divide by no zero either
    if ord == 2:
        return x * (grad / safe).masked_fill(nothing, 0)
    size = x.abs()
    if ord in (inf, -inf):
        chosen = (size == norm).logical_or(size.isnan())
        return x.sgn() * (chosen * (grad / chosen.sum(dims, keepdim=True)))
    if ord < 2:
        along = x.sgn() * (size ** (ord - 1)).masked_fill(x == 0, 0)
        return along * (grad * safe ** (1 - ord)).masked_fill(nothing, 0)
    return x * size ** (ord - 2) * (grad / safe ** (ord - 1)).masked_fill(nothing, 0)


_vector_norm.derivative(input=_vector_norm_gradient)


@composite(method=False, out=True, name="linalg.vector_norm", autocast="cuda float32 unless dtype")
def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The norm of order `ord`, any number, of all elements or over `dim`. A complex tensor has a real norm."""
    if isinstance(ord, str):
        raise TypeError(f"linalg_vector_norm(): argument 'ord' must be Number, not str. Try torch.linalg.matrix_norm(x, {ord!r})")
    _check_real(ord)
    return _vector_norm(x, ord, dims_of(dim, x.dim()), keepdim, dtype)


def _check_real(ord) -> None:
    if isinstance(ord, complex):
        raise RuntimeError(f"linalg.norm: Expected a non-complex scalar for ord, found {ord}")


# -- matrices --------------------------------------------------------------------------------------------------------------


@composite(method=False, out=True, name="linalg.matrix_norm", autocast="cuda float32 unless dtype")
def matrix_norm(A, ord="fro", dim=(-2, -1), keepdim=False, *, dtype=None):
    """The norm of matrices, which lie in the two dimensions `dim`. ord: 'fro', 'nuc', 2, -2, 1, -1, inf or -inf."""
    rows, columns = _two_dims(A, dim)
    _check_real(ord)
    if A.dtype.category < dtypes.FLOAT:
        raise RuntimeError(f"linalg.matrix_norm: Expected a floating point or complex tensor, found {A.dtype.name}. Try x.float()")
    if ord == "fro":
        return _vector_norm(A, 2, (rows, columns), keepdim, dtype)
    if dtype is not None:
        A = A.to(checked_dtype("linalg.matrix_norm", dtype))
    if ord in ("nuc", 2, -2):
        return _singular_norm(A, ord, rows, columns, keepdim)
    if ord not in (1, -1, inf, -inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported. Try 'fro', 'nuc', 2, -2, 1, -1, inf or -inf")
    along, over = (rows, columns) if abs(ord) == 1 else (columns, rows)
    sums = _vector_norm(A, 1, (along,), keepdim, None)
    if not keepdim and over > along:
        over -= 1
    return _extreme(sums, over, ord > 0, keepdim)


def _extreme(values, dim: int, largest: bool, keepdim: bool):
    """The largest (or smallest) along a dimension. The largest of no sums is 0."""
    if largest and values.shape[dim] == 0:
        return values.sum(dim, keepdim=keepdim)
    return values.amax(dim, keepdim=keepdim) if largest else values.amin(dim, keepdim=keepdim)


def _singular_norm(A, ord, rows: int, columns: int, keepdim: bool):
    from flambeau.ops.decompositions import svdvals

    if A.dtype in (dtypes.float16, dtypes.bfloat16):
        raise RuntimeError(f"linalg.matrix_norm: Low precision dtypes not supported. Got {A.dtype.name}. Try x.float()")
    values = svdvals(A.movedim((rows, columns), (-2, -1)))
    found = values.sum(-1) if ord == "nuc" else _extreme(values, -1, ord > 0, False)
    return found.unsqueeze(-1).unsqueeze(-1).movedim((-2, -1), (rows, columns)) if keepdim else found


def _two_dims(A, dim) -> tuple[int, int]:
    if A.dim() < 2:
        raise RuntimeError(f"linalg.matrix_norm: The input tensor A must have at least 2 dimensions, found shape {tuple(A.shape)}")
    if not isinstance(dim, (tuple, list)):
        raise TypeError(f"linalg.matrix_norm(): argument 'dim' must be a tuple of two ints, not {type(dim).__name__}")
    if len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple; it is {tuple(dim)}")
    rows, columns = (layout.wrap_dim(whole(d), A.dim()) for d in dim)
    if rows == columns:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different, found {tuple(dim)}")
    return rows, columns


# -- either ----------------------------------------------------------------------------------------------------------------


@composite(method=False, out=True, name="linalg.norm")
def linalg_norm(A, ord=None, dim=None, keepdim=False, *, dtype=None):
    """A vector norm where one dimension is meant, a matrix norm where two are; without `ord` the length of all elements."""
    if dim is not None and isinstance(dim, (tuple, list)) and len(dim) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}")
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is None:
        if A.dim() not in (1, 2):
            raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.dim()}D.")
        dim = tuple(range(A.dim()))
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    if isinstance(ord, str) or len(dims) == 2:
        return matrix_norm(A, ord, dims, keepdim, dtype=dtype)
    return vector_norm(A, ord, dims, keepdim, dtype=dtype)


@composite(out=True, autocast="cuda float32 unless dtype")
def norm(input, p="fro", dim=None, keepdim=False, dtype=None):
    """The p-norm of all elements or over dimensions; p may be 'fro' (2) or, of matrices, 'nuc'. See linalg.norm."""
    if isinstance(p, str):
        dims = tuple(range(input.dim())) if dim is None else tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
        if p != "fro" or (dim is not None and len(dims) > 2):
            return matrix_norm(input, p, dims, keepdim, dtype=dtype)
        p = 2
    return _vector_norm(input, 2 if p is None else p, dims_of(dim, input.dim()), keepdim, dtype)


@composite(method=False, out=True, autocast="cuda float32")
def frobenius_norm(input, dim, keepdim=False):
    """The length of all elements over `dim`."""
    return vector_norm(input, 2, dim, keepdim)


@composite(method=False, out=True, autocast="cuda float32")
def nuclear_norm(input, dim=(-2, -1), keepdim=False):
    """The sum of the singular values of matrices."""
    return matrix_norm(input, "nuc", dim, keepdim)


@composite(method=False)
def norm_except_dim(v, pow=2, dim=0):
    """The norms of the slices along `dim`, which keeps its size where all others become 1; with dim = -1 the norm of all elements."""
    if dim == -1:
        return vector_norm(v, pow)
    return vector_norm(v, pow, [d for d in range(v.dim()) if d != dim], True)


@composite(out=True, grad_name="DistBackward0", autocast="cuda float32")
def dist(input, other, p=2):
    """The p-norm of input - other, which broadcast."""
    return vector_norm(input - other, p)


@composite(inplace=True, out="cast whole", grad_name="RenormBackward0", autocast="cuda float32")
def renorm(input, p, dim, maxnorm):
    """Slices along `dim` whose p-norm exceeds `maxnorm`, scaled down to it."""
    if p <= 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported, found p = {p}")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: maxnorm is a length and may not be negative, found {maxnorm}")
    if input.dim() < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, found {input.dim()}")
    dim = layout.wrap_dim(whole(dim), input.dim())
    wide = dtypes.float32 if input.dtype in (dtypes.float16, dtypes.bfloat16) else None
    norms = vector_norm(input, p, [d for d in range(input.dim()) if d != dim], True, dtype=wide)
    factors = (maxnorm / (norms + 1e-7)).masked_fill(norms <= maxnorm, 1)  # 1e-7: PyTorch's, so that the result stays below
    return input.contiguous() * factors.to(input.dtype.to_real())
