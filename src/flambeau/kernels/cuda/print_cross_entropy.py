"""The kernels behind cross entropy and nll_loss as CUDA C++: what the loops of ops/cross_entropy.py are for the CPU.

    losses     of logits: log(sum(exp(x))) - x[target] of every row
    nll        of logarithms: -x[target] of every row
    fold       the sum or mean of what these found, where one block did not find it all
    gradients  scale / total * (softmax(x) - one at the target), or only the latter

x is (outer, classes, inner); row r is the line of classes at (r / inner, r % inner). The room (rows + 1, 3) is that of the CPU, but for the last row: how
many rows count, and the sum of their weights. For nll the maximum and the sum are missing.

A row is read once: every thread carries the maximum so far and the sum of exp(x - maximum), which is scaled when a larger one comes. While
the maximum is -infinity, 0 stands for it, so that exp gives 0 and a NaN is not lost.
"""

from __future__ import annotations

from flambeau.kernels.indexing.index_errors import CLASS
from flambeau.kernels.language.print_cuda import NOTE, PREAMBLE, THREADS, TYPES, CudaPrinter


def print_classes(name: str, what: str, dtype: str, lanes: int = 1, pack: int = 1, wide: bool = False) -> str:
    """The CUDA C++ of one kernel.

    lanes   threads that share a row of `losses`: 1, 32 or all of a block
    pack    neighbouring elements read or written at once
    wide    whether `gradients` counts elements in 64 bits
    """
    p = CudaPrinter(dtype)
    head = PREAMBLE + NOTE + f"typedef {p.storage} S; typedef {p.compute} T;\n" + _ROWS
    head = head.replace("@read", p.read("T", "v")).replace("@stored", p.stored(dtype, "v", "T"))
    text = head + {"losses": _TOGETHER + _LOSSES, "nll": _NLL, "fold": _FOLD, "gradients": _GRADIENTS}[what]
    exp, log = (f"{f}{'f' if p.compute == 'float' else ''}" for f in ("exp", "log"))
    index = TYPES["uint64" if wide else "uint32"][1]
    for key, value in {
        "@name": name, "@threads": THREADS, "@lanes": lanes, "@pack": pack, "@exp": exp, "@log": log, "@index": index, "@class": CLASS,
    }.items():  # fmt: skip
        text = text.replace(key, str(value))
    return text


_ROWS = """
__device__ inline T read(S v) { return @read; }
__device__ inline S stored(T v) { return @stored; }

/* The sum or mean (how = 2) of the losses of all rows, by one block, in an order that depends on their number alone. */
__device__ inline void fold(S *result, T *room, const S *weight, const int64_t *target, long long rows, long long ignore, long long classes,
                            long long how) {
    __shared__ double losses[@threads], shares[@threads], counts[@threads];
    double loss = 0, share = 0, count = 0;
    for (long long r = threadIdx.x; r < rows; r += @threads) {
        const int64_t at = target[r];
        if (at == ignore) continue;
        const T w = weight && at >= 0 && at < classes ? read(weight[at]) : (T)1;
        loss += room[3 * r] * w, share += w, count += 1;
    }
    losses[threadIdx.x] = loss, shares[threadIdx.x] = share, counts[threadIdx.x] = count;
    for (int half = @threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            losses[threadIdx.x] += losses[threadIdx.x + half];
            shares[threadIdx.x] += shares[threadIdx.x + half];
            counts[threadIdx.x] += counts[threadIdx.x + half];
        }
    }
    if (threadIdx.x) return;
    room[3 * rows] = (T)counts[0], room[3 * rows + 1] = (T)shares[0];
    if (result) *result = stored((T)(how == 2 ? losses[0] / shares[0] : losses[0]));
}
"""

# What the lanes of a row hold, for each of them. All threads of a block come here together.
_TOGETHER = """
template <class Join> __device__ inline double together(double mine, Join join) {
    if constexpr (@lanes > 1) for (int m = 16; m > 0; m /= 2) mine = join(mine, __shfl_xor_sync(0xffffffffu, mine, m));
    if constexpr (@lanes > 32) {
        __shared__ double warps[@threads / 32];
        __syncthreads();
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
        __syncthreads();
        mine = warps[0];
        for (int w = 1; w < @threads / 32; w++) mine = join(mine, warps[w]);
    }
    return mine;
}
"""

_LOSSES = """
extern "C" __global__ void __launch_bounds__(@threads)
@name(S *result, S *each, T *room, const S *x, const int64_t *target, const S *weight, int64_t *note, long long rows, long long classes,
      long long inner, long long ignore, double smoothing, long long how) {
    const int lane = threadIdx.x % @lanes, mine = threadIdx.x / @lanes;
    for (long long first = (long long)blockIdx.x * (@threads / @lanes); first < rows; first += (long long)gridDim.x * (@threads / @lanes)) {
        const long long row = first + mine, width = row < rows ? classes : 0, outer = inner == 1 ? row : row / inner;
        const S *const line = x + outer * classes * inner + (row - outer * inner);
        T high = -INFINITY;
        double sum = 0, plain = 0;
        for (long long c = (long long)lane * @pack; c < width; c += @lanes * @pack) {
            Pack<S, @pack> some;
            if (@pack == 1) some.item[0] = line[c * inner];
            else some = *(const Pack<S, @pack> *)(line + c);
            T value[@pack], now = high;
            for (int k = 0; k < @pack; k++) value[k] = read(some.item[k]), now = value[k] > now ? value[k] : now;
            const T base = now == -INFINITY ? (T)0 : now;
            if (now != high) sum *= @exp(high - base);
            for (int k = 0; k < @pack; k++) sum += @exp(value[k] - base);
            if (smoothing != 0) for (int k = 0; k < @pack; k++) plain += value[k];
            high = now;
        }
        const T peak = (T)together((double)high, [](double a, double b) { return b > a ? b : a; });
        const T base = peak == -INFINITY ? (T)0 : peak;
        sum = together(high == base ? sum : sum * @exp(high - base), [](double a, double b) { return a + b; });
        if (smoothing != 0) plain = together(plain, [](double a, double b) { return a + b; });
        if (lane == 0 && row < rows) {
            const T total = peak == -INFINITY ? (T)NAN : (T)sum; /* as peak - peak is */
            const int64_t at = target[row];
            T loss = 0, share = 1;
            if (at != ignore) {
                if (at < 0 || at >= classes) loss = (T)NAN, fl_note(note, @class, at, classes, row, ignore);
                else {
                    const T behind = peak - read(line[at * inner]), grown = @log(total);
                    loss = smoothing == 0 ? grown + behind
                                          : grown + (1 - (T)smoothing) * behind + (T)smoothing * (T)((double)peak - plain / (double)classes);
                    if (weight) share = read(weight[at]);
                }
            }
            room[3 * row] = loss, room[3 * row + 1] = peak, room[3 * row + 2] = total;
            if (each) each[row] = stored(loss * share);
        }
    }
    if (gridDim.x > 1) return;
    __syncthreads();
    fold(result, room, weight, target, rows, ignore, classes, how);
}
"""

_NLL = """
extern "C" __global__ void __launch_bounds__(@threads)
@name(S *result, S *each, T *room, const S *x, const int64_t *target, const S *weight, int64_t *note, long long rows, long long classes,
      long long inner, long long outer_step, long long step, long long ignore, long long how) {
    for (long long row = (long long)blockIdx.x * @threads + threadIdx.x; row < rows; row += (long long)gridDim.x * @threads) {
        const long long outer = inner == 1 ? row : row / inner;
        const int64_t at = target[row];
        T loss = 0, share = 1;
        if (at != ignore) {
            if (at < 0 || at >= classes) loss = (T)NAN, fl_note(note, @class, at, classes, row, ignore);
            else {
                loss = -read(x[outer * outer_step + at * step + (row - outer * inner)]);
                if (weight) share = read(weight[at]);
            }
        }
        room[3 * row] = loss;
        if (each) each[row] = stored(loss * share);
    }
    if (gridDim.x > 1) return;
    __syncthreads();
    fold(result, room, weight, target, rows, ignore, classes, how);
}
"""

_FOLD = """
extern "C" __global__ void __launch_bounds__(@threads)
@name(S *result, T *room, const S *weight, const int64_t *target, long long rows, long long classes, long long ignore, long long how) {
    fold(result, room, weight, target, rows, ignore, classes, how);
}
"""

# A thread computes a pack of one row; without the logits, only what the target asks for.
_GRADIENTS = """
extern "C" __global__ void __launch_bounds__(@threads)
@name(S *out, const S *x, const int64_t *target, const T *room, const S *weight, const S *scale, const T *total, long long scale_step,
      long long n, long long classes_given, long long inner_given, long long ignore, double smoothing) {
    const long long me = ((long long)blockIdx.x * @threads + threadIdx.x) * @pack;
    if (me >= n) return;
    const @index classes = (@index)classes_given, inner = (@index)inner_given;
    const @index line = inner == 1 ? (@index)me : (@index)me / inner, outer = line / classes;
    const long long c = line - outer * classes, row = (long long)outer * inner + ((@index)me - line * inner);
    const int64_t at = target[row];
    Pack<S, @pack> some, found;
    if (x) some = *(const Pack<S, @pack> *)(x + me);
    T share = 0, peak = 0, sum = 1;
    if (at != ignore) {
        share = read(scale[row * scale_step]);
        if (weight && at >= 0 && at < classes_given) share *= read(weight[at]);
        if (total) share /= *total;
        if (x) peak = room[3 * row + 1], sum = room[3 * row + 2];
    }
    for (int k = 0; k < @pack; k++) {
        const T part = x ? @exp(read(some.item[k]) - peak) / sum - (T)smoothing / (T)classes_given : (T)0;
        const T value = (c + k == at ? part - (1 - (T)smoothing) : part) * share;
        found.item[k] = stored(at == ignore || (!x && c + k != at) ? (T)0 : value);
    }
    *(Pack<S, @pack> *)(out + me) = found;
}
"""
