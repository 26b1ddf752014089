"""Two loops in one call: what the first finds of each row is a row for the second, as the losses of all rows are for their mean.

    Joined("mean_loss", LOSSES, SUMMARY, ("s0", "x1"))      the second reads the first's store 0 and load 1

Small work is mostly calls. In the launcher's eyes there is one element. Operands: the second's first store, the first's loads and stores, the second's
other stores. Numbers: elements (for the launcher), length of a row, rows, the first's own, the second's own. What the second works on is wide.
"""

from __future__ import annotations

from typing import NamedTuple

from flambeau.kernels.language.print_c import TYPES, operand_dtype
from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table
from flambeau.kernels.loops import short
from flambeau.kernels.loops.language import Loop

JOINED: list[Joined] = []


class Joined(NamedTuple):
    """`feeds`: where each load of the second comes from."""

    name: str
    first: Loop
    second: Loop
    feeds: tuple[str, ...]


def declare(joined: Joined) -> Joined:
    """Have two loops in one call compiled ahead of time."""
    JOINED.append(joined)
    return joined


def table() -> Table:
    loops = Table()
    for joined in JOINED:
        first, second = joined.first, joined.second
        for dtype in first.dtypes:
            wide, function = operand_dtype("wide", dtype), f"joined_{joined.name}_{TYPES[dtype][0]}"
            kinds = [*first.kinds, *first.store_kinds, *["wide"] * (len(second.stores) - 1)]
            loops.texts.append(print_joined(joined, function, dtype))
            numbers = 3 + first.options + second.options
            loops.add(f"joined.{joined.name}", function, dtype, " ".join(kinds).replace("wide", wide), numbers, LINES, wide)
    return loops


def print_joined(joined: Joined, function: str, dtype: str) -> str:
    """The C of both loops for one dtype."""
    first, second = joined.first, joined.second
    suffix, wide, count = TYPES[dtype][0], TYPES[operand_dtype("wide", dtype)][0], len(first.loads)
    place = {f"x{i}": f"ptr[{1 + i}]" for i in range(count)} | {f"s{k}": f"ptr[{1 + count + k}]" for k in range(len(first.stores))}
    of_first = [place["s0"], *(place[f"x{i}"] for i in range(count)), *(place[f"s{k}"] for k in range(1, len(first.stores)))]
    last = 1 + count + len(first.stores)
    of_second = ["ptr[0]", *(place[feed] for feed in joined.feeds), *(f"ptr[{last + k}]" for k in range(len(second.stores) - 1))]
    own = [[f"param[{3 + at + i}]" for i in range(n)] for at, n in ((0, first.options), (first.options, second.options))]
    rows, many = f"rows_{first.name}_{suffix}_chunks", f"short_{first.name}_{suffix}"
    then, still = f"rows_{second.name}_{wide}_chunks", max(len(of_first), len(of_second))
    return f"""void FL_NAME({rows}){PARAMETERS};
void FL_NAME({many}){PARAMETERS};
void FL_NAME({then}){PARAMETERS};
void FL_NAME({function}){PARAMETERS} {{
    static const int64_t still[{still}];
    char *const of_first[] = {{{", ".join(of_first)}}}, *const of_second[] = {{{", ".join(of_second)}}};
    const double first[] = {{{", ".join(["param[0]", "param[1]", "param[2]", *own[0]])}}};
    const double second[] = {{{", ".join(["param[2]", "param[2]", "1", *own[1]])}}};
    (void)step, (void)n;
    (param[1] <= {short.longest(first)} && param[2] >= {short.FEW} ? FL_NAME({many}) : FL_NAME({rows}))(of_first, still, 1, first);
    FL_NAME({then})(of_second, still, 1, second);
}}
"""
