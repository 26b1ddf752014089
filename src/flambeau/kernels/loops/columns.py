"""Loops as C along a dimension that is not the last: columns side by side.

    columns.softmax ...     an element of the launch is a block of up to 128 columns, `apart` elements from one row to the next

What is one number for a row is here a number for each column, which is of one line, and the compiler makes SIMD code across them. A block whose columns are not
too long is first copied to where it lies in one piece, since rows a power of two apart would push each other out of the cache: the array
is read once and the result written once. A column is added up 64 elements at a time in its own dtype; the rest is in double. Half precision comes
here as float32.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.kernels.language.expr import Expr, loads
from flambeau.kernels.language.print_c import TYPES, LoopPrinter
from flambeau.kernels.language.print_table import of
from flambeau.kernels.loops.language import LINE, ROW, Loop, in_order
from flambeau.kernels.loops.passes import Pass, passes
from flambeau.kernels.loops.rows import options

WIDTHS = (128, 64, 16)  # columns a loop takes at a time: as many as can be
TOGETHER = 8  # rows that are added at a time
NEAR = 1 << 19  # bytes of the blocks of columns that are copied to where they stay in the cache
ALL = "FL_IVDEP for (int c = 0; c < width; c++)"


def takes(loop: Loop) -> bool:
    """Whether a loop can be carried out so: it reads and writes nothing but rows, or is declared for channels."""
    return (loop.is_rows_alone and len(loop.stores) == 1) or (loop.lines and LINE not in loop.stores)


def print_columns(loop: Loop, dtype: str) -> str:
    """The C of the loop for one dtype. Numbers: elements of a block (for the launcher), of a column, from row to row, columns; the loop's own."""
    return Columns(loop, dtype).text()


class Columns:
    """Rows of the operands and of what is kept lie `pitch` elements apart; `s0_of` has a number for each column, which is called `s0`."""

    def __init__(self, loop: Loop, dtype: str):
        self.loop, self.p, self.passes = loop, _ColumnPrinter(dtype), passes(loop, room=int(not loop.lines), puts=False)
        self.name, self.operands = f"columns_{loop.name}_{TYPES[dtype][0]}", range(len(loop.loads))
        self.rows = [i for i in self.operands if loop.loads[i] == ROW]
        self.numbers = "".join(f", {self.p.compute} *y{k}" for k in range(1, len(loop.stores)))

    def text(self) -> str:
        return f"{self.block()}{'' if self.loop.lines else self.near()}{self.whole()}"

    def block(self) -> str:
        """One block of columns."""
        t, given = self.p.compute, ", ".join(f"const {self.p.compute} *a{i}" for i in self.operands)
        lines = [*options(self.loop, self.p, 0), "(void)param, (void)k0_at;"]
        for step in self.passes.reducing:
            lines += self.reduce(step)
        for k, value in self.passes.made.items():
            found, texts = self.body([value])
            lines.append(f"{ALL} {{ {' '.join(found)} y{k}[c] = {texts[0]}; }}")
        lines += [self.number(*item) for item in self.passes.numbers]
        for k, value in self.passes.stores.items():
            found, texts = self.body([value])
            lines += [
                f"for (int64_t i = 0; i < n; i++) {ALL} {{",
                *(f"    {line}" for line in found),
                f"    y{k}[i * apart + c] = {texts[0]};",
                "}",
            ]
        return f"""static inline __attribute__((always_inline)) void {self.name}_block({t} *y0, int64_t apart, {given}{self.numbers},
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
                yield f"FL_ALIGNED double {name}_wide_of[{WIDTHS[0]}]; {ALL} {name}_wide_of[c] = 0;"
            else:
                yield f"{ALL} {name}_of[c] = -INFINITY;"
        yield from (self.number(*item) for item in step.numbers)
        found, texts = self.body(step.values)
        body = [
            *found,
            *(f"{name.value}_at[i * pitch + c] = {v};" for (name, _), v in zip(step.kept, texts[len(step.reductions) :], strict=True)),
        ]
        names = [r.name.value for r in step.reductions]
        body += [f"{name}[u] = {text};" for name, text in zip(names, texts, strict=False)]
        yield "for (int64_t o = 0; o < n;) {\n        const int64_t stop = n - o < 64 ? n : o + 64;"
        yield from (f"    {ALL} {name}_of[c] = 0;" for name in sums)
        for some in (TOGETHER, 1):
            yield f"    for (; o + {some} <= stop; o += {some}) {ALL} {{"
            yield from (f"        {t} {name}[{some}];" for name in names)
            yield f"        for (int u = 0; u < {some}; u++) {{ const int64_t i = o + u;"
            yield from (f"            {line}" for line in body)
            yield "        }"
            for r in step.reductions:
                yield f"        {self.joined(r.name.value, r.op, some)}"
            yield "    }"
        yield from (f"    {ALL} {name}_wide_of[c] += {name}_of[c];" for name in sums)
        yield "}"
        yield from (f"{ALL} {name}_of[c] = ({t}){name}_wide_of[c];" for name in sums)

    def joined(self, name: str, op: str, some: int) -> str:
        """What some rows add to a sum or a peak, in pairs: so that none waits for the one before."""
        values = [f"{name}[{u}]" for u in range(some)]
        if op == "peak":
            return " ".join(f"{name}_of[c] = {v} > {name}_of[c] ? {v} : {name}_of[c];" for v in values)
        while len(values) > 1:
            values = [f"({a} + {b})" for a, b in zip(values[::2], values[1::2], strict=True)]
        return f"{name}_of[c] += {values[0]};"

    def number(self, name: Expr, value: Expr) -> str:
        """A number for each column that is computed before a walk."""
        found, (text,) = self.body([value])
        return f"FL_ALIGNED {self.p.ctype(value)} {name.value}_of[{WIDTHS[0]}]; {ALL} {{ {' '.join(found)} {name.value}_of[c] = {text}; }}"

    def body(self, values: list[Expr]) -> tuple[list[str], list[str]]:
        """Statements for a column, and the values: they read what the values need."""
        t = self.p.compute
        needed = sorted({i for v in values for i in loads(v)})
        reads = [f"const {t} x{i} = a{i}[{'i * pitch + ' if i in self.rows else ''}c];" for i in needed]
        for v in in_order(tuple(values)):
            if v.op == "local":
                place = f"{v.value}_at[i * pitch + c]" if v.value[0] == "k" else f"{v.value}_of[c]"
                reads.append(f"const {self.p.ctype(v)} {v.value} = {place};")
        found, texts = self.p.bodies(values)
        return reads + found, texts

    def near(self) -> str:
        """One block through memory of its own, for what is read and for what is kept."""
        t, count = self.p.compute, len(self.rows)
        given = ", ".join(f"const {t} *x{i}" for i in self.operands)
        copies = " ".join(f"near[{k} * n * width + r * width + c] = x{i}[r * apart + c];" for k, i in enumerate(self.rows))
        places = [f"near + {self.rows.index(i)} * n * width" if i in self.rows else f"x{i}" for i in self.operands]
        places += [f"y{k}" for k in range(1, len(self.loop.stores))] + [f"near + {0 if self.passes.over_first else count} * n * width"]
        return f"""static inline __attribute__((always_inline)) void {self.name}_near({t} *out, int64_t apart, {given}{self.numbers}, {t} *near, int64_t n,
    const int width, const double *param) {{
    for (int64_t r = 0; r < n; r++) {ALL} {{ {copies} }}
    {self.name}_block(out, apart, {", ".join(places)}, width, n, width, param);
}}
"""

    def whole(self) -> str:
        """The loop over blocks."""
        t, last = self.p.compute, len(self.operands)
        reads = "".join(f"        const {t} *const x{i} = (const {t} *)(ptr[{i + 1}] + b * step[{i + 1}]);\n" for i in self.operands)
        more = range(1, len(self.loop.stores))
        reads += "".join(f"        {t} *const y{k} = ({t} *)(ptr[{last + k}] + b * step[{last + k}]);\n" for k in more)
        names = ", ".join([f"x{i}" for i in self.operands] + [f"y{k}" for k in more])
        if self.loop.lines:  # which read twice what they read: copying it costs as much
            block = f"{self.name}_block(out, apart, {names}, out, apart, n"
            return self.over_blocks(reads, "", _by_width(f"{block}, {{width}}, param + 4);", WIDTHS[1:]), "")
        rows = len(self.rows) + (self.passes.keeps and not self.passes.over_first)
        head = f"""    const size_t bytes = {rows} * sizeof({t}) * (size_t)(n * width);
    {t} *const near = bytes > {NEAR} ? 0 : fl_alloc(bytes);
"""
        near = f"if (!near) {self.name}_block(out, apart, {names}, out, apart, n, width, param + 4);\n        else "
        near += _by_width(f"{self.name}_near(out, apart, {names}, near, n, {{width}}, param + 4);", WIDTHS)
        return self.over_blocks(reads, head, near, "    if (near) fl_free(near, bytes);\n")

    def over_blocks(self, reads: str, head: str, work: str, tail: str) -> str:
        t = self.p.compute
        return f"""void FL_NAME({self.name}){of("blocks")} {{
    const int64_t n = (int64_t)param[1], apart = (int64_t)param[2];
    const int width = (int)param[3];
{head}    for (int64_t b = 0; b < blocks; b++) {{
        {t} *const out = ({t} *)(ptr[0] + b * step[0]);
{reads}        {work}
    }}
{tail}}}
"""


def _by_width(call: str, widths: tuple[int, ...]) -> str:
    """A call with the width as a constant, if it is one of these."""
    calls = [f"if (width == {w}) {call.format(width=w)}" for w in widths]
    return "\n        else ".join([*calls, call.format(width="width")])


class _ColumnPrinter(LoopPrinter):
    def picked(self, operand: int, at: str) -> str:
        return f"(({at}) >= 0 && ({at}) < n ? a{operand}[({at}) * pitch + c] : NAN)"
