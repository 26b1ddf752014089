"""Loops as C, many short rows at a time.

A row of ten classes would waste the CPU's vectors, and wait for itself: greatest, powers, sum, result. So as many rows as fit are brought into
buffers, and all their elements take each step together; what is found of a row is spread over the places of its elements.

An element of the launch is a chunk of rows that lie one after another. Numbers: elements of a chunk (for the launcher), length of a row, rows of a chunk,
the loop's own. A loop of nothing but rows is simpler: a call takes any number of rows, and the first number says how long they are.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.kernels.language.expr import Expr, loads, replace
from flambeau.kernels.language.print_c import TYPES, LoopPrinter, operand_dtype, storage_of
from flambeau.kernels.language.print_table import of
from flambeau.kernels.loops.language import EACH, ROW, SHARED, Loop, in_order
from flambeau.kernels.loops.passes import passes
from flambeau.kernels.loops.rows import is_kept, options

BUFFER = 1024  # elements
MOST, FEW = 64, 32  # elements of a row that is short, for a loop of one operand; rows that are worth bringing together
MOST_READ = 256  # where rows are read and not written
ALL = "FL_IVDEP for (int64_t i = 0; i < m; i++)"
EACH_ROW = "FL_IVDEP for (int64_t r = 0; r < some; r++)"
BY_ROW = "for (int64_t r = 0, o = 0; r < some; r++, o += n)"

# The last four places of a row are written from its end, or into the next row, which is yet to come.
HEAD = (
    "#define SPREAD(of, value) do { const __typeof__(*of) v = value; for (int64_t l = 0; l < n; l += 4) "
    "of[o + l] = of[o + l + 1] = of[o + l + 2] = of[o + l + 3] = v; } while (0)\n"
)


def takes(loop: Loop) -> bool:
    """Whether a loop can be carried out so: nothing is summed over rows, and what is picked is the same for all of a row."""
    values = in_order(loop.values)
    if loop.lines or any(kind != "T" and access != EACH for access, kind in zip(loop.loads, loop.kinds, strict=True)):
        return False
    return not loop.totals and not any(v.op == "position" or (v.op == "pick" and loop.varies(v)) for v in _but_for_puts(loop, values))


def longest(loop: Loop) -> int:
    """Elements of a row that is short: the more operands, the earlier a row is long enough by itself."""
    return MOST // len(loop.loads) if ROW in loop.stores else MOST_READ


def is_flat(loop: Loop) -> bool:
    """Whether all that is read and written are rows."""
    return loop.is_rows_alone and len(loop.stores) == 1


def _but_for_puts(loop: Loop, values: list[Expr]) -> list[Expr]:
    cut = passes(loop)
    return in_order((*cut.stores.values(), *(v for step in cut.reducing for v in step.values))) if cut.put else values


def print_short(loop: Loop, dtype: str) -> str:
    """The C of the loop for one dtype."""
    return _Short(loop, dtype).text()


class _Short:
    """Of a number of each row, s0_each is an array of the rows' and s0_of has it for each place of each row. x0 is where operand 0 begins, a0 where its
    elements are as they are computed with, y0 where store 0 goes."""

    def __init__(self, loop: Loop, dtype: str):
        self.loop, self.p, self.passes = loop, _ShortPrinter(dtype), passes(loop)
        self.spread: set[Expr] = set()
        self.types, self.stored = ([storage_of(kind, dtype) for kind in kinds] for kinds in (loop.kinds, loop.store_kinds))

    def text(self) -> str:
        loop = self.loop
        flat = is_flat(loop)
        lines = [*options(loop, self.p, 1 if flat else 3), "for (int64_t c = 0; c < chunks; c++) {"]
        for i, access in enumerate(loop.loads):
            lines.append(f"    const {self.types[i]} *x{i} = (const {self.types[i]} *)(ptr[{i + 1}] + c * step[{i + 1}]);")
            if access == SHARED:
                lines.append(
                    f"    for (int64_t r = 0, o = 0; r < at_once && r < all; r++, o += n) for (int64_t l = 0; l < n; l++) w{i}[o + l] = {self.p.read('T', f'x{i}[l]')};"
                )
        for k in range(len(loop.stores)):
            at = len(loop.loads) + k if k else 0
            lines.append(f"    {self.stored[k]} *y{k} = ({self.stored[k]} *)(ptr[{at}] + c * step[{at}]);")
        lines += ["    for (int64_t left = all, some; left > 0; left -= some) {", "        some = left < at_once ? left : at_once;"]
        lines += ["        const int64_t m = some * n;", *(f"        {line}" for line in self.lines())]
        moves = [f"x{i} += {'m' if a == ROW else 'some'};" for i, a in enumerate(loop.loads) if a != SHARED]
        moves += [f"y{k} += {'m' if a == ROW else 'some'};" for k, a in enumerate(loop.stores)]
        lines += [f"        {' '.join(moves)}", "    }", "}"]
        buffers = ", ".join(f"{name}[{BUFFER}]" for name in ["arg", *(f"w{i}" for i in range(len(loop.loads)) if self.is_copied(i))])
        body = "".join(f"    {line}\n" for line in lines)
        all_rows = "n = (int64_t)param[0], all = elements / n, chunks = 1" if flat else "n = (int64_t)param[1], all = (int64_t)param[2]"
        return f"""void FL_NAME(short_{loop.name}_{TYPES[self.p.dtype][0]}){of("elements" if flat else "chunks")} {{
    const int64_t {all_rows}, at_once = {BUFFER} / n;
    FL_ALIGNED {self.p.compute} {buffers};
    (void)arg;
{body}}}
"""

    def is_copied(self, operand: int) -> bool:
        """Whether an operand is brought into a buffer: to be widened, or repeated for each row."""
        access = self.loop.loads[operand]
        return access == SHARED or (access == ROW and self.p.storage != self.p.compute)

    def lines(self) -> Iterator[str]:
        """The work on some rows."""
        t, p = self.p.compute, self.p
        copies = [
            f"w{i}[i] = {p.read('T', f'x{i}[i]')};" for i, access in enumerate(self.loop.loads) if access == ROW and self.is_copied(i)
        ]
        if copies:
            yield f"{ALL} {{ {' '.join(copies)} }}"
        for i, access in enumerate(self.loop.loads):
            if access != EACH:
                yield f"const {t} *const a{i} = {'w' if self.is_copied(i) else 'x'}{i}; (void)a{i};"
        for step in self.passes.reducing:
            yield from self.before(step.numbers, step.values)
            for name, value in step.kept:
                yield f"FL_ALIGNED {t} {name.value}_of[{BUFFER}];"
                yield self.each(value, f"{name.value}_of[i] = {{}};")
            known = {value: name for name, value in step.kept}
            for r in step.reductions:
                value = replace(r.value, known)
                source = f"a{value.value}" if value.op == "load" else f"{value.value}_of" if value.op == "local" else "arg"
                if source == "arg":
                    yield self.each(value, "arg[i] = {};")
                yield f"{t} {r.name.value}_each[{BUFFER}];"
                yield f"{BY_ROW} {r.name.value}_each[r] = {r.op}_{t}({source} + o, n);"
        for k, value in self.passes.made.items():
            yield self.each_row([value], f"y{k}[r] = {p.write(operand_dtype(self.loop.store_kinds[k], p.dtype), '{}')};")
        for k, value in self.passes.stores.items():
            yield from self.before(self.passes.numbers if k == min(self.passes.stores) else (), [value])
            store = f"y{k}[i] = {p.write(p.dtype, '{}')};"
            if p.storage == t:
                yield self.each(value, store)
            else:  # what is dear and what narrows, each in vectors of its own
                yield self.each(value, "arg[i] = {};")
                yield f"{ALL} {store.format('arg[i]')}"
        for k, (at, value) in self.passes.put.items():
            store = f"const int64_t at = {{}}; if (at >= 0 && at < n) y{k}[r * n + at] = {p.write(p.dtype, '{}')};"
            yield self.each_row([at, value], store, "for (int64_t r = 0; r < some; r++)")

    def before(self, numbers: tuple[tuple[Expr, Expr], ...], values: list[Expr]) -> Iterator[str]:
        """The numbers of all rows, and what the values need of them, spread over the places of the rows."""
        for name, value in numbers:
            yield f"{self.p.ctype(value)} {name.value}_each[{BUFFER}];"
            yield self.each_row([value], f"{name.value}_each[r] = {{}};")
        for v in self.of_rows(values):
            if v not in self.spread:
                self.spread.add(v)
                yield f"FL_ALIGNED {self.p.ctype(v)} {v!r}_of[{BUFFER} + 4];"
                yield f"{BY_ROW} SPREAD({v!r}_of, {self.of_row(v)});"

    def of_rows(self, values: list[Expr]) -> list[Expr]:
        """What values read that is one number for each row."""
        order = in_order(tuple(values))
        return [v for v in order if (v.op == "local" and v.value[0] != "k") or (v.op == "load" and self.loop.loads[v.value] == EACH)]

    def of_row(self, v: Expr) -> str:
        """A number of row r."""
        return f"{v!r}_each[r]" if v.op == "local" else self.p.read(v.kind, f"{v!r}[r]")

    def each_row(self, values: list[Expr], store: str, walk: str = EACH_ROW) -> str:
        """A walk over the rows, for what is one number of each."""
        reads = [f"const {self.p.ctype(v)} {v!r}_ = {self.of_row(v)};" for v in self.of_rows(values)]
        names = [f"const {self.p.ctype(v)} {v!r} = {v!r}_;" for v in self.of_rows(values)]
        found, texts = self.p.bodies(values)
        return f"{walk} {{ {' '.join(reads)} {{ {' '.join([*names, *found])} {store.format(*texts)} }} }}"

    def each(self, value: Expr, store: str) -> str:
        """A walk over the elements of all rows."""
        names = [f"const {self.p.ctype(v)} {v!r} = {v!r}_of[i];" for v in self.of_rows([value])]
        names += [f"const {self.p.compute} x{i} = a{i}[i];" for i in loads(value) if self.loop.loads[i] != EACH]
        names += [f"const {self.p.compute} k0 = k0_of[i];"] * is_kept(value)
        found, text = self.p.body(value)
        return f"{ALL} {{ {' '.join([*names, *found])} {store.format(text)} }}"


class _ShortPrinter(LoopPrinter):
    def picked(self, operand: int, at: str) -> str:
        return f"(({at}) >= 0 && ({at}) < n ? a{operand}[r * n + ({at})] : NAN)"
