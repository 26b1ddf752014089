"""The launcher's table: how it finds what was printed (see loops.h).

    loops = Table("#include <string.h>")
    loops.texts.append(...)                                                                the C of index_take_4
    loops.add("index.take", "index_take_4", "float32", "T i64 i64", numbers=2)

A row says which function is the loop of that name for a dtype, and what it takes: operands, and so many numbers. Operands are of kind "T", which is the
dtype itself, of dtypes of their own as "i64", or of kind "number": a Python number beside half precision, which is not rounded to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from flambeau.kernels.language.dtype_table import DTYPES


def of(things: str) -> str:
    """The parameters of all loops, an fl_loop: operands, their steps, how many `things` there are, numbers."""
    return f"(char *const *ptr, const int64_t *step, int64_t {things}, const double *param)"


PARAMETERS = of("n")
LINES = "FL_LINES"  # `along` where an element stands for a line of param[0] elements
ROWS = "1"  # `along` where the first operand, which the launcher cuts into blocks, is all that moves along the row


class Table:
    """What a room has printed: C texts, declarations of functions, and rows of the table. It unpacks into these three."""

    def __init__(self, *texts: str):
        self.texts = list(texts)
        self.declared: dict[str, None] = {}
        self.rows: list[str] = []

    def __iter__(self) -> Iterator[list[str]]:
        return iter((self.texts, self.declarations, self.rows))

    @property
    def declarations(self) -> list[str]:
        return [f"void FL_NAME({function}){PARAMETERS};\n" for function in self.declared]

    def add(self, name: str, function: str, dtype: str, operands: str, numbers: int = 0, along: str = "0", out: str = "T") -> None:
        """The function is the loop of this name for a dtype. `along`: the bits of the operands that move along a row, or LINES."""
        kinds, own = operands.split(), {"T": dtype, "number": "float32"}
        inputs = ", ".join([enum_of(own.get(kind, kind)) for kind in kinds])
        first = kinds[:8]  # a byte has room for: by one of them the launcher finds the row
        generic, unrounded = (sum(1 << i for i, kind in enumerate(first) if kind in which) for which in (("T", "number"), ("number",)))
        self.declared[function] = None
        self.rows.append(
            f'{{"{name}", FL_NAME({function}), {enum_of(dtype)}, {len(kinds)}, {numbers}, {generic}, {enum_of(own.get(out, out))}, '
            f"{{{inputs}}}, {along}, {unrounded}}}"
        )


def enum_of(dtype: str) -> str:
    """The C side's name of a dtype, "float32" or "f32"."""
    return _ENUMS.get(dtype) or f"FL_{dtype.upper()}"


_ENUMS = {name: enum for enum, (name, *_) in DTYPES.items()}


def filled(text: str, words: dict[str, str]) -> str:
    """The text with its holes, words in capitals, filled."""
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text


def whole_table(hot: Iterable[str], rest: Iterable[str], folds: Iterable[str]) -> str:
    """The table of a CPU variant; those without `rest` get that of another."""

    def lines(rows: Iterable[str]) -> str:
        return "".join(f"    {row},\n" for row in rows)

    return f"""
extern const fl_products FL_NAME(fl_products)[2];
static const fl_pointwise loops[] = {{
{lines(hot)}#ifdef FL_WITH_REST
{lines(rest)}#endif
}};
static const fl_fold folds[] = {{
{lines(folds)}}};
#define FL_COUNT(x) (int)(sizeof(x) / sizeof *(x))
const fl_table FL_NAME(fl_table) = {{FL_VARIANT, loops, FL_COUNT(loops), folds, FL_COUNT(folds), FL_NAME(fl_products)}};
"""
