"""What is left to cuBLASLt and cuDNN on a GPU: products as they lie in memory, attention of half precision, and the switches that programs have."""

from __future__ import annotations

import math

import numpy as np
import pytest

import flambeau
from flambeau.kernels import libraries
from flambeau.nn.attention import SDPBackend, sdpa_kernel

torch = pytest.importorskip("torch")
rng = np.random.default_rng(0)
attend = flambeau.nn.functional.scaled_dot_product_attention

# -- products --------------------------------------------------------------------------------------------------------------

FORMS = {
    "rows": (lambda x: x.cuda(),) * 2,
    "first by columns": (lambda x: x.mT.contiguous().cuda().mT, lambda x: x.cuda()),
    "second by columns": (lambda x: x.cuda(), lambda x: x.mT.contiguous().cuda().mT),
    "both by columns": (lambda x: x.mT.contiguous().cuda().mT,) * 2,
    "out of wider ones": (lambda x: _behind(x, 3).cuda()[..., 3:], lambda x: _behind(x, 1).cuda()[..., 1:]),
    "every other column": (lambda x: x.repeat_interleave(2, -1).cuda()[..., ::2], lambda x: x.cuda()),
}


def _behind(x, n: int):
    """The matrix with n columns of zeros before it."""
    return flambeau.cat([x.new_zeros((*x.shape[:-1], n)), x], -1)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64", "complex128"])
def test_products_read_factors_as_they_lie(gpu, dtype, form):
    """Transposed, cut out of wider matrices, at addresses of any alignment, alone and in batches."""
    for lead in ((), (3,)):
        factors = [flambeau.tensor(rng.standard_normal((*lead, *shape))).to(getattr(flambeau, dtype)) for shape in ((7, 5), (5, 9))]
        first, second = (put(x) for put, x in zip(FORMS[form], factors, strict=True))
        found = (first @ second).cpu()
        wanted = np.matmul(*(x.to(flambeau.complex128).numpy() for x in factors))
        tolerance = {"float16": 2e-3, "bfloat16": 1e-2, "float64": 1e-13, "complex128": 1e-13}.get(dtype, 1e-5)
        np.testing.assert_allclose(found.to(flambeau.complex128).numpy(), wanted, tolerance, 5 * tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex64"])
def test_a_bias_comes_with_the_product(gpu, dtype):
    """Where the library adds it and where it does not; at an address that is not aligned, too; what is added to is left alone."""
    if dtype == "complex64" and not gpu.real:
        pytest.skip("complex kernels include headers of CuPy's")
    kind = getattr(flambeau, dtype)
    x, w, b = (flambeau.tensor(rng.standard_normal(s)).to(kind).cuda() for s in ((2, 4, 6), (5, 6), (6,)))
    for bias in (b[:5].contiguous(), b[1:]):
        found = flambeau.nn.functional.linear(x, w, bias).cpu(), flambeau.addmm(bias, x[0], w.T).cpu()
        wanted = x.cpu() @ w.cpu().T + bias.cpu()
        for one, other in zip(found, (wanted, wanted[0]), strict=True):
            assert flambeau.allclose(one, other, *(1e-5, 1e-5) if kind.itemsize > 2 else (2e-2, 2e-2))
    flambeau.addmm(b[:5], x[0], w.T, beta=0.5, alpha=2)
    total = flambeau.addmm(b[:5], x[0], w.T, beta=0.5, alpha=2).cpu()
    assert flambeau.allclose(total, (x[0].cpu() @ w.cpu().T) * 2 + b[:5].cpu() * 0.5, *(1e-5, 1e-5) if kind.itemsize > 2 else (2e-2, 5e-2))


def test_products_of_nothing(gpu):
    """Nothing to add up gives zeros, or what was there."""
    a, b, c = flambeau.zeros(3, 0, device="cuda"), flambeau.zeros(0, 4, device="cuda"), flambeau.ones(3, 4, device="cuda")
    assert (a @ b).abs().sum() == 0 and (c.addmm(a, b, beta=2) == 2).all() and (b.T @ a.T).shape == (4, 3)
    assert (
        flambeau.full((4,), math.nan, device="cuda").addmv(flambeau.ones(4, 0, device="cuda"), flambeau.ones(0, device="cuda"), beta=0) == 0
    ).all()


def test_plans_of_products_are_kept(gpu, monkeypatch):
    """The library is asked once how to multiply matrices of a kind, and again where a switch was turned."""
    asked, library = [], gpu.gemm.Product
    monkeypatch.setattr(gpu.gemm, "Product", lambda *given: (asked.append(given), library(*given))[1])
    monkeypatch.setattr(libraries, "products", 0)
    gpu.gemm._plan.cache_clear()
    a = flambeau.ones(19, 23, device="cuda")
    for _ in range(3):
        gpu.gemm.product(a._array, a.T._array)
    assert len(asked) == 1
    flambeau.backends.cuda.matmul.allow_tf32 = True
    gpu.gemm.product(a._array, a.T._array)
    flambeau.backends.cuda.matmul.allow_tf32 = False
    assert len(asked) == 2 and [given[-1] for given in asked] == [0, libraries.TF32]
    gpu.gemm._plan.cache_clear()


def test_switches_of_products_reach_the_library(gpu, monkeypatch):
    """TF32 for float32 alone; sums in float16 where they are allowed, with factors of float16."""
    monkeypatch.setattr(libraries, "products", libraries.products)
    from flambeau.kernels.cuda.cublaslt import IN_32, IN_TF32, kind_of

    matmul = flambeau.backends.cuda.matmul
    f32, f16 = np.dtype(np.float32), np.dtype(np.float16)
    assert kind_of(f32, libraries.products).compute == IN_32
    flambeau.set_float32_matmul_precision("high")
    assert kind_of(f32, libraries.products).compute == IN_TF32 and matmul.allow_tf32
    flambeau.set_float32_matmul_precision("highest")
    assert kind_of(f32, libraries.products).compute == IN_32 and not matmul.allow_tf32
    assert matmul.allow_fp16_reduced_precision_reduction and not matmul.allow_fp16_accumulation
    matmul.allow_fp16_reduced_precision_reduction, matmul.allow_fp16_accumulation = False, True
    assert libraries.products == libraries.WIDE_SUMS_OF_FLOAT16 | libraries.SUMS_IN_FLOAT16
    assert kind_of(f16, libraries.products).scalar == f16
    a = flambeau.ones(8, 8, device="cuda", dtype=flambeau.float16)
    assert (a @ a == 8).all()
    matmul.allow_fp16_reduced_precision_reduction, matmul.allow_fp16_accumulation = True, False


# -- attention -------------------------------------------------------------------------------------------------------------


def formula(q, k, v, mask=None, causal=False):
    """PyTorch's operations in float64; a query that may look at nothing gets 0."""
    heads = q.shape[-3] // k.shape[-3] if k.dim() > 2 else 1
    k, v = (x.repeat_interleave(heads, -3) if heads > 1 else x for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else scores + mask
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    alone = (scores == -math.inf).all(-1, keepdim=True)
    return scores.masked_fill(alone, 0).softmax(-1).masked_fill(alone, 0) @ v


def check(q, k, v, mask=None, causal=False, dtype="bfloat16", turned=False):
    """Result and gradients on a GPU against the formula."""
    kind = getattr(flambeau, dtype)
    host = [flambeau.tensor(rng.standard_normal(shape)).to(kind) for shape in (q, k, v)]
    there = [(x.transpose(-2, -3).contiguous().transpose(-2, -3) if turned else x).cuda().requires_grad_() for x in host]
    theirs = [torch.tensor(x.double().numpy()).requires_grad_() for x in host]
    of_mask = None if mask is None else torch.tensor(mask if mask.dtype == bool else flambeau.tensor(mask).to(kind).double().numpy())
    given = None if mask is None else flambeau.tensor(mask) if mask.dtype == bool else flambeau.tensor(mask).to(kind)
    out = attend(*there, attn_mask=None if given is None else given.cuda(), is_causal=causal, enable_gqa=len(q) > 2 and q[-3] != k[-3])
    wanted = formula(*theirs, of_mask, causal)
    grad = flambeau.tensor(rng.standard_normal(out.shape)).to(kind)
    out.backward(grad.cuda())
    wanted.backward(torch.tensor(grad.double().numpy()))
    if turned:
        assert out.stride() == there[0].stride() and there[0].grad.stride() == there[0].stride()
    tolerance = 2e-2 if dtype == "bfloat16" else 3e-3
    for mine, other in zip((out, *[x.grad for x in there]), (wanted, *[x.grad for x in theirs]), strict=True):
        other = other.detach().numpy()
        np.testing.assert_allclose(mine.detach().cpu().double().numpy(), other, tolerance, tolerance * max(np.abs(other).max(), 1))


SHAPES = {
    "plain": ((2, 3, 40, 16), (2, 3, 48, 16), (2, 3, 48, 16)),
    "values of another size": ((2, 3, 33, 16), (2, 3, 35, 16), (2, 3, 35, 24)),
    "one batch": ((3, 40, 8), (3, 48, 8), (3, 48, 8)),
    "one head": ((40, 8), (48, 8), (48, 8)),
    "groups": ((2, 6, 40, 16), (2, 2, 48, 16), (2, 2, 48, 16)),
    "one key head": ((2, 4, 40, 16), (2, 1, 48, 16), (2, 1, 48, 16)),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_attention(graphs, shapes, causal):
    """Forward is one graph, backward another; heads may share keys, and lengths may differ."""
    check(*shapes, causal=causal)
    assert len(graphs) == 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_attention_where_heads_of_a_place_lie_together(graphs, dtype):
    """Nothing is copied, and results lie in the same way."""
    check(*[(2, 3, 40, 16)] * 3, dtype=dtype, turned=True)
    assert len(graphs) == 2


@pytest.mark.parametrize("shape", [(40, 48), (1, 48), (40, 1), (2, 1, 40, 48), (1, 3, 40, 48), (2, 3, 40, 48), (2, 1, 1, 48)], ids=str)
@pytest.mark.parametrize("kind", ["allowed", "added"])
def test_masks(graphs, shape, kind):
    """True where a query may look, or numbers to add; all that repeats to the scores. Queries that may look at nothing get 0, and no gradient."""
    mask = rng.random(shape) > 0.3 if kind == "allowed" else rng.standard_normal(shape)
    if kind == "allowed" and shape[-2] > 1:
        mask[..., 3, :] = False
    check(*SHAPES["plain"], mask=mask)
    assert len(graphs) == 2


@pytest.mark.parametrize("shape", [(40, 48), (2, 1, 40, 48), (2, 6, 40, 48)], ids=str)
def test_masks_of_heads_that_share_keys(graphs, shape):
    check(*SHAPES["groups"], mask=rng.random(shape) > 0.3)
    assert len(graphs) == 2


def test_what_cudnn_does_not_take(graphs):
    """Heads of a size that it has no kernels for, a few queries, float32: our own kernels do these."""
    check((1, 2, 40, 12), (1, 2, 48, 12), (1, 2, 48, 12))
    check((1, 2, 3, 16), (1, 2, 48, 16), (1, 2, 48, 16))
    x = flambeau.randn(1, 2, 40, 16, device="cuda", requires_grad=True)
    attend(x, x, x).sum().backward()
    assert not graphs


def test_operands_at_odd_addresses_are_copied(graphs):
    """cuDNN reads 16 bytes at a time."""
    wide = flambeau.randn(1, 2, 40, 20).bfloat16().cuda()
    x = wide[..., 2:18]
    y = x.contiguous()
    assert flambeau.equal(attend(x, x, x), attend(y, y, y)) and len(graphs) == 2


def test_masks_that_lie_differently(graphs):
    """A graph made for one mask is not run for another one of its shape that lies in another way, nor for operands at other addresses."""
    x = flambeau.randn(1, 2, 40, 16).bfloat16().cuda()
    wide = flambeau.randn(40, 64).bfloat16().cuda()
    for mask in (wide[:, :40].contiguous(), wide[:, :40], wide[:, 8:48], wide[:, 1:41]):
        assert flambeau.equal(attend(x, x, x, attn_mask=mask), attend(x, x, x, attn_mask=mask.contiguous()))
    shifted = flambeau.randn(1 * 2 * 40 * 16 + 1).bfloat16().cuda()[1:].view(1, 2, 40, 16)
    turned = flambeau.empty(1 * 2 * 40 * 16 + 1, dtype=flambeau.bfloat16, device="cuda")[1:].view(1, 40, 2, 16).transpose(1, 2)
    turned.copy_(shifted)
    wanted = shifted.clone()
    assert flambeau.equal(attend(shifted, shifted, shifted), attend(wanted, wanted, wanted))
    assert flambeau.equal(attend(turned, turned, turned), attend(wanted, wanted, wanted))


def test_second_derivatives_of_shared_keys(gpu):
    """The formula of the derivative holds for heads that share keys, too."""
    shapes = (1, 4, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4)
    operands = [flambeau.tensor(rng.standard_normal(s), dtype=flambeau.float64, requires_grad=True) for s in shapes]
    assert flambeau.autograd.gradgradcheck(lambda q, k, v: attend(q, k, v, enable_gqa=True), operands)


# -- batch norm ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dims", [2, 3])
def test_batch_norm(graphs, dims):
    """Images of half precision whose channels come last, with weights in float32: results, running averages, gradients, twice over."""
    name, last = f"BatchNorm{dims}d", {2: "channels_last", 3: "channels_last_3d"}[dims]
    mine, theirs = getattr(flambeau.nn, name)(16).cuda(), getattr(torch.nn, name)(16)
    weight, bias = rng.standard_normal((2, 16))
    for package, layer in ((flambeau, mine), (torch, theirs)):
        with package.no_grad():
            layer.weight.copy_(package.tensor(weight)), layer.bias.copy_(package.tensor(bias))
    for _ in range(3):
        host = flambeau.tensor(rng.standard_normal((3, 16, *(4, 5, 2)[:dims]))).bfloat16().to(memory_format=getattr(flambeau, last))
        x, y = host.cuda().requires_grad_(), torch.tensor(host.float().numpy()).requires_grad_()
        g = flambeau.tensor(rng.standard_normal(host.shape)).bfloat16()
        found, wanted = mine(x), theirs(y)
        found.backward(g.cuda()), wanted.backward(torch.tensor(g.float().numpy()))
        assert found.stride() == x.stride() and x.grad.stride() == x.stride() and found.dtype is flambeau.bfloat16
        for one, other in ((found, wanted), (x.grad, y.grad), (mine.weight.grad, theirs.weight.grad), (mine.bias.grad, theirs.bias.grad)):
            np.testing.assert_allclose(one.detach().float().cpu().numpy(), other.detach().numpy(), 2e-2, 3e-2)
        for one, other in ((mine.running_mean, theirs.running_mean), (mine.running_var, theirs.running_var)):
            np.testing.assert_allclose(one.cpu().numpy(), other.numpy(), 1e-5, 1e-5)
    assert len(graphs) == 6 and mine.running_mean._version == 3 and mine.num_batches_tracked.item() == 3


def test_batches_that_cudnn_does_not_take(graphs):
    """Row-major ones, channels that do not come in eights, and weights of half precision are ours."""
    for channels, layer in (
        (16, flambeau.nn.BatchNorm2d(16)),
        (12, flambeau.nn.BatchNorm2d(12)),
        (16, flambeau.nn.BatchNorm2d(16).bfloat16()),
    ):
        x = flambeau.randn(3, channels, 4, 5).bfloat16()
        x = x if channels == 16 and layer.weight.dtype is flambeau.float32 else x.to(memory_format=flambeau.channels_last)
        assert layer.cuda()(x.cuda()).shape == x.shape
    assert not graphs


def test_second_derivatives_of_batch_norm(graphs):
    """They follow from the formula, in float32."""
    host = flambeau.randn(3, 8, 2, 2).half().to(memory_format=flambeau.channels_last)
    found = []
    for device in ("cuda", "cpu"):
        layer, x = flambeau.nn.BatchNorm2d(8).to(device), host.to(device).requires_grad_()
        (grad,) = flambeau.autograd.grad((layer(x).float() ** 3).sum(), x, create_graph=True)
        (again,) = flambeau.autograd.grad((grad.float() ** 2).sum(), x)
        found.append(again.float().cpu().numpy())
    np.testing.assert_allclose(*found, 5e-2, 5e-2 * np.abs(found[1]).max())


# -- switches --------------------------------------------------------------------------------------------------------------


def test_cudnn_is_there_and_can_be_switched_off(graphs):
    """`torch.backends.cudnn` tells the truth, and what it is told has effect."""
    cudnn = flambeau.backends.cudnn
    x, w = flambeau.randn(2, 8, 8, 8, device="cuda"), flambeau.randn(8, 8, 3, 3, device="cuda")
    assert cudnn.is_available() and cudnn.version() >= 90000 and cudnn.is_acceptable(x) and not cudnn.is_acceptable(x.cpu())
    with cudnn.flags(enabled=False):
        mine = flambeau.conv2d(x, w)
        assert not graphs and not cudnn.enabled and not cudnn.is_acceptable(x)
    with cudnn.flags(enabled=True, allow_tf32=False):
        assert flambeau.allclose(flambeau.conv2d(x, w), mine, 1e-4, 1e-4) and len(graphs) == 1


def test_without_cudnn(gpu, monkeypatch):
    """Where it is not installed nothing asks for it."""
    monkeypatch.setattr(gpu.cudnn, "package", lambda: None)
    cudnn = flambeau.backends.cudnn
    assert not cudnn.is_available() and cudnn.version() is None and not gpu.cudnn.is_used()
    x = flambeau.randn(1, 2, 40, 16, device="cuda", dtype=flambeau.float16)
    assert attend(x, x, x).shape == x.shape


def test_benchmark_keeps_to_the_quickest(graphs):
    """Several plans are tried once, among them one that cannot be built, and the one that is taken gives the same."""
    x, w = flambeau.randn(2, 8, 8, 8, device="cuda"), flambeau.randn(8, 8, 3, 3, device="cuda")
    plain = flambeau.conv2d(x, w)
    with flambeau.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
        tuned = flambeau.conv2d(x, w)
        chosen = graphs[-1].chosen
        assert chosen >= 0 and flambeau.allclose(tuned, plain, 1e-4, 1e-4)
        flambeau.conv2d(x, w)
    assert graphs[-1].chosen == chosen and graphs[0].chosen == -1


def test_determinism_reaches_cudnn(graphs, monkeypatch):
    """Plans are made anew where the same bits are asked for in every run."""
    x = flambeau.randn(1, 2, 40, 16, device="cuda", dtype=flambeau.bfloat16, requires_grad=True)
    for deterministic in (False, True, True):
        with flambeau.backends.cudnn.flags(enabled=True, deterministic=deterministic):
            attend(x, x, x).sum().backward()
    _, any_bits, _, same_bits, _, again = graphs
    assert any_bits is not same_bits and same_bits is again


@pytest.mark.parametrize("way", [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], ids=str)
def test_sdpa_kernel(graphs, way):
    """cuDNN runs where it is allowed, our kernels where one of the other ways is."""
    x = flambeau.randn(1, 2, 40, 16, device="cuda", dtype=flambeau.bfloat16)
    with sdpa_kernel(way):
        attend(x, x, x)
        assert len(graphs) == (way is SDPBackend.CUDNN_ATTENTION)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), pytest.raises(RuntimeError, match="No viable backend"):
        attend(x.float(), x.float(), x.float())
