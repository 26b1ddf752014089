"""Convolution on a GPU: tiles, a thread to a number, columns; strides, padding, dilation, groups and layouts; PyTorch's numbers and gradients."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.kernels.templates.cuda_convolution import _FORMS, Conv, print_conv

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)

# channels in and out, kernel, sizes, options
CASES = {
    "image": (2, (5, 7), (3, 3), (6, 8), {"padding": 1}),
    "strided": (2, (5, 37), (3, 2), (9, 8), {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2)}),
    "tall": (1, (6, 70), (2, 2), (4, 5), {"bias": False}),
    "grouped": (2, (6, 12), (3, 3), (5, 6), {"groups": 2, "padding": 2, "stride": 2}),
    "depthwise": (3, (4, 8), (3, 3), (5, 6), {"groups": 4, "padding": 1, "stride": (1, 2)}),
    "pointwise": (2, (5, 9), (1, 1), (3, 4), {}),
    "sequence": (3, (5, 6), (4,), (11,), {"stride": 2, "dilation": 2}),
    "volume": (2, (3, 5), (2, 3, 2), (3, 4, 5), {"padding": (1, 0, 1), "stride": (1, 2, 1)}),
    "one channel": (2, (6, 1), (3, 3), (5, 5), {"padding": 1}),
}


@pytest.fixture(params=["tiles", "columns", "cudnn"])
def path(request, gpu, monkeypatch):
    """One kernel, products by cuBLASLt, a sample or two at a time, and cuDNN."""
    if request.param == "cudnn":
        ran = request.getfixturevalue("graphs")
        yield request.param
        assert ran or "float64" in request.node.name
        return
    request.getfixturevalue("own_kernels")
    gpu.convolution._plan_of.cache_clear()
    if request.param == "columns":
        for name, value in (("LARGE", 0), ("LARGE_HALF", 0), ("FEW", 0), ("DEPTH", 0), ("COLUMNS", 2000)):
            monkeypatch.setattr(gpu.convolution, name, value)
    yield request.param
    gpu.convolution._plan_of.cache_clear()


def compare(case, transposed=False, dtype="float32", last=False, tolerance=2e-4):
    """Results and gradients of a layer on a GPU against PyTorch's."""
    samples, channels, kernel, sizes, options = case
    name = f"Conv{'Transpose' if transposed else ''}{len(kernel)}d"
    layers = [getattr(package.nn, name)(*channels, kernel, dtype=getattr(package, dtype), **options) for package in (flambeau, torch)]
    values, x, weights, found = (
        [rng.standard_normal(p.shape) for p in layers[1].parameters()],
        rng.standard_normal((samples, channels[0], *sizes)),
        None,
        [],
    )
    for package, layer, device in zip((torch, flambeau), layers[::-1], ("cpu", "cuda"), strict=True):
        layer = layer.to(device)
        kind = getattr(package, dtype)
        with package.no_grad():
            for p, v in zip(layer.parameters(), values, strict=True):
                p.copy_(package.tensor(v, dtype=kind))
        given = package.tensor(x, dtype=kind, device=device)
        given = (given.to(memory_format=package.channels_last) if last else given).requires_grad_()
        out = layer(given)
        weights = rng.standard_normal(out.shape) if weights is None else weights
        (out * package.tensor(weights, dtype=kind, device=device)).sum().backward()
        found.append((out.stride(), [t.detach().cpu().double().numpy() for t in (out, given.grad, *[p.grad for p in layer.parameters()])]))
    assert found[0][0] == found[1][0]
    for i, (host, card) in enumerate(zip(found[0][1], found[1][1], strict=True)):
        np.testing.assert_allclose(card, host, tolerance, tolerance * max(np.abs(host).max(), 1), err_msg=f"number {i}")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_convolution(path, case):
    """Any number of dimensions, and of channels around the size of a tile."""
    compare(case)


@pytest.mark.parametrize("name", ["image", "strided", "depthwise", "sequence"])
def test_transposed(path, name):
    """Transposed convolutions, whose backward is a plain one."""
    samples, (many, few), kernel, sizes, options = CASES[name]
    options = {n: v for n, v in options.items() if n != "dilation"}
    compare((samples, (few, many), kernel, sizes, options), transposed=True)


@pytest.mark.parametrize("name", ["image", "grouped", "depthwise", "pointwise"])
def test_channels_last(path, name):
    """Images whose channels lie side by side stay so."""
    compare(CASES[name], last=True)


def test_many_places(own_kernels):
    """A weight's gradient over so many places that blocks share them; many blocks of results."""
    compare((3, (5, 33), (3, 3), (21, 40), {"padding": 1}), tolerance=1e-3)


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float16"])
def test_dtypes(path, dtype):
    """Half precision is computed in float32 and rounded once, double precision in its own."""
    tolerance = {"float64": 1e-10, "bfloat16": 2e-2, "float16": 3e-3}[dtype]
    compare(CASES["image"], dtype=dtype, tolerance=tolerance)
    compare(CASES["depthwise"], dtype=dtype, tolerance=tolerance)


def test_views_and_infinity(gpu):
    """Every other row of an image, a weight that is a view, and infinity, which spoils its own neighbours alone."""
    image, weight = rng.standard_normal((2, 6, 10, 5)), rng.standard_normal((3, 3, 6, 5))
    image[0, 0, 4, 4] = np.inf
    found = []
    for package, device in ((flambeau, "cuda"), (torch, "cpu")):
        x, w = (package.tensor(a, dtype=package.float32, device=device) for a in (image, weight))
        found.append(package.nn.functional.conv2d(x[:, :, ::2], w.permute(3, 2, 0, 1)).cpu().numpy())
    np.testing.assert_allclose(*found, 1e-4, 1e-4)


def test_one_launch(gpu, own_kernels, monkeypatch):
    """A small layer is one kernel forward, one for the input's gradient and one for the weight's."""
    launched, kernel = [], gpu.convolution._kernel
    monkeypatch.setattr(gpu.convolution, "_kernel", lambda *given: (launched.append(given[0].form), kernel(*given))[1])
    layer = flambeau.nn.Conv2d(5, 6, 3).cuda()
    layer(flambeau.randn(2, 5, 4, 4, device="cuda", requires_grad=True)).sum().backward()
    assert sorted(launched) == ["product", "product", "weight"]


@pytest.mark.parametrize("form", _FORMS)
def test_every_form_prints(form):
    """Nothing in the texts is left to fill in."""
    text = print_conv(Conv(form, "float32", form == "product"))
    words = ("IS_", "ROWS", "THREADS", "WIDE", "DEPTH", "READ", "WRITE", "STORED", "COMPUTED", "FIELDS")
    assert text.count("{") == text.count("}") and not any(word in text for word in words)
