"""One function run twice, in Flambeau and in PyTorch, on the same numbers: values, gradients and gradients of gradients must agree.

A case is a function `f(t, *tensors)` where t is the framework: `lambda t, a: t.linalg.inv(a)`. It returns a tensor or several. Where a
factorisation is unique only up to signs or phases, f returns something that does not notice them.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # its threads wait for each other on a busy machine: 0.3 s for one small backward

DEVICE = os.environ.get("FLAMBEAU_TEST_DEVICE", "cpu")  # where Flambeau computes; PyTorch, the oracle, always uses the CPU
REAL, COMPLEX = torch.float64, torch.complex128
TOLERANCE = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 2e-4,
    torch.complex64: 2e-4,
    torch.bfloat16: 2e-2,
    torch.float16: 3e-3,
}


def numbers(*shape, dtype=REAL, seed=0):
    """Normal random numbers; integers between -5 and 5."""
    rng = np.random.default_rng(seed + 17 * len(shape) + sum(shape))
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.from_numpy(rng.integers(-5, 6, shape)).to(dtype)
    values = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype.is_complex else 0)
    return torch.from_numpy(np.asarray(values)).to(dtype)


def positive(*shape, dtype=REAL):
    """Hermitian positive definite matrices."""
    a = numbers(*shape, dtype=dtype)
    return a @ a.mH + torch.eye(shape[-1], dtype=dtype)


def hermitian(*shape, dtype=REAL):
    """Matrices equal to their conjugate transpose."""
    a = numbers(*shape, dtype=dtype)
    return a + a.mH


def ours(x):
    """A tensor of PyTorch's as one of Flambeau's, with the same strides, on the device under test."""
    if not isinstance(x, torch.Tensor):
        return [ours(v) for v in x] if isinstance(x, (list, tuple)) else x
    dtype = getattr(flambeau, str(x.dtype)[6:])
    source = x.detach().resolve_conj()
    if x.dtype is torch.bfloat16:
        return flambeau.from_numpy(source.float().numpy().copy()).to(dtype).to(DEVICE)
    if not source.numel():
        return flambeau.empty(tuple(x.shape), dtype=dtype, device=DEVICE)
    return flambeau.from_numpy(source.numpy().copy(order="K")).to(DEVICE)


def plain(x) -> np.ndarray:
    """Either framework's tensor as a NumPy array."""
    if isinstance(x, torch.Tensor):
        x = x.detach().resolve_conj().resolve_neg()
        return (x.float() if x.dtype is torch.bfloat16 else x).numpy()
    x = x.detach().cpu().resolve_conj().resolve_neg()
    return (x.float() if x.dtype is flambeau.bfloat16 else x).numpy()


def same(got, expected, what: str, tolerance: float | None = None) -> None:
    """Assert one dtype, one shape, and equal values."""
    assert str(got.dtype) == str(expected.dtype), f"{what}: dtype {got.dtype}, PyTorch's is {expected.dtype}"
    assert tuple(got.shape) == tuple(expected.shape), f"{what}: shape {tuple(got.shape)}, PyTorch's is {tuple(expected.shape)}"
    limit = TOLERANCE.get(expected.dtype, 0) if tolerance is None else tolerance
    np.testing.assert_allclose(plain(got), plain(expected), rtol=limit, atol=limit, err_msg=what)


def check(function, *inputs, gradient: bool = True, second: bool = True, tolerance: float | None = None) -> None:
    """Run `function` in both frameworks; compare results, first and second derivatives with respect to all floating inputs."""
    gradient = gradient and any(_wants(x) for x in inputs)
    theirs = [_leaf(x, gradient) for x in inputs]
    mine = [_leaf(ours(x), gradient) for x in inputs]
    expected, got = _results(function(torch, *theirs)), _results(function(flambeau, *mine))
    assert len(got) == len(expected)
    for i, (g, e) in enumerate(zip(got, expected, strict=True)):
        same(g, e, f"result {i}", tolerance)
    if gradient:
        grads = _compare_gradients(torch, flambeau, expected, got, theirs, mine, tolerance, second)
        if second and any(g is not None and g.requires_grad for g in grads[0]):
            _compare_gradients(torch, flambeau, *grads, theirs, mine, tolerance, False, "second gradient")


def _wants(x) -> bool:
    return isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex())


def _leaf(x, gradient: bool):
    if gradient and hasattr(x, "is_complex") and (x.is_floating_point() or x.is_complex()):
        return x.detach().clone().requires_grad_()
    return x


def _results(found) -> list:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _compare_gradients(t, f, expected, got, theirs, mine, tolerance, again, what="gradient"):
    both = []
    for module, results, leaves in ((t, expected, theirs), (f, got, mine)):
        leaves = [x for x in leaves if hasattr(x, "requires_grad") and x.requires_grad]
        loss = _loss(module, [r for r in results if r is not None])
        nothing = isinstance(loss, float)  # no result depends on any leaf
        both.append([None] * len(leaves) if nothing else module.autograd.grad(loss, leaves, create_graph=again, allow_unused=True))
    for i, (e, g) in enumerate(zip(*both, strict=True)):
        if e is None or (g is None and not plain(e).any()):
            assert g is None or not plain(g).any(), f"{what} {i}: PyTorch has none, here it is not zero"
        else:
            assert g is not None, f"{what} {i} is missing"
            same(g, e, f"{what} {i}", None if tolerance is None else 10 * tolerance)
    return both


def _loss(module, results):
    """A real number in which every part of every result counts differently."""
    total = 0.0
    rng = np.random.default_rng(7)
    for r in results:
        if not r.requires_grad:
            continue
        weights = rng.standard_normal(tuple(r.shape))
        if r.is_complex():
            weights = weights + 1j * rng.standard_normal(tuple(r.shape))
        w = module.from_numpy(np.asarray(weights)).to(r.dtype).to(r.device)
        product = r * w
        total = total + (product.real if r.is_complex() else product).sum()
    return total


def check_raises(function, *inputs) -> None:
    """Both refuse, Flambeau with PyTorch's type of exception or one derived from it."""
    with pytest.raises(Exception) as expected:  # whatever it is, it is the specification
        function(torch, *inputs)
    with pytest.raises(Exception) as got:
        function(flambeau, *[ours(x) for x in inputs])
    kind = expected.type if expected.type.__name__ != "_LinAlgError" else flambeau.linalg.LinAlgError
    assert issubclass(got.type, kind), f"{got.type.__name__}: {got.value}; PyTorch raises {expected.type.__name__}: {expected.value}"
