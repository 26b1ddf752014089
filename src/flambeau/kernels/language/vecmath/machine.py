"""Numbers as the machine holds them: two floating-point formats, their bits, and the few instructions everything is made of.

A function is written once and traced for "f32" and for "f64". Its argument tells which of the two it is:

    F = format_of(x)
    t = x * 1.4426950408889634 + F.magic     # numbers take the format of the formula beside them
    if F(-104, -746): ...                    # the first in float32, the second in float64

Two rules make the functions fit for vectors: no branches, only selections between values already computed (`where`), and no calls
into libraries. NaN, infinities, signed zeros and subnormals are values like any other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr

e.ARITY |= {"fma": 3, "bits": 1, "from_bits": 1, "mod": 2, "rest_of_product": 3, "rest_of_quotient": 3, "exact_product_plus": 3}


# -- formats -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """A sign bit, an exponent to which `bias` was added, and `mantissa` bits after the leading one."""

    kind: str
    bits: int
    mantissa: int
    bias: int

    def __call__(self, single, double):
        """The constant that belongs to this format."""
        return single if self.bits == 32 else double

    @property
    def magic(self) -> float:
        """x + magic has rint(x) in its low bits: rounding and conversion to an integer in one addition, defined for any x."""
        return 1.5 * 2.0**self.mantissa

    @property
    def tiny(self) -> float:
        """The smallest number with a leading one; below are the subnormals."""
        return 2.0 ** (1 - self.bias)

    def whole(self, n: int) -> Expr:
        """n as an unsigned integer as wide as the format."""
        return e.const(n, f"u{self.bits}")


SINGLE = Format("f32", 32, 23, 127)
DOUBLE = Format("f64", 64, 52, 1023)


def format_of(x: Expr) -> Format:
    """The format of a formula."""
    return {"f32": SINGLE, "f64": DOUBLE, "u32": SINGLE, "u64": DOUBLE}[x.kind]


# -- bits ----------------------------------------------------------------------------------------------------------------


def bits(x: Expr) -> Expr:
    """The bits of a number as an unsigned integer."""
    return e.typed("bits", f"u{x.kind[1:]}", x)


def from_bits(u: Expr) -> Expr:
    """The number that has these bits."""
    return e.typed("from_bits", f"f{u.kind[1:]}", u)


def cast(x: Expr, kind: str) -> Expr:
    """C's conversion of a value to another type."""
    return e.typed("cast", kind, x)


def number(u: Expr) -> Expr:
    """A small integer as a number. SSE2 and AVX2 convert no 64-bit integers, but 2^52 + u has u in its low bits."""
    if u.kind == "u32":
        return cast(cast(u, "i32"), "f32")
    return from_bits(u | 0x4330000000000000) - 2.0**52


def two_to(exponent: Expr) -> Expr:
    """2^(exponent - bias), from the integer `exponent` that the format stores."""
    return from_bits(exponent << format_of(exponent).mantissa)


def upper_half(x: Expr) -> Expr:
    """x without the lower half of its digits: the product of two such numbers is exact."""
    return from_bits(bits(x) & (0xFFFFF000 if x.kind == "f32" else 0xFFFFFFFFF8000000))


def pick(odd: Expr, a: Expr, b: Expr) -> Expr:
    """`a` if the integer `odd` is odd, else `b`; by bits, because SSE2 cannot compare 64-bit integers."""
    mask = -(odd & 1)
    return from_bits((bits(a) & mask) | (bits(b) & ~mask))


# -- instructions --------------------------------------------------------------------------------------------------------


def fma(a: Expr, b, c) -> Expr:
    """a b + c, rounded once where the CPU can.

    Written out where the compiler has a choice of products to fuse: it may choose differently for the vectors of a loop and for its
    last elements, and a result must not depend on where in an array its argument stands.
    """
    return e.node("fma", a, b, c)


def exact_product_plus(a: Expr, b, c) -> Expr:
    """a b + c, c being the smaller, as if the product were exact: in two parts where the CPU has no fma."""
    return e.node("exact_product_plus", a, b, c)


def rest_of_product(a: Expr, b: Expr, product: Expr) -> Expr:
    """a b - product, exactly, for `product` = a b rounded."""
    return e.node("rest_of_product", a, b, product)


def limits(x: Expr, low: float, at_low, high: float, at_high, otherwise: Expr) -> Expr:
    """`otherwise`, except beyond `low` and `high`, where the result is known.

    Clamping x beforehand looks cheaper, but GCC then folds the constant through every later step and selects there again: 12 blends
    instead of 2.
    """
    return e.where(x > high, at_high, e.where(x < low, at_low, otherwise))


# -- the list of functions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A C function: `formula` traced for arguments of these kinds."""

    name: str
    kinds: tuple[str, ...]
    result: str
    formula: Callable
    instruction: tuple[str, str] | None = None  # (where the CPU has one, how C spells it)


@dataclass(frozen=True)
class Loop:
    """state = start; while goes_on(*state): state = step(*state); the value is then(*state)."""

    start: tuple[Expr, ...]
    goes_on: Callable
    step: Callable
    then: Callable


FUNCTIONS: list[Function] = []


def function(formula: Callable) -> Callable:
    """Declares fl_<name>_f64 and fl_<name>_f32. Other formulas may use it like any Python function."""
    count = formula.__code__.co_argcount - len(formula.__defaults__ or ())
    for kind in ("f64", "f32"):
        FUNCTIONS.append(Function(f"{formula.__name__}_{kind}", (kind,) * count, kind, formula))
    return formula


def in_double(formula: Callable, single: Callable | None = None) -> Callable:
    """Declares a rare function: for float32, too, it is computed in double, and right to half an ulp.

    `single`: the formula for float32, which may make do with fewer digits.
    """

    def same(x):
        return cast(e.typed(formula.__name__, "f64", cast(x, "f64")), "f32")

    def short(x):
        return cast(single(cast(x, "f64")), "f32")

    same.__doc__ = short.__doc__ = "In double."
    FUNCTIONS.append(Function(f"{formula.__name__}_f64", ("f64",), "f64", formula))
    FUNCTIONS.append(Function(f"{formula.__name__}_f32", ("f32",), "f32", short if single else same))
    return formula


def in_short_double(single: Callable) -> Callable:
    """The same, with a formula of its own for float32."""
    return functools.partial(in_double, single=single)


def near_forms(is_near: Callable, kinds: tuple[str, ...] = ("f64", "f32"), name: str | None = None) -> Callable:
    """Declares what a loop may call instead of fl_<name> if is_near(*arguments) holds for all of a block: fl_<name>_near.

    The formula takes `near` beside its arguments, and gives the same bits with and without it.
    """

    def declare(formula: Callable) -> Callable:
        called = name or formula.__name__
        count = formula.__code__.co_argcount - 1
        e.ARITY |= {f"{called}_near": count, f"{called}_is_near": count}
        e.BOOLEAN.add(f"{called}_is_near")
        for kind in kinds:
            near = functools.wraps(formula)(functools.partial(formula, near=True))
            FUNCTIONS.append(Function(f"{called}_near_{kind}", (kind,) * count, kind, near))
            FUNCTIONS.append(Function(f"{called}_is_near_{kind}", (kind,) * count, "bool", is_near))
            e.NEAR.add(f"{called}_{kind}")
        return formula

    return declare


def instruction(condition: str, spelling: str, kinds: tuple[str, ...] = ("f64", "f32")) -> Callable:
    """Declares what some CPUs do by themselves; the formula is for the others. {f} in the spelling is f for float32."""

    def declare(formula: Callable) -> Callable:
        for kind in kinds:
            spelled = (condition, spelling.format(f="f" if kind == "f32" else ""))
            FUNCTIONS.append(Function(f"{formula.__name__}_{kind}", (kind,) * formula.__code__.co_argcount, kind, formula, spelled))
        return lambda *args: e.node(formula.__name__, *args)

    return declare
