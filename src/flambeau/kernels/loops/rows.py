"""Loops as C, one row at a time: the vectors of the CPU go along the row.

Element i of a row goes to lane i % LANES of a sum, and the lanes are added in pairs at the end: no addition waits for the one before, and the result
does not depend on how wide the CPU's vectors are. A lane adds 64 elements in the dtype they are computed in, as are four lanes; the rest is in double.
What is kept waits in the row of the result.
"""

from __future__ import annotations

from collections.abc import Iterator

from flambeau.kernels.language.expr import Expr, loads
from flambeau.kernels.language.print_c import CONVERT, TYPES, LoopPrinter, operand_dtype, storage_of
from flambeau.kernels.language.print_table import PARAMETERS, of
from flambeau.kernels.loops.language import EACH, ROW, SHARED, Loop
from flambeau.kernels.loops.passes import Pass, Passes, passes

LANES = 64
NEAR = 4096  # elements of a row of half precision that is widened as a whole
EACH_PLACE = "FL_IVDEP for (int64_t i = 0; i < n; i++)"


def print_rows(loop: Loop, dtype: str) -> str:
    """The C of the loop for one dtype: an fl_loop that the launcher calls once for each row, or for each chunk of rows."""
    name = f"rows_{loop.name}_{TYPES[dtype][0]}"
    halves = [*zip(loop.loads, loop.kinds, strict=True), *zip(loop.stores, loop.store_kinds, strict=True)]
    if dtype in ("float16", "bfloat16") and (EACH, "T") not in halves and "T" not in loop.store_kinds[1:]:
        return (
            Rows(loop, dtype, f"static void FL_NAME({name}_long)").text()
            + _widened(loop, dtype)
            + (print_chunks(loop, dtype) if loop.in_chunks else "")
        )
    return Rows(loop, dtype, f"void FL_NAME({name})").text() + (print_chunks(loop, dtype) if loop.in_chunks else "")


class Rows:
    """The text of the function that works on one row. ptr: the first store, the loads, the other stores."""

    def __init__(self, loop: Loop, dtype: str, signature: str):
        self.loop, self.p, self.signature = loop, LoopPrinter(dtype), signature
        self.passes: Passes = passes(loop, room=int(self.p.storage == self.p.compute and loop.stores[0] == ROW))

    def text(self) -> str:
        return "\n".join([f"{self.signature}{PARAMETERS} {{", *(f"    {line}" for line in self.lines()), "}"]) + "\n"

    def lines(self) -> Iterator[str]:
        loop, p, t = self.loop, self.p, self.p.compute
        yield f"{p.storage} *const out = ({p.storage} *)ptr[0];"
        if self.passes.keeps:
            yield f"{t} *const k0_of = out;"
        for i, (access, kind) in enumerate(zip(loop.loads, loop.kinds, strict=True)):
            source = f"(const {storage_of(kind, p.dtype)} *)ptr[{i + 1}]"
            if access == EACH:
                yield f"const {p.ctype_of_kind(kind)} x{i} = {p.read(kind, '*' + source)};"
            else:
                yield f"const {storage_of(kind, p.dtype)} *const a{i} = {source};"
        for k in loop.totals:
            yield f"{p.storage} *const total{k} = ({p.storage} *)ptr[{len(loop.loads) + k}];"
        yield from options(loop, p, 0)
        yield f"const {t} zero = ({t})fl_zero();"
        yield "(void)param; (void)step; (void)zero; (void)out;"
        for step in self.passes.reducing:
            yield from self.reduce(step)
        for k, value in self.passes.made.items():
            found, text = p.body(value)
            dtype = operand_dtype(loop.store_kinds[k], p.dtype)
            place = f"*({TYPES[dtype][1]} *)ptr[{len(loop.loads) + k if k else 0}]"
            yield f"{{ {' '.join(found)} {place} = {p.write(dtype, text)}; }}"
        if self.passes.stores:
            yield from self.write()

    def write(self) -> Iterator[str]:
        """The last walk. Totals are read before the result is written: with rows of 4096 bytes a CPU may take them for the same memory."""
        p = self.p
        yield from (self.number(*item) for item in self.passes.numbers)
        yield f"{EACH_PLACE} {{"
        yield from (f"    const {p.storage} before{k} = total{k}[i];" for k in self.loop.totals)
        found, texts = self.body(list(self.passes.stores.values()))
        yield from (f"    {line}" for line in found)
        for k, text in zip(self.passes.stores, texts, strict=True):
            if k in self.loop.totals:
                yield f"    total{k}[i] = before{k} + {text};"
            else:
                place = f"(({p.storage} *)ptr[{len(self.loop.loads) + k}])" if k else "out"
                yield f"    {place}[i] = {p.write(p.dtype, text)};"
        yield "}"
        for at, value in self.passes.put.values():
            found, (place, text) = p.bodies([at, value])
            yield f"{{ {' '.join(found)} const int64_t at = {place}; if (at >= 0 && at < n) out[at] = {p.write(p.dtype, text)}; }}"

    def reduce(self, step: Pass) -> Iterator[str]:
        """One walk over the row in lanes."""
        t = self.p.compute
        sums = [r.name.value for r in step.reductions if r.op == "total"]
        for r in step.reductions:
            name = r.name.value
            if name in sums:
                yield f"double {name}_wide = 0;"
            else:
                yield f"FL_ALIGNED {t} {name}_of[{LANES}]; for (int l = 0; l < {LANES}; l++) {name}_of[l] = -INFINITY;"
        yield from (self.number(*item) for item in step.numbers)
        found, texts = self.body(step.values)
        body = ["const int64_t i = o + l;", *found]
        for (name, _), text in zip(step.kept, texts[len(step.reductions) :], strict=True):
            body.append(f"{name.value}_of[i] = {text};")
        for r, text in zip(step.reductions, texts, strict=False):
            lane = f"{r.name.value}_of[l]"
            body.append(f"{lane} += {text};" if r.op == "total" else f"{{ const {t} v = {text}; {lane} = v > {lane} ? v : {lane}; }}")
        inner = [f"        {line}" for line in body]
        yield "for (int64_t o = 0; o < n;) {"
        yield f"    const int64_t stop = n - o < {64 * LANES} ? n : o + {64 * LANES};"
        yield from (f"    FL_ALIGNED {t} {k}_of[{LANES}]; for (int l = 0; l < {LANES}; l++) {k}_of[l] = zero;" for k in sums)
        yield f"    for (; stop - o >= {LANES}; o += {LANES}) FL_COUNTED for (int l = 0; l < {LANES}; l++) {{"
        yield from [*inner, "    }", "    FL_IVDEP for (int l = 0; l < (int)(stop - o); l++) {", *inner, "    }"]
        yield from (f"    {k}_wide += lanes_sum_{t}({k}_of);" for k in sums)
        yield "    o = stop;\n    }"
        for r in step.reductions:
            name = r.name.value
            yield f"const {t} {name} = " + (f"({t}){name}_wide;" if name in sums else f"lanes_max_{t}({name}_of);")

    def number(self, name: Expr, value: Expr) -> str:
        found, text = self.p.body(value)
        return f"{self.p.ctype(value)} {name.value}; {{ {' '.join(found)} {name.value} = {text}; }}"

    def body(self, values: list[Expr]) -> tuple[list[str], list[str]]:
        """Statements of a walk, and the values: they read what the values need."""
        p, reads = self.p, []
        for i in sorted({i for v in values for i in loads(v)}):
            if self.loop.loads[i] in (ROW, SHARED):
                reads.append(f"const {p.ctype_of_kind(self.loop.kinds[i])} x{i} = {p.read(self.loop.kinds[i], f'a{i}[i]')};")
        if any(is_kept(v) for v in values):
            reads.append(f"const {p.compute} k0 = k0_of[i];")
        found, texts = p.bodies(values)
        return reads + found, texts


def options(loop: Loop, p: LoopPrinter, first: int) -> list[str]:
    """The statements that name the loop's own numbers, which come after so many others."""
    kinds = [p.ctype_of_kind(kind) for kind in loop.params]
    return [f"const {t} p{i} = ({t})param[{first + i}];" for i, t in enumerate(kinds)]


def is_kept(value: Expr) -> bool:
    """Whether a value reads what was kept."""
    return (value.op == "local" and value.value == "k0") or any(map(is_kept, value.args))


def _widened(loop: Loop, dtype: str) -> str:
    """The loop of rows in half precision: a row is widened and worked on as float32, which can keep what is dear, unless it is long."""
    name, suffix = f"rows_{loop.name}", TYPES[dtype][0]
    operands = [(loop.stores[0], loop.store_kinds[0]), *zip(loop.loads, loop.kinds, strict=True)]
    halves = [k for k, (access, kind) in enumerate(operands) if kind == "T"]
    count = len(loop.loads) + len(loop.stores)
    reads = []
    for k in halves:
        if k:
            one = f"{EACH_PLACE} w{k}[i] = fl_{suffix}_to_f32(x{k}[i]);"
            reads.append(f"const uint16_t *const x{k} = (const uint16_t *)ptr[{k}];")
            reads.append(f"FL_NAME(fl_widen)(w{k}, x{k}, n);" if dtype == "float16" else one)
    writes = ""
    if 0 in halves:
        one = f"{EACH_PLACE} out[i] = fl_f32_to_{suffix}(w0[i]);"
        writes = f"uint16_t *const out = (uint16_t *)ptr[0]; {'FL_NAME(fl_narrow)(out, w0, n);' if dtype == 'float16' else one}"
    return f"""{CONVERT}void FL_NAME({name}_f32){PARAMETERS};
void FL_NAME({name}_{suffix}){PARAMETERS} {{
    FL_ALIGNED float {", ".join(f"w{k}[{NEAR}]" for k in halves)};
    char *const at[] = {{{", ".join(f"(char *)w{k}" if k in halves else f"ptr[{k}]" for k in range(count))}}};
    if (n > {NEAR}) {{ FL_NAME({name}_{suffix}_long)(ptr, step, n, param); return; }}
    {" ".join(reads)}
    FL_NAME({name}_f32)(at, step, n, param);
    {writes}
}}
"""


def print_chunks(loop: Loop, dtype: str) -> str:
    """The loop over chunks of rows: an element is a chunk. Totals are added up in the dtype they are computed in.

    Numbers: elements of a chunk (for the launcher), length of a row, rows of a chunk, the loop's own.
    """
    suffix, storage, _ = TYPES[dtype]
    name, operands = f"rows_{loop.name}_{suffix}", [loop.stores[0], *loop.loads, *loop.stores[1:]]
    kinds = [loop.store_kinds[0], *loop.kinds, *loop.store_kinds[1:]]
    sizes = [storage_of(kind, dtype) for kind in kinds]
    moves = [{ROW: f"n * sizeof({t})", EACH: f"sizeof({t})", SHARED: "0"}[access] for t, access in zip(sizes, operands, strict=True)]
    clears = [f"(({storage} *)at[{len(loop.loads) + k}])[i] = 0;" for k in loop.totals]
    return f"""
void FL_NAME({name}_chunks){of("chunks")} {{
    const int64_t n = (int64_t)param[1], move[] = {{{", ".join(moves)}}};
    for (int64_t c = 0; c < chunks; c++) {{
        char *at[{len(operands)}];
        for (int o = 0; o < {len(operands)}; o++) at[o] = ptr[o] + c * step[o];
        for (int64_t i = 0; i < n; i++) {{ {" ".join(clears)} }}
        for (int64_t r = 0; r < (int64_t)param[2]; r++) {{
            FL_NAME({name})(at, step, n, param + 3);
            for (int o = 0; o < {len(operands)}; o++) at[o] += move[o];
        }}
    }}
}}
"""
