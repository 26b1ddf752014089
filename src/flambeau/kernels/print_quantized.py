"""8-bit products as C: rows of float32 are quantized, multiplied with int8 weights in int32, exactly, and become float32 again.

    quantized.range     the least and greatest of some elements (NaN if there is one)
    quantized.rows      x (float32) -> u8, q = round(x / scale + zero), where scale and zero follow from the range of all of x
    quantized.product   y = (sum q w - zero sum w) * scale_x scale_w + bias, for a block of rows and a panel of 64 columns
    quantized.<cell>    a step of a recurrent network from the two products of its gates: the formulas of print_recurrent.py

Weights lie in panels of 64 columns, four elements of each column side by side (quantized.py makes them, once): (panels, K / 4, 64, 4).
One instruction of AVX-512 VNNI multiplies 64 such bytes with four bytes of a row, repeated, and adds fours of products to 16 sums. A tile of
6 rows and 4 vectors stays in registers while K is walked. With AVX2 bytes are widened to 16 bits, whose products in pairs fit 32 bits:
nothing saturates, and all variants give the same integers.
"""

from __future__ import annotations

from flambeau.kernels.index_loops import LINES, PARAMETERS
from flambeau.kernels.print_recurrent import CELLS
from flambeau.kernels.recurrent import GATES

PANEL = 64
MOST = {"vnni": 6, "avx2": 3, "plain": 1}  # rows of a tile


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    texts = [_HEAD, "#ifdef __AVX512F__\n", *map(_vnni, range(1, MOST["vnni"] + 1)), "#endif\n#ifdef __AVX2__\n"]
    texts += [*map(_avx2, range(1, MOST["avx2"] + 1)), "#endif\n", _PLAIN, _pick(), _TEXT]
    entries = {
        "range": ("FL_F32", ["FL_F32", "FL_I64"], 1),
        "rows": ("FL_U8", ["FL_F32", "FL_F32", "FL_F32", "FL_I64"], 5),
        "product": ("FL_F32", ["FL_U8", "FL_I8", "FL_F32", "FL_F32", "FL_I64", "FL_I64"], 5),
    }
    for cell, (formula, _) in CELLS.items():
        texts.append(_CELL.format(cell=cell, gates=GATES[cell], formula=formula.format(real="float")))
        entries[cell] = "FL_F32", ["FL_F32"] * 4, 2
    declarations = [f"void FL_NAME(quantized_{name}){PARAMETERS};\n" for name in entries]
    rows = [
        f'{{"quantized.{name}", FL_NAME(quantized_{name}), {out}, {len(inputs)}, {numbers}, 0, {out}, {{{", ".join(inputs)}}}, {LINES}}}'
        for name, (out, inputs, numbers) in entries.items()
    ]
    return texts, declarations, rows


def _function(kind: str, rows: int, target: str, lines: list[str]) -> str:
    head = f"{target}static void tile_{kind}_{rows}(int64_t quads, const uint8_t *a, int64_t lda, const int8_t *b, int32_t *c) {{\n"
    return head + "".join(f"    {line}\n" for line in lines) + "}\n"


def _vnni(rows: int) -> str:
    """Sums (rows, 64). One row has two sets of sums, which take turns: less than 8 sums would wait for each other."""
    sets = 2 if rows == 1 else 1
    sums = [[f"c{i}{j}{s}" for j in range(4)] for s in range(sets) for i in range(rows)]
    lines = [f"__m512i {', '.join(f'{c} = _mm512_setzero_si512()' for c in row)};" for row in sums]
    lines.append("int64_t q = 0;")

    def step(s: int) -> list[str]:
        found = [f"    const __m512i b{j} = _mm512_loadu_si512(b + {j * 64});" for j in range(4)]
        for i in range(rows):
            found.append(f"    const __m512i a{i} = _mm512_set1_epi32(four(a + {i} * lda + 4 * q));")
            found += [f"    c{i}{j}{s} = _mm512_dpbusd_epi32(c{i}{j}{s}, a{i}, b{j});" for j in range(4)]
        return ["{", *found, "    q++, b += 256;", "}"]

    if sets == 2:
        lines += ["for (; q + 2 <= quads;) {", "    __builtin_prefetch(b + 4096), __builtin_prefetch(b + 4160);"]
        lines += ["    __builtin_prefetch(b + 4224), __builtin_prefetch(b + 4288);", *step(0), *step(1), "}"]
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
            lines.append(f"    _mm256_storeu_si256((__m256i *)(c + {i * PANEL + 4 * j} + at), {both});")
    return _function("avx2", rows, "", [*lines, "}"])


def _pick() -> str:
    """Which tiles this CPU runs; *most: how many rows the tallest has."""
    lists = {kind: ", ".join(f"tile_{kind}_{rows}" for rows in range(1, most + 1)) for kind, most in MOST.items()}

    def choice(kind: str) -> str:
        return f"{{ static fl_tile *const tiles[] = {{{lists[kind]}}}; *most = {MOST[kind]}; return tiles; }}\n"

    return (
        "static fl_tile *const *pick(int64_t *most) {\n"
        + f'#ifdef __AVX512F__\n    if (__builtin_cpu_supports("avx512vnni")) {choice("vnni")}#endif\n'
        + f"#ifdef __AVX2__\n    {choice('avx2')}#else\n    {choice('plain')}#endif\n}}\n"
    )


_HEAD = """
#include <string.h>
#ifdef __AVX2__
#include <immintrin.h>
#endif
typedef void fl_tile(int64_t quads, const uint8_t *a, int64_t lda, const int8_t *b, int32_t *c);
static inline int32_t four(const uint8_t *at) { int32_t word; memcpy(&word, at, 4); return word; }
#ifdef __FMA__
#define MULTIPLY_ADD(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MULTIPLY_ADD(a, b, c) (float)((double)(a) * (b) + (c))
#endif
#define SIGMOID fl_sigmoid_f32
#define TANH fl_tanh_f32
"""

_PLAIN = """
#ifndef __AVX2__
static void tile_plain_1(int64_t quads, const uint8_t *a, int64_t lda, const int8_t *b, int32_t *c) {
    memset(c, 0, 64 * sizeof *c);
    for (int64_t q = 0; q < quads; q++, a += 4, b += 256)
        for (int j = 0; j < 64; j++) c[j] += a[0] * b[4 * j] + a[1] * b[4 * j + 1] + a[2] * b[4 * j + 2] + a[3] * b[4 * j + 3];
}
#endif
"""

# Scale and zero are chosen as PyTorch does it, in the same precision at each step, so that the integers are the same.
_TEXT = """
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
/* param: work, elements of a row of x and of the result, how many ranges there are (none: they are found here), the greatest integer */
void FL_NAME(quantized_rows)PARAMETERS {
    const int64_t depth = (int64_t)param[1], padded = (int64_t)param[2], parts = (int64_t)param[3];
    const int most = (int)param[4];
    for (int64_t e = 0; e < n; e++) {
        uint8_t *to = (uint8_t *)(ptr[0] + e * step[0]);
        const float *x = (const float *)(ptr[1] + e * step[1]);
        const fl_range *const ranges = (const fl_range *)(ptr[2] + e * step[2]);
        float *const chosen = (float *)(ptr[3] + e * step[3]);
        const int64_t rows = *(const int64_t *)(ptr[4] + e * step[4]);
        fl_range all = parts ? ranges[0] : range_of(x, rows * depth);
        for (int64_t i = 1; i < parts; i++) {
            if (ranges[i].low != ranges[i].low) all = ranges[i];
            all.low = ranges[i].low < all.low ? ranges[i].low : all.low, all.high = ranges[i].high > all.high ? ranges[i].high : all.high;
        }
        float scale;
        int zero;
        choose(all, most, &scale, &zero);
        chosen[0] = all.low != all.low ? NAN : scale, chosen[1] = (float)zero;
        const float inverse = 1.0f / scale, from = (float)zero;
        for (int64_t r = 0; r < rows; r++, to += padded, x += depth) {
            FL_IVDEP for (int64_t i = 0; i < depth; i++) {
                const float v = MULTIPLY_ADD(x[i], inverse, from), inside = v > 0 ? v < 255 ? v : 255 : 0;
                to[i] = (uint8_t)(int)(inside + 12582912.0f - 12582912.0f); /* to the nearest integer, of two the even one */
            }
            for (int64_t i = depth; i < padded; i++) to[i] = 0;
        }
    }
}
/* param: work, bytes from row to row of A, elements from row to row of the result, K, whether weights have zero points */
void FL_NAME(quantized_product)PARAMETERS {
    const int64_t lda = (int64_t)param[1], ldo = (int64_t)param[2], depth = (int64_t)param[3], shifted = (int64_t)param[4];
    int64_t most;
    fl_tile *const *const tiles = pick(&most);
    FL_ALIGNED int32_t sums[6 * 64];
    FL_ALIGNED float factor[64];
    FL_ALIGNED int32_t less[64];
    for (int64_t e = 0; e < n; e++) {
        float *const out = (float *)(ptr[0] + e * step[0]);
        const uint8_t *const a = (const uint8_t *)(ptr[1] + e * step[1]);
        const int8_t *const b = (const int8_t *)(ptr[2] + e * step[2]);
        const float *const scale = (const float *)(ptr[3] + e * step[3]), *const bias = scale + 64;
        const int32_t *const total = (const int32_t *)(scale + 128), *const zeros = total + 64;
        const float *const chosen = (const float *)(ptr[4] + e * step[4]);
        const int64_t rows = *(const int64_t *)(ptr[5] + e * step[5]), left = *(const int64_t *)(ptr[6] + e * step[6]);
        const int64_t cols = left < 64 ? left : 64, parts = (rows + most - 1) / most;
        const int32_t zero = (int32_t)chosen[1];
        for (int j = 0; j < 64; j++) factor[j] = chosen[0] * scale[j], less[j] = zero * total[j];
        for (int64_t part = 0, i = 0; part < parts; part++) {
            const int64_t end = rows * (part + 1) / parts;
            tiles[end - i - 1](lda / 4, a + i * lda, lda, b, sums);
            for (const int32_t *c = sums; i < end; i++, c += 64) {
                FL_ALIGNED float y[64];
                int32_t row = 0;
                for (int64_t k = 0; shifted && k < depth; k++) row += a[i * lda + k] - zero;
                for (int j = 0; j < 64; j++) y[j] = MULTIPLY_ADD((float)(c[j] - less[j] - zeros[j] * row), factor[j], bias[j]);
                if (cols == 64) memcpy(out + i * ldo, y, sizeof y);
                else memcpy(out + i * ldo, y, sizeof(float) * (size_t)cols);
            }
        }
    }
}
""".replace("PARAMETERS", PARAMETERS)

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
