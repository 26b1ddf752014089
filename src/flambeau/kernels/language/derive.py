"""Derivatives of formulas, by formula.

`backward(e, x, g)` is what flows back to the operand `x` when `g` flows into the result `e`: g times de/dx, with the factor conjugated
(for real numbers that is nothing; for complex ones it is PyTorch's convention). It descends the formula instead of multiplying a finished
derivative at the end, so that a `where` stays outermost: a branch not taken contributes nothing, not 0 * inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr, const, lift
from flambeau.kernels.language.simplify import ZERO, add, div, mul, neg, where


def backward(expr: Expr, x: Expr, g: Expr) -> Expr:
    """g * conj(d expr / d x), simplified; `ZERO` if expr does not depend on x."""
    if expr is x:
        return g
    if not _depends(expr, x):
        return ZERO
    if expr.op == "where":
        condition, a, b = expr.args
        return where(condition, backward(a, x, g), backward(b, x, g))
    if expr.op in FLAT:
        return ZERO
    rules = RULES.get(expr.op)
    if rules is None:
        raise NotDifferentiable(f"the derivative of {expr.op!r} is not implemented")
    total = ZERO
    for argument, rule in zip(expr.args, rules(expr, *expr.args), strict=True):
        if _depends(argument, x):
            total = add(total, backward(argument, x, rule(g)))
    return total


def _depends(expr: Expr, x: Expr, _memo: dict | None = None) -> bool:
    memo = {} if _memo is None else _memo
    if expr is x:
        return True
    found = memo.get(expr)
    if found is None:
        found = memo[expr] = any(_depends(a, x, memo) for a in expr.args)
    return found


def _times(factor) -> Callable[[Expr], Expr]:
    """The rule g -> g * conj(factor)."""
    factor = lift(factor)
    if factor.op == "const":
        return lambda g: mul(g, factor)
    return lambda g: mul(g, e.conj(factor))


def _over(divisor) -> Callable[[Expr], Expr]:
    return lambda g: div(g, e.conj(divisor))


def _rule(factor):
    return lambda y, x: (_times(factor(y, x)),)


def _nothing(g: Expr) -> Expr:
    return ZERO


def _extremum(beats: str):
    """Where both are equal each gets half the gradient; where one is NaN, neither beats the other and both get all of it."""

    def rules(y, a, b):
        def share(own, other):
            return lambda g: where(e.node(beats, other, own), const(0), where(e.eq(own, other), mul(g, const(0.5)), g))

        return share(a, b), share(b, a)

    return rules


def _pow(y, x, s):
    # At exponent 0 the derivative is 0 even for x = 0, where x ** -1 would be infinite.
    def base(g):
        return where(e.eq(s, const(0)), const(0), mul(g, e.conj(mul(s, e.power(x, s - 1)))))

    # 0 ** s is constant in s for s >= 0; log(0) must not turn it into NaN.
    def exponent(g):
        flat = e.node("and", e.eq(x, const(0)), e.eq(s, abs(s)))
        return where(flat, const(0), mul(g, e.conj(mul(y, e.log(x)))))

    return base, exponent


def _acosh_slope(x):
    # 1 / (sqrt(x - 1) sqrt(x + 1)), which in the left half of the complex plane is the other root of 1 / (x * x - 1).
    root, twin = e.rsqrt(mul(x, x) - 1), e.conj(x)
    return where(e.node("or", e.eq(x, twin), x + twin >= 0), root, neg(root))


def _turn(a, b, arm):
    # The angle of (0, 0) does not move.
    square = mul(a, a) + mul(b, b)
    return lambda g: where(e.eq(square, const(0)), const(0), mul(g, div(arm, square)))


TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)

# operand -> how a gradient passes through it; y is the primitive's own value
RULES: dict[str, Callable] = {
    "add": lambda y, a, b: (lambda g: g, lambda g: g),
    "sub": lambda y, a, b: (lambda g: g, neg),
    "mul": lambda y, a, b: (_times(b), _times(a)),
    "div": lambda y, a, b: (_over(b), lambda g: neg(mul(g, e.conj(div(div(a, b), b))))),
    "neg": lambda y, x: (neg,),
    "conj": lambda y, x: (e.conj,),
    "as_T": lambda y, x: (_nothing,),
    "abs": lambda y, x: (lambda g: mul(g, e.sgn(x)),),
    "reciprocal": _rule(lambda y, x: neg(mul(y, y))),
    "pow": _pow,
    "maximum": _extremum("gt"),
    "minimum": _extremum("lt"),
    "fmod": lambda y, a, b: (lambda g: g, lambda g: neg(mul(g, e.trunc(div(a, b))))),
    "remainder": lambda y, a, b: (lambda g: g, lambda g: neg(mul(g, e.floordiv(a, b)))),
    "sqrt": lambda y, x: (lambda g: div(g, e.conj(mul(const(2), y))),),
    "rsqrt": _rule(lambda y, x: mul(const(-0.5), mul(y, mul(y, y)))),
    "exp": _rule(lambda y, x: y),
    "exp2": _rule(lambda y, x: mul(y, const(math.log(2)))),
    "expm1": _rule(lambda y, x: y + 1),
    "log": lambda y, x: (_over(x),),
    "log2": lambda y, x: (_over(mul(x, const(math.log(2)))),),
    "log10": lambda y, x: (_over(mul(x, const(math.log(10)))),),
    "log1p": lambda y, x: (_over(x + 1),),
    "sigmoid": _rule(lambda y, x: mul(const(1) - y, y)),
    "sin": _rule(lambda y, x: e.cos(x)),
    "cos": _rule(lambda y, x: neg(e.sin(x))),
    "tan": _rule(lambda y, x: mul(y, y) + 1),
    "asin": _rule(lambda y, x: e.rsqrt(const(1) - mul(x, x))),
    "acos": _rule(lambda y, x: neg(e.rsqrt(const(1) - mul(x, x)))),
    "atan": lambda y, x: (_over(mul(x, x) + 1),),
    "sinh": _rule(lambda y, x: e.cosh(x)),
    "cosh": _rule(lambda y, x: e.sinh(x)),
    "tanh": _rule(lambda y, x: const(1) - mul(y, y)),
    "asinh": _rule(lambda y, x: e.rsqrt(mul(x, x) + 1)),
    "acosh": _rule(lambda y, x: _acosh_slope(x)),
    "atanh": lambda y, x: (_over(const(1) - mul(x, x)),),
    "erf": _rule(lambda y, x: mul(const(TWO_OVER_SQRT_PI), e.exp(neg(mul(x, x))))),
    "erfc": _rule(lambda y, x: mul(const(-TWO_OVER_SQRT_PI), e.exp(neg(mul(x, x))))),
    "erfinv": _rule(lambda y, x: mul(const(math.sqrt(math.pi) / 2), e.exp(mul(y, y)))),
    "lgamma": _rule(lambda y, x: e.digamma(x)),
    "atan2": lambda y, a, b: (_turn(a, b, b), _turn(a, b, neg(a))),
    "hypot": lambda y, a, b: (lambda g: mul(g, div(a, y)), lambda g: mul(g, div(b, y))),
    "copysign": lambda y, a, b: (lambda g: where(e.eq(a, const(0)), const(0), mul(g, div(y, a))), _nothing),
}


class NotDifferentiable(NotImplementedError):
    """A formula contains a primitive whose derivative nobody has written."""


# Constant almost everywhere, so that no rule means a zero gradient; any other primitive without a rule is an error.
FLAT = e.COMPARISONS | {"and", "or", "xor", "not", "isnan", "isinf", "as_bool", "sgn", "floor", "ceil", "trunc", "rint", "floordiv"}
FLAT |= {"bitand", "bitor", "bitxor", "bitnot", "shl", "shr"}
