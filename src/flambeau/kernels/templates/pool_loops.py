"""The loops of max and average pooling in up to three dimensions and of their derivatives, printed as C. A plan is an array of numbers, FIELDS,
and work on it comes in tasks, as that of convolution does.

Planes of numbers side by side: a vector holds neighbouring outputs, their greatest so far and where those were, while all numbers of the
window pass. Windows that stick out, and rows shorter than a vector, are read from a copy of their rows between walls of -infinity, which is
greater than nothing. Averages add up the rows of a window first, whole rows at a time, then neighbours in that sum. In channels-last images
a vector holds channels of one output. Without `at`, of windows that slide over planes, only values are found. A window has KD x KH x KW
numbers; KW = 0 for adaptive windows, as equal as the sizes allow.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table

TYPES = {"f32": ("float", "int32_t", 4), "f64": ("double", "int64_t", 8)}
NAMES = ("max", "spread", "avg", "avg_back")
FIELDS = """x y at planes channels xn xc xd xh xw yn yc yd yh yw D H W OD OH OW KD KH KW sd sh sw pd ph pw dd dh dw block last padded
            divisor places""".split()


def plan(fields: dict[str, int]) -> np.ndarray:
    """The fields in their order; the first three are filled in by the loop."""
    return np.array([fields.get(f, 0) for f in FIELDS], np.int64)


def table() -> Table:
    fields = "".join(f"    {'char *' if f in ('x', 'y') else 'int64_t *' if f == 'at' else 'int64_t '}{f};\n" for f in FIELDS)
    texts = ["#include <string.h>\ntypedef struct {\n" + fields + "} Pool;\n", _orders(), _SMALL]
    for kind, (real, index, _) in TYPES.items():
        texts += [t.replace("REAL", real).replace("INDEX", index).replace("KIND", kind) for t in (_MAX, _MAX_TASKS, _AVERAGE, _SHARE)]
    table = Table(*texts)
    for name, kind in product(NAMES, TYPES):
        table.texts.append(_loop(f"{name}_{kind}"))
        table.add(f"pool.{name}_{kind}", f"pool_{name}_{kind}", "int64", f"T i64 {kind} {kind} i64", numbers=1, along=LINES)
    return table


def _loop(name: str) -> str:
    """The loop over tasks. Operands: what became of the task (0: done, 2: no memory), its number, the plan, x, y, and where the greatest were found."""
    return f"""void FL_NAME(pool_{name}){PARAMETERS} {{
    Pool p = *(const Pool *)ptr[2];
    p.x = ptr[3], p.y = ptr[4], p.at = p.places ? (int64_t *)ptr[5] : NULL;
    for (int64_t i = 0; i < n; i++) *(int64_t *)(ptr[0] + i * step[0]) = {name}(&p, *(const int64_t *)(ptr[1] + i * step[1]));
}}
"""


def _orders() -> str:
    """How many numbers a vector of the CPU has, 0, 1, 2 ... of them, and every other one of two vectors, the second of which begins with the
    last of the first: so nothing is read that no window has."""
    lines = []
    for condition, width in (("#if defined(__AVX512F__)", 64), ("#elif defined(__AVX2__)", 32), ("#else", 16)):
        lines.append(condition)
        for kind, (_, _, size) in TYPES.items():
            n = width // size
            every_other = [2 * i if 2 * i < n else 2 * i + 1 for i in range(n)]
            lines += [f"enum {{ LANES_{kind} = {n} }};", f"#define COUNT_{kind} {', '.join(map(str, range(n)))}"]
            lines.append(f"#define EVEN_{kind} {', '.join(map(str, every_other))}")
            lines += [
                f"#define {name}_{kind} {', '.join([str(2 * i + odd) for i in range(n)])}" for odd, name in enumerate(("EVENS", "ODDS"))
            ]
    return "\n".join([*lines, "#endif"])


_SMALL = """
#if defined(__clang__)
#define PICK(a, b, picks, places) __builtin_shufflevector(a, b, picks)
#else
#define PICK(a, b, picks, places) __builtin_shuffle(a, b, (places){picks})
#endif
/* a where the mask is set, else b */
#define EITHER(mask, a, b) (((a) & (mask)) | ((b) & ~(mask)))
#if defined(__AVX2__) && !defined(__AVX512F__)
typedef char bytes __attribute__((vector_size(32)));
#undef EITHER
#define EITHER(mask, a, b) ((__typeof__(mask))__builtin_ia32_pblendvb256((bytes)(b), (bytes)(a), (bytes)(mask)))
#endif
#define GREATER(v, best) ({ const __typeof__(best) best_ = (best), v_ = (v); (v_ > best_) | (v_ != v_) ? v_ : best_; })
enum { COPY = 4096 }; /* numbers of rows that are copied at a time, if one row is not more */
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
/* Of window o along one dimension: the first position inside, how many are; how many count in an average. */
typedef struct { int64_t first, count, among; } Span;
static inline Span span(int64_t o, int64_t size, int64_t outputs, int64_t kernel, int64_t stride, int64_t pad, int64_t apart, int64_t padded) {
    if (!kernel) {
        const int64_t first = o * size / outputs, count = ((o + 1) * size + outputs - 1) / outputs - first;
        return (Span){first, count, count};
    }
    const int64_t start = o * stride - pad, first = start >= 0 ? start : apart == 1 ? 0 : start + (-start + apart - 1) / apart * apart;
    const int64_t reach = most(least(size, start + kernel * apart) - first, 0), count = apart == 1 ? reach : (reach + apart - 1) / apart;
    return (Span){first, count, padded ? least(start + kernel, size + pad) - start : count}; /* not what lies beyond the padding */
}
typedef struct { Span d, h, w; int64_t xd, xh, xw; } Window; /* positions, and how far apart they lie */
static inline Span span_d(const Pool *p, int64_t o) { return span(o, p->D, p->OD, p->KD, p->sd, p->pd, p->dd, p->padded); }
static inline Span span_h(const Pool *p, int64_t o) { return span(o, p->H, p->OH, p->KH, p->sh, p->ph, p->dh, p->padded); }
static inline Span span_w(const Pool *p, int64_t o) { return span(o, p->W, p->OW, p->KW, p->sw, p->pw, p->dw, p->padded); }
static Span *spans_of(const Pool *p) { /* of a row of outputs: divisions are slow */
    Span *const found = fl_alloc(sizeof(Span) * (size_t)p->OW);
    for (int64_t o = 0; found && o < p->OW; o++) found[o] = span_w(p, o);
    return found;
}
/* The windows that have position i, without dilation: the first, and the one after the last. */
typedef struct { int64_t first, end; } Windows;
static inline Windows windows(int64_t i, int64_t size, int64_t outputs, int64_t kernel, int64_t stride, int64_t pad) {
    if (!kernel) return (Windows){i * outputs / size, ((i + 1) * outputs + size - 1) / size};
    return (Windows){most(i + pad - kernel + stride, 0) / stride, least((i + pad) / stride + 1, outputs)};
}
/* A row of windows some of which stick out to the left and right: where those begin that do not, and where they end. */
static inline Windows inner(const Pool *p) {
    const int64_t first = least((p->pw + p->sw - 1) / p->sw, p->OW), room = p->W + p->pw - (p->KW - 1) * p->dw - 1;
    return (Windows){first, room < 0 ? first : most(least(room / p->sw + 1, p->OW), first)};
}
"""

_MAX = """
typedef REAL numbers_KIND __attribute__((vector_size(LANES_KIND * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef INDEX places_KIND __attribute__((vector_size(LANES_KIND * sizeof(INDEX)), aligned(sizeof(INDEX)), may_alias));
typedef struct { numbers_KIND value; places_KIND at; } Best_KIND;
/* NaN is greater than all; of equal ones the first counts. */
static inline void compare_KIND(Best_KIND *best, numbers_KIND v, places_KIND here) {
    const places_KIND better = (v > best->value) | (v != v);
    best->value = (numbers_KIND)EITHER(better, (places_KIND)v, (places_KIND)best->value);
    best->at = EITHER(better, here, best->at);
}
static inline numbers_KIND every_KIND(const REAL *x, int64_t step) {
    numbers_KIND v;
    if (step == 1) return *(const numbers_KIND *)x;
    if (step == 2) return PICK(*(const numbers_KIND *)x, *(const numbers_KIND *)(x + LANES_KIND - 1), EVEN_KIND, places_KIND);
    for (int j = 0; j < LANES_KIND; j++) v[j] = x[j * step];
    return v;
}
/* A vector of windows, `step` apart: all numbers of all of them, `wide` to a row. `first`: the position of the first number of the first one. */
static inline void pass_KIND(const Pool *p, const REAL *x, int64_t nd, int64_t xd, int64_t nh, int64_t xh, int64_t step, int64_t wide, INDEX first, Best_KIND *best) {
    places_KIND start = first + (INDEX)step * (const places_KIND){COUNT_KIND};
    for (int64_t d = 0; d < nd; d++, x += xd, start += (INDEX)(p->dd * p->H * p->W)) {
        const REAL *row = x;
        places_KIND at = start;
        for (int64_t h = 0; h < nh; h++, row += xh, at += (INDEX)(p->dh * p->W)) {
            places_KIND here = at;
            for (int64_t k = 0; k < wide; k++, here += (INDEX)p->dw) compare_KIND(best, every_KIND(row + k * p->dw, step), here);
        }
    }
}
static inline void keep_KIND(const Best_KIND *best, int64_t n, REAL *y, int64_t *at_y) {
    INDEX at[LANES_KIND] FL_ALIGNED;
    *(places_KIND *)at = best->at;
    if (n == LANES_KIND) {
        *(numbers_KIND *)y = best->value;
        for (int j = 0; j < LANES_KIND; j++) at_y[j] = at[j];
    } else for (int j = 0; j < n; j++) y[j] = best->value[j], at_y[j] = at[j];
}
/* One number of one window, by itself. */
static void one_KIND(const Pool *p, const Window *q, const REAL *x, REAL *y, int64_t *at_y) {
    union { REAL number; INDEX bits; } best = {-(REAL)INFINITY}, v;
    int64_t plane = (q->d.first * p->H + q->h.first) * p->W + q->w.first, at = plane;
    for (int64_t d = 0; d < q->d.count; d++, x += q->xd, plane += p->dd * p->H * p->W) {
        const REAL *row = x;
        int64_t line = plane;
        for (int64_t h = 0; h < q->h.count; h++, row += q->xh, line += p->dh * p->W)
            for (int64_t w = 0; w < q->w.count; w++) {
                v.number = row[w * q->xw];
                const int64_t better = -(int64_t)((v.number > best.number) | (v.number != v.number)); /* no branch: it could not be foreseen */
                best.bits ^= (best.bits ^ v.bits) & (INDEX)better, at ^= (at ^ (line + w * p->dw)) & better;
            }
    }
    *y = best.number, *at_y = at;
}
/* All channels of one output, x at the first number of its window. */
static void max_pixel_KIND(const Pool *p, const Window *q, const REAL *x, REAL *y, int64_t *at_y) {
    const INDEX first = (INDEX)((q->d.first * p->H + q->h.first) * p->W + q->w.first);
    if (p->channels < LANES_KIND)
        for (int64_t c = 0; c < p->channels; c++) one_KIND(p, q, x + c, y + c, at_y + c);
    else
        for (int64_t i = 0; i < p->channels; i += 2 * LANES_KIND) { /* two vectors at a time */
            const int64_t c0 = least(i, p->channels - LANES_KIND), c1 = least(i + LANES_KIND, p->channels - LANES_KIND);
            Best_KIND b0 = {-(REAL)INFINITY - (numbers_KIND){0}, first - (places_KIND){0}}, b1 = b0;
            places_KIND start = b0.at;
            for (int64_t d = 0; d < q->d.count; d++, start += (INDEX)(p->dd * p->H * p->W)) {
                const REAL *row = x + d * q->xd;
                places_KIND line = start;
                for (int64_t h = 0; h < q->h.count; h++, row += q->xh, line += (INDEX)(p->dh * p->W)) {
                    const REAL *from = row;
                    places_KIND here = line;
                    for (int64_t w = 0; w < q->w.count; w++, from += q->xw, here += (INDEX)p->dw) {
                        compare_KIND(&b0, *(const numbers_KIND *)(from + c0), here);
                        compare_KIND(&b1, *(const numbers_KIND *)(from + c1), here);
                    }
                }
            }
            keep_KIND(&b0, LANES_KIND, y + c0, at_y + c0);
            keep_KIND(&b1, LANES_KIND, y + c1, at_y + c1);
        }
}
"""

_MAX_TASKS = """
/* n outputs of a row from c on; x: where the first window begins, the part inside above and before. */
static inline void max_row_KIND(const Pool *p, const REAL *x, int64_t xd, int64_t xh, Span d, Span h, int64_t c, int64_t n, int64_t step, int64_t wide,
    REAL *y, int64_t *at_y) {
    const INDEX row = (INDEX)((d.first * p->H + h.first) * p->W);
    for (int64_t i = 0; i < n; i += LANES_KIND) {
        const int64_t j = n < LANES_KIND ? 0 : least(i, n - LANES_KIND), start = (c + j) * step - p->pw;
        const INDEX first = row + (INDEX)start;
        Best_KIND best = {-(REAL)INFINITY - (numbers_KIND){0}, first + (INDEX)step * (const places_KIND){COUNT_KIND}};
        if (start < 0) {
            INDEX at[LANES_KIND] FL_ALIGNED;
            for (int64_t k = 0; k < LANES_KIND; k++) at[k] = row + (INDEX)span_w(p, c + j + k).first;
            best.at = *(const places_KIND *)at;
        }
        pass_KIND(p, x + j * step, d.count, xd, h.count, xh, step, wide, first, &best);
        keep_KIND(&best, least(n, LANES_KIND), y + j, at_y + j);
    }
}
/* The same where nobody asks for places. */
static inline numbers_KIND greater_KIND(numbers_KIND v, numbers_KIND best) {
    return (numbers_KIND)EITHER((places_KIND)(v > best) | (places_KIND)(v != v), (places_KIND)v, (places_KIND)best);
}
static inline void max_values_KIND(const Pool *p, const REAL *x, int64_t xd, int64_t xh, int64_t nd, int64_t nh, int64_t n, int64_t step, int64_t wide, REAL *y) {
    for (int64_t i = 0; i < n; i += LANES_KIND) {
        const int64_t j = n < LANES_KIND ? 0 : least(i, n - LANES_KIND);
        numbers_KIND best = -(REAL)INFINITY - (numbers_KIND){0};
        for (int64_t d = 0; d < nd; d++)
            for (int64_t h = 0; h < nh; h++)
                for (int64_t k = 0; k < wide; k++) {
                    const REAL *const from = x + j * step + d * xd + h * xh + k * p->dw;
                    if (step == 2 && p->dw == 1 && k + 1 < wide) { /* two neighbours of each window, from two vectors */
                        const numbers_KIND a = *(const numbers_KIND *)from, b = *(const numbers_KIND *)(from + LANES_KIND);
                        best = greater_KIND(PICK(a, b, EVENS_KIND, places_KIND), best), best = greater_KIND(PICK(a, b, ODDS_KIND, places_KIND), best), k++;
                    } else best = greater_KIND(every_KIND(from, step), best);
                }
        if (n >= LANES_KIND) *(numbers_KIND *)(y + j) = best;
        else for (int64_t k = 0; k < n; k++) y[k] = best[k];
    }
}
/* Windows of one row, at least a vector of them; with constants in place of numbers gcc needs no loop for the numbers of a window. */
static inline void max_line_KIND(const REAL *x, int64_t n, int64_t step, int64_t wide, int64_t apart, REAL *restrict y) {
    for (int64_t i = 0; i < n; i += LANES_KIND) {
        const REAL *const from = x + least(i, n - LANES_KIND) * step;
        numbers_KIND best;
        int64_t k = 1;
        if (step == 2 && wide > 1 && apart == 1) {
            const numbers_KIND a = *(const numbers_KIND *)from, b = *(const numbers_KIND *)(from + LANES_KIND);
            best = greater_KIND(PICK(a, b, ODDS_KIND, places_KIND), PICK(a, b, EVENS_KIND, places_KIND)), k = 2;
        } else best = every_KIND(from, step);
        for (; k < wide; k++) best = greater_KIND(every_KIND(from + k * apart, step), best);
        *(numbers_KIND *)(y + least(i, n - LANES_KIND)) = best;
    }
}
static void max_values_as_KIND(const Pool *p, const REAL *x, int64_t xd, int64_t xh, int64_t nd, int64_t nh, int64_t n, REAL *y) {
    const int line = nd == 1 && nh == 1 && n >= LANES_KIND, near = p->dw == 1;
    if (line && near && p->sw == 2 && p->KW == 2) max_line_KIND(x, n, 2, 2, 1, y);
    else if (line && near && p->sw == 2 && p->KW == 3) max_line_KIND(x, n, 2, 3, 1, y);
    else if (line && near && p->sw == 1 && p->KW == 3) max_line_KIND(x, n, 1, 3, 1, y);
    else if (line && near && p->sw == 3 && p->KW == 3)
        _Pragma("omp simd") for (int64_t c = 0; c < n; c++) y[c] = GREATER(x[3 * c + 2], GREATER(x[3 * c + 1], x[3 * c]));
    else if (line && near && p->sw == 4 && p->KW == 4)
        _Pragma("omp simd") for (int64_t c = 0; c < n; c++) y[c] = GREATER(x[4 * c + 3], GREATER(x[4 * c + 2], GREATER(x[4 * c + 1], x[4 * c])));
    else if (line && p->sw == 2) max_line_KIND(x, n, 2, p->KW, p->dw, y);
    else if (line && p->sw == 1) max_line_KIND(x, n, 1, p->KW, p->dw, y);
    else if (line) max_line_KIND(x, n, p->sw, p->KW, p->dw, y);
    else if (p->sw == 2 && p->KW == 2) max_values_KIND(p, x, xd, xh, nd, nh, n, 2, 2, y);
    else if (p->sw == 2 && p->KW == 3) max_values_KIND(p, x, xd, xh, nd, nh, n, 2, 3, y);
    else if (p->sw == 1 && p->KW == 3) max_values_KIND(p, x, xd, xh, nd, nh, n, 1, 3, y);
    else if (p->sw == 2) max_values_KIND(p, x, xd, xh, nd, nh, n, 2, p->KW, y);
    else if (p->sw == 1) max_values_KIND(p, x, xd, xh, nd, nh, n, 1, p->KW, y);
    else max_values_KIND(p, x, xd, xh, nd, nh, n, p->sw, p->KW, y);
}
static void max_bare_KIND(const Pool *p, const REAL *x, int64_t xd, int64_t xh, int64_t nd, int64_t nh, Windows in, REAL *y) {
    for (int64_t c = 0; c < p->OW; c = c + 1 == in.first ? in.end : c + 1) {
        if (c == in.first) c = in.end;
        if (c == p->OW) break;
        const Span w = span_w(p, c);
        REAL best = -(REAL)INFINITY;
        for (int64_t d = 0; d < nd; d++)
            for (int64_t h = 0; h < nh; h++)
                for (int64_t k = 0; k < w.count; k++) {
                    const REAL v = x[d * xd + h * xh + w.first + k * p->dw];
                    best = (v > best) | (v != v) ? v : best;
                }
        y[c] = best;
    }
    max_values_as_KIND(p, x + in.first * p->sw - p->pw, xd, xh, nd, nh, in.end - in.first, y + in.first);
}
static void max_row_as_KIND(const Pool *p, const REAL *x, int64_t xd, int64_t xh, Span d, Span h, int64_t c, int64_t n, REAL *y, int64_t *at_y) {
    if (!p->at) max_values_as_KIND(p, x, xd, xh, d.count, h.count, n, y);
    else if (p->sw == 2 && p->KW == 2) max_row_KIND(p, x, xd, xh, d, h, c, n, 2, 2, y, at_y);
    else if (p->sw == 2 && p->KW == 3) max_row_KIND(p, x, xd, xh, d, h, c, n, 2, 3, y, at_y);
    else if (p->sw == 2) max_row_KIND(p, x, xd, xh, d, h, c, n, 2, p->KW, y, at_y);
    else if (p->sw == 1) max_row_KIND(p, x, xd, xh, d, h, c, n, 1, p->KW, y, at_y);
    else max_row_KIND(p, x, xd, xh, d, h, c, n, p->sw, p->KW, y, at_y);
}
/* A row of uneven windows: shorter ones see their last number again, which changes nothing. */
static void max_uneven_KIND(const Pool *p, const Window *q, const Span *spans, const REAL *x, REAL *y, int64_t *at_y) {
    for (int64_t o = 0; o < p->OW; o += LANES_KIND) {
        INDEX first[LANES_KIND] FL_ALIGNED, last[LANES_KIND] FL_ALIGNED, place[LANES_KIND] FL_ALIGNED;
        int64_t wide = 0;
        for (int64_t j = 0; j < LANES_KIND; j++) {
            const Span w = spans[least(o + j, p->OW - 1)];
            first[j] = (INDEX)w.first, last[j] = (INDEX)(w.first + w.count - 1), wide = most(wide, w.count);
        }
        const places_KIND start = *(const places_KIND *)first, end = *(const places_KIND *)last;
        Best_KIND best = {-(REAL)INFINITY - (numbers_KIND){0}, start + (INDEX)((q->d.first * p->H + q->h.first) * p->W)};
        for (int64_t d = 0; d < q->d.count; d++)
            for (int64_t h = 0; h < q->h.count; h++) {
                const REAL *const row = x + d * q->xd + h * q->xh;
                const INDEX above = (INDEX)(((q->d.first + d) * p->H + q->h.first + h) * p->W);
                for (int64_t k = 0; k < wide; k++) {
                    places_KIND here = start + (INDEX)k;
                    numbers_KIND v;
                    here = EITHER(here > end, end, here);
                    *(places_KIND *)place = here;
                    for (int j = 0; j < LANES_KIND; j++) v[j] = row[place[j] * q->xw];
                    compare_KIND(&best, v, here + above);
                }
            }
        keep_KIND(&best, least(p->OW - o, LANES_KIND), y + o, at_y + o);
    }
}
/* Rows r to r + count of plane od, outputs c to c + n, read from a copy. */
static void max_copied_KIND(const Pool *p, const REAL *x, int64_t od, int64_t r, int64_t count, int64_t c, int64_t n, REAL *copy, int64_t pitch,
    int64_t deep, REAL *y, int64_t *at_y) {
    const Span d = span_d(p, od);
    const int64_t top = most(r * p->sh - p->ph, 0), end = least((r + count - 1) * p->sh - p->ph + (p->KH - 1) * p->dh + 1, p->H);
    const int64_t start = c * p->sw - p->pw, from = least(most(-start, 0), pitch), until = most(least(p->W - start, pitch), from);
    for (int64_t k = 0; k < d.count; k++)
        for (int64_t h = top; h < end; h++) {
            const REAL *const row = x + (d.first + k * p->dd) * p->xd + h * p->xh + start * p->xw;
            REAL *const to = copy + k * deep + (h - top) * pitch;
            for (int64_t j = 0; j < from; j++) to[j] = -(REAL)INFINITY;
            if (p->xw == 1) memcpy(to + from, row + from, sizeof(REAL) * (size_t)(until - from));
            else for (int64_t j = from; j < until; j++) to[j] = row[j * p->xw];
            for (int64_t j = until; j < pitch; j++) to[j] = -(REAL)INFINITY;
        }
    for (int64_t i = 0; i < count; i++) {
        const Span h = span_h(p, r + i);
        max_row_as_KIND(p, copy + (h.first - top) * pitch, deep, p->dh * pitch, d, h, c, n, y + i * p->yh, at_y + i * p->yh);
    }
}
/* Rows of outputs t * block and on. */
static int64_t max_KIND(const Pool *p, int64_t t) {
    const int64_t end = least((t + 1) * p->block, p->planes * p->OD * p->OH), reach = (p->KW - 1) * p->dw + 1, tall = (p->KH - 1) * p->dh + 1;
    const int near = p->KW && p->xw == 1 && !p->pw && p->OW >= LANES_KIND && (p->OW - 1) * p->sw + reach <= p->W, bare = !p->at && p->KW && p->xw == 1 && !p->last && inner(p).end - inner(p).first >= LANES_KIND, copied = p->KW && !near && !bare && !p->last;
    const Windows in = bare ? inner(p) : (Windows){0, 0};
    const int64_t cols = least(p->OW, most((COPY - reach) / p->sw, 4 * LANES_KIND)), pitch = (most(cols, LANES_KIND) - 1) * p->sw + reach;
    const int64_t stripe = copied ? least(p->OH, most((COPY / pitch - tall) / p->sh + 1, 1)) : 1, deep = ((stripe - 1) * p->sh + tall) * pitch;
    const size_t bytes = copied ? sizeof(REAL) * (size_t)(p->KD * deep) : 0;
    REAL *const copy = copied ? fl_alloc(bytes) : NULL;
    Span *const spans = copied || near || bare ? NULL : spans_of(p);
    if (!copy && !spans && !near && !bare) return 2;
    for (int64_t i = t * p->block, count; i < end; i += count) {
        const int64_t flat = p->OH * p->OD == 1, r = flat ? 0 : i % p->OH, od = flat ? 0 : i / p->OH % p->OD, plane = flat ? i : i / p->OH / p->OD;
        const int64_t n = p->last ? plane : plane / p->channels, channel = p->last ? 0 : plane - n * p->channels;
        const int64_t at = n * p->yn + channel * p->yc + od * p->yd + r * p->yh;
        const REAL *const x = (const REAL *)p->x + n * p->xn + channel * p->xc;
        REAL *const y = (REAL *)p->y + at;
        count = least(copied ? stripe : p->OH, least(end - i, p->OH - r));
        if (copied) {
            for (int64_t c = 0; c < p->OW; c += cols)
                max_copied_KIND(p, x, od, r, count, c, least(cols, p->OW - c), copy, pitch, deep, y + c, p->at + at + c);
            continue;
        }
        Window q = {.d = span_d(p, od), .xd = p->dd * p->xd, .xh = p->dh * p->xh, .xw = p->dw * p->xw};
        for (int64_t j = 0, to = 0; j < count; j++, to += p->yh) {
            q.h = span_h(p, r + j);
            const REAL *const row = x + q.d.first * p->xd + q.h.first * p->xh;
            if (bare) max_bare_KIND(p, row, q.xd, q.xh, q.d.count, q.h.count, in, y + to);
            else if (near) max_row_as_KIND(p, row, q.xd, q.xh, q.d, q.h, 0, p->OW, y + to, p->at + at + to);
            else if (!p->last) max_uneven_KIND(p, &q, spans, row, y + to, p->at + at + to);
            else
                for (int64_t o = 0, here = to; o < p->OW; o++, here += p->yw) {
                    q.w = spans[o];
                    max_pixel_KIND(p, &q, row + q.w.first * p->xw, y + here, p->at + at + here);
                }
        }
    }
    fl_free(copy, bytes), fl_free(spans, sizeof(Span) * (size_t)p->OW);
    return 0;
}
/* x (planes, H * W, channels) = zeros with y (planes, OH * OW, channels) added at at (planes, OH * OW, channels); xc channels to a task. KH: windows of
   rows are known, and zeros are written as far as they reach, just before; H = OH = 1 without. */
static int64_t spread_KIND(const Pool *p, int64_t t) {
    const int64_t parts = (p->channels + p->xc - 1) / p->xc, c = t % parts * p->xc, n = least(p->xc, p->channels - c), all = p->channels;
    for (int64_t i = t / parts * p->block; i < least((t / parts + 1) * p->block, p->planes); i++) {
        REAL *const x = (REAL *)p->x + i * p->H * p->W * all + c;
        for (int64_t r = 0, zeros = 0; r < p->OH; r++) {
            const REAL *const y = (const REAL *)p->y + (i * p->OH + r) * p->OW * all + c;
            const int64_t *const at = p->at + (i * p->OH + r) * p->OW * all + c;
            const int64_t until = r + 1 < p->OH ? least(r * p->sh - p->ph + (p->KH - 1) * p->dh + 1, p->H) * p->W : p->H * p->W;
            if (parts == 1 && until > zeros) memset(x + zeros * all, 0, sizeof(REAL) * (size_t)((until - zeros) * all));
            for (int64_t j = zeros; parts > 1 && j < until; j++) memset(x + j * all, 0, sizeof(REAL) * (size_t)n);
            zeros = most(zeros, until);
            if (all == 1) for (int64_t j = 0; j < p->OW; j++) x[at[j]] += y[j];
            else
                for (int64_t j = 0; j < p->OW * all; j += all)
                    for (int64_t k = 0; k < n; k++) x[at[j + k] * all + k] += y[j + k];
        }
    }
    return 0;
}
"""

_AVERAGE = """
/* How many numbers each window of a row averages, but for those of other rows; or the divisor. */
static void among_KIND(const Pool *p, REAL *to) {
    for (int64_t c = 0; c < p->OW; c++) to[c] = (REAL)(p->divisor ? p->divisor : span_w(p, c).among);
}
/* to (n) = the sum of nd x nh rows, divided by `by`. */
static inline void sum_rows_KIND(const REAL *x, int64_t nd, int64_t xd, int64_t nh, int64_t xh, int64_t n, REAL by, REAL *to) {
    if (n < LANES_KIND)
        for (int64_t w = 0; w < n; w++) {
            REAL s = 0;
            for (int64_t d = 0; d < nd; d++)
                for (int64_t h = 0; h < nh; h++) s += x[d * xd + h * xh + w];
            to[w] = s / by;
        }
    else
        for (int64_t i = 0; i < n; i += 2 * LANES_KIND) { /* two vectors at a time */
            const int64_t w0 = least(i, n - LANES_KIND), w1 = least(i + LANES_KIND, n - LANES_KIND);
            numbers_KIND s0 = {0}, s1 = {0};
            for (int64_t d = 0; d < nd; d++)
                for (int64_t h = 0; h < nh; h++) {
                    const REAL *const row = x + d * xd + h * xh;
                    s0 += *(const numbers_KIND *)(row + w0), s1 += *(const numbers_KIND *)(row + w1);
                }
            *(numbers_KIND *)(to + w0) = s0 / by, *(numbers_KIND *)(to + w1) = s1 / by;
        }
}
/* y (n) = sums of `wide` neighbours in `sum`, `step` from one to the next, divided by among * of_row. At least a vector of each is there. */
static inline void avg_row_KIND(const REAL *sum, int64_t n, int64_t step, int64_t wide, REAL among, const REAL *of_row, REAL *y) {
    for (int64_t i = 0; i < n; i += LANES_KIND) {
        const int64_t c = n < LANES_KIND ? 0 : least(i, n - LANES_KIND);
        numbers_KIND s = {0};
        for (int64_t k = 0; k < wide; k++) s += every_KIND(sum + c * step + k, step);
        s /= among * *(const numbers_KIND *)(of_row + c);
        if (n >= LANES_KIND) *(numbers_KIND *)(y + c) = s;
        else for (int64_t j = 0; j < n; j++) y[j] = s[j];
    }
}
/* y (planes, OD, OH, OW) = the average of each window of x (planes, D, H, W): rows of outputs t * block and on. */
static int64_t avg_rows_KIND(const Pool *p, int64_t t) {
    const int64_t end = least((t + 1) * p->block, p->planes * p->OD * p->OH), outputs = most(p->OW, LANES_KIND);
    const int64_t wide = most(p->pw + p->W, (outputs - 1) * p->sw + p->KW);
    const size_t bytes = sizeof(REAL) * (size_t)(wide + outputs);
    REAL *const line = fl_alloc(bytes), *const of_row = line + wide;
    Span *const spans = line && !p->KW ? spans_of(p) : NULL;
    if (!line || (!p->KW && !spans)) return fl_free(line, bytes), 2;
    memset(line, 0, bytes);
    among_KIND(p, of_row);
    for (int64_t i = t * p->block, count; i < end; i += count) {
        const int64_t r = i % p->OH, plane = i / p->OH / p->OD;
        const Span d = span_d(p, i / p->OH % p->OD);
        const REAL *const x = (const REAL *)p->x + (plane * p->D + d.first) * p->H * p->W;
        count = least(end - i, p->OH - r);
        for (int64_t j = 0; j < count; j++) {
            const Span h = span_h(p, r + j);
            const REAL among = p->divisor ? 1 : (REAL)(d.among * h.among);
            REAL *const y = (REAL *)p->y + (i + j) * p->OW;
            const REAL *from = line;
            if (d.count * h.count == 1 && wide == p->W) from = x + h.first * p->W;
            else sum_rows_KIND(x + h.first * p->W, d.count, p->H * p->W, h.count, p->W, p->W, 1, line + p->pw);
            if (!p->KW)
                for (int64_t c = 0; c < p->OW; c++) {
                    REAL s = 0;
                    for (int64_t k = 0; k < spans[c].count; k++) s += from[spans[c].first + k];
                    y[c] = s / (among * of_row[c]);
                }
            else if (p->sw == 1) avg_row_KIND(from, p->OW, 1, p->KW, among, of_row, y);
            else if (p->sw == 2) avg_row_KIND(from, p->OW, 2, p->KW, among, of_row, y);
            else avg_row_KIND(from, p->OW, p->sw, p->KW, among, of_row, y);
        }
    }
    fl_free(line, bytes), fl_free(spans, sizeof(Span) * (size_t)p->OW);
    return 0;
}
/* The same for images (planes, H, W, channels). */
static int64_t avg_pixels_KIND(const Pool *p, int64_t t) {
    const int64_t end = least((t + 1) * p->block, p->planes * p->OH), channels = p->channels;
    Span *const spans = spans_of(p);
    if (!spans) return 2;
    for (int64_t i = t * p->block; i < end; i++) {
        const Span h = span_h(p, i % p->OH);
        for (int64_t o = 0; o < p->OW; o++) {
            const Span w = spans[o];
            const REAL *const x = (const REAL *)p->x + ((i / p->OH * p->H + h.first) * p->W + w.first) * channels;
            const REAL among = (REAL)(p->divisor ? p->divisor : h.among * w.among);
            REAL *const y = (REAL *)p->y + (i * p->OW + o) * channels;
            sum_rows_KIND(x, h.count, p->W * channels, w.count, channels, channels, among, y);
        }
    }
    fl_free(spans, sizeof(Span) * (size_t)p->OW);
    return 0;
}
static int64_t avg_KIND(const Pool *p, int64_t t) { return (p->last ? avg_pixels_KIND : avg_rows_KIND)(p, t); }
"""

_SHARE = """
/* Row r of y (OD * OH, OW, channels), each number divided among its window. */
static void share_KIND(const Pool *p, const REAL *restrict y, int64_t r, const REAL *restrict of_row, REAL *restrict to) {
    const REAL among = p->divisor ? 1 : (REAL)(span_d(p, r / p->OH).among * span_h(p, r % p->OH).among);
    if (p->channels == 1) for (int64_t c = 0; c < p->OW; c++) to[c] = y[c] / (among * of_row[c]);
    else
        for (int64_t o = 0; o < p->OW; o++, y += p->channels, to += p->channels) {
            const REAL by = among * of_row[o];
            for (int64_t c = 0; c < p->channels; c++) to[c] = y[c] / by;
        }
}
/* x (W, channels) = every number of a row of sums (OW, channels) added to all of its window. Before and behind the row are zeros, a vector
   and more; `part` has room for two rows and a vector. `those`: the windows of each position, where they are asked for one by one. */
static void widen_KIND(const Pool *p, const REAL *sum, const Windows *those, REAL *x, REAL *part) {
    if (those && p->channels == 1)
        for (int64_t w = 0; w < p->W; w++) {
            REAL s = 0;
            for (int64_t o = those[w].first; o < those[w].end; o++) s += sum[o];
            x[w] = s;
        }
    else if (those)
        for (int64_t w = 0; w < p->W; w++)
            sum_rows_KIND(sum + those[w].first * p->channels, 1, 0, those[w].end - those[w].first, p->channels, p->channels, 1, x + w * p->channels);
    else /* number k of window o is at w = o sw + k - pw: for every remainder of w, whole rows of windows at a time */
        for (int64_t e = 0; e < p->sw; e++) {
            const int64_t n = (p->W - e + p->sw - 1) / p->sw, near = p->sw == 1 && n >= LANES_KIND, first = (e + p->pw) % p->sw;
            const REAL *const from = sum + (e + p->pw) / p->sw;
            REAL *const to = near ? x : part + e % 2 * (p->W / p->sw + LANES_KIND + 1);
            for (int64_t j = 0; j < n; j += LANES_KIND) {
                const int64_t i = near ? least(j, n - LANES_KIND) : j;
                numbers_KIND s = {0};
                for (int64_t k = first, before = i; k < p->KW; k += p->sw, before--) s += *(const numbers_KIND *)(from + before);
                *(numbers_KIND *)(to + i) = s;
            }
            if (p->sw == 2 && e) {
                FL_IVDEP
                for (int64_t i = 0; i < n; i++) x[2 * i] = part[i], x[2 * i + 1] = to[i];
                if (p->W % 2) x[p->W - 1] = part[n];
            } else if (p->sw == 2 ? p->W == 1 : !near) for (int64_t i = 0; i < n; i++) x[i * p->sw + e] = to[i];
        }
}
/* x (planes, D, H, W) = each number of y (planes, OD, OH, OW) shared among its window, channels = 1; or (planes, H, W, channels), `last`.
   Rows t * block and on of x: those of one plane get their shares from the same few rows of y. */
static int64_t avg_back_KIND(const Pool *p, int64_t t) {
    const int64_t end = least((t + 1) * p->block, p->planes * p->D * p->H), row = p->OW * p->channels, stride = most(p->sw, 1);
    const int64_t left = p->KW / stride + 2, wide = (left + most(p->OW, (p->W + p->pw) / stride) + LANES_KIND + 2) * p->channels;
    const size_t bytes = sizeof(REAL) * (size_t)(wide + p->OW + 2 * (p->W / stride + LANES_KIND + 1));
    REAL *const line = fl_alloc(bytes), *const sum = line + left * p->channels, *const of_row = line + wide, *const part = of_row + p->OW;
    const size_t listed = p->KW && p->channels == 1 ? 0 : sizeof(Windows) * (size_t)p->W;
    Windows *const those = line && listed ? fl_alloc(listed) : NULL;
    if (!line || (listed && !those)) return fl_free(line, bytes), 2;
    for (int64_t w = 0; those && w < p->W; w++) those[w] = windows(w, p->W, p->OW, p->KW, p->sw, p->pw);
    memset(line, 0, sizeof(REAL) * (size_t)wide);
    among_KIND(p, of_row);
    for (int64_t i = t * p->block, count; i < end; i += count) {
        const int64_t h0 = i % p->H, d = i / p->H % p->D, plane = i / p->H / p->D;
        count = least(end - i, p->H - h0);
        const Windows of_d = windows(d, p->D, p->OD, p->KD, p->sd, p->pd);
        const int64_t r0 = windows(h0, p->H, p->OH, p->KH, p->sh, p->ph).first, r1 = windows(h0 + count - 1, p->H, p->OH, p->KH, p->sh, p->ph).end;
        const int64_t rows = most(r1 - r0, 0), deep = most(of_d.end - of_d.first, 0);
        const size_t room = sizeof(REAL) * (size_t)(rows * deep * row + 1);
        REAL *const shares = fl_alloc(room);
        if (!shares) return fl_free(line, bytes), fl_free(those, listed), 2;
        for (int64_t j = 0; j < rows * deep; j++) {
            const int64_t r = (of_d.first + j / rows) * p->OH + r0 + j % rows;
            share_KIND(p, (const REAL *)p->y + (plane * p->OD * p->OH + r) * row, r, of_row, shares + j * row);
        }
        for (int64_t h = h0; h < h0 + count; h++) {
            const Windows of_h = windows(h, p->H, p->OH, p->KH, p->sh, p->ph);
            const int64_t each = most(of_h.end - of_h.first, 0), alone = those && each * deep == 1;
            const REAL *const from = shares + (of_h.first - r0) * row;
            if (!alone) sum_rows_KIND(from, deep, rows * row, each, row, row, 1, sum);
            widen_KIND(p, alone ? from : sum, those, (REAL *)p->x + (i + h - h0) * p->W * p->channels, part);
        }
        fl_free(shares, room);
    }
    fl_free(line, bytes), fl_free(those, listed);
    return 0;
}
"""
