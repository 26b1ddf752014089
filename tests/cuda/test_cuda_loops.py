"""Reductions and functions of rows by our own kernels on a GPU: any dimensions, any layout, long rows in parts, NaN and nothing at all."""

from __future__ import annotations

import pytest

import flambeau as torch
import flambeau.ops.normalization
import flambeau.ops.softmax
from flambeau.kernels.loops import cuda
from flambeau.kernels.loops.folds import as_loop
from flambeau.kernels.loops.language import DECLARED, Loop, extent, pick, position, total
from flambeau.kernels.reductions.fold import FOLDS

NAN, INF = float("nan"), float("inf")


def close(found, wanted, tolerance=1e-5):
    assert found.is_cuda and found.shape == wanted.shape and found.dtype is wanted.dtype
    if wanted.dtype is torch.bfloat16:
        tolerance = 1e-2
    assert torch.allclose(found.cpu().double(), wanted.double(), rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
def test_dimensions(gpu, dims):
    """Any set of dimensions can be reduced, of a tensor and of views of it."""
    torch.manual_seed(0)
    host = torch.randn(6, 40, 8)
    card = host.cuda()
    for f in (lambda x: x.sum(dims), lambda x: x.amax(dims), lambda x: x.mean(dims, keepdim=True), lambda x: x.var(dims)):
        close(f(card), f(host))
    close(card.transpose(0, 2).sum(dims), host.transpose(0, 2).sum(dims))
    close(card[:, ::2, 1:].amax(dims), host[:, ::2, 1:].amax(dims))


@pytest.mark.parametrize("dim", [0, 1])
def test_long_rows_are_cut_into_parts(gpu, dim):
    """A few long rows, or columns, occupy the whole GPU: their parts are merged, positions included."""
    torch.manual_seed(0)
    host = torch.randn(3, 5000) if dim else torch.randn(5000, 3)
    card = host.cuda()
    for f in (lambda x: x.sum(dim), lambda x: x.argmax(dim), lambda x: x.min(dim).values, lambda x: x.sum(), lambda x: x.argmax()):
        close(f(card), f(host), 2e-5)
    for dtype in (torch.bfloat16, torch.float64, torch.int64, torch.uint8):
        close(card.mul(9).to(dtype).sum(dim), host.mul(9).to(dtype).sum(dim), 2e-5)
    close((card > 3.2).any(dim), (host > 3.2).any(dim))
    close((card > 0).count_nonzero(dim), (host > 0).count_nonzero(dim))


def test_special_values(gpu):
    """NaN spoils a sum and wins a maximum, the first of equals is found, and nothing reduces to what it should."""
    host = torch.tensor([[1.0, NAN, 3.0, NAN], [INF, -INF, INF, 0.0], [2.0, 5.0, 5.0, -1.0]])
    card = host.cuda()
    functions = (
        lambda x: x.amax(1), lambda x: x.argmax(1), lambda x: x.argmin(1), lambda x: x.sum(1), lambda x: x.nansum(1), lambda x: x.softmax(1),
        lambda x: x.logsumexp(1), lambda x: x[:, :0].sum(1), lambda x: x[:, :0].mean(1), lambda x: x[:0].sum(1), lambda x: x[2, 1].sum(),
    )  # fmt: skip
    for f in functions:
        close(f(card), f(host))


@pytest.mark.parametrize("n", [1, 7, 64, 1000, 3000, 20000])
def test_rows(gpu, n):
    """Softmax and its derivative, for rows that a warp holds, that a block holds, and that are read again in every pass."""
    torch.manual_seed(0)
    host = torch.randn(3, n).mul(3).requires_grad_()
    card = host.detach().cuda().requires_grad_()
    for f in (torch.softmax, torch.log_softmax):
        close(f(card, 1), f(host, 1))
        weights = torch.randn(3, n)
        f(host, 1).mul(weights).sum().backward()
        f(card, 1).mul(weights.cuda()).sum().backward()
        close(card.grad, host.grad, 1e-4)
    close(card.detach().bfloat16().softmax(1), host.detach().bfloat16().softmax(1))
    close(card.detach()[:, : max(n - 1, 1)].softmax(1), host.detach()[:, : max(n - 1, 1)].softmax(1))
    close(card.detach().T.softmax(0), host.detach().T.softmax(0))


def test_weights_that_begin_anywhere(gpu):
    """The weight and the bias of a norm are views of one tensor, and begin where no pack does."""
    host = torch.randn(6, 64), torch.randn(130)
    found = [torch.nn.functional.layer_norm(x, (64,), both[1:65], both[66:]) for x, both in (host, [t.cuda() for t in host])]
    close(found[1], found[0])


def test_results_do_not_vary(gpu):
    """The same sum has the same bits every time."""
    x = torch.randn(100_000, device="cuda")
    assert len({x.sum().item() for _ in range(5)}) == 1


def test_every_declaration_prints():
    """Every fold and every loop has a kernel for each of its dtypes."""
    odd = Loop("odd", lambda x, at: (pick(0, at) * position, total(x) / extent), "ri r:i64", "ri r")
    rows = [
        loop for loop in DECLARED.values() if "rj" not in loop.stores
    ]  # what has a number for each line is made of others: see cuda/norm.py
    for loop in [*rows, *map(as_loop, FOLDS), *(as_loop(fold, True) for fold in FOLDS if fold.find), odd]:
        for dtype in loop.dtypes:
            for items, columns, stage in ((1, False, None), (0, False, None), (0, True, None), (0, True, 0)):
                if items or not loop.totals:
                    text = cuda.print_loop(cuda.Instance(loop, dtype, 32, 2, items, columns, stage))
                    assert f"fl_{loop.name}_" in text and text.count("{") == text.count("}")


@pytest.mark.parametrize("shape", [(5, 384), (1, 8), (700, 20), (2, 3, 1000), (40, 7), (33, 1), (3, 5000), (3, 0), (0, 8)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_of_norms(gpu, shape, dtype):
    """The gradients of input, weight and bias of norms over rows, which are added up over all rows: any number of rows of any length."""
    torch.manual_seed(0)
    host = [torch.randn(s, dtype=dtype) for s in (shape, shape[-1:], shape[-1:], shape)]
    norms = (
        lambda x, w, b: torch.nn.functional.layer_norm(x, shape[-1:], w, b),
        lambda x, w, b: torch.nn.functional.rms_norm(x, shape[-1:], w) * b,
    )
    for norm in norms:
        found = []
        for move in (lambda t: t, lambda t: t.cuda()):
            leaves = [move(t).requires_grad_() for t in host[:3]]
            found.append(torch.autograd.grad(norm(*leaves), leaves, move(host[3])))
        for here, there in zip(*found, strict=True):
            close(there, here, 1e-4 if dtype is torch.float32 else 1e-10)


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (6,), (0, 6), (2, 0, 6), (3, 5, 2, 6)], ids=str)
def test_gradients_of_linear(gpu, shape):
    """Those of input, weight and bias for inputs of any shape, gradients in any layout."""
    torch.manual_seed(0)
    linear = torch.nn.functional.linear
    host = torch.randn(shape), torch.randn(5, 6), torch.randn(5)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for spread in (False, True):
            found = []
            given = torch.randn(*shape[:-1], 5).to(dtype)
            for move in (lambda t, d=dtype: t.to(d), lambda t, d=dtype: t.cuda().to(d)):
                leaves = [move(t).requires_grad_() for t in host]
                out = linear(*leaves)
                grad = torch.ones((), dtype=dtype, device=out.device).expand(out.shape) if spread else move(given)
                found.append(torch.autograd.grad(out, leaves, grad))
            for here, there in zip(*found, strict=True):
                close(there, here)


def test_gradients_of_products(gpu):
    """Matrices in any layout, empty ones too, and gradients that lie in memory as their leaves do."""
    torch.manual_seed(0)
    for m, k, n in ((3, 4, 5), (1, 4, 1), (0, 4, 5), (3, 0, 5), (3, 4, 0)):
        host = torch.randn(m, k), torch.randn(k, n)
        for turn in (lambda t: t, lambda t: t.T.contiguous().T, lambda t: torch.cat([t, t], 1)[:, : t.shape[1]]):
            found = []
            for move in (lambda t: t.clone(), lambda t: t.cuda()):
                a, b = (turn(move(t)).requires_grad_() for t in host)
                out = a @ b
                found.append((out.detach(), *torch.autograd.grad(out, (a, b), out.detach().cos())))
            for here, there in zip(*found, strict=True):
                close(there, here)
                assert there.stride() == here.stride()
