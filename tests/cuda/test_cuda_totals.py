"""Norms of all gradients on a GPU, and clipping by them: many tensors in a launch, any layout, half precision, nothing asked of the GPU."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)
INF = float("inf")


def gradients(count=5, dtype="float32", order=2.0):
    """Parameters of both packages with the same gradients: empty ones, numbers, a transposed one, a large one."""
    shapes = [(3, 4), (1 if order == INF else 0,), (), (70, 50), (7,)] * count
    numbers = [rng.standard_normal(s) for s in shapes]
    found = []
    for package, device in ((flambeau, "cuda"), (torch, "cpu")):
        kind = getattr(package, dtype)
        params = [package.zeros(s, dtype=kind, device=device, requires_grad=True) for s in shapes]
        for p, n in zip(params, numbers, strict=True):
            p.grad = package.tensor(n, dtype=kind, device=device)
        turned = package.zeros((6, 5), dtype=kind, device=device).t().requires_grad_()
        turned.grad = package.arange(30.0).to(kind).to(device).reshape(6, 5).t()
        found.append([*params, turned])
    return found


@pytest.mark.parametrize(("order", "dtype"), [(2.0, "float32"), (1.0, "float64"), (INF, "float32"), (3.0, "float32"), (2.0, "bfloat16")])
def test_clipping(gpu, order, dtype):
    """The norm of all, and all gradients after clipping, are PyTorch's; a limit that is not reached changes nothing."""
    ours, theirs = gradients(5, dtype, order)
    tolerance = 2e-2 if dtype == "bfloat16" else 1e-5
    for most in (1e6, 2.0):
        totals = [package.nn.utils.clip_grad_norm_(params, most, order) for package, params in ((flambeau, ours), (torch, theirs))]
        assert totals[0].is_cuda and totals[0].shape == () and str(totals[0].dtype)[-8:] == str(totals[1].dtype)[-8:]
        np.testing.assert_allclose(float(totals[0]), float(totals[1]), tolerance)
        for p, q in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(p.grad.cpu().double().numpy(), q.grad.double().numpy(), tolerance, tolerance)


def test_more_tensors_than_a_launch_takes(gpu):
    """Three hundred tensors; their versions say that they were written to."""
    ours, theirs = gradients(60)
    before = ours[0].grad._version
    totals = [float(package.nn.utils.clip_grad_norm_(params, 1.0)) for package, params in ((flambeau, ours), (torch, theirs))]
    np.testing.assert_allclose(*totals, 1e-5)
    np.testing.assert_allclose(ours[-2].grad.cpu().numpy(), theirs[-2].grad.numpy(), 1e-5)
    assert ours[0].grad._version > before


def test_not_finite(gpu):
    """NaN and infinity arrive in the norm, in every order, and can be an error."""
    for value in (float("nan"), INF):
        for order in (1.0, 2.0, INF):
            grads = [flambeau.tensor([1.0, value], device="cuda"), flambeau.tensor([3.0], device="cuda")]
            total = flambeau.nn.utils.get_total_norm(grads, order)
            assert total.isnan() if value != INF else total.isinf()
    with pytest.raises(RuntimeError, match=r"infinity norm|identity|empty"):
        flambeau.nn.utils.get_total_norm([flambeau.zeros(0, device="cuda")], INF)
    with pytest.raises(RuntimeError, match="non-finite"):
        flambeau.nn.utils.get_total_norm(grads, error_if_nonfinite=True)


def test_views_and_mixtures(gpu):
    """Gradients with gaps, and of several dtypes, are clipped, too."""
    p, q = (flambeau.zeros(4, device="cuda", dtype=d, requires_grad=True) for d in (flambeau.float32, flambeau.float64))
    p.grad, q.grad = flambeau.full((8,), 3.0, device="cuda")[::2], flambeau.full((4,), 4.0, device="cuda", dtype=flambeau.float64)
    assert float(flambeau.nn.utils.clip_grad_norm_([p], 3.0)) == 6.0 and p.grad.tolist() == pytest.approx([1.5] * 4)
    assert float(flambeau.nn.utils.clip_grad_norm_([p, q], 1.0)) == pytest.approx(73**0.5)
    flambeau.nn.utils.clip_grads_with_norm_([q], 1.0, flambeau.tensor(2.0))  # a norm in main memory
    assert q.grad.tolist() == pytest.approx([2 / 73**0.5] * 4)


def test_list_norms(gpu):
    """_foreach_norm: a tensor for each; with gradients where they are wanted."""
    values = [rng.standard_normal(s) for s in ((3, 4), (5,), (), (100, 90))]
    for order in (1, 2, INF, 3):
        found = flambeau._foreach_norm([flambeau.tensor(v, device="cuda") for v in values], order)
        wanted = torch._foreach_norm([torch.tensor(v) for v in values], order)
        np.testing.assert_allclose([float(f) for f in found], [float(w) for w in wanted], 1e-5)
    x = flambeau.tensor([3.0, 4.0], device="cuda", requires_grad=True)
    (norm,) = flambeau._foreach_norm([x])
    norm.backward()
    assert x.grad.tolist() == pytest.approx([0.6, 0.8])
