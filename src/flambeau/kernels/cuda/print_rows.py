"""Folds and row programs as CUDA C++, from the same declarations as their C (`fold.py`, `rows.py`).

Several threads, the lanes, share a row: each takes every so-manieth element, and what they found is combined in shared memory, in an order
that depends on the shape alone. So a result has the same bits in every run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.print_c import FLOATS
from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, TYPES, CudaPrinter
from flambeau.kernels.reductions import rows
from flambeau.kernels.reductions.fold import Fold

# -- folds -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoldInstance:
    """One kernel of a reduction.

    lanes    threads that share a row: a power of two
    columns  whether neighbouring threads take neighbouring rows (whose elements then lie side by side), or neighbouring elements of a row
    stage    "whole": elements -> results;  "part": elements -> accumulators of a part of each row;  "merge": accumulators -> results
    pack     elements read at once, where a row is contiguous
    find     whether the position of the result is wanted
    """

    fold: Fold
    dtype: str
    lanes: int
    columns: bool = False
    stage: str = "whole"
    pack: int = 1
    find: bool = False

    @property
    def function(self) -> str:
        return f"fl_fold_{self.fold.name}_{TYPES[self.dtype][0]}_{self.stage}"


def print_fold(k: FoldInstance) -> str:
    """The CUDA C++ of one kernel: out[row] = finish(combine over i of map(x[row, i]))."""
    fold, element = k.fold, CudaPrinter(k.dtype)
    is_float = k.dtype in FLOATS
    accumulator, wide = CudaPrinter("float64" if is_float else "int64"), "double" if is_float else "int64_t"
    out = k.dtype if fold.out == "T" else fold.out
    init = fold.init(k.dtype) if callable(fold.init) else fold.init
    x, y, z = e.load(0), e.load(1), e.load(2)
    narrow, storage, out_type = element.compute, element.storage, TYPES[out][1]
    value = accumulator.stored(out, "finish(acc.value, (Wide)count, shift ? (Wide)shift[row] : 0)", "T")
    return (
        PREAMBLE
        + f"""
typedef {wide} Wide;
{_function("map", "Wide", [f"{narrow} x0", f"{narrow} x1"], element, fold.map(x, y))}
{_function("join", "Wide", ["Wide x0", "Wide x1"], accumulator, fold.combine(x, y))}
{_function("finish", "Wide", ["Wide x0", "Wide x1", "Wide x2"], accumulator, fold.finish(x, y, z))}
{_WITH_POSITION if k.find else _VALUE_ONLY}
extern "C" __global__ void __launch_bounds__({THREADS})
{k.function}({out_type} *out, int64_t *index, const char *x, const double *shift, Acc *part, double count, long long rows, long long n,
             long long inner, long long outer_step, long long step, long long inner_step, long long chunk) {{
    __shared__ Acc shared[{THREADS}];
    const int lane = {f"threadIdx.x / {THREADS // k.lanes}" if k.columns else f"threadIdx.x % {k.lanes}"};
    const int mine = {f"threadIdx.x % {THREADS // k.lanes}" if k.columns else f"threadIdx.x / {k.lanes}"};
    const long long row = (long long)blockIdx.x * {THREADS // k.lanes} + mine;
    const long long begin = blockIdx.y * chunk, end = row < rows ? (begin + chunk < n ? begin + chunk : n) : 0;
    Acc found[4];
    for (int u = 0; u < 4; u++) found[u] = start({accumulator.literal(init)});
{_fold_merge(k) if k.stage == "merge" else _fold_read(k, element, storage, narrow)}
    Acc acc = better(better(found[0], found[1]), better(found[2], found[3]));
    shared[threadIdx.x] = acc;
    for (int half = {k.lanes // 2}; half > 0; half /= 2) {{
        __syncthreads();
        if (lane < half) shared[threadIdx.x] = better(shared[threadIdx.x], shared[threadIdx.x + half * {THREADS // k.lanes if k.columns else 1}]);
    }}
    if (lane || row >= rows) return;
    acc = shared[threadIdx.x];
    {"part[blockIdx.y * rows + row] = acc;" if k.stage == "part" else f"if (out) out[row] = {value};"}
    {"if (index) index[row] = acc.at;" if k.find and k.stage != "part" else ""}
}}
"""
    )


def _fold_read(k: FoldInstance, element: CudaPrinter, storage: str, narrow: str) -> str:
    """Four elements (or packs) on their way at once, each with an accumulator of its own."""
    per = k.pack * k.lanes
    if k.pack == 1:
        read = f"const {narrow} value = {element.read('T', f'*(const {storage} *)(base + i * step)')};"
        take = f"{read} found[u] = better(found[u], element(map(value, s), i));"
    else:
        read = f"const Pack<{storage}, {k.pack}> v = *(const Pack<{storage}, {k.pack}> *)(base + i * step);"
        take = (
            f"{read}\n                #pragma unroll\n                for (int p = 0; p < {k.pack}; p++) "
            f"found[u] = better(found[u], element(map({element.read('T', 'v.item[p]')}, s), i + p));"
        )
    return f"""    const long long o = inner == 1 ? row : row / inner;
    const char *const base = x + o * outer_step + (row - o * inner) * inner_step;
    const {narrow} s = shift && row < rows ? ({narrow})shift[row] : 0;
    for (long long first = begin + (long long)lane * {k.pack}; first < end; first += {4 * per}) {{
        #pragma unroll
        for (int u = 0; u < 4; u++) {{
            const long long i = first + u * {per};
            if (i < end) {{ {take} }}
        }}
    }}"""


def _fold_merge(k: FoldInstance) -> str:
    return f"    for (long long i = begin + lane; i < end; i += {k.lanes}) found[0] = better(found[0], part[i * rows + row]);"


_VALUE_ONLY = """
struct Acc { Wide value; };
__device__ inline Acc start(Wide v) { return Acc{v}; }
__device__ inline Acc element(Wide v, long long i) { return Acc{v}; }
__device__ inline Acc better(Acc a, Acc b) { return Acc{join(a.value, b.value)}; }
"""
# Of equals the first counts, and of NaNs the first.
_WITH_POSITION = """
struct Acc { Wide value; int64_t at; };
__device__ inline Acc start(Wide v) { return Acc{v, -1}; }
__device__ inline Acc element(Wide v, long long i) { return Acc{v, i}; }
__device__ inline bool same(Wide a, Wide b) { return a == b || (a != a && b != b); }
__device__ inline Acc better(Acc a, Acc b) {
    if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
    const Wide v = join(a.value, b.value);
    if (same(v, a.value) && same(v, b.value)) return a.at < b.at ? a : b;
    return same(v, a.value) ? a : b;
}
"""


def _function(name: str, result: str, parameters: list[str], printer: CudaPrinter, formula: e.Expr) -> str:
    lines, value = printer.body(formula)
    body = "".join(f"    {line}\n" for line in lines)
    return f"__device__ inline {result} {name}({', '.join(parameters)}) {{\n{body}    return {value};\n}}"


# -- row programs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowsInstance:
    """One kernel of a row program.

    lanes   threads that share a row
    pack    elements read and written at once
    items   packs that a thread keeps in registers, so that a row is read once; 0 for rows too long for that, which are read in every pass
    """

    name: str
    dtype: str
    lanes: int
    pack: int
    items: int

    @property
    def function(self) -> str:
        return f"fl_rows_{self.name}_{TYPES[self.dtype][0]}"


def print_rows(k: RowsInstance, program: rows.RowProgram) -> str:
    """The CUDA C++ of a row program: a pass per level of reductions, and one that writes."""
    return PREAMBLE + _TOTALS.format(threads=THREADS) + _Rows(k, program).text()


class _Rows(rows.Print):
    """The passes of a program, as `rows.py` finds them. Nothing is kept in scratch rows: computing it again is cheaper here.

    Where there are totals, threads that share a row go from row to row and add up what falls to them in registers; then those of a block
    add up theirs, for each total into a row of `parts` (a row for each block), which a second kernel adds up.
    """

    def __init__(self, k: RowsInstance, program: rows.RowProgram):
        super().__init__(program, k.dtype)
        self.k, self.kept = k, []
        self.p = CudaPrinter(k.dtype)  # type: ignore[assignment]
        self.rows = [i for i, kind in enumerate(program.kinds) if kind == "row"]

    def text(self) -> str:  # type: ignore[override]
        return "\n".join(self.lines()) + "\n"

    def lines(self) -> Iterator[str]:
        k, p, program = self.k, self.p, self.program
        s, t = p.storage, p.compute
        given = [f"{'' if kind in ('made', 'total') else 'const '}{s} *a{i}" for i, kind in enumerate(program.kinds)] + [
            f"double q{i}" for i in range(program.options)
        ]
        groups = THREADS // k.lanes
        yield f'extern "C" __global__ void __launch_bounds__({THREADS})'
        yield f"{k.function}({s} *out, {', '.join(given)}, long long rows, long long n) {{"
        yield f"    const int lane = threadIdx.x % {k.lanes};"
        yield from (f"    const {t} p{i} = ({t})q{i};" for i in range(program.options))
        if not program.totals:
            yield from self.row(f"(long long)blockIdx.x * {groups} + threadIdx.x / {k.lanes}")
        else:
            yield from (f"    {t} t{i}[{k.items}][{k.pack}] = {{}};" for i in program.totals)
            yield f"    for (long long first = (long long)blockIdx.x * {groups}; first < rows; first += (long long)gridDim.x * {groups}) {{"
            yield from self.row(f"first + threadIdx.x / {k.lanes}")
            yield "    }"
            yield from self.totals(groups)
        yield "}"

    def row(self, number: str) -> Iterator[str]:
        """All that is done with one row."""
        k, p, program = self.k, self.p, self.program
        s, t = p.storage, p.compute
        yield f"    const long long row = {number};"
        yield "    const long long width = row < rows ? n : 0;"  # threads without a row still take part in the totals
        for i, kind in enumerate(program.kinds):
            if kind == "each":
                yield f"    const {t} x{i} = row < rows ? {p.read('T', f'a{i}[row]')} : 0;"
            elif kind == "row":
                yield f"    const {s} *const b{i} = a{i} + row * n;"
        yield f"    {s} *const to = out + row * n;"
        if k.items:
            yield from (f"    Pack<{s}, {k.pack}> r{i}[{k.items}];" for i in self.rows)
            loads = "".join(f" r{i}[k] = *(const Pack<{s}, {k.pack}> *)(b{i} + at);" for i in self.rows)
            yield from self.over_row([f"if (at < width) {{{loads} }}"], guarded=False)
        done: set[e.Expr] = set()
        for level in range(self.levels[program.expr]):
            chosen = [r for r in self.reductions if self.levels[r] == level + 1]
            yield from self.reduce(chosen, done)
            done.update(chosen)
        for i, made in program.made.items():
            found, text = p.body(self._named(made, done))
            yield f"    if (lane == 0 && row < rows) {{ {' '.join(found)} a{i}[row] = {p.stored(p.dtype, text, 'T')}; }}"
        store = f"Pack<{s}, {k.pack}> result;"
        adds = "".join(f" t{i}[k][j] += {{{number}}};" for number, i in enumerate(program.totals, 1))
        results = [self._named(value, done) for value in (program.expr, *program.totals.values())]
        body = self.elements(results, lambda v: f"result.item[j] = {p.stored(p.dtype, v[0], 'T')};" + adds.format(*v))
        yield from self.over_row([store, *body, f"*(Pack<{s}, {k.pack}> *)(to + at) = result;"])

    def totals(self, groups: int) -> Iterator[str]:
        """What the groups of threads in this block added up, added up: in shared memory, in the order of the groups."""
        k, t = self.k, self.p.compute
        across = k.lanes * k.pack
        yield f"    __shared__ {t} found[{groups}][{across}];"
        for i in self.program.totals:
            yield "    #pragma unroll"
            yield f"    for (int k = 0; k < {k.items}; k++) {{"
            yield "        __syncthreads();"
            yield f"        for (int j = 0; j < {k.pack}; j++) found[threadIdx.x / {k.lanes}][lane * {k.pack} + j] = t{i}[k][j];"
            yield "        __syncthreads();"
            yield f"        for (int c = threadIdx.x; c < {across} && k * {across} + c < n; c += {THREADS}) {{"
            yield f"            {t} sum = 0;"
            yield f"            for (int g = 0; g < {groups}; g++) sum += found[g][c];"
            yield f"            a{i}[blockIdx.x * n + k * {across} + c] = sum;"
            yield "        }"
            yield "    }"

    def reduce(self, chosen: list[e.Expr], done: set[e.Expr]) -> Iterator[str]:
        """One pass: every thread's share of sums and maxima, then their totals."""
        t = self.p.compute
        numbers = [self.reductions.index(r) for r in chosen]
        for r, number in zip(chosen, numbers, strict=True):
            yield f"    double s{number} = {'0' if r.op == 'row_sum' else '-INFINITY'};"

        def gather(values: list[str]) -> str:
            text = ""
            for r, number, v in zip(chosen, numbers, values, strict=True):
                text += f"s{number} += {v}; " if r.op == "row_sum" else f"s{number} = larger(s{number}, {v}); "
            return text

        yield from self.over_row(self.elements([self._named(r.args[0], done) for r in chosen], gather))
        for r, number in zip(chosen, numbers, strict=True):
            how = "total" if r.op == "row_sum" else "largest"
            yield f"    const {t} x{200 + number} = ({t}){how}<{self.k.lanes}>(s{number}, lane);"

    def elements(self, values: list[e.Expr], finish) -> list[str]:
        """Statements for the elements of a pack."""
        p, k, s = self.p, self.k, self.p.storage
        needed = sorted({i for v in values for i in e.loads(v) if i < 200})
        lines = []
        for i in needed:
            kind = self.program.kinds[i]
            if kind == "shared" or (kind == "row" and not k.items):
                start = f"{'a' if kind == 'shared' else 'b'}{i}"
                lines.append(f"const Pack<{s}, {k.pack}> v{i} = *(const Pack<{s}, {k.pack}> *)({start} + at);")
        lines += ["#pragma unroll", f"for (int j = 0; j < {k.pack}; j++) {{"]
        for i in needed:
            kind = self.program.kinds[i]
            if kind != "each":
                source = f"r{i}[k].item[j]" if kind == "row" and k.items else f"v{i}.item[j]"
                lines.append(f"    const {p.compute} x{i} = {p.read('T', source)};")
        texts = []
        for number, v in enumerate(values):
            found, text = p.body(v)
            lines += [f"    {rows._renamed(line, number)}" for line in found]  # temporaries of several values must not share names
            texts.append(rows._renamed(text, number))
        return [*lines, f"    {finish(texts)}", "}"]

    def over_row(self, body: list[str], guarded: bool = True) -> Iterator[str]:
        """A loop over the packs of this thread: `at` is where one starts, `k` its number in registers."""
        k = self.k
        if k.items:
            yield "    #pragma unroll"
            yield f"    for (int k = 0; k < {k.items}; k++) {{"
            yield f"        const long long at = ((long long)k * {k.lanes} + lane) * {k.pack};"
            if guarded:
                yield "        if (at >= width) break;"
        else:
            yield f"    for (long long at = (long long)lane * {k.pack}; at < width; at += {k.lanes * k.pack}) {{"
        yield from (f"        {line}" for line in body)
        yield "    }"


def print_parts(name: str, dtype: str) -> str:
    """The kernel that adds up the parts (count, n) of one total or two: a block takes 32 columns of one of them, 8 lanes share a column."""
    s = TYPES[dtype][1]
    return (
        PREAMBLE
        + f"""
extern "C" __global__ void __launch_bounds__({THREADS})
{name}({s} *out0, {s} *out1, const {s} *parts, long long count, long long n) {{
    __shared__ double shared[{THREADS}];
    const int lane = threadIdx.x / 32;
    const long long column = (long long)blockIdx.x * 32 + threadIdx.x % 32;
    double sum = 0;
    parts += blockIdx.y * count * n + column;
    for (long long i = lane; i < count && column < n; i += {THREADS // 32}) sum += parts[i * n];
    shared[threadIdx.x] = sum;
    __syncthreads();
    if (lane || column >= n) return;
    for (int other = 1; other < {THREADS // 32}; other++) sum += shared[other * 32 + threadIdx.x];
    (blockIdx.y ? out1 : out0)[column] = ({s})sum;
}}
"""
    )


_TOTALS = """
__device__ inline double larger(double a, double b) {{ return b > a || b != b ? b : a; }}

/* The sum (the maximum) of what the lanes of a row hold, for each of them. */
template <int LANES, class Join> __device__ inline double joined(double mine, int lane, Join join) {{
    __shared__ double shared[{threads}];
    __syncthreads();
    shared[threadIdx.x] = mine;
    for (int half = LANES / 2; half > 0; half /= 2) {{
        __syncthreads();
        if (lane < half) shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
    }}
    __syncthreads();
    return shared[threadIdx.x - lane];
}}
template <int LANES> __device__ inline double total(double mine, int lane) {{
    return joined<LANES>(mine, lane, [](double a, double b) {{ return a + b; }});
}}
template <int LANES> __device__ inline double largest(double mine, int lane) {{
    return joined<LANES>(mine, lane, [](double a, double b) {{ return larger(a, b); }});
}}
"""
