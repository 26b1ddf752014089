"""Mixed precision, the scaler and checkpoints on a GPU, or on the stand-in for one."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.utils.checkpoint import checkpoint

F = torch.nn.functional


@pytest.fixture(autouse=True)
def _gpu(gpu):
    """All tests here need it."""


def test_region_casts_on_its_device_alone():
    """A region of CUDA casts on the CPU, or does not on the GPU; the lists of the two devices are mixed up."""
    here, there = torch.ones(2, 2), torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda"):
        assert (there @ there).dtype is torch.float16
        assert (here @ here).dtype is torch.float32
        assert there.half().exp().dtype is torch.float32
        with torch.autocast("cpu"):
            assert (there @ there).dtype is torch.float16 and (here @ here).dtype is torch.bfloat16
            assert here.bfloat16().exp().dtype is torch.bfloat16
    with torch.autocast("cuda", torch.bfloat16):
        assert F.linear(there, there).dtype is torch.bfloat16


def step(device: str, bad: bool):
    """A training step in float16 with a scaler."""
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4).to(device))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=1)
    with torch.autocast(device, torch.float16):
        loss = F.linear(torch.ones(2, 4, device=device), weight).float().square().mean()
    scaler.scale(loss).backward()
    if bad:
        weight.grad[1, 2] = float("inf")
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return weight.detach().cpu(), scaler.get_scale(), scaler.state_dict()


@pytest.mark.parametrize("bad", [False, True])
def test_scaler_on_a_gpu(bad: bool):
    """A scaled step on a GPU ends elsewhere than on the CPU."""
    (ours, *facts), (expected, *known) = step("cuda", bad), step("cpu", bad)
    assert torch.allclose(ours, expected, atol=1e-3)
    assert facts == known and facts[0] == (4.0 if bad else 16.0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_the_same_masks_again(reentrant: bool):
    """Dropout on a GPU has other masks when a checkpointed function is run again."""
    x = torch.ones(64, device="cuda", requires_grad=True)
    torch.manual_seed(0)
    y = checkpoint(lambda x: F.dropout(x * 2, 0.5), x, use_reentrant=reentrant)
    y.sum().backward()
    assert torch.equal(x.grad.cpu(), y.detach().cpu())


def test_gamma_numbers(gpu):
    """Gamma and Dirichlet numbers on a GPU have another mean than their parameters say, or no gradient."""
    if not gpu.real:
        pytest.skip("the stand-in has no sampler by rejection")
    a = torch.full((4000,), 2.5, device="cuda", requires_grad=True)
    drawn = torch.distributions.Gamma(a, torch.ones(4000, device="cuda")).rsample()
    assert drawn.is_cuda and abs(drawn.mean().item() - 2.5) < 0.15
    drawn.sum().backward()
    assert abs(a.grad.mean().item() - 1) < 0.1  # the mean is the parameter
    parts = torch.distributions.Dirichlet(torch.ones(100, 3, device="cuda")).sample()
    assert torch.allclose(parts.sum(-1), torch.ones(100, device="cuda"))
