"""The loops of max and average pooling in one or two dimensions and of their derivatives, printed as C; run as those of convolution
(`conv_plans.run`).

A row of outputs is kept in two small buffers, the greatest so far and where it was, while the numbers of the kernel pass over it, BLOCK
outputs at a time. A row of the input is first copied between walls of -infinity, which is greater than nothing, so that windows that stick
out are no exception. In channels-last images the channels of a pixel take the place of the row.
"""

from __future__ import annotations

import numpy as np

from flambeau.kernels import print_conv

TYPES = {"f32": ("float", "int32_t"), "f64": ("double", "int64_t")}
NAMES = ("max", "spread", "avg", "avg_back")
FIELDS = "x y at planes channels xn xc xh xw yn yc yh yw H W OH OW KH KW sh sw ph pw dh dw block last padded divisor".split()


def plan(fields: dict[str, int]) -> np.ndarray:
    """The fields in their order; pointers are numbers too."""
    return np.array([fields.get(f, 0) for f in FIELDS], np.int64)


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    fields = "".join(f"    {'char *' if f in ('x', 'y') else 'int64_t *' if f == 'at' else 'int64_t '}{f};\n" for f in FIELDS)
    texts = [
        "#include <string.h>\ntypedef struct {\n"
        + fields
        + "} Pool;\nenum { ROW = 512, BLOCK = 16, LINE = 2048 }; /* outputs kept, outputs at a time, inputs kept */\n"
        + _SMALL
    ]
    texts += [_MAX.replace("REAL", real).replace("INDEX", index).replace("KIND", kind) for kind, (real, index) in TYPES.items()]
    loops = [f"{name}_{kind}" for name in NAMES for kind in TYPES]
    texts += [print_conv.loop("pool", name, "Pool") for name in loops]
    declared = [f"void FL_NAME(pool_{name}){print_conv.PARAMETERS};\n" for name in loops]
    return texts, declared, [print_conv.row("pool", name) for name in loops]


_SMALL = (
    f"""
#if defined(__clang__)
#define PICK(a, b, picks, places) __builtin_shufflevector(a, b, picks)
#else
#define PICK(a, b, picks, places) __builtin_shuffle(a, b, (places){{picks}})
#endif
#define COUNT {", ".join(map(str, range(16)))}
#define EVEN {", ".join(map(str, range(0, 32, 2)))}
"""
    + """static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
/* The first position of a window that is inside. */
static inline int64_t inside(int64_t start, int64_t step) { return start < 0 ? start + (-start + step - 1) / step * step : start; }
/* The first window of a row whose number k is inside, and the one after the last. */
static inline int64_t first_with(const Pool *p, int64_t k) { return most(p->pw - k + p->sw - 1, 0) / p->sw; }
static inline int64_t after_with(const Pool *p, int64_t k) { return p->W - 1 - k + p->pw < 0 ? 0 : least((p->W - 1 - k + p->pw) / p->sw + 1, p->OW); }
"""
)

_MAX = """
typedef REAL numbers_KIND __attribute__((vector_size(BLOCK * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
typedef INDEX places_KIND __attribute__((vector_size(BLOCK * sizeof(INDEX)), aligned(sizeof(INDEX)), may_alias));
static inline void every_KIND(const REAL *x, int64_t step, numbers_KIND *to) {
    const numbers_KIND *a = (const numbers_KIND *)x;
    if (step == 1) *to = *a;
    else if (step == 2) *to = PICK(a[0], a[1], EVEN, places_KIND);
    else for (int j = 0; j < BLOCK; j++) (*to)[j] = x[j * step];
}
/* All numbers of a row of the kernel, for one block of outputs. */
static inline void passes_KIND(const Pool *p, const REAL *x, int64_t step, REAL *best, INDEX *at, INDEX first) {
    numbers_KIND b = *(const numbers_KIND *)best;
    places_KIND a = *(const places_KIND *)at, here = first + (INDEX)step * (const places_KIND){COUNT};
    for (int64_t k = 0; k < p->KW; k++, here += (INDEX)p->dw) {
        numbers_KIND v;
        every_KIND(x + k * p->dw, step, &v);
        const places_KIND better = (v > b) | (v != v); /* NaN is greater than all */
        b = (numbers_KIND)(((places_KIND)v & better) | ((places_KIND)b & ~better));
        a = (here & better) | (a & ~better);
    }
    *(numbers_KIND *)best = b, *(places_KIND *)at = a;
}
/* Outputs c to c + n of row r of one plane. */
static void max_row_KIND(const Pool *p, const REAL *x, REAL *y, int64_t *at_y, int64_t r, int64_t c, int64_t n) {
    REAL best[ROW], line[LINE];
    INDEX at[ROW];
    const int64_t h0 = r * p->sh - p->ph, top = inside(h0, p->dh), w0 = c * p->sw - p->pw, blocks = (n + BLOCK - 1) / BLOCK;
    const int64_t width = (n - 1) * p->sw + (p->KW - 1) * p->dw + 1, all = least(LINE, width + BLOCK * p->sw + BLOCK);
    const int64_t from = least(most(-w0, 0), width), until = most(least(p->W - w0, width), from);
    for (int64_t j = 0; j < blocks * BLOCK; j++) best[j] = -(REAL)INFINITY, at[j] = (INDEX)(top * p->W + w0 + j * p->sw);
    for (int64_t j = 0; j < n && w0 + j * p->sw < 0; j++) at[j] = (INDEX)(top * p->W + inside(w0 + j * p->sw, p->dw));
    for (int64_t j = 0; j < from; j++) line[j] = -(REAL)INFINITY;
    for (int64_t j = until; j < all; j++) line[j] = -(REAL)INFINITY;
    for (int64_t h = top; h < least(p->H, h0 + p->KH * p->dh); h += p->dh) {
        const REAL *row = x + h * p->xh + w0 * p->xw;
        if (p->xw == 1) memcpy(line + from, row + from, sizeof(REAL) * (size_t)(until - from));
        else for (int64_t j = from; j < until; j++) line[j] = row[j * p->xw];
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t j = i * BLOCK;
            const INDEX first = (INDEX)(h * p->W + w0 + j * p->sw);
            if (p->sw == 2) passes_KIND(p, line + 2 * j, 2, best + j, at + j, first);
            else if (p->sw == 1) passes_KIND(p, line + j, 1, best + j, at + j, first);
            else passes_KIND(p, line + j * p->sw, p->sw, best + j, at + j, first);
        }
    }
    if (p->yw == 1) {
        memcpy(y, best, sizeof(REAL) * (size_t)n);
        for (int64_t j = 0; j < n; j++) at_y[j] = at[j];
    } else for (int64_t j = 0; j < n; j++) y[j * p->yw] = best[j], at_y[j * p->yw] = at[j];
}
/* n channels of output (r, c). */
static void max_pixel_KIND(const Pool *p, const REAL *x, REAL *y, int64_t *at_y, int64_t r, int64_t c, int64_t n) {
    const int64_t h0 = r * p->sh - p->ph, top = inside(h0, p->dh), w0 = c * p->sw - p->pw, left = inside(w0, p->dw);
    for (int64_t j = 0; j < n; j++) y[j] = -(REAL)INFINITY, at_y[j] = top * p->W + left;
    for (int64_t h = top; h < least(p->H, h0 + p->KH * p->dh); h += p->dh)
        for (int64_t w = left; w < least(p->W, w0 + p->KW * p->dw); w += p->dw) {
            const REAL *from = x + h * p->xh + w * p->xw;
            for (int64_t j = 0; j < n; j++) {
                const int better = (from[j] > y[j]) | (from[j] != from[j]);
                y[j] = better ? from[j] : y[j], at_y[j] = better ? h * p->W + w : at_y[j];
            }
        }
}
static int64_t max_KIND(const Pool *p, int64_t t) {
    const int64_t end = least((t + 1) * p->block, p->planes), most_outputs = least(ROW, (LINE - (p->KW - 1) * p->dw - 1) / p->sw - 2 * BLOCK);
    for (int64_t i = t * p->block; i < end; i++) {
        const int64_t n = p->last ? i : i / p->channels, c = p->last ? 0 : i % p->channels, y0 = n * p->yn + c * p->yc;
        const REAL *x = (const REAL *)p->x + n * p->xn + c * p->xc;
        for (int64_t r = 0; r < p->OH; r++)
            if (p->last) {
                for (int64_t o = 0, at; o < p->OW; o++)
                    at = y0 + r * p->yh + o * p->yw, max_pixel_KIND(p, x, (REAL *)p->y + at, p->at + at, r, o, p->channels);
            } else
                for (int64_t o = 0, at; o < p->OW; o += most_outputs)
                    at = y0 + r * p->yh + o * p->yw, max_row_KIND(p, x, (REAL *)p->y + at, p->at + at, r, o, least(most_outputs, p->OW - o));
    }
    return 0;
}
/* How many numbers the window at row r, column c averages. Padding counts if asked for, but not what lies beyond it. */
static inline REAL among_KIND(const Pool *p, int64_t r, int64_t c) {
    const int64_t h = r * p->sh - p->ph, w = c * p->sw - p->pw, h1 = least(h + p->KH, p->H + p->ph), w1 = least(w + p->KW, p->W + p->pw);
    if (p->divisor) return (REAL)p->divisor;
    if (p->padded) return (REAL)((h1 - h) * (w1 - w));
    return (REAL)((least(h1, p->H) - most(h, 0)) * (least(w1, p->W) - most(w, 0)));
}
/* y (planes, OH, OW) = the average of each window of x (planes, H, W). */
static int64_t avg_KIND(const Pool *p, int64_t t) {
    const int64_t end = least((t + 1) * p->block, p->planes);
    for (int64_t i = t * p->block; i < end; i++) {
        const REAL *const x = (const REAL *)p->x + i * p->H * p->W;
        for (int64_t r = 0; r < p->OH; r++) {
            REAL *const y = (REAL *)p->y + (i * p->OH + r) * p->OW;
            const int64_t h0 = r * p->sh - p->ph;
            memset(y, 0, sizeof(REAL) * (size_t)p->OW);
            for (int64_t h = most(h0, 0); h < least(h0 + p->KH, p->H); h++)
                for (int64_t k = 0; k < p->KW; k++) {
                    const REAL *const from = x + h * p->W + k - p->pw;
                    const int64_t last = after_with(p, k);
                    if (p->sw == 1) for (int64_t c = first_with(p, k); c < last; c++) y[c] += from[c];
                    else if (p->sw == 2) for (int64_t c = first_with(p, k); c < last; c++) y[c] += from[2 * c];
                    else for (int64_t c = first_with(p, k); c < last; c++) y[c] += from[c * p->sw];
                }
            for (int64_t c = 0; c < p->OW; c++) y[c] /= among_KIND(p, r, c);
        }
    }
    return 0;
}
/* x (planes, H, W) = each number of y (planes, OH, OW) shared among its window. */
static int64_t avg_back_KIND(const Pool *p, int64_t t) {
    const int64_t end = least((t + 1) * p->block, p->planes);
    for (int64_t i = t * p->block; i < end; i++) {
        REAL *const x = (REAL *)p->x + i * p->H * p->W;
        memset(x, 0, sizeof(REAL) * (size_t)(p->H * p->W));
        for (int64_t r = 0; r < p->OH; r++)
            for (int64_t c0 = 0; c0 < p->OW; c0 += ROW) {
                const int64_t n = least(ROW, p->OW - c0), h0 = r * p->sh - p->ph;
                const REAL *const y = (const REAL *)p->y + (i * p->OH + r) * p->OW;
                REAL share[ROW];
                for (int64_t c = 0; c < n; c++) share[c] = y[c0 + c] / among_KIND(p, r, c0 + c);
                for (int64_t h = most(h0, 0); h < least(h0 + p->KH, p->H); h++)
                    for (int64_t k = 0; k < p->KW; k++) {
                        REAL *const to = x + h * p->W + k - p->pw;
                        for (int64_t c = most(first_with(p, k), c0); c < least(after_with(p, k), c0 + n); c++) to[c * p->sw] += share[c - c0];
                    }
            }
    }
    return 0;
}
/* x (planes, W) = zeros with y (planes, OW) added at at (planes, OW). */
static int64_t spread_KIND(const Pool *p, int64_t t) {
    const int64_t end = least((t + 1) * p->block, p->planes);
    for (int64_t i = t * p->block; i < end; i++) {
        REAL *const x = (REAL *)p->x + i * p->W;
        const REAL *const y = (const REAL *)p->y + i * p->OW;
        const int64_t *const at = p->at + i * p->OW;
        memset(x, 0, sizeof(REAL) * (size_t)p->W);
        for (int64_t j = 0; j < p->OW; j++) x[at[j]] += y[j];
    }
    return 0;
}
"""
