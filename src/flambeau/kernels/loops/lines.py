"""Loops as C whose rows are lines of memory: an element of the launch is a row, which goes through the CPU line by line.

    lines.NAME      "ri" operands have `lines` lines of `places` elements, `apart` elements from one to the next; "rj" ones a number for each

Sums are carried in lanes as in `rows.py`, from line to line where lines are short. Where lines follow each other without a gap, a walk that does not
ask for them takes all as one. A row belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.kernels.language.expr import loads
from flambeau.kernels.language.print_c import TYPES, LoopPrinter, operand_dtype, storage_of
from flambeau.kernels.language.print_table import of
from flambeau.kernels.loops.language import EACH, LINE, ROW, Loop
from flambeau.kernels.loops.passes import Pass, passes
from flambeau.kernels.loops.rows import LANES, Rows, options

NUMBERS = 5  # elements of a row (for the launcher), lines, from line to line, places, from number to number of "rj" operands
ADDED = 64  # elements that a lane adds in the dtype they are computed in


def takes(loop: Loop) -> bool:
    """Whether a loop is declared for rows of lines."""
    return loop.lines


def print_lines(loop: Loop, dtype: str) -> str:
    """The C of the loop for one dtype."""
    return Lines(loop, dtype, f"void FL_NAME(lines_{loop.name}_{TYPES[dtype][0]})").text()


class Lines(Rows):
    """b0, b1 ... is where an operand's row begins, z0, z1 ... a store's; a0, z0 where a line does. ptr: the first store, the loads, the other stores."""

    def __init__(self, loop: Loop, dtype: str, signature: str):
        super().__init__(loop, dtype, signature)
        self.p, self.passes = _LinesPrinter(dtype), passes(loop, room=0, puts=False)

    def text(self) -> str:
        head = [
            "const int64_t lines = (int64_t)param[1], apart = (int64_t)param[2], places = (int64_t)param[3], by = (int64_t)param[4];",
            "const int64_t n = lines * places, runs = apart == places ? 1 : lines, run = apart == places ? n : places;",
            f"const {self.p.compute} zero = ({self.p.compute})fl_zero();",
            "(void)zero, (void)by, (void)n, (void)runs, (void)run;",
            *options(self.loop, self.p, NUMBERS),
            "for (int64_t row = 0; row < rows; row++) {",
            *(f"    {line}" for line in self.lines()),
            "}",
        ]
        return "\n".join([f"{self.signature}{of('rows')} {{", *(f"    {line}" for line in head), "}"]) + "\n"

    def lines(self) -> Iterator[str]:
        loop, p = self.loop, self.p
        for i, (access, kind) in enumerate(zip(loop.loads, loop.kinds, strict=True)):
            source = f"(const {storage_of(kind, p.dtype)} *)(ptr[{i + 1}] + row * step[{i + 1}])"
            if access == EACH:
                yield f"const {p.ctype_of_kind(kind)} x{i} = {p.read(kind, '*' + source)};"
            else:
                yield f"const {storage_of(kind, p.dtype)} *const b{i} = {source};"
        for k, kind in enumerate(loop.store_kinds):
            at, storage = len(loop.loads) + k if k else 0, storage_of(kind, p.dtype)
            yield f"{storage} *const y{k} = ({storage} *)(ptr[{at}] + row * step[{at}]);"
        if self.passes.reducing:
            yield "int64_t room;"
        for step in self.passes.reducing:
            yield from self.reduce(step)
        for k, value in self.passes.made.items():
            found, text = p.body(value)
            yield f"{{ {' '.join(found)} *y{k} = {p.write(self.stored_dtype(k), text)}; }}"
        if self.passes.stores:
            yield from self.write()

    def stored_dtype(self, store: int) -> str:
        return operand_dtype(self.loop.store_kinds[store], self.p.dtype)

    def walk(self, values, body: list[str], by_line: bool = False) -> Iterator[str]:
        """Statements for each line, or for all as one if nothing is asked of them: there it has `length` elements."""
        needed = sorted({i for v in values for i in loads(v)})
        apart = by_line or any(self.loop.loads[i] == LINE for i in needed)
        count, length = ("lines", "places") if apart else ("runs", "run")
        yield f"for (int64_t j = 0; j < {count}; j++) {{"
        yield f"    const int64_t length = {length};"
        for i in needed:
            kind, access = self.loop.kinds[i], self.loop.loads[i]
            if access == ROW:
                yield f"    const {storage_of(kind, self.p.dtype)} *const a{i} = b{i} + j * apart;"
            elif access == LINE:
                yield f"    const {self.p.ctype_of_kind(kind)} x{i} = {self.p.read(kind, f'b{i}[j * by]')};"
        yield from (f"    {line}" for line in body)
        yield "}"

    def write(self) -> Iterator[str]:
        """The last walk."""
        yield from (self.number(*item) for item in self.passes.numbers)
        stores = self.passes.stores
        found, texts = self.body(list(stores.values()))
        yield from self.walk(stores.values(), [
            *(f"{self.p.storage} *const z{k} = y{k} + j * apart;" for k in stores),
            "FL_IVDEP for (int64_t i = 0; i < length; i++) {",
            *(f"    {line}" for line in found),
            *(f"    z{k}[i] = {self.p.write(self.p.dtype, text)};" for k, text in zip(stores, texts, strict=True)),
            "}",
        ])  # fmt: skip

    def reduce(self, step: Pass) -> Iterator[str]:
        """One walk over the row in lanes."""
        t = self.p.compute
        sums, ends = (
            [r.name.value for r in step.reductions if r.op == "total"],
            [r.name.value for r in step.reductions if r.op == "line_total"],
        )
        peaks = [r.name.value for r in step.reductions if r.op == "peak"]
        starts = "; ".join([f"{name}_of[l] = zero" for name in (*sums, *ends)])
        for name in (*sums, *ends, *peaks):
            yield f"FL_ALIGNED {t} {name}_of[{LANES}];"
        yield from (f"double {name}_wide = 0;" for name in [*sums, *ends, *(r.name.value for r in step.of_lines)])
        yield from (f"for (int l = 0; l < {LANES}; l++) {name}_of[l] = -INFINITY;" for name in peaks)
        yield f"for (int l = 0; l < {LANES}; l++) {{ {starts}; }}" if starts else ""
        yield from (self.number(*item) for item in step.numbers)
        found, texts = self.body([r.value for r in step.reductions])
        body = ["const int64_t i = o + l;", *found]
        for r, text in zip(step.reductions, texts, strict=True):
            lane = f"{r.name.value}_of[l]"
            body.append(f"{{ const {t} v = {text}; {lane} = v > {lane} ? v : {lane}; }}" if r.op == "peak" else f"{lane} += {text};")
        inner = [f"        {line}" for line in body]
        flush = [f"{name}_wide += lanes_sum_{t}({name}_of);" for name in (*sums, *ends)]
        flush += [f"for (int l = 0; l < {LANES}; l++) {{ {starts}; }}"] * bool(starts)
        yield f"room = {ADDED};"
        yield from self.walk([*(r.value for r in (*step.reductions, *step.of_lines)), *(v for _, v in step.by_line)], [
            "for (int64_t o = 0; o < length;) {",
            f"    const int64_t stop = length - o < room * {LANES} ? length : o + room * {LANES};",
            f"    room -= (stop - o + {LANES - 1}) / {LANES};",
            f"    for (; stop - o >= {LANES}; o += {LANES}) FL_COUNTED for (int l = 0; l < {LANES}; l++) {{",
            *inner, "    }", "    FL_IVDEP for (int l = 0; l < (int)(stop - o); l++) {", *inner, "    }",
            "    o = stop;",
            f"    if (!room) {{ room = {ADDED}; {' '.join(flush)} }}",
            "}",
            *self.end_of_line(step, ends, flush),
        ], by_line=bool(ends))  # fmt: skip
        yield from (line for line in flush[: len(sums)])
        for r in (*step.reductions, *step.of_lines):
            name = r.name.value
            if name not in ends:
                yield f"const {t} {name} = " + (f"lanes_max_{t}({name}_of);" if r.op == "peak" else f"({t}){name}_wide;")

    def end_of_line(self, step: Pass, ends: list[str], flush: list[str]) -> Iterator[str]:
        """What is known of a line: its totals, what is stored of them, and what they add to numbers of the row."""
        if ends:
            yield from (f"room = {ADDED};", *flush)
            yield from (f"const {self.p.compute} {name} = ({self.p.compute}){name}_wide; {name}_wide = 0;" for name in ends)
        for k, value in step.by_line:
            found, text = self.p.body(value)
            yield f"{{ {' '.join(found)} y{k}[j * by] = {self.p.write(self.stored_dtype(k), text)}; }}"
        for r in step.of_lines:
            found, text = self.p.body(r.value)
            yield f"{{ {' '.join(found)} {r.name.value}_wide += {text}; }}"


class _LinesPrinter(LoopPrinter):
    def picked(self, operand: int, at: str) -> str:
        return f"(({at}) >= 0 && ({at}) < n ? {self.read('T', f'b{operand}[({at}) / places * apart + ({at}) % places]')} : NAN)"
