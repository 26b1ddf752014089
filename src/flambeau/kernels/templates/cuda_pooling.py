"""Pooling as CUDA C++: a thread for every number of the result, forward and backward.

    max       the greatest number of a window, and where it was in the flattened plane
    average   of a window
    spread    backward of max: a place adds up what the windows that may contain it found there, and only there
    share     backward of average: a place adds up its share of all windows that contain it

The large side is (N, C, D, H, W), the small one has a number for every window; in one or two dimensions the first of D, H, W are 1. What is
written is dense, and threads follow its memory: the channels are innermost where they come last. What is read may have any strides.
Nothing is added up by two threads, so results are the same in every run.
"""

from __future__ import annotations

from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, CudaPrinter

# The numbers of one geometry, in the order of the struct; three are for D, H, W, five for N, C, D, H, W.
FIELDS = {
    "large": 3,
    "small": 3,
    "kernel": 3,
    "stride": 3,
    "padding": 3,
    "dilation": 3,
    "x": 5,
    "at": 5,
    "channels": 1,
    "divisor": 1,
    "padded": 1,
}


def print_pool(name: str, what: str, dtype: str, adaptive: bool, last: bool, wide: bool) -> str:
    """The CUDA C++ of one kernel.

    adaptive   windows from i size / count to (i + 1) size / count, rounded outward, instead of evenly sliding ones
    last       whether the result's channels come last        wide   whether the elements of the result take 64 bits to count
    """
    p = CudaPrinter(dtype)
    fields = "".join(f" long long {f}{f'[{n}]' if n > 1 else ''};" for f, n in FIELDS.items())
    text = PREAMBLE + f"typedef {p.storage} S; typedef {p.compute} T;\nstruct Pool {{{fields} }};\n" + _WINDOW
    text += _KERNEL.replace("@body", {"max": _MAX, "average": _AVERAGE, "spread": _SPREAD, "share": _SHARE}[what])
    forward = what in ("max", "average")
    for key, value in {
        "@side": "small" if forward else "large", "@first": _CHANNEL if last else "", "@then": "" if last else _CHANNEL, "@name": name,
        "@threads": THREADS, "@index": "uint64_t" if wide else "uint32_t", "@adaptive": int(adaptive),
        "@read": p.read("T", "v"), "@stored": p.stored(dtype, "v", "T"),
    }.items():  # fmt: skip
        text = text.replace(key, str(value))
    return text


_CHANNEL = "const long long c = me % (@index)g.channels; me /= (@index)g.channels;"

_WINDOW = """
__device__ inline T read(S v) { return @read; }
__device__ inline S stored(T v) { return @stored; }

/* The numbers of window o along dimension i that are inside: from `from` to before `to`, in steps of `step`. */
struct Range { int from, to, step; };
__device__ inline Range window(const Pool &g, int i, long long o) {
    const long long size = g.large[i], count = g.small[i];
    if (@adaptive) return Range{(int)(o * size / count), (int)(((o + 1) * size + count - 1) / count), 1};
    const int step = (int)g.dilation[i];
    int from = (int)(o * g.stride[i] - g.padding[i]), to = from + (int)(g.kernel[i] - 1) * step + 1;
    if (from < 0) from += (-from + step - 1) / step * step;
    return Range{from, to < (int)size ? to : (int)size, step};
}
/* How many numbers of a window count along dimension i: those inside, and in the padding if that counts, but none beyond it. */
__device__ inline int counted(const Pool &g, int i, long long o) {
    if (!@adaptive && g.padded) {
        const long long from = o * g.stride[i] - g.padding[i], to = from + g.kernel[i], end = g.large[i] + g.padding[i];
        return (int)((to < end ? to : end) - from);
    }
    const Range r = window(g, i, o);
    return r.to - r.from;
}
/* The windows that may contain place `at` of dimension i. */
__device__ inline Range windows(const Pool &g, int i, long long at) {
    const long long size = g.large[i], count = g.small[i];
    if (@adaptive) return Range{(int)(at * count / size), (int)(((at + 1) * count + size - 1) / size), 1};
    const long long first = at + g.padding[i] - (g.kernel[i] - 1) * g.dilation[i], last = (at + g.padding[i]) / g.stride[i] + 1;
    return Range{(int)(first > 0 ? (first + g.stride[i] - 1) / g.stride[i] : 0), (int)(last < count ? last : count), 1};
}
"""

_KERNEL = """
extern "C" __global__ void __launch_bounds__(@threads)
@name(S *out, int64_t *places, const S *x, const int64_t *at, long long n, const __grid_constant__ Pool g) {
    const long long self = (long long)blockIdx.x * @threads + threadIdx.x;
    if (self >= n) return;
    @index me = (@index)self;
    @first
    const long long w = me % (@index)g.@side[2]; me /= (@index)g.@side[2];
    const long long h = me % (@index)g.@side[1]; me /= (@index)g.@side[1];
    const long long d = me % (@index)g.@side[0]; me /= (@index)g.@side[0];
    @then
    x += (long long)me * g.x[0] + c * g.x[1];
@body}
"""

# Of equal numbers the first counts, and NaN is greater than all.
_MAX = """    const Range rd = window(g, 0, d), rh = window(g, 1, h), rw = window(g, 2, w);
    T best = 0;
    long long place = -1;
    for (int i = rd.from; i < rd.to; i += rd.step)
        for (int j = rh.from; j < rh.to; j += rh.step)
            for (int k = rw.from; k < rw.to; k += rw.step) {
                const T v = read(x[i * g.x[2] + j * g.x[3] + k * g.x[4]]);
                if (v > best || v != v || place < 0) best = v, place = ((long long)i * g.large[1] + j) * g.large[2] + k;
            }
    out[self] = stored(best);
    places[self] = place;
"""

_AVERAGE = """    const Range rd = window(g, 0, d), rh = window(g, 1, h), rw = window(g, 2, w);
    T sum = 0;
    for (int i = rd.from; i < rd.to; i++)
        for (int j = rh.from; j < rh.to; j++)
            for (int k = rw.from; k < rw.to; k++) sum += read(x[i * g.x[2] + j * g.x[3] + k * g.x[4]]);
    const long long count = g.divisor ? g.divisor : (long long)counted(g, 0, d) * counted(g, 1, h) * counted(g, 2, w);
    out[self] = stored((T)(sum / (T)count));
"""

_SPREAD = """    at += (long long)me * g.at[0] + c * g.at[1];
    const Range rd = windows(g, 0, d), rh = windows(g, 1, h), rw = windows(g, 2, w);
    const long long here = (d * g.large[1] + h) * g.large[2] + w;
    T sum = 0;
    for (int i = rd.from; i < rd.to; i++)
        for (int j = rh.from; j < rh.to; j++)
            for (int k = rw.from; k < rw.to; k++)
                if (at[i * g.at[2] + j * g.at[3] + k * g.at[4]] == here) sum += read(x[i * g.x[2] + j * g.x[3] + k * g.x[4]]);
    out[self] = stored(sum);
"""

_SHARE = """    const Range rd = windows(g, 0, d), rh = windows(g, 1, h), rw = windows(g, 2, w);
    T sum = 0;
    for (int i = rd.from; i < rd.to; i++)
        for (int j = rh.from; j < rh.to; j++)
            for (int k = rw.from; k < rw.to; k++) {
                const long long count = g.divisor ? g.divisor : (long long)counted(g, 0, i) * counted(g, 1, j) * counted(g, 2, k);
                sum += (T)(read(x[i * g.x[2] + j * g.x[3] + k * g.x[4]]) / (T)count);
            }
    out[self] = stored(sum);
"""
