"""The same call in both frameworks: the result, its gradients and, in float64, the gradients of those."""

from __future__ import annotations

from oracle import assert_same, carried, torch

import flambeau

ROOM = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.complex128: 1e-10}


def sample(*shape, dtype=torch.float64, seed=0):
    """Normal numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def check(run, *operands, first=True, second=False, strides=True, room=None):
    """`run(functions of the framework, *tensors)` gives the same in both; so do first and second derivatives, if asked for."""
    theirs = [None if a is None else a.detach().clone(memory_format=torch.preserve_format) for a in operands]
    mine = [None if a is None else carried(a) for a in theirs]
    if first or second:
        for a in (*theirs, *mine):
            if a is not None:
                a.requires_grad_()
    expected, found = run(torch, *theirs), run(flambeau, *mine)
    room = ROOM[operands[0].dtype] if room is None else room
    assert_same(found, expected, strides=strides, tolerance=room * scale(expected))
    if not first and not second:
        return
    leaves = [(a, b) for a, b in zip(theirs, mine, strict=True) if a is not None]
    weight = sample(*expected.shape, seed=7).to(expected.dtype)
    weights = weight.requires_grad_(second), carried(weight.detach()).requires_grad_(second)
    of_torch = torch.autograd.grad(expected, [a for a, _ in leaves], weights[0], create_graph=second)
    of_mine = flambeau.autograd.grad(found, [b for _, b in leaves], weights[1], create_graph=second)
    leaves.append(weights)  # of what is linear, the gradients depend on this alone
    for mine_one, theirs_one in zip(of_mine, of_torch, strict=True):
        assert_same(mine_one.detach(), theirs_one.detach(), strides=False, tolerance=10 * room * scale(theirs_one))
    if second:
        factors = [sample(*g.shape, seed=11 + i).to(g.dtype) for i, g in enumerate(of_torch)]
        total = sum((g * f).abs().pow(2).sum() for g, f in zip(of_torch, factors, strict=True))
        mine_total = sum((g * carried(f)).abs().pow(2).sum() for g, f in zip(of_mine, factors, strict=True))
        again = torch.autograd.grad(total, [a for a, _ in leaves], allow_unused=True)
        mine_again = flambeau.autograd.grad(mine_total, [b for _, b in leaves], allow_unused=True)
        for mine_one, theirs_one in zip(mine_again, again, strict=True):
            if mine_one is None or theirs_one is None:  # nothing is zero
                assert all(not g.any() for g in (mine_one, theirs_one) if g is not None)
            else:
                assert_same(mine_one, theirs_one, strides=False, tolerance=100 * room * scale(theirs_one))


def scale(tensor) -> float:
    """The size of the largest number, at least 1: sums of many products are as exact as their largest parts."""
    return max(1.0, float(tensor.detach().abs().max())) if tensor.numel() else 1.0
