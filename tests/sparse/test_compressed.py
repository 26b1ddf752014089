"""Rows and columns of matrices, of blocks, of batches: made, converted, turned, computed with. All of them are one kind of parts."""

from __future__ import annotations

import pytest
from sparse_oracle import ALL, COMPRESSED, agree, batch, blocks, dense, hybrid, matrix, raises_alike, rows, run

import flambeau

torch = pytest.importorskip("torch")

MADE = {
    "bsr": lambda t: t.sparse_bsr_tensor([0, 1, 2], [1, 0], t.arange(8.0).reshape(2, 2, 2), (4, 4)),
    "bsr without size": lambda t: t.sparse_bsr_tensor([0, 1, 2], [1, 0], t.arange(4.0).reshape(2, 1, 2)),
    "bsc": lambda t: t.sparse_bsc_tensor(ccol_indices=[0, 1, 2], row_indices=[1, 0], values=t.arange(8).reshape(2, 1, 4)),
    "compressed": lambda t: t.sparse_compressed_tensor([0, 1], [0], t.ones(1, 2, 3), layout=t.sparse_bsr, dtype=t.float64),
    "batch": lambda t: t.sparse_csr_tensor([[0, 1, 2], [0, 0, 2]], [[1, 0], [0, 1]], [[1.0, 2], [3, 4]], (2, 2, 3)),
    "batch of blocks": lambda t: t.sparse_bsc_tensor([[0, 1]], [[0]], t.ones(1, 1, 2, 2)),
    "pairs": lambda t: t.sparse_csr_tensor([0, 1, 2], [1, 0], [[1.0, 2], [3, 4]]),
    "history": lambda t: t.sparse_bsr_tensor([0, 1], [0], t.ones(1, 2, 2, requires_grad=True)),
    "of a dense batch": batch,
    "int blocksize": lambda t: dense(t, 4, 4).to_sparse_bsr(2),
    "zeros": lambda t: t.zeros(2, 3, 4, layout=t.sparse_csc),
    "int32": lambda t: t.sparse_csr_tensor(t.tensor([0, 1, 2]).int(), t.tensor([1, 0]).int(), [1.0, 2.0]).to_sparse_csc(),
    "blocks of rows": lambda t: rows(t).to_sparse_bsr((2, 5)),
    "zeros of blocks": lambda t: t.zeros_like(blocks(t)),
    "empty": lambda t: t.zeros(0, 4).to_sparse_bsr((1, 2)),
}


@pytest.mark.parametrize("name", MADE)
def test_made_as_pytorch_makes_them(name):
    """Layout, indices, values, size, dtype and text are PyTorch's."""
    agree(MADE[name], exactly=True)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_every_layout_from_every_other(kind):
    """A conversion gives PyTorch's parts, or is refused as there."""
    for layout in ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "strided"):

        def program(t, layout=layout):
            size = None if "_b" not in layout else (2, 1) if kind == "bsr" else (1, 5) if kind == "bsc" else (1, 1)
            return COMPRESSED[kind](t).to_sparse(layout=getattr(t, layout), blocksize=size)

        try:
            run(program, torch)
        except RuntimeError:
            raises_alike(program)
        else:
            agree(program, exactly=layout != "strided")


@pytest.mark.parametrize(
    ("program", "phrase"),
    [
        (lambda: dense(flambeau, 4, 5).to_sparse_bsr((2, 2)), r"sparse size \(4,5\) must be divisible by given blocksize \(2,2\)"),
        (lambda: dense(flambeau, 4, 4).to_sparse_bsr((2,)), "tuple of size 2, but got 1"),
        (lambda: dense(flambeau, 4, 4).to_sparse_bsr((0, 2)), "positive"),
        (lambda: dense(flambeau, 4, 4).to_sparse(layout=flambeau.sparse_bsr), "without blocksize"),
        (lambda: blocks(flambeau).to_sparse_csr(), "expected SparseCsr or SparseCsc layout but got SparseBsr"),
        (lambda: blocks(flambeau).to_sparse_bsr((1, 1)), "blocksize changed"),
        (lambda: flambeau.tensor([[[1.0, 0]], [[1, 1]]]).to_sparse_csr(), "same number of specified elements per batch"),
        (lambda: flambeau.sparse_csr_tensor([0, 1, 1], [0], [1.0], (1, 2, 2)), "dimensionality must be"),
        (lambda: flambeau.sparse_csr_tensor([[0, 1]], [0], [1.0]), "dimensionalities must be equal"),
        (lambda: flambeau.sparse_bsr_tensor([0, 1], [0], [[[1.0, 2]]], (1, 3)), "must be divisible with blocksize"),
        (lambda: flambeau.sparse_bsr_tensor([0, 1, 2], [0, 0], [[[1.0, 2]]], (2, 2)), "nnz"),
        (lambda: batch(flambeau).transpose(0, 1), "same type"),
        (lambda: batch(flambeau).select(1, 0), "batched"),
    ],
)
def test_what_does_not_fit_is_named(program, phrase):
    """Shapes that do not fit raise RuntimeError with PyTorch's phrase."""
    with pytest.raises(RuntimeError, match=phrase):
        program()


@pytest.mark.parametrize("kind", COMPRESSED)
def test_turned_and_taken_apart(kind):
    """Transposition exchanges rows and columns, also within blocks; matrices of a batch and dense elements can be selected."""
    make = COMPRESSED[kind]
    first = 1 if kind == "batch" else 0
    if kind != "pairs":  # PyTorch turns none with dense dimensions
        agree(lambda t: make(t).transpose(first, first + 1), exactly=True)
    x = make(flambeau)
    assert flambeau.equal(x.transpose(first, first + 1).to_dense(), x.to_dense().transpose(first, first + 1))
    agree(lambda t: make(t).select(0 if kind == "batch" else -1, 1), exactly=kind in ("batch", "pairs"))
    if first == 0:
        agree(lambda t: make(t)[1].to_dense())


@pytest.mark.parametrize("kind", COMPRESSED)
def test_elementwise(kind):
    """Functions that keep zero, sums and products work on blocks, batches and dense elements as on single numbers."""
    x, full = COMPRESSED[kind](flambeau), COMPRESSED[kind](flambeau).to_dense()
    for result, expected in (
        (x.sin(), full.sin()), (-x, -full), (x * 3, full * 3), (x / 2, full / 2), (x + x, full + full), (x - x * 2, -full),
        (x * x, full * full), (x * full, full * full), (full + x, full + full), (x.sum(), full.sum()), (x.double(), full.double()),
        (x + (x * 0), full),
    ):  # fmt: skip
        assert flambeau.allclose(result.to_dense(), expected)
    assert (x + x).layout is x.layout
    mask = COMPRESSED[kind](flambeau)
    assert flambeau.equal((full * 2).sparse_mask(mask).to_dense(), full * 2)


@pytest.mark.parametrize("kind", [k for k in COMPRESSED if k not in ("batch", "pairs")])
def test_products_and_their_gradients(kind):
    """A product with a dense matrix, and what both factors get, equal those of the dense matrix."""
    for mm in (flambeau.mm, flambeau.sparse.mm):
        x, y = COMPRESSED[kind](flambeau).requires_grad_(), dense(flambeau, 5, 3).requires_grad_()
        a, b = x.detach().to_dense().requires_grad_(), y.detach().clone().requires_grad_()
        out, expected = mm(x, y), a @ b
        assert flambeau.allclose(out, expected)
        out.square().sum().backward()
        expected.square().sum().backward()
        assert flambeau.allclose(y.grad, b.grad)
        stored = x.detach().to_dense() != 0
        assert flambeau.allclose(x.grad.to_dense()[stored], a.grad[stored])
        assert flambeau.allclose(x.detach() @ b[:, 0], a @ b[:, 0])
        assert flambeau.allclose((dense(flambeau, 2, 4) @ x.detach()), dense(flambeau, 2, 4) @ a)
    batched = batch(flambeau)
    assert flambeau.allclose(batched @ dense(flambeau, 2, 5, 3), batched.to_dense() @ dense(flambeau, 2, 5, 3))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("masked", [True, False])
def test_gradcheck_takes_sparse_tensors(kind, masked):
    """gradcheck changes the stored elements (masked) or all of them; as_sparse_gradcheck takes sparse results, too."""
    x = ALL[kind](flambeau).double().requires_grad_()
    check = flambeau.autograd.gradcheck
    assert check(lambda t: t.to_dense(masked_grad=masked), x, masked=masked)
    assert check(lambda t: (t * 2).sum(), x, masked=masked)
    with pytest.raises(ValueError, match="Sparse output is not supported"):
        check(lambda t: t * 2, x, masked=masked)
    sparse_check = flambeau.sparse.as_sparse_gradcheck(check)
    assert sparse_check(lambda t: t * 2, x, masked=masked)
    wrong = lambda t: t.to_dense() + t.detach().to_dense()  # noqa: E731
    assert not sparse_check(wrong, x, masked=masked, raise_exception=False)


def test_out_takes_sparse_results():
    """out= receives a sparse or a dense result; layouts and dtypes must fit."""

    def programs(t):
        x = matrix(t, coalesced=True)
        yield t.sin(x, out=t.sparse_coo_tensor((4, 5)))
        yield t.nan_to_num(x, out=t.sparse_coo_tensor((4, 5)))
        yield t.add(x, x, out=t.sparse_coo_tensor((4, 5)))
        yield t.mul(x, x, out=t.sparse_coo_tensor((4, 5)))
        yield t.mm(x, dense(t, 5, 2), out=t.empty(4, 2))
        yield t.mm(rows(t), dense(t, 5, 2), out=t.empty(4, 2))

    agree(lambda t: list(programs(t)))
    raises_alike(lambda t: t.sin(matrix(t, coalesced=True), out=t.sparse_coo_tensor((4, 5), dtype=t.int64)))
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        flambeau.sin(matrix(flambeau).requires_grad_(), out=flambeau.sparse_coo_tensor((4, 5)))
    with pytest.raises(RuntimeError, match="layout"):
        flambeau.sin(matrix(flambeau), out=flambeau.empty(4, 5))


def test_made_like_others():
    """zeros(out=), new(), resize_as_, randn_like, t_ and a move to the device without data give what PyTorch's give."""
    agree(lambda t: t.zeros(2, 3, out=matrix(t)), exactly=True)
    agree(
        lambda t: [matrix(t).new(), matrix(t).new(2, 3), matrix(t).new(t.Size([1])), matrix(t).new(t.tensor([[1]]), t.ones(1))],
        exactly=True,
    )
    agree(lambda t: matrix(t).new().resize_as_(matrix(t)), exactly=True)
    raises_alike(lambda t: matrix(t).new([6]))
    for kind in ("coo", "csr", "bsr", "batch"):
        x = ALL[kind](flambeau)
        if kind == "coo":
            raises_alike(lambda t: t.randn_like(matrix(t)))
            assert flambeau.empty_like(x)._nnz() == 0
        else:
            random = flambeau.randn_like(x)
            assert flambeau.equal(random.crow_indices(), x.crow_indices())
            assert random.values().std() > 0
            assert flambeau.empty_like(x)._nnz() == x._nnz()
        meta = ALL[kind](flambeau).to("meta")
        assert (meta.is_meta, meta._nnz(), meta.layout) == (True, 0, ALL[kind](flambeau).layout)
    assert flambeau.randn_like(matrix(flambeau), layout=flambeau.strided).std() > 0
    agree(lambda t: matrix(t).clone().t_(), exactly=True)
    raises_alike(lambda t: matrix(t) // matrix(t))
    raises_alike(lambda t: matrix(t).sspaddmm(dense(t, 4, 3), dense(t, 3, 5)))
    raises_alike(lambda t: matrix(t).permute((0, 0)))
    raises_alike(lambda t: hybrid(t).permute((0, 2, 1)))


def test_vectors_and_copies():
    """addmv, select_copy and copy_ between compressed tensors give what PyTorch's give, and refuse what it refuses."""
    for kind in ("csr", "csc"):
        agree(lambda t: t.addmv(dense(t, 4), COMPRESSED[kind](t), dense(t, 5), beta=2, alpha=0.5))  # noqa: B023
        agree(lambda t: t.select_copy(COMPRESSED[kind](t), 0, 1).values())  # noqa: B023
    agree(lambda t: t.select_copy(batch(t), 0, 1), exactly=True)
    agree(lambda t: rows(t).copy_(rows(t) * 2), exactly=True)
    raises_alike(lambda t: rows(t).copy_(t.zeros(4, 5)))
    raises_alike(lambda t: rows(t).copy_(t.eye(4, 5).to_sparse_csr()))
    raises_alike(lambda t: blocks(t).copy_(matrix(t).to_dense().to_sparse_bsr((4, 1))))
    raises_alike(lambda t: t.empty_like(rows(t), layout=t.sparse_csc))
