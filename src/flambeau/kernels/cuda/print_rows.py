"""Folds as CUDA C++, from the same declarations as their C (`fold.py`).

Several threads, the lanes, share a row: each takes every so-manieth element, and what they found is combined in shared memory, in an order
that depends on the shape alone. So a result has the same bits in every run.
"""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.print_c import FLOATS
from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, TYPES, CudaPrinter
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
