"""Pointwise kernels on a GPU: values, dtypes and strides are those of the CPU, for every layout."""

from __future__ import annotations

import itertools

import pytest

import flambeau as torch

# Views of one stretch of memory; each is made on both devices.
LAYOUTS = {
    "plain": lambda m: m[:120].view(4, 6, 5),
    "transposed": lambda m: m[:120].view(5, 6, 4).transpose(0, 2),
    "every_other": lambda m: m[:480].view(8, 12, 5)[::2, ::2],
    "expanded": lambda m: m[:20].view(4, 1, 5).expand(4, 6, 5),
    "row": lambda m: m[:5],
    "matrix": lambda m: m[:30].view(6, 5),
    "column": lambda m: m[:24].view(4, 6, 1),
    "scalar": lambda m: m[3],
    "one": lambda m: m[:1].view(1, 1),
    "wide": lambda m: m[:384].view(4, 6, 16),
    "wide_row": lambda m: m[:16],
    "unaligned": lambda m: m[1:121].view(4, 6, 5),
    "empty": lambda m: m[:0].view(0, 5),
}


def same(found, wanted, tolerance=1e-6):
    """Values, shape, dtype and strides."""
    assert found.is_cuda and not wanted.is_cuda
    assert (found.shape, found.dtype, found.stride()) == (wanted.shape, wanted.dtype, wanted.stride())
    host = found.cpu()
    if not wanted.dtype.is_floating_point and not wanted.dtype.is_complex:
        assert torch.equal(host, wanted)
        return
    kind = torch.complex128 if wanted.dtype.is_complex else torch.float64
    assert torch.allclose(host.to(kind), wanted.to(kind), rtol=tolerance, atol=tolerance, equal_nan=True)


def memory(dtype=torch.float32):
    torch.manual_seed(0)
    return (torch.randn(512) * 3).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_binary_layouts(gpu, dtype):
    """Any two layouts that broadcast give on the GPU what they give on the CPU, in the same strides."""
    host = memory(dtype)
    card = host.cuda()
    for a, b in itertools.product(LAYOUTS.values(), repeat=2):
        x, y = a(host), b(host)
        try:
            wanted = x * y
        except RuntimeError:
            continue
        same(a(card) * b(card), wanted, 1e-6 if dtype is torch.float32 else 1e-2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unary_and_copies(gpu, layout):
    """A function of one operand, clones, casts and the way back to the CPU keep values and strides."""
    host = memory()
    x, y = LAYOUTS[layout](host), LAYOUTS[layout](host.cuda())
    same(y.exp(), x.exp(), 1e-5)
    same(y.clone(), x.clone())
    same(y.contiguous(), x.contiguous())
    same(y.to(torch.bfloat16), x.to(torch.bfloat16))
    same(y.to(torch.int64), x.to(torch.int64))
    back = y.cpu()
    assert torch.equal(back, x) and back.stride() == x.clone().stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool], ids=str)
def test_dtypes(gpu, dtype):
    """Arithmetic, comparison, casts and numbers as operands, in every kind of dtype."""
    host = memory()[:77].abs().to(dtype)
    card = host.cuda()
    tolerance = 1e-3 if dtype is torch.float16 else 1e-6
    same(card == card, host == host)
    same(card.to(torch.float32), host.to(torch.float32))
    same(card.logical_not(), host.logical_not())
    if dtype is torch.bool:
        same(card & ~card, host & ~host)
        return
    same(card + 3, host + 3, tolerance)
    same(card * card - 2, host * host - 2, tolerance)
    same(card > 2, host > 2)
    same(torch.where(card > 2, card, 1), torch.where(host > 2, host, 1), tolerance)
    same(card.clamp(1, 4), host.clamp(1, 4), tolerance)
    same(card % 3, host % 3, tolerance)
    same(card // 2, host // 2, tolerance)


def test_bits_and_whole_numbers(gpu):
    """Integer functions wrap around, round down and shift as on the CPU."""
    host = torch.arange(-40, 40)
    card = host.cuda()
    for f in (lambda x: x // -7, lambda x: x % -7, lambda x: x << 3, lambda x: x >> 1, lambda x: x & 12, lambda x: ~x, lambda x: x**3):
        same(f(card), f(host))
    same(torch.gcd(card, card * 6), torch.gcd(host, host * 6))
    small = host.to(torch.uint8)
    same(small.cuda() * 9 - 1, small * 9 - 1)


def test_special_values(gpu):
    """NaN, infinities, signed zeros and denormal numbers are values like any other."""
    host = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40, -3e-42, 3e38, 1e-8])
    card = host.cuda()
    functions = (
        torch.exp, torch.log, torch.sqrt, torch.sigmoid, torch.tanh, torch.sgn, torch.isnan, torch.isinf, torch.reciprocal, torch.erf,
        torch.digamma, torch.lgamma, torch.floor, torch.round, lambda x: x * 1, lambda x: torch.maximum(x, x.flip(0)),
    )  # fmt: skip
    for f in functions:
        same(f(card), f(host), 2e-6)
    assert card.mul(1).cpu()[7].item() == host[7].item() != 0, "a denormal number is not zero"


def test_in_place(gpu):
    """A write through a view reaches the tensor it is a view of, and leaves the rest alone."""
    host = memory()[:120].view(4, 6, 5).clone()
    card = host.cuda()
    for x in (host, card):
        x[:, 1::2].add_(1, alpha=0.5)
        x.transpose(0, 2)[2].mul_(x[0, 0, 0])
        x[1].fill_(7)
        x[2, 3].zero_()
        x.clamp_(max=2)
    same(card, host)


def test_overlapping_write_is_refused(gpu):
    """Writing to memory that is still to be read raises, as on the CPU."""
    for x in (torch.arange(6.0), torch.arange(6.0).cuda()):
        with pytest.raises(RuntimeError, match="single memory location"):
            x[1:].add_(x[:-1])


def test_many_dimensions(gpu):
    """More loops than a kernel has are run piece by piece."""
    host = torch.arange(2.0**13).view([2] * 13)
    order = [5, 1, 9, 12, 0, 4, 8, 2, 11, 7, 3, 10, 6]
    card = host.cuda()
    same(card + card.permute(order), host + host.permute(order))


def test_gradients(gpu):
    """Backward through pointwise formulas, by their derived kernels."""
    host = memory()[:60].view(3, 4, 5).requires_grad_()
    card = host.detach().cuda().requires_grad_()
    for x in (host, card):
        (torch.nn.functional.silu(x) if hasattr(torch, "nn") else x * x.sigmoid()).mul(x.exp().tanh()).add(
            x**3 / (1 + x.abs())
        ).sum().backward()
    assert torch.allclose(card.grad.cpu(), host.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_complex(gpu):
    """Complex formulas are those of CuPy's header."""
    host = torch.complex(memory()[:40], memory()[40:80])
    card = host.cuda()
    for f in (torch.exp, torch.log, torch.sqrt, torch.tanh, torch.asin, torch.sgn, torch.abs, torch.angle, lambda x: x * x / (x + 1j)):
        same(f(card), f(host), 1e-4)


@pytest.mark.gpu
def test_large(gpu):
    """More than 2**31 elements need positions of 64 bits."""
    n = 2**31 + 77
    x = torch.zeros(n, dtype=torch.uint8, device="cuda")
    x[-5:] = 3
    y = x + 1
    assert y[:3].tolist() == [1, 1, 1] and y[-6:].tolist() == [1, 4, 4, 4, 4, 4]
    strided = x.view(-1)[::2] + 1
    assert strided[-2:].tolist() == [4, 4]
