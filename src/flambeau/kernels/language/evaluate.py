"""Formulas on NumPy arrays: the reference the generated loops are compared with, and what runs where nothing was compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from flambeau.kernels.language.expr import Expr, load


def evaluate(expr: Expr, operands: Sequence[np.ndarray], params: Sequence[float], dtype: np.dtype) -> np.ndarray:
    """The value of `expr` for operands of kind "T" given in `dtype`; half precision is computed in float32 and not yet rounded."""
    return evaluate_all((expr,), operands, params, dtype)[0]


def evaluate_all(exprs: Sequence[Expr], operands: Sequence[np.ndarray], params: Sequence[float], dtype: np.dtype) -> list[np.ndarray]:
    """The values of several formulas, which share what they have in common."""
    compute = np.dtype(np.float32) if dtype in (np.float16, ml_dtypes.bfloat16) else dtype
    with np.errstate(all="ignore"):
        return list(map(_Evaluation(operands, params, compute), exprs))


class _Evaluation:
    def __init__(self, operands, params, compute: np.dtype):
        self.operands, self.params, self.compute = operands, params, compute
        self.known: dict[Expr, np.ndarray] = {}

    def __call__(self, expr: Expr) -> np.ndarray:
        found = self.known.get(expr)
        if found is None:
            found = self.known[expr] = self.value(expr)
        return found

    def value(self, expr: Expr) -> np.ndarray:
        if expr.op == "load":
            array = self.operands[expr.value]
            return array.astype(self.compute, copy=False) if expr.kind == "T" else array
        if expr.op == "param":
            return self.number(self.params[expr.value])
        if expr.op == "const":
            return np.asarray(expr.value) if expr.kind in ("bool", "i64") else self.number(expr.value)
        args = [self(a) for a in expr.args]
        if expr.op == "as_T":
            return args[0].astype(self.compute)
        result = NUMPY[expr.op](*args)
        return result.astype(self.compute, copy=False) if expr.kind == "T" else result

    def number(self, value) -> np.ndarray:
        if self.compute.kind in "iu":
            value = int(value)  # a float option given to an integer kernel is truncated, as C does
        return np.asarray(value).astype(self.compute)


def _elementwise(function: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    """A scalar function of Python's math module over an array: slow, exact, only used without compiled kernels."""
    ufunc = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(ufunc(x.astype(np.float64))).astype(x.dtype)


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # Python raises where C answers infinity
        return math.inf


def by_formula(formula: Callable, kinds: Sequence[str], operands: Sequence, primitives: dict[str, Callable] | None = None) -> np.ndarray:
    """A formula of vecmath/ on arrays and numbers of these machine types: what the compiled function computes, step by step."""
    with np.errstate(over="ignore"):
        given = [np.asarray(a).astype(MACHINE[k], copy=False)[()] for a, k in zip(operands, kinds, strict=True)]
    known: dict[Expr, np.ndarray] = {}
    functions = NUMPY | ON_MACHINE | (primitives or {})

    def value(x: Expr) -> np.ndarray:
        if x not in known:
            known[x] = compute(x, [value(a) for a in x.args])
        return known[x]

    def compute(x: Expr, args: list) -> np.ndarray:
        if x.op in ("load", "const"):
            return given[x.value] if x.op == "load" else MACHINE[x.kind].type(x.value)
        if x.op in ("bits", "from_bits"):
            return args[0].view(MACHINE[x.kind])
        return args[0].astype(MACHINE[x.kind]) if x.op == "cast" else functions[x.op](*args)

    return value(formula(*(load(i, kind) for i, kind in enumerate(kinds))))


MACHINE = {kind: np.dtype(f"{kind[0]}{int(kind[1:]) // 8}") for kind in ("f32", "f64", "i32", "i64", "u32", "u64")}
ON_MACHINE: dict[str, Callable] = {"fma": lambda a, b, c: a * b + c, "shl": np.left_shift, "shr": np.right_shift}


def _in_double(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """A rare function of vecmath/, by its formula for float64."""

    def function(x: np.ndarray) -> np.ndarray:
        from flambeau.kernels.language.vecmath import error_functions, gamma

        formula = getattr(error_functions if name == "erfinv" else gamma, name)
        return np.asarray(by_formula(formula, ("f64",), (x,))).astype(x.dtype)

    return function


def _abs(x: np.ndarray) -> np.ndarray:
    return np.hypot(x.real, x.imag) if x.dtype.kind == "c" else np.abs(x)  # PyTorch's lengths, which np.abs has but for the last bit


def _sgn(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        size = _abs(x)
        return np.where(size == 0, 0, x / size)
    if x.dtype.kind == "f":
        return ((x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)).astype(x.dtype)  # NaN has no sign: 0, as in PyTorch
    return np.sign(x) if x.dtype.kind != "b" else x


def _sigmoid(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        return 1 / (1 + np.exp(-x))
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if x.dtype.kind not in "iu":
        return np.power(x, y)
    # Negative exponents of integers: 1 and -1 have exact results, everything else truncates to 0.
    positive = np.power(x, np.where(y < 0, 0, y).astype(x.dtype))
    odd = (y & 1) != 0
    inverse = np.where(x == 1, 1, np.where(x == -1, np.where(odd, -1, 1), 0)) if x.dtype.kind == "i" else (x == 1)
    return np.where(y < 0, inverse, positive).astype(x.dtype)


def _shift(left: bool):
    def shift(x: np.ndarray, by: np.ndarray) -> np.ndarray:
        bits = x.dtype.itemsize * 8
        outside = (by < 0) | (by >= bits)
        safe = np.where(outside, 0, by).astype(x.dtype)
        if left:
            return np.where(outside, 0, np.left_shift(x, safe)).astype(x.dtype)
        return np.where(outside, np.where(x < 0, -1, 0), np.right_shift(x, safe)).astype(x.dtype)

    return shift


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _rounding(function):
    """Integers are whole already."""
    return lambda x: function(x) if x.dtype.kind == "f" else x


def _boolean(function):
    return lambda *args: function(*(a.astype(bool, copy=False) for a in args))


NUMPY: dict[str, Callable[..., Any]] = {
    **{n: getattr(np, n) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "reciprocal")},
    **{n: getattr(np, n) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "isnan", "isinf")},
    **{n: _rounding(getattr(np, n)) for n in ("floor", "ceil", "trunc", "rint")},
    **{n: getattr(np, n) for n in ("maximum", "minimum", "fmod", "hypot", "copysign", "nextafter", "gcd")},
    "remainder": _remainder,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "atan2": np.arctan2, "floordiv": np.floor_divide, "pow": _power, "conj": np.conjugate,
    "neg": lambda x: x if x.dtype.kind == "b" else np.negative(x), "abs": _abs, "sgn": _sgn, "sigmoid": _sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": _elementwise(math.erf), "erfc": _elementwise(math.erfc), "erfinv": _in_double("erfinv"),
    "lgamma": _elementwise(_lgamma), "digamma": _in_double("digamma"),
    "add": np.add, "mul": np.multiply, "div": np.divide,
    "sub": lambda a, b: np.subtract(a, b) if a.dtype.kind != "b" else np.logical_xor(a, b),
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
    "and": _boolean(np.logical_and), "or": _boolean(np.logical_or), "xor": _boolean(np.logical_xor),
    "not": _boolean(np.logical_not), "as_bool": lambda x: x != 0,
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "bitnot": np.invert,
    "shl": _shift(True), "shr": _shift(False),
    "where": lambda c, a, b: np.where(c.astype(bool, copy=False), a, b),
}  # fmt: skip
