"""Sparse gradients: what makes them, how they add up, and what optimizers do with them."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from sparse_oracle import agree, assert_same, dense, raises_alike, run

import flambeau

torch = pytest.importorskip("torch")


def table(t, name="Embedding", **options):
    """A layer with known weights."""
    layer = getattr(t.nn, name)(6, 3, sparse=True, **options)
    with t.no_grad():
        layer.weight.copy_(dense(t, 6, 3))
    return layer


MAKES = {
    "embedding": lambda t: (lambda e: (e(t.tensor([[1, 2], [1, 4]])), e.weight))(table(t)),
    "padding": lambda t: (lambda e: (e(t.tensor([1, 2, 1, 4])), e.weight))(table(t, padding_idx=1)),
    "int32": lambda t: (lambda e: (e(t.tensor([1, 2], dtype=t.int32)), e.weight))(table(t)),
    "function": lambda t: (lambda w: (t.nn.functional.embedding(t.tensor([5, 0]), w, sparse=True), w))(dense(t, 6, 3).requires_grad_()),
    "sum": lambda t: (lambda b: (b(t.tensor([1, 2, 1, 4]), t.tensor([0, 2])), b.weight))(table(t, "EmbeddingBag", mode="sum")),
    "mean": lambda t: (lambda b: (b(t.tensor([1, 2, 1, 4]), t.tensor([0, 1])), b.weight))(table(t, "EmbeddingBag", mode="mean")),
    "bags": lambda t: (lambda b: (b(t.tensor([[1, 2], [1, 4]])), b.weight))(table(t, "EmbeddingBag", mode="mean")),
    "padded bags": lambda t: (lambda b: (b(t.tensor([[1, 2], [1, 4]])), b.weight))(table(t, "EmbeddingBag", mode="sum", padding_idx=1)),
    "weighted": lambda t: (lambda b: (b(t.tensor([[1, 2], [1, 4]]), per_sample_weights=dense(t, 2, 2)), b.weight))(
        table(t, "EmbeddingBag", mode="sum")
    ),
    "gather": lambda t: (lambda x: (x.gather(1, t.tensor([[0, 1], [1, 1], [2, 3]]), sparse_grad=True), x))(dense(t, 3, 4).requires_grad_()),
    "gather 0": lambda t: (lambda x: (t.gather(x, 0, t.tensor([[0, 1], [1, 1]]), sparse_grad=True), x))(dense(t, 3, 4).requires_grad_()),
}


@pytest.mark.parametrize("name", MAKES)
def test_sparse_gradients(name):
    """They are COO tensors with an entry for everything that was read, in order, added up only by coalesce()."""

    def program(t):
        y, leaf = MAKES[name](t)
        (y * y).sum().backward()
        return leaf.grad, leaf.grad.coalesce()

    agree(program)
    grads = [run(program, t)[0] for t in (flambeau, torch)]
    assert [g._nnz() for g in grads[:1]] == [g._nnz() for g in grads[1:]]
    assert [g.is_coalesced() for g in grads[:1]] == [g.is_coalesced() for g in grads[1:]]
    np.testing.assert_array_equal(grads[0]._indices().numpy(), grads[1]._indices().numpy())


def test_refused():
    """Frequencies and maxima have no sparse gradients."""

    def frequency(t):
        layer = table(t, scale_grad_by_freq=True)
        layer(t.tensor([1])).sum().backward()

    raises_alike(frequency)
    raises_alike(lambda t: table(t, "EmbeddingBag", mode="max")(t.tensor([[1]])))


@pytest.mark.parametrize("order", list(itertools.product("sd", repeat=3)))
@pytest.mark.parametrize("at_once", [True, False])
def test_sums_of_sparse_and_dense_gradients(order, at_once):
    """Sparse ones stay sparse together, and a dense one makes the sum dense, whichever comes first."""

    def program(t):
        layer = table(t)
        losses = [layer(t.tensor([1, i])).pow(2).sum() if kind == "s" else (layer.weight * i).sum() for i, kind in enumerate(order)]
        if at_once:
            sum(losses).backward()
        else:
            for loss in losses:
                loss.backward()
        return layer.weight.grad

    agree(program)


def test_grad_attribute():
    """Sparse gradients can be set, zeroed, hooked, cloned and returned; writing to their values changes them."""

    def program(t):
        layer, seen = table(t), []
        layer.weight.register_hook(lambda g: seen.append(g.is_sparse) or g * 2)
        layer(t.tensor([1, 1])).sum().backward()
        first = layer.weight.grad.clone()
        layer.weight.grad._values().mul_(3)
        changed = layer.weight.grad.coalesce()
        t.optim.SGD(layer.parameters(), lr=1.0).zero_grad(set_to_none=False)
        emptied = layer.weight.grad
        (found,) = t.autograd.grad(layer(t.tensor([2])).sum(), layer.weight)
        layer.weight.grad = found
        return first, changed, emptied, found, layer.weight.grad, seen

    agree(program)
    raises_alike(lambda t: setattr(table(t).weight, "grad", t.sparse_coo_tensor((6, 4))))


def test_clipping():
    """The norm is that of the coalesced gradients, and their values are scaled in place. (PyTorch cannot do it with sparse ones.)"""

    def program(sparse):
        layer = flambeau.nn.Embedding(6, 3, sparse=sparse)
        with flambeau.no_grad():
            layer.weight.copy_(dense(flambeau, 6, 3))
        layer(flambeau.tensor([1, 1, 4])).pow(2).sum().backward()
        total = flambeau.nn.utils.clip_grad_norm_(layer.parameters(), 0.5)
        return total, layer.weight.grad.to_dense()

    for ours, other in zip(program(True), program(False), strict=True):
        np.testing.assert_allclose(ours.numpy(), other.numpy(), rtol=1e-6)


# -- optimizers ------------------------------------------------------------------------------------------------------------

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "eps": 1e-3, "initial_accumulator_value": 0.5, "maximize": True}),
    ("SparseAdam", {"lr": 0.1}),
    ("SparseAdam", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-3, "maximize": True}),
]


def trained(t, name, options, steps=5, layer=None, optimizer=None):
    """A table and its optimizer after some steps, each of which reads other rows, some of them twice."""
    layer = table(t) if layer is None else layer
    optimizer = getattr(t.optim, name)(layer.parameters(), **options) if optimizer is None else optimizer
    for i in range(steps):
        optimizer.zero_grad()
        layer(t.tensor([i % 3, 1, (i + 2) % 6, 1])).sin().pow(2).sum().backward()
        optimizer.step()
    return layer, optimizer


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizers(name, options):
    """Steps by sparse gradients, and the state they leave, are PyTorch's; rows that were not read stay as they are."""

    def program(t):
        layer, optimizer = trained(t, name, options)
        state = optimizer.state_dict()["state"].get(0, {})
        return [layer.weight, *[state[key] for key in sorted(state)]]

    agree(program)


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_their_state_travels(name, options):
    """A state dict from PyTorch's optimizer goes on here as it does there, and the other way round."""
    _, theirs = run(lambda t: trained(t, name, options), torch)
    file = io.BytesIO()
    torch.save(theirs.state_dict(), file)
    file.seek(0)
    state = flambeau.load(file, weights_only=True)

    def goes_on(t, state):
        layer = table(t)
        optimizer = getattr(t.optim, name)(layer.parameters(), **options)
        optimizer.load_state_dict(state)
        return trained(t, name, options, 3, layer, optimizer)

    ours, there = goes_on(flambeau, state), run(lambda t: goes_on(t, theirs.state_dict()), torch)
    assert_same(ours[0].weight, there[0].weight)
    file = io.BytesIO()
    flambeau.save(ours[1].state_dict(), file)
    file.seek(0)
    back = goes_on(flambeau, ours[1].state_dict()), run(lambda t: goes_on(t, torch.load(file, weights_only=True)), torch)
    assert_same(back[0][0].weight, back[1][0].weight)


@pytest.mark.parametrize("name", "Adam AdamW Adadelta Adamax ASGD NAdam RAdam RMSprop Rprop Adafactor Muon".split())
def test_other_optimizers_refuse(name):
    """They say that they do not support sparse gradients, as PyTorch's do, word for word."""
    said = []
    for t in (flambeau, torch):
        layer = table(t)
        layer(t.tensor([1])).sum().backward()
        with pytest.raises(RuntimeError, match="does not support sparse gradients") as problem:
            getattr(t.optim, name)(layer.parameters()).step()
        said.append(str(problem.value))
    assert said[0] == said[1]


def test_refusals_of_those_that_do():
    """Weight decay, dense gradients, sparse parameters and senseless options are refused with PyTorch's type of exception."""

    def stepped(t, name, **options):
        layer = table(t)
        layer(t.tensor([1])).sum().backward()
        getattr(t.optim, name)(layer.parameters(), **options).step()

    def with_dense(t):
        p = t.ones(2, requires_grad=True)
        p.sum().backward()
        t.optim.SparseAdam([p]).step()

    for program in (
        lambda t: stepped(t, "SGD", lr=0.1, weight_decay=0.1),
        lambda t: stepped(t, "Adagrad", weight_decay=0.1),
        with_dense,
        lambda t: t.optim.SparseAdam([t.sparse_coo_tensor([[1]], [1.0], (3,))]),
        lambda t: t.optim.SparseAdam([t.ones(2)], lr=0),
        lambda t: t.optim.SparseAdam([t.ones(2)], eps=0),
        lambda t: t.optim.SparseAdam([t.ones(2)], betas=(1.0, 0.9)),
        lambda t: t.optim.SparseAdam([t.ones(2)], lr=t.tensor([1.0, 2.0])),
    ):
        raises_alike(program)
    assert repr(flambeau.optim.SparseAdam([flambeau.ones(2)])) == repr(torch.optim.SparseAdam([torch.ones(2)]))


def test_lbfgs_takes_sparse_gradients():
    """As dense ones, because it needs their scalar products."""

    def program(t):
        layer = table(t)
        optimizer = t.optim.LBFGS(layer.parameters(), max_iter=4)

        def closure():
            optimizer.zero_grad()
            loss = layer(t.tensor([1, 2, 1])).pow(2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return layer.weight

    agree(program)


def test_a_scaler_unscales_sparse_gradients():
    """GradScaler divides the values of a sparse gradient; where one is infinite, it skips the step."""
    layer = table(flambeau)
    optimizer = flambeau.optim.SGD(layer.parameters(), lr=0.1)
    scaler = flambeau.amp.GradScaler("cpu", init_scale=8.0)
    for factor, moves in ((1.0, True), (float("inf"), False)):
        optimizer.zero_grad()
        before = layer.weight.detach().clone()
        scaler.scale(layer(flambeau.tensor([1, 1])).sum() * factor).backward()
        scaler.unscale_(optimizer)
        assert (layer.weight.grad.to_dense()[1] == 2 * factor).all()
        scaler.step(optimizer)
        scaler.update()
        assert bool((layer.weight[1] != before[1]).all()) is moves
