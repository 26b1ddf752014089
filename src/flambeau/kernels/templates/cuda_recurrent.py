"""Recurrent networks as CUDA C++, from the same formulas of cells as their C (`print_recurrent.py`).

    walk   all steps of a layer in one launch: a block takes a few samples (`rows`) from the first step to the last. Its threads have the
           weights to themselves: thread j multiplies with one row of W_hh (backward: with a column of one gate's part), the beginning of which
           stays in its registers and the rest in shared memory. Samples do not meet, so blocks never wait for each other.
    step   the formulas of one step, where weights are too large for that: a product by cuBLASLt comes before (backward: behind) it.

Sums are added up in an order that depends on shapes alone.
"""

from __future__ import annotations

from typing import NamedTuple

from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, TYPES
from flambeau.kernels.templates.print_recurrent import CELLS
from flambeau.kernels.templates.recurrent import GATES


class Walk(NamedTuple):
    """One kernel for all steps.

    rows      samples of a block
    depth     length of a thread's weights: the hidden size rounded up to a multiple of 4
    kept      how many of them stay in registers: a multiple of 4
    threads   of a block: the gates' size rounded up to whole warps
    keeps     whether what backward needs is written
    """

    cell: str
    dtype: str
    backward: bool
    rows: int
    depth: int
    kept: int
    threads: int
    keeps: bool = True

    @property
    def function(self) -> str:
        return f"fl_{self.cell}_{'backward' if self.backward else 'forward'}_{TYPES[self.dtype][0]}"

    def shared(self, hidden: int) -> int:
        """Bytes of shared memory, of which the texts below cut their pieces."""
        gates, lstm, gru = GATES[self.cell], self.cell == "lstm", self.cell == "gru"
        near = (self.depth - self.kept) * self.threads
        if self.backward:
            near += self.rows * (gates * self.depth + gates * hidden * (1 + gru) + hidden * (1 + lstm))
        else:
            near += self.rows * (self.depth + 2 * gates * hidden + lstm * hidden)
        return near * (8 if self.dtype == "float64" else 4)


def print_walk(w: Walk) -> str:
    """The CUDA C++ of all steps."""
    body = _BACKWARD_WALK if w.backward else _FORWARD_WALK
    names = {"NAME": w.function, "ROWS": w.rows, "DEPTH": w.depth, "KEPT": w.kept, "BLOCK": w.threads}
    return PREAMBLE + _filled(_BOTH + _DYNAMIC + _DOTS + body, w.cell, w.dtype, w.backward, w.keeps, names)


def step_name(cell: str, dtype: str, backward: bool) -> str:
    """The name of the kernel for one step."""
    return f"fl_{cell}_step_{'backward' if backward else 'forward'}_{TYPES[dtype][0]}"


def print_step(cell: str, dtype: str, backward: bool, keeps: bool) -> str:
    """The CUDA C++ of one step's formulas."""
    names = {"NAME": step_name(cell, dtype, backward), "BLOCK": THREADS}
    return PREAMBLE + _filled(_BOTH + (_BACKWARD_STEP if backward else _FORWARD_STEP), cell, dtype, backward, keeps, names)


def _filled(text: str, cell: str, dtype: str, backward: bool, keeps: bool, names: dict) -> str:
    """The text with its capitals replaced. Words come first that others are a part of."""
    real = TYPES[dtype][1]
    known = {
        "KEEP_TYPE": "T *const" if keeps else "Nowhere", "KEEP_ROW": "keep_ + row * 4 * h" if keeps else "Nowhere()", "REAL": real,
        "IS_LSTM": int(cell == "lstm"), "IS_GRU": int(cell == "gru"), "GATES": GATES[cell],
    }  # fmt: skip
    for name, value in (known | names).items():
        text = text.replace(name, str(value))
    tanh = "tanhf" if real == "float" else "tanh"
    formula = CELLS[cell][backward].format(real=real).replace("TANH", tanh).replace("SIGMOID", "fl_sigmoid<T>")
    return text.replace("FORMULA", "\n            ".join(line.strip() for line in formula.splitlines()))


# What may be missing: a gradient that did not arrive, a bias; what need not be kept.
_BOTH = """
typedef REAL T;
struct Maybe { const T *at; __device__ T operator[](int i) const { return at ? at[i] : (T)0; } };
struct Plus { const T *at, *bias; __device__ T operator[](int i) const { return bias ? at[i] + bias[i] : at[i]; } };
struct Nowhere { T value; __device__ T &operator[](int) { return value; } };
"""

_DYNAMIC = """
typedef Pack<T, 4> Four;
extern __shared__ Four fl_shared[];
"""

# sum[r] += the thread's weights times row r of the vectors.
_DOTS = """
__device__ inline void dots(T *sum, const Four *kept, const Four *near, const T *vectors, int apart) {
    T part[ROWS][4] = {};
    #pragma unroll
    for (int q = 0; q < KEPT / 4; q++) {
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const Four v = *(const Four *)(vectors + r * apart + 4 * q);
            #pragma unroll
            for (int i = 0; i < 4; i++) part[r][ROWS < 4 ? i : 0] += kept[q].item[i] * v.item[i];
        }
    }
    #pragma unroll 4
    for (int q = KEPT / 4; q < DEPTH / 4; q++) {
        const Four w = near[(q - KEPT / 4) * BLOCK];
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const Four v = *(const Four *)(vectors + r * apart + 4 * q);
            #pragma unroll
            for (int i = 0; i < 4; i++) part[r][ROWS < 4 ? i : 0] += w.item[i] * v.item[i];
        }
    }
    #pragma unroll
    for (int r = 0; r < ROWS; r++) sum[r] += (part[r][0] + part[r][1]) + (part[r][2] + part[r][3]);
}
"""

# Which step, its first row (that of the block's first sample), how many rows the block has in it; `at` are first rows, 0 if all are alike.
_STEP = """
        const long long t = reverse ? steps - 1 - number : number;
        const long long begin = (at ? at[t] : t * samples) + first, there = (at ? at[t + 1] : (t + 1) * samples) - begin;
        const int some = there < ROWS ? (int)there : ROWS;
        if (some <= 0) continue;
"""

_FORWARD_WALK = (
    """
extern "C" __global__ void __launch_bounds__(BLOCK)
NAME(T *out_, T *cell_, T *keep_, const T *gates_, const T *weight_, const T *bias_, const T *h0_, const T *c0_, const int64_t *at,
     long long samples, long long steps, long long hidden, long long reverse) {
    const int h = (int)hidden, wide = GATES * h, me = threadIdx.x;
    const long long first = (long long)blockIdx.x * ROWS;
    Four kept[KEPT / 4 + 1];
    Four *const near = fl_shared;
    T *const vectors = (T *)(near + (DEPTH - KEPT) / 4 * BLOCK), *const sums = vectors + ROWS * DEPTH;
    T *const given = sums + ROWS * wide, *const cells = given + ROWS * wide;
    #pragma unroll
    for (int q = 0; q < KEPT; q++) kept[q / 4].item[q % 4] = me < wide && q < h ? weight_[(long long)me * h + q] : (T)0;
    for (int q = KEPT; q < DEPTH; q++)
        near[(q - KEPT) / 4 * BLOCK + me].item[q % 4] = me < wide && q < h ? weight_[(long long)me * h + q] : (T)0;
    for (int i = me; i < ROWS * DEPTH; i += BLOCK) {
        const int r = i / DEPTH, k = i % DEPTH;
        const bool is = k < h && first + r < samples;
        vectors[i] = is ? h0_[(first + r) * h + k] : (T)0;
        if (IS_LSTM && k < h) cells[r * h + k] = is ? c0_[(first + r) * h + k] : (T)0;
    }
    const T bias = bias_ && me < wide ? bias_[me] : (T)0;
    __syncthreads();
    for (long long number = 0; number < steps; number++) {"""
    + _STEP
    + """        T mine[ROWS], sum[ROWS];
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            mine[r] = r < some && me < wide ? gates_[(begin + r) * wide + me] : (T)0; /* arrives while the product is made */
            sum[r] = bias;
        }
        dots(sum, kept, near + me, vectors, DEPTH);
        #pragma unroll
        for (int r = 0; r < ROWS; r++) if (me < wide) sums[r * wide + me] = sum[r], given[r * wide + me] = mine[r];
        __syncthreads();
        for (int e = me; e < some * h; e += BLOCK) {
            const int r = ROWS == 1 ? 0 : e / h, k = e - r * h;
            const long long row = begin + r;
            const T *const x = given + r * wide, *const a = sums + r * wide;
            T *const out = vectors + r * DEPTH, *const cell = cells + r * h;
            const T *const s = IS_LSTM ? cell : out;
            KEEP_TYPE keep = KEEP_ROW;
            { FORMULA }
            out_[row * h + k] = out[k];
            if (IS_LSTM) cell_[row * h + k] = cell[k];
        }
        __syncthreads();
    }
}
"""
)

_BACKWARD_WALK = (
    """
extern "C" __global__ void __launch_bounds__(BLOCK)
NAME(T *dx_, T *da_, T *dh0_, T *dc0_, const T *g_, const T *gc_, const T *keep_, const T *state_, const T *start_, const T *weight_,
     const int64_t *at, long long samples, long long steps, long long hidden, long long reverse) {
    const int h = (int)hidden, wide = GATES * h, me = threadIdx.x, gate = me / h, unit = me - gate * h;
    const long long first = (long long)blockIdx.x * ROWS;
    Four kept[KEPT / 4 + 1];
    Four *const near = fl_shared;
    T *const vectors = (T *)(near + (DEPTH - KEPT) / 4 * BLOCK), *const parts = vectors + ROWS * GATES * DEPTH;
    T *const others = parts + ROWS * wide, *const carried = others + IS_GRU * ROWS * wide, *const cells = carried + ROWS * h;
    const T *const column = weight_ + (long long)gate * h * h + unit;
    #pragma unroll
    for (int q = 0; q < KEPT; q++) kept[q / 4].item[q % 4] = me < wide && q < h ? column[(long long)q * h] : (T)0;
    for (int q = KEPT; q < DEPTH; q++)
        near[(q - KEPT) / 4 * BLOCK + me].item[q % 4] = me < wide && q < h ? column[(long long)q * h] : (T)0;
    for (int i = me; i < ROWS * GATES * DEPTH; i += BLOCK) vectors[i] = 0;
    for (int i = me; i < ROWS * h; i += BLOCK) { carried[i] = 0; if (IS_LSTM) cells[i] = 0; }
    const T *const vector = vectors + (me < wide ? gate : 0) * DEPTH;
    __syncthreads();
    for (long long number = steps - 1; number >= 0; number--) {"""
    + _STEP
    + """        const long long before = reverse ? t + 1 : t - 1;
        const bool starts = before < 0 || before >= steps;
        const long long from = starts ? 0 : (at ? at[before] : before * samples) + first;
        const long long going_on = starts ? 0 : (at ? at[before + 1] : (before + 1) * samples) - from;
        for (int e = me; e < some * h; e += BLOCK) {
            const int r = ROWS == 1 ? 0 : e / h, k = e - r * h;
            const long long row = begin + r;
            const Maybe g = {g_ ? g_ + row * h : g_}, gc = {gc_ ? gc_ + row * h : gc_};
            const T *const keep = keep_ + row * 4 * h, *const y = state_ + row * h;
            const T *const s = r < going_on ? state_ + (from + r) * h : start_ + (first + r) * h;
            T *const dx = parts + r * wide, *const da = IS_GRU ? others + r * wide : dx, *const dh = carried + r * h, *const dc = cells + r * h;
            { FORMULA }
            #pragma unroll
            for (int j = 0; j < GATES; j++) {
                vectors[(r * GATES + j) * DEPTH + k] = da[j * h + k], dx_[row * wide + j * h + k] = dx[j * h + k];
                if (IS_GRU) da_[row * wide + j * h + k] = da[j * h + k];
            }
        }
        __syncthreads();
        T sum[ROWS] = {};
        dots(sum, kept, near + me, vector, GATES * DEPTH);
        #pragma unroll
        for (int r = 0; r < ROWS; r++) if (me < wide) parts[r * wide + me] = sum[r];
        __syncthreads();
        for (int e = me; e < some * h; e += BLOCK) {
            const int r = ROWS == 1 ? 0 : e / h, k = e - r * h;
            T total = 0;
            #pragma unroll
            for (int j = 0; j < GATES; j++) total += parts[r * wide + j * h + k];
            carried[e] = IS_GRU ? carried[e] + total : total;
        }
    }
    for (int e = me; e < ROWS * h; e += BLOCK) {
        if (first + e / h >= samples) break;
        dh0_[first * h + e] = carried[e];
        if (IS_LSTM) dc0_[first * h + e] = cells[e];
    }
}
"""
)

_FORWARD_STEP = """
extern "C" __global__ void __launch_bounds__(BLOCK)
NAME(T *out_, T *cell_, T *keep_, const T *gates_, const T *sums_, const T *bias_, const T *before_, const T *start_, long long some,
     long long kept, long long hidden) {
    const long long e = (long long)blockIdx.x * BLOCK + threadIdx.x, row = e / hidden;
    const int h = (int)hidden, wide = GATES * h, k = (int)(e - row * h);
    if (row >= some) return;
    const T *const x = gates_ + row * wide, *const s = (row < kept ? before_ : start_) + row * h;
    const Plus a = {sums_ + row * wide, bias_};
    T *const out = out_ + row * h, *const cell = cell_ + row * h;
    KEEP_TYPE keep = KEEP_ROW;
    { FORMULA }
}
"""

_BACKWARD_STEP = """
extern "C" __global__ void __launch_bounds__(BLOCK)
NAME(T *dx_, T *da_, T *dh_, T *dc_, const T *g_, const T *gc_, const T *keep_, const T *state_, const T *before_, const T *start_,
     long long some, long long kept, long long hidden) {
    const long long e = (long long)blockIdx.x * BLOCK + threadIdx.x, row = e / hidden;
    const int h = (int)hidden, wide = GATES * h, k = (int)(e - row * h);
    if (row >= some) return;
    const Maybe g = {g_ ? g_ + row * h : g_}, gc = {gc_ ? gc_ + row * h : gc_};
    const T *const keep = keep_ + row * 4 * h, *const y = state_ + row * h, *const s = (row < kept ? before_ : start_) + row * h;
    T *const dx = dx_ + row * wide, *const da = da_ + row * wide, *const dh = dh_ + row * h, *const dc = dc_ + row * h;
    { FORMULA }
}
"""
