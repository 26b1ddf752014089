"""The language of loops: a result as formulas over the elements of operands, along two axes.

    Loop("log_softmax", formula, loads="ri")          r: rows, which do not depend on each other;  i: along a row, which may be reduced

    def formula(x):
        shifted = x - peak(x)                         # a map, after a reduction
        return shifted - e.log(total(e.exp(shifted)))

A formula is an `Expr` (see expr.py) with a few more words:

    total(v), peak(v)    the sum, and the greatest, of v along the row: one number for each row
    pick(k, at)          the element of operand k at a place of the row, an integer that need not be the place we are at
    position, extent     the place we are at, an integer;  how many there are, a number

and, printed for GPUs only (on the CPU these are folds, see reductions/fold.py):

    product(v), greatest(v, start), least(v, start)      NaN is greater and less than all; of nothing they are `start`
    place(r)             where in the row what one of the latter two found stands first, an integer
    precise(v)           one number for each row, computed in double precision from totals that were not rounded yet

Each load and each store says along which axes it moves; along the others it stays where it is:

    "ri"   an element for each place of each row          "i"   one row for all          "r"   one number for each row

and, for GPUs, "l" one number for each line, where rows are cut into lines that lie apart; as "r:i64" if its elements are of a dtype of their own, "r:wide" if half precision is float32 there, "r:f32" or "r:f64" if they are rounded when they are read. A formula gives a value for each store. What is stored along "i" alone is the sum over the
rows. The same declaration is evaluated by NumPy (`evaluate.py`), differentiated (`derive.py`), cut into passes (`passes.py`), and printed under
a schedule as C (`rows.py`, `columns.py`, `short.py`) or as CUDA C++ (`cuda.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.language.pointwise import FLOATS

REDUCTIONS = ("total", "peak", "product", "greatest", "least")
e.ARITY |= dict.fromkeys((*REDUCTIONS, "pick", "place", "precise"), 1)
total = e._unary("total")
peak = e._unary(
    "peak"
)  # to shift exponents by: it has no derivative, and of a row with NaN, which the total will find, it may be any element
product, precise = e._unary("product"), e._unary("precise")
position = e._make("position", (), None, "i64")
extent = e._make("extent", (), None, "T")

ROW, SHARED, EACH, LINE = "ri", "i", "r", "l"
ROUNDED = ("f32", "f64")  # dtypes of loads that are rounded when they are read
DECLARED: dict[str, Loop] = {}


def pick(operand: int, at: Expr) -> Expr:
    """The element of operand `operand` at place `at` of the row; NaN where there is none."""
    return e._make("pick", (at,), operand, "T")


def greatest(value: Expr, start: float | None = None) -> Expr:
    """The greatest along the row; of nothing `start`, or what no number is less than."""
    return e._make("greatest", (value,), start, "T")


def least(value: Expr, start: float | None = None) -> Expr:
    """The least along the row; of nothing `start`, or what no number is greater than."""
    return e._make("least", (value,), start, "T")


def place(found: Expr) -> Expr:
    """Where `greatest` or `least` found what it found, first."""
    return e._make("place", (found,), None, "i64")


class Loop:
    """A named loop. `formula(*loads, *options)` gives the value of the store, or a tuple of values, one for each of the `stores`.

    options   the numbers that hold for the whole call: how many, or their kinds, as "T i64"
    dtypes    those it is compiled for ahead of time, if it is declared
    over      the loads that the stores are written over, where rows are tensors of a list
    error     which error it is (indexing/index_errors.py) to pick beyond the row, for GPUs, which note that; the first option is what else is said of it
    """

    def __init__(
        self,
        name: str,
        formula: Callable,
        loads: str,
        stores: str = ROW,
        options: int | str = 0,
        dtypes: tuple[str, ...] = FLOATS,
        error: int | None = None,
        over: tuple[int, ...] = (),
    ):
        self.name = name
        self.formula = formula
        self.loads = tuple([spec.partition(":")[0] for spec in loads.split()])
        self.kinds = tuple([spec.partition(":")[2] or "T" for spec in loads.split()])
        self.stores = tuple([spec.partition(":")[0] for spec in stores.split()])
        self.store_kinds = tuple([spec.partition(":")[2] or "T" for spec in stores.split()])
        self.params = ("T",) * options if isinstance(options, int) else tuple(options.split())
        self.options = len(self.params)
        self.dtypes, self.error, self.over = dtypes, error, over

    def __repr__(self) -> str:
        return f"{self.name}({' '.join(self.loads)} -> {' '.join(self.stores)}): {', '.join(map(repr, self.values))}"

    @cached_property
    def values(self) -> tuple[Expr, ...]:
        """The formula, traced: a value for each store."""
        operands = [e.load(i, "T" if kind in ROUNDED else kind) for i, kind in enumerate(self.kinds)]
        found = self.formula(*operands, *(e._make("param", (), i, kind) for i, kind in enumerate(self.params)))
        values = tuple(map(e.lift, found if isinstance(found, tuple) else (found,)))
        for access, value in zip(self.stores, values, strict=True):
            if access == EACH and self.varies(value):
                raise TypeError(f"{self.name}: a store of one number for each row was given {value!r}, which differs along the row")
        return values

    @cached_property
    def is_rows_alone(self) -> bool:
        """Whether all that is read and written are rows of one dtype, so that any dimension may play the part of the last."""
        return set(self.loads) == set(self.stores) == {ROW} and set(self.kinds) == {"T"}

    @cached_property
    def in_chunks(self) -> bool:
        """Whether a compiled loop takes chunks of rows at a time: where a store is summed over them, or no row is written first."""
        return bool(self.totals) or self.stores[0] != ROW

    @cached_property
    def totals(self) -> tuple[int, ...]:
        """The stores that are summed over the rows."""
        return tuple([k for k, access in enumerate(self.stores) if access == SHARED])

    def varies(self, value: Expr) -> bool:
        """Whether a value differs from place to place of a row."""
        found = self._varying.get(value)
        if found is None:
            if value.op == "load":
                found = (
                    self.loads[value.value] if value.value < len(self.loads) else self.stores[0]
                ) != EACH  # beyond: the gradient, the result
            else:
                found = value.op == "position" or (value.op not in (*REDUCTIONS, "place") and any(map(self.varies, value.args)))
            self._varying[value] = found
        return found

    @cached_property
    def _varying(self) -> dict[Expr, bool]:
        return {}


def declare(loop: Loop) -> Loop:
    """Have a loop compiled ahead of time."""
    DECLARED[loop.name] = loop
    return loop


def in_order(values: tuple[Expr, ...]) -> list[Expr]:
    """All that values are made of, parts before wholes."""
    order: list[Expr] = []
    seen: set[Expr] = set()

    def visit(value: Expr) -> None:
        if value not in seen:
            seen.add(value)
            for a in value.args:
                visit(a)
            order.append(value)

    for value in values:
        visit(value)
    return order


def uses(value: Expr, other: Expr, stop=()) -> bool:
    """Whether `other` is a part of `value`, not counting what is inside of `stop`."""
    if value is other:
        return True
    return value not in stop and any(uses(a, other, stop) for a in value.args)
