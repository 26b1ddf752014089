"""Loops as C, many short rows at a time.

A row of ten classes would waste the CPU's vectors, and wait for itself: greatest, powers, sum, result. So as many rows as fit are brought into
buffers, and all their elements take each step together; what is found of a row is spread over the places of its elements.

A call takes any number of rows that lie one after another; how long they are is the first number.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.kernels.language.expr import Expr, loads, replace
from flambeau.kernels.language.print_c import TYPES, LoopPrinter
from flambeau.kernels.loops.language import Loop, in_order
from flambeau.kernels.loops.passes import passes
from flambeau.kernels.loops.rows import PARAMETERS

BUFFER = 1024  # elements
ALL = "FL_IVDEP for (int64_t i = 0; i < m; i++)"
BY_ROW = "for (int64_t r = 0, o = 0; r < some; r++, o += n)"

# The last four places of a row are written from its end, or into the next row, which is yet to come.
HEAD = (
    "#define SPREAD(of, value) do { const __typeof__(*of) v = value; for (int64_t l = 0; l < n; l += 4) "
    "of[o + l] = of[o + l + 1] = of[o + l + 2] = of[o + l + 3] = v; } while (0)\n"
)


def takes(loop: Loop) -> bool:
    """Whether a loop can be carried out so: it reads and writes nothing but rows, and does not ask where in them it is."""
    return loop.is_rows_alone and len(loop.stores) == 1 and not any(v.op in ("position", "pick") for v in in_order(loop.values))


def print_short(loop: Loop, dtype: str) -> str:
    """The C of the loop for one dtype."""
    p = LoopPrinter(dtype)
    t, operands = p.compute, range(len(loop.loads))
    widened = t != p.storage
    lines = [f"const {t} *const a{k} = {'w' if widened else 'x'}{k};" for k in operands]
    if widened:
        reads = [f"w{k}[i] = {p.read('T', f'x{k}[i]')};" for k in operands]
        lines.append(f"{ALL} {{ {' '.join(reads)} }}")
    lines += _Short(loop, p).lines()
    starts = [f"const {p.storage} *x{k} = (const {p.storage} *)ptr[{k + 1}];" for k in operands]
    starts += [f"const {t} p{i} = ({t})param[{i + 1}];" for i in range(loop.options)]
    starts += [f"FL_ALIGNED {t} w{k}[{BUFFER}];" for k in operands if widened]
    return f"""void FL_NAME(short_{loop.name}_{TYPES[dtype][0]}){PARAMETERS.replace("int64_t n,", "int64_t elements,")} {{
    const int64_t n = (int64_t)param[0], at_once = {BUFFER} / n;
    FL_ALIGNED {t} arg[{BUFFER}];
    {p.storage} *to = ({p.storage} *)ptr[0];
{_indented(starts, 4)}    (void)step, (void)arg;
    for (int64_t left = elements / n, some; left > 0; left -= some) {{
        some = left < at_once ? left : at_once;
        const int64_t m = some * n;
{_indented(lines, 8)}        to += m{"".join(f", x{k} += m" for k in operands)};
    }}
}}
"""


def _indented(lines: list[str], by: int) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in lines)


class _Short:
    """Of a number of each row, s0_each is an array of the rows' and s0_of has it for each place of each row."""

    def __init__(self, loop: Loop, p: LoopPrinter):
        self.p, self.passes = p, passes(loop)
        self.spread: set[str] = set()

    def lines(self) -> Iterator[str]:
        t = self.p.compute
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
        (value,) = self.passes.stores.values()
        yield from self.before(self.passes.numbers, [value])
        store = f"to[i] = {self.p.write(self.p.dtype, '{}')};"
        if self.p.storage == t:
            yield self.each(value, store)
        else:  # what is dear and what narrows, each in vectors of its own
            yield self.each(value, "arg[i] = {};")
            yield f"{ALL} {store.format('arg[i]')}"

    def before(self, numbers: tuple[tuple[Expr, Expr], ...], values: list[Expr]) -> Iterator[str]:
        """The numbers of all rows, and what the values need of them, spread over the places of the rows."""
        for name, value in numbers:
            t, (found, text) = self.p.ctype(value), self.p.body(value)
            reads = [f"const {self.p.ctype(v)} {v.value} = {v.value}_each[r];" for v in _locals([value])]
            yield f"{t} {name.value}_each[{BUFFER}];"
            yield f"FL_IVDEP for (int64_t r = 0; r < some; r++) {{ {' '.join([*reads, *found])} {name.value}_each[r] = {text}; }}"
        for name in _locals(values):
            if name.value[0] != "k" and name.value not in self.spread:
                self.spread.add(name.value)
                yield f"FL_ALIGNED {self.p.ctype(name)} {name.value}_of[{BUFFER} + 4];"
                yield f"{BY_ROW} SPREAD({name.value}_of, {name.value}_each[r]);"

    def each(self, value: Expr, store: str) -> str:
        """A walk over the elements of all rows."""
        reads = [f"const {self.p.compute} x{i} = a{i}[i];" for i in loads(value)]
        reads += [f"const {self.p.ctype(name)} {name.value} = {name.value}_of[i];" for name in _locals([value])]
        found, text = self.p.body(value)
        return f"{ALL} {{ {' '.join([*reads, *found])} {store.format(text)} }}"


def _locals(values: list[Expr]) -> list[Expr]:
    """The local names that values read."""
    return [v for v in in_order(tuple(values)) if v.op == "local"]
