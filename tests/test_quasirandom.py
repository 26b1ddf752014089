"""Sobol's sequence against PyTorch's, bit by bit."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")


def engines(*args, **kwargs):
    return [f.quasirandom.SobolEngine(*args, **kwargs) for f in (torch, flambeau)]


@pytest.mark.parametrize("dimension", [1, 2, 5, 100, 21201])
def test_directions_are_pytorchs(dimension: int):
    """A direction number differs from PyTorch's."""
    theirs, ours = engines(dimension)
    np.testing.assert_array_equal(ours.sobolstate.numpy(), theirs.sobolstate.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", [None, 0, 123456])
@pytest.mark.parametrize("dimension", [1, 3, 40])
def test_draws_are_the_same_bits(dimension: int, seed: int | None, dtype: str):
    """Points differ from PyTorch's: the first ones, or after a draw, a leap forward, or a new beginning; scrambled by a seed or not."""
    theirs, ours = engines(dimension, scramble=seed is not None, seed=seed)
    for step in (
        "draw()",
        "draw(5)",
        "fast_forward(11)",
        "draw(3)",
        "reset()",
        "fast_forward(4)",
        "draw(100)",
        "reset()",
        "draw_base2(3)",
        "draw_base2(3)",
    ):
        found = []
        for f, engine in ((torch, theirs), (flambeau, ours)):
            name, number = step[:-1].split("(")
            options = {"dtype": getattr(f, dtype)} if name.startswith("draw") else {}
            found.append(getattr(engine, name)(*([int(number)] if number else []), **options))
        if step.startswith("draw"):
            np.testing.assert_array_equal(found[1].numpy(), found[0].numpy(), err_msg=step)
            assert found[1].numpy().dtype == dtype
        assert ours.num_generated == theirs.num_generated
        np.testing.assert_array_equal(ours.quasi.numpy(), theirs.quasi.numpy(), err_msg=step)


def test_scrambling_without_a_seed_uses_the_default_generator():
    """Scrambling without a seed does not follow manual_seed."""
    found = []
    for f in (torch, flambeau):
        f.manual_seed(7)
        found.append(f.quasirandom.SobolEngine(4, scramble=True).draw(6).numpy())
    np.testing.assert_array_equal(found[1], found[0])


def test_repr_copies_and_pickles():
    """An engine's repr is another, or a copy goes on elsewhere than the original."""
    for options in ({}, {"scramble": True, "seed": 3}, {"seed": 3}):
        theirs, ours = engines(2, **options)
        assert repr(ours) == repr(theirs)
    ours.draw(5)
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert again.draw(3).equal(copy.deepcopy(ours).draw(3))


def test_out_and_default_dtype():
    """`out` is not filled, or points are not of the default dtype."""
    ours = flambeau.quasirandom.SobolEngine(2)
    out = flambeau.empty(0)
    assert ours.draw(3, out=out) is out and tuple(out.shape) == (3, 2)
    flambeau.set_default_dtype(flambeau.float64)
    try:
        assert ours.draw(2).dtype is flambeau.float64
    finally:
        flambeau.set_default_dtype(flambeau.float32)


def test_misuse():
    """Too many dimensions, too many points, or an unbalanced number of them pass silently."""
    for dimension in (0, 21202):
        with pytest.raises(ValueError, match="dimension"):
            flambeau.quasirandom.SobolEngine(dimension)
    engine = flambeau.quasirandom.SobolEngine(1)
    engine.draw(3)
    with pytest.raises(ValueError, match="power of 2"):
        engine.draw_base2(1)
    with pytest.raises(ValueError, match="points"):
        engine.fast_forward(2**30 - 4).draw(2)
