"""Compiled loops over complex numbers against the NumPy evaluator of the same formulas."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau.kernels import generate
from flambeau.kernels.language import evaluate, print_complex
from flambeau.kernels.native import native

pytestmark = pytest.mark.skipif(native.lib is None, reason="the extension is not compiled")

KERNELS = {} if native.lib is None else {k.name: k for k in generate.kernels() if print_complex.is_compiled(k)}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def operands(kernel, dtype, n: int = 1000) -> list[np.ndarray]:
    rng = np.random.default_rng(len(kernel.name))
    sizes = 10.0 ** rng.uniform(-3, 1.2, (len(kernel.kinds), n))
    return list((sizes * np.exp(2j * np.pi * rng.random(sizes.shape))).astype(dtype))


def expected(kernel, given, params, dtype) -> np.ndarray:
    wide = [np.asarray(a, np.complex128) for a in given]
    return np.broadcast_to(evaluate.evaluate(kernel.expr, wide, params, np.dtype(np.complex128)), given[0].shape)


def check(got, want, dtype):
    assert got is not NotImplemented and got.dtype == dtype
    tolerance = 3e-6 if dtype == np.complex64 else 1e-14
    np.testing.assert_array_less(np.abs(got - want), tolerance * np.abs(want) + 1e-30)


@every_kernel
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_loop_computes_what_the_evaluator_does(name, dtype):
    """A compiled loop over complex numbers differs from its formula: contiguous, strided, in place, or with a number."""
    kernel, launch = KERNELS[name], native.kernel(name)
    given, params = operands(kernel, dtype), [2.0] * len(kernel.options)
    want = expected(kernel, given, params, dtype)
    check(launch(*given, *params), want, dtype)
    check(launch(*[np.repeat(a, 2)[::2] for a in given], *params), want, dtype)
    turned = [np.ascontiguousarray(a[::-1])[::-1] for a in given]
    check(launch(*turned, *params), want, dtype)
    assert launch.into(turned[0], *turned, *params) is turned[0]
    check(turned[0], want, dtype)
    if len(given) == 2:
        number = complex(given[1][5])
        want = expected(kernel, [given[0], np.array(number)], params, dtype)
        check(launch(given[0], number, *params), want, dtype)
        check(launch(given[0], np.broadcast_to(given[1][5], given[0].shape), *params), want, dtype)


@pytest.mark.parametrize("name", ["_add", "_sub", "mul", "_div", "exp"])
def test_infinities_and_zeros_are_pytorchs(name):
    """A sum, product, quotient or power with infinite or vanishing parts is not what PyTorch gives."""
    torch = pytest.importorskip("torch")
    parts = np.array([0.0, 1.0, -2.0, np.inf, -np.inf])
    numbers = (parts[:, None] + 1j * np.where(np.isfinite(parts), parts, 0)).ravel()
    numbers = np.concatenate([numbers, parts + 0j])
    a, b = (g.ravel().astype(np.complex64) for g in np.meshgrid(numbers, numbers))
    given = [a, b] if name != "exp" else [numbers[np.isfinite(numbers)].astype(np.complex64)]
    got = native.kernel(name)(*given)
    want = getattr(torch, name.strip("_"))(*map(torch.from_numpy, given)).numpy()
    finite = np.all([np.isfinite(x) for x in given], axis=0) & ((given[-1] != 0) | (name == "exp"))
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-5, atol=1e-6)
    if name == "mul":
        np.testing.assert_array_equal(got, want)
    if name in ("_add", "_sub"):  # PyTorch multiplies by alpha = 1 + 0i, and makes NaN of infinities
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(got, a + b if name == "_add" else a - b)
    if name == "_div":
        by_zero = (b == 0) & np.isfinite(a)
        np.testing.assert_array_equal(np.isfinite(got[by_zero]), np.isfinite(want[by_zero]))


def test_large_exponents_do_not_overflow_on_the_way():
    """exp(a + bi) is infinite though e^a cos b and e^a sin b are not."""
    z = np.array([89 + 0.75j, -np.inf + 1j, 3 + 0j, np.inf + 0j], np.complex64)
    got = native.kernel("exp")(z)
    np.testing.assert_allclose(got[:3], np.exp(z.astype(np.complex128))[:3].astype(np.complex64), rtol=1e-5)
    assert got[3] == np.inf + 0j
