"""Random numbers as CUDA C++: Philox, a generator without memory, and what its words become. `cuda/random.py` tells the why, and launches."""

from __future__ import annotations

from flambeau.kernels.language import print_cuda
from flambeau.kernels.language.print_cuda import THREADS

# What one random value becomes: "unit" lies in (0, 1], "normal" is Gaussian; T is the type of the computation, a and b are parameters.
FORMULAS = {
    "uniform": ("unit", "x * (b - a) + a"),
    "normal": ("normal", "x * b + a"),
    "log_normal": ("normal", "exp(x * b + a)"),
    "exponential": ("unit", "-(x == 1 ? -TINY : log(x)) / a"),  # never 0, so that it can be divided by
    "cauchy": ("unit", "a + b * tan((T)3.141592653589793 * (x - (T)0.5))"),
    "geometric": ("unit", "ceil(log(x) / a)"),
    "bernoulli": ("unit", "x <= a"),
}
INTEGERS = "(int64_t)((b ? x % b : x) + a)"  # of a word: low + word % span; a span of 0 stands for all words


def per_turn(source: str, compute: str) -> int:
    """How many values the four words of one encryption give."""
    return 4 if source == "word32" or compute == "float32" else 2


def print_random(name: str, source: str, formula: str, compute: str, out: str, wraps: bool) -> str:
    """The CUDA C++ that fills memory with one distribution.

    wraps   whether the upper end, b, belongs to the lower one, a: the words give (0, 1], a uniform number lies in [a, b)
    """
    printer = print_cuda.printer(compute)
    words = source.startswith("word")
    values = source if words else f"{source}_{printer.compute}"
    count = per_turn(source, compute)
    kind, number = ("uint64_t", "uint64_t") if words else (printer.compute, "double")
    stored = printer.stored(out, "value", "T")
    end = f"if (result == {printer.stored(out, 'b', 'T')}) result = {printer.stored(out, 'a', 'T')};" if wraps else ""
    storage = print_cuda.TYPES[out][1]
    return (
        print_cuda.PREAMBLE
        + PHILOX
        + f"""
extern "C" __global__ void __launch_bounds__({THREADS})
{name}({storage} *out, long long n, {STAND}, {number} a_given, {number} b_given) {{
    typedef {kind} T;
    const T a = (T)a_given, b = (T)b_given, TINY = (T)(sizeof(T) == 4 ? 5.9604645e-8 : 1.1102230246251565e-16);
    const uint64_t me = (uint64_t)blockIdx.x * {THREADS} + threadIdx.x, width = (uint64_t)gridDim.x * {THREADS};
    {REPLAYED}
    for (uint64_t first = me; first < n; first += {count} * width, counter++) {{
        T drawn[{count}];
        {values}(philox(counter, me, seed), drawn);
        for (int i = 0; i < {count}; i++) {{
            const uint64_t here = first + i * width;
            if (here >= n) break;
            const T x = drawn[i];
            const auto value = {formula};
            {storage} result = {stored};
            {end}
            out[here] = result;
        }}
    }}
}}
"""
    )


def print_dropout(name: str, compute: str, dtype: str) -> str:
    """The CUDA C++ that draws, masks and scales."""
    wide, p, count = print_cuda.printer(compute), print_cuda.printer(dtype), per_turn("unit", compute)
    return (
        print_cuda.PREAMBLE
        + PHILOX
        + f"""
extern "C" __global__ void __launch_bounds__({THREADS})
{name}({p.storage} *out, uint8_t *kept, const {p.storage} *x, long long n, {STAND},
    double keep_given, double scale_given) {{
    const {wide.compute} keep = ({wide.compute})keep_given;
    const {p.compute} scale = ({p.compute})scale_given;
    const uint64_t me = (uint64_t)blockIdx.x * {THREADS} + threadIdx.x, width = (uint64_t)gridDim.x * {THREADS};
    {REPLAYED}
    for (uint64_t first = me; first < n; first += {count} * width, counter++) {{
        {wide.compute} drawn[{count}];
        unit_{wide.compute}(philox(counter, me, seed), drawn);
        for (int i = 0; i < {count}; i++) {{
            const uint64_t here = first + i * width;
            if (here >= n) break;
            const bool stays = drawn[i] <= keep;
            const {p.compute} value = {p.read("T", "x[here]")} * (stays ? scale : 0);
            out[here] = {p.stored(dtype, "value", "T")};
            kept[here] = stays;
        }}
    }}
}}
"""
    )


# Where a kernel's numbers begin: `replay` has the seed and the offset at which a graph's replay goes on; it is NULL outside of graphs.
STAND = "uint64_t seed, uint64_t counter, const uint64_t *replay"
REPLAYED = "if (replay) seed = replay[0], counter += replay[1] / 4;"

PHILOX = r"""
struct Words { uint32_t x, y, z, w; };

__device__ inline Words philox(uint64_t counter, uint64_t thread, uint64_t key) {
    uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = (uint32_t)thread, d = (uint32_t)(thread >> 32);
    uint32_t k = (uint32_t)key, l = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++, k += 0x9E3779B9u, l += 0xBB67AE85u) {
        const uint64_t p = (uint64_t)0xD2511F53u * a, q = (uint64_t)0xCD9E8D57u * c;
        a = (uint32_t)(q >> 32) ^ b ^ k, b = (uint32_t)q;
        c = (uint32_t)(p >> 32) ^ d ^ l, d = (uint32_t)p;
    }
    return Words{a, b, c, d};
}

/* Words as numbers in (0, 1]: the middle of one of 2^32 (2^53) equal parts. */
__device__ inline float unit(uint32_t x) { return x * 2.3283064e-10f + 2.3283064e-10f / 2; }
__device__ inline double unit(uint32_t x, uint32_t y) {
    return ((uint64_t)x ^ ((uint64_t)y << 21)) * 1.1102230246251565e-16 + 1.1102230246251565e-16 / 2;
}
__device__ inline void unit_float(Words r, float *out) { out[0] = unit(r.x), out[1] = unit(r.y), out[2] = unit(r.z), out[3] = unit(r.w); }
__device__ inline void unit_double(Words r, double *out) { out[0] = unit(r.x, r.y), out[1] = unit(r.z, r.w); }

/* Box and Muller: two uniform numbers become two normal ones, sqrt(-2 log u) sin(2 pi v) and the same with cos. */
__device__ inline void box_muller(uint32_t x, uint32_t y, float *out) {
    const float turn = 2.3283064e-10f * 6.2831855f, v = y * turn + turn / 2, size = sqrtf(-2 * logf(unit(x)));
    out[0] = __sinf(v) * size, out[1] = __cosf(v) * size;
}
__device__ inline void normal_float(Words r, float *out) { box_muller(r.x, r.y, out), box_muller(r.z, r.w, out + 2); }
__device__ inline void normal_double(Words r, double *out) {
    const double size = sqrt(-2 * log(unit(r.x, r.y))), v = 2 * unit(r.z, r.w);
    out[0] = sinpi(v) * size, out[1] = cospi(v) * size;
}

__device__ inline void word32(Words r, uint64_t *out) { out[0] = r.x, out[1] = r.y, out[2] = r.z, out[3] = r.w; }
__device__ inline void word64(Words r, uint64_t *out) { out[0] = (uint64_t)r.x << 32 | r.y, out[1] = (uint64_t)r.z << 32 | r.w; }
"""
