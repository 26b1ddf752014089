"""8-bit products as C: rows of float32 are quantized, multiplied with int8 weights in int32, exactly, and become float32 again.

    quantized.range     the least and greatest of some elements (NaN if there is one)
    quantized.rows      x (float32) -> u8, q = round(x / scale + zero), where scale and zero follow from the range of all of x
    quantized.product   y = (sum q w - zero sum w) * scale_x scale_w + bias, for a block of rows and a panel of 64 columns
    quantized.<cell>    a step of a recurrent network from the two products of its gates: the formulas of print_recurrent.py
    quantized.<cell>_steps      all of its steps

Weights lie in panels of 64 columns, four elements of each column side by side (quantized.py makes them, once): (panels, K / 4, 64, 4).
One instruction of AVX-512 VNNI multiplies 64 such bytes with four bytes of a row, repeated, and adds fours of products to 16 sums. A tile of
6 rows and 4 vectors stays in registers while K is walked. With AVX2 bytes are widened to 16 bits, whose products in pairs fit 32 bits, unless
those of the row are so few that the products of the bytes themselves fit 16: nothing saturates, all variants give the same integers.
"""

from __future__ import annotations

from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table
from flambeau.kernels.templates.print_recurrent import _STEP, CELLS
from flambeau.kernels.templates.recurrent import GATES

PANEL = 64
BLOCK, DEPTH = 48, 128  # rows, and bytes of each, for which a part of a panel stays in the nearest cache: their sums are kept there, too
MOST = {"vnni": 6, "avx2": 3, "narrow": 3, "plain": 1}  # rows of a tile


def table() -> Table:
    texts = [_HEAD, "#ifdef __AVX512F__\n", *map(_vnni, range(1, MOST["vnni"] + 1)), "#endif\n#ifdef __AVX2__\n"]
    texts += [*map(_avx2, range(1, MOST["avx2"] + 1)), *map(_narrow, range(1, MOST["narrow"] + 1)), "#endif\n", _PLAIN, _pick(), _TEXT]
    entries = {"range": ("f32", "f32 i64", 1), "rows": ("u8", "f32 f32 f32 i64", 5), "product": ("f32", "u8 i8 f32 f32 i64 i64", 6)}
    for cell, (formula, _) in CELLS.items():
        state, start = ("cell", "c0") if cell == "lstm" else ("out", "h0")
        words = {"cell": cell, "gates": GATES[cell], "formula": formula.format(real="float"), "state": state, "start": start}
        texts += [_CELL.format(**words), _STEPS.format(**words)]
        entries[cell] = "f32", "f32 f32 f32 f32", 2
        entries[f"{cell}_steps"] = "f32", "f32 u8 f32 f32 f32 i8 f32 f32 i64 f32", 4
    loops = Table(*texts)
    for name, (out, operands, numbers) in entries.items():
        loops.add(f"quantized.{name}", f"quantized_{name}", out, operands, numbers, LINES)
    return loops


def _function(kind: str, rows: int, target: str, lines: list[str]) -> str:
    head = f"{target}static void tile_{kind}_{rows}{_ARGUMENTS} {{\n"
    return head + "".join(f"    {line}\n" for line in lines) + "}\n"


def _vnni(rows: int) -> str:
    """Sums (rows, 64). One row has two sets of sums, which take turns: less than 8 sums would wait for each other."""
    sets = 2 if rows == 1 else 1
    sums = [[f"c{i}{j}{s}" for j in range(4)] for s in range(sets) for i in range(rows)]
    lines = [f"__m512i {', '.join(f'{c} = _mm512_setzero_si512()' for c in row)};" for row in sums]
    starts = [f"c{i}{j}0 = _mm512_loadu_si512(c + {i * PANEL + j * 16})" for i in range(rows) for j in range(4)]
    lines += [f"if (add) {', '.join(starts)};", "int64_t q = 0;"]

    def step(s: int) -> list[str]:
        found = [f"    const __m512i b{j} = _mm512_loadu_si512(b + {j * 64});" for j in range(4)]
        for i in range(rows):
            found.append(f"    const __m512i a{i} = _mm512_set1_epi32(four(a + {i} * lda + 4 * q));")
            found += [f"    c{i}{j}{s} = _mm512_dpbusd_epi32(c{i}{j}{s}, a{i}, b{j});" for j in range(4)]
        return ["{", "    __builtin_prefetch(soon), soon += each;", *found, "    q++, b += 256;", "}"]

    if sets == 2:
        lines += [
            "for (; q + 2 <= quads;) {",
            "    __builtin_prefetch(b + 4160), __builtin_prefetch(b + 4224), __builtin_prefetch(b + 4288);",
        ]
        lines += [*step(0), *step(1), "}"]
    lines += ["for (; q < quads;)", *step(0)]
    for i in range(rows):
        for j in range(4):
            total = f"c{i}{j}0" if sets == 1 else f"_mm512_add_epi32(c{i}{j}0, c{i}{j}1)"
            lines.append(f"_mm512_storeu_si512(c + {i * PANEL + j * 16}, {total});")
    return _function("vnni", rows, '__attribute__((target("avx512vnni"))) ', lines)


def _avx2(rows: int) -> str:
    """Sums (rows, 64), 16 columns at a time: 4 vectors of 4 columns, of which each has two sums."""
    lines = ["for (int64_t at = 0; at < 64; at += 16) {"]
    lines += [f"    __m256i {', '.join(f'c{i}{j} = _mm256_setzero_si256()' for j in range(4))};" for i in range(rows)]
    lines += ["    const int8_t *from = b + 4 * at;", "    for (int64_t q = 0; q < quads; q++, from += 256) {"]
    lines += [f"        const __m256i a{i} = _mm256_cvtepu8_epi16(_mm_set1_epi32(four(a + {i} * lda + 4 * q)));" for i in range(rows)]
    for j in range(4):
        lines.append(f"        const __m256i b{j} = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(from + {16 * j})));")
        lines += [f"        c{i}{j} = _mm256_add_epi32(c{i}{j}, _mm256_madd_epi16(a{i}, b{j}));" for i in range(rows)]
    lines.append("    }")
    for i in range(rows):
        for j in (0, 2):
            both = f"_mm256_permute4x64_epi64(_mm256_hadd_epi32(c{i}{j}, c{i}{j + 1}), 0xd8)"
            here = f"(__m256i *)(c + {i * PANEL + 4 * j} + at)"
            lines.append(f"    _mm256_storeu_si256({here}, add ? _mm256_add_epi32(_mm256_loadu_si256({here}), {both}) : {both});")
    return _function("avx2", rows, "", [*lines, "}"])


def _narrow(rows: int) -> str:
    """The same for bytes of A up to 128, whose products with int8 in pairs fit 16 bits: 32 columns at a time, nothing is widened before."""
    lines = ["const __m256i ones = _mm256_set1_epi16(1);", "for (int64_t at = 0; at < 64; at += 32) {"]
    places = [(i, j, f"(__m256i *)(c + {i * PANEL + 8 * j} + at)") for i in range(rows) for j in range(4)]
    lines += [f"    __m256i c{i}{j} = add ? _mm256_loadu_si256({here}) : _mm256_setzero_si256();" for i, j, here in places]
    lines += ["    const int8_t *from = b + 4 * at;", "    for (int64_t q = 0; q < quads; q++, from += 256) {"]
    lines += [f"        const __m256i a{i} = _mm256_set1_epi32(four(a + {i} * lda + 4 * q));" for i in range(rows)]
    for j in range(4):
        lines.append(f"        const __m256i b{j} = _mm256_loadu_si256((const __m256i *)(from + {32 * j}));")
        pairs = [f"_mm256_madd_epi16(_mm256_maddubs_epi16(a{i}, b{j}), ones)" for i in range(rows)]
        lines += [f"        c{i}{j} = _mm256_add_epi32(c{i}{j}, {pair});" for i, pair in enumerate(pairs)]
    lines.append("    }")
    lines += [f"    _mm256_storeu_si256({here}, c{i}{j});" for i, j, here in places]
    return _function("narrow", rows, "", [*lines, "}"])


def _pick() -> str:
    """Which tiles this CPU runs; *most: how many rows the tallest has."""
    lists = {kind: ", ".join(f"tile_{kind}_{rows}" for rows in range(1, most + 1)) for kind, most in MOST.items()}

    def choice(kind: str) -> str:
        return f"{{ static fl_tile *const tiles[] = {{{lists[kind]}}}; *most = {MOST[kind]}; return tiles; }}\n"

    return (
        "static fl_tile *const *pick(int narrow, int64_t *most) {\n    (void)narrow;\n"
        + f'#ifdef __AVX512F__\n    if (__builtin_cpu_supports("avx512vnni")) {choice("vnni")}#endif\n'
        + f"#ifdef __AVX2__\n    if (narrow) {choice('narrow')}    {choice('avx2')}#else\n    {choice('plain')}#endif\n}}\n"
    )


_ARGUMENTS = "(int64_t quads, const uint8_t *a, int64_t lda, const int8_t *b, const int8_t *soon, int64_t each, int add, int32_t *c)"
_HEAD = """
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif
/* Sums (rows, 64) of products over 4 quads bytes of rows, `lda` bytes apart, and of a panel; to those in c, if they add. While they go on,
   memory is called for that will be read soon, `each` bytes at a step. */
typedef void fl_tile ARGUMENTS;
static inline int32_t four(const uint8_t *at) { int32_t word; memcpy(&word, at, 4); return word; }
#ifdef __FMA__
#define MULTIPLY_ADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) (float)((double)(a) * (b) + (c))
#endif
#define SIGMOID fl_sigmoid_f32
#define TANH fl_tanh_f32
""".replace("ARGUMENTS", _ARGUMENTS)

_PLAIN = """
#ifndef __AVX2__
static void tile_plain_1 ARGUMENTS {
    if (!add) memset(c, 0, 64 * sizeof *c);
    for (int64_t q = 0; q < quads; q++, a += 4, b += 256)
        for (int j = 0; j < 64; j++) c[j] += a[0] * b[4 * j] + a[1] * b[4 * j + 1] + a[2] * b[4 * j + 2] + a[3] * b[4 * j + 3];
}
#endif
""".replace("ARGUMENTS", _ARGUMENTS)

# Scale and zero are chosen as PyTorch does it, in the same precision at each step, so that the integers are the same.
_TEXT = (
    """
typedef struct { float low, high; } fl_range;
static fl_range range_of(const float *x, int64_t n) {
    float low = INFINITY, high = -INFINITY;
    int nan = 0;
#pragma omp simd reduction(fl_min : low) reduction(fl_max : high) reduction(| : nan)
    for (int64_t i = 0; i < n; i++) low = x[i] < low ? x[i] : low, high = x[i] > high ? x[i] : high, nan |= x[i] != x[i];
    return nan ? (fl_range){NAN, NAN} : (fl_range){low, high};
}
void FL_NAME(quantized_range)PARAMETERS {
    for (int64_t e = 0; e < n; e++) {
        const fl_range found = range_of((const float *)(ptr[1] + e * step[1]), *(const int64_t *)(ptr[2] + e * step[2]));
        memcpy(ptr[0] + e * step[0], &found, sizeof found);
    }
}
static void choose(fl_range r, int most, float *scale, int *zero) {
    const double small = 6.1e-5f;
    float low = r.low < 0 ? r.low : 0, high = r.high > 0 ? r.high : 0;
    double by = ((double)high - low) / most;
    if ((float)by == 0 || isinf(1.0f / (float)by)) by = 0.1;
    if (by < small) {
        const float wider = (float)small / (float)by;
        by = small;
        if (low == 0) high = (float)small * (float)most;
        else if (high == 0) low = -(float)small * (float)most;
        else low *= wider, high *= wider;
    }
    const double left = fabs(low / by), right = most + fabs(high / by);
    const double at = rint(left < right ? -(low / by) : most - high / by);
    *scale = (float)by, *zero = !(at > 0) ? 0 : at > most ? most : (int)at;
}
static fl_range both(fl_range a, fl_range b) { /* with NaN, NaN */
    const int nan = a.low != a.low || b.low != b.low;
    return nan ? (fl_range){NAN, NAN} : (fl_range){a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}
static void quantize(int64_t rows, int64_t depth, int64_t padded, const float *x, float scale, int zero, uint8_t *to) {
    const float inverse = 1.0f / scale, from = (float)zero;
    for (int64_t r = 0; r < rows; r++, to += padded, x += depth) {
        FL_IVDEP for (int64_t i = 0; i < depth; i++) {
            const float v = MULTIPLY_ADD(x[i], inverse, from), inside = v > 0 ? v < 255 ? v : 255 : 0;
            to[i] = (uint8_t)(int)(inside + 12582912.0f - 12582912.0f); /* to the nearest integer, of two the even one */
        }
        for (int64_t i = depth; i & 3; i++) to[i] = 0;
    }
}
/* A block of the result: rows of A, `lda` bytes apart, times a panel of weights, of which `cols` columns count. */
static void multiply(int64_t rows, int64_t cols, const uint8_t *a, int64_t lda, const int8_t *b, const float *columns, float by, int32_t zero,
    int64_t depth, int shifted, int narrow, float *out, int64_t ldo) {
    const float *const scale = columns, *const bias = columns + 64;
    const int32_t *const total = (const int32_t *)(columns + 128), *const zeros = total + 64;
    FL_ALIGNED int32_t sums[BLOCK * 64], less[64];
    FL_ALIGNED float factor[64], part_of_a_row[64];
    int64_t most;
    fl_tile *const *const tiles = pick(narrow, &most);
    for (int j = 0; j < 64; j++) factor[j] = by * scale[j], less[j] = zero * total[j];
    for (int64_t start = 0; start < rows; start += BLOCK, a += BLOCK * lda, out += BLOCK * ldo) {
        const int64_t block = rows - start < BLOCK ? rows - start : BLOCK, parts = (block + most - 1) / most;
        const int64_t whole = (depth + 3) / 4 * 4, deep = parts > 1 ? DEPTH : whole;
        for (int64_t k = 0; k < whole; k += deep)
            for (int64_t part = 0, i = 0, end; part < parts; part++, i = end) {
                end = block * (part + 1) / parts;
                tiles[end - i - 1]((whole - k < deep ? whole - k : deep) / 4, a + i * lda + k, lda, b + k * 64,
                                   b + k * 64 + (parts > 1 ? deep * 64 + deep * 64 * part / parts : 4096), 256 / parts, k > 0, sums + i * 64);
            }
        for (int64_t i = 0; i < block; i++) {
            const int32_t *const c = sums + i * 64;
            float *const y = cols < 64 ? part_of_a_row : out + i * ldo;
            if (!shifted) FL_COUNTED for (int j = 0; j < 64; j++) y[j] = MULTIPLY_ADD((float)(c[j] - less[j]), factor[j], bias[j]);
            else {
                int32_t row = 0;
                for (int64_t k = 0; k < depth; k++) row += a[i * lda + k] - zero;
                FL_COUNTED for (int j = 0; j < 64; j++) y[j] = MULTIPLY_ADD((float)(c[j] - less[j] - zeros[j] * row), factor[j], bias[j]);
            }
            if (cols < 64) memcpy(out + i * ldo, y, sizeof(float) * (size_t)cols);
        }
    }
}
/* param: work, elements of a row of x and of the result, how many ranges there are (none: they are found here), the greatest integer */
void FL_NAME(quantized_rows)PARAMETERS {
    const int64_t depth = (int64_t)param[1], parts = (int64_t)param[3];
    for (int64_t e = 0; e < n; e++) {
        const float *const x = (const float *)(ptr[1] + e * step[1]);
        const fl_range *const ranges = (const fl_range *)(ptr[2] + e * step[2]);
        float *const chosen = (float *)(ptr[3] + e * step[3]);
        const int64_t rows = *(const int64_t *)(ptr[4] + e * step[4]);
        fl_range all = parts ? ranges[0] : range_of(x, rows * depth);
        float scale;
        int zero;
        for (int64_t i = 1; i < parts; i++) all = both(all, ranges[i]);
        choose(all, (int)param[4], &scale, &zero);
        quantize(rows, depth, (int64_t)param[2], x, scale, zero, (uint8_t *)(ptr[0] + e * step[0]));
        chosen[0] = all.low != all.low ? NAN : scale, chosen[1] = (float)zero;
    }
}
/* param: work, bytes from row to row of A, elements from row to row of the result, K, whether weights have zero points,
   the greatest integer (which rounding may exceed by one) */
void FL_NAME(quantized_product)PARAMETERS {
    for (int64_t e = 0; e < n; e++) {
        const float *const columns = (const float *)(ptr[3] + e * step[3]), *const chosen = (const float *)(ptr[4] + e * step[4]);
        const int64_t rows = *(const int64_t *)(ptr[5] + e * step[5]), cols = *(const int64_t *)(ptr[6] + e * step[6]);
        multiply(rows, cols, (const uint8_t *)(ptr[1] + e * step[1]), (int64_t)param[1], (const int8_t *)(ptr[2] + e * step[2]), columns,
                 chosen[0], (int32_t)chosen[1], (int64_t)param[3], param[4] != 0, param[5] < 128,
                 (float *)(ptr[0] + e * step[0]), (int64_t)param[2]);
    }
}
""".replace("PARAMETERS", PARAMETERS)
    .replace("BLOCK", str(BLOCK))
    .replace("DEPTH", str(DEPTH))
)

# A row: h from its gates' two parts and the state before; a cell with two states writes both.
_CELL = """
void FL_NAME(quantized_{cell})PARAMETERS {{
    const int64_t h = (int64_t)param[1];
    float unkept[4 * h];
    for (int64_t e = 0; e < n; e++) {{
        float *const out = (float *)(ptr[0] + e * step[0]), *const cell = (float *)(ptr[4] + e * step[4]), *const keep = unkept;
        const float *const x = (const float *)(ptr[1] + e * step[1]), *const a = (const float *)(ptr[2] + e * step[2]);
        const float *const s = (const float *)(ptr[3] + e * step[3]);
        (void)s, (void)cell, (void)keep;
        FL_IVDEP for (int64_t k = 0; k < h; k++) {{
            {formula}
        }}
    }}
}}
""".replace("PARAMETERS", PARAMETERS)

# All steps of one layer in one direction, one after the other on one thread: for few samples, where to start each step would take longer than
# the step. Rows and steps are those of print_recurrent.py. param: work, H, whether weights have zero points, the greatest integer.
_STEPS = (
    """
void FL_NAME(quantized_{cell}_steps)PARAMETERS {{
    const int64_t h = (int64_t)param[1], padded = (h + 3) / 4 * 4, first = 0;
    const int64_t *const facts = (const int64_t *)ptr[9], steps = facts[0], reverse = facts[1], rows = facts[2], *const at = facts + 3;
    float *const out_ = (float *)ptr[0], *const cell_ = (float *)ptr[5], *const sums = (float *)ptr[8], *const chosen = (float *)ptr[10];
    const float *const gates_ = (const float *)ptr[1], *const h0_ = (const float *)ptr[3], *const c0_ = (const float *)ptr[4];
    const int8_t *const panels = (const int8_t *)ptr[6];
    const float *const columns = (const float *)ptr[7];
    uint8_t *const q = (uint8_t *)ptr[2];
    float unkept[4 * h];
    (void)c0_, (void)cell_, (void)n, (void)step;
    for (int64_t number = 0; number < steps; number++) {{"""
    + _STEP
    + """
            const float *const before_h = out_ + (kept ? at[before] * h : 0);
            fl_range all = kept ? range_of(before_h, kept * h) : range_of(h0_, some * h);
            if (kept && kept < some) all = both(all, range_of(h0_ + kept * h, (some - kept) * h));
            float scale;
            int zero;
            choose(all, (int)param[3], &scale, &zero);
            chosen[0] = all.low != all.low ? NAN : scale;
            if (chosen[0] != chosen[0]) return;
            quantize(kept, h, padded, before_h, scale, zero, q);
            quantize(some - kept, h, padded, h0_ + kept * h, scale, zero, q + kept * padded);
            for (int64_t j = 0; j < {gates} * h; j += 64)
                multiply(some, {gates} * h - j, q, padded, panels + j * padded, columns + 4 * j, scale, zero, h, param[2] != 0, param[3] < 128, sums + j, {gates} * h);
            for (int64_t r = 0; r < some; r++) {{
                const float *const x = gates_ + (at[t] + r) * {gates} * h, *const a = sums + r * {gates} * h;
                const float *const s = r < kept ? {state}_ + (at[before] + r) * h : {start}_ + r * h;
                float *const out = out_ + (at[t] + r) * h, *const cell = cell_ + (at[t] + r) * h, *const keep = unkept;
                (void)s, (void)cell, (void)keep;
                FL_IVDEP for (int64_t k = 0; k < h; k++) {{
                    {formula}
                }}
            }}
    }}
}}
"""
).replace("PARAMETERS", PARAMETERS)
