"""Loops as C along a dimension that is not the last: columns side by side.

    columns.softmax ...     an element of the launch is a block of up to 128 columns, `apart` elements from one row to the next

What is one number for a row is here a number for each column, and the compiler makes SIMD code across them. A block whose columns are not
too long is first copied to where it lies in one piece, since rows a power of two apart would push each other out of the cache: the array
is read once and the result written once. A column is added up 64 elements at a time in its own dtype; the rest is in double. Half precision comes
here as float32.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.kernels.language.expr import Expr, loads
from flambeau.kernels.language.print_c import TYPES, LoopPrinter
from flambeau.kernels.language.print_table import of
from flambeau.kernels.loops.language import Loop, in_order
from flambeau.kernels.loops.passes import Pass, passes
from flambeau.kernels.loops.rows import options

WIDTHS = (128, 64, 16)  # columns a loop takes at a time: as many as can be
NEAR = 1 << 19  # bytes of the blocks of columns that are copied to where they stay in the cache
EACH = "FL_IVDEP for (int c = 0; c < width; c++)"


def takes(loop: Loop) -> bool:
    """Whether a loop can be carried out so: it reads and writes nothing but rows."""
    return loop.is_rows_alone and len(loop.stores) == 1


def print_columns(loop: Loop, dtype: str) -> str:
    """The C of the loop for one dtype. Numbers: elements of a block (for the launcher), of a column, from row to row, columns; the loop's own."""
    return Columns(loop, dtype).text()


class Columns:
    """Rows of the operands and of what is kept lie `pitch` elements apart; `s0_of` has a number for each column, which is called `s0`."""

    def __init__(self, loop: Loop, dtype: str):
        self.loop, self.p, self.passes = loop, _ColumnPrinter(dtype), passes(loop, puts=False)
        self.name, self.operands = f"columns_{loop.name}_{TYPES[dtype][0]}", range(len(loop.loads))

    def text(self) -> str:
        return f"{self.block()}{self.near()}{self.whole()}"

    def block(self) -> str:
        """One block of columns."""
        t, given = self.p.compute, ", ".join(f"const {self.p.compute} *a{i}" for i in self.operands)
        lines = [*options(self.loop, self.p, 0), "(void)param, (void)k0_at;"]
        for step in self.passes.reducing:
            lines += self.reduce(step)
        lines += [self.number(*item) for item in self.passes.numbers]
        (value,) = self.passes.stores.values()
        found, texts = self.body([value])
        lines += [
            f"for (int64_t i = 0; i < n; i++) {EACH} {{",
            *(f"    {line}" for line in found),
            f"    to[i * apart + c] = {texts[0]};",
            "}",
        ]
        return f"""static inline __attribute__((always_inline)) void {self.name}_block({t} *to, int64_t apart, {given},
    {t} *k0_at, int64_t pitch, int64_t n, const int width, const double *param) {{
{"".join(f"    {line}{chr(10)}" for line in lines)}}}
"""

    def reduce(self, step: Pass) -> Iterator[str]:
        """One walk down the columns."""
        t = self.p.compute
        sums = [r.name.value for r in step.reductions if r.op == "total"]
        for r in step.reductions:
            name = r.name.value
            yield f"FL_ALIGNED {t} {name}_of[{WIDTHS[0]}];"
            if name in sums:
                yield f"FL_ALIGNED double {name}_wide[{WIDTHS[0]}]; {EACH} {name}_wide[c] = 0;"
            else:
                yield f"{EACH} {name}_of[c] = -INFINITY;"
        yield from (self.number(*item) for item in step.numbers)
        found, texts = self.body(step.values)
        body = [
            *found,
            *(f"{name.value}_at[i * pitch + c] = {v};" for (name, _), v in zip(step.kept, texts[len(step.reductions) :], strict=True)),
        ]
        for r, text in zip(step.reductions, texts, strict=False):
            at = f"{r.name.value}_of[c]"
            body.append(f"{at} += {text};" if r.op == "total" else f"{{ const {t} v = {text}; {at} = v > {at} ? v : {at}; }}")
        yield "for (int64_t i = 0; i < n;) {\n        const int64_t stop = n - i < 64 ? n : i + 64;"
        yield from (f"    {EACH} {name}_of[c] = 0;" for name in sums)
        yield f"    for (; i < stop; i++) {EACH} {{"
        yield from (f"        {line}" for line in body)
        yield "    }"
        yield from (f"    {EACH} {name}_wide[c] += {name}_of[c];" for name in sums)
        yield "}"
        yield from (f"{EACH} {name}_of[c] = ({t}){name}_wide[c];" for name in sums)

    def number(self, name: Expr, value: Expr) -> str:
        """A number for each column that is computed before a walk."""
        found, (text,) = self.body([value])
        return f"FL_ALIGNED {self.p.ctype(value)} {name.value}_of[{WIDTHS[0]}]; {EACH} {{ {' '.join(found)} {name.value}_of[c] = {text}; }}"

    def body(self, values: list[Expr]) -> tuple[list[str], list[str]]:
        """Statements for a column, and the values: they read what the values need."""
        t = self.p.compute
        reads = [f"const {t} x{i} = a{i}[i * pitch + c];" for i in sorted({i for v in values for i in loads(v)})]
        for v in in_order(tuple(values)):
            if v.op == "local":
                place = f"{v.value}_at[i * pitch + c]" if v.value[0] == "k" else f"{v.value}_of[c]"
                reads.append(f"const {self.p.ctype(v)} {v.value} = {place};")
        found, texts = self.p.bodies(values)
        return reads + found, texts

    def near(self) -> str:
        """One block through memory of its own, for what is read and for what is kept."""
        t, last = self.p.compute, len(self.operands)
        given = ", ".join(f"const {t} *x{i}" for i in self.operands)
        copies = " ".join(f"near[{i} * n * width + r * width + c] = x{i}[r * apart + c];" for i in self.operands)
        places = ", ".join(f"near + {i} * n * width" for i in (*self.operands, 0 if self.passes.over_first else last))
        return f"""static inline __attribute__((always_inline)) void {self.name}_near({t} *out, int64_t apart, {given}, {t} *near, int64_t n, const int width,
    const double *param) {{
    for (int64_t r = 0; r < n; r++) {EACH} {{ {copies} }}
    {self.name}_block(out, apart, {places}, width, n, width, param);
}}
"""

    def whole(self) -> str:
        """The loop over blocks."""
        t, names = self.p.compute, ", ".join(f"x{i}" for i in self.operands)
        reads = "".join(f"        const {t} *const x{i} = (const {t} *)(ptr[{i + 1}] + b * step[{i + 1}]);\n" for i in self.operands)
        near = "\n        else ".join(
            f"{f'if (width == {w}) ' if w != 'width' else ''}{self.name}_near(out, apart, {names}, near, n, {w}, param + 4);"
            for w in (*WIDTHS, "width")
        )
        rows = len(self.operands) + (self.passes.keeps and not self.passes.over_first)
        return f"""void FL_NAME({self.name}){of("blocks")} {{
    const int64_t n = (int64_t)param[1], apart = (int64_t)param[2];
    const int width = (int)param[3];
    const size_t bytes = {rows} * sizeof({t}) * (size_t)(n * width);
    {t} *const near = bytes > {NEAR} ? 0 : fl_alloc(bytes);
    for (int64_t b = 0; b < blocks; b++) {{
        {t} *const out = ({t} *)(ptr[0] + b * step[0]);
{reads}        if (!near) {self.name}_block(out, apart, {names}, out, apart, n, width, param + 4);
        else {near}
    }}
    if (near) fl_free(near, bytes);
}}
"""


class _ColumnPrinter(LoopPrinter):
    def picked(self, operand: int, at: str) -> str:
        return f"(({at}) >= 0 && ({at}) < n ? a{operand}[({at}) * pitch + c] : NAN)"
