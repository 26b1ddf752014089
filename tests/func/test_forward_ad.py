"""autograd.forward_ad: duals carry tangents as PyTorch's do."""

from __future__ import annotations

import numpy as np
import pytest
from test_grad import both, same

import flambeau

torch = pytest.importorskip("torch")
X = np.random.default_rng(0).standard_normal((2, 3))
Y = np.random.default_rng(1).standard_normal((2, 3))


@pytest.mark.filterwarnings("ignore")
def test_tangents():
    """unpack_dual gives the primal and J v; nothing without a dual has a tangent."""

    def run(t, x, y):
        fwd = __import__(f"{t.__name__}.autograd.forward_ad", fromlist=["x"])
        with fwd.dual_level():
            a, b = fwd.make_dual(x, y), fwd.make_dual(y, x)
            found = fwd.unpack_dual(a.sin() * b.exp())
            plain = fwd.unpack_dual(x * 2)
            assert fwd.unpack_dual(a).tangent is y or t is torch
        return found.primal, found.tangent, plain.primal, plain.tangent is None

    same(*both(run, X, Y))


def test_errors():
    """There is one level at a time, and no dual without one."""
    fwd = flambeau.autograd.forward_ad
    x = flambeau.ones(2)
    with pytest.raises(RuntimeError):
        fwd.make_dual(x, x)
    with fwd.dual_level():
        with pytest.raises(RuntimeError):
            fwd.enter_dual_level()
        with pytest.raises(ValueError, match="floating"):
            fwd.make_dual(x.long(), x)
    with pytest.raises(RuntimeError):
        fwd.exit_dual_level()


@pytest.mark.filterwarnings("ignore")
def test_tangents_of_layers():
    """A tangent that weights took part in can be differentiated with respect to them; the dual's own tensor gets no gradient."""

    def run(t, x, y):
        fwd = __import__(f"{t.__name__}.autograd.forward_ad", fromlist=["x"])
        weight = y.detach().clone().requires_grad_()
        with fwd.dual_level():
            found = fwd.unpack_dual((fwd.make_dual(x, y) * weight).sin())
            found.tangent.square().sum().backward()
            alone = fwd.unpack_dual(fwd.make_dual(x, y).sin())
            own = fwd.unpack_dual(weight)
        return found.tangent, weight.grad, found.tangent.requires_grad, alone.tangent.requires_grad, own.tangent is None, x.grad is None

    same(*both(run, X, Y))


@pytest.mark.filterwarnings("ignore")
def test_duals_print_their_tangents():
    """A dual, and what is computed from it, prints with its tangent; without one afterwards."""

    def run(t):
        fwd = __import__(f"{t.__name__}.autograd.forward_ad", fromlist=["x"])
        x, v = t.arange(3.0), t.ones(3)
        with fwd.dual_level():
            dual = fwd.make_dual(x, v)
            seen = [repr(dual), repr(dual * 2), repr(x), str(t.stack([dual, dual])), repr(dual.detach()), repr(fwd.unpack_dual(dual * 3))]
        return [*seen, repr(dual)]

    assert run(flambeau) == run(torch)


def test_functional_takes_tuples():
    """A list is no tuple of inputs, for PyTorch as for us."""
    for t in (flambeau, torch):
        with pytest.raises(TypeError):
            t.autograd.functional.jacobian(lambda a: a, [t.ones(2)])
