"""Steps of optimizers on a GPU: many tensors in a launch, any layout, half precision; the same numbers as in main memory."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.kernels.loops.cuda import Instance, print_loop
from flambeau.ops import updates

STEPS = {
    "SGD": {"momentum": 0.9, "nesterov": True}, "Adam": {"amsgrad": True}, "AdamW": {}, "RMSprop": {"centered": True, "momentum": 0.9},
    "Rprop": {}, "RAdam": {}, "NAdam": {},
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_same_as_in_main_memory(gpu, name):
    """Sixty tensors, more than one launch takes, some empty and some transposed, move as they do on the CPU."""
    torch.manual_seed(0)
    shapes = [(3, 4), (0,), (70, 5), (), (7,)] * 12
    starts, grads = [torch.randn(s) for s in shapes], [torch.randn(s) for s in shapes]
    starts[2], grads[2] = starts[2].T, grads[2].T
    starts[7] = torch.randn(10, 70)[::2].T

    def moved(device):
        params = [p.detach().to(device).requires_grad_() for p in starts]
        optimizer = getattr(torch.optim, name)(params, **STEPS[name])
        for _ in range(7):
            for p, g in zip(params, grads, strict=True):
                p.grad = g.to(device).reshape(p.shape) if g.numel() == p.numel() else None
            optimizer.step()
        return params

    cards = moved("cuda")  # first: those in main memory are moved where they are
    for host, card in zip(moved("cpu"), cards, strict=True):
        assert torch.allclose(card.cpu(), host, rtol=1e-5, atol=1e-6)


def test_half_precision(gpu):
    """bfloat16 is computed in float32 and rounded once."""
    p = torch.full((5,), 1.0, dtype=torch.bfloat16, device="cuda").requires_grad_()
    p.grad = torch.full_like(p, 3.0)
    torch.optim.SGD([p], lr=0.01).step()
    assert p.dtype is torch.bfloat16 and p.tolist() == [0.96875] * 5


@pytest.mark.parametrize("update", updates.everything(), ids=lambda u: u.name)
def test_every_rule_prints(update):
    """Every rule is a CUDA kernel, named after it, that writes all but the gradient."""
    text = print_loop(Instance(update.loop, "float32", 256, listed=True))
    assert f"fl_{update.name.replace('.', '_')}_f32(const __grid_constant__ Pieces all" in text and text.count("{") == text.count("}")
    assert "(z0 + at) = " in text and "z0 = (float *)b0" in text and "*)b1" not in text
