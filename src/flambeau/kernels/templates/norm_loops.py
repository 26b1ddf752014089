"""The loops of batch norm and group norm, printed as C: the statistics of a set of numbers, and all that is done with them while it is near.

    norm.lines        a set is some lines of memory: a channel of all samples, or a group of channels of one
    norm.columns      sets are columns side by side: features, or images whose channels lie side by side; an element is a block of them
    ..._backward      likewise, for the gradients

Sums are carried in double precision, in an order fixed by the shape. The variance is found from sums of (x - shift) and its square. The shift is
an element of the set, which costs no digits of float32 even if it lies ten thousand deviations from the mean; float64 is looked at twice,
the second time with the mean for a shift. A set belongs to one thread: see channels.py for sets that are few and large.
"""

from __future__ import annotations

REALS = {"f32": ("float", "FL_F32", 1), "f64": ("double", "FL_F64", 2)}  # C, the launcher's name, how often x is looked at
LANES = 32  # sums side by side: element i of a line goes to lane i % LANES
WIDTH = 64  # columns of a block at most
PARAMETERS = "(char *const *ptr, const int64_t *step, int64_t n, const double *param)"

# name: (types of the inputs, T being the dtype in question; how many numbers)
LOOPS = {
    "lines": ("T" * 6, 6),  # x, weight, bias, mean, rstd, var; work, lines, elements from line to line, of a line, weights by line?, eps
    "lines_backward": ("T" * 5 + "DD", 5),  # grad, x, weight, mean, rstd, sum of grad, of grad * y; the same without eps
    "columns": ("T" * 6 + "I", 4),  # as lines, how many columns; work, rows, elements from row to row, eps
    "columns_backward": ("T" * 5 + "DDI", 3),
}


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    texts, declarations, rows = [_BOTH], [], []
    for kind, (real, enum, looks) in REALS.items():
        texts.append(_TEXT.replace("REAL", real).replace("KIND", kind).replace("LOOKS", str(looks)).replace("PARAMETERS", PARAMETERS))
        for name, (inputs, numbers) in LOOPS.items():
            declarations.append(f"void FL_NAME(norm_{name}_{kind}){PARAMETERS};\n")
            types = ", ".join({"T": enum, "D": "FL_F64", "I": "FL_I64"}[i] for i in inputs)
            generic = sum(1 << i for i, t in enumerate(inputs) if t == "T")
            rows.append(
                f'{{"norm.{name}", FL_NAME(norm_{name}_{kind}), {enum}, {len(inputs)}, {numbers}, {generic}, {enum}, {{{types}}}, FL_LINES}}'
            )
    return texts, declarations, rows


_BOTH = f"""
enum {{ LANES = {LANES}, WIDTH = {WIDTH} }};
static inline double start(double x) {{ return x - x == 0 ? x : 0; }} /* a shift that is not finite would make NaN of infinity */
static inline double no_less(double var) {{ return var < 0 ? 0 : var; }} /* NaN stays */
static inline double total(double *a) {{
    for (int w = LANES / 2; w; w /= 2) for (int l = 0; l < w; l++) a[l] += a[l + w];
    return a[0];
}}
"""

_TEXT = """
void FL_NAME(norm_lines_KIND)PARAMETERS {
    int64_t lines = (int64_t)param[1], apart = (int64_t)param[2], length = (int64_t)param[3], weights = (int64_t)param[4];
    const double count = (double)(lines * length), zero = fl_zero();
    for (int64_t k = 0; k < n; k++) {
        REAL *const y = (REAL *)(ptr[0] + k * step[0]);
        const REAL *const x = (const REAL *)(ptr[1] + k * step[1]);
        const REAL *const weight = (const REAL *)(ptr[2] + k * step[2]), *const bias = (const REAL *)(ptr[3] + k * step[3]);
        const int64_t runs = apart == length ? 1 : lines, run = apart == length ? lines * length : length;
        double s = start(x[0]), var = 0;
        for (int look = 0; look < LOOKS; look++) {
            FL_ALIGNED double a[LANES], b[LANES];
            for (int l = 0; l < LANES; l++) a[l] = b[l] = zero;
            for (int64_t r = 0; r < runs; r++) {
                const REAL *const from = x + r * apart;
                int64_t i = 0;
                for (; i + LANES <= run; i += LANES)
                    FL_COUNTED for (int l = 0; l < LANES; l++) { const double v = from[i + l] - s; a[l] += v, b[l] += v * v; }
                for (int l = 0; l < (int)(run - i); l++) { const double v = from[i + l] - s; a[l] += v, b[l] += v * v; }
            }
            const double off = total(a) / count;
            var = no_less(total(b) / count - off * off), s += off;
        }
        const double rstd = 1 / sqrt(var + param[5]);
        const REAL mean = (REAL)s;
        *(REAL *)(ptr[4] + k * step[4]) = mean, *(REAL *)(ptr[5] + k * step[5]) = (REAL)rstd, *(REAL *)(ptr[6] + k * step[6]) = (REAL)var;
        if (length == 1 && apart == 1 && weights)
            FL_IVDEP for (int64_t i = 0; i < lines; i++) y[i] = (x[i] - mean) * (REAL)(rstd * weight[i]) + bias[i];
        else for (int64_t r = 0; r < lines; r++) {
            const REAL *const from = x + r * apart, scale = (REAL)(rstd * weight[r * weights]), shift = bias[r * weights];
            REAL *const to = y + r * apart;
            FL_IVDEP for (int64_t i = 0; i < length; i++) to[i] = (from[i] - mean) * scale + shift;
        }
    }
}
/* rstd * (h - mean(h) - y * mean(h * y)) with h = grad * weight, y = (x - mean) * rstd. Sums of grad and grad * y: of each line that has a
   weight of its own, or of all. */
void FL_NAME(norm_lines_backward_KIND)PARAMETERS {
    int64_t lines = (int64_t)param[1], apart = (int64_t)param[2], length = (int64_t)param[3], weights = (int64_t)param[4];
    const double count = (double)(lines * length), zero = fl_zero();
    for (int64_t k = 0; k < n; k++) {
        REAL *const dx = (REAL *)(ptr[0] + k * step[0]);
        const REAL *const grad = (const REAL *)(ptr[1] + k * step[1]), *const x = (const REAL *)(ptr[2] + k * step[2]);
        const REAL *const weight = (const REAL *)(ptr[3] + k * step[3]), mean = *(const REAL *)(ptr[4] + k * step[4]);
        const double rstd = *(const REAL *)(ptr[5] + k * step[5]);
        double *const sums = (double *)(ptr[6] + k * step[6]), *const products = (double *)(ptr[7] + k * step[7]), h = 0, hy = 0;
        FL_ALIGNED double a[LANES], b[LANES];
        for (int l = 0; l < LANES; l++) a[l] = b[l] = zero;
        for (int64_t r = 0; r < lines; r++) {
            const REAL *const g = grad + r * apart, *const from = x + r * apart;
            int64_t i = 0;
            for (; i + LANES <= length; i += LANES)
                FL_COUNTED for (int l = 0; l < LANES; l++) { const double v = g[i + l]; a[l] += v, b[l] += v * (from[i + l] - mean); }
            for (int l = 0; l < (int)(length - i); l++) { const double v = g[i + l]; a[l] += v, b[l] += v * (from[i + l] - mean); }
            if (!weights && r + 1 < lines) continue;
            const int64_t at = r * weights;
            sums[at] = total(a), products[at] = total(b) * rstd;
            h += sums[at] * weight[at], hy += products[at] * weight[at];
            for (int l = 0; l < LANES; l++) a[l] = b[l] = zero;
        }
        const REAL slope = (REAL)(rstd * rstd * hy / count), shift = (REAL)(rstd * h / count);
        for (int64_t r = 0; r < lines; r++) {
            const REAL *const g = grad + r * apart, *const from = x + r * apart, scale = (REAL)(rstd * weight[r * weights]);
            REAL *const to = dx + r * apart;
            FL_IVDEP for (int64_t i = 0; i < length; i++) to[i] = g[i] * scale - (from[i] - mean) * slope - shift;
        }
    }
}
static inline void columns_KIND(char *const *at, int64_t rows, int64_t apart, double eps, const int width) {
    const REAL *const x = (const REAL *)at[1], *const weight = (const REAL *)at[2], *const bias = (const REAL *)at[3];
    REAL *const y = (REAL *)at[0], *const mean = (REAL *)at[4];
    FL_ALIGNED double s[WIDTH], a[WIDTH], b[WIDTH];
    FL_ALIGNED REAL scale[WIDTH];
    for (int c = 0; c < width; c++) s[c] = start(x[c]);
    for (int look = 0; look < LOOKS; look++) {
        int64_t r = 0;
        for (int c = 0; c < width; c++) a[c] = b[c] = 0;
        for (; r + 4 <= rows; r += 4) {
            const REAL *const x0 = x + r * apart, *const x1 = x0 + apart, *const x2 = x1 + apart, *const x3 = x2 + apart;
            FL_IVDEP for (int c = 0; c < width; c++) {
                const double v0 = x0[c] - s[c], v1 = x1[c] - s[c], v2 = x2[c] - s[c], v3 = x3[c] - s[c];
                a[c] += (v0 + v1) + (v2 + v3), b[c] += (v0 * v0 + v1 * v1) + (v2 * v2 + v3 * v3);
            }
        }
        for (; r < rows; r++) FL_IVDEP for (int c = 0; c < width; c++) { const double v = x[r * apart + c] - s[c]; a[c] += v, b[c] += v * v; }
        FL_IVDEP for (int c = 0; c < width; c++) {
            const double off = a[c] / (double)rows;
            b[c] = no_less(b[c] / (double)rows - off * off), s[c] += off;
        }
    }
    FL_IVDEP for (int c = 0; c < width; c++) {
        const double rstd = 1 / sqrt(b[c] + eps);
        mean[c] = (REAL)s[c], ((REAL *)at[5])[c] = (REAL)rstd, ((REAL *)at[6])[c] = (REAL)b[c], scale[c] = (REAL)(rstd * weight[c]);
    }
    for (int64_t r = 0; r < rows; r++)
        FL_IVDEP for (int c = 0; c < width; c++) y[r * apart + c] = (x[r * apart + c] - mean[c]) * scale[c] + bias[c];
}
static inline void columns_backward_KIND(char *const *at, int64_t rows, int64_t apart, const int width) {
    const REAL *const g = (const REAL *)at[1], *const x = (const REAL *)at[2], *const weight = (const REAL *)at[3], *const mean = (const REAL *)at[4];
    REAL *const dx = (REAL *)at[0];
    FL_ALIGNED double a[WIDTH], b[WIDTH];
    FL_ALIGNED REAL scale[WIDTH], slope[WIDTH], shift[WIDTH];
    int64_t r = 0;
    for (int c = 0; c < width; c++) a[c] = b[c] = 0;
    for (; r + 2 <= rows; r += 2) {
        const REAL *const x0 = x + r * apart, *const x1 = x0 + apart, *const g0 = g + r * apart, *const g1 = g0 + apart;
        FL_IVDEP for (int c = 0; c < width; c++) {
            const double v0 = g0[c], v1 = g1[c];
            a[c] += v0 + v1, b[c] += v0 * (x0[c] - mean[c]) + v1 * (x1[c] - mean[c]);
        }
    }
    if (r < rows) FL_IVDEP for (int c = 0; c < width; c++) a[c] += g[r * apart + c], b[c] += (double)g[r * apart + c] * (x[r * apart + c] - mean[c]);
    FL_IVDEP for (int c = 0; c < width; c++) {
        const double rstd = ((const REAL *)at[5])[c], along = b[c] * rstd, each = rstd * weight[c] / (double)rows;
        ((double *)at[6])[c] = a[c], ((double *)at[7])[c] = along;
        scale[c] = (REAL)(rstd * weight[c]), slope[c] = (REAL)(rstd * along * each), shift[c] = (REAL)(a[c] * each);
    }
    for (r = 0; r < rows; r++)
        FL_IVDEP for (int c = 0; c < width; c++)
            dx[r * apart + c] = g[r * apart + c] * scale[c] - (x[r * apart + c] - mean[c]) * slope[c] - shift[c];
}
void FL_NAME(norm_columns_KIND)PARAMETERS {
    for (int64_t k = 0; k < n; k++) {
        char *at[8];
        for (int o = 0; o < 8; o++) at[o] = ptr[o] + k * step[o];
        const int width = (int)*(const int64_t *)at[7];
        const int64_t rows = (int64_t)param[1], apart = (int64_t)param[2];
        if (width == WIDTH) columns_KIND(at, rows, apart, param[3], WIDTH);
        else if (width == 16) columns_KIND(at, rows, apart, param[3], 16);
        else columns_KIND(at, rows, apart, param[3], width);
    }
}
void FL_NAME(norm_columns_backward_KIND)PARAMETERS {
    for (int64_t k = 0; k < n; k++) {
        char *at[9];
        for (int o = 0; o < 9; o++) at[o] = ptr[o] + k * step[o];
        const int width = (int)*(const int64_t *)at[8];
        const int64_t rows = (int64_t)param[1], apart = (int64_t)param[2];
        if (width == WIDTH) columns_backward_KIND(at, rows, apart, WIDTH);
        else if (width == 16) columns_backward_KIND(at, rows, apart, 16);
        else columns_backward_KIND(at, rows, apart, width);
    }
}
"""
