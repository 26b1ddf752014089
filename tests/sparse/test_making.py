"""Sparse tensors made of their parts: what they say about themselves, to the character."""

from __future__ import annotations

import copy

import pytest
from sparse_oracle import ALL, KINDS, agree, dense, hybrid, matrix, raises_alike, run

import flambeau

torch = pytest.importorskip("torch")

MADE = {
    "size": lambda t: t.sparse_coo_tensor([[0, 1], [2, 0]], [1.0, 2.0], (2, 3)),
    "without size": lambda t: t.sparse_coo_tensor([[0, 1], [2, 0]], [1, 2]),
    "dtype": lambda t: t.sparse_coo_tensor([[0, 1]], [1, 2], dtype=t.float64),
    "empty": lambda t: t.sparse_coo_tensor((2, 3)),
    "empty ints": lambda t: t.sparse_coo_tensor((2, 3), dtype=t.int32),
    "size by name": lambda t: t.sparse_coo_tensor(indices=t.tensor([[0, 1]]), values=t.tensor([1.0, 2.0]), size=(4,)),
    "hybrid": hybrid,
    "leaf": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0], requires_grad=True),
    "double leaf": lambda t: t.sparse_coo_tensor([[0, 1], [2, 0]], t.tensor([3.0, 4.0]).double(), requires_grad=True),
    "history": lambda t: t.sparse_coo_tensor([[0, 1]], t.tensor([1.0, 2.0], requires_grad=True)),
    "bool": lambda t: t.sparse_coo_tensor([[0, 1]], [True, False]),
    "many": lambda t: t.arange(1.0, 1201.0).to_sparse(),
    "long lines": lambda t: (t.arange(60.0).reshape(2, 30) / 7).to_sparse(),
    "csr": lambda t: t.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [1.0, 2.0, 3.0], (2, 4)),
    "csr without size": lambda t: t.sparse_csr_tensor([0, 1, 3], [2, 0, 2], [1, 2, 3]),
    "csr of int32": lambda t: t.sparse_csr_tensor(t.tensor([0, 1]).int(), t.tensor([0]).int(), [1.0]),
    "csc": lambda t: t.sparse_csc_tensor([0, 1, 3], [2, 0, 2], [1.0, 2.0, 3.0], dtype=t.float64),
    "compressed": lambda t: t.sparse_compressed_tensor([0, 1, 2], [0, 1], [1.0, 2.0], layout=t.sparse_csr),
    "from dense": lambda t: t.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse(),
    "from dense with history": lambda t: t.tensor([[0.0, 1.0], [2.0, 0.0]], requires_grad=True).to_sparse(),
    "rows of dense": lambda t: t.tensor([[0.0, 0.0], [2.0, 0.0]], requires_grad=True).to_sparse(1),
    "csr of dense": lambda t: t.tensor([[0.0, 1.0], [2.0, 0.0]], requires_grad=True).to_sparse_csr(),
    "layout": lambda t: dense(t, 2, 3).relu().to_sparse(layout=t.sparse_csc),
    "number": lambda t: t.tensor(3.0).to_sparse(),
    "old constructor": lambda t: t.sparse.FloatTensor(t.tensor([[0, 1]]), t.tensor([1.0, 2.0]), t.Size([3])),
}


@pytest.mark.parametrize("name", MADE)
def test_it_prints_as_pytorchs(name):
    """The text of a sparse tensor shows its parts, size, dtype, layout and history as PyTorch shows them."""
    assert repr(run(MADE[name], flambeau)) == repr(run(MADE[name], torch))
    agree(MADE[name])


QUESTIONS = """is_sparse is_sparse_csr layout ndim requires_grad is_leaf itemsize shape dtype is_cpu is_cuda is_meta""".split()
METHODS = """dim numel sparse_dim dense_dim _nnz is_coalesced _indices _values indices values crow_indices col_indices ccol_indices row_indices
    stride is_contiguous storage_offset element_size is_floating_point is_complex type __len__ item tolist numpy untyped_storage data_ptr
    coalesce is_pinned get_device size""".split()


@pytest.mark.parametrize("kind", ALL)
def test_answers(kind):
    """Every question has PyTorch's answer, or its type of exception."""

    def asked(lib, name, call):
        x = run(ALL[kind], lib)
        try:
            found = getattr(x, name)() if call else getattr(x, name)
        except Exception as problem:
            return type(problem)
        return repr(found)

    for call, names in ((False, QUESTIONS), (True, METHODS)):
        for name in names:
            assert asked(flambeau, name, call) == asked(torch, name, call), name


@pytest.mark.parametrize(
    "program",
    [
        lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0, 3.0]),
        lambda t: t.sparse_coo_tensor([0, 1], [1.0, 2.0]),
        lambda t: t.sparse_coo_tensor([[0, -1]], [1.0, 2.0]),
        lambda t: t.sparse_coo_tensor([[0, 1]], [[1.0, 2.0], [3, 4]], (3, 3)),
        lambda t: t.sparse_coo_tensor([[1, 1]], [1.0, 2.0], (3, 4)),
        lambda t: t.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), check_invariants=True),
        lambda t: t.sparse_coo_tensor([[1, 1]], [1.0, 2.0], (3,), is_coalesced=True, check_invariants=True),
        lambda t: t.sparse_coo_tensor([[0]], [1], requires_grad=True),
        lambda t: t.sparse_csr_tensor([0, 1, 3], [0, 1, 0], [1.0, 2, 3], check_invariants=True),
        lambda t: t.sparse_csr_tensor([0, 1, 2], [0, 1, 0], [1.0, 2, 3], (2, 2), check_invariants=True),
        lambda t: t.sparse_csr_tensor([0, 1, 2], [0, 5], [1.0, 2], (2, 2), check_invariants=True),
        lambda t: t.sparse_csr_tensor([1, 1, 2], [0, 1], [1.0, 2], (2, 2), check_invariants=True),
        lambda t: t.sparse_compressed_tensor([0, 1, 2], [0, 1], [1.0, 2]),
        lambda t: t.ones(2).coalesce(),
        lambda t: t.ones(2).indices(),
        lambda t: t.ones(2, 2).crow_indices(),
        lambda t: t.ones(2).sparse_mask(t.ones(2)),
        lambda t: matrix(t).to_sparse(1),
    ],
)
def test_what_does_not_fit_is_refused(program):
    """Parts that do not fit together raise PyTorch's type of exception."""
    raises_alike(program)


def test_invariants_can_be_looked_at_always():
    """The class turns the look at every index on, as a function, for a block and for a function."""
    check = flambeau.sparse.check_sparse_tensor_invariants
    bad = lambda: flambeau.sparse_coo_tensor([[5]], [1.0], (3,))  # noqa: E731
    bad()
    with check(), pytest.raises(RuntimeError, match="size is inconsistent"):
        bad()
    with pytest.raises(RuntimeError, match="size is inconsistent"):
        check()(bad)()
    check.enable()
    try:
        assert check.is_enabled()
        with check(enable=False):
            bad()
        with pytest.raises(RuntimeError, match="size is inconsistent"):
            bad()
    finally:
        check.disable()
    assert not check.is_enabled()


def test_what_is_not_available_says_so():
    """There is no sparse solver, and a sentence says so."""
    with pytest.raises(NotImplementedError, match="not available"):
        flambeau.sparse.spsolve(flambeau.ones(2, 2), flambeau.ones(2))


@pytest.mark.parametrize("kind", ALL)
def test_copies(kind):
    """clone, detach, deepcopy, another dtype, and the way to dense and back give the same elements; a clone has memory of its own."""
    agree(lambda t: ALL[kind](t).clone(), exactly=True)
    agree(lambda t: ALL[kind](t).detach(), exactly=True)
    if kind in ("coo", "coalesced", "hybrid"):  # PyTorch cannot copy others so
        agree(lambda t: copy.deepcopy(ALL[kind](t)), exactly=True)
    agree(lambda t: ALL[kind](t).double(), exactly=True)
    agree(lambda t: ALL[kind](t).to(t.float16).to(t.float32), exactly=True)
    agree(lambda t: ALL[kind](t).to("cpu", t.float64), exactly=True)
    agree(lambda t: ALL[kind](t).to_dense())
    agree(lambda t: t.zeros_like(ALL[kind](t)), exactly=True)
    x = ALL[kind](flambeau)
    y = x.clone().mul_(2)
    assert (y.to_dense() == 2 * x.to_dense()).all()


def test_layouts_meet():
    """Every layout becomes every other."""
    for kind in ("coo", "csr", "csc"):
        for layout in ("sparse_coo", "sparse_csr", "sparse_csc"):
            agree(lambda t: ALL[kind](t).to_sparse(layout=getattr(t, layout)), exactly=layout != "sparse_coo" or kind == "csr")  # noqa: B023


def test_spdiags():
    """Diagonals become a matrix."""
    for layout in (None, "sparse_coo", "sparse_csr"):
        agree(
            lambda t: t.sparse.spdiags(dense(t, 3, 4), t.tensor([0, -1, 2]), (4, 4), *([getattr(t, layout)] if layout else [])).to_dense()  # noqa: B023
        )
    raises_alike(lambda t: t.sparse.spdiags(dense(t, 2, 4), t.tensor([0, 0]), (4, 4)))


def test_other_operations_are_refused_by_name():
    """What has no rule raises NotImplementedError with the operation and the layout."""
    for kind, layout in (("coo", "sparse_coo"), ("csr", "sparse_csr")):
        x = KINDS[kind](flambeau)
        for name in ("exp", "cos", "max", "nonzero", "cumsum", "sort", "mean", "reshape"):
            with pytest.raises(NotImplementedError, match=f"{name}.*{layout}"):
                getattr(x, name)(*([0] if name == "cumsum" else [-1] if name == "reshape" else []))
        with pytest.raises(NotImplementedError, match=f"mse_loss.*{layout}"):
            flambeau.nn.functional.mse_loss(x, x)
