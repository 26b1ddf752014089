"""The schedules under which loops are printed as C, and how the launcher finds what was printed.

rows.NAME      one row at a time (`rows.py`); all loops
short.NAME     many short rows at a time (`short.py`)          columns.NAME   columns side by side (`columns.py`); what reads and writes rows alone
lines.NAME     rows that are some lines of memory (`lines.py`), as channels of a batch are; they have `columns`, too, and no other way
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from flambeau.kernels.language import print_lanes
from flambeau.kernels.language.print_c import TYPES, operand_dtype
from flambeau.kernels.language.print_table import LINES, Table
from flambeau.kernels.loops import columns, lines, rows, short
from flambeau.kernels.loops.language import EACH, Loop


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
    return LINES if loop.in_chunks else str(sum(1 << o for o, access in enumerate(operands) if access != EACH) | 1)


def _of_short(loop: Loop) -> str:
    return str(2 ** (len(loop.loads) + 1) - 1) if short.is_flat(loop) else LINES


LANES = tuple(print_lanes.texts())
FLOATS = ("float16", "bfloat16", "float32", "float64")
SCHEDULES = {
    "rows": Schedule(LANES, lambda loop: not loop.lines, FLOATS, rows.print_rows, lambda loop: 3 * loop.in_chunks, _along_row),
    "columns": Schedule((), columns.takes, ("float32", "float64"), columns.print_columns, lambda loop: 4, lambda loop: LINES),
    "lines": Schedule(LANES, lines.takes, ("float32", "float64"), lines.print_lines, lambda loop: lines.NUMBERS, lambda loop: LINES),
    "short": Schedule(
        (*LANES, short.HEAD), short.takes, FLOATS, short.print_short, lambda loop: 1 if short.is_flat(loop) else 3, _of_short
    ),
}


def table(schedule: str, loops: Iterable[Loop]) -> Table:
    way = SCHEDULES[schedule]
    found = Table(*way.head)
    for loop in filter(way.takes, loops):
        kinds = " ".join((*loop.kinds, *loop.store_kinds[1:]))
        for dtype in [d for d in way.dtypes if d in loop.dtypes]:
            function = f"{schedule}_{loop.name}_{TYPES[dtype][0]}{'_chunks' * (loop.in_chunks and schedule == 'rows')}"
            wide = operand_dtype("wide", dtype)
            found.texts.append(way.print(loop, dtype))
            found.add(
                f"{schedule}.{loop.name}",
                function,
                dtype,
                kinds.replace("wide", wide),
                way.numbers(loop) + loop.options,
                way.along(loop),
                loop.store_kinds[0].replace("wide", wide),
            )
    return found
