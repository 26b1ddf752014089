"""The loop of max pooling in one or two dimensions, printed as C; run as the loops of convolution are (`conv_plans.run`).

A row of outputs is kept in two small buffers, the greatest so far and where it was, while the numbers of the kernel pass over it: each is
one pass over a row of the input, in vectors. `inner` numbers lie side by side: the pixels of a row, or, in channels-last images, the
channels of a pixel.
"""

from __future__ import annotations

from flambeau.kernels.print_conv import PARAMETERS

TYPES = {"f32": ("float", "int32_t"), "f64": ("double", "int64_t")}
FIELDS = "x y at planes channels xn xc xh xw yn yc yh yw H W OH OW KH KW sh sw ph pw dh dw block last".split()


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    fields = "".join(f"    {'char *' if f in ('x', 'y') else 'int64_t *' if f == 'at' else 'int64_t '}{f};\n" for f in FIELDS)
    texts = ["#include <string.h>\ntypedef struct {\n" + fields + "} Pool;\nenum { ROW = 512 };\n" + _SMALL]
    texts += [_MAX.replace("REAL", real).replace("INDEX", index).replace("KIND", kind) for kind, (real, index) in TYPES.items()]
    declared = [f"void FL_NAME(pool_max_{kind}){PARAMETERS};\n" for kind in TYPES]
    rows = [f'{{"pool.max_{kind}", FL_NAME(pool_max_{kind}), FL_I64, 2, 1, 1, FL_I64, {{FL_I64, FL_I64}}, 128}}' for kind in TYPES]
    return texts, declared, rows


_SMALL = """static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
/* The first position of a window that is inside. */
static inline int64_t inside(int64_t start, int64_t step) { return start < 0 ? start + (-start + step - 1) / step * step : start; }
"""

_MAX = """
static inline void pass_KIND(const REAL *x, int64_t step, int64_t n, REAL *best, INDEX *at, INDEX first, INDEX apart) {
    for (int64_t j = 0; j < n; j++) {
        const REAL v = x[j * step];
        const int better = (v > best[j]) | (v != v); /* NaN is greater than all */
        best[j] = better ? v : best[j];
        at[j] = better ? first + (INDEX)j * apart : at[j];
    }
}
/* Outputs c to c + n of row r of one plane; n channels of one output, if `last`. */
static void max_KIND(const Pool *p, const REAL *x, REAL *y, int64_t *at_y, int64_t r, int64_t c, int64_t n) {
    REAL best[ROW];
    INDEX at[ROW];
    const int64_t h0 = r * p->sh - p->ph, top = inside(h0, p->dh);
    for (int64_t j = 0; j < n; j++) {
        best[j] = -(REAL)INFINITY;
        at[j] = (INDEX)(top * p->W + inside((p->last ? c : c + j) * p->sw - p->pw, p->dw));
    }
    for (int64_t h = top; h < least(p->H, h0 + p->KH * p->dh); h += p->dh)
        for (int64_t k = 0; k < p->KW; k++) {
            const int64_t w = c * p->sw - p->pw + k * p->dw; /* of the first output */
            if (p->last) {
                if (w >= 0 && w < p->W) pass_KIND(x + h * p->xh + w * p->xw, 1, n, best, at, (INDEX)(h * p->W + w), 0);
                continue;
            }
            const int64_t from = w < 0 ? (-w + p->sw - 1) / p->sw : 0, until = w < p->W ? least(n, (p->W - 1 - w) / p->sw + 1) : 0;
            if (from >= until) continue;
            const REAL *row = x + h * p->xh + (w + from * p->sw) * p->xw;
            const int64_t step = p->sw * p->xw;
            const INDEX first = (INDEX)(h * p->W + w + from * p->sw), apart = (INDEX)p->sw;
            if (step == 2) pass_KIND(row, 2, until - from, best + from, at + from, first, 2);
            else if (step == 1) pass_KIND(row, 1, until - from, best + from, at + from, first, 1);
            else pass_KIND(row, step, until - from, best + from, at + from, first, apart);
        }
    const int64_t out = p->last ? 1 : p->yw;
    for (int64_t j = 0; j < n && out == 1; j++) at_y[j] = at[j];
    if (out == 1) memcpy(y, best, sizeof(REAL) * (size_t)n);
    else for (int64_t j = 0; j < n; j++) y[j * out] = best[j], at_y[j * out] = at[j];
}
static int64_t max_task_KIND(const Pool *p, int64_t t) {
    const int64_t end = least((t + 1) * p->block, p->planes);
    for (int64_t i = t * p->block; i < end; i++) {
        const int64_t n = p->last ? i : i / p->channels, c = p->last ? 0 : i % p->channels, y0 = n * p->yn + c * p->yc;
        const REAL *x = (const REAL *)p->x + n * p->xn + c * p->xc;
        for (int64_t r = 0; r < p->OH; r++)
            if (p->last) {
                for (int64_t o = 0; o < p->OW; o++)
                    for (int64_t q = 0, at; q < p->channels; q += ROW)
                        at = y0 + r * p->yh + o * p->yw + q, max_KIND(p, x + q, (REAL *)p->y + at, p->at + at, r, o, least(ROW, p->channels - q));
            } else
                for (int64_t o = 0, at; o < p->OW; o += ROW)
                    at = y0 + r * p->yh + o * p->yw, max_KIND(p, x, (REAL *)p->y + at, p->at + at, r, o, least(ROW, p->OW - o));
    }
    return 0;
}
void FL_NAME(pool_max_KIND)(char *const *ptr, const int64_t *step, int64_t n, const double *param) {
    for (int64_t i = 0; i < n; i++)
        *(int64_t *)(ptr[0] + i * step[0]) = max_task_KIND((const Pool *)(ptr[2] + i * step[2]), *(const int64_t *)(ptr[1] + i * step[1]));
}
"""
