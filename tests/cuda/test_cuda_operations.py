"""One call or more of every family of operations, on the GPU against the CPU, with its gradient.

Where there is no GPU these run on the stand-in, with kernels evaluated by NumPy: the question is then whether an operation uses only what
CuPy has, and never mixes its arrays with NumPy's.
"""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

X = torch.tensor([[0.5, -1.25, 3.0, 0.5], [2.0, 0.25, -0.75, 1.5], [-2.5, 4.0, 1.0, -0.125]])
AT = torch.tensor([[0, 2, 1], [1, 0, 2]])
FLOAT = {
    "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(), "prod": lambda x: x.prod(0), "var": lambda x: x.var(1), "std": lambda x: x.std(),
    "amax": lambda x: x.amax(1), "max": lambda x: x.max(0), "min": lambda x: x.min(), "argmax": lambda x: x.argmax(1),
    "norm": lambda x: x.norm(dim=1), "logsumexp": lambda x: x.logsumexp(1), "median": lambda x: x.median(1), "any": lambda x: (x > 3).any(1),
    "all": lambda x: (x > -9).all(), "count": lambda x: (x > 0).count_nonzero(1), "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(0), "cumsum": lambda x: x.cumsum(1), "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: x.cummax(1), "logcumsumexp": lambda x: x.logcumsumexp(1), "sort": lambda x: x.sort(1, descending=True),
    "argsort": lambda x: x.argsort(0), "topk": lambda x: x.topk(2), "kthvalue": lambda x: x.kthvalue(2, 1), "mode": lambda x: x.mode(1),
    "unique": lambda x: x.detach().unique(), "quantile": lambda x: x.quantile(0.3, 1), "histc": lambda x: x.histc(4), "searchsorted":
    lambda x: torch.searchsorted(x.sort(1).values, x), "nonzero": lambda x: (x > 1).nonzero(), "masked_select": lambda x: x[x > 1],
    "gather": lambda x: x.gather(1, AT.to(x.device)), "scatter": lambda x: x.scatter(1, AT.to(x.device), 7.0), "index_select":
    lambda x: x.index_select(1, AT[0].to(x.device)), "getitem": lambda x: x[AT[0].to(x.device), AT[1].to(x.device)], "slice":
    lambda x: x[1:, ::2], "take": lambda x: x.take(AT.to(x.device)), "put": lambda x: x.index_put((AT[0].to(x.device),), x[:1] * 2),
    "index_add": lambda x: x.index_add(0, AT[0].to(x.device), x * 3), "embedding_rows": lambda x: x[AT.to(x.device)],
    "masked_fill": lambda x: x.masked_fill(x > 1, -1.0), "where": lambda x: torch.where(x > 0, x, x * 2), "flip": lambda x: x.flip(0, 1),
    "roll": lambda x: x.roll(1, 1), "cat": lambda x: torch.cat([x, x * 2], 1), "stack": lambda x: torch.stack([x, -x]), "split":
    lambda x: x.split(2, 1), "repeat": lambda x: x.repeat(2, 2), "tile": lambda x: x.repeat_interleave(2, 0), "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1), "diag": lambda x: x[:3, :3].diag(), "trace": lambda x: x[:3, :3].trace(), "diff": lambda x: x.diff(),
    "linear": lambda x: torch.nn.functional.linear(x, x * 2, x[:, 0]), "matmul": lambda x: x @ x.T, "einsum": lambda x: torch.einsum("ij,kj->ik", x, x), "outer": lambda x: torch.outer(x[0], x[1]), "dot":
    lambda x: torch.dot(x[0], x[1]), "cdist": lambda x: torch.cdist(x, x + 1), "cross": lambda x: torch.linalg.cross(x[:, :3], x[:, 1:]),
    "inv": lambda x: torch.linalg.inv(x @ x.T + torch.eye(3, device=x.device)), "det": lambda x: torch.linalg.det(x[:, :3]), "cholesky":
    lambda x: torch.linalg.cholesky(x @ x.T + torch.eye(3, device=x.device)), "solve": lambda x: torch.linalg.solve(x[:, :3], x),
    "svdvals": lambda x: torch.linalg.svdvals(x), "eigvalsh": lambda x: torch.linalg.eigvalsh(x @ x.T), "qr":
    lambda x: torch.linalg.qr(x.T).R.abs(), "matrix_exp": lambda x: torch.linalg.matrix_exp(x[:, :3] / 4), "lerp":
    lambda x: torch.lerp(x, x * 2, 0.3), "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5), "clamp": lambda x: x.clamp(-1, 1),
    "nan_to_num": lambda x: (x / 0).nan_to_num(), "round": lambda x: x.round(decimals=1), "expand": lambda x: x[:, None].expand(3, 2, 4).sum(1),
    "permute": lambda x: x.view(3, 2, 2).permute(2, 0, 1).contiguous(), "pad": lambda x: torch.constant_pad_nd(x, (1, 2), 0.5), "unfold":
    lambda x: x.unfold(1, 2, 1), "bincount": lambda x: (x.abs() * 2).long().flatten().bincount(), "bucketize":
    lambda x: torch.bucketize(x, torch.tensor([0.0, 1.0], device=x.device)), "renorm": lambda x: x.renorm(2, 0, 1.0), "fft":
    lambda x: torch.fft.rfft(x).abs(), "item": lambda x: x * x.sum().item(), "tolist": lambda x: x.tolist(), "isclose":
    lambda x: torch.isclose(x, x + 1e-9), "cov": lambda x: torch.cov(x), "trapezoid": lambda x: torch.trapezoid(x), "setitem": lambda x: _set(x),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x * 2, x[:, :2]), "causal attention":
    lambda x: torch.nn.functional.scaled_dot_product_attention(x, x * 2, x, is_causal=True), "gru":
    lambda x: torch.gru(x[:, None], x[None, :1, :1], [x.repeat(1, 1), x[:, :1], x[:, 0], x[:, 1]], True, 1, 0.0, False, False, False), "lstm":
    lambda x: torch.lstm(x[:, None], [x[None, :1, :1]] * 2, [x.repeat(2, 1)[:4], x.repeat(2, 1)[:4, :1]], False, 1, 0.0, False, False, False),
}  # fmt: skip


def _set(x):
    y = x.clone()
    y[0, 1:3] = 5.0
    y[:, -1] += y[:, 0]
    y[y > 4] = 0.0
    return y


@pytest.fixture(autouse=True)
def evaluated(gpu, monkeypatch):
    """On the stand-in kernels are evaluated by NumPy: compiling each of them takes half a second."""
    if gpu.real:
        return
    import fake_cupy

    from flambeau.kernels import arrays

    def run(kernel, operands, params, key, out_dtype, out=None):
        host = [a._np if isinstance(a, fake_cupy.ndarray) else a for a in operands]
        if not any(isinstance(a, np.ndarray) for a in host):
            host[0] = np.asarray(host[0]).astype(key)
        found = arrays.run(kernel, host, params, key, out_dtype)
        if out is None:
            return fake_cupy.wrap(found)
        np.copyto(out._np, found, casting="unsafe")
        return out

    monkeypatch.setattr(gpu, "run", run)
    for loop in ("fold", "rows"):  # their own tests are in test_cuda_loops.py; here CuPy's functions stand in for them
        monkeypatch.setattr(gpu, loop, lambda *args, **kwargs: False)


def results(found) -> list:
    return [found] if isinstance(found, torch.Tensor) else list(found) if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize("name", FLOAT)
def test_operation(gpu, name):
    """Values, shapes, dtypes and gradients are those of the CPU, and results stay on the GPU."""
    host, card = X.clone().requires_grad_(), X.cuda().requires_grad_()
    wanted, found = results(FLOAT[name](host)), results(FLOAT[name](card))
    assert len(wanted) == len(found)
    for w, f in zip(wanted, found, strict=True):
        if not isinstance(w, torch.Tensor):
            assert f == w
            continue
        assert f.is_cuda and f.shape == w.shape and f.dtype is w.dtype
        assert torch.allclose(f.detach().cpu().double(), w.detach().double(), rtol=1e-4, atol=1e-4)
    if not isinstance(wanted[0], torch.Tensor) or not wanted[0].requires_grad:
        return
    for w, f in zip(wanted, found, strict=True):
        if w.requires_grad:
            w.square().sum().backward(retain_graph=True)
            f.square().sum().backward(retain_graph=True)
    assert torch.allclose(card.grad.cpu(), host.grad, rtol=1e-3, atol=1e-3, equal_nan=True)


@pytest.mark.parametrize(
    "name", ["sum", "amax", "softmax", "sort", "cumsum", "gather", "index_add", "matmul", "cat", "masked_fill", "std", "topk"]
)
def test_half_precision(gpu, name):
    """bfloat16 goes through every kind of operation."""
    host = X.to(torch.bfloat16)
    for w, f in zip(results(FLOAT[name](host)), results(FLOAT[name](host.cuda())), strict=True):
        assert f.is_cuda and f.dtype is w.dtype and torch.allclose(f.cpu().double(), w.double(), rtol=2e-2, atol=2e-2)


def test_printing_and_pickling(gpu):
    """A tensor on the GPU prints with its device, and survives pickle and deepcopy."""
    import copy
    import pickle

    x = X.cuda()
    assert repr(x).endswith("device='cuda:0')")
    assert torch.equal(pickle.loads(pickle.dumps(x)), x) and torch.equal(copy.deepcopy(x), x) and copy.deepcopy(x).is_cuda


@pytest.mark.parametrize("name", FLOAT)
def test_operation_on_a_negative_view(gpu, name):
    """What lies in the memory of a GPU is no more what is computed with than it is in main memory: see kernels/mirrored.py."""
    plain, card = X.clone().requires_grad_(), (-X).cuda()._neg_view().requires_grad_()
    assert card.is_neg() and card.is_cuda
    for w, f in zip(results(FLOAT[name](plain)), results(FLOAT[name](card)), strict=True):
        if not isinstance(w, torch.Tensor):
            assert f == w
            continue
        assert f.is_cuda and torch.allclose(f.detach().cpu().double(), w.detach().double(), rtol=1e-4, atol=1e-4)
        if w.requires_grad:
            w.square().sum().backward(retain_graph=True)
            f.square().sum().backward(retain_graph=True)
    if plain.grad is not None:
        assert torch.allclose(card.grad.cpu(), plain.grad, rtol=1e-3, atol=1e-3, equal_nan=True)


WRITES = {
    "mul_": lambda z: z.conj().mul_(2j), "fill_": lambda z: z.mH.fill_(1 + 2j), "zero_": lambda z: z.conj()[0].zero_(),
    "copy_": lambda z: z.conj().copy_(z.clone() * 3j), "from main memory": lambda z: z.conj().copy_(torch.ones(3, 3) * 1j),
    "from a conjugate": lambda z: z.copy_((z * 1j).clone().mH), "setitem": lambda z: z.conj().__setitem__((0, slice(1, 3)), 5j),
    "index": lambda z: z.conj().__setitem__(AT[0].to(z.device), 3j), "mask": lambda z: z.conj().masked_fill_(z.real > 0, 2j),
    "imag": lambda z: z.conj().imag.add_(1), "out": lambda z: torch.add(z, 1j, out=z.conj()[:]), "mm": lambda z: torch.mm(z, z * 2, out=z.conj()),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_write_to_a_conjugate(gpu, name):
    """A write through a conjugate on a GPU changes what it is a view of, as on the CPU."""
    host = torch.complex(X[:, :3], X[:, 1:])
    card = host.cuda()
    WRITES[name](host)
    WRITES[name](card)
    assert card.is_cuda and torch.allclose(card.cpu(), host) and torch.allclose(card.conj().cpu(), host.conj())
    assert card.conj()[0, 0].item() == host.conj()[0, 0].item() and repr(card.conj().cpu()) == repr(host.conj())
