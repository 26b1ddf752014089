"""The expression language: what one element of a pointwise result is, as a formula over elements of the operands.

A formula is written as a Python function of `Expr` values and traced once:

>>> x = load(0)
>>> print(x * sigmoid(x))
mul(x0, sigmoid(x0))

The same formula becomes C (`print_c.py`), CUDA (`print_cuda.py`), NumPy (`evaluate.py`), its derivative (`derive.py`) and, for second
derivatives, tensor operations. Equal formulas are the same object, so common subexpressions are found by identity.

Kinds: a value is of kind "T" (the dtype the kernel is instantiated for; half precision computes in float32), "bool" or "i64"; in the
room vecmath/, of a machine type such as "f32" or "u64".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ARITY: dict[str, int] = {
    **dict.fromkeys(("neg", "abs", "sgn", "reciprocal", "floor", "ceil", "trunc", "rint", "conj"), 1),
    **dict.fromkeys(("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sigmoid"), 1),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"), 1),
    **dict.fromkeys(("erf", "erfc", "erfinv", "lgamma", "digamma"), 1),
    **dict.fromkeys(("isnan", "isinf", "not", "as_bool", "as_T", "bitnot"), 1),
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmod", "remainder", "floordiv"), 2),
    **dict.fromkeys(("atan2", "hypot", "copysign", "nextafter", "gcd"), 2),
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "xor"), 2),
    **dict.fromkeys(("bitand", "bitor", "bitxor", "shl", "shr"), 2),
    "where": 3,
}
LEAVES = {"load": "x", "param": "p", "local": "", "position": "position", "extent": "extent"}  # how they are written, before their value
NEAR: set[str] = set()  # functions that are faster for usual arguments, "log_f32": see near_forms in vecmath/machine.py
COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})
MACHINE = frozenset({"f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})
BOOLEAN = {*COMPARISONS, "and", "or", "xor", "not", "isnan", "isinf", "as_bool"}


def _unary(op: str) -> Callable[[Any], Expr]:
    return lambda x: node(op, x)


def _binary(op: str) -> Callable[[Any, Any], Expr]:
    return lambda x, y: node(op, x, y)


def _reflected(op: str) -> Callable[[Any, Any], Expr]:
    return lambda x, y: node(op, y, x)


def _logical(op: str) -> Callable[[Any, Any], Expr]:
    """Of truth values, or of the bits of integers."""
    return lambda x, y: node(op if x.kind == "bool" else f"bit{op}", x, y)


class Expr:
    """A node: a primitive applied to arguments, or a leaf ("load", "param", "const") with its value."""

    __slots__ = ("args", "kind", "op", "value")
    op: str
    args: tuple[Expr, ...]
    value: Any
    kind: str

    def __repr__(self) -> str:
        if self.op in LEAVES:
            return f"{LEAVES[self.op]}{'' if self.value is None else self.value}"
        return repr(self.value) if self.op == "const" else f"{self.op}({', '.join(map(repr, self.args))})"

    __add__, __sub__, __mul__, __truediv__, __pow__ = map(_binary, ("add", "sub", "mul", "div", "pow"))
    __radd__, __rsub__, __rmul__, __rtruediv__ = map(_reflected, ("add", "sub", "mul", "div"))
    __lt__, __le__, __gt__, __ge__, __lshift__, __rshift__ = map(_binary, ("lt", "le", "gt", "ge", "shl", "shr"))
    __and__, __or__, __xor__ = map(_logical, ("and", "or", "xor"))
    __neg__, __abs__ = _unary("neg"), _unary("abs")

    def __invert__(self) -> Expr:
        return node("not" if self.kind == "bool" else "bitnot", self)

    def __bool__(self):
        raise TypeError("a formula has no truth value while it is traced: write where(condition, a, b), and & | ~ for and, or, not")


_interned: dict[tuple, Expr] = {}


def _make(op: str, args: tuple[Expr, ...], value: Any, kind: str) -> Expr:
    key = (op, tuple(map(id, args)), type(value), repr(value), kind)
    found = _interned.get(key)
    if found is None:
        found = object.__new__(Expr)
        found.op, found.args, found.value, found.kind = op, args, value, kind
        found = _interned.setdefault(key, found)  # formulas are compared by identity: of two threads, one makes it
    return found


def load(index: int, kind: str = "T") -> Expr:
    """The element of operand `index`."""
    return _make("load", (), index, kind)


def param(index: int) -> Expr:
    """The option number `index`: one number for the whole call."""
    return _make("param", (), index, "T")


def const(value, kind: str = "T") -> Expr:
    """A literal. A Python bool is of kind "bool"."""
    return _make("const", (), value, "bool" if isinstance(value, bool) else kind)


def local(name: str, kind: str = "T") -> Expr:
    """What a printed loop knows by this name."""
    return _make("local", (), name, kind)


def lift(value) -> Expr:
    """`value` itself if it is a formula, else the literal."""
    return value if isinstance(value, Expr) else const(value)


def node(op: str, *args) -> Expr:
    """The primitive `op` applied to formulas or numbers, which take the kind of the formulas beside them."""
    kind = _kind_beside(args)
    lifted = tuple([a if isinstance(a, Expr) else const(a, kind) for a in args])
    if len(lifted) != ARITY[op]:
        raise TypeError(f"{op} takes {ARITY[op]} arguments, found {len(lifted)}")
    if op == "where":
        kind = lifted[1].kind
    elif op in BOOLEAN:
        kind = "bool"
    elif op == "as_T":
        kind = "T"
    return _make(op, lifted, None, kind)


def typed(op: str, kind: str, *args: Expr) -> Expr:
    """The primitive `op` with a result of the given kind."""
    return _make(op, args, None, kind)


def _kind_beside(args) -> str:
    """A machine type if a formula here has one; two numbers to choose from look at what the condition compares."""
    for a in reversed(args):
        if isinstance(a, Expr):
            kind = _kind_beside(a.args) if a.kind == "bool" else a.kind
            if kind in MACHINE:
                return kind
    return "T"


def loads(expr: Expr) -> dict[int, Expr]:
    """The operands a formula reads, by index."""
    found: dict[int, Expr] = {}
    seen: set[int] = set()
    stack = [expr]
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if e.op == "load":
            found[e.value] = e
        stack.extend(e.args)
    return dict(sorted(found.items()))


def replace(expr: Expr, table: dict[Expr, Expr], _memo: dict | None = None) -> Expr:
    """`expr` with every occurrence of the keys of `table` exchanged for its values, outermost first."""
    memo = {} if _memo is None else _memo
    if expr in table:
        return table[expr]
    if not expr.args:
        return expr
    found = memo.get(expr)
    if found is None:
        args = tuple(replace(a, table, memo) for a in expr.args)
        found = memo[expr] = expr if args == expr.args else _make(expr.op, args, expr.value, expr.kind)
    return found


exp, exp2, expm1, log, log2, log10, log1p = map(_unary, ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p"))
sqrt, rsqrt, sigmoid, reciprocal, erf, erfc, erfinv = map(_unary, ("sqrt", "rsqrt", "sigmoid", "reciprocal", "erf", "erfc", "erfinv"))
sin, cos, tan, asin, acos, atan, lgamma = map(_unary, ("sin", "cos", "tan", "asin", "acos", "atan", "lgamma"))
sinh, cosh, tanh, asinh, acosh, atanh, digamma = map(_unary, ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "digamma"))
floor, ceil, trunc, rint, sgn, conj = map(_unary, ("floor", "ceil", "trunc", "rint", "sgn", "conj"))
isnan, isinf, as_bool, as_T, bitnot = map(_unary, ("isnan", "isinf", "as_bool", "as_T", "bitnot"))
maximum, minimum, fmod, remainder, floordiv = map(_binary, ("maximum", "minimum", "fmod", "remainder", "floordiv"))
atan2, hypot, copysign, nextafter, power = map(_binary, ("atan2", "hypot", "copysign", "nextafter", "pow"))
eq, ne, bitand, bitor, bitxor, xor, shl, shr, gcd = map(_binary, ("eq", "ne", "bitand", "bitor", "bitxor", "xor", "shl", "shr", "gcd"))


def where(condition, a, b) -> Expr:
    """`a` where `condition` holds, else `b`. Only the chosen branch counts, in the derivative too."""
    return node("where", condition, a, b)


def polynomial(x, coefficients) -> Expr:
    """coefficients[0] + coefficients[1] * x + ..., by Horner's rule."""
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return lift(total)


def chebyshev(x, coefficients) -> Expr:
    """The sum of coefficients[k] * T_k(x), by Clenshaw's rule: for a fit over -1 <= x <= 1 it loses no digits, as powers would."""
    twice, ahead, behind = 2 * x, const(0.0), const(0.0)
    for c in reversed(coefficients[1:]):
        ahead, behind = twice * ahead - behind + c, ahead
    return x * ahead - behind + coefficients[0]
