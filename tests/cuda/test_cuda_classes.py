"""Cross entropy and nll_loss by our own kernels on a GPU: shapes, weights, labels that are ignored or wrong, values at the edge."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.nn import functional as F

NAN, INF = float("nan"), float("inf")
SHAPES = [(5, 4), (3, 33), (70, 7), (2, 5000), (1500, 3), (9, 40), (2, 6, 5), (3, 4, 2, 40), (2, 3, 1), (6,), (300, 100)]


def compare(loss, host, target, dtype=torch.float32, tolerance=2e-5, **options):
    """Loss and gradient on the GPU are those of the CPU."""
    one, two = host.to(dtype).clone().requires_grad_(), host.to(dtype).cuda().requires_grad_()
    there = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    wanted, found = loss(one, target, **options), loss(two, target.cuda(), **there)
    assert found.is_cuda and found.dtype is wanted.dtype and found.shape == wanted.shape
    tolerance = 1e-2 if dtype in (torch.bfloat16, torch.float16) else tolerance
    assert torch.allclose(found.detach().cpu().double(), wanted.detach().double(), tolerance, tolerance, equal_nan=True)
    weights = torch.linspace(0.5, 1.5, wanted.numel()).reshape(wanted.shape).to(dtype)
    wanted.backward(weights)
    found.backward(weights.cuda())
    assert two.grad.shape == one.grad.shape and two.grad.dtype is dtype
    assert torch.allclose(two.grad.cpu().double(), one.grad.double(), tolerance, tolerance, equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_shapes(gpu, loss, shape):
    """Few and many rows, short and long ones, images: with labels to ignore, weights, smoothing, and every reduction."""
    torch.manual_seed(0)
    host = torch.randn(shape) * 3
    classes = shape[1] if len(shape) > 1 else shape[0]
    target = torch.randint(classes, (shape[0], *shape[2:]) if len(shape) > 1 else ())
    if target.dim():
        target.view(-1)[1] = -100
    weight = torch.rand(classes) + 0.5
    for reduction in ("mean", "sum", "none"):
        compare(loss, host, target, reduction=reduction)
        compare(loss, host, target, reduction=reduction, weight=weight)
    if loss is F.cross_entropy:
        compare(loss, host, target, label_smoothing=0.2)
        compare(loss, host, target, label_smoothing=0.2, reduction="none")
        compare(loss, host, target, label_smoothing=0.2, weight=weight)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(gpu, dtype):
    """Half precision is computed in float32, float64 in itself; class numbers may be bytes."""
    torch.manual_seed(0)
    host, target = torch.randn(12, 16), torch.randint(16, (12,))
    for loss in (F.cross_entropy, F.nll_loss):
        compare(loss, host, target, dtype, 1e-12)
        compare(loss, host, target.to(torch.uint8), dtype, 1e-12, reduction="sum", ignore_index=int(target[0]))


def test_layouts(gpu):
    """Transposed logits, and images whose channels come last."""
    torch.manual_seed(0)
    host, target = torch.randn(8, 5), torch.randint(8, (5,))
    picture, pixels = torch.randn(2, 4, 3, 3), torch.randint(4, (2, 3, 3))
    for loss in (F.cross_entropy, F.nll_loss):
        assert torch.allclose(loss(host.cuda().t(), target.cuda()).cpu(), loss(host.t(), target))
        compare(loss, picture.to(memory_format=torch.channels_last), pixels)
    x = host.cuda().t().requires_grad_()
    F.cross_entropy(x, target.cuda(), reduction="none").sum().backward()  # a gradient of stride 0
    y = host.t().requires_grad_()
    F.cross_entropy(y, target, reduction="none").sum().backward()
    assert torch.allclose(x.grad.cpu(), y.grad, atol=1e-6)


@pytest.mark.parametrize("classes", [6, 48, 5000])
def test_values_at_the_edge(gpu, classes):
    """-infinity counts nothing, rows of nothing else and NaN or infinity give NaN, and large numbers do not overflow."""
    torch.manual_seed(0)
    host = torch.randn(8, classes)
    host[0, :-1] = -INF
    host[1, ::2] = -INF
    host[2] = -INF
    host[3, classes - 2] = NAN
    host[4, 1] = INF
    host[5] *= 1e30
    host[6, 0], host[6, 1:] = NAN, -INF
    target = torch.tensor([classes - 1, 1, 0, 1, 0, 2, 3, -100])
    host[7] = NAN  # ignored
    compare(F.cross_entropy, host, target, reduction="none")
    compare(F.cross_entropy, host, target)


def test_nothing_to_average(gpu):
    """No rows, or none that counts: NaN for the mean, 0 for the sum, and gradients of 0."""
    for loss in (F.cross_entropy, F.nll_loss):
        compare(loss, torch.randn(3, 4), torch.full((3,), -100))
        compare(loss, torch.randn(3, 4), torch.full((3,), -100), reduction="sum")
        compare(loss, torch.randn(0, 4), torch.zeros(0, dtype=torch.int64))
        compare(loss, torch.randn(0, 4), torch.zeros(0, dtype=torch.int64), reduction="none")


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("wrong", [5, -1, -100])
def test_wrong_labels(gpu, loss, wrong, monkeypatch):
    """A label that is no class is reported where the GPU is next waited for; with CUDA_LAUNCH_BLOCKING, at once."""
    from flambeau.kernels.cuda import error_notes

    x, target = torch.randn(4, 5).cuda(), torch.tensor([0, 1, wrong, 4]).cuda()
    monkeypatch.setattr(error_notes, "BLOCKING", False)
    found = loss(x, target, ignore_index=-7)
    with pytest.raises(IndexError, match=rf"Target {wrong} is out of bounds: .* position 2 .*ignore_index, -7.*CUDA_LAUNCH_BLOCKING=1"):
        found.item()
    assert found.isnan().item()  # once is enough
    loss(x, target, ignore_index=-7)
    with pytest.raises(IndexError, match="Target"):
        torch.cuda.synchronize()
    monkeypatch.setattr(error_notes, "BLOCKING", True)
    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds") as problem:
        loss(x, target, ignore_index=-7)
    assert "LAUNCH" not in str(problem.value)


def test_second_derivatives(gpu):
    """Where the gradient is differentiated again it is made of operations."""
    torch.manual_seed(0)
    host, target = torch.randn(3, 4), torch.tensor([0, 2, 3])
    found = []
    for x in (host.clone(), host.cuda()):
        x = x.requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(x, target.to(x.device)), x, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), x)[0].cpu())
    assert torch.allclose(*found, atol=1e-6)
