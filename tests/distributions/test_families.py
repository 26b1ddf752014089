"""Every distribution against PyTorch's: shapes, reprs, moments, densities, entropies and their gradients, draws bit by bit."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from families import FAMILIES, REDRAWN

import flambeau

torch = pytest.importorskip("torch")
FRAMEWORKS = (torch, flambeau)


def make(f, text: str, dtype: str = "float64"):
    """(the distribution, the tensors it was made of)."""
    leaves = []

    def v(*numbers):
        leaves.append(f.tensor(numbers if len(numbers) > 1 else numbers[0], dtype=getattr(f, dtype), requires_grad=True))
        return leaves[-1]

    return eval(f"D.{text}", {"D": f.distributions, "v": v, "t": lambda x: tensor(f, x, dtype)}), leaves


def tensor(f, x, dtype: str = "float64"):
    found = f.tensor(x)
    return found.to(getattr(f, dtype)) if found.is_floating_point() else found


def value_for(f, text: str, dtype: str = "float64"):
    what = FAMILIES[text]
    if what != "draw":
        return eval(what, {"t": lambda x: tensor(f, x, dtype)})
    f.manual_seed(4)
    return make(f, text, dtype)[0].sample()


def answer(question, *args):
    """What a question gives: an array, or the name of an error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = question(*args)
    except (NotImplementedError, ValueError, AttributeError) as problem:
        return type(problem).__name__
    return found.detach().numpy() if hasattr(found, "detach") else np.asarray(found)


def assert_same(ours, theirs, rtol: float = 1e-6, what: str = "") -> None:
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs, what
        return
    np.testing.assert_allclose(ours, theirs, rtol=1e-5 if theirs.dtype == np.float32 else rtol, atol=1e-9, err_msg=what)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, what


@pytest.mark.parametrize("text", FAMILIES)
def test_shapes_reprs_and_facts(text: str):
    """Batch shape, event shape, repr, support or one of the facts about a distribution is not PyTorch's."""
    theirs, ours = (make(f, text)[0] for f in FRAMEWORKS)
    assert repr(ours) == repr(theirs)
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape) and tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample and ours.has_enumerate_support == theirs.has_enumerate_support
    assert repr(ours.support).split("(")[0] == repr(theirs.support).split("(")[0]
    assert ours.support.event_dim == theirs.support.event_dim and ours.support.is_discrete == theirs.support.is_discrete


@pytest.mark.parametrize("text", FAMILIES)
def test_numbers(text: str):
    """A moment, a density, a cumulative probability, a quantile or the entropy is not PyTorch's."""
    theirs, ours = (make(f, text)[0] for f in FRAMEWORKS)
    for name in ("mean", "mode", "variance", "stddev"):
        assert_same(answer(lambda d, n=name: getattr(d, n), ours), answer(lambda d, n=name: getattr(d, n), theirs), what=name)
    for name in ("entropy", "perplexity"):
        assert_same(answer(getattr(ours, name)), answer(getattr(theirs, name)), what=name)
    for name in ("log_prob", "cdf"):
        values = (value_for(f, text) for f in FRAMEWORKS)
        expected, found = (answer(getattr(d, name), x) for d, x in zip((theirs, ours), values, strict=True))
        assert_same(found, expected, what=name)
    ranks = [f.full(tuple(ours.batch_shape), 0.3, dtype=f.float64) for f in FRAMEWORKS]
    assert_same(answer(ours.icdf, ranks[1]), answer(theirs.icdf, ranks[0]), what="icdf")
    for expand in (True, False):
        assert_same(answer(ours.enumerate_support, expand), answer(theirs.enumerate_support, expand), what="enumerate_support")


@pytest.mark.parametrize("question", ["log_prob", "entropy"])
@pytest.mark.parametrize("text", FAMILIES)
def test_gradients_of_densities(text: str, question: str):
    """The gradient of a density or an entropy with respect to a parameter is not PyTorch's."""
    found = []
    for f in FRAMEWORKS:
        d, leaves = make(f, text)
        try:
            out = d.log_prob(value_for(f, text)) if question == "log_prob" else d.entropy()
        except NotImplementedError:
            found.append(None)
            continue
        if not leaves or not out.requires_grad:
            found.append(None)
            continue
        grads = f.autograd.grad(out.sum(), leaves, allow_unused=True)
        found.append([None if g is None else g.numpy() for g in grads])
    theirs, ours = found
    assert (ours is None) == (theirs is None)
    for a, b in zip(ours or (), theirs or (), strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-8)


ROUNDING = {"float32": {"rtol": 4e-6, "atol": 1e-6}, "float64": {"rtol": 1e-12, "atol": 1e-12}, "int64": {}}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore:Singular sample")
@pytest.mark.parametrize("text", FAMILIES)
def test_draws_are_pytorchs(text: str, dtype: str):
    """For the same seed, draws differ from PyTorch's, or leave the generator elsewhere."""
    found = []
    for f in FRAMEWORKS:
        d, _ = make(f, text, dtype)
        f.manual_seed(7)
        drawn = d.sample((4, 3))
        assert not drawn.requires_grad
        found.append((drawn.numpy(), f.rand(1).item()))
    (theirs, their_next), (ours, our_next) = found
    assert our_next == their_next
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, **ROUNDING[theirs.dtype.name])


@pytest.mark.parametrize("text", ["Normal(v(0.5, -1.0), v(1.5, 0.3))", "Uniform(v(0.0, -1.0), v(1.5, 0.3))", "Bernoulli(v(0.3, 0.8))",
                                  "Categorical(v(0.2, 0.5, 0.9))", "Exponential(v(1.5, 0.3))", "Cauchy(v(0.5, -1.0), v(1.5, 0.3))",
                                  "Gamma(v(1.5, 0.3), v(2.0, 0.5))", "Poisson(v(0.5, 12.0))", "Beta(v(0.5, 2.0), v(1.5, 3.0))",
                                  "Geometric(v(0.3, 0.8))", "Binomial(5, v(0.3, 0.8))"])  # fmt: skip
def test_draws_are_the_same_bits(text: str):
    """For the same seed, draws of common distributions are PyTorch's only up to rounding."""
    found = []
    for f in FRAMEWORKS:
        d, _ = make(f, text, "float32")
        f.manual_seed(11)
        found.append([d.sample((n,)).numpy() for n in (1, 3, 50)])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


IMPLICIT = ("Beta", "Chi2", "Dirichlet", "Gamma", "InverseGamma", "StudentT", "FisherSnedecor")


@pytest.mark.parametrize("text", [text for text in FAMILIES if text not in REDRAWN])
def test_gradients_of_draws(text: str):
    """The gradient of a draw with respect to a parameter is not PyTorch's (who approximates those of gamma numbers to three digits)."""
    found = []
    for f in FRAMEWORKS:
        d, leaves = make(f, text)
        if not d.has_rsample or not leaves:
            return
        f.manual_seed(3)
        drawn = d.rsample((3,))
        found.append([g.numpy() for g in f.autograd.grad((drawn * drawn).sum(), leaves, allow_unused=True) if g is not None])
    rtol = 5e-3 if text.startswith(IMPLICIT) else 1e-6
    assert len(found[0]) == len(found[1])
    for theirs, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("text", FAMILIES)
def test_expand(text: str):
    """An expanded distribution has other shapes, densities or draws than PyTorch's."""
    found = []
    for f in FRAMEWORKS:
        d, _ = make(f, text)
        wide = d.expand((5, *d.batch_shape))
        again = wide.expand((2, 5, *d.batch_shape))
        x = value_for(f, text)
        f.manual_seed(5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            drawn = wide.sample((2,))
        found.append(
            (tuple(wide.batch_shape), tuple(again.batch_shape), answer(wide.log_prob, x), drawn.numpy(), repr(type(wide).__name__))
        )
    theirs, ours = found
    assert ours[:2] == theirs[:2] and ours[4] == theirs[4]
    assert_same(ours[2], theirs[2])
    np.testing.assert_allclose(ours[3], theirs[3], **ROUNDING[theirs[3].dtype.name])


MISUSES = {
    "a negative scale": ("Expected parameter scale", lambda f, D: D.Normal(0.0, -1.0)),
    "one of many scales is negative": ("Expected parameter scale", lambda f, D: D.Normal(f.zeros(2), f.tensor([1.0, -1.0]))),
    "a value that is NaN": ("Expected value argument", lambda f, D: D.Normal(0.0, 1.0).log_prob(f.tensor(float("nan")))),
    "a value that is no tensor": ("The value argument to log_prob", lambda f, D: D.Normal(0.0, 1.0).log_prob(3)),
    "half a success": ("Expected value argument", lambda f, D: D.Bernoulli(0.3).log_prob(f.tensor(0.5))),
    "a shape that does not fit": ("broadcast", lambda f, D: D.Normal(f.zeros(3), 1.0).log_prob(f.zeros(2))),
    "neither probs nor logits": ("Either `probs` or `logits` must be", lambda f, D: D.Bernoulli()),
    "both probs and logits": ("Either `probs` or `logits` must be", lambda f, D: D.Categorical(f.ones(2), f.ones(2))),
    "categories without a dimension": (
        "`probs` parameter must be at least one-dimensional",
        lambda f, D: D.Categorical(probs=f.tensor(1.0)),
    ),
    "negative weights": ("Expected parameter probs", lambda f, D: D.Categorical(f.tensor([0.1, -1.0]))),
    "bounds in the wrong order": (None, lambda f, D: D.Uniform(1.0, 0.0)),
    "outside of the bounds": ("Expected value argument", lambda f, D: D.Uniform(0.0, 1.0).log_prob(f.tensor(2.0))),
    "no covariance": ("Exactly one of", lambda f, D: D.MultivariateNormal(f.zeros(2))),
    "a covariance that is none": (
        "Expected parameter covariance_matrix",
        lambda f, D: D.MultivariateNormal(f.zeros(2), f.tensor([[1.0, 2.0], [2.0, 1.0]])),
    ),
    "too many event dimensions": ("Expected reinterpreted_batch_ndims", lambda f, D: D.Independent(D.Normal(0.0, 1.0), 1)),
    "text as a parameter": ("Input arguments must all be", lambda f, D: D.Normal("a", 1)),
    "transforms that are none": ("must be a Transform", lambda f, D: D.TransformedDistribution(D.Normal(0.0, 1.0), "exp")),
    "a mixture of what is no category": (
        "The Mixture distribution needs to be",
        lambda f, D: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(f.zeros(2), 1.0)),
    ),
    "few degrees of freedom": ("df", lambda f, D: D.Wishart(f.tensor(0.5), f.eye(2))),
    "a default that is no bool": (None, lambda f, D: D.Distribution.set_default_validate_args(3)),
}


@pytest.mark.parametrize("what", MISUSES)
def test_misuse(what: str):
    """A misuse that PyTorch refuses is refused with an error of the same type, in which PyTorch's short phrase stands."""
    phrase, misuse = MISUSES[what]
    for f in FRAMEWORKS:
        with pytest.raises(ValueError, match=phrase):
            misuse(f, f.distributions)


def test_validation_can_be_switched_off():
    """validate_args=False checks all the same."""
    d = flambeau.distributions.Normal(0.0, -1.0, validate_args=False)
    assert d.log_prob(flambeau.tensor(float("nan"))).isnan()
    for f in FRAMEWORKS:
        f.distributions.Distribution.set_default_validate_args(False)
        try:
            f.distributions.Normal(0.0, -1.0)
        finally:
            f.distributions.Distribution.set_default_validate_args(True)


def test_missing_methods_say_so():
    """What a distribution does not have is an error that names it."""
    D = flambeau.distributions
    for call in (
        lambda: D.Bernoulli(0.3).rsample(), lambda: D.Normal(0.0, 1.0).enumerate_support(), lambda: D.Beta(1.0, 2.0).cdf(flambeau.tensor(0.3))
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match=r"Bernoulli|Normal|Beta"):
            call()


def test_pytorchs_file_names():
    """`from torch.distributions.normal import Normal` and its kin are not found."""
    from flambeau.distributions.categorical import Categorical
    from flambeau.distributions.multivariate_normal import MultivariateNormal
    from flambeau.distributions.normal import Normal

    assert (Normal, Categorical, MultivariateNormal) == tuple(
        getattr(flambeau.distributions, n) for n in ("Normal", "Categorical", "MultivariateNormal")
    )


def test_wishart_draws():
    """Draws of a Wishart distribution are not positive definite, have another mean, or no gradient."""
    scale = flambeau.tensor([[1.0, 0.2], [0.2, 2.0]], dtype=flambeau.float64, requires_grad=True)
    d = flambeau.distributions.Wishart(flambeau.tensor(5.0, dtype=flambeau.float64), scale)
    flambeau.manual_seed(0)
    drawn = d.rsample((4000,))
    assert bool(d.support.check(drawn).all())
    np.testing.assert_allclose(drawn.mean(0).detach().numpy(), d.mean.detach().numpy(), rtol=0.1, atol=0.15)
    (slope,) = flambeau.autograd.grad(drawn.sum((-2, -1)).mean(), scale)
    assert bool(slope.isfinite().all())


def test_second_derivatives_of_gamma_draws_are_refused():
    """The second derivative of a gamma draw, which nobody has, is a number instead of an error; or the first one is an error too."""
    for f in FRAMEWORKS:
        a = f.tensor([1.5, 0.4], requires_grad=True)
        drawn = f.distributions.Gamma(a, f.ones(2)).rsample()
        (slope,) = f.autograd.grad(drawn.sum(), a, create_graph=True)
        with pytest.raises((NotImplementedError, RuntimeError), match=r"not implemented|derivative"):
            slope.sum().backward()


def test_parameters_of_one_shape_are_kept():
    """A distribution's parameter that needs no broadcasting is another tensor than the one given: its .grad stays empty."""
    for f in FRAMEWORKS:
        loc, scale = f.zeros(3, requires_grad=True), f.ones(3)
        d = f.distributions.Normal(loc, scale)
        d.log_prob(f.ones(3)).sum().backward()
        assert d.loc is loc and d.mean.grad.tolist() == [1.0, 1.0, 1.0] and d.loc.is_leaf


def test_moments_that_do_not_exist():
    """Heavy tails have no mean and no variance: NaN."""
    found = [f.distributions.GeneralizedPareto(0.0, 1.0, f.tensor([0.2, 0.6, 1.5])) for f in FRAMEWORKS]
    np.testing.assert_allclose(*[d.mean.numpy() for d in found])
    np.testing.assert_allclose(*[d.variance.numpy() for d in found], rtol=1e-6)
    assert not any(f.distributions.relaxed_bernoulli.LogitRelaxedBernoulli.has_rsample for f in FRAMEWORKS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 0)])
def test_gamma_of_one_number(dtype: str, shape: tuple):
    """A single shape parameter has no dimensions, and NumPy makes a scalar of such an array on the way."""
    found = []
    for package in (flambeau, torch):
        package.manual_seed(3)
        given = package.full(shape, 1.5, dtype=getattr(package, dtype))
        drawn = package.distributions.Gamma(given, given).sample()
        found.append((tuple(drawn.shape), str(drawn.dtype), drawn.float().tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("concentration", [1e-8, 1e-5, 1e-3, 0.01, 0.1])
def test_draws_of_tiny_concentrations(concentration: float, dtype: str):
    """Beta and Dirichlet numbers lie inside (0, 1), never nan and never an end, however small the concentrations; they are PyTorch's bits."""
    for text in ("Beta(v(C), v(C))", "Dirichlet(v(C, 1.0, C))"):
        drawn = []
        for f in FRAMEWORKS:
            f.manual_seed(0)
            drawn.append(make(f, text.replace("C", str(concentration)), dtype)[0].sample((2000,)).numpy())
        theirs, ours = drawn
        assert np.all((ours > 0) & (ours < 1)), text
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, err_msg=text)


@pytest.mark.parametrize("logit", [-40.0, -1.0, 0.0, 1.0, 40.0])
def test_gradient_of_a_binomial_density(logit: float):
    """d log p / d logits is value - count * sigmoid(logits) everywhere, at even odds too."""
    logits = flambeau.tensor(logit, dtype=flambeau.float64, requires_grad=True)
    flambeau.distributions.Binomial(10, logits=logits).log_prob(flambeau.tensor(5.0, dtype=flambeau.float64)).backward()
    np.testing.assert_allclose(logits.grad.item(), 5 - 10 / (1 + np.exp(-logit)), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sign", [1, -1])
def test_continuous_bernoulli_of_extreme_odds(sign: int, dtype: str):
    """Log odds at which the probability rounds to 0 or 1 have a finite density, PyTorch's, and no gradient left."""
    found = []
    for f in FRAMEWORKS:
        logits = (sign * f.tensor(f.finfo(getattr(f, dtype)).max / 4, dtype=getattr(f, dtype))).requires_grad_()
        density = f.distributions.ContinuousBernoulli(logits=logits).log_prob(f.tensor(float(sign > 0), dtype=getattr(f, dtype)))
        density.backward()
        found.append((density.item(), logits.grad.item()))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


@pytest.mark.parametrize("prob", [5e-324, 1e-310, 1e-30])
def test_binomial_numbers_of_the_smallest_probabilities(prob: float):
    """A probability so small that the first success is infinitely far away gives 0 successes, and no error."""
    drawn = flambeau.distributions.Binomial(10, flambeau.tensor(prob, dtype=flambeau.float64)).sample((50,))
    assert drawn.eq(0).all()


def test_entropies_of_exponential_families():
    """ExponentialFamily.entropy of a family is its entropy, or not defined, as PyTorch has it: never another number."""
    for text in (
        "Beta(v(0.5), v(2.0))",
        "Dirichlet(v(0.5, 2.0, 1.0))",
        "Gamma(v(0.5), v(2.0))",
        "Normal(v(0.5), v(2.0))",
        "Bernoulli(v(0.3))",
        "Wishart(v(3.0, 4.0), t([[2.0, 0.3], [0.3, 1.0]]))",
    ):
        found = [answer(f.distributions.ExponentialFamily.entropy, make(f, text)[0]) for f in FRAMEWORKS]
        assert_same(found[1], found[0], what=text)


def test_a_value_outside_of_the_support_is_named_before_its_distribution():
    """PyTorch's phrase stands on one line, whatever the distribution's repr is: programs look for it with a regular expression."""
    D = flambeau.distributions
    mixture = D.MixtureSameFamily(D.Categorical(flambeau.ones(2)), D.Normal(flambeau.zeros(2), flambeau.ones(2)), validate_args=True)
    with pytest.raises(ValueError, match=r"Expected value argument .* to be within the support .*"):
        mixture.log_prob(flambeau.tensor(float("nan")))


@pytest.mark.parametrize("seed", range(24))
def test_extreme_parameters_give_answers_where_pytorch_has_some(seed: int):
    """Parameters at the ends of the range of floats gave NaN or an exception where PyTorch has numbers, or usual ones other numbers.
    fuzz_distributions.py tries more."""
    import fuzz_distributions

    fuzz_distributions.attempt(seed)


def test_a_variance_is_never_negative():
    """Rounding left Kumaraswamy's variance below zero where it is nearly nothing, and its standard deviation NaN."""
    d = flambeau.distributions.Kumaraswamy(flambeau.tensor([5e5, 2e6], dtype=flambeau.float64), 1.5e6)
    assert (d.variance >= 0).all() and (d.stddev >= 0).all()
