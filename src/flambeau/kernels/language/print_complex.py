"""Loops over complex numbers: a formula becomes two, of the real and of the imaginary part, over the parts of its operands.

>>> x, y = e.load(0), e.load(1)
>>> print(*parts(x + e.conj(y)), sep="    ")
add(x0, x2)    sub(x1, x3)

Only what programs with complex tensors are made of is compiled; the rest is NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr, where
from flambeau.kernels.language.pointwise import Pointwise
from flambeau.kernels.language.print_c import LoopPrinter
from flambeau.kernels.language.print_table import PARAMETERS, Table
from flambeau.kernels.language.vecmath.machine import fma

Pair = tuple[Expr, Expr]
NAMES = frozenset("_add _add_scaled _sub _rsub mul _div _rdiv neg reciprocal _inverse _square _cube exp addcmul".split())
PARTS = {"complex64": ("c64", "float32"), "complex128": ("c128", "float64")}


def parts(expr: Expr) -> Pair:
    """The real and the imaginary part; KeyError for a formula with something that has no rule here."""
    if expr.op == "load":
        return e.load(2 * expr.value), e.load(2 * expr.value + 1)
    if expr.op in ("const", "param"):
        return expr, ZERO
    return RULES[expr.op](*map(parts, expr.args))


ZERO = e.const(0)


def _mul(x: Pair, y: Pair) -> Pair:
    """The fma is written out: which of two products is rounded must not be the compiler's choice."""
    (a, b), (c, d) = x, y
    if d is ZERO or b is ZERO:
        factor, (c, d) = (c, x) if d is ZERO else (a, y)
        return factor * c, factor * d
    return fma(a, c, -(b * d)), fma(a, d, b * c)


def _div(x: Pair, y: Pair) -> Pair:
    """Smith's method: with the smaller part of the divisor over the larger, nothing overflows on the way. By 0, each part by 0."""
    (a, b), (c, d) = x, y
    if d is ZERO:
        return a / c, b / c
    steep = abs(c) < abs(d)
    large, small = where(steep, d, c), where(steep, c, d)
    a, b = where(steep, b, a), where(steep, a, b)
    ratio = small / large
    scale = 1 / fma(small, ratio, large)
    imaginary = fma(-a, ratio, b) * scale
    by_zero = e.eq(large, 0)
    real = where(by_zero, a * inf, fma(b, ratio, a) * scale)
    return real, where(by_zero, b * inf, where(steep, -imaginary, imaginary))


def _exp(x: Pair) -> Pair:
    """e^a (cos b + i sin b), in two factors because e^a may overflow alone. No angle leaves a real number real, and 0 turns to 0."""
    a, b = x
    large = a > 80
    size, rest = e.exp(where(large, a - 20, a)), where(large, e.exp(e.const(20.0)), 1)
    vanishes = e.eq(a, -inf)
    cosine, sine = (where(vanishes, 0, f(b)) for f in (e.cos, e.sin))
    return size * cosine * rest, where(e.eq(b, 0), b, size * sine * rest)


RULES: dict[str, Callable[..., Pair]] = {
    "add": lambda x, y: (x[0] + y[0], _or_zero(lambda a, b: a + b, x[1], y[1])),
    "sub": lambda x, y: (x[0] - y[0], x[1] if y[1] is ZERO else x[1] - y[1]),
    "neg": lambda x: (-x[0], -x[1]),
    "conj": lambda x: (x[0], -x[1]),
    "mul": _mul,
    "div": _div,
    "reciprocal": lambda x: _div((e.const(1), ZERO), x),
    "exp": _exp,
}


def _or_zero(f, a: Expr, b: Expr) -> Expr:
    return b if a is ZERO else a if b is ZERO else f(a, b)


# -- C -------------------------------------------------------------------------------------------------------------------


def table(kernels: Iterable[Pointwise]) -> Table:
    loops = Table()
    for kernel in filter(is_compiled, kernels):
        for dtype, (suffix, real) in PARTS.items():
            function = f"{kernel.name}_{suffix}"
            loops.texts.append(print_loop(function, kernel, real))
            loops.add(kernel.name, function, dtype, " ".join(kernel.kinds), len(kernel.options))
    return loops


def is_compiled(kernel: Pointwise) -> bool:
    """Whether a kernel, a derivative among them, gets loops for complex numbers."""
    return kernel.name.partition("_grad_")[0] in NAMES and set(kernel.kinds) == {"T"}


def print_loop(function: str, kernel: Pointwise, real: str) -> str:
    """The C of one loop: contiguous operands, of two the second perhaps a single number; others through buffers."""
    p = LoopPrinter(real)
    lines, values = p.bodies(parts(kernel.expr))
    t, count = p.compute, len(kernel.kinds)
    numbers = "".join(f"    const {t} p{i} = ({t})param[{i}];\n" for i in range(len(kernel.options)))
    pointers = "".join(f"    const {t} *const a{i} = (const {t} *)ptr[{i + 1}];\n" for i in range(count))
    loops = ""
    for single in ((), *([(1,)] if count == 2 else [])):
        size = f"2 * sizeof({t})"
        steps = " && ".join(f"step[{i}] == {0 if i - 1 in single else size}" for i in range(count + 1))
        read = {
            i: f"const {t} x{2 * i} = a{i}[{at}], x{2 * i + 1} = a{i}[{at} + 1];"
            for i in range(count)
            for at in ["0" if i in single else "2 * i"]
        }
        loops += f"    if ({steps}) {{\n" + "".join(f"        {read[i]}\n" for i in single)
        loops += "        FL_IVDEP for (int64_t i = 0; i < n; i++) {\n"
        body = [*(read[i] for i in range(count) if i not in single), *lines, f"o[2 * i] = {values[0]};", f"o[2 * i + 1] = {values[1]};"]
        loops += "".join(f"            {line}\n" for line in body) + "        }\n        return;\n    }\n"
    sizes = ", ".join([f"2 * sizeof({t})"] * (count + 1))
    loops += f"    FL_NAME(fl_in_blocks)(FL_NAME({function}), ptr, step, n, param, {count + 1}, (const uint8_t[]){{{sizes}}});\n"
    return f"void FL_NAME({function}){PARAMETERS} {{\n    (void)param;\n{numbers}    {t} *const o = ({t} *)ptr[0];\n{pointers}{loops}}}\n"
