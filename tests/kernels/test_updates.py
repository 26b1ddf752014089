"""Update rules: the compiled loop, NumPy's evaluation and ordinary operations on tensors are one and the same."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import flambeau
from flambeau.kernels.loops import update_loops, updates
from flambeau.kernels.native import native
from flambeau.ops.updates import RULES, everything

DTYPES = {"float32": 3e-6, "float64": 1e-13, "float16": 2e-3, "bfloat16": 1.6e-2}
NUMBERS = {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "beta1": 0.9, "beta2": 0.97, "eps": 1e-2, "weight_decay": 0.1, "step": 9.0, "mu": 0.4,
           "mu_next": 0.5, "mu_product": 0.3, "lr_decay": 0.1, "rho": 0.8, "alpha": 0.7, "etaminus": 0.5, "etaplus": 1.2, "step_size_min": 1e-2,
           "step_size_max": 3.0, "eta": 0.1, "lambd": 0.2, "weight": 0.3, "factor": 0.3}  # fmt: skip


def options(update, flags: bool) -> list:
    return [NUMBERS.get(name, flags) for name in update.options]


def operands(update, dtype: str, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    signed = ("param", "grad", "averaged", "current", "exp_avg", "prev", "momentum_buffer", "grad_avg", "ax")
    found = [rng.standard_normal(n) if name in signed else rng.random(n) * 4 + 10 for name in update.operands]
    return [a.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for a in found]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("update", everything(), ids=lambda u: u.name)
def test_compiled_as_evaluated(update, dtype):
    """The generated loop computes what the NumPy evaluator does."""
    if native.lib is None:
        pytest.skip("nothing is compiled")
    for flags in (False, True):
        a, b = operands(update, dtype, 1003), operands(update, dtype, 1003)
        numbers = update.numbers(*options(update, flags))
        assert update.launch(tuple([x] for x in a), numbers) is False
        updates._evaluate(update, b, numbers)
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x.astype(np.float64), y.astype(np.float64), rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize("flags", [False, True])
@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.formula.__name__)
def test_loop_as_operations(rule, flags):
    """The rule on tensors, by ordinary operations, gives what the loop gives."""
    states = rule.operands[2:]
    update = rule.kernel(states)
    arrays = operands(update, "float64", 57)
    tensors = [flambeau.from_numpy(a.copy()) for a in arrays]
    found = rule(*tensors, **dict(zip(rule.options, options(update, flags), strict=True)))
    updates.run(update, tuple([a] for a in arrays), options(update, flags))
    for i, new in zip(update.written, found, strict=not update.noted):
        np.testing.assert_allclose(arrays[i], new.numpy(), rtol=1e-12)


def test_what_the_launcher_refuses():
    """Other dtypes, layouts, shapes and read-only memory are left to Python, and nothing is written."""
    if native.lib is None:
        pytest.skip("nothing is compiled")
    launch = next(u for u in everything() if u.name == "update.average").launch
    good = lambda: np.ones(4, np.float32)  # noqa: E731
    frozen = good()
    frozen.flags.writeable = False
    for a, b in ((good(), np.ones(4)), (np.ones(8, np.float32)[::2], good()), (good(), np.ones(5, np.float32)), (frozen, good()),
                 (np.ones(4, np.int32), np.ones(4, np.int32)), (good(), [1.0])):  # fmt: skip
        untouched = good()
        assert launch(([untouched, a], [good() * 3, b]), (0.5, 0.5)) is NotImplemented
        assert untouched.tolist() == [1.0] * 4
    assert launch(([], []), (0.5, 0.5)) is False
    assert launch(([good()], [good()]), (0.5,)) is NotImplemented
    with pytest.raises(TypeError):
        launch(([],), (0.5, 0.5))
    with pytest.raises(IndexError):
        launch(([good(), good()], [good()]), (0.5, 0.5))


def test_empty_tensors_between_others():
    """Tensors of no elements take no block, wherever they stand."""
    update = next(u for u in everything() if u.name == "update.average")
    sizes = [0, 20_000, 0, 0, 5, 40_000, 0]
    a, b = [np.zeros(n) for n in sizes], [np.arange(float(n)) for n in sizes]
    updates.run(update, (a, b), [0.25])
    for x, y in zip(a, b, strict=True):
        assert (x == y * 0.25).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_noted(dtype, monkeypatch):
    """One infinity or NaN among many tensors, in any layout, with and without the compiled loop, is noticed; finite ones are not."""
    unscaled = next(u for u in everything() if u.name == "update.unscaled")
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(unscaled, "launch", native.not_compiled)
        for bad in (1.0, np.inf, -np.inf, np.nan):
            for strided in (False, True):
                some = [np.ones((300, 70), ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype) for _ in range(3)]
                some = [a[:, ::2] for a in some] if strided else some
                some[1][299, 30] = bad
                assert updates.run(unscaled, (some,), [0.5]) is (bad != 1.0)
                assert some[2].astype(float).sum() == some[2].size / 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_side_by_side_in_one_buffer(dtype, monkeypatch):
    """Tensors of any layout are gathered, scaled, into slices of a buffer: NaNs that were in it are gone, what lies between is untouched."""
    gathered = next(u for u in everything() if u.name == "update.gathered")
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    values = [np.arange(1.0, 13).reshape(3, 4).astype(kind), np.arange(20_000.0).astype(kind), np.ones((4, 3), kind).T, np.array(7, kind)]
    before = [a.copy() for a in values]
    for compiled in (True, False):
        if not compiled:
            monkeypatch.setattr(gathered, "launch", native.not_compiled)
        buffer, places, at = np.full(20_100, np.nan, kind), [], 0
        for a in values:
            places.append(buffer[at : at + a.size].reshape(a.shape))
            at += a.size + 1
        updates.run(gathered, (places, values), [0.25])
        for place, a, same in zip(places, values, before, strict=True):
            assert (a == same).all()
            assert (place == (a.astype(np.float64) * 0.25).astype(kind)).all()
        assert np.isnan(buffer.astype(np.float64)).sum() == buffer.size - sum(a.size for a in values)


def test_numbers_are_computed_in_double():
    """1 - 0.999 is handed to a float32 loop with all its digits."""
    adam = next(u for u in everything() if u.name == "update.adam")
    given = {name: NUMBERS.get(name, False) for name in adam.options} | {"beta2": 0.999}
    assert 1 - 0.999 in adam.numbers(**given)
    assert "param[" in update_loops.print_update(adam, "float32")
