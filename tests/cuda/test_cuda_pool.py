"""Pooling by our own kernels on a GPU: one to three dimensions, windows that slide, stick out, overlap or adapt, and both memory formats."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.nn import functional as F

NAN, INF = float("nan"), float("inf")
SHAPES = {1: (2, 3, 11), 2: (2, 3, 9, 10), 3: (2, 3, 5, 6, 7)}
SLIDING = [
    dict(kernel_size=2),
    dict(kernel_size=3, stride=2, padding=1),
    dict(kernel_size=3, stride=1),
    dict(kernel_size=2, stride=3, ceil_mode=True),
]


def compare(f, host, gradient=True):
    """Values, strides and gradients on the GPU are those of the CPU."""
    one, two = host.clone().requires_grad_(gradient), host.cuda().requires_grad_(gradient)
    wanted, found = f(one), f(two)
    pairs = list(zip(wanted, found, strict=True)) if isinstance(wanted, tuple) else [(wanted, found)]
    for w, g in pairs:
        assert g.is_cuda and g.shape == w.shape and g.dtype is w.dtype and g.stride() == w.stride()
        if w.is_floating_point():
            rounding = 1e-2 if w.dtype in (torch.bfloat16, torch.float16) else 1e-5
            assert torch.allclose(g.detach().cpu().double(), w.detach().double(), rounding, rounding, equal_nan=True)
        else:
            assert torch.equal(g.cpu(), w)
    if gradient:
        weights = torch.linspace(0.5, 1.5, pairs[0][0].numel()).reshape(pairs[0][0].shape).to(host.dtype)
        (pairs[0][0] * weights).sum().backward()
        (pairs[0][1] * weights.cuda()).sum().backward()
        rounding = 1e-2 if host.dtype in (torch.bfloat16, torch.float16) else 1e-5
        assert torch.allclose(two.grad.cpu().double(), one.grad.double(), rounding, rounding, equal_nan=True)


def samples(n):
    """A batch, one sample, a view with gaps and, where there is such a format, channels last."""
    torch.manual_seed(n)
    x = torch.randn(SHAPES[n])
    yield x
    yield x[0]
    yield torch.randn(*SHAPES[n][:-1], 2 * SHAPES[n][-1])[..., ::2].transpose(0, 1)
    if n > 1:
        yield x.to(memory_format=torch.channels_last if n == 2 else torch.channels_last_3d)


@pytest.mark.parametrize("options", SLIDING, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_sliding(gpu, n, options):
    """max_pool with its indices, avg_pool with and without padding."""
    for x in samples(n):
        compare(lambda x: getattr(F, f"max_pool{n}d")(x, **options, return_indices=True), x)
        compare(lambda x: getattr(F, f"avg_pool{n}d")(x, **options), x)
        compare(lambda x: getattr(F, f"avg_pool{n}d")(x, **options, count_include_pad=False), x)


def test_dilation_and_divisor(gpu):
    """Windows with holes, oblong ones, and sums divided by something else."""
    for x in samples(2):
        compare(lambda x: F.max_pool2d(x, (2, 3), (2, 1), (1, 0), (3, 2), return_indices=True), x)
        compare(lambda x: F.avg_pool2d(x, (3, 2), (1, 2), (1, 0), divisor_override=-5), x)
    compare(lambda x: F.max_pool1d(x, 3, 1, 1, 2, return_indices=True), torch.randn(2, 3, 6))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_adaptive(gpu, n):
    """As many windows as asked for: fewer than there are places, more, as many, one, none."""
    for x in samples(n):
        for size in (1, 2, 3, 8, 0):
            compare(lambda x, s=size: getattr(F, f"adaptive_max_pool{n}d")(x, s, return_indices=True), x, size > 0)
            compare(lambda x, s=size: getattr(F, f"adaptive_avg_pool{n}d")(x, s), x, size > 0)


def test_special_values(gpu):
    """NaN wins, -infinity alone stays, of equal numbers the first is found, also where a window begins outside."""
    x = torch.zeros(1, 1, 6, 6)
    x[0, 0, 1, 1], x[0, 0, 4, 4], x[0, 0, 5, 5], x[0, 0, 2:4] = NAN, INF, -INF, -INF
    for options in (*SLIDING, dict(kernel_size=3, stride=1, padding=1)):
        compare(lambda x, o=options: F.max_pool2d(x, **o, return_indices=True), x)
    compare(lambda x: F.adaptive_max_pool2d(x, (4, 5), return_indices=True), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8], ids=str)
def test_dtypes(gpu, dtype):
    """Half precision is added up in float32, integers are divided toward zero."""
    torch.manual_seed(0)
    x, real = (torch.randn(2, 2, 8, 8) * 9).abs().to(dtype), dtype.is_floating_point
    compare(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x, real)
    if real:
        compare(lambda x: F.adaptive_avg_pool2d(x, 3), x)
    if real or dtype is torch.int64:
        compare(lambda x: F.avg_pool2d(x, 3, 2, 1), x if real else x - 9, real)


def test_second_derivatives(gpu):
    """What backward does is pooling again, and can be differentiated."""
    torch.manual_seed(0)
    host = torch.randn(2, 2, 6, 6)
    for f in (lambda x: F.max_pool2d(x, 3, 2), lambda x: F.avg_pool2d(x, 3, 2, 1), lambda x: F.adaptive_avg_pool2d(x, 4)):
        found = []
        for x in (host.clone(), host.cuda()):
            x.requires_grad_()
            (slope,) = torch.autograd.grad(f(x).pow(3).sum(), x, create_graph=True)
            found.append(torch.autograd.grad(slope.square().sum(), x)[0].cpu())
        assert torch.allclose(*found, rtol=1e-4, atol=1e-4)


def test_empty_batch(gpu):
    """No samples: nothing is launched."""
    compare(lambda x: F.max_pool2d(x, 2, return_indices=True), torch.zeros(0, 3, 4, 4))
    compare(lambda x: F.avg_pool2d(x, 2), torch.zeros(0, 3, 4, 4))
