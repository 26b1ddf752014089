"""Dropout in one kernel that draws the numbers the mask would have had, and cat and stack in one launch."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.nn import functional as F


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_dropout_keeps_its_stream(gpu, dtype):
    """What stays is what a mask drawn by itself from the same place of the stream says; the stream moves on as far."""
    x = (torch.arange(3000.0) + 1).reshape(30, 100).to(dtype)
    for host in (x, x.t().contiguous().t()):
        card = host.cuda()
        torch.cuda.manual_seed(3)
        found = F.dropout(card, 0.3)
        after = torch.cuda.get_rng_state()
        torch.cuda.manual_seed(3)
        noise = torch.empty_like(card).bernoulli_(1 - 0.3).cpu()
        assert torch.equal(torch.cuda.get_rng_state(), after)
        assert found.stride() == host.stride() and found.dtype is dtype
        scale = torch.tensor(1 / 0.7).to(dtype)
        assert torch.allclose(
            found.cpu().double(), (host.double() * noise.double() * scale.double()), 5e-3 if dtype.itemsize == 2 else 1e-6
        )
        torch.cuda.manual_seed(3)
        assert torch.equal(F.dropout(card.clone(memory_format=torch.preserve_format), 0.3, inplace=True), found)


def test_dropout_gradient(gpu):
    """The gradient passes where the element did, scaled alike, and can be differentiated again; views with gaps go the long way."""
    x = torch.ones(7, 9).cuda().requires_grad_()
    y = F.dropout(x, 0.4)
    (slope,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    assert torch.allclose(slope, 2 * y * y)  # y is the noise itself here
    (again,) = torch.autograd.grad(slope.sum(), x)
    assert torch.allclose(again, 2 * y * y)
    z = F.dropout(torch.ones(8, 8).cuda()[:, ::2], 0.5)
    assert z.shape == (8, 4) and set(z.flatten().tolist()) <= {0.0, 2.0}
    assert torch.equal(F.dropout(x, 0.0), x) and not F.dropout(x, 1.0).count_nonzero().item()


def test_dropout_of_infinity(gpu):
    """Infinity that is dropped is NaN, as a product is."""
    torch.cuda.manual_seed(0)
    found = F.dropout(torch.full((64,), torch.inf).cuda(), 0.5)
    assert found.isnan().any().item() and found.isinf().any().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64, torch.complex128], ids=str)
def test_cat(gpu, dtype):
    """Pieces of any length along any dimension, as they lie or transposed, with empty ones between; more than one launch takes."""
    torch.manual_seed(0)
    for dim in (0, 1, 2):
        sizes = [[3, 4, 8] for _ in range(4)]
        for i, n in enumerate((1, 5, 0, 8)):
            sizes[i][dim] = n
        pieces = [torch.randint(0, 100, s).to(dtype) for s in sizes]
        assert torch.equal(torch.cat([p.cuda() for p in pieces], dim).cpu(), torch.cat(pieces, dim))
    many = [torch.full((2, i % 3 + 1), i).to(dtype) for i in range(150)]
    assert torch.equal(torch.cat([p.cuda() for p in many], 1).cpu(), torch.cat(many, 1))
    whole = torch.arange(48).to(dtype).cuda()
    assert torch.equal(torch.cat([whole[1:4], whole[5:9]]).cpu(), torch.tensor([1, 2, 3, 5, 6, 7, 8]).to(dtype))


def test_cat_of_formats(gpu):
    """Transposed pieces, mixed dtypes, and channels that come last and stay so."""
    torch.manual_seed(0)
    a, b = torch.randn(2, 3, 4, 5), torch.randn(2, 6, 4, 5)
    last = [t.to(memory_format=torch.channels_last) for t in (a, b)]
    for pieces in ([a, b], last, [a, last[1]], [a.transpose(2, 3), b.transpose(2, 3)]):
        wanted, found = torch.cat(pieces, 1), torch.cat([p.cuda() for p in pieces], 1)
        assert found.stride() == wanted.stride() and torch.equal(found.cpu(), wanted)
    wanted = torch.cat([torch.tensor([1, 2]), torch.tensor([0.5])])
    assert torch.equal(torch.cat([torch.tensor([1, 2]).cuda(), torch.tensor([0.5]).cuda()]).cpu(), wanted)


def test_stack(gpu):
    """Along a new dimension anywhere; numbers too; gradients come apart again."""
    torch.manual_seed(0)
    pieces = [torch.randn(3, 4) for _ in range(5)]
    for dim in (0, 1, 2, -1):
        assert torch.equal(torch.stack([p.cuda() for p in pieces], dim).cpu(), torch.stack(pieces, dim))
    assert torch.equal(torch.stack([p.cuda().t() for p in pieces], 1).cpu(), torch.stack([p.t() for p in pieces], 1))
    assert torch.stack([torch.tensor(1.0).cuda(), torch.tensor(2.0).cuda()]).tolist() == [1.0, 2.0]
    x = [p.cuda().requires_grad_() for p in pieces]
    (torch.stack(x, 1) * torch.arange(5.0, device="cuda")[:, None]).sum().backward()
    assert all(torch.equal(p.grad.cpu(), torch.full((3, 4), float(i))) for i, p in enumerate(x))
