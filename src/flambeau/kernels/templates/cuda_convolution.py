"""Convolution as CUDA C++: images, volumes and sequences of any strides, groups, padding and dilation.

All three relatives (see `convolution.py`) are products of matrices, one of which is read from the image where it lies; a table says for each
number of the kernel where that is. Sums are added up in an order that depends on shapes alone.

    product    y (channels, samples x places) = w (channels, K) times patches (K, samples x places), in tiles; `adjoint`: likewise from y to x
    plain      the same, an element to a thread: for a few channels in many groups
    weight     w's gradient (channels, K) = y (channels, samples x places) times patches turned, in tiles, each of a part of the places
    sums       the same, a number of w's gradient to a block
    columns    the patches themselves, and `gathered`, what patches add to each number of x: large products are left to cuBLASLt
"""

from __future__ import annotations

from typing import NamedTuple

from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, TYPES, CudaPrinter

DEPTH, WIDE = 16, 64  # of a tile of patches
FIELDS = """N G O C D H W OD OH OW KD KH KW sd sh sw pd ph pw dd dh dw xn xc xd xh xw yn yc yd yh yw wo wc wd wh ww""".split()


class Conv(NamedTuple):
    """One kernel. rows: channels of a tile; adjoint: from y to x; unit: whether an adjoint's strides are all 1."""

    form: str
    dtype: str
    adjoint: bool = False
    unit: bool = False
    rows: int = 64

    @property
    def function(self) -> str:
        return f"fl_conv_{self.form}{'_adjoint' if self.adjoint else ''}_{TYPES[self.dtype][0]}"


def print_conv(k: Conv) -> str:
    """The CUDA C++ of one kernel."""
    p = CudaPrinter(k.dtype)
    text = _LAYOUT + (_ADJOINT if k.adjoint or k.form == "gathered" else _CONVOLVE) + _FORMS[k.form]
    names = {
        "NAME": k.function, "STORED": p.storage, "COMPUTED": p.compute, "IS_ADJOINT": int(k.adjoint), "IS_UNIT": int(k.unit), "ROWS": k.rows,
        "THREADS": THREADS, "FIELDS": ", ".join(FIELDS), "WIDE": WIDE, "DEPTH": DEPTH, "READ": p.read("T", "*at"),
        "WRITE": p.stored(k.dtype, "value", "T"),
    }  # fmt: skip
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, str(names[name]))
    return PREAMBLE + text


# O and C are channels of a group; x, y and w with a letter are steps, in elements.
_LAYOUT = """
typedef STORED T;
typedef COMPUTED Real;
struct Layout { int FIELDS; };
/* A number of the kernel: where it is in w, how far from a patch's beginning it is in memory, and in each direction. */
struct alignas(32) Entry { int weight, source, z, y, x, unused[3]; };
/* A place: where its channels begin in memory, where its patch does, and in each direction. */
struct Spot { int to, base, z, y, x; };
__device__ inline Real read(const T *at) { return READ; }
__device__ inline void write(T *at, Real value) { *at = WRITE; }
"""

_CONVOLVE = """
__device__ inline int spots(const Layout &g) { return g.OD * g.OH * g.OW; }
__device__ inline Spot spot(const Layout &g, int n, int group) {
    const int rows = n / g.OW, x = n - rows * g.OW, planes = rows / g.OH, y = rows - planes * g.OH, sample = planes / g.OD, z = planes - sample * g.OD;
    Spot s = {sample * g.yn + group * g.O * g.yc + z * g.yd + y * g.yh + x * g.yw, 0, z * g.sd - g.pd, y * g.sh - g.ph, x * g.sw - g.pw};
    s.base = sample * g.xn + group * g.C * g.xc + s.z * g.xd + s.y * g.xh + s.x * g.xw;
    return s;
}
__device__ inline Real patch(const Layout &g, const T *from, const Spot &s, const Entry &e) {
    const bool is = (unsigned)(s.z + e.z) < (unsigned)g.D && (unsigned)(s.y + e.y) < (unsigned)g.H && (unsigned)(s.x + e.x) < (unsigned)g.W;
    return is ? read(from + s.base + e.source) : (Real)0;
}
"""

_ADJOINT = """
__device__ inline int spots(const Layout &g) { return g.D * g.H * g.W; }
__device__ inline Spot spot(const Layout &g, int n, int group) {
    const int rows = n / g.W, x = n - rows * g.W, planes = rows / g.H, y = rows - planes * g.H, sample = planes / g.D, z = planes - sample * g.D;
    return Spot{sample * g.xn + group * g.C * g.xc + z * g.xd + y * g.xh + x * g.xw, sample * g.yn + group * g.O * g.yc, z + g.pd, y + g.ph, x + g.pw};
}
/* The place in y that number e of the kernel joins with a place of x, if there is one: a multiple of the stride. */
__device__ inline bool meets(const Layout &g, const Spot &s, const Entry &e, int &a, int &b, int &c) {
    const int z = s.z - e.z, y = s.y - e.y, x = s.x - e.x;
    a = IS_UNIT ? z : z / g.sd, b = IS_UNIT ? y : y / g.sh, c = IS_UNIT ? x : x / g.sw;
    const bool whole = IS_UNIT || (a * g.sd == z && b * g.sh == y && c * g.sw == x);
    return (z | y | x) >= 0 && whole && a < g.OD && b < g.OH && c < g.OW;
}
__device__ inline Real patch(const Layout &g, const T *from, const Spot &s, const Entry &e) {
    int a, b, c;
    return meets(g, s, e, a, b, c) ? read(from + s.base + e.source + a * g.yd + b * g.yh + c * g.yw) : (Real)0;
}
"""

# The threads are 16 x 16, each of which adds up ROWS / 16 x 4 numbers; the next tiles are on their way while these are multiplied.
_TILES = """
    constexpr int PER = ROWS / 16;
    alignas(32) __shared__ Real A[DEPTH][ROWS + 4];
    alignas(32) __shared__ Real B[DEPTH][WIDE];
    const int me = threadIdx.x, down = me / 16 * PER, across = me % 16 * 4;
    Real a[PER], b[4], sum[PER][4] = {};
"""
_MULTIPLY = """
        #pragma unroll
        for (int k = 0; k < DEPTH; k++) {
            const Pack<Real, PER> l = *(const Pack<Real, PER> *)(A[k] + down);
            const Pack<Real, 4> r = *(const Pack<Real, 4> *)(B[k] + across);
            #pragma unroll
            for (int i = 0; i < PER; i++) {
                #pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] += l.item[i] * r.item[j];
            }
        }
        __syncthreads();
"""

_PRODUCT = (
    """
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(T *out, const T *from, const T *weight, const T *bias, const Entry *table, const __grid_constant__ Layout g) {"""
    + _TILES
    + """
    const int taps = g.KD * g.KH * g.KW, M = IS_ADJOINT ? g.C : g.O, K = (IS_ADJOINT ? g.O : g.C) * taps, count = g.N * spots(g);
    const int tiles = (M + ROWS - 1) / ROWS, group = blockIdx.y / tiles, top = (blockIdx.y - group * tiles) * ROWS, left = blockIdx.x * WIDE;
    const int column = left + me % WIDE, step = IS_ADJOINT ? g.wc : g.wo, out_step = IS_ADJOINT ? g.xc : g.yc;
    const Spot mine = spot(g, column < count ? column : 0, group);
    const T *const w = weight + (long long)group * g.O * g.wo;
    auto fetch = [&](int first) {
        const int k = first + me % DEPTH, at = k < K ? table[k].weight : 0;
        #pragma unroll
        for (int i = 0; i < PER; i++) {
            const int m = top + me / DEPTH + 16 * i;
            a[i] = k < K && m < M ? read(w + m * step + at) : (Real)0;
        }
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const int k = first + me / WIDE + 4 * i;
            b[i] = k < K && column < count ? patch(g, from, mine, table[k]) : (Real)0;
        }
    };
    fetch(0);
    for (int first = 0; first < K; first += DEPTH) {
        #pragma unroll
        for (int i = 0; i < PER; i++) A[me % DEPTH][me / DEPTH + 16 * i] = a[i];
        #pragma unroll
        for (int i = 0; i < 4; i++) B[me / WIDE + 4 * i][me % WIDE] = b[i];
        __syncthreads();
        if (first + DEPTH < K) fetch(first + DEPTH);"""
    + _MULTIPLY
    + """    }
    #pragma unroll
    for (int j = 0; j < 4; j++) {
        const int n = left + across + j;
        if (n >= count) break;
        T *const to = out + spot(g, n, group).to;
        #pragma unroll
        for (int i = 0; i < PER; i++) {
            const int m = top + down + i;
            if (m < M) write(to + (long long)m * out_step, sum[i][j] + (bias ? read(bias + group * M + m) : (Real)0));
        }
    }
}
"""
)

_PLAIN = """
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(T *out, const T *from, const T *weight, const T *bias, const Entry *table, const __grid_constant__ Layout g) {
    const int taps = g.KD * g.KH * g.KW, M = IS_ADJOINT ? g.C : g.O, K = (IS_ADJOINT ? g.O : g.C) * taps, count = g.N * spots(g);
    const int n = blockIdx.x * THREADS + threadIdx.x, channel = blockIdx.y, group = channel / M, m = channel - group * M;
    if (n >= count) return;
    const Spot mine = spot(g, n, group);
    const T *const w = weight + (long long)group * g.O * g.wo + (long long)m * (IS_ADJOINT ? g.wc : g.wo);
    Real sum = bias ? read(bias + channel) : (Real)0;
    for (int k = 0; k < K; k++) {
        const Entry e = table[k];
        sum += read(w + e.weight) * patch(g, from, mine, e);
    }
    write(out + mine.to + (long long)m * (IS_ADJOINT ? g.xc : g.yc), sum);
}
"""

# parts: (splits, channels, K), of which each has the sums over `chunk` places.
_WEIGHT = (
    """
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(Real *parts, const T *x, const T *y, const Entry *table, long long chunk, long long splits, const __grid_constant__ Layout g) {"""
    + _TILES
    + """
    const int taps = g.KD * g.KH * g.KW, K = g.C * taps, count = g.N * spots(g), tiles = (g.O + ROWS - 1) / ROWS;
    const int split = blockIdx.y % (int)splits, which = blockIdx.y / (int)splits, group = which / tiles, top = (which - group * tiles) * ROWS;
    const int left = blockIdx.x * WIDE, begin = split * (int)chunk, end = begin + (int)chunk < count ? begin + (int)chunk : count;
    Entry mine[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const int k = left + me / DEPTH + 16 * i;
        mine[i] = table[k < K ? k : 0];
    }
    auto fetch = [&](int first) {
        const int n = first + me % DEPTH;
        const bool is = n < end;
        const Spot s = spot(g, is ? n : 0, group);
        #pragma unroll
        for (int i = 0; i < PER; i++) {
            const int m = top + me / DEPTH + 16 * i;
            a[i] = is && m < g.O ? read(y + s.to + (long long)m * g.yc) : (Real)0;
        }
        #pragma unroll
        for (int i = 0; i < 4; i++) b[i] = is && left + me / DEPTH + 16 * i < K ? patch(g, x, s, mine[i]) : (Real)0;
    };
    fetch(begin);
    for (int first = begin; first < end; first += DEPTH) {
        #pragma unroll
        for (int i = 0; i < PER; i++) A[me % DEPTH][me / DEPTH + 16 * i] = a[i];
        #pragma unroll
        for (int i = 0; i < 4; i++) B[me % DEPTH][me / DEPTH + 16 * i] = b[i];
        __syncthreads();
        if (first + DEPTH < end) fetch(first + DEPTH);"""
    + _MULTIPLY
    + """    }
    #pragma unroll
    for (int i = 0; i < PER; i++) {
        const int m = top + down + i;
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            const int k = left + across + j;
            if (m < g.O && k < K) parts[((long long)split * g.G * g.O + group * g.O + m) * K + k] = sum[i][j];
        }
    }
}
"""
)

_SUMS = """
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(T *out, const T *x, const T *y, const Entry *table, const __grid_constant__ Layout g) {
    __shared__ Real shared[THREADS];
    const int K = g.C * g.KD * g.KH * g.KW, count = g.N * spots(g), channel = blockIdx.x / K, k = blockIdx.x - channel * K;
    const int group = channel / g.O, m = channel - group * g.O;
    const Entry e = table[k];
    Real sum = 0;
    for (int n = threadIdx.x; n < count; n += THREADS) {
        const Spot s = spot(g, n, group);
        sum += read(y + s.to + (long long)m * g.yc) * patch(g, x, s, e);
    }
    shared[threadIdx.x] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    }
    if (threadIdx.x == 0) write(out + blockIdx.x, shared[0]);
}
"""

# (G, K, samples x places)
_COLUMNS = """
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(T *out, const T *x, const Entry *table, const __grid_constant__ Layout g) {
    const int K = g.C * g.KD * g.KH * g.KW, count = g.N * spots(g), n = blockIdx.x * THREADS + threadIdx.x, group = blockIdx.y / K;
    if (n >= count) return;
    const Spot s = spot(g, n, group);
    write(out + (long long)blockIdx.y * count + n, patch(g, x, s, table[blockIdx.y - group * K]));
}
"""

_GATHERED = """
extern "C" __global__ void __launch_bounds__(THREADS)
NAME(T *out, const T *columns, const T *bias, const Entry *table, const __grid_constant__ Layout g) {
    const int taps = g.KD * g.KH * g.KW, places = g.OD * g.OH * g.OW, channel = blockIdx.y, group = channel / g.C, m = channel - group * g.C;
    const int n = blockIdx.x * THREADS + threadIdx.x, sample = n / spots(g);
    if (sample >= g.N) return;
    const Spot s = spot(g, n, group);
    Real sum = bias ? read(bias + channel) : (Real)0;
    for (int k = 0; k < taps; k++) {
        int a, b, c;
        if (meets(g, s, table[k], a, b, c))
            sum += read(columns + ((long long)channel * taps + k) * g.N * places + sample * places + (a * g.OH + b) * g.OW + c);
    }
    write(out + s.to + (long long)m * g.xc, sum);
}
"""

_FORMS = {"product": _PRODUCT, "plain": _PLAIN, "weight": _WEIGHT, "sums": _SUMS, "columns": _COLUMNS, "gathered": _GATHERED}
