"""Row programs: formulas in which an element may depend on sums and maxima over its whole row.

    softmax(x)   shifted = exp(x - row_max(x));  shifted / row_sum(shifted)

A program is an expression like any other with two more primitives, `row_sum` and `row_max`, whose value is one number per row. It is
carried out in passes over the row: a pass computes the reductions whose arguments are known, the last one writes the result. What is
dear to compute and needed again (an exponential) waits in the row of the result. `backward` derives the program of the gradient.

Operands are of kind "row" (one row each time), "shared" (the same row for all, such as a weight) or "each" (one number per row). A program may
leave more behind: with a formula that returns (result, mean, ...), the last operands are of kind "made", one number per row to be written, or
"total", a row to which each row is added. Programs with totals take several rows at a time, see `print_chunks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from flambeau.kernels.language import derive
from flambeau.kernels.language import expr as e
from flambeau.kernels.language.expr import Expr
from flambeau.kernels.language.print_c import CONVERT, ENUM, FLOATS, TYPES, LoopPrinter
from flambeau.kernels.language.simplify import ZERO, add
from flambeau.kernels.reductions import lanes
from flambeau.kernels.reductions.channels import BY_CHANNEL

e.ARITY |= {"row_sum": 1, "row_max": 1}
row_sum, row_max = e._unary("row_sum"), e._unary("row_max")
LANES = 64
NEAR = 4096  # elements of a row that is widened as a whole
ARGUMENTS = "(char *const *ptr, const int64_t *step, int64_t n, const double *param)"
DEAR = {"exp", "log", "tanh", "sigmoid", "erf", "sin", "cos", "pow", "div", "sqrt", "rsqrt"}


@dataclass
class RowProgram:
    """A named program: `formula(*operands, *options)`, without those that are made."""

    name: str
    formula: Callable
    kinds: tuple[str, ...]
    options: int = 0
    dtypes: tuple[str, ...] = FLOATS
    expr: Expr = field(init=False)
    made: dict[int, Expr] = field(init=False)  # by operand; parts of `expr`
    totals: dict[int, Expr] = field(init=False)  # by operand

    def __post_init__(self):
        loads = [e.load(i) for i, kind in enumerate(self.kinds) if kind not in ("made", "total")]
        found = self.formula(*loads, *(e.param(i) for i in range(self.options)))
        self.expr, *more = map(e.lift, found if isinstance(found, tuple) else (found,))
        left = dict(enumerate(more, len(loads)))
        self.made = {i: value for i, value in left.items() if self.kinds[i] == "made"}
        self.totals = {i: value for i, value in left.items() if self.kinds[i] == "total"}


def backward(program: RowProgram, operand: int, g: Expr) -> Expr:
    """What flows back to a row operand when `g` flows into the result: reverse accumulation over the program.

    A gradient reaching one number per row is the sum over the row of what its uses send. Maxima are taken as constants: they are there
    to shift exponents, and a shift cancels in the derivative.
    """
    varying = _Varying(program.kinds)
    order: list[Expr] = []
    _visit(program.expr, order, set())
    adjoint: dict[Expr, Expr] = {program.expr: g}
    for node in reversed(order):
        arrived = adjoint.get(node, ZERO)
        if arrived is ZERO or not node.args or node.op in derive.FLAT or node.op == "row_max":
            continue
        if node.op == "row_sum":
            sent = [arrived]
        elif node.op == "where":
            condition, _, _ = node.args
            sent = [ZERO, e.where(condition, arrived, 0), e.where(condition, 0, arrived)]
        else:
            sent = [rule(arrived) for rule in derive.RULES[node.op](node, *node.args)]
        for argument, value in zip(node.args, sent, strict=True):
            if (value is not ZERO and argument.args) or argument.op == "load":
                if varying(node) and not varying(argument):
                    value = row_sum(value)
                adjoint[argument] = add(adjoint.get(argument, ZERO), value)
    return adjoint.get(e.load(operand), ZERO)


def _visit(node: Expr, order: list[Expr], seen: set[Expr]) -> None:
    if node not in seen:
        seen.add(node)
        for a in node.args:
            _visit(a, order, seen)
        order.append(node)


class _Varying:
    """Whether a value differs from element to element of a row."""

    def __init__(self, kinds):
        self.kinds = kinds
        self.known: dict[Expr, bool] = {}

    def __call__(self, node: Expr) -> bool:
        found = self.known.get(node)
        if found is None:
            if node.op == "load":
                found = node.value >= len(self.kinds) or self.kinds[node.value] != "each"
            else:
                found = node.op not in ("row_sum", "row_max") and any(map(self, node.args))
            self.known[node] = found
        return found


# -- programs ------------------------------------------------------------------------------------------------------------


def _softmax(x):
    powers = e.exp(x - row_max(x))  # shifted, so that exp cannot overflow
    return powers * (1 / row_sum(powers))  # one division for the row


def _log_softmax(x):
    shifted = x - row_max(x)
    return shifted - e.log(row_sum(e.exp(shifted)))


def _normalised(x, n, eps):
    mean = row_sum(x) / n
    off = x - mean
    rstd = e.rsqrt(row_sum(off * off) / n + eps)
    return off * rstd, mean, rstd


def _layer_norm(x, weight, bias, n, eps):
    normal, mean, rstd = _normalised(x, n, eps)
    return normal * weight + bias, mean, rstd


def _layer_norm_backward(grad, x, weight, mean, rstd, n):
    scaled, normal = grad * weight, (x - mean) * rstd
    return rstd * (scaled - row_sum(scaled) / n - normal * (row_sum(scaled * normal) / n))


def _layer_norm_gradients(grad, x, weight, mean, rstd, n):
    return _layer_norm_backward(grad, x, weight, mean, rstd, n), grad * ((x - mean) * rstd), grad


def _rms_norm(x, weight, n, eps):
    rstd = e.rsqrt(row_sum(x * x) / n + eps)
    return x * rstd * weight, rstd


def _rms_norm_backward(grad, x, weight, rstd, n):
    scaled, normal = grad * weight, x * rstd
    return rstd * (scaled - normal * (row_sum(scaled * normal) / n))


def _rms_norm_gradients(grad, x, weight, rstd, n):
    return _rms_norm_backward(grad, x, weight, rstd, n), grad * (x * rstd)


NORMS = ("float32", "float64")  # half precision is normalised in float32, by casts, where a gradient is wanted
PROGRAMS = [
    RowProgram("softmax", _softmax, ("row",)),
    RowProgram("softmax_backward", lambda grad, result: result * (grad - row_sum(grad * result)), ("row", "row")),
    RowProgram("log_softmax", _log_softmax, ("row",)),
    RowProgram("log_softmax_backward", lambda grad, result: grad - e.exp(result) * row_sum(grad), ("row", "row")),
    RowProgram("layer_norm", _layer_norm, ("row", "shared", "shared", "made", "made"), 2, NORMS),
    RowProgram("layer_norm_alone", lambda *given: _layer_norm(*given)[0], ("row", "shared", "shared"), 2),
    RowProgram("layer_norm_bare", lambda *given: _normalised(*given)[0], ("row",), 2),
    RowProgram("layer_norm_backward", _layer_norm_backward, ("row", "row", "shared", "each", "each"), 1, NORMS),
    RowProgram("weighted", lambda grad, x, mean, rstd: grad * ((x - mean) * rstd), ("row", "row", "each", "each"), 0, NORMS),
    RowProgram("rms_norm", _rms_norm, ("row", "shared", "made"), 2, NORMS),
    RowProgram("rms_norm_backward", _rms_norm_backward, ("row", "row", "shared", "each"), 1, NORMS),
    RowProgram("layer_norm_gradients", _layer_norm_gradients, ("row", "row", "shared", "each", "each", "total", "total"), 1, NORMS),
    RowProgram("rms_norm_gradients", _rms_norm_gradients, ("row", "row", "shared", "each", "total"), 1, NORMS),
    *(
        RowProgram(f"{name}_{kind}", formula, ("row",) * rows + (kind,) * numbers, 0, NORMS)
        for name, (formula, rows, numbers) in BY_CHANNEL.items()
        for kind in ("each", "shared")
    ),
]


def declare(name: str, formula: Callable, kinds: tuple[str, ...], options: int = 0) -> RowProgram:
    """A further program, compiled ahead of time with the others."""
    program = RowProgram(name, formula, kinds, options)
    PROGRAMS.append(program)
    return program


# -- C -------------------------------------------------------------------------------------------------------------------


def print_program(program: RowProgram, dtype: str) -> str:
    """The C of the program for one dtype: an fl_loop that the launcher calls once for each row, or for each chunk of rows."""
    if dtype in ("float16", "bfloat16") and set(program.kinds) <= {"row", "shared"}:
        return Print(program, dtype).text("_long") + _widened(program, dtype)
    return Print(program, dtype).text() + (print_chunks(program, dtype) if program.totals else "")


def _widened(program: RowProgram, dtype: str) -> str:
    """The loop of a program in half precision: a row is widened and worked on as float32, which can keep what is dear, unless it is long."""
    name, suffix, rows = f"rows_{program.name}", TYPES[dtype][0], len(program.kinds)
    loop = "FL_IVDEP for (int64_t i = 0; i < n; i++)"
    read, written = (f"fl_{suffix}_to_f32(x[i])", f"fl_f32_to_{suffix}(w[0][i])")
    reads = "FL_NAME(fl_widen)(w[k], x, n);" if dtype == "float16" else f"{loop} w[k][i] = {read};"
    writes = "FL_NAME(fl_narrow)(out, w[0], n);" if dtype == "float16" else f"{loop} out[i] = {written};"
    return f"""{CONVERT}void FL_NAME({name}_f32){ARGUMENTS};
void FL_NAME({name}_{suffix}){ARGUMENTS} {{
    FL_ALIGNED float w[{rows + 1}][{NEAR}];
    char *at[{rows + 1}];
    uint16_t *const out = (uint16_t *)ptr[0];
    if (n > {NEAR}) {{ FL_NAME({name}_{suffix}_long)(ptr, step, n, param); return; }}
    for (int k = 0; k <= {rows}; k++) at[k] = (char *)w[k];
    for (int k = 1; k <= {rows}; k++) {{
        const uint16_t *const x = (const uint16_t *)ptr[k];
        {reads}
    }}
    FL_NAME({name}_f32)(at, step, n, param);
    {writes}
}}
"""


def print_chunks(program: RowProgram, dtype: str) -> str:
    """The loop of a program with totals: an element is a chunk of rows, added up in the dtype they are computed in.

    Numbers: elements of a chunk (for the launcher), length of a row, rows of a chunk, the program's own.
    """
    suffix, storage, _ = TYPES[dtype]
    name = f"rows_{program.name}_{suffix}"
    size = f"sizeof({storage})"
    moves = [f"at[0] += n * {size};"]
    moves += [
        f"at[{i}] += {f'n * {size}' if kind == 'row' else size};" for i, kind in enumerate(program.kinds, 1) if kind in ("row", "each")
    ]
    clears = [f"(({storage} *)at[{i + 1}])[i] = 0;" for i in program.totals]
    operands = 1 + len(program.kinds)
    return f"""
void FL_NAME({name}_chunks)(char *const *ptr, const int64_t *step, int64_t chunks, const double *param) {{
    const int64_t n = (int64_t)param[1];
    for (int64_t c = 0; c < chunks; c++) {{
        char *at[{operands}];
        for (int o = 0; o < {operands}; o++) at[o] = ptr[o] + c * step[o];
        for (int64_t i = 0; i < n; i++) {{ {" ".join(clears)} }}
        for (int64_t r = 0; r < (int64_t)param[2]; r++) {{
            FL_NAME({name})(at, step, n, param + 3);
            {" ".join(moves)}
        }}
    }}
}}
"""


class Print:
    def __init__(self, program: RowProgram, dtype: str):
        self.program, self.p = program, LoopPrinter(dtype)
        self.varying = _Varying(program.kinds)
        self.order: list[Expr] = []
        _visit(program.expr, self.order, set())
        self.levels: dict[Expr, int] = {}
        for node in self.order:
            deepest = max([self.levels[a] for a in node.args], default=0)
            self.levels[node] = deepest + (node.op in ("row_sum", "row_max"))
        self.reductions = [n for n in self.order if n.op in ("row_sum", "row_max")]
        self.hoisted = 0  # how many numbers have been given a name
        self.kept = self._choose_kept()[:1] if self.p.storage == self.p.compute else []  # there is one row to keep it in

    def _choose_kept(self) -> list[Expr]:
        """Dear values that one pass computes for a reduction and a later pass reads again."""
        last = self.levels[self.program.expr]
        kept = []
        for node in self.order:
            if node.op in DEAR and self.varying(node):
                passes = {self.levels[r] - 1 for r in self.reductions if uses(r.args[0], node)}
                if uses(self.program.expr, node, stop=self.reductions):
                    passes.add(last)
                if len(passes) > 1:
                    kept.append(node)
        return kept

    def text(self, form: str = "") -> str:
        p, program = self.p, self.program
        t = p.compute
        lines = [f"{'static ' * bool(form)}void FL_NAME(rows_{program.name}_{p.suffix}{form}){ARGUMENTS} {{"]
        lines.append(f"    {p.storage} *const out = ({p.storage} *)ptr[0];")
        lines += [f"    {t} *const k{i} = out;" for i in range(len(self.kept))]
        for i, kind in enumerate(program.kinds):
            if kind == "each":
                lines.append(f"    const {t} x{i} = {p.read('T', f'*(const {p.storage} *)ptr[{i + 1}]')};")
            elif kind != "made":
                const = "" if kind == "total" else "const "
                lines.append(f"    {const}{p.storage} *const a{i} = ({const}{p.storage} *)ptr[{i + 1}];")
        lines += [f"    const {t} p{i} = ({t})param[{i}];" for i in range(program.options)] + [
            f"    const {t} zero = ({t})fl_zero();",
            "    (void)param; (void)step; (void)zero;",
        ]
        done: set[Expr] = set()
        for level in range(self.levels[program.expr]):
            chosen = [r for r in self.reductions if self.levels[r] == level + 1]
            lines += self._pass(level, chosen, done)
        for i, made in program.made.items():
            found, text = p.body(self._named(made, done))
            lines.append(f"    {{ {' '.join(found)} *({p.storage} *)ptr[{i + 1}] = {p.write(p.dtype, text)}; }}")
        constants, values = self._hoisted([self._named(value, done) for value in (program.expr, *program.totals.values())])
        # Totals are read before the result is written: with rows of 4096 bytes a CPU may take them for the same memory.
        befores = [f"        const {p.storage} before{i} = a{i}[i];" for i in program.totals]
        adds = "".join(f" a{i}[i] = before{i} + {{{k}}};" for k, i in enumerate(program.totals, 1))
        lines += [*constants, "    FL_IVDEP for (int64_t i = 0; i < n; i++) {", *befores]
        lines += [f"        {line}" for line in self._body(values, lambda v: f"out[i] = {p.write(p.dtype, v[0])};{adds.format(*v)}")]
        lines += ["    }", "}"]
        return "\n".join(lines) + "\n"

    def _pass(self, level: int, chosen: list[Expr], done: set[Expr]) -> Iterator[str]:
        """One loop over the row: sums, and maxima, for which a NaN counts as nothing: it is found again in the sum of what they shift.

        Element i goes to lane i % LANES, and the lanes are added in pairs at the end: no addition waits for the one before, and the result
        does not depend on how wide the CPU's vectors are. A lane adds 64 elements in the dtype they are computed in, as are four lanes; the rest is in double.
        """
        t = self.p.compute
        new, numbers, constants, values = self._planned(chosen, done)
        for r, k in zip(chosen, numbers, strict=True):
            if r.op == "row_sum":
                yield f"    double s{k} = 0;"
            else:
                yield f"    FL_ALIGNED {t} m{k}[{LANES}];"
                yield f"    for (int l = 0; l < {LANES}; l++) m{k}[l] = -INFINITY;"
        yield from constants

        def finish(found: list[str]) -> str:
            text = "".join(f"k{self.kept.index(k)}[i] = {v}; " for k, v in zip(new, found[len(chosen) :], strict=True))
            for r, k, v in zip(chosen, numbers, found, strict=False):
                if r.op == "row_sum":
                    text += f"f{k}[l] += {v}; "
                else:
                    text += f"{{ const {t} v = {v}; m{k}[l] = v > m{k}[l] ? v : m{k}[l]; }} "
            return text

        sums = [k for r, k in zip(chosen, numbers, strict=True) if r.op == "row_sum"]
        body = [f"            {line}" for line in ("const int64_t i = o + l;", *self._body(values, finish))]
        yield "    for (int64_t o = 0; o < n;) {"
        yield f"        const int64_t stop = n - o < {64 * LANES} ? n : o + {64 * LANES};"
        yield from (f"        FL_ALIGNED {t} f{k}[{LANES}]; for (int l = 0; l < {LANES}; l++) f{k}[l] = zero;" for k in sums)
        yield f"        for (; stop - o >= {LANES}; o += {LANES}) FL_COUNTED for (int l = 0; l < {LANES}; l++) {{"
        yield from [*body, "        }", "        FL_IVDEP for (int l = 0; l < (int)(stop - o); l++) {", *body, "        }"]
        for k in sums:
            yield f"        s{k} += lanes_sum_{t}(f{k});"
        yield "        o = stop;\n    }"
        for k in numbers:
            yield f"    const {t} x{200 + k} = " + (f"({t})s{k};" if k in sums else f"lanes_max_{t}(m{k});")

    def _planned(self, chosen: list[Expr], done: set[Expr]) -> tuple[list[Expr], list[int], list[str], list[Expr]]:
        """A pass for the reductions `chosen`: what it keeps, their places among all, what comes before the loop, and what it computes."""
        new = [k for k in self.kept if k not in done and any(uses(r.args[0], k) for r in chosen)]
        found = [self._named(r.args[0], done, new) for r in chosen] + [self._named(k, done, set(new) - {k}) for k in new]
        done.update(chosen)
        done.update(new)
        return new, [self.reductions.index(r) for r in chosen], *self._hoisted(found)

    def _named(self, node: Expr, done: set[Expr], but=()) -> Expr:
        """`node` with reductions that are done as x200.. and kept rows as x300.., unless they are in `but`."""
        table = {r: e.load(200 + k) for k, r in enumerate(self.reductions) if r in done}
        table |= {k: e.load(300 + i) for i, k in enumerate(self.kept) if k in done and k not in but}
        return e.replace(node, table)

    def _hoisted(self, values: list[Expr]) -> tuple[list[str], list[Expr]]:
        """What is one number for the row, computed before the loop, and the values with it as x400..."""
        numbers: dict[Expr, Expr] = {}

        def visit(node: Expr) -> bool:
            """Whether `node` is one number for the row. What such a number is made of need not be hoisted by itself."""
            if node.op == "load":
                return 200 <= node.value < 300 or (node.value < 200 and self.program.kinds[node.value] == "each")
            fixed = [visit(a) for a in node.args]
            if not all(fixed):
                for a, is_fixed in zip(node.args, fixed, strict=True):
                    if is_fixed and a.args and a not in numbers:
                        numbers[a] = e.load(400 + self.hoisted + len(numbers))
            return all(fixed)

        for value in values:
            visit(value)
        self.hoisted += len(numbers)
        return [self._number(*item) for item in numbers.items()], [e.replace(value, numbers) for value in values]

    def _number(self, node: Expr, name: Expr) -> str:
        found, text = self.p.body(node)
        return f"    {self.p.ctype(node)} x{name.value}; {{ {' '.join(found)} x{name.value} = {text}; }}"

    def _body(self, values: list[Expr], finish: Callable[[list[str]], str]) -> Iterator[str]:
        """Statements of a loop: read what the values need, compute, finish."""
        yield from self._reads(values)
        texts = []
        for number, v in enumerate(values):
            lines, text = self.p.body(v)
            for line in lines:  # temporaries of several values must not share names
                yield _renamed(line, number)
            texts.append(_renamed(text, number))
        yield finish(texts)

    def _reads(self, values: list[Expr]) -> Iterator[str]:
        for i in sorted({i for v in values for i in e.loads(v)}):
            if 300 <= i < 400:
                yield f"const {self.p.compute} x{i} = k{i - 300}[i];"
            elif i < 200 and self.program.kinds[i] != "each":
                yield f"const {self.p.compute} x{i} = {self.p.read('T', f'a{i}[i]')};"


def _renamed(text: str, number: int) -> str:
    import re

    return re.sub(r"\bt(\d+)\b", rf"t{number}_\1", text)


def uses(node: Expr, other: Expr, stop=()) -> bool:
    """Whether `other` is a part of `node`, not counting what is inside of `stop`."""
    if node is other:
        return True
    return node not in stop and any(uses(a, other, stop) for a in node.args)


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the table)."""
    texts, declarations, rows = lanes.texts(), [], []
    for program in PROGRAMS:
        for dtype in program.dtypes:
            name = f"FL_NAME(rows_{program.name}_{TYPES[dtype][0]})"
            texts.append(print_program(program, dtype))
            declarations.append(f"void {name}(char *const *, const int64_t *, int64_t, const double *);\n")
            n, enum = len(program.kinds), ENUM[dtype]
            along = str(1 + sum(2 << i for i, kind in enumerate(program.kinds) if kind in ("row", "shared")))
            options, inputs = program.options, ", ".join([enum] * n)
            if program.totals:
                name, along, options = f"FL_NAME(rows_{program.name}_{TYPES[dtype][0]}_chunks)", "FL_LINES", options + 3
                declarations.append(f"void {name}(char *const *, const int64_t *, int64_t, const double *);\n")
            rows.append(f'{{"rows.{program.name}", {name}, {enum}, {n}, {options}, {(1 << n) - 1}, {enum}, {{{inputs}}}, {along}}}')
    return texts, declarations, rows
