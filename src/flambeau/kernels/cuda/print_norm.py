"""Batch norm and group norm as CUDA C++: the statistics of sets of numbers, and what is done with them.

Element i of a set lies at set * step + i / length * apart + i % length: sets are lines of memory (a channel of all samples, a group of
channels of one), or columns side by side (length 1: features, or images whose channels lie side by side). `lanes` threads share a set.

    whole    a set's statistics, and then its results, in one launch
    part     the statistics of a part of each set                  (for backward: of each channel of each sample, too)
    finish   those of the parts joined by every block that needs them, and results
    given    results with statistics that are no function of x

Statistics are found in double precision, in an order that depends on shapes alone. For float32 they are sums of (x - shift) and its square,
the shift being an element of the set; float64 has no wider type to lean on, and goes by Welford's method. Parts are joined by Chan's.
"""

from __future__ import annotations

from typing import NamedTuple

from flambeau.kernels.language.print_cuda import PREAMBLE, THREADS, TYPES


class Norm(NamedTuple):
    """One kernel. columns: whether neighbouring threads take neighbouring sets, not neighbouring elements of a set."""

    dtype: str
    backward: bool
    stage: str
    lanes: int
    columns: bool

    @property
    def function(self) -> str:
        return f"fl_norm_{'backward_' if self.backward else ''}{self.stage}_{TYPES[self.dtype][0]}"


def print_norm(k: Norm) -> str:
    """The CUDA C++ of one kernel."""
    sets = THREADS // k.lanes
    names = {
        "NAME": k.function, "REAL": TYPES[k.dtype][1], "LANES": k.lanes, "SETS": sets, "THREADS": THREADS, "IS_WIDE": int(k.dtype == "float64"),
        "LANE": f"threadIdx.x / {sets}" if k.columns else f"threadIdx.x % {k.lanes}",
        "MINE": f"threadIdx.x % {sets}" if k.columns else f"threadIdx.x / {k.lanes}",
        "BESIDE": sets if k.columns else 1, "STAGE": {"whole": 0, "part": 1, "finish": 2, "given": 3}[k.stage],
    }  # fmt: skip
    text = _SETS + (_BACKWARD if k.backward else _FORWARD)
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, str(names[name]))
    return PREAMBLE + text


_SETS = """
typedef REAL T;
enum { WHOLE, PART, FINISH, GIVEN };

/* Walks over elements first, first + LANES, ... of a set without dividing. */
struct Walk {
    long long line, place, lines_on, places_on, length, apart;
    __device__ Walk(long long first, long long length, long long apart)
        : line(first / length), place(first % length), lines_on(LANES / length), places_on(LANES % length), length(length), apart(apart) {}
    __device__ long long at() const { return line * apart + place; }
    __device__ void on() {
        line += lines_on, place += places_on;
        if (place >= length) place -= length, line++;
    }
};

/* What the lanes of a set hold, joined, for each of them. All threads of the block take part. */
template <class Acc> __device__ inline Acc all(Acc mine, int lane) {
    __shared__ Acc shared[THREADS];
    shared[threadIdx.x] = mine;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) shared[threadIdx.x] = joined(shared[threadIdx.x], shared[threadIdx.x + half * BESIDE]);
    }
    __syncthreads();
    return shared[threadIdx.x - lane * BESIDE];
}
"""

# weights: how many a set has, if more than one: then line r of set s has number s % groups * weights + r.
_FORWARD = """
struct Moments { double n, mean, squares; };
__device__ inline Moments joined(Moments a, Moments b) {
    if (b.n == 0) return a;
    if (a.n == 0) return b;
    const double n = a.n + b.n, d = b.mean - a.mean;
    return Moments{n, a.mean + d * (b.n / n), a.squares + b.squares + d * d * (a.n * b.n / n)};
}

extern "C" __global__ void __launch_bounds__(THREADS)
NAME(T *y, const T *x, const T *weight, const T *bias, T *mean_, T *rstd_, T *var_, T *running_mean, T *running_var, Moments *parts,
     double eps, double momentum, long long sets, long long count, long long length, long long apart, long long step, long long chunk,
     long long splits, long long weights, long long groups) {
    const int lane = LANE;
    const long long set = (long long)blockIdx.x * SETS + MINE;
    const bool is = set < sets;
    const long long begin = blockIdx.y * chunk, end = is ? (begin + chunk < count ? begin + chunk : count) : 0;
    const T *const from = x + (is ? set * step : 0);
    Moments found = {0, 0, 0};
    if (STAGE == WHOLE || STAGE == PART) {
        if (IS_WIDE) {
            Walk w(begin + lane, length, apart);
            for (long long i = begin + lane; i < end; i += LANES, w.on()) {
                const double v = from[w.at()], d = v - found.mean;
                found.n += 1, found.mean += d / found.n, found.squares += d * (v - found.mean);
            }
        } else {
            double shift = from[0], a = 0, b = 0;
            shift = shift - shift == 0 ? shift : 0; /* one that is not finite would make NaN of infinity */
            Walk w(begin + lane, length, apart);
            #pragma unroll 4
            for (long long i = begin + lane; i < end; i += LANES, w.on()) {
                const double v = from[w.at()] - shift;
                a += v, b += v * v;
            }
            found.n = begin + lane < end ? (double)((end - begin - lane + LANES - 1) / LANES) : 0;
            if (found.n > 0) {
                found.mean = shift + a / found.n, found.squares = b - a * (a / found.n);
                found.squares = found.squares < 0 ? 0 : found.squares; /* NaN stays */
            }
        }
        found = all(found, lane);
        if (STAGE == PART) {
            if (is && lane == 0) parts[set * splits + blockIdx.y] = found;
            return;
        }
    }
    if (STAGE == FINISH) {
        for (long long k = lane; is && k < splits; k += LANES) found = joined(found, parts[set * splits + k]);
        found = all(found, lane);
    }
    if (!is) return;
    const double var = STAGE == GIVEN ? (double)var_[set] : found.squares / found.n, rstd = 1 / sqrt(var + eps);
    const T mean = STAGE == GIVEN ? mean_[set] : (T)found.mean;
    if (STAGE != GIVEN && lane == 0 && blockIdx.y == 0) {
        mean_[set] = mean, rstd_[set] = (T)rstd, var_[set] = (T)var;
        if (running_mean) {
            const T more = (T)(var * (count > 1 ? (double)count / (count - 1) : (double)NAN)), weight = (T)momentum;
            running_mean[set] = running_mean[set] + weight * (mean - running_mean[set]);
            running_var[set] = running_var[set] + weight * (more - running_var[set]);
        }
    }
    T scale = weights ? 0 : (T)(rstd * weight[set]), shift = weights ? 0 : bias[set];
    const long long first = weights ? set % groups * weights : 0;
    T *const to = y + set * step;
    Walk w(begin + lane, length, apart);
    #pragma unroll 4
    for (long long i = begin + lane; i < end; i += LANES, w.on()) {
        if (weights) scale = (T)(rstd * weight[first + w.line]), shift = bias[first + w.line];
        to[w.at()] = (from[w.at()] - mean) * scale + shift;
    }
}
"""

# rstd * (h - mean(h) - y * mean(h * y)) with h = grad * weight, y = (x - mean) * rstd. `parts` are sums of grad and of grad * (x - mean): of the
# parts of a set, or of its lines, if these have weights of their own. `per`: how many sets of this launch share a mean.
_BACKWARD = """
struct Sums { double g, gx; };
__device__ inline Sums joined(Sums a, Sums b) { return Sums{a.g + b.g, a.gx + b.gx}; }

extern "C" __global__ void __launch_bounds__(THREADS)
NAME(T *dx, T *dweight, T *dbias, const T *g, const T *x, const T *weight, const T *mean_, const T *rstd_, Sums *parts, long long sets,
     long long count, long long length, long long apart, long long step, long long chunk, long long splits, long long weights, long long groups,
     long long per) {
    const int lane = LANE;
    const long long of_sets = (sets + SETS - 1) / SETS;
    if (STAGE == FINISH && blockIdx.x >= of_sets) { /* the sums of all samples, for a channel each */
        const long long channels = groups * weights, c = (blockIdx.x - of_sets) * (long long)THREADS + threadIdx.x;
        if (c >= channels || blockIdx.y) return;
        Sums total = {0, 0};
        for (long long n = 0; n < sets / groups; n++) {
            const Sums here = parts[n * channels + c];
            total = joined(total, Sums{here.g, here.gx * rstd_[n * groups + c / weights]});
        }
        dweight[c] = (T)total.gx, dbias[c] = (T)total.g;
        return;
    }
    const long long set = (long long)blockIdx.x * SETS + MINE;
    const bool is = set < sets;
    const long long begin = blockIdx.y * chunk, end = is ? (begin + chunk < count ? begin + chunk : count) : 0;
    const T *const grad = g + (is ? set * step : 0), *const from = x + (is ? set * step : 0);
    const T mean = is ? mean_[set / per] : (T)0;
    Sums found = {0, 0};
    if (STAGE == WHOLE || STAGE == PART) {
        Walk w(begin + lane, length, apart);
        #pragma unroll 4
        for (long long i = begin + lane; i < end; i += LANES, w.on()) {
            const double v = grad[w.at()];
            found.g += v, found.gx += v * (from[w.at()] - mean);
        }
        found = all(found, lane);
        if (STAGE == PART) {
            if (is && lane == 0) parts[set * splits + blockIdx.y] = found;
            return;
        }
    }
    const long long first = weights ? set % groups * weights : 0;
    if (STAGE == FINISH) {
        for (long long k = lane; is && k < splits; k += LANES) {
            const Sums here = parts[set * splits + k];
            const double by = weights ? (double)weight[first + k] : 1;
            found = joined(found, Sums{here.g * by, here.gx * by});
        }
        found = all(found, lane);
    }
    if (!is) return;
    const double rstd = rstd_[set / per], by = weights ? 1 : (double)weight[set];
    if (!weights && lane == 0 && blockIdx.y == 0) dweight[set] = (T)(found.gx * rstd), dbias[set] = (T)found.g;
    const T slope = (T)(rstd * rstd * (found.gx * rstd * by) / count), shift = (T)(rstd * found.g * by / count);
    T scale = weights ? 0 : (T)(rstd * by);
    T *const to = dx + set * step;
    Walk w(begin + lane, length, apart);
    #pragma unroll 4
    for (long long i = begin + lane; i < end; i += LANES, w.on()) {
        if (weights) scale = (T)(rstd * weight[first + w.line]);
        to[w.at()] = grad[w.at()] * scale - (from[w.at()] - mean) * slope - shift;
    }
}
"""
