"""Formulas: the expression language, its algebra, and the derivative of every pointwise operation against central differences.

A formula is differentiated symbolically, so the check is numerical: the formula itself is evaluated in float64 a little to the left and to
the right of random points. The points keep away from kinks and edges, which are listed here per operation.
"""

from __future__ import annotations

import numpy as np
import pytest

import flambeau
from flambeau.eager import interpret
from flambeau.kernels import arrays
from flambeau.kernels.language import derive, simplify
from flambeau.kernels.language import expr as e
from flambeau.kernels.language.evaluate import evaluate
from flambeau.kernels.language.pointwise import GRAD, RESULT, Pointwise
from flambeau.kernels.language.simplify import ONE, ZERO
from flambeau.ops import OPS, everything

F64, C128 = np.dtype(np.float64), np.dtype(np.complex128)
COUNT = 400
STEP = 1e-6  # of the central difference: half the digits are lost to it, and what remains is checked

# -- derivatives -----------------------------------------------------------------------------------------------------------

# Where the operands are drawn from, if not from -2 to 2.
DOMAIN = {
    "_of_direction": (0.5, 2), "_units_multiplied": (1, 2),
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "_root", "_inverse_root", "xlogy", "special.entr", "_pow"), (0.1, 4)),
    **dict.fromkeys(("asin", "acos", "atanh", "erfinv", "log1p", "special.xlog1py"), (-0.9, 0.9)),
    **dict.fromkeys(("_logit", "_logit_within", "special.ndtri", "_binary_cross_entropy"), (0.02, 0.98)),
    "acosh": (1.1, 5),
    "_hardsigmoid": (-5, 5), "_hardswish": (-5, 5),
}  # fmt: skip
OPTIONS = {
    "alpha": 1.5, "value": -3.0, "nan": 1.0, "posinf": 5.0, "neginf": -5.0, "scale": 1.25, "unit": 10.0, "eps": 0.125, "min_val": -1.0,
    "max_val": 1.5, "negative_slope": 0.25, "threshold": 1.0, "input_scale": 0.5, "beta": 1.75, "lambd": 0.5,
}  # fmt: skip
# Points where a formula bends or jumps: the distance from them, as a function of the operands.
KINKS = {
    **dict.fromkeys(("abs", "relu", "_leaky_relu", "_prelu", "_elu", "sgn", "sinc", "reciprocal", "_inverse", "_inverse_square", "_rdiv"), lambda x, *_: x),
    **dict.fromkeys(("_div", "_addcdiv"), lambda *x: x[-1]),
    **dict.fromkeys(("maximum", "minimum", "fmax", "fmin", "_clamp_min", "_clamp_max"), lambda x, y: x - y),
    **dict.fromkeys(("_fmod", "_remainder", "_div_floor", "_div_trunc"), lambda x, y: np.minimum(abs(y), abs(x / y - np.rint(x / y)))),
    **dict.fromkeys(("floor", "ceil", "trunc", "frac"), lambda x: x - np.rint(x)),
    **dict.fromkeys(("lgamma", "digamma", "_trigamma"), lambda x: np.where(x > 0.1, 1, x - np.rint(x))),
    **dict.fromkeys(("hardshrink", "_softshrink"), lambda x: abs(x) - OPTIONS["lambd"]),
    "_clamp": lambda x, low, high: np.minimum(np.minimum(abs(x - low), abs(x - high)), abs(low - high)),
    "_round": lambda x: x - np.floor(x) - 0.5,
    "_round_digits": lambda x: OPTIONS["scale"] * x - np.floor(OPTIONS["scale"] * x) - 0.5,
    "tan": lambda x: abs(x) - np.pi / 2,
    "hypot": lambda x, y: abs(x) + abs(y),
    "atan2": lambda x, y: np.where(y < 0, x, abs(x) + abs(y)),  # and the cut along the negative axis
    "_hardtanh": lambda x: np.minimum(abs(x - OPTIONS["min_val"]), abs(x - OPTIONS["max_val"])),
    "_threshold": lambda x: x - OPTIONS["threshold"],
    "nn.functional.softplus": lambda x: OPTIONS["beta"] * x - OPTIONS["threshold"],
    "_hardsigmoid": lambda x: abs(x) - 3,
    "_hardswish": lambda x: abs(x) - 3,
    "_logit_within": lambda x: np.minimum(abs(x - OPTIONS["eps"]), abs(x - 1 + OPTIONS["eps"])),
    "_lerp": lambda x, y, w: abs(w) - 0.5,
}  # fmt: skip
NOT_HOLOMORPHIC = {"abs", "sgn", "_conj_physical"}


def _differentiable():
    """(operation, index of the operand), one for every gradient anybody can ask for."""
    seen = set()
    for op in everything():
        if op.kind == "pointwise" and op.differentiable and op.kernel not in seen and set(op.dtypes) & {"float64"}:
            seen.add(op.kernel)
            for i, kind in enumerate(op.kernel.kinds):
                if kind == "T" and op.kernel.gradient(i).kind != "missing":
                    yield pytest.param(op, i, id=f"{op.name}-{op.kernel.operands[i]}")


every_gradient = pytest.mark.parametrize(("op", "index"), list(_differentiable()))


def points(op, seed: int = 0) -> list[np.ndarray]:
    """COUNT random points of the operation's domain, away from its kinks."""
    rng = np.random.default_rng(seed)
    low, high = DOMAIN.get(op.name, (-2, 2))
    drawn = [rng.random(4 * COUNT) < 0.5 if kind == "bool" else rng.uniform(low, high, 4 * COUNT) for kind in op.kernel.kinds]
    if op.name in KINKS:
        away = np.abs(np.broadcast_to(KINKS[op.name](*drawn), (4 * COUNT,))) > 0.02
        drawn = [x[away] for x in drawn]
    assert len(drawn[0]) >= COUNT
    return [x[:COUNT] for x in drawn]


def options(op) -> list[float]:
    return [OPTIONS.get(name, 0.75) for name in op.kernel.options]


def by_formula(op, index: int, operands: list, grad, dtype: np.dtype) -> np.ndarray:
    """The gradient, from the derivative's formula."""
    plan, params = op.kernel.gradient(index), options(op)
    known = dict(enumerate(operands)) | {GRAD: grad}
    if RESULT in plan.uses:
        known[RESULT] = evaluate(op.kernel.expr, operands, params, dtype)
    return np.broadcast_to(evaluate(plan.expr, known, params, dtype), (COUNT,))


def by_differences(op, index: int, operands: list, dtype: np.dtype) -> np.ndarray:
    """The derivative, from the values to the left and to the right."""
    sides = []
    for step in (STEP, -STEP):
        moved = [x + step if i == index else x for i, x in enumerate(operands)]
        sides.append(evaluate(op.kernel.expr, moved, options(op), dtype))
    return np.broadcast_to((sides[0] - sides[1]) / (2 * STEP), (COUNT,))


@every_gradient
def test_a_derivative_is_the_slope(op, index):
    """The symbolic derivative is not what central differences of the formula say."""
    operands = points(op)
    grad = np.random.default_rng(1).uniform(0.5, 2, COUNT)
    numeric = by_differences(op, index, operands, F64)
    np.testing.assert_allclose(by_formula(op, index, operands, grad, F64), grad * numeric, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize(
    ("op", "index"), [p for p in _differentiable() if p.values[0].takes_complex and p.values[0].name not in NOT_HOLOMORPHIC]
)
def test_a_derivative_is_the_slope_in_the_complex_plane(op, index):
    """For complex numbers the gradient is grad times the conjugate of the derivative, PyTorch's convention."""
    rng = np.random.default_rng(2)
    operands = [
        rng.random(COUNT) < 0.5 if k == "bool" else rng.uniform(0.2, 1.5, COUNT) + 1j * rng.uniform(0.2, 1.2, COUNT)
        for k in op.kernel.kinds
    ]
    if op.name == "_lerp":
        operands[2] = np.where(np.abs(np.abs(operands[2]) - 0.5) < 0.02, 1, operands[2])
    grad = rng.standard_normal(COUNT) + 1j * rng.standard_normal(COUNT)
    numeric = by_differences(op, index, operands, C128)
    np.testing.assert_allclose(by_formula(op, index, operands, grad, C128), grad * np.conj(numeric), rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize(("op", "index"), [p for p in _differentiable() if p.values[0].kernel.gradient(p.values[1]).kind == "kernel"])
def test_a_derivative_can_be_carried_out_with_tensors(op, index):
    """The derivative kernel and the same formula carried out with tensor operations (for second derivatives) give different numbers."""
    plan = op.kernel.gradient(index)
    operands, params = points(op, seed=3), options(op)
    for place, special in enumerate((0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0)):
        for x in operands:
            if x.dtype == F64:
                x[place::9] = special
    grad = np.random.default_rng(4).standard_normal(COUNT)
    result = evaluate(op.kernel.expr, operands, params, F64)
    saved = [np.broadcast_to(result if i == RESULT else operands[i], (COUNT,)).copy() for i in plan.uses]
    by_kernel = arrays.run(plan.kernel, (grad, *saved), params, F64, F64)
    tensors = [flambeau.from_numpy(a) for a in saved]
    by_tensors = interpret.gradient(plan, flambeau.from_numpy(grad), tensors, tuple(params))
    np.testing.assert_allclose(np.broadcast_to(by_tensors.numpy(), (COUNT,)), by_kernel, rtol=1e-9, atol=1e-12)


def test_no_derivative_says_so():
    """An operation without a derivative answered with a number instead of raising."""
    with pytest.raises(derive.NotDifferentiable, match="gcd"):
        derive.backward(e.gcd(e.load(0), e.load(1)), e.load(0), e.load(GRAD))


# -- the choice in a derivative --------------------------------------------------------------------------------------------


def test_a_branch_not_taken_contributes_nothing():
    """The derivative of where(x > 0, sqrt(x), 0) at -1 and 0 must be 0: an infinite slope next door is not multiplied by zero."""
    x = e.load(0)
    formula = e.where(x > 0, e.sqrt(x), 0.0)
    slope = derive.backward(formula, x, e.load(1))
    assert slope.op == "where"
    found = evaluate(slope, [np.array([-1.0, 0.0, 4.0]), np.ones(3)], [], F64)
    np.testing.assert_array_equal(found, [0, 0, 0.25])


def test_an_operand_that_is_not_used_has_no_gradient():
    """The gradient of an operand the formula does not read is a structural zero."""
    kernel = Pointwise("first", lambda input, other: e.exp(input), ("input", "other"))
    assert kernel.gradient(1).kind == "zero"
    assert kernel.gradient(0).uses == (RESULT,), "exp's derivative reads the result, and frees the operand"


def test_a_derivative_reads_the_result_only_if_that_frees_the_operands():
    """mul needs the other operand, tanh only its own result, silu its input."""
    uses = {name: OPS[name].kernel.gradient(0).uses for name in ("mul", "tanh", "_silu", "_add")}
    assert uses == {"mul": (1,), "tanh": (RESULT,), "_silu": (0,), "_add": ()}


# -- the algebra -----------------------------------------------------------------------------------------------------------

VALUES = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1.7e308, -1.7e308, 1.0, -2.5])
RULES = [
    ("add", simplify.add), ("mul", simplify.mul), ("div", simplify.div),
]  # fmt: skip
TERMS = [
    e.load(0),
    e.load(1),
    ONE,
    e.const(1.0),
    e.const(-1.0),
    e.const(0.0),
    e.const(-0.0),
    e.node("neg", e.load(0)),
    e.node("neg", e.load(1)),
]


def bits(expr) -> np.ndarray:
    x, y = np.meshgrid(VALUES, VALUES)
    value = np.broadcast_to(evaluate(expr, [x, y], [], F64), x.shape)
    return np.where(np.isnan(value), np.nan, value).view(np.int64)


@pytest.mark.parametrize(("op", "simplified"), RULES)
@pytest.mark.parametrize("a", TERMS, ids=repr)
@pytest.mark.parametrize("b", TERMS, ids=repr)
def test_algebra_is_exact_in_floating_point(op, simplified, a, b):
    """A simplified formula differs from the plain one for NaN, infinity, a signed zero or a subnormal number."""
    np.testing.assert_array_equal(bits(simplified(a, b)), bits(e.node(op, a, b)))
    np.testing.assert_array_equal(bits(simplify.neg(a)), bits(e.node("neg", a)))


def test_structural_zeros_vanish_and_written_ones_do_not():
    """ZERO is the derivative of what does not depend on x and disappears; 0.0 written in a formula is a number like any other."""
    x = e.load(0)
    assert simplify.add(x, ZERO) is x and simplify.add(ZERO, x) is x
    assert simplify.mul(x, ZERO) is ZERO and simplify.neg(ZERO) is ZERO and simplify.div(ZERO, x) is ZERO
    assert simplify.mul(x, e.const(0.0)).op == "mul"
    assert simplify.add(x, e.const(0.0)).op == "add", "-0.0 + 0.0 is 0.0, not -0.0"
    assert simplify.mul(x, ONE) is x and simplify.div(x, ONE) is x
    assert simplify.where(x > 0, x, x) is x
    assert simplify.neg(simplify.neg(x)) is x


# -- the language ----------------------------------------------------------------------------------------------------------


def test_equal_formulas_are_one_object():
    """Common subexpressions are found by identity, so equal formulas must be the same object, and different constants must not."""
    x, y = e.load(0), e.load(1)
    assert e.exp(x * y) + 1 is e.exp(x * y) + 1
    assert x * y is not y * x
    assert e.const(1) is not e.const(1.0) and e.const(True) is not e.const(1) and e.const(0.0) is not e.const(-0.0)
    assert e.const(float("nan")) is e.const(float("nan"))
    assert e.load(0) is not e.load(0, "bool")


def test_operators_and_kinds():
    """Every operator of a formula builds its primitive, with numbers on either side."""
    x = e.load(0)
    shown = [2 + x, 2 - x, 2 * x, 2 / x, x**2, -x, abs(x), x < 2, x >= 2, (x > 0) & (x <= 1), (x > 0) | ~(x > 1)]
    assert list(map(repr, shown)) == [
        "add(2, x0)", "sub(2, x0)", "mul(2, x0)", "div(2, x0)", "pow(x0, 2)", "neg(x0)", "abs(x0)", "lt(x0, 2)", "ge(x0, 2)",
        "and(gt(x0, 0), le(x0, 1))", "or(gt(x0, 0), not(gt(x0, 1)))",
    ]  # fmt: skip
    assert (x > 0).kind == "bool" and e.where(x > 0, x, 1).kind == "T" and e.const(True).kind == "bool"
    assert list(e.loads(e.load(3) * x + e.load(1))) == [0, 1, 3]


def test_a_formula_has_no_truth_value():
    """`if x > 0` in a formula would choose one branch for all elements: it must raise, and name `where`."""
    with pytest.raises(TypeError, match="where"):
        bool(e.load(0) > 0)
    with pytest.raises(TypeError, match="takes 2 arguments"):
        e.node("add", 1)


def test_replace_exchanges_outermost_first_and_keeps_the_rest():
    """A replaced subformula is not searched again, and what does not change stays the same object."""
    x, y = e.load(0), e.load(1)
    formula = e.exp(x * y) + x
    assert e.replace(formula, {x * y: y}) is e.exp(y) + x
    assert e.replace(formula, {x: y, x * y: x}) is e.exp(x) + y
    assert e.replace(formula, {e.load(7): x}) is formula


def test_horner_and_clenshaw_are_the_polynomials():
    """polynomial and chebyshev sum their series."""
    coefficients, points = [0.5, -1.25, 2.0, 3.5], np.linspace(-1, 1, 9)
    horner = evaluate(e.polynomial(e.load(0), coefficients), [points], [], F64)
    clenshaw = evaluate(e.chebyshev(e.load(0), coefficients), [points], [], F64)
    np.testing.assert_allclose(horner, np.polynomial.polynomial.polyval(points, coefficients), rtol=1e-14)
    np.testing.assert_allclose(clenshaw, np.polynomial.chebyshev.chebval(points, coefficients), rtol=1e-14, atol=1e-15)


def test_integers_wrap_and_half_precision_is_computed_in_float32():
    """An int8 formula wraps around; a float16 one is rounded once, at the end."""
    x = e.load(0)
    np.testing.assert_array_equal(evaluate(x + 1, [np.array([127], np.int8)], [], np.dtype(np.int8)), [-128])
    found = evaluate(x * x / x, [np.array([1000.0], np.float16)], [], np.dtype(np.float16))
    assert found.dtype == np.float32 and found[0] == 1000.0, "1000 * 1000 is beyond float16 and not beyond float32"
