"""Algebra that is exact in floating point, NaN and infinity included.

`x * 1` is x and `x + (-0.0)` is x for every x, but `x * 0` is not 0 (x may be NaN) and `x + 0` is not x (x may be -0.0, where the
difference is only the sign of zero: derivatives accept that, see `ZERO`). A structural zero, the derivative of what does not depend on x,
is `ZERO` and does vanish from sums and products.
"""

from __future__ import annotations

from flambeau.kernels.language.expr import Expr, const, node

ZERO = const(0)
ONE = const(1)


def add(a: Expr, b: Expr) -> Expr:
    """a + b, dropping a structural zero."""
    if a is ZERO:
        return b
    if b is ZERO:
        return a
    return node("add", a, b)


def neg(a: Expr) -> Expr:
    """-a; twice is nothing."""
    if a is ZERO:
        return a
    return a.args[0] if a.op == "neg" else node("neg", a)


def mul(a: Expr, b: Expr) -> Expr:
    """a * b, dropping factors of one and structural zeros."""
    if a is ZERO or b is ZERO:
        return ZERO
    if a is ONE:
        return b
    if b is ONE:
        return a
    if a.op == "neg":
        return neg(mul(a.args[0], b))
    if b.op == "neg":
        return neg(mul(a, b.args[0]))
    return node("mul", a, b)


def div(a: Expr, b: Expr) -> Expr:
    """a / b, dropping a divisor of one."""
    if a is ZERO or b is ONE:
        return a
    return node("div", a, b)


def where(condition: Expr, a: Expr, b: Expr) -> Expr:
    """The choice, unless both branches are the same."""
    return a if a is b else node("where", condition, a, b)
