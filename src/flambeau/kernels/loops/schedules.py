"""The schedules under which loops are printed as C, and how the launcher finds what was printed.

rows.NAME      one row at a time (`rows.py`); all loops
short.NAME     many short rows at a time (`short.py`)          columns.NAME   columns side by side (`columns.py`); what reads and writes rows alone
lines.NAME     rows that are some lines of memory (`lines.py`), as channels of a batch are; they have `columns`, too, and no other way
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from flambeau.kernels.language.print_c import ENUM, TYPES, operand_dtype
from flambeau.kernels.loops import columns, lines, rows, short
from flambeau.kernels.loops.language import EACH, Loop
from flambeau.kernels.reductions import lanes


class Schedule(NamedTuple):
    """A way to print loops: its C before all others, of which loops, in which dtypes; numbers before the loop's own, what the launcher is to know."""

    head: tuple[str, ...]
    takes: Callable[[Loop], bool]
    dtypes: tuple[str, ...]
    print: Callable[[Loop, str], str]
    numbers: Callable[[Loop], int]
    along: Callable[[Loop], str]


def _along_row(loop: Loop) -> str:
    """The bits of the operands that lie along the row (see fl_pointwise in loops.h); or that rows come in chunks."""
    operands = [loop.stores[0], *loop.loads, *loop.stores[1:]]
    return "FL_LINES" if loop.in_chunks else str(sum(1 << o for o, access in enumerate(operands) if access != EACH) | 1)


def _of_short(loop: Loop) -> str:
    return str(2 ** (len(loop.loads) + 1) - 1) if short.is_flat(loop) else "FL_LINES"


LANES = tuple(lanes.texts())
FLOATS = ("float16", "bfloat16", "float32", "float64")
SCHEDULES = {
    "rows": Schedule(LANES, lambda loop: not loop.lines, FLOATS, rows.print_rows, lambda loop: 3 * loop.in_chunks, _along_row),
    "columns": Schedule((), columns.takes, ("float32", "float64"), columns.print_columns, lambda loop: 4, lambda loop: "FL_LINES"),
    "lines": Schedule(LANES, lines.takes, ("float32", "float64"), lines.print_lines, lambda loop: lines.NUMBERS, lambda loop: "FL_LINES"),
    "short": Schedule(
        (*LANES, short.HEAD), short.takes, FLOATS, short.print_short, lambda loop: 1 if short.is_flat(loop) else 3, _of_short
    ),
}


def entry(schedule: str, loop: Loop, dtype: str) -> tuple[str, str]:
    """(the function's name, the row of the launcher's table) of a printed loop."""
    way, chunks = SCHEDULES[schedule], loop.in_chunks and schedule == "rows"
    function = f"{schedule}_{loop.name}_{TYPES[dtype][0]}{'_chunks' * chunks}"
    kinds = (*loop.kinds, *loop.store_kinds[1:])
    inputs, out = [ENUM[operand_dtype(kind, dtype)] for kind in kinds], ENUM[operand_dtype(loop.store_kinds[0], dtype)]
    generic = sum(1 << i for i, kind in enumerate(kinds) if kind == "T")
    numbers = way.numbers(loop) + loop.options
    name, own = f"{schedule}.{loop.name}", ENUM[dtype]
    return (
        function,
        f'{{"{name}", FL_NAME({function}), {own}, {len(inputs)}, {numbers}, {generic}, {out}, {{{", ".join(inputs)}}}, {way.along(loop)}}}',
    )


def table(schedule: str, loops: Iterable[Loop]) -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table) of loops."""
    way, texts, declarations, entries = SCHEDULES[schedule], list(SCHEDULES[schedule].head), [], []
    for loop in filter(way.takes, loops):
        for dtype in [d for d in way.dtypes if d in loop.dtypes]:
            function, row = entry(schedule, loop, dtype)
            texts.append(way.print(loop, dtype))
            declarations.append(f"void FL_NAME({function})(char *const *, const int64_t *, int64_t, const double *);\n")
            entries.append(row)
    return texts, declarations, entries
