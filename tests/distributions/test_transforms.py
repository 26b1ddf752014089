"""Transforms, constraints and the registry that leads from one to the other, against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
FRAMEWORKS = (torch, flambeau)

# text of a transform -> text of an x
TRANSFORMS = {
    "AbsTransform()": "[-0.5, 1.5]",
    "AffineTransform(t([1.0, 2.0]), t([0.5, -3.0]))": "[-0.5, 1.5]",
    "AffineTransform(1.0, -2.0)": "[-0.5, 1.5]",
    "AffineTransform(t([1.0, 2.0]), t([0.5, -3.0]), event_dim=1)": "[-0.5, 1.5]",
    "ComposeTransform([D.AffineTransform(1.0, 2.0), D.ExpTransform(), D.PowerTransform(t(0.5))])": "[-0.5, 1.5]",
    "ComposeTransform([])": "[-0.5, 1.5]",
    "ComposeTransform([D.AffineTransform(0.0, 2.0), D.StickBreakingTransform()])": "[-0.5, 1.5]",
    "CorrCholeskyTransform()": "[-0.5, 1.5, 0.3]",
    "CumulativeDistributionTransform(D.Normal(t(0.5), t(2.0)))": "[-0.5, 1.5]",
    "ExpTransform()": "[-0.5, 1.5]",
    "ExpTransform().inv": "[0.5, 1.5]",
    "IndependentTransform(D.ExpTransform(), 1)": "[-0.5, 1.5]",
    "LowerCholeskyTransform()": "[[-0.5, 1.5], [0.3, 0.1]]",
    "PositiveDefiniteTransform()": "[[-0.5, 1.5], [0.3, 0.1]]",
    "PowerTransform(t(2.5))": "[0.5, 1.5]",
    "PowerTransform(-1.0)": "[0.5, 1.5]",
    "ReshapeTransform((4,), (2, 2))": "[0.5, 1.5, 2.5, 3.5]",
    "SigmoidTransform()": "[-0.5, 1.5]",
    "SoftmaxTransform()": "[-0.5, 1.5, 0.2]",
    "SoftplusTransform()": "[-0.5, 1.5]",
    "StickBreakingTransform()": "[-0.5, 1.5, 0.2]",
    "TanhTransform()": "[-0.5, 1.5]",
    "CatTransform([D.ExpTransform(), D.TanhTransform()], dim=0, lengths=[1, 2])": "[-0.5, 1.5, 0.2]",
    "StackTransform([D.ExpTransform(), D.TanhTransform()], dim=0)": "[-0.5, 1.5]",
}


def build(f, text: str):
    return eval(f"D.{text}", {"D": f.distributions, "t": lambda x: f.tensor(x, dtype=f.float64)})


@pytest.mark.parametrize("text", TRANSFORMS)
def test_transforms_are_pytorchs(text: str):
    """A transform, its inverse, its stretching of volume, a shape or a fact about it is not PyTorch's."""
    found = []
    for f in FRAMEWORKS:
        transform = build(f, text)
        x = f.tensor(eval(TRANSFORMS[text]), dtype=f.float64, requires_grad=True)
        y = transform(x)
        facts = [transform.bijective, transform.domain.event_dim, transform.codomain.event_dim]
        numbers = [y, transform.inv(y)]
        if transform.bijective:
            numbers.append(transform.log_abs_det_jacobian(x, y))
            numbers.append(f.autograd.grad(numbers[-1].sum() + y.sum(), x)[0])
        try:
            facts.append(float(f.as_tensor(transform.sign).sum()))
        except NotImplementedError:
            facts.append("none")
        facts.append(tuple(transform.forward_shape(tuple(x.shape))))
        facts.append(tuple(transform.inverse_shape(tuple(y.shape))))
        facts += [
            repr(transform),
            transform == build(f, text),
            transform == f.distributions.TanhTransform(),
            transform.inv.inv == transform,
        ]
        found.append((facts, [n.detach().numpy() for n in numbers]))
    (their_facts, theirs), (our_facts, ours) = found
    assert our_facts == their_facts
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)
        assert a.shape == b.shape


def test_cache():
    """With a cache, inverting what was just computed gives back the very tensor."""
    transform = flambeau.distributions.ExpTransform(cache_size=1)
    x = flambeau.tensor([1.0])
    assert transform.inv(transform(x)) is x
    assert flambeau.distributions.ExpTransform().with_cache()._cache_size == 1
    with pytest.raises(ValueError, match="cache_size"):
        flambeau.distributions.ExpTransform(cache_size=3)


# text of a constraint -> values that satisfy it and that do not
CONSTRAINTS = {
    "boolean": ("0.0", "0.5"),
    "one_hot": ("[0.0, 1.0]", "[1.0, 1.0]"),
    "real": ("-3.0", "float('nan')"),
    "real_vector": ("[1.0, 2.0]", "[1.0, float('nan')]"),
    "positive": ("0.1", "0.0"),
    "nonnegative": ("0.0", "-1.0"),
    "greater_than(2.0)": ("2.5", "2.0"),
    "greater_than_eq(2.0)": ("2.0", "1.5"),
    "less_than(2.0)": ("1.5", "2.0"),
    "unit_interval": ("1.0", "1.1"),
    "interval(-1.0, 1.0)": ("-1.0", "1.5"),
    "half_open_interval(-1.0, 1.0)": ("-1.0", "1.0"),
    "integer_interval(0, 3)": ("3.0", "0.5"),
    "nonnegative_integer": ("0.0", "-1.0"),
    "positive_integer": ("1.0", "0.0"),
    "simplex": ("[0.25, 0.75]", "[0.5, 0.75]"),
    "multinomial(3)": ("[1.0, 2.0]", "[1.0, 3.0]"),
    "lower_triangular": ("[[1.0, 0.0], [3.0, -1.0]]", "[[1.0, 1.0], [0.0, 1.0]]"),
    "lower_cholesky": ("[[1.0, 0.0], [3.0, 1.0]]", "[[1.0, 0.0], [3.0, -1.0]]"),
    "corr_cholesky": ("[[1.0, 0.0], [0.6, 0.8]]", "[[1.0, 0.0], [0.6, 0.9]]"),
    "square": ("[[1.0, 0.0], [0.6, 0.8]]", "[[1.0, 0.0]]"),
    "symmetric": ("[[1.0, 0.5], [0.5, 0.8]]", "[[1.0, 0.0], [0.5, 1.0]]"),
    "positive_definite": ("[[1.0, 0.5], [0.5, 0.8]]", "[[1.0, 2.0], [2.0, 1.0]]"),
    "positive_semidefinite": ("[[1.0, 0.0], [0.0, 0.0]]", "[[1.0, 2.0], [2.0, 1.0]]"),
    "independent(c.positive, 1)": ("[1.0, 2.0]", "[1.0, -2.0]"),
    "cat([c.positive, c.real], 0, [1, 1])": ("[1.0, -2.0]", "[-1.0, -2.0]"),
    "stack([c.positive, c.real], 0)": ("[1.0, -2.0]", "[-1.0, -2.0]"),
}


@pytest.mark.parametrize("text", CONSTRAINTS)
def test_constraints_are_pytorchs(text: str):
    """A constraint accepts or refuses other values than PyTorch's, or is shown differently."""
    for value in CONSTRAINTS[text]:
        theirs, ours = (
            eval(f"c.{text}", {"c": f.distributions.constraints}).check(f.tensor(eval(value))).tolist() for f in FRAMEWORKS
        )  # fmt: skip
        assert ours == theirs
    theirs, ours = (eval(f"c.{text}", {"c": f.distributions.constraints}) for f in FRAMEWORKS)
    assert repr(ours) == repr(theirs)
    assert (ours.is_discrete, ours.event_dim) == (theirs.is_discrete, theirs.event_dim)


def test_dependent_constraints_know_little():
    """A constraint that depends on a distribution at hand pretends to be known."""
    c = flambeau.distributions.constraints
    assert c.is_dependent(c.dependent) and c.is_dependent(flambeau.distributions.Uniform.support) and not c.is_dependent(c.real)
    with pytest.raises(ValueError, match="dependent constraint"):
        c.dependent.check(flambeau.ones(1))
    with pytest.raises(NotImplementedError, match="statically"):
        _ = c.dependent.event_dim
    assert flambeau.distributions.Uniform.support.event_dim == 0


REACHED = """
real real_vector positive nonnegative greater_than(2.0) less_than(2.0) interval(-1.0,1.0) half_open_interval(0.0,1.0) unit_interval simplex
lower_cholesky positive_definite corr_cholesky independent(c.positive,1) cat([c.positive,c.real],0,[1,1]) stack([c.positive,c.real],0)
""".split()


@pytest.mark.parametrize("name", ["biject_to", "transform_to"])
@pytest.mark.parametrize("text", REACHED)
def test_registry_is_pytorchs(text: str, name: str):
    """The transform that leads to a constraint is another one than PyTorch's, or does not lead there."""
    found = []
    for f in FRAMEWORKS:
        constraint = eval(f"c.{text}", {"c": f.distributions.constraints})
        try:
            transform = getattr(f.distributions, name)(constraint)
        except NotImplementedError:
            found.append(None)
            continue
        event = 3 if "corr" in text else 2
        x = f.linspace(-1, 1, event**2 if transform.domain.event_dim == 2 else event, dtype=f.float64)
        y = transform(x.reshape(event, event) if transform.domain.event_dim == 2 else x)
        assert bool(constraint.check(y).all())
        found.append(y.numpy())
    theirs, ours = found
    assert (ours is None) == (theirs is None)
    if ours is not None:
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_registry_takes_new_constraints_and_refuses_others():
    """A new constraint cannot be registered, or something that is no constraint can."""
    D = flambeau.distributions

    class Even(D.constraints.Constraint):
        pass

    registry = D.constraint_registry.ConstraintRegistry()

    @registry.register(Even)
    def _(constraint):
        return D.ExpTransform()

    assert isinstance(registry(Even()), D.ExpTransform)
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        registry(D.constraints.real)
    with pytest.raises(TypeError, match="kind of Constraint"):
        registry.register(int, lambda c: c)


def test_matrices_as_vectors_and_back():
    """The entries below a diagonal are not those of PyTorch's, or do not come back."""
    for f in FRAMEWORKS:
        u = f.distributions.utils
        m = f.arange(9.0).reshape(3, 3)
        for diag in (0, -1):
            vec = u.tril_matrix_to_vec(m, diag)
            assert vec.tolist() == ([0, 3, 4, 6, 7, 8] if diag == 0 else [3, 6, 7])
            assert u.vec_to_tril_matrix(vec, diag).tolist() == m.tril(diag).tolist()
        with pytest.raises(ValueError, match="cannot be expressed"):
            u.vec_to_tril_matrix(f.ones(5))
