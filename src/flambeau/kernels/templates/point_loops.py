"""Reading at points that lie between elements, in C: see indexing/interpolation.py, whose formulas for the neighbours of a point are printed here.

points.taps     (weights, positions, places; what a line costs, points, dims, neighbours along a dimension, way, sizes)
points.mix      (out, x, places, weights; cost, points, taps)                   points.spread   (out, g, places, weights; cost, points, taps, size)
points.along    (out, g, x, places; cost, points, channels, size)
"""

from __future__ import annotations

from itertools import product

from flambeau.kernels.indexing.interpolation import MODES, PADDINGS, Words, line_taps
from flambeau.kernels.language import expr as e
from flambeau.kernels.language.print_c import LoopPrinter
from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table, filled

REALS = {"f32": dict(REAL="float", BITS="uint32_t", MASK="int32_t"), "f64": dict(REAL="double", BITS="uint64_t", MASK="int64_t")}
LOOPS = {"taps": ("T i32", 8), "mix": ("T i32 T", 3), "spread": ("T i32 T", 4), "along": ("T T i32", 4)}  # operands, how many numbers


def table() -> Table:
    loops = Table("#include <string.h>\nenum { BLOCK = 64 };\n")
    for kind, words in REALS.items():
        loops.texts += [_formulas(kind, words["REAL"]), filled(_TEXT, words | {"KIND": kind, "PARAMETERS": PARAMETERS})]
        for name, (operands, numbers) in LOOPS.items():
            loops.add(f"points.{name}", f"points_{name}_{kind}", kind, operands, numbers, LINES)
    return loops


def _formulas(kind: str, real: str) -> str:
    """A function for every mode, padding and meaning of the ends, that finds the neighbours of up to BLOCK positions along one dimension."""
    printer, words = LoopPrinter("float32" if kind == "f32" else "float64"), Words(e.where, e.floor, e.rint, e.fmod)
    parameters = f"(const {real} *x, int64_t step, int64_t n, {real} p0, {real} (*at)[BLOCK], {real} (*w)[BLOCK])"
    text, names = "", []
    for mode, padding, corners in product(MODES, PADDINGS, (False, True)):
        names.append(f"{mode}_{padding}_{'corners' if corners else 'edges'}_{kind}")
        at, weights = line_taps(e.load(0), e.param(0), mode, padding, corners, words)
        lines, values = printer.bodies([e.lift(v) for v in (*at, *weights)])
        stores = [f"at[{k}][i] = {v};" for k, v in enumerate(values[: len(at)])] + [
            f"w[{k}][i] = {v};" for k, v in enumerate(values[len(at) :])
        ]
        body = "\n        ".join([f"const {real} x0 = x[i * step];", *lines, *stores])
        text += f"static void {names[-1]}{parameters} {{\n    (void)p0;\n    FL_IVDEP for (int64_t i = 0; i < n; i++) {{\n        {body}\n    }}\n}}\n"
    return text + f"static void (*const ways_{kind}[]){parameters} = {{{', '.join(names)}}};\n"


# What is nowhere is read at place 0 and its bits are taken away: a choice would keep the compiler from reading whole vectors.
_TEXT = """
static inline void read_KIND(REAL *to, const REAL *x, const int32_t *at, int64_t n) {
    const BITS *const all = (const BITS *)x;
    BITS *const out = (BITS *)to;
    FL_IVDEP for (int64_t i = 0; i < n; i++) out[i] = all[at[i] < 0 ? 0 : at[i]] & ~(BITS)((MASK)at[i] >> (8 * sizeof(MASK) - 1));
}
void FL_NAME(points_taps_KIND)PARAMETERS {
    const int64_t points = (int64_t)param[1], dims = (int64_t)param[2], each = (int64_t)param[3], way = (int64_t)param[4];
    int64_t taps = 1;
    for (int d = 0; d < dims; d++) taps *= each;
    for (int64_t k = 0; k < n; k++)
        for (int64_t p = 0; p < points; p += BLOCK) {
            const int64_t m = points - p < BLOCK ? points - p : BLOCK;
            FL_ALIGNED REAL at[3][4][BLOCK], w[3][4][BLOCK];
            for (int d = 0; d < dims; d++)
                ways_KIND[way]((const REAL *)(ptr[1] + k * step[1]) + p * dims + dims - 1 - d, dims, m, (REAL)param[5 + d], at[d], w[d]);
            for (int64_t t = 0; t < taps; t++) {
                REAL *const weight = (REAL *)(ptr[0] + k * step[0]) + t * points + p;
                int32_t *const place = (int32_t *)(ptr[2] + k * step[2]) + t * points + p, inside[BLOCK];
                for (int64_t d = 0, rest = t, part = taps / each; d < dims; d++, rest %= part, part /= each) {
                    const REAL *const a = at[d][rest / part], *const v = w[d][rest / part], last = (REAL)(param[5 + d] - 1);
                    const int32_t size = (int32_t)param[5 + d];
                    FL_IVDEP for (int64_t i = 0; i < m; i++) {
                        const int32_t in = (a[i] >= 0) & (a[i] <= last), here = in ? (int32_t)a[i] : 0;
                        place[i] = d ? place[i] * size + here : here, weight[i] = d ? weight[i] * v[i] : v[i], inside[i] = d ? inside[i] & in : in;
                    }
                }
                for (int64_t i = 0; i < m; i++) place[i] = inside[i] ? place[i] : -1;
            }
        }
}
void FL_NAME(points_mix_KIND)PARAMETERS {
    const int64_t points = (int64_t)param[1], taps = (int64_t)param[2];
    for (int64_t k = 0; k < n; k++) {
        REAL *const out = (REAL *)(ptr[0] + k * step[0]);
        const REAL *const x = (const REAL *)(ptr[1] + k * step[1]), *const weights = (const REAL *)(ptr[3] + k * step[3]);
        const int32_t *const places = (const int32_t *)(ptr[2] + k * step[2]);
        for (int64_t p = 0; p < points; p += BLOCK) {
            const int64_t m = points - p < BLOCK ? points - p : BLOCK;
            FL_ALIGNED REAL sum[BLOCK] = {0}, v[BLOCK];
            for (int64_t t = 0; t < taps; t++) {
                const REAL *const w = weights + t * points + p;
                read_KIND(v, x, places + t * points + p, m);
                FL_IVDEP for (int64_t i = 0; i < m; i++) sum[i] += w[i] * v[i];
            }
            memcpy(out + p, sum, sizeof(REAL) * (size_t)m);
        }
    }
}
void FL_NAME(points_spread_KIND)PARAMETERS {
    const int64_t points = (int64_t)param[1], taps = (int64_t)param[2], size = (int64_t)param[3];
    for (int64_t k = 0; k < n; k++) {
        REAL *const out = (REAL *)(ptr[0] + k * step[0]);
        const REAL *const g = (const REAL *)(ptr[1] + k * step[1]), *const weights = (const REAL *)(ptr[3] + k * step[3]);
        const int32_t *const places = (const int32_t *)(ptr[2] + k * step[2]);
        memset(out, 0, sizeof(REAL) * (size_t)size);
        for (int64_t t = 0; t < taps; t++)
            for (int64_t i = t * points, p = 0; p < points; i++, p++)
                if (places[i] >= 0) out[places[i]] += weights[i] * g[p];
    }
}
void FL_NAME(points_along_KIND)PARAMETERS {
    const int64_t points = (int64_t)param[1], channels = (int64_t)param[2], size = (int64_t)param[3];
    for (int64_t k = 0; k < n; k++) {
        REAL *const out = (REAL *)(ptr[0] + k * step[0]);
        const REAL *const grad = (const REAL *)(ptr[1] + k * step[1]), *const x = (const REAL *)(ptr[2] + k * step[2]);
        const int32_t *const places = (const int32_t *)(ptr[3] + k * step[3]);
        for (int64_t p = 0; p < points; p += BLOCK) {
            const int64_t m = points - p < BLOCK ? points - p : BLOCK;
            FL_ALIGNED REAL sum[BLOCK] = {0}, v[BLOCK];
            for (int64_t c = 0; c < channels; c++) {
                const REAL *const g = grad + c * points + p;
                read_KIND(v, x + c * size, places + p, m);
                FL_IVDEP for (int64_t i = 0; i < m; i++) sum[i] += g[i] * v[i];
            }
            memcpy(out + p, sum, sizeof(REAL) * (size_t)m);
        }
    }
}
"""
