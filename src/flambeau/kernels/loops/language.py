"""The language of loops: a result as formulas over the elements of operands, along two axes.

    Loop("log_softmax", formula, loads="ri")          r: rows, which do not depend on each other;  i: along a row, which may be reduced

    def formula(x):
        shifted = x - peak(x)                         # a map, after a reduction
        return shifted - e.log(total(e.exp(shifted)))

A formula is an `Expr` (see expr.py) with a few more words:

    total(v), peak(v)    the sum, and the greatest, of v along the row: one number for each row
    unrounded(total(v))  the sum in double precision, in which sums end up, before it is rounded to the dtype of the formula
    pick(k, at)          the element of operand k at a place of the row, an integer that need not be the place we are at
    position, extent     the place we are at, an integer;  how many there are, a number

and, printed for GPUs only (on the CPU these are folds, see reductions/fold.py):

    product(v), greatest(v, start), least(v, start)      NaN is greater and less than all; of nothing they are `start`
    place(r)             where in the row what one of the latter two found stands first, an integer
    precise(v)           one number for each row, computed in double precision from totals that were not rounded yet

Each load and each store says along which axes it moves; along the others it stays where it is:

    "ri"   an element for each place of each row          "i"   one row for all          "r"   one number for each row

as "r:i64" if its elements are of a dtype of their own, "r:wide" if half precision is float32 there, "r:f32" or "r:f64" if they are
rounded when they are read. A formula gives a value for each store. What is stored along "i" alone is the sum over the
rows.

A row may have two axes, lines and the places of each: a channel of all samples of a batch is a row, and its part of each sample a line. Then

    line_total(v)        the sum of v along each line: one number for each of them
    total_of_lines(v)    the sum, over the row, of what is one number for each line
    "rj"                 a load or a store moves along rows and their lines

The same declaration is evaluated by NumPy (`evaluate.py`), differentiated (`derive.py`), cut into passes (`passes.py`), and printed under
a schedule as C (`rows.py`, `lines.py`, `columns.py`, `short.py`) or as CUDA C++ (`cuda.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.language.pointwise import FLOATS

REDUCTIONS = ("total", "peak", "line_total", "total_of_lines", "product", "greatest", "least")
e.ARITY |= dict.fromkeys((*REDUCTIONS, "pick", "unrounded", "place", "precise"), 1)
total, line_total, total_of_lines = map(e._unary, ("total", "line_total", "total_of_lines"))
peak = e._unary(
    "peak"
)  # to shift exponents by: it has no derivative, and of a row with NaN, which the total will find, it may be any element
product, precise = e._unary("product"), e._unary("precise")
position = e._make("position", (), None, "i64")
extent = e._make("extent", (), None, "T")

ROW, SHARED, EACH, LINE = "ri", "i", "r", "rj"
NUMBER, OF_LINE, OF_PLACE = 0, 1, 2  # how far a value reaches: one for each row, for each line of it, for each place
_REACH = {EACH: NUMBER, LINE: OF_LINE, ROW: OF_PLACE, SHARED: OF_PLACE}
ROUNDED = ("f32", "f64")  # dtypes of loads that are rounded when they are read
DECLARED: dict[str, Loop] = {}


def unrounded(sum: Expr) -> Expr:
    """A total in double precision, before it is rounded."""
    return e.typed("unrounded", "f64", sum)


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
    lines     whether its rows have lines, and not just places
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
        lines: bool = False,
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
        self.dtypes, self.lines, self.error, self.over = dtypes, lines, error, over

    def __repr__(self) -> str:
        return f"{self.name}({' '.join(self.loads)} -> {' '.join(self.stores)}): {', '.join(map(repr, self.values))}"

    @cached_property
    def values(self) -> tuple[Expr, ...]:
        """The formula, traced: a value for each store."""
        operands = [e.load(i, "T" if kind in ROUNDED else kind) for i, kind in enumerate(self.kinds)]
        found = self.formula(*operands, *(e._make("param", (), i, kind) for i, kind in enumerate(self.params)))
        values = tuple(map(e.lift, found if isinstance(found, tuple) else (found,)))
        for access, value in zip(self.stores, values, strict=True):
            if access in (EACH, LINE) and self.reach(value) > _REACH[access]:
                what = "row" if access == EACH else "line"
                raise TypeError(f"{self.name}: a store of one number for each {what} was given {value!r}, which differs along the {what}")
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
        return self.reach(value) > NUMBER

    def reach(self, value: Expr) -> int:
        """Whether a value is one NUMBER for each row, one OF_LINE for each of its lines, or one OF_PLACE for each place."""
        found = self._reaches.get(value)
        if found is None:
            found = self._reaches[value] = self._reach(value)
        return found

    def _reach(self, value: Expr) -> int:
        if value.op == "load":  # beyond the operands: gradients of stores, the result
            known = dict(enumerate((*self.loads, *self.stores)))
            return _REACH[known.get(value.value, self.stores[0])]
        if value.op in (*REDUCTIONS, "place"):
            return OF_LINE if value.op == "line_total" else NUMBER
        return OF_PLACE if value.op == "position" else max(map(self.reach, value.args), default=NUMBER)

    @cached_property
    def _reaches(self) -> dict[Expr, int]:
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
