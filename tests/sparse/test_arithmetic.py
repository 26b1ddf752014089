"""Arithmetic, products, sums and shapes of sparse tensors, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_oracle import KINDS, agree, assert_same, dense, hybrid, matrix, raises_alike, rows

import flambeau
from flambeau.kernels.native import native
from flambeau.kernels.templates import sparse

torch = pytest.importorskip("torch")

KEEPS_ZERO = """abs asin asinh atan atanh ceil conj conj_physical deg2rad frac floor log1p neg positive rad2deg round sin sinh sign sgn signbit tan
    tanh trunc expm1 sqrt isinf isposinf isneginf isnan erf erfinv relu square nan_to_num""".split()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", KEEPS_ZERO)
def test_functions_that_keep_zero(kind, name):
    """They work on the stored elements, and give a tensor of the same layout."""
    if (kind in ("csr", "csc") and name in ("conj", "square", "nan_to_num")) or (kind == "csc" and name == "positive"):
        assert (getattr(KINDS[kind](flambeau), name)().to_dense() == getattr(KINDS[kind](flambeau).to_dense(), name)()).all()
        return  # PyTorch has them for COO only
    agree(lambda t: getattr(KINDS[kind](t), name)(), exactly=True)
    if name in ("abs", "sin", "neg", "relu") and kind != "csc":
        (raises_alike if kind in ("coo", "hybrid") and name != "neg" else agree)(lambda t: getattr(KINDS[kind](t).clone(), f"{name}_")())


BINARY = {
    "sum": lambda t, x: x + x,
    "difference": lambda t, x: t.sub(x, x, alpha=3),
    "scaled sum": lambda t, x: t.add(x, x, alpha=2),
    "number": lambda t, x: x * 3,
    "number first": lambda t, x: 3 * x,
    "0-d tensor": lambda t, x: x * t.tensor(2.0),
    "product": lambda t, x: x.coalesce() * x.coalesce(),
    "quotient": lambda t, x: x / 4,
    "floor": lambda t, x: x // 0.1,
    "power": lambda t, x: x**2,
    "in place": lambda t, x: x.clone().mul_(2).div_(3).add_(x),
    "dense first": lambda t, x: t.ones(tuple(x.shape)) + x,
    "dense scaled": lambda t, x: t.ones(tuple(x.shape)).add(x, alpha=2),
    "dense in place": lambda t, x: t.ones(tuple(x.shape)).add_(x, alpha=-1),
    "dense minus": lambda t, x: t.ones(tuple(x.shape)) - x,
    "times dense": lambda t, x: x * dense(t, *x.shape),
    "dense times": lambda t, x: dense(t, *x.shape) * x,
    "promoted": lambda t, x: x + x.double(),
}


@pytest.mark.parametrize("kind", ["coo", "coalesced", "hybrid"])
@pytest.mark.parametrize("name", BINARY)
def test_arithmetic(kind, name):
    """Sums, products and quotients are PyTorch's."""
    agree(lambda t: BINARY[name](t, KINDS[kind](t)))


def test_tensors_that_differ_in_their_places():
    """Places that only one of the operands has are kept in sums and dropped from products."""
    other = lambda t: t.sparse_coo_tensor([[0, 1, 2], [2, 1, 2]], [1.0, 2.0, 3.0], (4, 5)).coalesce()  # noqa: E731
    agree(lambda t: matrix(t, coalesced=True) + other(t), exactly=True)
    agree(lambda t: matrix(t) - other(t))
    agree(lambda t: matrix(t, coalesced=True) * other(t), exactly=True)
    agree(lambda t: t.add(rows(t), other(t).to_sparse_csr(), alpha=2), exactly=True)
    for program in (
        lambda t: matrix(t) + t.sparse_coo_tensor((4, 4)),
        lambda t: matrix(t) + 1,
        lambda t: matrix(t) / dense(t, 4, 5),
        lambda t: matrix(t) ** 0,
        lambda t: dense(t, 4, 4) + matrix(t),
        lambda t: matrix(t).clone().add_(dense(t, 4, 5)),
        lambda t: matrix(t) - dense(t, 4, 5),
        lambda t: t.ones(4, 5, dtype=t.int64).add_(matrix(t)),
    ):
        raises_alike(program)


@pytest.mark.parametrize("first, second", [("int8", "uint8"), ("uint8", "int16")])
def test_sums_of_dtypes(first, second):
    """What is subtracted is converted before its sign changes, and a sum in place is brought back to the dtype that is there."""
    a, b = (lambda t, d=d, n=n: t.tensor([[1, 0], [n, 3]], dtype=getattr(t, d)) for d, n in ((first, 2), (second, 9)))
    agree(lambda t: a(t) - b(t).to_sparse(), exactly=True)
    agree(lambda t: a(t).to_sparse() - b(t).to_sparse(), exactly=True)
    if second == "int16":
        agree(lambda t: a(t).to_sparse().add_(b(t).to_sparse()), exactly=True)


MATRICES = {
    "mm": lambda t, x: t.mm(x, dense(t, 5, 3)),
    "matmul": lambda t, x: x @ dense(t, 5, 3),
    "sparse.mm": lambda t, x: t.sparse.mm(x, dense(t, 5, 3)),
    "turned": lambda t, x: t.sparse.mm(x, dense(t, 3, 5).t()),
    "vector": lambda t, x: x @ dense(t, 5),
    "mv": lambda t, x: t.mv(x, dense(t, 5)),
    "dense first": lambda t, x: dense(t, 3, 4) @ x,
    "addmm": lambda t, x: t.addmm(dense(t, 4, 3), x, dense(t, 5, 3), beta=2, alpha=3),
    "sparse.addmm": lambda t, x: t.sparse.addmm(dense(t, 4, 3), x, dense(t, 5, 3), beta=2, alpha=3),
    "one column": lambda t, x: x @ dense(t, 5, 1),
    "no columns": lambda t, x: x @ t.zeros(5, 0),
    "wide": lambda t, x: x @ dense(t, 5, 67),
    "linear": lambda t, x: t.nn.functional.linear(dense(t, 3, 5), x),
}


@pytest.mark.parametrize("kind", ["coo", "coalesced", "csr", "csc"])
@pytest.mark.parametrize("name", MATRICES)
def test_products_of_matrices(kind, name):
    """A sparse and a dense matrix give a dense one."""
    if name == "no columns" and kind == "csc":
        return  # PyTorch's fails
    agree(lambda t: MATRICES[name](t, KINDS[kind](t)))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int64", "int32", "complex64"])
def test_products_in_every_dtype(dtype):
    """The product has the dtype of its factors."""
    numbers = lambda t: (dense(t, 5, 3) * 4).to(getattr(t, dtype))  # noqa: E731
    program = lambda t: (matrix(t, coalesced=True) * 8).to(getattr(t, dtype)) @ numbers(t)  # noqa: E731
    agree(program, tolerance=1e-2 if "16" in dtype else 1e-5)


def test_products_of_two_sparse_matrices():
    """They give a sparse matrix."""
    agree(lambda t: t.sparse.mm(matrix(t, coalesced=True), matrix(t, coalesced=True).t()), exactly=True)
    agree(lambda t: matrix(t) @ matrix(t).t(), exactly=True)
    agree(lambda t: t.mm(t.sparse_coo_tensor((3, 4)), matrix(t)))
    agree(lambda t: rows(t) @ matrix(t).t().to_sparse_csr())
    agree(lambda t: t.bmm(t.stack([matrix(t, coalesced=True)] * 2), dense(t, 2, 5, 3)))
    agree(lambda t: t.smm(matrix(t), dense(t, 5, 3)))
    agree(lambda t: t.hspmm(matrix(t), dense(t, 5, 3)))


def test_products_that_reduce():
    """sparse.mm with reduce: the mean, the largest and the smallest product."""
    for how in ("sum", "mean", "amax", "amin"):
        agree(lambda t: t.sparse.mm(rows(t), dense(t, 5, 3), how))  # noqa: B023
    raises_alike(lambda t: t.sparse.mm(rows(t), dense(t, 5, 3), "median"))
    agree(lambda t: t.sparse.sampled_addmm(rows(t), dense(t, 4, 3), dense(t, 3, 5), beta=0.5, alpha=2.0), exactly=True)


def test_refused_products():
    """Shapes and dtypes that do not fit raise PyTorch's type of exception."""
    for program in (
        lambda t: matrix(t) @ dense(t, 4, 3),
        lambda t: matrix(t) @ dense(t, 5, 3).double(),
        lambda t: matrix(t).mv(dense(t, 4)),
        lambda t: t.sparse.sampled_addmm(matrix(t), dense(t, 4, 3), dense(t, 3, 5)),
    ):
        raises_alike(program)


SHAPES = {
    "t": lambda t, x: x.t(),
    "T": lambda t, x: x.T,
    "transpose": lambda t, x: x.transpose(0, 1),
    "permute": lambda t, x: x.permute(1, 0),
    "cat": lambda t, x: t.cat([x, x]),
    "cat 1": lambda t, x: t.cat([x, x], 1),
    "stack": lambda t, x: t.stack([x, x], 1),
    "unsqueeze": lambda t, x: x.unsqueeze(1),
    "select": lambda t, x: x[1],
    "column": lambda t, x: x[:, 3],
    "element": lambda t, x: x[3, 3],
    "unbind": lambda t, x: x.unbind(0),
    "index_select": lambda t, x: x.index_select(0, t.tensor([3, 1, 3])),
    "columns": lambda t, x: x.index_select(1, t.tensor([4, 0])),
    "narrow": lambda t, x: x.narrow_copy(1, 2, 3),
    "sum": lambda t, x: x.sum(),
    "sparse.sum": lambda t, x: t.sparse.sum(x),
    "sum 0": lambda t, x: t.sparse.sum(x, 0),
    "sum -1": lambda t, x: t.sparse.sum(x, -1),
    "sum both": lambda t, x: t.sparse.sum(x, (0, 1)),
    "sum dtype": lambda t, x: t.sparse.sum(x, dtype=t.float64),
    "method sum": lambda t, x: x.sum(1, keepdim=True),
    "any": lambda t, x: x.any(),
    "norm": lambda t, x: x.norm(),
    "norm 1": lambda t, x: x.norm(1),
    "softmax": lambda t, x: t.sparse.softmax(x, 1),
    "softmax 0": lambda t, x: t.sparse.softmax(x, 0),
    "log_softmax": lambda t, x: t.sparse.log_softmax(x, 1, dtype=t.float64),
    "mask": lambda t, x: dense(t, *x.shape).sparse_mask(x),
    "mask of sparse": lambda t, x: (x * 2).sparse_mask(x.coalesce()),
    "resize": lambda t, x: x.clone().sparse_resize_((6, 7), 2, 0),
    "clear": lambda t, x: x.clone().sparse_resize_and_clear_((2, 2), 2, 0),
    "zero": lambda t, x: x.clone().zero_(),
    "copy": lambda t, x: t.sparse_coo_tensor((4, 5)).copy_(x),
}


@pytest.mark.parametrize("kind", ["coo", "coalesced"])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_sums(kind, name):
    """Other shapes, parts, sums and softmax are PyTorch's, to the places that are stored."""
    program = lambda t: SHAPES[name](t, KINDS[kind](t))  # noqa: E731
    agree(program, exactly=name not in ("sum", "method sum", "softmax", "softmax 0", "log_softmax", "norm"))


def test_sums_of_integers():
    """Sums of small integers are counted in 64 bits, unless a dtype is asked for."""
    agree(lambda t: (matrix(t) * 100).to(t.int8).sum(0))
    agree(lambda t: matrix(t).to(t.int8).sum(0, dtype=t.int8))


def test_what_a_sparse_tensor_is_asked():
    """The dtype that it would meet a number in; its storage, of which it has none."""
    assert repr(flambeau.result_type(matrix(flambeau).int(), flambeau.tensor(2.5))) == "torch.float32"
    for x, kind in ((matrix(flambeau), "Sparse"), (matrix(flambeau).to_sparse_csr(), "SparseCsr")):
        with pytest.raises(NotImplementedError, match=f"Cannot access storage of {kind}TensorImpl"):
            x.untyped_storage()


def test_dense_dimensions():
    """Dense dimensions are summed, normalized and permuted among themselves."""
    for program in (
        lambda t: t.sparse.sum(hybrid(t), 2),
        lambda t: t.sparse.sum(hybrid(t), (0, 1)),
        lambda t: t.sparse.softmax(hybrid(t), 2),
        lambda t: t.sparse.softmax(hybrid(t), 0),
        lambda t: hybrid(t).transpose(0, 1),
        lambda t: hybrid(t)[2],
        lambda t: hybrid(t)[0, 1],
        lambda t: hybrid(t).index_select(2, t.tensor([1, 1, 0])),
        lambda t: t.cat([hybrid(t), hybrid(t)], 1),
        lambda t: hybrid(t).coalesce(),
    ):
        agree(program)


# -- gradients -----------------------------------------------------------------------------------------------------------

DIFFERENTIABLE = {name: f for name, f in (BINARY | MATRICES | SHAPES).items() if name not in
    "in place,dense in place,mask,mask of sparse,resize,clear,zero,copy,any,no columns,floor,norm,norm 1,cat,cat 1,stack,unsqueeze,select,column,"
    "element,unbind,index_select,columns,narrow,method sum,promoted".split(",")}  # fmt: skip


@pytest.mark.parametrize("kind", ["coo", "coalesced"])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(kind, name):
    """The gradient of a sparse leaf has PyTorch's layout and elements."""

    def program(t):
        x = KINDS[kind](t).requires_grad_()
        y = DIFFERENTIABLE[name](t, x)
        y = y.to_dense() if "sparse" in str(y.layout) else y
        (y * y).sum().backward()
        return x.grad

    agree(program)


@pytest.mark.parametrize("name", "cat stack unsqueeze select column index_select columns narrow sin sqrt norm".split())
def test_gradients_that_pytorch_lacks(name):
    """Where PyTorch has no derivative for sparse tensors, it is that of the dense operation."""

    def grads(x):
        y = SHAPES[name](flambeau, x) if name in SHAPES else getattr(x.abs() if name == "sqrt" else x, name)()
        y = y.to_dense()
        (y * y).sum().backward()
        return x.grad.to_dense()

    sparse, full = matrix(flambeau).requires_grad_(), matrix(flambeau).to_dense().requires_grad_()
    mask = matrix(flambeau).to_dense() != 0
    here, there = (grads(sparse), mask), None
    if name == "narrow":
        y = full.narrow(1, 2, 3)
        (y * y).sum().backward()
        there = full.grad
    else:
        there = grads(full)
    assert np.allclose((here[0] * mask).numpy(), there.nan_to_num(0).mul(mask).numpy(), atol=1e-6)


def test_gradients_of_values_and_of_both_factors():
    """Gradients reach the values a tensor was made of, and the dense factor of a product; second derivatives follow."""

    def program(t):
        indices = t.tensor([[0, 1, 1, 1], [2, 0, 2, 2]])
        v, d = t.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True), dense(t, 3, 4).requires_grad_()
        x = t.sparse_coo_tensor(indices, v, (2, 3))
        c = t.sparse_csr_tensor([0, 1, 3], [2, 0, 1], v[:3], (2, 3))
        y = (t.sparse.mm(x, d).tanh() + (c @ d).sin()).sum() + (x.to_dense() ** 2).sum() + (x.coalesce().values() ** 3).sum()
        y = y + t.sparse.sum(x * x.detach()) + (c.values() ** 2).sum() + t.sparse.mm(c, d).tanh().sum()
        return t.autograd.grad(y, (v, d))

    agree(program)
    v, d = (flambeau.tensor([1.0, 2.0, 3.0], dtype=flambeau.float64).requires_grad_(), dense(flambeau, 3, 2).double().requires_grad_())
    product = lambda v, d: flambeau.sparse.mm(flambeau.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], v, (2, 3)), d)  # noqa: E731
    assert flambeau.autograd.gradcheck(product, (v, d))
    assert flambeau.autograd.gradgradcheck(product, (v, d))


def test_gradient_of_conversion():
    """What is not stored takes no part in a masked gradient, and all of it in a dense one."""
    x = lambda t: t.tensor([[0.0, 1.0], [2.0, 0.0]], requires_grad=True)  # noqa: E731
    for use in (lambda t, s: s.sum(), lambda t, s: s.to_dense().sum(), lambda t, s: t.sparse.sum(s), lambda t, s: (t.ones(2, 2) + s).sum()):

        def program(t):
            leaf = x(t)
            use(t, leaf.to_sparse()).backward()  # noqa: B023
            return leaf.grad

        agree(program)


def test_a_changed_operand_is_noticed():
    """Backward refuses a dense factor that was written to since the product."""
    v, d = flambeau.tensor([1.0], requires_grad=True), flambeau.ones(2, 2)
    y = flambeau.sparse.mm(flambeau.sparse_coo_tensor([[0], [1]], v, (2, 2)), d)
    d.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


# -- the loops -----------------------------------------------------------------------------------------------------------


def large(width: int):
    rng = np.random.default_rng(width)
    row = np.sort(rng.integers(0, 700, 9000))
    crow = np.searchsorted(row, np.arange(701))
    return crow, rng.integers(0, 500, 9000), rng.standard_normal(9000).astype("f4"), rng.standard_normal((500, width)).astype("f4")


@pytest.mark.skipif(native.lib is None, reason="there are no compiled loops")
@pytest.mark.parametrize("width", [1, 3, 64, 129])
def test_any_number_of_threads_gives_the_same_bits(width):
    """A row belongs to one thread, which adds up its elements in order; and the NumPy form agrees."""
    crow, col, values, x = large(width)
    before = flambeau.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            flambeau.set_num_threads(threads)
            row = sparse.expanded(crow)
            found.append((sparse.product(crow, col, values, x), sparse.dots(row, col, x[: crow.size - 1].repeat(2, 0)[:700], x)))
    finally:
        flambeau.set_num_threads(before)
    for product, dots in found[1:]:
        assert product.tobytes() == found[0][0].tobytes()
        assert dots.tobytes() == found[0][1].tobytes()


def test_numpy_agrees_with_the_loops(monkeypatch):
    """Without compiled loops the same products come out of NumPy."""
    crow, col, values, x = large(17)
    fast = sparse.product(crow, col, values, x), sparse.dots(sparse.expanded(crow)[:400], col[:400], x.repeat(2, 0), x)
    monkeypatch.setattr(sparse.native, "lib", None)
    monkeypatch.setattr(sparse, "AT_ONCE", 1000)
    slow = sparse.product(crow, col, values, x), sparse.dots(sparse.expanded(crow)[:400], col[:400], x.repeat(2, 0), x)
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_indices_out_of_bounds_are_found():
    """Indices that were not checked when the tensor was made are checked before memory is read."""
    with pytest.raises(IndexError):
        _ = flambeau.sparse_coo_tensor([[0], [7]], [1.0], (2, 3)) @ flambeau.ones(3, 2)
    with pytest.raises(IndexError):
        flambeau.sparse_coo_tensor([[0], [7]], [1.0], (2, 3)).to_dense()
    with pytest.raises(RuntimeError):
        _ = flambeau.sparse_csr_tensor([0, 9, 1], [0], [1.0], (2, 3)) @ flambeau.ones(3, 2)


def test_modes():
    """Anomaly mode, inference mode, autocast and the profiler run sparse operations, too."""
    x, d = matrix(flambeau).requires_grad_(), dense(flambeau, 5, 3)
    want = (matrix(flambeau) @ d).numpy()
    with pytest.warns(UserWarning, match="Anomaly"), flambeau.autograd.detect_anomaly(check_nan=True):
        flambeau.sparse.mm(x, d).sum().backward()
    with flambeau.inference_mode():
        np.testing.assert_array_equal((matrix(flambeau) @ d).numpy(), want)
    with flambeau.profiler.profile():
        np.testing.assert_array_equal((matrix(flambeau) @ d).numpy(), want)
    with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
        found = matrix(flambeau) @ d
    assert_same(found.float(), torch.from_numpy(want), tolerance=2e-2)


def test_products_inside_vmap():
    """A sparse matrix times many vectors, or matrices, at once; and the Jacobian of that."""
    x, vectors, matrices = matrix(flambeau, coalesced=True), dense(flambeau, 3, 5), dense(flambeau, 3, 5, 2)
    full = x.to_dense()
    np.testing.assert_allclose(flambeau.vmap(lambda v: x @ v)(vectors).numpy(), (vectors @ full.T).numpy(), atol=1e-6)
    np.testing.assert_allclose(flambeau.vmap(lambda m: flambeau.sparse.mm(x, m))(matrices).numpy(), (full @ matrices).numpy(), atol=1e-6)
    np.testing.assert_allclose(flambeau.func.jacrev(lambda v: x.mv(v))(vectors[0]).numpy(), full.numpy(), atol=1e-6)


REPEATED = {
    "dense is larger": lambda t, x: x * dense(t, 3, 4, 5),
    "dense is smaller": lambda t, x: x * dense(t, 5),
    "a sparse number": lambda t, x: x * t.tensor(2.0).to_sparse(),
    "in a dense tensor": lambda t, x: dense(t, 4, 5).mul_(x),
    "dense dimensions": lambda t, x: hybrid(t) * t.tensor([[0.0], [1], [0]]).expand(3, 4).reshape(3, 4, 1).to_sparse(2),
    "nothing of other dimensions": lambda t, x: hybrid(t) + t.sparse_coo_tensor((3, 4, 2)),
    "cat along a dense dimension": lambda t, x: t.cat([hybrid(t), hybrid(t) * 2], 2),
    "index from behind": lambda t, x: x.index_select(0, t.tensor([-1, 0, -2])),
    "number of elements": lambda t, x: x.norm(p=0),
    "pairs": lambda t, x: t.view_as_complex(hybrid(t)),
    "and back": lambda t, x: t.view_as_real(t.view_as_complex(hybrid(t))),
    "saddmm": lambda t, x: t.saddmm(x, t.eye(4).to_sparse(), dense(t, 4, 5), beta=2, alpha=3),
}


@pytest.mark.parametrize("name", REPEATED)
def test_elements_that_meet_several(name):
    """Products broadcast, sums with nothing are sums, and negative indices count from behind, as PyTorch's."""
    agree(lambda t: REPEATED[name](t, matrix(t, coalesced=True)))


def test_gradients_of_what_was_repeated():
    """A factor that broadcasts gets the sum of the gradients of all places it was used at, in its own shape."""
    row = matrix(flambeau, coalesced=True)[0].unsqueeze(0)
    assert flambeau.equal((row * dense(flambeau, 4, 5)).to_dense(), row.to_dense() * dense(flambeau, 4, 5))
    for small in ((5,), (4, 1), (3, 4, 5)):
        x, d = matrix(flambeau, coalesced=True).requires_grad_(), dense(flambeau, *small).requires_grad_()
        a, b = x.detach().to_dense().requires_grad_(), d.detach().clone().requires_grad_()
        (x * d).sum().backward()
        (a * b).sum().backward()
        stored = x.detach().to_dense() != 0
        assert d.grad.shape == b.grad.shape
        assert flambeau.allclose(d.grad.to_dense(), b.grad)
        assert flambeau.allclose(x.grad.to_dense()[stored], a.grad[stored])


@pytest.mark.parametrize(
    "program",
    [
        lambda t: matrix(t).norm(keepdim=True),
        lambda t: matrix(t).norm(dim=0),
        lambda t: matrix(t).norm(p="fro", dtype=t.float64),
        lambda t: matrix(t).narrow_copy(10, 0, 1),
        lambda t: matrix(t).index_select(0, t.tensor([-7])),
        lambda t: t.sparse_coo_tensor((100000,) * 4),
        lambda t: t.addmm(matrix(t), t.eye(4).to_sparse(), dense(t, 4, 5)),
        lambda t: matrix(t).__setitem__(0, 100),
        lambda t: t.sparse.mm(matrix(t), matrix(t, "float64").t()),
        lambda t: dense(t, 4, 5, 1) + matrix(t),
        lambda t: matrix(t) + matrix(t).to_dense().to_sparse(1),
        lambda t: t.view_as_complex(matrix(t)),
        lambda t: t.cat([matrix(t), dense(t, 4, 5)]),
        lambda t: t.cat([hybrid(t), hybrid(t).to_dense().to_sparse()]),
        lambda t: matrix(t)[t.tensor([0, 1])],
        lambda t: t.sparse.spdiags(dense(t, 1, 3), t.tensor([0]), (3, 2, 3)),
        lambda t: t.sparse.spdiags(dense(t, 2, 3), t.tensor([[1, 2], [0, 3]]), (3, 3)),
    ],
)
def test_more_that_pytorch_refuses(program):
    """What PyTorch refuses raises its type of exception, and is not computed as something else."""
    raises_alike(program)
