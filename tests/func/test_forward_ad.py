"""autograd.forward_ad: duals carry tangents as PyTorch's do."""

from __future__ import annotations

import numpy as np
import pytest
from test_grad import both, same

import flambeau

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)  # PyTorch's, when it first imports func
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


def quiet_part(t, x):
    with t.no_grad():
        part = x.sin()
    return (part * x).sum()


def quiet_all(t, x):
    with t.no_grad():
        y = x.clone()
        y[0] = x[1] * 2
        y.mul_(x)
        first, rest = x.split([1, x.shape[0] - 1])
        return t.cat([y, rest, first]), t.einsum("ij,kj->ik", x, x), x.sort().values


def switched(t, x):
    before = t.is_grad_enabled()
    t.set_grad_enabled(False)
    y = x.exp()
    with t.enable_grad():
        y = y * x
    t.set_grad_enabled(before)
    return y + t.no_grad()(lambda v: v.softmax(-1))(x)


@pytest.mark.parametrize("function", [quiet_part, quiet_all, switched], ids=lambda f: f.__name__)
@pytest.mark.filterwarnings("ignore")
def test_no_grad_keeps_tangents(function):
    """no_grad is about gradients: tangents flow on inside of it, whatever forward mode is asked in."""

    def run(t, x, y):
        f = lambda v: function(t, v)  # noqa: E731
        found = [t.func.jvp(f, (x,), (y,)), t.func.jacfwd(f)(x), t.func.jvp(t.func.vmap(f), (t.stack([x, y]),), (t.stack([y, x]),))]
        with t.no_grad():
            found += t.func.jvp(f, (x,), (y,)), t.is_grad_enabled()
        fwd = __import__(f"{t.__name__}.autograd.forward_ad", fromlist=["x"])
        with fwd.dual_level():
            made = f(fwd.make_dual(x, y))
            found.append([fwd.unpack_dual(v).tangent for v in (made if isinstance(made, tuple) else (made,))])
        return [*found, t.is_grad_enabled()]

    same(*both(run, X, Y))


@pytest.mark.filterwarnings("ignore")
def test_no_grad_keeps_gradients_out():
    """Beside tangents, what is computed inside of no_grad has no history: no gradient flows through it, and leaves can be written to."""

    def run(t, x, y):
        fwd = __import__(f"{t.__name__}.autograd.forward_ad", fromlist=["x"])
        weight = y.detach().clone().requires_grad_()
        with fwd.dual_level(), t.no_grad():
            weight.add_(1)
            inside = t.is_grad_enabled(), (weight * 2).requires_grad
            tangent = fwd.unpack_dual(fwd.make_dual(x, y) * weight).tangent

        def layer(v):
            with t.no_grad():
                return v * weight

        out, pushed = t.func.jvp(layer, (x,), (y,))

        def squared(v):
            v = v * v
            with t.no_grad():
                part = v * 2
            return (part * v).sum()

        f = lambda v: quiet_part(t, v)  # noqa: E731
        nested = t.func.grad(f)(x), t.func.hessian(f)(x), t.func.jacfwd(t.func.jacfwd(f))(x)
        nested += t.func.jacrev(t.func.jacfwd(f))(x), t.func.jacrev(t.func.jacfwd(squared))(x), t.func.jacfwd(t.func.jacfwd(squared))(x)
        return inside, tangent.detach(), weight.is_leaf, out.requires_grad, pushed.requires_grad, out, pushed, nested

    same(*both(run, X, Y))


@pytest.mark.filterwarnings("ignore")
def test_gradients_of_hushed_tangents():
    """Gradients of tangents, backward, are those of PyTorch: a tangent computed inside of no_grad is a constant. Inference mode records nothing."""

    def run(t, x, y):
        fwd = __import__(f"{t.__name__}.autograd.forward_ad", fromlist=["x"])
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        with fwd.dual_level():
            dual = fwd.make_dual(x, y)
            with t.no_grad():
                quiet = fwd.unpack_dual(dual * dual)
            primal, tangent = fwd.unpack_dual(quiet_part(t, dual * x))
        return quiet.primal, quiet.tangent, t.autograd.grad(primal, x, retain_graph=True), t.autograd.grad(tangent, (x, y))

    same(*both(run, X, Y))
    y = flambeau.ones(2, requires_grad=True)
    with flambeau.autograd.forward_ad.dual_level(), flambeau.no_grad(), flambeau.inference_mode():
        assert not (y * 2).requires_grad and not flambeau.is_grad_enabled()
    assert flambeau.is_grad_enabled() and (y * 2).requires_grad


def test_modes_after_an_error():
    """What a function raises inside of no_grad leaves recording as it was."""

    def broken(x):
        with flambeau.no_grad():
            raise KeyError("mine")

    x = flambeau.ones(2, requires_grad=True)
    with pytest.raises(KeyError):
        flambeau.func.jvp(broken, (x.detach(),), (x.detach(),))
    with pytest.raises(KeyError), flambeau.autograd.forward_ad.dual_level():
        broken(x)
    assert flambeau.is_grad_enabled() and (x * 2).requires_grad


# -- autograd.functional ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_hessian_of_a_number_with_dimensions(shape, vectorize):
    """Dimensions of the number that a function returns show up in its Hessian."""

    def run(t):
        x, y = t.tensor(X), t.tensor(X[0])
        power = lambda a, b=None: (a.pow(3).sum() * (1 if b is None else b.sum())).reshape(shape)  # noqa: E731
        hessian = t.autograd.functional.hessian
        return [hessian(power, x, vectorize=vectorize), hessian(power, (x, y), vectorize=vectorize)]

    for found, expected in zip(flat(run(flambeau)), flat(run(torch)), strict=True):
        assert tuple(found.shape) == tuple(expected.shape)
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)


def flat(values):
    return [t for v in values for t in flat(v)] if isinstance(values, (list, tuple)) else [values]


CUT = lambda t: lambda a: a.detach().sum()  # noqa: E731
APART = lambda t: lambda a: a.detach().clone().requires_grad_().clone().sum()  # noqa: E731
LINEAR = lambda t: lambda a: (3 * a).sum()  # noqa: E731


@pytest.mark.parametrize("function", [CUT, APART, LINEAR], ids=["cut", "apart", "linear"])
@pytest.mark.parametrize("which", ["vjp", "jvp", "jacobian", "hessian", "vhp", "hvp"])
def test_strict_derivatives(which, function):
    """With strict=True a function that does not depend on its input passes, or is refused for another reason than PyTorch gives."""

    def run(t, **options):
        x = t.tensor(X).requires_grad_()
        v = {"jvp": t.ones_like(x), "vhp": t.ones_like(x), "hvp": t.ones_like(x)}.get(which)
        try:
            getattr(t.autograd.functional, which)(function(t), x, *(() if v is None else (v,)), strict=True, **options)
        except RuntimeError as problem:
            return str(problem).partition(".")[0].partition("user-provided")[2].partition("independent of")[0]

    assert run(flambeau) == run(torch)
    assert run(flambeau, create_graph=True) == run(torch, create_graph=True)


BAD_CALLS = {
    "inputs": lambda f, x: f(lambda a, b: a.sum(), (x, 2)),
    "outputs": lambda f, x: f(lambda a: (a.sum(), "text"), x),
    "vectors": lambda f, x: f(lambda a: a.sum(), x, (x, x)),
    "shape": lambda f, x: f(lambda a: a.sum(), x, x[0]),
    "kind": lambda f, x: f(lambda a: a.sum(), x, (x, 2)),
    "nothing": lambda f, x: f(lambda a: a, x),
}


@pytest.mark.parametrize("case", BAD_CALLS)
@pytest.mark.parametrize("which", ["vjp", "jvp", "vhp", "hvp", "jacobian", "hessian"])
def test_functional_refuses(case, which):
    """A misuse of autograd.functional is refused with other words or another error than PyTorch's."""
    if which in ("jacobian", "hessian") and case in ("vectors", "shape", "kind"):
        pytest.skip("takes no vector")

    def run(t):
        try:
            BAD_CALLS[case](getattr(t.autograd.functional, which), t.tensor(X))
        except (RuntimeError, TypeError) as problem:
            return type(problem).__name__, str(problem).split(" must be ")[0][:27]

    assert run(flambeau) == run(torch)


# -- writing to what carries a tangent -----------------------------------------------------------------------------------


WRITES = {
    "a product": lambda t, x, y: x.mul_(2),
    "another dual": lambda t, x, y: x.copy_(y * 3),
    "through a view": lambda t, x, y: x[0].mul_(y[0]),
    "a comparison": lambda t, x, y: x.eq_(y),
    "random numbers": lambda t, x, y: x.normal_().mul_(0).add_(y),
    "into a constant": lambda t, x, y: t.zeros_like(x).detach().add_(y),
}


@pytest.mark.parametrize("case", WRITES)
def test_writes_to_duals(case):
    """An in-place write to a dual is refused, or its tangent is not the one PyTorch computes."""

    def by_level(t):
        fwd = __import__(f"{t.__name__}.autograd.forward_ad", fromlist=["x"])
        x, y, v, w = (t.tensor(X + i) for i in range(4))
        with fwd.dual_level():
            dual, other = fwd.make_dual(x, v), fwd.make_dual(y, w)
            found = WRITES[case](t, dual, other)
            return [part.detach().clone() for part in (*fwd.unpack_dual(found), *fwd.unpack_dual(dual), x) if part is not None]

    def by_jvp(t):
        x, y, v, w = (t.tensor(X + i) for i in range(4))
        return [part.clone() for part in t.func.jvp(lambda x, y: WRITES[case](t, x, y) * 1, (x, y), (v, w))]

    for run in (by_level, by_jvp):
        found, expected = run(flambeau), run(torch)
        assert len(found) == len(expected)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-9)


def test_a_tangent_has_none():
    """A dual is taken for the tangent of another, at the same level."""
    x = flambeau.ones(2)
    with flambeau.autograd.forward_ad.dual_level(), pytest.raises(RuntimeError, match="has a forward gradient at the same level"):
        flambeau.autograd.forward_ad.make_dual(x, flambeau.autograd.forward_ad.make_dual(x, x))


def test_tangents_lie_as_their_primals():
    """The tangent of a view of a dual cannot be the same view of its tangent, or a tangent that lies alike is copied."""
    fwd = flambeau.autograd.forward_ad
    x = flambeau.rand(2, 3)
    with fwd.dual_level():
        for tangent, same in ((flambeau.rand(2, 3), True), (flambeau.rand(3, 2).t(), False), (flambeau.rand(10)[:6].view(2, 3), False)):
            found = fwd.unpack_dual(fwd.make_dual(x, tangent)).tangent
            assert (found is tangent) is same
            assert found.stride() == x.stride() and found.tolist() == tangent.tolist()


def test_the_level_has_a_number():
    """forward_ad._current_level, by which libraries see whether forward mode is on, is not PyTorch's."""

    def numbers(t):
        ad = t.autograd.forward_ad
        with ad.dual_level():
            inside = ad._current_level
        return ad._current_level, inside

    assert numbers(flambeau) == numbers(torch)
