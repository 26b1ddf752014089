"""Divergences against PyTorch's, with gradients, and what the registry does."""

from __future__ import annotations

import numpy as np
import pytest
from test_families import FRAMEWORKS, make

import flambeau

torch = pytest.importorskip("torch")

MEMBERS = {
    "Bernoulli": ("Bernoulli(v(0.3, 0.8))", "Bernoulli(v(0.5, 1.0))"),
    "Beta": ("Beta(v(0.5, 2.0), v(1.5, 3.0))", "Beta(v(1.5, 1.0), v(2.5, 1.0))"),
    "Binomial": ("Binomial(5, v(0.3, 0.8))", "Binomial(5, v(0.4, 0.1))"),
    "Categorical": ("Categorical(v(0.2, 0.5, 0.9))", "Categorical(v(0.4, 0.1, 0.2))"),
    "Cauchy": ("Cauchy(v(0.5, -1.0), v(1.5, 0.3))", "Cauchy(v(0.1, -1.5), v(0.5, 2.3))"),
    "ContinuousBernoulli": ("ContinuousBernoulli(v(0.3, 0.8))", "ContinuousBernoulli(v(0.7, 0.2))"),
    "Dirichlet": ("Dirichlet(v(0.5, 2.0, 3.0))", "Dirichlet(v(1.5, 0.3, 2.0))"),
    "Exponential": ("Exponential(v(1.5, 0.3))", "Exponential(v(0.5, 2.3))"),
    "Gamma": ("Gamma(v(1.5, 0.3), v(2.0, 0.5))", "Gamma(v(0.5, 2.3), v(1.0, 3.5))"),
    "Geometric": ("Geometric(v(0.3, 0.8))", "Geometric(v(0.6, 0.1))"),
    "Gumbel": ("Gumbel(v(0.5, -1.0), v(1.5, 0.3))", "Gumbel(v(0.1, -0.5), v(0.5, 1.3))"),
    "HalfNormal": ("HalfNormal(v(1.5, 0.3))", "HalfNormal(v(0.5, 2.3))"),
    "Independent": ("Independent(D.Normal(v(0.5, -1.0), v(1.5, 0.3)), 1)", "Independent(D.Normal(v(0.1, -0.5), v(0.5, 1.3)), 1)"),
    "Laplace": ("Laplace(v(0.5, -1.0), v(1.5, 0.3))", "Laplace(v(0.1, -0.5), v(0.5, 1.3))"),
    "LogNormal": ("LogNormal(v(0.5, -1.0), v(1.5, 0.3))", "LogNormal(v(0.1, -0.5), v(0.5, 1.3))"),
    "LowRankMultivariateNormal": (
        "LowRankMultivariateNormal(v(0.5, -1.0), v(0.1, 0.2).reshape(2, 1), v(0.5, 0.7))",
        "LowRankMultivariateNormal(v(0.1, -0.5), v(0.3, 0.2).reshape(2, 1), v(1.5, 0.4))",
    ),
    "MultivariateNormal": (
        "MultivariateNormal(v(0.5, -1.0), v(1.0, 0.2, 0.2, 2.0).reshape(2, 2))",
        "MultivariateNormal(v(0.1, -0.5, 1.0, 2.0).reshape(2, 2), scale_tril=v(1.0, 0.0, 0.2, 2.0).reshape(2, 2))",
    ),
    "Normal": ("Normal(v(0.5, -1.0), v(1.5, 0.3))", "Normal(v(0.1, -0.5), v(0.5, 1.3))"),
    "OneHotCategorical": ("OneHotCategorical(v(0.2, 0.5, 0.9))", "OneHotCategorical(v(0.4, 0.1, 0.2))"),
    "Pareto": ("Pareto(v(0.5, 1.0), v(2.5, 3.3))", "Pareto(v(0.2, 1.5), v(1.5, 2.3))"),
    "Poisson": ("Poisson(v(0.5, 12.0))", "Poisson(v(1.5, 10.0))"),
    "Uniform": ("Uniform(v(0.1, 0.2), v(0.5, 0.8))", "Uniform(v(0.0, 0.3), v(0.7, 2.3))"),
    "TransformedDistribution": (
        "TransformedDistribution(D.Normal(v(0.5), v(1.5)), [D.ExpTransform()])", "TransformedDistribution(D.Normal(v(0.1), v(0.5)), [D.ExpTransform()])"
    ),
}  # fmt: skip


def registered() -> list[tuple[str, str]]:
    found = sorted((p.__name__, q.__name__) for p, q in torch.distributions.kl._KL_REGISTRY)
    return [(p, q) for p, q in found if p in MEMBERS and q in MEMBERS] + [("LogNormal", "LogNormal")]


@pytest.mark.parametrize(("first", "second"), registered())
def test_divergences_are_pytorchs(first: str, second: str):
    """A divergence between two distributions, or its gradient, is not PyTorch's."""
    found = []
    for f in FRAMEWORKS:
        p, leaves = make(f, MEMBERS[first][0])
        q, more = make(f, MEMBERS[second][1])
        kl = f.distributions.kl_divergence(p, q)
        finite = kl[kl.isfinite()] if kl.dim() else kl
        grads = f.autograd.grad(finite.sum(), leaves + more, allow_unused=True) if finite.requires_grad else []
        found.append((kl.detach().numpy(), [None if g is None else g.numpy() for g in grads]))
    (theirs, their_grads), (ours, our_grads) = found
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-8)
    assert ours.shape == theirs.shape
    for a, b in zip(our_grads, their_grads, strict=False):
        if a is not None and b is not None and np.isfinite(b).all():
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_every_pair_pytorch_has_is_there():
    """PyTorch has a divergence between two families that we have not."""
    D = flambeau.distributions
    for p, q in torch.distributions.kl._KL_REGISTRY:
        assert (getattr(D, p.__name__), getattr(D, q.__name__)) in D.kl._KL_REGISTRY, (p, q)


def test_divergence_is_the_mean_of_log_ratios():
    """KL(p || q) is not what draws of p say it is."""
    D = flambeau.distributions
    flambeau.manual_seed(0)
    for p, q in ((D.Gamma(2.0, 1.5), D.Gamma(3.0, 1.0)), (D.Beta(2.0, 3.0), D.Uniform(0.0, 1.0)), (D.Uniform(0.0, 1.0), D.Normal(0.3, 0.5)),
                 (D.Exponential(2.0), D.Gumbel(0.2, 0.7)), (D.Pareto(1.0, 6.0), D.Gamma(2.0, 1.0))):  # fmt: skip
        x = p.sample((20000,))
        estimate = (p.log_prob(x) - q.log_prob(x)).mean().item()
        assert D.kl_divergence(p, q).item() == pytest.approx(estimate, abs=0.03)


def test_registry():
    """A registered function is not found, a subclass does not inherit one, or the closer match loses."""
    D = flambeau.distributions

    class Mine(D.Normal):
        pass

    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 0.0

    @D.register_kl(Mine, D.Normal)
    def _(p, q):
        return flambeau.tensor(42.0)

    assert D.kl_divergence(Mine(0.0, 1.0), D.Normal(0.0, 1.0)).item() == 42.0
    with pytest.raises(NotImplementedError, match="Normal and VonMises"):
        D.kl_divergence(D.Normal(0.0, 1.0), D.VonMises(0.0, 1.0))
    for t in FRAMEWORKS:  # a class of any kind will do
        with pytest.raises(TypeError):
            t.distributions.register_kl(3, D.Normal)
    with pytest.raises(NotImplementedError):
        D.kl_divergence(D.LogNormal(0.0, 1.0), D.HalfNormal(1.0))


def test_a_mixin_can_be_registered():
    """Libraries register a base class of their own distributions that is no Distribution itself, also one known to an ABC only."""
    from abc import ABC

    def program(t):
        D = t.distributions

        class Own(ABC):  # noqa: B024
            pass

        class Point(D.Distribution, Own):
            has_rsample = True

            def __init__(self, v):
                self.v = v
                super().__init__(v.shape, validate_args=False)

        @Own.register
        class Far(D.Normal):
            pass

        class Near(D.Normal, Own):
            pass

        @D.register_kl(Point, Own)
        def _(p, q):
            return -q.log_prob(p.v)

        return [D.kl_divergence(Point(t.tensor([0.5, 1.0])), q(0.0, 1.0)).tolist() for q in (Near, Far)]

    theirs, ours = (program(t) for t in FRAMEWORKS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_bounds_of_constraints_have_names():
    """They are given by place or by name, as a library's subclass of one does; wrong ones are a TypeError."""

    def program(t):
        c = t.distributions.constraints

        class Softplus(type(c.positive)):
            def __init__(self):
                super().__init__(lower_bound=0.0)

        x = t.tensor([-1.0, 0.0, 0.5, 1.0, 2.0])
        made = [c.interval(lower_bound=0.0, upper_bound=1.0), c.half_open_interval(0.0, upper_bound=1.0), c.less_than(upper_bound=1.0)]
        made += [c.greater_than_eq(lower_bound=0.5), c.integer_interval(upper_bound=1, lower_bound=0), Softplus()]
        return [(repr(m), m.check(x).tolist(), vars(m)) for m in made]

    theirs, ours = (program(t) for t in FRAMEWORKS)
    assert ours == theirs
    for t in FRAMEWORKS:
        c = t.distributions.constraints
        for wrong in (lambda c=c: c.interval(0.0), lambda c=c: c.interval(0, 1, 2), lambda c=c: c.less_than(lower_bound=1)):
            with pytest.raises(TypeError):
                wrong()
        with pytest.raises(TypeError):
            c.interval(0.0, lower_bound=1.0)
