"""Loops over channels and groups of channels, compiled under each schedule, against their formulas in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from test_loops import EPS, all_stores, shaken

import flambeau.ops.normalization  # noqa: F401  it declares loops
from flambeau.kernels.loops import channels
from flambeau.kernels.loops.language import DECLARED, EACH, LINE, ROW, Loop, line_total, total_of_lines
from flambeau.kernels.native import native

pytestmark = pytest.mark.skipif(native.lib is None, reason="nothing is compiled here")
LOOPS = [loop for loop in DECLARED.values() if loop.lines]
SHAPES = [(1, 3), (16, 16), (70, 33), (9, 600), (4, 6, 1), (2, 6, 5), (3, 4, 7, 9), (2, 2, 70, 67)]


def operands_of(loop: Loop, dtype: str, shape: tuple[int, ...], groups: int, last: bool, special: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shape))
    sizes = {ROW: shape, EACH: (shape[0], groups) if groups else shape[1:2], LINE: shape[1:2]}
    found = [rng.standard_normal(sizes[access]).astype(dtype) for access in loop.loads]
    for i, access in enumerate(loop.loads):
        if access == ROW:
            found[i] += 5
            found[i] = np.moveaxis(np.ascontiguousarray(np.moveaxis(found[i], 1, -1)), -1, 1) if last else found[i]
        found[i] = np.abs(found[i]) if i >= 2 and access == EACH else found[i]
    if special:
        found[0][0, 0].flat[:1], found[0][-1, -1].flat[-1:] = np.inf, np.nan
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_a_loop_over_channels_computes_its_formula(loop, dtype, monkeypatch):
    """What a compiled loop finds of channels, or of groups of them, is not what its formula says."""
    options = (1e-3,) * loop.options
    for shape in SHAPES:
        for groups, last in ((0, False), (0, True), (2, False), (shape[1], False)):
            if (LINE in loop.stores and not groups) or (groups and shape[1] % groups):
                continue
            for special in (False, True):
                operands = operands_of(loop, dtype, shape, groups, last, special)
                x = operands[0]
                found = channels._compiled(loop, x, operands, options, groups)
                assert found is not None
                wide = [a.astype(float) for a in operands]

                def formula(unit: float, seed: int, wide=wide, x=x, groups=groups) -> tuple:
                    with monkeypatch.context() as patch:
                        patch.setattr(channels, "evaluate", lambda loop, given, options: shaken(loop, given, options, unit, seed))
                        return all_stores(channels._by_numpy(loop, x.astype(float), wide, options, groups))

                exact, others = formula(0.0, 0), [formula(8 * EPS[dtype], seed) for seed in range(1, 9)]
                for k, (got, value) in enumerate(zip(all_stores(found), exact, strict=True)):
                    with np.errstate(all="ignore"):
                        room = 4 * np.max([np.abs(o[k] - value) for o in others], 0) + 2 * EPS[dtype] * np.abs(value)
                        close = (np.abs(got - value) <= room) | (got == value) | (np.isnan(got) & np.isnan(value))
                    what = f"{loop.name} {dtype} {shape} groups={groups} last={last} special={special}, store {k}"
                    assert close.all(), f"{what}: {got[~close][:3]} is not {value[~close][:3]}"
                    assert got.dtype == x.dtype and got.shape == value.shape, what
                    assert got.strides == x.strides or got.shape != x.shape, what


def test_a_large_mean_costs_no_digits():
    """The variance of numbers a thousand deviations from zero is that of the numbers without their mean."""
    x = np.random.default_rng(0).standard_normal((40, 8, 30))
    far = (x + 1000).astype(np.float32)
    ones = np.ones(8, np.float32)
    _, mean, _, var = channels.run(DECLARED["norm"], (far, ones, ones), (0.0,))
    np.testing.assert_allclose(mean, far.mean((0, 2), dtype=float), rtol=1e-6)
    np.testing.assert_allclose(var, far.astype(float).var((0, 2)), rtol=1e-5)


def test_results_do_not_depend_on_threads():
    """A channel is added up in one order, by however many threads."""
    x, g = np.random.default_rng(1).standard_normal((2, 16, 12, 40, 40)).astype(np.float32)
    ones = np.ones(12, np.float32)
    before, found = native.lib.get_num_threads(), []
    try:
        for threads in (1, 2):
            native.lib.set_num_threads(threads)
            y, mean, rstd, _ = channels.run(DECLARED["norm"], (x, ones, ones), (1e-5,))
            found.append((y, *channels.run(DECLARED["norm_backward"], (g, x, ones, mean, rstd))))
    finally:
        native.lib.set_num_threads(before)
    assert all(map(np.array_equal, *found))


def test_a_number_for_each_line_must_be_one():
    """What differs along a line is stored as one number for all of it."""
    with pytest.raises(TypeError, match="differs along the line"):
        Loop("wrong", lambda x: x, "ri", "rj", lines=True).values  # noqa: B018
    assert Loop("right", lambda x: total_of_lines(line_total(x)), "ri", "r", lines=True).values


def test_a_repeated_gradient_goes_through_the_same_loop(monkeypatch):
    """A gradient that lies otherwise than the input, as that of a sum does, sends everything to NumPy, or is read as if it did not."""
    x, ones = np.random.default_rng(2).standard_normal((4, 6, 5)).astype(np.float32), np.ones(6, np.float32)
    _, mean, rstd, _ = channels.run(DECLARED["norm"], (x, ones, ones), (1e-5,))
    g = np.broadcast_to(np.float32(2), x.shape)
    monkeypatch.setattr(channels, "_by_numpy", None)
    for found, wanted in zip(*[channels.run(DECLARED["norm_backward"], (a, x, ones, mean, rstd)) for a in (g, g.copy())], strict=True):
        assert np.array_equal(found, wanted)
