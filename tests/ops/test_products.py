"""Products: of matrices and vectors, in batches, added to something, by Einstein's summation; with first and second derivatives."""

# ruff: noqa: B023 - every lambda is called before its loop goes on

from __future__ import annotations

import numpy as np
import pytest
from matrix_oracle import COMPLEX, REAL, check, check_raises, numbers, ours, plain, torch

import flambeau
from flambeau.kernels.templates import gemm

pytestmark = [
    pytest.mark.filterwarnings("ignore:An output with one or more elements was resized"),
    pytest.mark.filterwarnings("ignore:Using torch.cross without specifying"),
]
BOTH = pytest.mark.parametrize("dtype", [REAL, COMPLEX], ids=["real", "complex"])
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int32, torch.uint8]
MATMUL = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)), ((5, 2, 3), (1, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((4, 1, 2, 3), (5, 3, 4)), ((4, 5, 2, 3), (3, 4)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)), ((2, 0, 3), (3, 4)), ((0, 2, 3), (0, 3, 4)), ((0,), (0,)), ((1, 1), (1, 1)), ((2, 3, 0), (0,)),
]  # fmt: skip


@BOTH
@pytest.mark.parametrize("shapes", MATMUL, ids=str)
def test_matmul(dtype, shapes):
    """matmul takes vectors, matrices and batches that broadcast, and so does the operator @."""
    a, b = (numbers(*s, dtype=dtype) for s in shapes)
    check(lambda t, a, b: t.matmul(a, b), a, b)
    check(lambda t, a, b: a @ b, a, b, gradient=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype):
    """Every dtype has its products: half precision is multiplied in float32, integers wrap around."""
    a, b, v = numbers(3, 4, dtype=dtype), numbers(4, 5, dtype=dtype), numbers(4, dtype=dtype)
    check(lambda t, a, b: t.mm(a, b), a, b, gradient=False)
    check(lambda t, a, v: t.mv(a, v), a, v, gradient=False)
    check(lambda t, a, b: t.dot(a, b), v, v, gradient=False)
    check(lambda t, a, b: t.outer(a, b), v, v, gradient=False)
    check(lambda t, a, b: t.bmm(a, b), numbers(2, 3, 4, dtype=dtype), numbers(2, 4, 2, dtype=dtype), gradient=False)
    check(lambda t, a, b, c: t.addmm(a, b, c, beta=2, alpha=3), numbers(5, dtype=dtype), a, b, gradient=False)
    check(lambda t, a, b: t.kron(a, b), a, b, gradient=False)


@pytest.mark.parametrize("layout", ["transposed", "every other", "expanded", "reversed"])
def test_strides(layout):
    """How the factors lie in memory makes no difference."""
    wide = numbers(8, 8)
    a = {"transposed": wide.mT, "every other": wide[::2, ::2], "expanded": wide[:1].expand(4, 8), "reversed": wide.flip(1)}[layout]
    b = numbers(a.shape[1], 3)
    check(lambda t, a, b: t.mm(a, b), a, b)
    check(lambda t, a, b: t.mm(b.mT, a.mT), a, b)
    view = {
        "transposed": lambda x: x.mT,
        "every other": lambda x: x[::2, ::2],
        "expanded": lambda x: x[:1].expand(4, 8),
        "reversed": lambda x: x.flip(1),
    }
    check(lambda t, x, b: t.mm(view[layout](x), b), wide, b)


@BOTH
def test_products_added_to_something(dtype):
    """addmm, baddbmm, addbmm, addmv, addr: the addend broadcasts, beta and alpha scale; beta = 0 forgets even NaN."""
    m, n, v, w = numbers(3, 4, dtype=dtype), numbers(4, 5, dtype=dtype), numbers(4, dtype=dtype), numbers(3, dtype=dtype)
    b1, b2 = numbers(2, 3, 4, dtype=dtype), numbers(2, 4, 5, dtype=dtype)
    for factors in (
        {},
        {"beta": 0.5, "alpha": 2},
        {"beta": 0},
        {"alpha": 0},
        {"beta": 1 + 2j, "alpha": 3j} if dtype is COMPLEX else {"beta": -1},
    ):
        for shape in ((3, 5), (5,), (1,), (), (3, 1)):
            check(lambda t, x, m, n: t.addmm(x, m, n, **factors), numbers(*shape, dtype=dtype), m, n)
            check(lambda t, x, b, c: t.baddbmm(x, b, c, **factors), numbers(*shape, dtype=dtype), b1, b2)
            check(lambda t, x, b, c: t.addbmm(x, b, c, **factors), numbers(*shape, dtype=dtype), b1, b2)
            check(lambda t, x, v, w: t.addr(x, v, w, **factors), numbers(*shape, dtype=dtype), w, numbers(5, dtype=dtype))
        for shape in ((3,), (1,), ()):
            check(lambda t, x, m, v: t.addmv(x, m, v, **factors), numbers(*shape, dtype=dtype), m, v)
    check(lambda t, x, m, n: t.addmm(x, m, n, beta=0), torch.full((3, 5), float("nan"), dtype=dtype), m, n, gradient=False)


def test_in_place():
    """addmm_ and its relatives write over their tensor, and gradients flow through what it was."""
    x, m, n = numbers(3, 5), numbers(3, 4), numbers(4, 5)
    for name, args in (("addmm_", (m, n)), ("addbmm_", (m[None], n[None])), ("addr_", (numbers(3), numbers(5)))):
        check(lambda t, x, *rest: getattr(x * 2, name)(*rest, beta=0.5, alpha=2), x, *args)
    check(lambda t, x, *rest: (x * 2).baddbmm_(*rest), x[None], m[None], n[None])
    check(lambda t, x, *rest: (x * 2).addmv_(*rest), numbers(3), m, numbers(4))
    base = ours(x)
    assert base.addmm_(ours(m), ours(n)) is base


def test_vectors():
    """dot, vdot, vecdot, outer, inner."""
    a, b = numbers(5, dtype=COMPLEX), numbers(5, dtype=COMPLEX, seed=1)
    for name in ("dot", "vdot", "outer", "ger", "inner"):
        check(lambda t, a, b: getattr(t, name)(a, b), a, b)
    check(lambda t, a, b: t.linalg.vecdot(a, b), numbers(3, 5, dtype=COMPLEX), a)
    check(lambda t, a, b: t.linalg.vecdot(a, b, dim=0), numbers(3, 5), numbers(3, 1))
    check(lambda t, a, b: t.inner(a, b), numbers(2, 3, 4), numbers(5, 4))
    check(lambda t, a, b: t.inner(a, b), numbers(2, 3), numbers())


def test_tensor_products():
    """tensordot over counted and named dimensions, kron in any number of dimensions, cross along any dimension."""
    a, b = numbers(2, 3, 4), numbers(3, 4, 5)
    check(lambda t, a, b: t.tensordot(a, b), a, b)
    check(lambda t, a, b: t.tensordot(a, b, dims=([2, 1], [1, 0])), a, b)
    check(lambda t, a, b: t.tensordot(a, b, dims=0), a, numbers(2), second=False)
    check(lambda t, a, b: t.tensordot(a, b, dims=([0], [1])), numbers(1, 3), numbers(2, 4), second=False)
    check(lambda t, a, b: t.kron(a, b), numbers(2, 3), numbers(4))
    check(lambda t, a, b: t.kron(a, b), numbers(2, 1, 3), numbers(2, 2))
    check(lambda t, a, b: t.linalg.cross(a, b), numbers(4, 3, dtype=COMPLEX), numbers(1, 3, dtype=COMPLEX))
    check(lambda t, a, b: t.cross(a, b, dim=0), numbers(3, 2), numbers(3, 2))
    check(lambda t, a, b: t.cross(a, b), numbers(2, 3), numbers(2, 3))


# -- einsum ----------------------------------------------------------------------------------------------------------------


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("ii", (3, 3)), ("ii->i", (3, 3)),
    ("iji->j", (3, 2, 3)), ("ij->ji", (2, 3)), ("ij->", (2, 3)), ("i,j->ij", (2,), (3,)), ("i,i->", (3,), (3,)), ("i,i->i", (3,), (3,)),
    ("...ij->...ji", (2, 3, 4)), ("...ij,...jk->...ik", (5, 1, 2, 3), (4, 3, 2)), ("...ij,jk", (2, 2, 3), (3, 4)),
    ("i...->...", (2, 3, 4)),
    ("b...,b...->b", (2, 3, 4), (2, 3, 4)), ("ij,kl,jm->ilm", (2, 3), (4, 5), (3, 2)),
    ("ab,bc,cd,de->ae", (2, 3), (3, 4), (4, 5), (5, 2)),
    ("ij,jk->ik", (2, 1), (3, 4)), ("ij,ij->ij", (1, 3), (2, 3)), ("bn,anm,bm->ba", (2, 3), (4, 3, 5), (2, 5)),
    (" i j , j -> i ", (2, 3), (3,)),
    ("Ab,bA", (2, 3), (3, 2)), ("zaB->", (2, 1, 3)), ("zaB", (2, 1, 3)), ("...,...", (2, 3), (3,)), ("...,...->", (2, 3), (3,)),
    ("ij...,jk...->ik...", (2, 3, 4), (3, 5, 1)),
    ("i,i,i->i", (3,), (3,), (3,)), ("ik,jk,lk->ijl", (2, 3), (4, 3), (2, 3)), (",i->i", (), (3,)), ("ij,j->i", (0, 3), (3,)),
    ("ij,jk->ik", (2, 0), (0, 3)),
]  # fmt: skip


@pytest.mark.parametrize("equation, shapes", [(e, s) for e, *s in EQUATIONS], ids=str)
def test_einsum(equation, shapes):
    """Every rule of the equation: products, sums, diagonals, ellipses, broadcasting, implicit results."""
    operands = [numbers(*s, dtype=COMPLEX, seed=i) for i, s in enumerate(shapes)]
    check(lambda t, *x: t.einsum(equation, *x), *operands)
    check(lambda t, *x: t.einsum(equation, list(x)), *operands, gradient=False)


def test_einsum_by_lists():
    """Labels may be numbers in lists, with Ellipsis, with or without those of the result."""
    a, b = numbers(2, 3), numbers(3, 4)
    check(lambda t, a, b: t.einsum(a, [0, 1], b, [1, 2], [0, 2]), a, b)
    check(lambda t, a, b: t.einsum(a, [0, 1], b, [1, 2]), a, b)
    check(lambda t, a, b: t.einsum(a, [..., 51, 1], b, [1, 2], [..., 2, 51]), numbers(5, 2, 3), b)


EINSUM_ERRORS = [
    ("ij,jk", (2, 3)), ("ij", (2, 3, 4)), ("ijk", (2, 3)), ("ij,jk", (2, 3), (4, 5)), ("ii", (2, 3)), ("i->j", (2,)), ("i->ii", (2,)),
    ("i!", (2,)), ("......i", (2,)), ("i,", (2,), (3,)), (". ..", (2,)), ("i->... .", (2,)), ("i->..", (2,)),
]  # fmt: skip


@pytest.mark.parametrize("equation, shapes", [(e, s) for e, *s in EINSUM_ERRORS], ids=str)
def test_einsum_errors(equation, shapes):
    """Equations that do not fit their operands are refused."""
    check_raises(lambda t, *x: t.einsum(equation, *x), *[numbers(*s) for s in shapes])


# -- the forms of calls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mm", "matmul", "bmm", "mv", "dot", "outer", "addmm", "baddbmm", "addmv", "kron", "inner"])
def test_out(name):
    """out= receives the result, is resized if it must, and is returned."""
    shapes = {
        "mm": ((2, 3), (3, 4)), "matmul": ((5, 2, 3), (3, 4)), "bmm": ((2, 2, 3), (2, 3, 2)), "mv": ((2, 3), (3,)), "dot": ((3,), (3,)),
        "outer": ((2,), (3,)), "addmm": ((4,), (2, 3), (3, 4)), "baddbmm": ((4,), (2, 2, 3), (2, 3, 4)), "addmv": ((2,), (2, 3), (3,)),
        "kron": ((2, 2), (3, 1)), "inner": ((2, 3), (3,)),
    }[name]  # fmt: skip
    operands = [numbers(*s) for s in shapes]
    expected = getattr(torch, name)(*operands)
    for out in (flambeau.empty(0, dtype=flambeau.float64), flambeau.empty(tuple(expected.shape), dtype=flambeau.float64)):
        assert getattr(flambeau, name)(*map(ours, operands), out=out) is out
        np.testing.assert_allclose(plain(out), plain(expected))


ERRORS = {
    "shapes of mm": (lambda t, a, b: t.mm(a, b), (2, 3), (2, 3)),
    "mm of vectors": (lambda t, a, b: t.mm(a, b), (3,), (3,)),
    "mm of two dtypes": (lambda t, a, b: t.mm(a, b.float()), (2, 3), (3, 2)),
    "mm of bools": (lambda t, a, b: t.mm(a > 0, b > 0), (2, 3), (3, 2)),
    "batches of bmm": (lambda t, a, b: t.bmm(a, b), (2, 2, 3), (3, 3, 2)),
    "bmm of matrices": (lambda t, a, b: t.bmm(a, b), (2, 3), (3, 2)),
    "mv": (lambda t, a, b: t.mv(a, b), (2, 3), (2,)),
    "dot": (lambda t, a, b: t.dot(a, b), (2,), (3,)),
    "dot of matrices": (lambda t, a, b: t.dot(a, b), (2, 3), (2, 3)),
    "matmul of a number": (lambda t, a, b: t.matmul(a, b), (), (3,)),
    "matmul of a float": (lambda t, a, b: t.matmul(a, 2.0), (3,), (3,)),
    "matmul's batches": (lambda t, a, b: t.matmul(a, b), (2, 3, 4), (3, 4, 5)),
    "matmul's inner size": (lambda t, a, b: t.matmul(a, b), (2, 3, 4), (5, 3)),
    "addend of addmm": (lambda t, a, b: t.addmm(a, a, b), (3, 3), (3, 2)),
    "dtype of the addend": (lambda t, a, b: t.addmm(a.float(), a, b), (2, 2), (2, 2)),
    "outer of matrices": (lambda t, a, b: t.outer(a, b), (2, 2), (2,)),
    "inner": (lambda t, a, b: t.inner(a, b), (2,), (3,)),
    "tensordot": (lambda t, a, b: t.tensordot(a, b), (2, 3), (4, 5)),
    "tensordot's count": (lambda t, a, b: t.tensordot(a, b, 3), (2, 3), (2, 3)),
    "cross of pairs": (lambda t, a, b: t.linalg.cross(a, b), (2,), (2,)),
    "cross without a three": (lambda t, a, b: t.cross(a, b), (2, 2), (2, 2)),
    "vecdot of two dtypes": (lambda t, a, b: t.linalg.vecdot(a, b.float()), (3,), (3,)),
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    """What PyTorch refuses is refused, with its type of exception."""
    function, *shapes = ERRORS[name]
    check_raises(function, *[numbers(*s) for s in shapes])


def test_error_says_what_to_try():
    """Shapes that would fit transposed are met with that advice."""
    with pytest.raises(RuntimeError, match=r"2x3 and 2x3.*mat1 @ mat2.mT"):
        flambeau.mm(flambeau.ones(2, 3), flambeau.ones(2, 3))


def test_large_products():
    """A product large enough for several threads and panels has the numbers of NumPy's."""
    a, b = numbers(300, 700, dtype=torch.float32), numbers(700, 200, dtype=torch.float32)
    got = flambeau.mm(ours(a), ours(b))
    np.testing.assert_allclose(plain(got), a.double().numpy() @ b.double().numpy(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("depth, width", [(128, 96), (130, 65), (520, 48)])
def test_every_number_of_rows(dtype, depth, width):
    """A few rows are dot products, more are panels that fill up vectors: rows @ weight.T + bias is right at every border between them."""
    generator = np.random.default_rng(0)
    weight, bias = (generator.standard_normal(shape).astype(dtype) for shape in ((width, depth), (width,)))
    rows = generator.standard_normal((70, depth)).astype(dtype)
    want = rows.astype(np.float64) @ weight.astype(np.float64).T + bias
    for n in range(1, len(rows) + 1):
        given = [flambeau.from_numpy(a) for a in (rows[:n], weight, bias)]
        for got in (flambeau.nn.functional.linear(*given), flambeau.addmm(given[2].expand(n, width).clone(), given[0], given[1].t())):
            np.testing.assert_allclose(got.numpy(), want[:n], rtol=0, atol=(2e-4 if dtype == np.float32 else 1e-12))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_edges_of_tiles(dtype):
    """Sizes that fill no tile, either operand transposed; beside the operands lie NaNs, which nobody may read into a sum or write over."""
    generator = np.random.default_rng(0)
    for m, n, k in [(1, 9, 17), (3, 50, 50), (5, 7, 33), (13, 64, 100), (16, 80, 64), (20, 31, 70), (37, 37, 37), (50, 50, 50), (65, 23, 49), (100, 130, 60)]:  # fmt: skip
        for turn_a, turn_b in [(0, 0), (0, 1), (1, 0), (1, 1)]:
            wide_a, wide_b = (
                np.full((rows + 3, cols + 3), np.nan, dtype) for rows, cols in ((m, k)[:: 1 - 2 * turn_a], (k, n)[:: 1 - 2 * turn_b])
            )
            a, b = wide_a[1:-2, 1:-2], wide_b[1:-2, 1:-2]
            a[:], b[:] = generator.standard_normal(a.shape), generator.standard_normal(b.shape)
            a, b = a.T if turn_a else a, b.T if turn_b else b
            found = []
            for threads in (1, 2, 5):
                before = flambeau.get_num_threads()
                flambeau.set_num_threads(threads)
                found.append((flambeau.from_numpy(a) @ flambeau.from_numpy(b)).numpy())
                flambeau.set_num_threads(before)
            wanted = a.astype(np.longdouble) @ b.astype(np.longdouble)
            np.testing.assert_allclose(found[0], wanted, 1e-4 if dtype is np.float32 else 1e-12, 1e-5 if dtype is np.float32 else 1e-13)
            assert all(np.array_equal(found[0], other) for other in found[1:]), (m, n, k, turn_a, turn_b)
            assert np.isnan(wide_a).sum() == wide_a.size - a.size and np.isnan(wide_b).sum() == wide_b.size - b.size


def test_meta():
    """On the meta device products have shapes and dtypes, and no data."""
    a, b = flambeau.empty(5, 2, 3, device="meta"), flambeau.empty(3, 4, device="meta")
    assert tuple((a @ b).shape) == (5, 2, 4)
    assert (a @ b).device.type == "meta"
    assert tuple(flambeau.addmm(b, flambeau.empty(3, 3, device="meta"), b).shape) == (3, 4)


@pytest.mark.parametrize(
    "equation", ["ij,kj->ki", "i,j->ji", "dac->cd", "ab,dbc->cda", "da,acd->acd", "bad,acb->acd", "b,bda->ab", "ij->ji"]
)
def test_einsum_lies_in_memory_as_pytorchs(equation):
    """What can be viewed in another shape with PyTorch can be here: the result is contiguous where PyTorch's is, and a view where that is one."""
    sizes = dict(zip("abcdijk", range(2, 9), strict=True))
    shapes = [tuple(sizes[letter] for letter in term) for term in equation.partition("->")[0].split(",")]
    ours = [flambeau.ones(shape) for shape in shapes]
    theirs = [torch.ones(shape) for shape in shapes]
    a, b = flambeau.einsum(equation, *ours), torch.einsum(equation, *theirs)
    assert (a.tolist(), a.stride()) == (b.tolist(), b.stride())
    assert (a.data_ptr() == ours[0].data_ptr()) == (b.data_ptr() == theirs[0].data_ptr())


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("m, n", [(8, 8), (1, 5), (5, 1), (3, 40), (32, 32)])
def test_small_products_with_a_long_sum(m, n, dtype):
    """A small product whose sum is long is exact to its dtype for matrices in any order, and has the same bits with any number of threads."""
    depth = 20_001
    real = np.random.default_rng(0).standard_normal((2, depth, m + n))
    x = (real[0] + (1j * real[1] if dtype == "complex64" else 0)).astype(dtype)
    a, b = x[:, :m], x[:, m:]
    wanted = a.T.astype("complex128") @ b.astype("complex128")
    for left in (a.T, np.ascontiguousarray(a.T), np.asfortranarray(a.T)):
        for right in (b, np.ascontiguousarray(b), np.ascontiguousarray(b.T).T):
            mine = flambeau.from_numpy(left), flambeau.from_numpy(right)
            found = (mine[0] @ mine[1]).numpy()
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10 if dtype == "float64" else 5e-3)
            threads = flambeau.get_num_threads()
            try:
                flambeau.set_num_threads(1)
                assert np.array_equal((mine[0] @ mine[1]).numpy(), found)
            finally:
                flambeau.set_num_threads(threads)


def test_out_receives_what_fits():
    """out= receives results in its own memory: dense, strided, of another dtype, of another shape, and where it is also read."""
    x, i = torch.randn(40, 30), torch.randint(0, 40, (40,))
    calls = {
        "cat": lambda t, x, i, **out: t.cat([x[:10], x[10:]], **out),
        "stack": lambda t, x, i, **out: t.stack(list(x), **out),
        "index_select": lambda t, x, i, **out: t.index_select(x, 0, i, **out),
        "gather": lambda t, x, i, **out: t.gather(x, 0, i[:, None].expand(40, 30), **out),
        "softmax": lambda t, x, i, **out: t.softmax(x, 1, **out),
        "cumsum": lambda t, x, i, **out: t.cumsum(x, 0, **out),
        "mm": lambda t, x, i, **out: t.mm(x, x[:30], **out),
        "sum": lambda t, x, i, **out: t.sum(x, 1, keepdim=True, **out),
    }
    mine = flambeau.from_numpy(x.numpy()), flambeau.from_numpy(i.numpy())
    for name, call in calls.items():
        wanted = call(torch, x, i)
        for place in (
            flambeau.empty(wanted.shape),
            flambeau.empty(wanted.shape[::-1]).t(),
            flambeau.empty(0),
            flambeau.empty(3, *wanted.shape)[1],
        ):
            version, memory = place._version, place.data_ptr()
            assert call(flambeau, *mine, out=place) is place and place._version > version, name
            np.testing.assert_allclose(place.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5, err_msg=name)
            assert place.data_ptr() == memory or version == 0, name
            assert not np.shares_memory(flambeau.empty(wanted.shape).numpy(), place.numpy()), name
    square = flambeau.from_numpy(x[:30].numpy().copy())
    assert np.allclose(flambeau.cumsum(square, 0, out=square).numpy(), x[:30].cumsum(0).numpy(), atol=1e-4)
    weight = flambeau.ones(30, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        flambeau.mm(mine[0], weight, out=flambeau.empty(40, 3))


@pytest.mark.parametrize("dtype", [flambeau.float16, flambeau.bfloat16], ids=str)
def test_half_precision_is_converted_in_parts(monkeypatch, dtype):
    """A product of large half-precision matrices converts a part at a time, however it is shaped, and rounds once."""
    shapes = [
        ((50, 30), (30, 1)),
        ((50, 30), (30, 70)),
        ((1, 30), (30, 70)),
        ((4, 5, 30), (4, 30, 7)),
        ((1, 400), (400, 1)),
        ((0, 3), (3, 2)),
    ]
    cases = [[flambeau.randn(*s).to(dtype)._array for s in pair] for pair in shapes]
    whole = [gemm.product(a, b) for a, b in cases]
    largest, cast = [], gemm.arrays.cast
    monkeypatch.setattr(gemm, "CONVERTED", 100)
    monkeypatch.setattr(gemm.arrays, "cast", lambda x, dtype: largest.append(x.size) or cast(x, dtype))
    for (a, b), expected in zip(cases[:4], whole, strict=False):
        np.testing.assert_allclose(*(x.astype(np.float32) for x in (gemm.product(a, b), expected)), rtol=2.0**-7, atol=1e-2)
    assert max(largest) <= 350  # a row, and what it makes
    for (a, b), expected in zip(cases[4:], whole[4:], strict=True):
        np.testing.assert_array_equal(gemm.product(a, b), expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float16, torch.complex64], ids=str)
def test_addr_takes_factors_of_its_kind(dtype):
    """beta and alpha of addr are no floats for integers, and bools for bools alone."""
    m, v = torch.ones(2, 2, dtype=dtype), torch.ones(2, dtype=dtype)
    for factors in ({"beta": True}, {"alpha": True}) + (({"beta": 2.0}, {"alpha": 2.0}) if dtype is torch.int32 else ()):
        check_raises(lambda t, m, v, factors=factors: t.addr(m, v, v, **factors), m, v)


def test_tensordot_into_a_tensor_without_gradient():
    """tensordot(out=) takes operands that want gradients, which end there; an `out` that wants one is refused."""
    a, b = flambeau.ones(3, 2, requires_grad=True), flambeau.ones(2, 4, requires_grad=True)
    assert flambeau.tensordot(a, b, dims=1, out=flambeau.empty(3, 4)).tolist() == [[2.0] * 4] * 3
    with pytest.raises(RuntimeError, match="the 'out' tensor was specified and requires gradients"):
        flambeau.tensordot(a, b, dims=1, out=flambeau.empty(3, 4, requires_grad=True))
