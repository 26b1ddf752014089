"""Threads that use an operation for the first time together see nothing but its results.

What an operation makes at its first call (its plan, its kernels, its derivative) is made by whoever comes first, and another thread may come in the
middle of it. A switch interval of a microsecond hands the interpreter on after every few instructions.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

OPERATIONS = """
a + b; a - b; a * b; a / b; a % b; a ** 2; a ** 3.5; 2 ** a; -a; abs(a); a.exp(); a.log1p(); a.sin(); a.cos(); a.tan(); a.tanh()
a.sigmoid(); a.erf(); a.erfc(); a.sqrt(); a.rsqrt(); a.reciprocal(); a.sinh(); a.cosh(); a.atan(); a.asinh(); a.floor(); a.ceil()
a.round(); a.trunc(); a.frac(); a.sign(); a.square(); a.expm1(); a.log2(); a.log10(); a.lgamma(); a.digamma(); a.neg(); a.clamp(0, 1)
a.clamp(min=b); a.clamp_min(0.5); torch.maximum(a, b); torch.minimum(a, b); torch.fmax(a, b); torch.atan2(a, b); torch.hypot(a, b)
torch.logaddexp(a, b); torch.lerp(a, b, 0.3); torch.lerp(a, b, b); torch.addcmul(a, b, b, value=0.5); torch.addcdiv(a, b, b)
torch.where(a > b, a, b); torch.xlogy(a, b); torch.copysign(a, b); torch.fmod(a, b); torch.remainder(a, 0.7); torch.float_power(a, 2)
torch.nan_to_num(a); torch.logit(a.sigmoid()); torch.sinc(a); torch.special.i0(a); torch.special.entr(a); torch.special.ndtr(a)
torch.special.log_ndtr(a); torch.mvlgamma(a, 2); a.sum(); a.sum(0); a.sum(1, keepdim=True); a.mean(); a.mean(1); a.prod(); a.prod(0)
a.var(); a.var(1); a.std(0); torch.var_mean(a, 1)[0]; a.max(); a.max(1).values; a.min(0).values; a.amax(1); a.amin((0, 1))
a.aminmax().max; a.median(); a.median(1).values; a.mode(1).values; a.kthvalue(2).values; a.quantile(0.5); a.nanmean(); a.nansum(1)
a.logsumexp(1); a.cumsum(0); a.cumprod(1); a.cummax(0).values; a.logcumsumexp(1); a.norm(); a.norm(dim=1); a.norm(1, dim=0)
torch.linalg.vector_norm(a, 3); torch.linalg.matrix_norm(a); torch.dist(a, b); torch.cdist(a, b); a.softmax(0); a.softmax(1)
a.log_softmax(1); F.softmin(a, 1); F.relu(a); F.relu6(a); F.gelu(a); F.gelu(a, approximate="tanh"); F.silu(a); F.mish(a); F.elu(a)
F.selu(a); F.celu(a); F.leaky_relu(a); F.hardtanh(a); F.hardswish(a); F.hardsigmoid(a); F.softplus(a); F.softsign(a); F.tanhshrink(a)
F.softshrink(a); F.hardshrink(a); F.threshold(a, 0.1, 0.5); F.glu(a); F.logsigmoid(a); F.prelu(a, b[0]); F.normalize(a)
F.layer_norm(a, (6,)); F.layer_norm(a, (6,), b[0], b[1]); F.rms_norm(a, (6,)); F.batch_norm(a, None, None, training=True)
F.batch_norm(a, b[0].detach(), b[1].abs().detach()); F.group_norm(a.view(1, 6, 6), 2); F.instance_norm(a.view(1, 6, 6))
F.local_response_norm(a.view(1, 6, 6), 2); F.linear(a, b); F.linear(a, b, b[0]); F.bilinear(a, b, b.view(1, 6, 6)); a @ b; a.mm(b)
a.mv(b[0]); a[0].dot(b[0]); torch.bmm(a.view(1, 6, 6), b.view(1, 6, 6)); torch.addmm(a, a, b); torch.addmv(a[0], a, b[0])
torch.baddbmm(a.view(1, 6, 6), a.view(1, 6, 6), b.view(1, 6, 6)); torch.outer(a[0], b[0]); torch.einsum("ij,jk->ik", a, b)
torch.einsum("ij,ij->i", a, b); torch.tensordot(a, b, 1); torch.kron(a, b); torch.linalg.inv(a); torch.linalg.det(a)
torch.linalg.slogdet(a).logabsdet; torch.linalg.solve(a, b); torch.linalg.cholesky(a @ a.T + torch.eye(6)); torch.linalg.qr(a).R
torch.linalg.eigvalsh(a + a.T); torch.linalg.svdvals(a); torch.linalg.pinv(a); torch.matrix_exp(a); torch.linalg.multi_dot([a, b, a])
a.trace(); a.tril(); a.triu(1); a.diagonal(); torch.diag(a[0]); torch.cat([a, b]); torch.cat([a, b], 1); torch.stack([a, b])
torch.hstack([a, b]); a.split(2)[0]; a.chunk(3, 1)[1]; a.unbind(1)[2]; a.t(); a.transpose(0, 1); a.permute(1, 0); a.view(4, 9)
a.reshape(9, 4); a.flatten(); a.unsqueeze(1); a.view(1, 6, 6).squeeze(0); a.expand(2, 6, 6); a.repeat(2, 2); a.repeat_interleave(2, 0)
a.tile(2, 1); a.roll(1, 0); a.flip(0); a.rot90(); a.unfold(0, 2, 2); a.movedim(0, 1); a.narrow(0, 1, 3); a.select(1, 2); a[1:4]
a[::2, 1:]; a[0]; a[0, 1]; a[[0, 2]]; a[index]; a[a > 0]; a[..., None]; a.index_select(0, index); a.gather(0, index.view(1, 6))
a.take(index); a.masked_select(b > 0); a.masked_fill(b > 0, 0.5); a.scatter(0, index.view(1, 6), 0.5)
a.scatter_add(0, index.view(1, 6), b); a.index_add(0, index, b); a.index_fill(0, index[:2], 0.5); a.index_copy(0, index, b)
a.index_put((index,), b[0]); a.take_along_dim(index.view(6, 1), 1); a.sort(0).values; a.argsort().float() + a; a.topk(3).values
a.msort(); a.diff(); torch.trapezoid(a); torch.cov(a); torch.corrcoef(a); torch.cross(a[:, :3], b[:, :3]); torch.cosine_similarity(a, b)
F.pairwise_distance(a, b); F.mse_loss(a, b); F.l1_loss(a, b); F.smooth_l1_loss(a, b); F.huber_loss(a, b); F.cross_entropy(a, index)
F.nll_loss(a, index); F.kl_div(a, b.sigmoid()); F.binary_cross_entropy(a.sigmoid(), b.sigmoid())
F.binary_cross_entropy_with_logits(a, b.sigmoid()); F.poisson_nll_loss(a, b.abs()); F.gaussian_nll_loss(a, b, b.abs() + 1)
F.margin_ranking_loss(a, b, b.sign()); F.hinge_embedding_loss(a, b.sign()); F.soft_margin_loss(a, b.sign())
F.triplet_margin_loss(a, b, -b); F.cosine_embedding_loss(a, b, b[0].sign()); F.multi_margin_loss(a, index)
F.ctc_loss(a.view(6, 1, 6).log_softmax(2), index[:2].view(1, 2) % 5 + 1, (6,), (2,)); F.embedding(index, a)
F.embedding_bag(index.view(2, 3), a); F.one_hot(index).float() + a; F.conv1d(a.view(1, 6, 6), b.view(6, 6, 1))
F.conv1d(a.view(1, 6, 6), b[:, :3].reshape(1, 6, 3), padding=1); F.conv2d(a.view(1, 1, 6, 6), b[:2, :2].reshape(1, 1, 2, 2))
F.conv_transpose2d(a.view(1, 1, 6, 6), b[:2, :2].reshape(1, 1, 2, 2)); F.conv3d(a.view(1, 1, 1, 6, 6), b[:2, :2].reshape(1, 1, 1, 2, 2))
F.max_pool1d(a.view(1, 6, 6), 2); F.max_pool2d(a.view(1, 1, 6, 6), 2); F.avg_pool2d(a.view(1, 1, 6, 6), 2)
F.adaptive_avg_pool2d(a.view(1, 1, 6, 6), 2); F.adaptive_max_pool2d(a.view(1, 1, 6, 6), 2); F.lp_pool2d(a.view(1, 1, 6, 6), 2, 2)
F.interpolate(a.view(1, 1, 6, 6), scale_factor=2); F.interpolate(a.view(1, 1, 6, 6), size=4, mode="bilinear"); F.pad(a, (1, 1))
F.pad(a.view(1, 6, 6), (1, 1), mode="reflect"); F.unfold(a.view(1, 1, 6, 6), 2); F.fold(a.view(1, 4, 9), 4, 2)
F.pixel_shuffle(a.view(1, 4, 3, 3), 2); F.grid_sample(a.view(1, 1, 6, 6), b[:, :4].reshape(1, 3, 4, 2), align_corners=False)
F.scaled_dot_product_attention(a.view(1, 1, 6, 6), b.view(1, 1, 6, 6), a.view(1, 1, 6, 6)); torch.fft.rfft(a).abs()
torch.fft.fft2(a).real; torch.view_as_complex(a.view(6, 3, 2)).abs(); torch.polar(a.abs(), b).imag; torch.complex(a, b).conj().angle()
a.double().sum(); a.half().float(); a.bfloat16().float(); a.to(torch.int32).float() + a; a.clone().add_(b); a.clone().mul_(b)
a.clone().copy_(b) + a; a.clone().fill_(2.0) + a; a.clone().zero_() + a; a.clone().clamp_(0, 1); a.clone().relu_()
a.clone().masked_fill_(b > 0, 0.5); a.clone().index_add_(0, index, b); a.clone().t_(); a.clone().unsqueeze_(0); (a > b).float() + a
(a == b).float() + a; torch.logical_and(a > 0, b > 0).float() + a; torch.isfinite(a).float() + a
torch.bucketize(a.detach(), b[0].sort().values).float() + a; torch.searchsorted(b[0].sort().values, a.detach()).float() + a
a.argmax(1).float().sum() + a.sum(); a.count_nonzero() + a; torch.bincount(index).float() + a; torch.histc(a.detach()).sum() + a
torch.block_diag(a, b); torch.cartesian_prod(a[0], b[0]); torch.combinations(a[0]); torch.meshgrid(a[0], b[0], indexing="ij")[0]
torch.vander(a[0]); torch.renorm(a, 2, 0, 1.0); torch.addr(a, a[0], b[0])
torch.baddbmm(a.view(6, 1, 6), b.view(6, 1, 6), a.expand(6, 6, 6)); torch.heaviside(a.detach(), b.detach()) + a; a.detach() // b.detach() + a
a.detach().unique().sum() + a
"""

PROGRAM = """
import random, sys, threading, traceback
import flambeau as torch
import flambeau.nn.functional as F

THREADS, seed = 6, int(sys.argv[1])
calls = {text: eval("lambda a, b, index: " + text) for text in sys.argv[2].replace(chr(10), "; ").split("; ") if text}
assert len(calls) >= 200
order = random.Random(seed).sample(sorted(calls), len(calls))
A, B = (torch.randn(6, 6, generator=torch.Generator().manual_seed(seed)) + 3 * torch.eye(6) for seed in (1, 2))
index = torch.tensor([0, 2, 1, 3, 5, 4])
together, found = threading.Barrier(THREADS), {text: [] for text in calls}


def step(call):
    a, b = A.clone().requires_grad_(), B.clone().requires_grad_()
    result = call(a, b, index)
    result.sum().backward()
    return [result.detach(), a.grad, b.grad]


def work():
    for text in order:
        together.wait()
        try:
            found[text].append(step(calls[text]))
        except BaseException:
            found[text].append(traceback.format_exc())


def same(x, y):
    return x is y if x is None or y is None else x.dtype is y.dtype and torch.equal(x.nan_to_num(), y.nan_to_num())


sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=work) for _ in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.setswitchinterval(5e-3)
for text in order:
    expected = step(calls[text])
    for result in found[text]:
        assert not isinstance(result, str), text + chr(10) + result
        assert all(map(same, result, expected)), text
"""


@pytest.mark.parametrize("seed", range(2))
def test_cold_operations_in_threads(seed: int) -> None:
    """A thread sees an error, or another result or gradient, because another one is calling the operation for the first time, too."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(seed), OPERATIONS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert not done.returncode, done.stderr[-3000:]
