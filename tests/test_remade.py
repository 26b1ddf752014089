"""Large results of formulas are not saved for backward a second time, but computed again from what their own nodes have saved."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import flambeau
from flambeau import nn
from flambeau.eager import saved
from flambeau.kernels import native

F = nn.functional
# name: (the formula, whether its result can be computed again: its node saves its operands, and not the result)
FORMULAS = {
    "gelu": (F.gelu, True),
    "gelu, by tanh": (lambda h: F.gelu(h, approximate="tanh"), True),
    "silu": (F.silu, True),
    "with an option": (lambda h: F.leaky_relu(h, 0.2), True),
    "of two tensors": (lambda h: h.sin() * h, native.lib is not None),  # without the extension the sine is itself computed again
    "sin": (flambeau.sin, True),
    "relu": (flambeau.relu, False),
    "tanh": (flambeau.tanh, False),
    "times a number": (lambda h: h * 2.5, False),
    "broadcast": (lambda h: h * h[:1], False),
    "a view of it": (lambda h: F.gelu(h).view(-1, 128).view_as(h), False),
    "written to": (lambda h: F.gelu(h).mul_(2), False),
}


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Let small tensors count as large ones."""
    monkeypatch.setattr(saved, "LARGE", 4096)


def is_remade(y) -> bool:
    return any(type(entry) is saved.Remade for entry in y.grad_fn.saved)


def results(formula, expected: bool) -> list:
    """First and second derivatives of a product after a formula."""
    flambeau.manual_seed(0)
    up, down, x = nn.Linear(16, 64), nn.Linear(64, 8), flambeau.randn(32, 16, requires_grad=True)
    y = down(formula(up(x)))
    assert is_remade(y) is (expected and saved.LARGE == 4096)
    weights = [x, up.weight, down.weight, down.bias]
    first = flambeau.autograd.grad(y.square().mean(), weights, create_graph=True)
    second = flambeau.autograd.grad(sum(g.square().sum() for g in first), weights[:3])
    y = down(formula(up(x)))
    y.sum().backward()
    return [t.detach().numpy() for t in (*first, *second, x.grad, down.weight.grad)]


@pytest.mark.parametrize("name", FORMULAS)
def test_gradients_are_the_same_bits(name: str, monkeypatch):
    """Gradients, second ones too, are those of a run that saves everything; and only what can be computed again is."""
    formula, expected = FORMULAS[name]
    found = results(formula, expected)
    monkeypatch.setattr(saved, "LARGE", 1 << 60)
    for ours, plain in zip(found, results(formula, expected), strict=True):
        np.testing.assert_array_equal(ours, plain)


@pytest.mark.skipif(native.lib is None, reason="without the extension, memory is not counted")
def test_the_result_is_not_kept():
    """Of gelu between two products, its input stays in memory and its result does not."""
    up, down, x = nn.Linear(16, 512), nn.Linear(512, 16), flambeau.randn(256, 16)
    down(F.gelu(up(x)))
    gc.collect()
    before = native.lib.pool_stats()["live"]
    y = down(F.gelu(up(x)))
    kept = native.lib.pool_stats()["live"] - before
    assert 256 * 512 * 4 <= kept < 1.2 * 256 * 512 * 4
    assert is_remade(y)


def test_watching_changes_nothing():
    """Anomaly detection, a profiler or memory.record() do not make backward keep more than it would."""
    up, down, x = nn.Linear(16, 64), nn.Linear(64, 8), flambeau.randn(32, 16)
    for watch in (lambda: flambeau.autograd.set_detect_anomaly(True), flambeau.profiler.profile, flambeau.memory.record):
        with watch():
            y = down(F.gelu(up(x)))
        assert is_remade(y)


def test_writing_to_it_is_noticed():
    """Whoever still has the result and writes to it gets PyTorch's error; a write to the operand is noticed as well."""
    up, down, x = nn.Linear(16, 64), nn.Linear(64, 8), flambeau.randn(32, 16)
    h = F.gelu(up(x))
    y = down(h)
    h.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    operand = up(x)
    y = down(F.gelu(operand))
    operand.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_another_backward_may_come_first():
    """A backward pass that frees the formula's node leaves what the product needs; with retain_graph it can be asked twice."""
    up, down, x = nn.Linear(16, 64), nn.Linear(64, 8), flambeau.randn(32, 16)
    h = F.gelu(up(x))
    y = down(h).sum()
    (before,) = flambeau.autograd.grad(y, down.weight, retain_graph=True)
    h.sum().backward()
    (after,) = flambeau.autograd.grad(y, down.weight)
    assert flambeau.equal(before, after)


def test_it_is_computed_once(monkeypatch):
    """One backward pass computes the formula again once, also where a derivative asks for it twice."""
    runs, run = [], saved.arrays.run
    monkeypatch.setattr(saved.arrays, "run", lambda *args, **named: runs.append(args[0]) or run(*args, **named))
    for bias in (True, False):
        up, down, x = nn.Linear(16, 64), nn.Linear(64, 8, bias=bias), flambeau.randn(32, 16)
        y = down(F.gelu(up(x))).sum()
        runs.clear()
        y.backward()
        assert sum(kernel is flambeau.ops.OPS["_gelu"].kernel for kernel in runs) == 1


def test_saved_tensors_are_shown_and_hooked():
    """What a node shows as saved is the tensor, with its history, and hooks can be put on it."""
    up, down, x = nn.Linear(16, 64), nn.Linear(64, 8, bias=False), flambeau.randn(32, 16)
    h = F.gelu(up(x))
    y = down(h)
    names = [name for name in ("_saved_self", "_saved_mat1", "_saved_input") if hasattr(type(y.grad_fn), name)]
    shown = next(v for v in (getattr(y.grad_fn, n) for n in names) if v is not None)
    assert flambeau.equal(shown, h) and shown.grad_fn is h.grad_fn
    calls = []
    raw = getattr(y.grad_fn, "_raw" + names[0])
    raw.register_hooks(lambda t: calls.append("packed") or t, lambda t: calls.append("unpacked") or t)
    y.sum().backward()
    assert calls[:2] == ["packed", "unpacked"] and down.weight.grad is not None
