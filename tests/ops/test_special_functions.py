"""Special functions: PyTorch's values to the digits PyTorch has, and the digits beyond by their own identities."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from reduction_oracle import INF, NAN, REALS, check, check_raises, functions, numbers, ours, torch

import flambeau

S = "special."
EDGES = [0.0, -0.0, 1.0, -1.0, 0.3, -0.3, 2.0, 2.5, -2.5, 7.9, 8.0, 8.1, -8.5, 30.0, -30.0, 200.0, 1e-20, INF, -INF, NAN]
BESSEL = (
    "bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 "
    "scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai"
).split()
POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h "
    "hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
    "shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
).split()


@pytest.mark.parametrize("name", [*BESSEL, "i0", "i0e", "i1", "i1e"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bessel(name, dtype):
    """Near zero, far away, on both sides of where the formula changes, and at the edges."""
    check(S + name, torch.tensor(EDGES, dtype=dtype), rtol=2e-6 if dtype is torch.float64 else 2e-5)  # PyTorch's own are good to 3e-7
    check(S + name, torch.linspace(-12, 12, 61, dtype=dtype), rtol=2e-6 if dtype is torch.float64 else 1e-4)
    check(S + name, numbers(4, dtype=torch.int64))


def values(name: str, x: np.ndarray) -> np.ndarray:
    return functions(S + name)[1](flambeau.from_numpy(x)).numpy()


def test_bessel_identities():
    """Wronskians hold to the last digits: J1 Y0 - J0 Y1 = 2 / (pi x), I0 K1 + I1 K0 = 1 / x."""
    x = np.concatenate([np.linspace(0.05, 25, 400), [1e-3, 100.0, 500.0]])
    j0, j1, y0, y1 = (values(f"bessel_{n}", x) for n in ("j0", "j1", "y0", "y1"))
    np.testing.assert_allclose(j1 * y0 - j0 * y1, 2 / (math.pi * x), rtol=2e-13)
    i0e, i1e = values("i0e", x), values("i1e", x)
    k0e, k1e = values("scaled_modified_bessel_k0", x), values("scaled_modified_bessel_k1", x)
    np.testing.assert_allclose(i0e * k1e + i1e * k0e, 1 / x, rtol=1e-14)


def test_airy_solves_its_equation():
    """Ai'' = x Ai, by central differences over the places where the formula changes."""
    x, h = np.linspace(-9, 6, 301), 1e-3
    second = (values("airy_ai", x + h) - 2 * values("airy_ai", x) + values("airy_ai", x - h)) / h**2
    np.testing.assert_allclose(second, x * values("airy_ai", x), atol=2e-5)


@pytest.mark.parametrize("name", ["erfcx", "log_ndtr", "ndtr", "ndtri", "entr"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normal_distribution(name, dtype):
    """Into the tails, where the plain formulas have no digits left."""
    x = torch.tensor([v for v in EDGES if name != "log_ndtr" or v != -INF], dtype=dtype)
    check(S + name, x, rtol=1e-5 if dtype is torch.float32 else 1e-10)
    if name == "ndtri":
        small = torch.tensor([10.0**-k for k in range(1, 300, 13)], dtype=torch.float64)
        expected, found = torch.special.ndtri(small), values("ndtri", small.numpy())
        np.testing.assert_allclose(found, expected.numpy(), rtol=1e-13)
        check(S + "ndtri", torch.linspace(0.001, 0.999, 41, dtype=dtype), rtol=1e-5 if dtype is torch.float32 else 1e-11)


@pytest.mark.parametrize("dtype", REALS)
def test_gamma(dtype):
    """lgamma, digamma and their relatives, at poles and on the negative side."""
    x = torch.tensor([0.5, 1.0, 2.0, 2.5, 10.0, 30.0, 0.1, 4.75], dtype=dtype)
    for name in ("gammaln", "digamma", "psi"):
        check(S + name, x, rtol={2: 2e-2, 4: 1e-5}.get(dtype.itemsize, 1e-8))
    if dtype is torch.float64:
        edges = torch.tensor([0.0, -0.0, -1.0, -0.5, -20.3, INF, -INF, NAN], dtype=dtype)
        for name in ("gammaln", "digamma"):
            found, expected = values(name, edges.numpy()), functions(S + name)[0](edges).numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("n", range(6))
def test_polygamma(n):
    """Every derivative of digamma, and the derivative of that."""
    x = torch.tensor([0.5, 1.0, 2.5, 10.0, -0.5, -1.25, -5.75], dtype=torch.float64)
    theirs = torch.polygamma(n, x.clone().requires_grad_())
    leaf = ours(x).requires_grad_()
    mine = flambeau.polygamma(n, leaf)
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-7)
    mine.sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), torch.polygamma(n + 1, x).numpy(), rtol=1e-7)
    np.testing.assert_allclose(ours(x).polygamma(n).numpy(), torch.polygamma(n, x).numpy(), rtol=1e-7)
    with pytest.raises(RuntimeError):
        flambeau.polygamma(-1, ours(x))


def test_multivariate_gamma():
    """mvlgamma is a sum of lgamma."""
    x = numbers(3, 4).abs() + 3
    for p in (1, 3, 5):
        check("mvlgamma", x, p, rtol=1e-7)
        check(S + "multigammaln", x.float(), p, rtol=1e-4)
    check_raises("mvlgamma", x, 0)


def test_zeta():
    """Poles, negative second arguments, and the derivative in it."""
    s = torch.tensor([2.0, 1.0, 0.5, 3.0, 2.5, 2.0, 3.0, 2.5, INF, NAN, 1.5, 2.0, 50.0], dtype=torch.float64)
    q = torch.tensor([1.0, 1.0, 1.0, 0.0, -1.5, -1.5, -2.0, -2.0, 1.0, 1.0, 1e-3, 1e9, 2.0], dtype=torch.float64)
    found = flambeau.special.zeta(ours(s), ours(q)).numpy()
    np.testing.assert_allclose(found, torch.special.zeta(s, q).numpy(), rtol=1e-12)
    leaf = ours(q[:3] + 1).requires_grad_()
    flambeau.special.zeta(3, leaf).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), -3 * torch.special.zeta(torch.tensor(4.0), q[:3] + 1).numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma(name):
    """Series, continued fraction and large arguments; all edges; the derivative in the second argument."""
    a = torch.tensor([0.0, 0.0, 1.0, -1.0, INF, 1.0, INF, 2.0, NAN, 1e-3, 100.0, 30.0, 1e4, 5e5, 0.1, 3.0], dtype=torch.float64)
    x = torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0, INF, INF, -1.0, 1.0, 1e-5, 90.0, 500.0, 1.01e4, 4.99e5, 3.0, 3.0], dtype=torch.float64)
    theirs, mine = functions(S + name)
    np.testing.assert_allclose(mine(ours(a), ours(x)).numpy(), theirs(a, x).numpy(), rtol=1e-9)
    usual = slice(9, None)
    leaf, mirror = x[usual].clone().requires_grad_(), ours(x[usual].clone()).requires_grad_()
    theirs(a[usual], leaf).sum().backward()
    mine(ours(a[usual]), mirror).sum().backward()
    np.testing.assert_allclose(mirror.grad.numpy(), leaf.grad.numpy(), rtol=1e-7)
    assert mine(ours(a[-1:].to(torch.bfloat16)), ours(x[-1:].to(torch.bfloat16))).dtype is flambeau.bfloat16
    check_raises(S + name, a, 2)


def test_incomplete_gamma_takes_no_longer_for_large_arguments():
    """Near x = a the series takes sqrt(a) terms and more; 100,000 such values take a fraction of a second, and all of their digits are right."""
    a = flambeau.logspace(1, 12, 100_000, dtype=flambeau.float64)
    x = a + 3 * a.sqrt() * flambeau.linspace(-1, 1, 100_000, dtype=flambeau.float64)
    start = time.perf_counter()
    below, above = flambeau.special.gammainc(a, x), flambeau.special.gammaincc(a, x)
    assert time.perf_counter() - start < 20
    assert (below + above - 1).abs().max() < 1e-14 and below.min() > 1e-10 and above.min() > 1e-10
    # mpmath's, of which PyTorch's differ in the tenth digit
    a, x = flambeau.tensor([[20.098536835809938, 101.07706588830554], [20.086719060788543, 101.33632997741938]], dtype=flambeau.float64)
    np.testing.assert_allclose(flambeau.special.gammainc(a, x).numpy(), [0.52862211530075296, 0.52349285636087253], rtol=1e-15)


def test_zeta_far_below_zero():
    """A sum that begins a thousand million terms below zero is found from sums that begin above: at once, with PyTorch's digits."""
    q = torch.tensor([-5.25, -300.75, -4321.125], dtype=torch.float64)
    for s in (2.0, 3.0, 8.0):
        np.testing.assert_allclose(flambeau.special.zeta(s, ours(q)).numpy(), torch.special.zeta(s, q).numpy(), rtol=1e-11)
    far = flambeau.special.zeta(3.0, flambeau.tensor([-1e10 + 0.25, -1e300], dtype=flambeau.float64)).numpy()
    # sums over all k of (k + 1/4)^-3: pi^3 cos(pi / 4) / sin(pi / 4)^3
    np.testing.assert_allclose(far, [2 * math.pi**3, INF], rtol=1e-12)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name):
    """Every degree, inside and outside of the interval, and no gradient, as in PyTorch."""
    theirs, mine = functions(S + name)
    x = torch.tensor([-2.5, -1.0, -0.9, -0.3, 0.0, 0.4, 1.0, 1.7], dtype=torch.float64)
    n = torch.tensor([-1.0, 0, 1, 2, 3, 5, 8, 9, 12, 20], dtype=torch.float64)
    expected = theirs(x[:, None], n).numpy()
    np.testing.assert_allclose(mine(ours(x[:, None]), ours(n)).numpy(), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(mine(ours(x), 4).numpy(), theirs(x, 4).numpy(), rtol=1e-12)
    assert not mine(ours(x).requires_grad_(), 3).requires_grad


def test_names():
    """torch.special has nothing that we do not have."""
    public = {n for n in dir(torch.special) if not n.startswith("_")} - {"Tensor", "torch", "common_args", "multi_dim_common"}
    assert public <= set(dir(flambeau.special))
