"""A loss in both frameworks: value, first and second derivatives, warnings, errors."""

from __future__ import annotations

import warnings

import pytest
from oracle import assert_same, carried, torch

import flambeau

ROOM = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 4e-2, torch.float16: 1e-2}


def sample(*shape, dtype=torch.float64, seed=0):
    """Normal numbers, the same in every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def labels(n, *shape, seed=0):
    """Class numbers below n."""
    return torch.randint(0, n, shape, generator=torch.Generator().manual_seed(seed))


def mine(value):
    """A tensor, or tensors in a dict, carried over; anything else as it is."""
    if isinstance(value, dict):
        return {k: mine(v) for k, v in value.items()}
    return carried(value) if isinstance(value, torch.Tensor) else value


def check(name, *operands, second=False, room=None, constant=(), **options):
    """nn.functional.<name> gives what PyTorch's gives, for all operands of floating dtype but those in `constant` also as gradients."""
    theirs = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in operands]
    ours = [mine(a) for a in theirs]
    wanted = [i for i, a in enumerate(theirs) if isinstance(a, torch.Tensor) and a.is_floating_point() and i not in constant]
    for i in wanted:
        theirs[i].requires_grad_()
        ours[i].requires_grad_()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = getattr(torch.nn.functional, name)(*theirs, **options)
        found = getattr(flambeau.nn.functional, name)(*ours, **mine(options))
    room = room or ROOM[expected.dtype]
    assert_same(found.detach(), expected.detach(), strides=False, tolerance=room)
    weight = sample(*expected.shape, dtype=expected.dtype, seed=7)
    for_them = torch.autograd.grad((expected * weight).sum(), [theirs[i] for i in wanted], create_graph=second, allow_unused=True)
    for_us = flambeau.autograd.grad((found * mine(weight)).sum(), [ours[i] for i in wanted], create_graph=second, allow_unused=True)
    for ours_, theirs_ in zip(for_us, for_them, strict=True):
        if theirs_ is not None:
            assert_same(ours_.detach(), theirs_.detach(), strides=False, tolerance=10 * room)
    if second:
        total = sum((g * sample(*g.shape, seed=11)).sum() for g in for_them)
        own = sum((g * mine(sample(*g.shape, seed=11))).sum() for g in for_us)
        again = [None] * len(wanted)
        if total.requires_grad:
            again = torch.autograd.grad(total, [theirs[i] for i in wanted], allow_unused=True)
        if not own.requires_grad:  # PyTorch may have a graph that leads to zeros
            assert all(g is None or not g.clone().any() for g in again)
            return
        found = flambeau.autograd.grad(own, [ours[i] for i in wanted], allow_unused=True)
        for ours_, theirs_ in zip(found, again, strict=True):
            if theirs_ is not None:
                assert_same(
                    flambeau.zeros(theirs_.shape, dtype=flambeau.float64) if ours_ is None else ours_, theirs_.clone(), False, 100 * room
                )


def check_error(name, *operands, match=None, **options):
    """Both refuse, with the same type; the words say `match`."""
    with pytest.raises(Exception) as theirs:
        getattr(torch.nn.functional, name)(*operands, **options)
    with pytest.raises(theirs.type, match=match) as ours:
        getattr(flambeau.nn.functional, name)(*map(mine, operands), **mine(options))
    assert ours.type is theirs.type
