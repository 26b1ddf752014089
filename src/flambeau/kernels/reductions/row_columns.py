"""Row programs along a dimension that is not the last: columns side by side, printed as C.

    columns.softmax ...     an element of the launch is a block of up to 128 columns, `apart` elements from one row to the next

What a row program keeps as one number is here a number for each column, and the compiler makes SIMD code across them. A block whose columns are not
too long is first copied to where it lies in one piece, since rows a power of two apart would push each other out of the cache: the array
is read once and the result written once. A column is added up 64 elements at a time in its own dtype; the rest is in double. Half precision comes
here as float32.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.language.print_c import ENUM, TYPES
from flambeau.kernels.reductions.folding import NEAR, WIDTHS
from flambeau.kernels.reductions.rows import PROGRAMS, Print, RowProgram, uses

PARAMETERS = "(char *const *ptr, const int64_t *step, int64_t blocks, const double *param)"
EACH = "FL_IVDEP for (int c = 0; c < width; c++)"


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table), for the programs of rows alone."""
    texts, declarations, rows = [], [], []
    for program in PROGRAMS:
        for dtype in ("float32", "float64") if set(program.kinds) == {"row"} else ():
            name, n, enum = f"columns_{program.name}_{TYPES[dtype][0]}", len(program.kinds), ENUM[dtype]
            texts.append(PrintColumns(program, dtype).text())
            declarations.append(f"void FL_NAME({name}){PARAMETERS};\n")
            entry = f'"columns.{program.name}", FL_NAME({name}), {enum}, {n}, {program.options + 4}, {(1 << n) - 1}, {enum}'
            rows.append(f"{{{entry}, {{{', '.join([enum] * n)}}}, FL_LINES}}")
    return texts, declarations, rows


class PrintColumns(Print):
    """Numbers of the loop: elements of a block (for the launcher), of a column, from row to row, columns; the program's own."""

    def __init__(self, program: RowProgram, dtype: str):
        super().__init__(program, dtype)
        self.name = f"columns_{program.name}_{self.p.suffix}"
        self.operands = range(len(program.kinds))
        # What is kept may take the place of the first operand, if that is not needed any more.
        later = [program.expr, *(r.args[0] for r in self.reductions if any(uses(r.args[0], k) and r.args[0] is not k for k in self.kept))]
        self.over = not any(uses(value, e.load(0), stop=(*self.reductions, *self.kept)) for value in later)

    def text(self, form: str = "") -> str:
        return f"{self._block()}{self._near()}{self._loop()}"

    def _block(self) -> str:
        """One block: rows of `from` and `kept` lie `pitch` elements apart."""
        p, program = self.p, self.program
        given = ", ".join(f"const {p.compute} *from{i}" for i in self.operands)
        lines = [
            f"static inline __attribute__((always_inline)) void {self.name}_block({p.compute} *to, int64_t apart, {given},",
            f"    {p.compute} *kept, int64_t pitch, int64_t n, const int width, const double *param) {{",
            *(f"    const {p.compute} p{i} = ({p.compute})param[{i}];" for i in range(program.options)),
            "    (void)param, (void)kept;",
        ]
        done: set[Expr] = set()
        for level in range(self.levels[program.expr]):
            lines += self._pass(level, [r for r in self.reductions if self.levels[r] == level + 1], done)
        constants, values = self._hoisted([self._named(program.expr, done)])
        body = self._body(values, lambda v: f"out[c] = {v[0]};")
        lines += [*constants, "    for (int64_t r = 0; r < n; r++) {", f"        {p.compute} *const out = to + r * apart;"]
        lines += [*self._row(), f"        {EACH} {{", *(f"            {line}" for line in body), "        }", "    }", "}"]
        return "\n".join(lines) + "\n"

    def _row(self) -> Iterator[str]:
        """Where the operands lie in row r."""
        yield from (f"        const {self.p.compute} *const a{i} = from{i} + r * pitch;" for i in self.operands)
        yield from (f"        {self.p.compute} *const k{i} = kept + r * pitch;" for i in range(len(self.kept)))
        yield "        " + " ".join([*(f"(void)a{i};" for i in self.operands), *(f"(void)k{i};" for i in range(len(self.kept)))])

    def _pass(self, level: int, chosen: list[Expr], done: set[Expr]) -> Iterator[str]:
        t = self.p.compute
        new, numbers, constants, values = self._planned(chosen, done)
        sums = [k for r, k in zip(chosen, numbers, strict=True) if r.op == "row_sum"]
        for k in numbers:
            yield f"    FL_ALIGNED {t} x{200 + k}_of[{WIDTHS[0]}];"
            if k in sums:
                yield f"    FL_ALIGNED double s{k}[{WIDTHS[0]}]; {EACH} s{k}[c] = 0;"
            else:
                yield f"    {EACH} x{200 + k}_of[c] = -INFINITY;"
        yield from constants

        def finish(found: list[str]) -> str:
            text = "".join(f"k{self.kept.index(k)}[c] = {v}; " for k, v in zip(new, found[len(chosen) :], strict=True))
            for k, v in zip(numbers, found, strict=False):
                at = f"x{200 + k}_of[c]"
                text += f"{at} += {v}; " if k in sums else f"{{ const {t} v = {v}; {at} = v > {at} ? v : {at}; }} "
            return text

        yield "    for (int64_t r = 0; r < n;) {\n        const int64_t stop = n - r < 64 ? n : r + 64;"
        yield from (f"        {EACH} x{200 + k}_of[c] = 0;" for k in sums)
        yield from ["        for (; r < stop; r++) {", *self._row(), f"        {EACH} {{"]
        yield from (f"            {line}" for line in self._body(values, finish))
        yield "        }\n        }"
        yield from (f"        {EACH} s{k}[c] += x{200 + k}_of[c];" for k in sums)
        yield "    }"
        yield from (f"    {EACH} x{200 + k}_of[c] = ({t})s{k}[c];" for k in sums)

    def _number(self, node: Expr, name: Expr) -> str:
        """A number for each column that is computed before the loop."""
        found, text = self.p.body(node)
        to = f"x{name.value}_of"
        body = " ".join([*self._reads([node]), *found, f"{to}[c] = {text};"])
        return f"    FL_ALIGNED {self.p.ctype(node)} {to}[{WIDTHS[0]}]; {EACH} {{ {body} }}"

    def _reads(self, values: list[Expr]) -> Iterator[str]:
        for i in sorted({i for v in values for i in e.loads(v)}):
            source = f"a{i}" if i < 200 else f"k{i - 300}" if 300 <= i < 400 else f"x{i}_of"
            yield f"const {self.p.compute} x{i} = {source}[c];"

    def _near(self) -> str:
        """One block through memory of its own, for what is read and for what is kept."""
        t, last = self.p.compute, len(self.operands)
        given = ", ".join(f"const {t} *x{i}" for i in self.operands)
        copies = " ".join(f"near[{i} * n * width + r * width + c] = x{i}[r * apart + c];" for i in self.operands)
        places = ", ".join(f"near + {i} * n * width" for i in (*self.operands, 0 if self.over else last))
        return f"""static inline __attribute__((always_inline)) void {self.name}_near({t} *out, int64_t apart, {given}, {t} *near, int64_t n, const int width,
    const double *param) {{
    for (int64_t r = 0; r < n; r++) {EACH} {{ {copies} }}
    {self.name}_block(out, apart, {places}, width, n, width, param);
}}
"""

    def _loop(self) -> str:
        t, names = self.p.compute, ", ".join(f"x{i}" for i in self.operands)
        reads = "".join(f"        const {t} *const x{i} = (const {t} *)(ptr[{i + 1}] + b * step[{i + 1}]);\n" for i in self.operands)
        near = "\n        else ".join(
            f"{f'if (width == {w}) ' if w != 'width' else ''}{self.name}_near(out, apart, {names}, near, n, {w}, param + 4);"
            for w in (*WIDTHS, "width")
        )
        return f"""void FL_NAME({self.name}){PARAMETERS} {{
    const int64_t n = (int64_t)param[1], apart = (int64_t)param[2];
    const int width = (int)param[3];
    const size_t bytes = {len(self.operands) + (len(self.kept) and not self.over)} * sizeof({t}) * (size_t)(n * width);
    {t} *const near = bytes > {NEAR} ? 0 : fl_alloc(bytes);
    for (int64_t b = 0; b < blocks; b++) {{
        {t} *const out = ({t} *)(ptr[0] + b * step[0]);
{reads}        if (!near) {self.name}_block(out, apart, {names}, out, apart, n, width, param + 4);
        else {near}
    }}
    if (near) fl_free(near, bytes);
}}
"""
