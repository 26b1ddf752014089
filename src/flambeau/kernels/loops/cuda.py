"""Loops as CUDA C++: threads, the lanes, share a row. Each takes every so-manieth pack of it, and what they found is combined in shared memory, in an
order that depends on the shape alone. So a result has the same bits in every run. Nothing is kept in rows: computing it again is cheaper here.

Where stores are summed over the rows, threads that share a row go from row to row and add up what falls to them in registers; then those of a block
add up theirs, for each total into a row of parts (a row for each block), which `print_parts` adds up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from flambeau.kernels.language.expr import Expr, loads
from flambeau.kernels.language.print_c import operand_dtype, storage_of
from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, TYPES, CudaPrinter
from flambeau.kernels.loops.language import EACH, ROW, SHARED, Loop
from flambeau.kernels.loops.passes import Pass, passes


@dataclass(frozen=True)
class Instance:
    """One kernel of a loop.

    lanes   threads that share a row
    pack    elements read and written at once
    items   packs that a thread keeps in registers, so that a row is read once; 0 for rows too long for that, which are read in every pass
    """

    loop: Loop
    dtype: str
    lanes: int
    pack: int
    items: int

    @property
    def function(self) -> str:
        return f"fl_rows_{self.loop.name}_{TYPES[self.dtype][0]}"


def print_loop(k: Instance) -> str:
    """The CUDA C++ of a loop: a walk along the row for each pass, and one that writes. It takes the stores, the loads, the options, rows and extent."""
    return PREAMBLE + _TOTALS.format(threads=THREADS) + "\n".join(_Text(k).lines()) + "\n"


class _Text:
    """Operands are a0, a1 ..., stores y0, y1 ...; b0 and z0 begin at the row, r0 are packs in registers, t1 totals in registers."""

    def __init__(self, k: Instance):
        self.k, self.loop, self.p, self.passes = k, k.loop, _Printer(k.dtype), passes(k.loop, room=0, puts=False)
        self.rows = [i for i, access in enumerate(self.loop.loads) if access == ROW]

    def lines(self) -> Iterator[str]:
        k, p, loop = self.k, self.p, self.loop
        t, groups = p.compute, THREADS // k.lanes
        given = [f"{storage_of(kind, k.dtype)} *y{i}" for i, kind in enumerate(loop.store_kinds)] + [
            f"const {self.storage(i)} *a{i}" for i in range(len(loop.loads))
        ]
        given += [f"double q{i}" for i in range(loop.options)]
        yield f'extern "C" __global__ void __launch_bounds__({THREADS})'
        yield f"{k.function}({', '.join(given)}, long long rows, long long n) {{"
        yield f"    const int lane = threadIdx.x % {k.lanes};"
        yield from (f"    const {p.ctype_of_kind(kind)} p{i} = ({p.ctype_of_kind(kind)})q{i};" for i, kind in enumerate(loop.params))
        if not loop.totals:
            yield from self.row(f"(long long)blockIdx.x * {groups} + threadIdx.x / {k.lanes}")
        else:
            yield from (f"    {t} t{i}[{k.items}][{k.pack}] = {{}};" for i in loop.totals)
            yield f"    for (long long first = (long long)blockIdx.x * {groups}; first < rows; first += (long long)gridDim.x * {groups}) {{"
            yield from self.row(f"first + threadIdx.x / {k.lanes}")
            yield "    }"
            yield from self.totals(groups)
        yield "}"

    def storage(self, operand: int) -> str:
        return storage_of(self.loop.kinds[operand], self.k.dtype)

    def row(self, number: str) -> Iterator[str]:
        """The work on one row."""
        k, p, loop = self.k, self.p, self.loop
        s, t = p.storage, p.compute
        yield f"    const long long row = {number};"
        yield "    const long long width = row < rows ? n : 0; /* of a row beyond the last there is nothing */"
        for i, access in enumerate(loop.loads):
            if access == EACH:
                kind, zero = p.ctype_of_kind(loop.kinds[i]), "0"
                yield f"    const {kind} x{i} = row < rows ? {p.read(loop.kinds[i], f'a{i}[row]')} : {zero};"
            else:
                yield f"    const {self.storage(i)} *const b{i} = a{i}{' + row * n' if access == ROW else ''};"
        yield from (f"    {s} *const z{i} = y{i} + row * n;" for i, access in enumerate(loop.stores) if access == ROW)
        if k.items:
            yield from (f"    Pack<{self.storage(i)}, {k.pack}> r{i}[{k.items}];" for i in self.rows)
            reads = " ".join(f"r{i}[k] = *(const Pack<{self.storage(i)}, {k.pack}> *)(b{i} + at);" for i in self.rows)
            yield from self.over_row([f"if (at < width) {{ {reads} }}"], guarded=False)
        for step in self.passes.reducing:
            yield from self.reduce(step, t)
        for i, value in self.passes.made.items():
            found, text = p.body(value)
            yield f"    if (lane == 0 && row < rows) {{ {' '.join(found)} y{i}[row] = {p.stored(operand_dtype(loop.store_kinds[i], p.dtype), text, 'T')}; }}"
        if self.passes.stores:
            yield from (self.number(*item) for item in self.passes.numbers)
            yield from self.over_row(self.written())

    def written(self) -> list[str]:
        """The statements of the last walk."""
        k, p, s = self.k, self.p, self.p.storage
        along = [i for i in self.passes.stores if i not in self.loop.totals]
        lines = self.elements(list(self.passes.stores.values()), lambda texts: " ".join(
            f"t{i}[k][j] += {text};" if i in self.loop.totals else f"result{i}.item[j] = {p.stored(p.dtype, text, 'T')};"
            for i, text in zip(self.passes.stores, texts, strict=True)
        ))  # fmt: skip
        return (
            [f"Pack<{s}, {k.pack}> result{i};" for i in along]
            + lines
            + [f"*(Pack<{s}, {k.pack}> *)(z{i} + at) = result{i};" for i in along]
        )

    def totals(self, groups: int) -> Iterator[str]:
        """What the groups of threads in this block added up, added up: in shared memory, in the order of the groups."""
        k, t = self.k, self.p.compute
        across = k.lanes * k.pack
        yield f"    __shared__ {t} found[{groups}][{across}];"
        for i in self.loop.totals:
            yield "    #pragma unroll"
            yield f"    for (int k = 0; k < {k.items}; k++) {{"
            yield "        __syncthreads();"
            yield f"        for (int j = 0; j < {k.pack}; j++) found[threadIdx.x / {k.lanes}][lane * {k.pack} + j] = t{i}[k][j];"
            yield "        __syncthreads();"
            yield f"        for (int c = threadIdx.x; c < {across} && k * {across} + c < n; c += {THREADS}) {{"
            yield f"            {t} sum = 0;"
            yield f"            for (int g = 0; g < {groups}; g++) sum += found[g][c];"
            yield f"            y{i}[blockIdx.x * n + k * {across} + c] = sum;"
            yield "        }"
            yield "    }"

    def reduce(self, step: Pass, t: str) -> Iterator[str]:
        """Every thread's share of sums and peaks, then what they are together."""
        yield from (self.number(*item) for item in step.numbers)
        for r in step.reductions:
            yield f"    double {r.name.value}_wide = {'0' if r.op == 'total' else '-INFINITY'};"

        def gather(texts: list[str]) -> str:
            return " ".join(
                f"{r.name.value}_wide += {v};" if r.op == "total" else f"{r.name.value}_wide = larger({r.name.value}_wide, {v});"
                for r, v in zip(step.reductions, texts, strict=True)
            )

        yield from self.over_row(self.elements([r.value for r in step.reductions], gather))
        for r in step.reductions:
            how = "total" if r.op == "total" else "largest"
            yield f"    const {t} {r.name.value} = ({t}){how}<{self.k.lanes}>({r.name.value}_wide, lane);"

    def number(self, name: Expr, value: Expr) -> str:
        found, text = self.p.body(value)
        return f"    {self.p.ctype(value)} {name.value}; {{ {' '.join(found)} {name.value} = {text}; }}"

    def elements(self, values: list[Expr], finish) -> list[str]:
        """Statements for the elements of a pack."""
        k, needed, lines = self.k, sorted({i for v in values for i in loads(v)}), []
        for i in needed:
            if self.loop.loads[i] == SHARED or (self.loop.loads[i] == ROW and not k.items):
                lines.append(f"const Pack<{self.storage(i)}, {k.pack}> v{i} = *(const Pack<{self.storage(i)}, {k.pack}> *)(b{i} + at);")
        lines += ["#pragma unroll", f"for (int j = 0; j < {k.pack}; j++) {{", "    const long long i = at + j; (void)i;"]
        for i in needed:
            if self.loop.loads[i] != EACH:
                source = f"r{i}[k].item[j]" if self.loop.loads[i] == ROW and k.items else f"v{i}.item[j]"
                lines.append(f"    const {self.p.ctype_of_kind(self.loop.kinds[i])} x{i} = {self.p.read(self.loop.kinds[i], source)};")
        found, texts = self.p.bodies(values)
        return [*lines, *(f"    {line}" for line in found), f"    {finish(texts)}", "}"]

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


class _Printer(CudaPrinter):
    def picked(self, operand: int, at: str) -> str:
        return super().picked(operand, at).replace(f"a{operand}[", f"b{operand}[")


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
