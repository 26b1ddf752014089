"""Batch, group and instance norm on a GPU: lines and columns, whole and in parts, running averages; PyTorch's numbers and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)


def compare(make, shape, dtype="float32", tolerance=2e-4, last=False, shift=0.0, steps=2):
    """Results, gradients and buffers of a layer on a GPU after some steps, and then of evaluation, against PyTorch's."""
    layers = [make(package, getattr(package, dtype)) for package in (flambeau, torch)]
    values = [rng.standard_normal(p.shape) for p in layers[1].parameters()]
    inputs, weights = rng.standard_normal((steps + 1, *shape)) + shift, rng.standard_normal(shape)
    found = []
    for package, layer, device in zip((flambeau, torch), layers, ("cuda", "cpu"), strict=True):
        kind, results = getattr(package, dtype), []
        layer = layer.to(device)
        with package.no_grad():
            for p, v in zip(layer.parameters(), values, strict=True):
                p.copy_(package.tensor(v, dtype=kind))
        for step, numbers in enumerate(inputs):
            if step == steps:
                layer.eval()
            x = package.tensor(numbers, dtype=kind, device=device)
            x = (x.to(memory_format=package.channels_last) if last else x).requires_grad_()
            out = layer(x)
            assert out.stride() == x.stride()
            layer.zero_grad()
            (out * package.tensor(weights, dtype=kind, device=device)).sum().backward()
            results += [out, x.grad, *[p.grad for p in layer.parameters()], *layer.buffers()]
            results = [r.detach().cpu().clone() for r in results]
        found.append(results)
    for i, (card, host) in enumerate(zip(*found, strict=True)):
        card, host = card.double().numpy(), host.double().numpy()
        np.testing.assert_allclose(card, host, tolerance, tolerance * max(np.abs(host).max(), 1), err_msg=f"number {i}")


def batch_norm(dims, channels, **options):
    return lambda package, dtype: getattr(package.nn, f"BatchNorm{dims}d")(channels, dtype=dtype, **options)


def group_norm(groups, channels, **options):
    return lambda package, dtype: package.nn.GroupNorm(groups, channels, dtype=dtype, **options)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm(gpu, dtype):
    """Features, sequences and images, in both orders of memory."""
    tolerance = 2e-4 if dtype == "float32" else 1e-9
    compare(batch_norm(1, 5), (7, 5), dtype, tolerance)
    compare(batch_norm(1, 35), (3, 35, 4), dtype, tolerance)
    compare(batch_norm(2, 3), (4, 3, 5, 5), dtype, tolerance)
    compare(batch_norm(2, 3), (4, 3, 5, 5), dtype, tolerance, last=True)


@pytest.mark.parametrize("last", [False, True])
def test_batch_norm_in_parts(gpu, last):
    """Few channels of many numbers are shared among blocks, also where these lie far from zero."""
    compare(batch_norm(2, 3), (5, 3, 33, 31), last=last, steps=1)
    compare(batch_norm(2, 2), (4, 2, 33, 31), last=last, shift=300.0, tolerance=2e-3, steps=1)


def test_batch_norm_without(gpu):
    """Without weights, without running averages, with averages over all steps."""
    compare(batch_norm(1, 5, affine=False), (7, 5))
    compare(batch_norm(1, 5, track_running_stats=False), (7, 5))
    compare(batch_norm(1, 5, momentum=None), (7, 5))


@pytest.mark.parametrize("shape", [(3, 6, 5, 7), (4, 6), (1, 6, 70, 61)], ids=str)
def test_group_norm(gpu, shape):
    """Groups of channels with places and without, and groups so large that blocks share them."""
    for groups in (1, 3, 6):
        if shape[2:] or groups < 6:
            compare(group_norm(groups, 6), shape, tolerance=1e-3, steps=1)
    compare(group_norm(3, 6, affine=False), shape, steps=1)


def test_instance_norm(gpu):
    """Each channel of each sample, with running averages too."""
    compare(lambda package, dtype: package.nn.InstanceNorm2d(3, dtype=dtype), (4, 3, 6, 5))
    compare(lambda package, dtype: package.nn.InstanceNorm1d(3, affine=True, track_running_stats=True, dtype=dtype), (4, 3, 6))


def test_half_precision(gpu):
    """bfloat16 is normalised in float32 and rounded once; weights and averages may be float32."""
    x = flambeau.tensor(rng.standard_normal((8, 3, 4)), dtype=flambeau.bfloat16)
    layer = flambeau.nn.BatchNorm1d(3)
    wanted = layer(x.float()).bfloat16()
    found = flambeau.nn.BatchNorm1d(3).cuda()(x.cuda())
    assert found.dtype is flambeau.bfloat16 and flambeau.equal(found.cpu(), wanted)


def test_special_values(gpu):
    """NaN and infinity spoil their own channel alone; running averages have a new version."""
    x = flambeau.randn(6, 3, device="cuda")
    x[0, 0], x[1, 1] = float("nan"), float("inf")
    layer = flambeau.nn.BatchNorm1d(3).cuda()
    before = layer.running_mean._version
    out = layer(x).cpu()
    assert out[:, :2].isnan().any(0).all() and out[:, 2].isfinite().all() and layer.running_mean._version > before


def test_one_launch(gpu, monkeypatch):
    """Small batches take one kernel forward, running averages included, and one backward."""
    launched, launches = [], gpu.rows.launches
    gpu.rows.plan.cache_clear()
    monkeypatch.setattr(gpu.rows, "launches", lambda *given: (launched.extend(found := launches(*given)), found)[1])
    layer = flambeau.nn.BatchNorm2d(4).cuda()
    layer(flambeau.randn(2, 4, 3, 3, device="cuda")).sum().backward()
    layer.eval()(flambeau.randn(2, 4, 3, 3, device="cuda"))
    names = ["norm_training", "norm_backward", "by_running"]
    norms = [instance for instance, _ in launched if instance.loop.name in names]
    assert [k.loop.name for k in norms] == names and not any(k.stage for k in norms)
