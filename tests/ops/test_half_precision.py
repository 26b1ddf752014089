"""Half precision: a Python number beside a tensor is rounded where PyTorch rounds it, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.kernels import arrays
from flambeau.kernels.native import native
from flambeau.ops import OPS

torch = pytest.importorskip("torch")

NUMBERS = (1.001, 1 / 3, -2.7182818, 0.1, 123.456, 1e-3, 7, 1001, True)
DTYPES = ("bfloat16", "float16")

# In products and quotients PyTorch keeps the number in float32; everywhere else it becomes an element first.
FORMS = {
    "mul": lambda t, x, s: x * s,
    "mul, number first": lambda t, x, s: s * x,
    "div": lambda t, x, s: x / s,
    "floor": lambda t, x, s: t.div(x, s, rounding_mode="floor"),
    "trunc": lambda t, x, s: t.div(x, s, rounding_mode="trunc"),
    "floor_divide": lambda t, x, s: x // s,
    "remainder": lambda t, x, s: x % s,
    "remainder, number first": lambda t, x, s: s % x,
    "fmod": lambda t, x, s: t.fmod(x, s),
    "add": lambda t, x, s: x + s,
    "sub": lambda t, x, s: x - float(s),
    "sub, number first": lambda t, x, s: float(s) - x,
    "pow": lambda t, x, s: x.abs() ** s,
    "pow, number first": lambda t, x, s: abs(s) ** x,
    "clamp": lambda t, x, s: x.clamp(-abs(s), abs(s)),
    "clamp_min": lambda t, x, s: x.clamp_min(s),
    "lt": lambda t, x, s: x < s,
    "ge": lambda t, x, s: x >= s,
    "eq": lambda t, x, s: x == s,
    "where": lambda t, x, s: t.where(x > 0, x, s),
    "masked_fill": lambda t, x, s: x.masked_fill(x > 0, s),
    "lerp": lambda t, x, s: t.lerp(x, x.flip(0), float(s)),
    "in place": lambda t, x, s: x.clone().mul_(s).div_(s),
    "strided": lambda t, x, s: x[::2] * s,
    "transposed": lambda t, x, s: x[:600].reshape(20, 30).T / s,
    "out": lambda t, x, s: t.mul(x, s, out=t.empty_like(x)),
}


def pair(dtype: str):
    """The same tensor twice: PyTorch's and ours."""
    values = (np.random.default_rng(0).standard_normal(1001) * 3).astype(np.float32)
    return torch.tensor(values).to(getattr(torch, dtype)), flambeau.tensor(values.tolist()).to(getattr(flambeau, dtype))


def assert_same_bits(ours, theirs):
    """Equal in every bit, a NaN being any NaN."""
    assert str(ours.dtype) == str(theirs.dtype)
    np.testing.assert_array_equal(np.array(ours.float().tolist(), np.float32), theirs.detach().float().numpy())


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", FORMS)
def test_numbers_beside_half_precision(form, dtype, number):
    """A number beside a half-precision tensor is rounded where PyTorch does not round it, or the other way round."""
    theirs, ours = pair(dtype)
    assert_same_bits(FORMS[form](flambeau, ours, number), FORMS[form](torch, theirs, number))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", [0.1, -2.7182818, 1001])
def test_the_factor_of_a_sum_is_rounded(alpha, dtype):
    """add(..., alpha=) and sub(..., alpha=) round the factor to half precision first. (A fused multiply-add may differ in the last bit.)"""
    theirs, ours = pair(dtype)
    for name in ("add", "sub"):
        found = getattr(flambeau, name)(ours, ours.flip(0), alpha=alpha).float().tolist()
        expected = getattr(torch, name)(theirs, theirs.flip(0), alpha=alpha).float().numpy()
        assert np.mean(np.array(found, np.float32) != expected) < 0.005


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_with_numbers(dtype):
    """The gradient of a product with a number, or of a quotient, is that of PyTorch in every bit."""
    theirs, ours = pair(dtype)
    for form in (lambda x: (x * 0.1) / 1.001, lambda x: x.mul(1 / 3).sum()):
        a, b = theirs.clone().requires_grad_(), ours.clone().requires_grad_()
        form(a).sum().backward()
        form(b).sum().backward()
        assert_same_bits(b.grad, a.grad)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["mul", "_div", "_add", "_remainder", "_div_floor"])
def test_the_evaluator_agrees_with_the_loops(name, dtype):
    """Without compiled kernels a number beside half precision gives another result than with them."""
    if native.lib is None:
        pytest.skip("nothing was compiled")
    kernel, array = OPS[name].kernel, pair(dtype)[1]._array
    compiled = arrays.run(kernel, (array, 0.1), (), array.dtype, array.dtype)
    evaluated = arrays._evaluate(kernel, (array, 0.1), (), array.dtype, array.dtype, None)
    np.testing.assert_array_equal(compiled.astype(np.float32), evaluated.astype(np.float32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("samples", [0, 2])
def test_windows_of_half_precision(samples, dtype):
    """fold and the gradient of unfold add in float32 and round once."""
    found = []
    for f in (torch, flambeau):
        x = (f.arange(samples * 2.0 * 25).reshape(samples, 2, 5, 5) / 50).to(getattr(f, dtype)).requires_grad_()
        windows = f.nn.functional.unfold(x, 2)
        windows.backward(windows.detach())
        folded = f.nn.functional.fold(windows.detach(), (5, 5), 2)
        found.append((tuple(folded.shape), str(folded.dtype), folded.float().tolist(), x.grad.float().tolist()))
    assert found[1] == found[0]
