"""Matrix products in the middle of other work, printed as C for loops that make, use and forget their matrices in the cache.

    fl_product_f32(rows, cols, depth, a, down, right, b, ldb, add, c, ldc)          C = A B, or C += A B

A is read element by element, `down` elements from row to row and `right` from column to column, so it may lie either way. B and C have rows
of contiguous elements; B is read up to the next multiple of 64 bytes. Where there are strips (print_gemm.py) they do it, on as many columns
as they take; elsewhere tiles of 6 rows and 2 vectors, whose 12 sums fit the 16 registers of other CPUs.
"""

from __future__ import annotations

REALS = {"f32": ("float", 0, 64), "f64": ("double", 1, 32)}  # C's type, which strip, columns of the widest strip
DEPTH = 256  # of B at a time: it stays near while the rows of A go by
ROWS = range(6)

_HEAD = """#include <string.h>
#include "tiles.h"
extern const fl_products FL_NAME(fl_products)[2];
#ifdef __AVX__
enum { VECTOR = 32 };
#else
enum { VECTOR = 16 };
#endif
#if defined(__AVX2__) && !defined(__AVX512F__)
enum { STRIP = 64 };
/* From row to row of a matrix whose strips are narrower than its rows: an odd number of lines, or a strip would crowd into few sets of the cache. */
#define PITCH(n) ((n) + (n) / 4)
#define APART(n) 0 /* elements between rows from which on they are brought together */
#else
enum { STRIP = 256 };
#define PITCH(n) (n)
#define APART(n) (n)
#endif
"""

_TEXT = """
typedef {real} lanes_{kind} __attribute__((vector_size(VECTOR), aligned({size}), may_alias));
static void tile_{kind}(int64_t rows, int64_t cols, int64_t depth, const {real} *a, int64_t down, int64_t right, const {real} *b,
    int64_t ldb, int add, {real} *c, int64_t ldc) {{
{tile}    {real} sums[6][2 * VECTOR / {size}];
{store}    for (int64_t r = 0; r < rows; r++)
        for (int64_t l = 0; l < cols; l++) c[r * ldc + l] = add ? c[r * ldc + l] + sums[r][l] : sums[r][l];
}}
static __attribute__((noinline)) void fl_product_{kind}(int64_t rows, int64_t cols, int64_t depth, const {real} *a, int64_t down,
    int64_t right, const {real} *b, int64_t ldb, int add, {real} *c, int64_t ldc) {{
    static const {real} one = 1;
    fl_strip *const strip = FL_NAME(fl_products)[{which}].strip;
    const int64_t pair = 2 * VECTOR / {size}, wide = STRIP / {size};
    for (int64_t j = 0; j < cols && rows > 0; j += wide)
        for (int64_t q = 0; q < depth; q += {depth}) {{
            const int64_t some = cols - j < wide ? cols - j : wide, deep = depth - q < {depth} ? depth - q : {depth};
            const {real} *const from = a + q * right, *const with = b + q * ldb + j;
            const int adds = add || q > 0;
            if (strip) strip(rows, some, deep, from, down, right, 6 * down, from + 6 * down, right == 1 ? 6 : 0, with, ldb, 0, &one, adds ? &one : 0, c + j, ldc, c + j, ldc);
            else
                for (int64_t s = 0; s < some; s += pair)
                    for (int64_t i = 0; i < rows; i += 6)
                        tile_{kind}(rows - i < 6 ? rows - i : 6, some - s < pair ? some - s : pair, deep, from + i * down, down, right,
                                    with + s, ldb, adds, c + i * ldc + j + s, ldc);
        }}
}}
"""


def texts() -> list[str]:
    """The C of both dtypes, for the head of a file that uses it."""
    return [_HEAD, *map(_text, REALS)]


def _text(kind: str) -> str:
    real, which, wide = REALS[kind]
    lines = [f"lanes_{kind} " + ", ".join(f"c{r}{j} = {{0}}" for r in ROWS for j in range(2)) + ";"]
    # Rows that are not there are the last one again.
    lines += [f"const {real} *const a{r} = a + ({r} < rows ? {r} : rows - 1) * down;" for r in ROWS]
    lines.append("for (int64_t q = 0, at = 0; q < depth; q++, at += right, b += ldb) {")
    lines.append(f"    const lanes_{kind} b0 = *(const lanes_{kind} *)b, b1 = *(const lanes_{kind} *)(b + VECTOR / sizeof({real}));")
    lines += [f"    {{ const lanes_{kind} x = a{r}[at] - (lanes_{kind}){{0}}; c{r}0 += x * b0, c{r}1 += x * b1; }}" for r in ROWS]
    lines.append("}")
    store = [f"memcpy(sums[{r}], &c{r}0, VECTOR), memcpy(sums[{r}] + VECTOR / sizeof({real}), &c{r}1, VECTOR);" for r in ROWS]
    tile, stores = ("".join(f"    {line}\n" for line in part) for part in (lines, store))
    return _TEXT.format(kind=kind, real=real, size=256 // wide, which=which, depth=DEPTH, tile=tile, store=stores)
