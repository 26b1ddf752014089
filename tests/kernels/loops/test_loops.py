"""Loops in every form: compiled under each schedule and evaluated by NumPy against double precision, and their derivatives against differences."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import flambeau.ops.cross_entropy
import flambeau.ops.normalization
import flambeau.ops.softmax  # noqa: F401  they declare loops
from flambeau.kernels.language import expr as e
from flambeau.kernels.loops import derive, evaluate, run
from flambeau.kernels.loops.language import DECLARED, EACH, ROW, SHARED, Loop, extent, peak, pick, position, total
from flambeau.kernels.native import native

compiled = pytest.mark.skipif(native.lib is None, reason="nothing is compiled here")
SHAPES = [(1,), (7,), (33,), (1000,), (3, 7), (4, 33), (40, 9), (300, 5), (2, 5, 16), (70, 17), (3, 1), (2, 5000)]
EPS = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}
ON_ROWS = [loop for loop in DECLARED.values() if not loop.lines]
LOOPS = [loop for loop in ON_ROWS if not loop.totals]
OPTIONS = {
    "losses": (2,),
    "losses_smoothed": (2, 0.25),
    "losses_summary": (2, 4, 1),
    "losses_backward": (2, 0.5),
    "losses_backward_smoothed": (2, 0.25),
}


def options_of(loop: Loop) -> tuple:
    return OPTIONS.get(loop.name) or tuple(1e-3 * (k + 1) for k in range(loop.options))


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def operands_of(loop: Loop, dtype: str, shape: tuple[int, ...], special: bool) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shape))
    sizes = {ROW: shape, SHARED: shape[-1:], EACH: (*shape[:-1], 1)}
    found = [rng.standard_normal(sizes[access]) for access in loop.loads]
    if special:
        odd = found[0].reshape(-1)[:: max(found[0].size // 3, 1)]
        odd[:] = np.resize([np.nan, np.inf, -np.inf], odd.size)
    for i, (kind, access) in enumerate(zip(loop.kinds, loop.loads, strict=True)):
        if kind == "i64":
            found[i] = rng.integers(0, shape[-1], found[i].shape)
            continue
        found[i] = np.abs(found[i]) if i >= 2 and access == EACH else found[i]
        found[i] = found[i].astype(numpy_dtype("float32" if kind == "wide" and dtype.endswith("16") else dtype))
    return found


class Shaken(evaluate._Evaluation):
    """The value with every step off by up to `unit` of its size: how far results may lie apart."""

    unit, rng = 0.0, None

    def value(self, expr):
        found = super().value(expr)
        if not expr.args or found.dtype.kind != "f":
            return found
        size = np.abs(found)
        if expr.op in evaluate.SUMS:
            size = self.summed(np.abs(self(expr.args[0])), evaluate.SUMS[expr.op] or self.axes, keepdims=True)
        elif expr.op == "unrounded":
            size = self.summed(np.abs(self(expr.args[0].args[0])), self.axes, keepdims=True)
        return found + self.unit * np.where(np.isfinite(size), size, 0) * self.rng.choice([-1, 1], found.shape)


def shaken(loop: Loop, operands, options, unit: float, seed: int) -> list[np.ndarray]:
    walk = Shaken(loop, operands, options, np.dtype(float), operands[0].shape)
    walk.unit, walk.rng = unit, np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        return [walk.stored(access, value, np.dtype(float)) for access, value in zip(loop.stores, loop.values, strict=True)]


def check(loop: Loop, dtype: str, found, operands, options, what: str) -> None:
    wide = [a if a.dtype.kind == "i" else a.astype(float) for a in operands]
    stored = [operands[0].dtype if kind == "T" or operands[0].itemsize > 2 else np.dtype(np.float32) for kind in loop.store_kinds]
    unit = 8 * EPS["float64" if dtype == "float64" else "float32"]
    exact = shaken(loop, wide, options, 0.0, 0)
    others = [shaken(loop, wide, options, unit, seed) for seed in range(1, 17)]
    for k, value in enumerate(exact):
        with np.errstate(all="ignore"):
            room = 4 * np.nanmax([np.zeros(value.shape), *(np.abs(o[k] - value) for o in others)], 0) + 2 * EPS[dtype] * np.abs(value)
            got = found[k].astype(float)
            close = (np.abs(got - value) <= room + np.finfo(float).tiny) | (got == value) | (np.isnan(got) & np.isnan(value))
            if dtype == "float16":  # what overflows, and what is below its smallest number
                close |= (np.abs(value) > 65000) | (np.abs(got - value) < 2.0**-24)
        if loop.stores[k] == EACH and loop.values[k].op == "peak":  # of a row with NaN, any element will do: it is found again in the total
            close |= np.isnan(wide[0]).any(-1, keepdims=True)
        assert close.all(), f"{what}, store {k}: {got[~close][:3]} is not {value[~close][:3]}"
        assert found[k].dtype == stored[k] and found[k].shape == value.shape and found[k].flags.c_contiguous, what


def all_stores(found) -> tuple:
    return found if isinstance(found, tuple) else (found,)


@compiled
@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.name)
def test_a_loop_computes_its_formula(loop):
    """A compiled loop, under whatever schedule suits the shape, differs from its formula carried out in double precision."""
    options = options_of(loop)
    for dtype in loop.dtypes:
        for shape in SHAPES:
            for special in (False, True):
                operands = operands_of(loop, dtype, shape, special)
                assert run._usual(loop, operands, options, -1) is not None
                found = all_stores(run.run(loop, operands, options))
                check(loop, dtype, found, operands, options, f"{loop.name} {dtype} {shape} special={special}")
                ready = run.ready(loop, operands, options)
                if ready is not None:
                    again = all_stores(ready(*operands))
                    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, again, strict=True))


@pytest.mark.parametrize("loop", ON_ROWS, ids=lambda loop: loop.name)
def test_numpy_computes_the_formula(loop):
    """The evaluation by NumPy, which takes the place of a compiled loop, differs from the formula in double precision."""
    options = options_of(loop)
    for dtype in loop.dtypes:
        for shape in [(1,), (4, 33), (2, 5, 16)]:
            operands = operands_of(loop, dtype, shape, False)
            found = all_stores(run._by_numpy(loop, operands, options, -1))
            if not loop.totals:
                check(loop, dtype, found, operands, options, f"{loop.name} {dtype} {shape}")
            elif native.lib is not None:
                for a, b in zip(found, run.run(loop, operands, options), strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@compiled
@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop.stores == (ROW,)], ids=lambda loop: loop.name)
def test_any_dimension_and_any_strides(loop):
    """A loop along another dimension, or over arrays in another order, is not what it is over contiguous rows."""
    options = options_of(loop)
    rows = operands_of(loop, "float32", (6, 20, 24), False)
    wanted = run.run(loop, rows, options)
    for dim in range(3):
        moved = [np.moveaxis(a, -1, dim) if access != SHARED else a for a, access in zip(rows, loop.loads, strict=True)]
        dense = [np.ascontiguousarray(a) for a in moved]
        apart = [np.repeat(a, 2, 0)[::2] for a in dense]
        for given in (moved, dense, apart):
            found = run.run(loop, given, options, dim)
            np.testing.assert_allclose(np.moveaxis(found, dim, -1), wanted, rtol=1e-4, atol=2e-5)


@compiled
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (300, 33), (129, 64), (2, 5, 1000), (40, 1000), (5, 40000)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_totals_over_rows(name, dtype, shape):
    """What is added up over the rows is wrong, or depends on the number of threads; or what comes with it is not what it is alone."""
    rng = np.random.default_rng(4)
    grad, x = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    weight = rng.standard_normal(shape[-1]).astype(dtype)
    forward, back, all_of_it = (DECLARED[f"{name}{part}"] for part in ("", "_backward", "_gradients"))
    _, *numbers = run.run(forward, (x, weight, weight)[: len(forward.loads)], (1e-5,))
    operands = grad, x, weight, *numbers
    of_x, of_weight, *of_bias = run.run(all_of_it, operands)
    assert np.array_equal(of_x, run.run(back, operands))
    normal = (x - numbers[0]) * numbers[1] if name == "layer_norm" else x * numbers[0]
    leading, room = tuple(range(len(shape) - 1)), {"float32": 1e-4, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(of_weight, (grad * normal).sum(leading, dtype="float64"), rtol=room, atol=room)
    for found in of_bias:
        np.testing.assert_allclose(found, grad.sum(leading, dtype="float64"), rtol=room, atol=room)
    before = native.lib.get_num_threads()
    try:
        native.lib.set_num_threads(1)
        alone = run.run(all_of_it, operands)
    finally:
        native.lib.set_num_threads(before)
    assert all(map(np.array_equal, alone, (of_x, of_weight, *of_bias)))


# -- derivatives -------------------------------------------------------------------------------------------------------------

FORMULAS = {
    "softmax": DECLARED["softmax"],
    "log_softmax": DECLARED["log_softmax"],
    "normal": Loop("normal", lambda x: (x - total(x) / extent) * e.rsqrt(total(x * x) + 1), "ri"),
    "chosen": Loop("chosen", lambda x, w: x * pick(0, e.lift(e.const(2, "i64"))) + w * total(x * w), "ri i"),
    "where": Loop("where", lambda x: e.where(x > 0, x, e.exp(x) * total(x)), "ri"),
    "place": Loop("place", lambda x: x * e.as_T(position) / total(e.exp(x)), "ri"),
    "loss": Loop("loss", lambda x: e.log(total(e.exp(x - peak(x)))) + peak(x) - pick(0, e.const(1, "i64")), "ri", "r"),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_derived_gradient_is_the_slope(name):
    """The derivative of a loop is not what differences say."""
    loop, rng, step = FORMULAS[name], np.random.default_rng(5), 1e-6
    operands = [rng.standard_normal({ROW: (6, 9), SHARED: (9,)}[access]) for access in loop.loads]
    value = evaluate.evaluate(loop, operands)[0]
    g = rng.standard_normal(value.shape)
    back = derive.backward(loop, 0, f"{name}_slope")
    given = (g, value) if name.endswith("softmax") else (*operands, g) if loop.stores == (EACH,) else (g, *operands)
    found = evaluate.evaluate(back, given)[0]
    numeric = np.empty_like(operands[0])
    for j in range(9):
        sides = [evaluate.evaluate(loop, (operands[0] + sign * step * np.eye(9)[j], *operands[1:]))[0] for sign in (1, -1)]
        numeric[:, j] = (g * (sides[0] - sides[1])).sum(-1) / (2 * step)
    np.testing.assert_allclose(found, numeric, rtol=1e-5, atol=1e-7)


def test_softmax_has_the_derivatives_everybody_knows():
    """The derivative of softmax reads its input again, or that of its logarithm does."""
    assert repr(DECLARED["softmax_backward"].values[0]) == "mul(x1, sub(x0, total(mul(x0, x1))))"
    assert repr(DECLARED["log_softmax_backward"].values[0]) == "sub(x0, mul(exp(x1), total(x0)))"


def test_a_number_for_each_row_must_be_one():
    """A store of one number for each row is given what differs along the row, and nobody says so."""
    with pytest.raises(TypeError, match="differs along the row"):
        Loop("wrong", lambda x: x, "ri", "r").values  # noqa: B018
