"""Matrix products: mm and its batched, broadcasting and accumulating relatives, and products of vectors.

All of them end in `kernels.gemm`. Products do not promote: both factors have one dtype. Half precision is multiplied in float32.
"""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.native import native
from flambeau.kernels.templates import gemm
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.matrix import adjoint, conj
from flambeau.ops.views import _unsafe_view, squeeze_product

# -- matrices --------------------------------------------------------------------------------------------------------------


@on_arrays(out="same", autocast="half")
def mm(input, mat2):
    """The product of two matrices. (M, K), (K, N) -> (M, N)."""
    found = gemm.product_at_once(input, mat2)
    if found is not NotImplemented:
        return found
    _check_matrices("mm", input, mat2)
    return gemm.product(input, mat2)


def _left_gradient(grad, mat2, turned):
    """grad mat2^H, stored as the left factor is: by columns where that is (a transposed view), so that nobody has to copy it."""
    return adjoint(mm(mat2, adjoint(grad))) if turned else mm(grad, adjoint(mat2))


def _right_gradient(grad, mat1, turned):
    """mat1^H grad, stored as the right factor is."""
    return adjoint(mm(adjoint(grad), mat1)) if turned else mm(adjoint(mat1), grad)


mm.derivative(
    input=lambda grad, mat2, input_turned: _left_gradient(grad, mat2, input_turned),
    mat2=lambda grad, input, mat2_turned: _right_gradient(grad, input, mat2_turned),
)


mm.meta(lambda input, mat2: (_check_matrices("mm", input, mat2), input.dtype))


@on_arrays(out="same", autocast="half")
def bmm(input, mat2):
    """The products of two batches of matrices. (B, M, K), (B, K, N) -> (B, M, N)."""
    if input.ndim == 3:
        found = gemm.quick(input, mat2)
        if found is not NotImplemented:
            return found
    _check_batches("bmm", input, mat2)
    return gemm.product(input, mat2)


bmm.derivative(input=lambda grad, mat2: bmm(grad, adjoint(mat2)), mat2=lambda grad, input: bmm(adjoint(input), grad))


bmm.meta(lambda input, mat2: (_check_batches("bmm", input, mat2), input.dtype))


@on_arrays(public=False, method=False, grad_name="UnsafeViewBackward0")
def _matmul(input, other):
    """Products of matrices whose leading dimensions broadcast. (..., M, K), (..., K, N) -> (..., M, N)."""
    _check_broadcast(input, other)
    return gemm.batched(input, other)


@_matmul.meta
def _(input, other):
    lead = _check_broadcast(input, other)
    return (*lead, input.shape[-2], other.shape[-1]), input.dtype


def _other_gradient(grad, input, other_shape):
    """input^H grad; where `other` is a single matrix, all leading dimensions are rows of one product."""
    if len(other_shape) > 2:
        return matmul(adjoint(input), grad)
    rows = _count(input.shape[:-1])
    return mm(adjoint(input.reshape((rows, input.shape[-1]))), grad.reshape((rows, grad.shape[-1])))


_matmul.derivative(input=lambda grad, other: matmul(grad, adjoint(other)), other=_other_gradient)


@composite(out="same", aliases=("linalg.matmul",), autocast="half")
def matmul(input, other):
    """The matrix product, broadcasting over leading dimensions; vectors count as a row on the left, a column on the right.

    (..., M, K), (..., K, N) -> (..., M, N);  (K), (K) -> ();  (..., M, K), (K) -> (..., M);  (K), (..., K, N) -> (..., N)
    """
    if not hasattr(other, "_array") or not hasattr(input, "_array"):
        found = other if hasattr(input, "_array") else input
        raise TypeError(f"matmul(): argument 'other' must be Tensor, not {type(found).__name__}")
    a, b = input.dim(), other.dim()
    if a == 2 and b == 2:
        return mm.call(input, other)
    if a == 0 or b == 0:
        raise RuntimeError(f"matmul: both arguments need to be at least 1D, found {a}D and {b}D. Try input * other")
    if a > 1 and b > 1:
        return _matmul(input, other)
    if a == 1 and b == 1:
        return dot(input, other)
    if a == 1:
        return squeeze_product(matmul(input.unsqueeze(0), other), -2)
    return mv(input, other) if a == 2 else _matmul(input, other.unsqueeze(1)).squeeze(-1)


def _count(shape) -> int:
    n = 1
    for s in shape:
        n *= s
    return n


# -- vectors ---------------------------------------------------------------------------------------------------------------


@on_arrays(out="same", autocast="cuda half")
def mv(input, vec):
    """The product of a matrix and a vector. (M, K), (K) -> (M)."""
    _check_vector("mv", input, vec)
    return gemm.product(input, vec[:, None]).reshape(input.shape[0])


@mv.work
def _(input, vec):
    rows, column = input.shape[:1], (vec.shape[0], 1)

    def run(input, vec):
        found = gemm.quick(input, vec.reshape(column))
        return found if found is NotImplemented else found.reshape(rows)

    return run if vec.flags.c_contiguous else None


mv.derivative(
    input=lambda grad, vec: grad.unsqueeze(1) * conj(vec).unsqueeze(0),
    vec=lambda grad, input: mv(adjoint(input), grad),
)


mv.meta(lambda input, vec: (_check_vector("mv", input, vec), input.dtype))


@on_arrays(out="same", autocast="cuda widest")
def dot(input, tensor):
    """The sum of products of two vectors. (K), (K) -> ()."""
    _check_vectors("dot", input, tensor)
    return gemm.dot(input, tensor)


def _quick_dot(input, tensor):
    if type(input) is not np.ndarray or type(tensor) is not np.ndarray or not input.ndim == tensor.ndim == 1 or input.size >= gemm.PIECE:
        return NotImplemented
    found = gemm.quick(input.reshape(1, -1), tensor.reshape(-1, 1))
    return found if found is NotImplemented else found.reshape(())


dot.work(lambda input, tensor: _quick_dot)
dot.derivative(input=lambda grad, tensor: grad * conj(tensor), tensor=lambda grad, input: grad * conj(input))


dot.meta(lambda input, tensor: (_check_vectors("dot", input, tensor), input.dtype))


@composite(out="same", grad_name="VdotBackward0", autocast="cuda widest")
def vdot(input, other):
    """`dot` with the first vector conjugated."""
    return dot(conj(input), other)


@composite(out=True, method=False, name="linalg.vecdot", autocast="half")
def vecdot(x, y, *, dim=-1):
    """The sums of products conj(x) y along `dim`; other dimensions broadcast. (..., K), (..., K) -> (...)."""
    if x.dtype is not y.dtype:
        raise RuntimeError(f"linalg.vecdot: Expected x and y of the same dtype, found {x.dtype} and {y.dtype}")
    if x.dtype.category < dtypes.FLOAT:
        raise RuntimeError(f"linalg.vecdot: Expected a floating point or complex tensor, found {x.dtype.name}. Try x.float()")
    if x.dim() == 1 and y.dim() == 1:
        return vdot(x, y)
    return (conj(x) * y).sum(dim)


@composite(out=True, aliases=("ger",))
def outer(input, vec2):
    """All products of two vectors' elements. (N), (M) -> (N, M)."""
    _check_outer(input, vec2)
    return input.unsqueeze(1) * vec2


def _check_outer(input, vec2) -> None:
    for name, v in (("self", input), ("vec2", vec2)):
        if v.dim() != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {v.dim()}-D")


# -- products added to something -------------------------------------------------------------------------------------------


def _scaled(x, factor):
    return x if factor == 1 else x * (factor.conjugate() if isinstance(factor, complex) else factor)


def _accumulate(input, mat1, mat2, beta, alpha):
    """beta input + alpha mat1 @ mat2, `input` broadcast; for matrices and batches of them. With beta = 0, input is not read."""
    out = arrays.empty_beside(mat1, (*mat1.shape[:-1], mat2.shape[-1]), mat1.dtype)
    return gemm.product_into(out, mat1, mat2, alpha, beta, input)


@on_arrays(inplace=True, out="same", autocast="half")
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """beta * input + alpha * (mat1 @ mat2). input broadcasts to (M, N); mat1 (M, K), mat2 (K, N) -> (M, N)."""
    _check_addend("addmm", input, _check_matrices("addmm", mat1, mat2), mat1.dtype)
    return _accumulate(input, mat1, mat2, beta, alpha)


@addmm.work
def _(input, mat1, mat2, beta, alpha):
    shape, dtype = (mat1.shape[0], mat2.shape[1]), mat1.dtype
    if input.ndim != 1 or beta == 0 or input.shape != shape[1:] or dtype.char not in "fd":
        return None
    gemm.bound()
    product, empty = native.lib.gemm if native.lib is not None else native.not_compiled, native.empty

    def run(input, mat1, mat2):
        out = empty(shape, dtype)
        done = product(mat1, mat2, out, alpha, beta, input)
        return done if done is NotImplemented else out

    return run


addmm.derivative(
    input=lambda grad, beta: _scaled(grad, beta),
    mat1=lambda grad, mat2, alpha, mat1_turned: _scaled(_left_gradient(grad, mat2, mat1_turned), alpha),
    mat2=lambda grad, mat1, alpha, mat2_turned: _scaled(_right_gradient(grad, mat1, mat2_turned), alpha),
)


addmm.meta(lambda input, mat1, mat2, **_: (_check_addend("addmm", input, _check_matrices("addmm", mat1, mat2), mat1.dtype), mat1.dtype))


@on_arrays(inplace=True, out="same", autocast="half")
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * (batch1 @ batch2). input broadcasts to (B, M, N); batch1 (B, M, K), batch2 (B, K, N) -> (B, M, N)."""
    _check_addend("baddbmm", input, _check_batches("baddbmm", batch1, batch2), batch1.dtype)
    return _accumulate(input, batch1, batch2, beta, alpha)


baddbmm.derivative(
    input=lambda grad, beta: _scaled(grad, beta),
    batch1=lambda grad, batch2, alpha: _scaled(bmm(grad, adjoint(batch2)), alpha),
    batch2=lambda grad, batch1, alpha: _scaled(bmm(adjoint(batch1), grad), alpha),
)


@baddbmm.meta
def _(input, batch1, batch2, *, beta=1, alpha=1):
    return _check_addend("baddbmm", input, _check_batches("baddbmm", batch1, batch2), batch1.dtype), batch1.dtype


@composite(inplace=True, out=True, grad_name="AddbmmBackward0", autocast="half")
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """beta * input + alpha * (the sum over the batch of batch1 @ batch2). input broadcasts to (M, N); (B, M, K), (B, K, N) -> (M, N)."""
    _check_batches("addbmm", batch1, batch2)
    b, m, k = tuple(batch1.shape)
    side_by_side = batch1.transpose(0, 1).reshape((m, b * k))  # summing over the batch is summing over longer rows
    return addmm(input, side_by_side, batch2.reshape((b * k, batch2.shape[2])), beta=beta, alpha=alpha)


@composite(inplace=True, out="same whole", grad_name="AddmvBackward0", autocast="cpu given, cuda half")
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """beta * input + alpha * (mat @ vec). input broadcasts to (M); mat (M, K), vec (K) -> (M)."""
    _check_vector("addmv", mat, vec)
    if input.dtype is not mat.dtype:
        raise RuntimeError(f"addmv: all three must have the same dtype, found {input.dtype}, {mat.dtype} and {vec.dtype}")
    return _unsafe_view(addmm(input.unsqueeze(-1), mat, vec.unsqueeze(1), beta=beta, alpha=alpha), (mat.shape[0],))


@composite(inplace=True, out=True, grad_name="AddrBackward0", autocast="cuda half")
def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """beta * input + alpha * outer(vec1, vec2). input broadcasts to (N, M); vec1 (N), vec2 (M) -> (N, M). Bools are combined by `or`."""
    _check_outer(vec1, vec2)
    dtype = dtypes.promote_types(input.dtype, dtypes.promote_types(vec1.dtype, vec2.dtype))
    layout.expand(tuple(input.shape), input.stride(), (vec1.numel(), vec2.numel()))  # raises where it does not broadcast
    for which, factor in (("beta", beta), ("alpha", alpha)):
        if isinstance(factor, float) and dtype.category < dtypes.FLOAT:
            raise RuntimeError(f"For integral input tensors, argument {which} must not be a floating point number. (addr)")
        if isinstance(factor, bool) and dtype is not dtypes.bool:
            raise RuntimeError(f"Boolean {which} only supported for Boolean results. Try {int(factor)} (addr, {dtype.name})")
    if dtype is dtypes.bool:
        return outer(vec1 * bool(alpha), vec2).logical_or(input * bool(beta))
    # The factors are rounded to the dtype before they are multiplied with: half precision shows the difference.
    added = outer(vec1.to(dtype) * vec1.new_full((), alpha, dtype=dtype), vec2.to(dtype))
    if beta == 0:  # input is not read: NaN times 0 would be NaN; but it has a gradient, of zeros
        return added + input.to(dtype, copy=True).zero_() if input.requires_grad else added
    return input.to(dtype) * input.new_full((), beta, dtype=dtype) + added


# -- checks, each of which gives the shape of the product -------------------------------------------------------------------


def _check_matrices(name: str, a, b) -> tuple[int, int]:
    for which, m in (("mat1", a), ("mat2", b)):
        if m.ndim != 2:
            raise RuntimeError(f"{name}: {which} must be a matrix, got a {m.ndim}-D tensor of shape {tuple(m.shape)}")
    _check_dtypes(name, a, b)
    if a.shape[1] != b.shape[0]:
        _refuse_shapes(a.shape, b.shape)
    return a.shape[0], b.shape[1]


def _refuse_shapes(a, b) -> None:
    hint = ""
    if a[-1] == b[-1]:
        hint = ". Did you mean mat1 @ mat2.mT?"
    elif a[-2] == b[-2]:
        hint = ". Did you mean mat1.mT @ mat2?"
    raise RuntimeError(
        f"mat1 and mat2 shapes cannot be multiplied: {a[-2]}x{a[-1]} and {b[-2]}x{b[-1]}, but the columns of the first "
        f"({a[-1]}) must be as many as the rows of the second ({b[-2]}){hint}"
    )


def _check_dtypes(name: str, a, b) -> None:
    if a.dtype != b.dtype:
        found = " and ".join(dtypes.in_messages(dtypes.of_array(m)) for m in (a, b))
        raise RuntimeError(
            f"{name}: mat1 and mat2 must have the same dtype, but got {found} (expected m1 and m2 to have the same "
            f"dtype, but got: {dtypes.of_array(a).name} != {dtypes.of_array(b).name}). Convert one with .to(...)"
        )
    if dtypes.of_array(a) is dtypes.bool:
        raise NotImplementedError(f'"{name}" is not implemented for bool tensors: convert them first, as in x.float()')


def _check_batches(name: str, a, b) -> tuple[int, int, int]:
    for which, m in (("batch1", a), ("batch2", b)):
        if m.ndim != 3:
            raise RuntimeError(f"{which} must be a 3D tensor, got {m.ndim}D of shape {tuple(m.shape)} ({name}; torch.matmul broadcasts)")
    _check_dtypes(name, a, b)
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be [{a.shape[0]}, {a.shape[2]}], found "
            f"[{b.shape[0]}, {b.shape[1]}]."
        )
    return *a.shape[:2], b.shape[2]


def _check_broadcast(a, b) -> tuple[int, ...]:
    """The broadcast leading dimensions of two stacks of matrices."""
    _check_dtypes("matmul", a, b)
    if a.shape[-1] != b.shape[-2]:
        _refuse_shapes(a.shape, b.shape)
    return layout.broadcast_shapes(tuple(a.shape[:-2]), tuple(b.shape[:-2]))


def _check_vector(name: str, mat, vec) -> tuple[int]:
    if mat.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got a {mat.ndim}-D and a {vec.ndim}-D tensor: {name} takes (M, K) and (K)")
    _check_dtypes(name, mat, vec)
    if mat.shape[1] != vec.shape[0]:
        raise RuntimeError(
            f"size mismatch, got mat ({mat.shape[0]}x{mat.shape[1]}), vec ({vec.shape[0]}): {name} needs {mat.shape[1]} elements"
        )
    return (mat.shape[0],)


def _check_vectors(name: str, a, b) -> tuple[()]:
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, found {a.ndim}D and {b.ndim}D ({name}; torch.matmul takes others)")
    if a.dtype != b.dtype:
        raise RuntimeError(f"dot : expected both vectors to have same dtype, found {dtypes.of_array(a).name} and {dtypes.of_array(b).name}")
    _check_dtypes(name, a, b)
    if a.size != b.size:
        raise RuntimeError(f"inconsistent tensor size: {a.size} and {b.size} elements cannot be paired")
    return ()


def _check_addend(name: str, input, shape: tuple, dtype) -> tuple:
    if input.dtype != dtype:
        found = f"{dtypes.of_array(input).name} and {dtypes.OF_NUMPY[dtype].name}"
        raise RuntimeError(
            f"{name}: Input dtypes must be the same (they must have the same dtype), found {found}. Convert one with .to(...)"
        )
    if input.shape != shape and input.shape != shape[-1:]:
        layout.expand(tuple(input.shape), arrays.element_strides(input), shape)  # raises where it does not broadcast
    return shape
