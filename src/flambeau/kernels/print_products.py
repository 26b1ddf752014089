"""Matrix products in the middle of other work, printed as C for loops that make, use and forget their matrices in the cache.

    fl_product_f32(rows, cols, depth, a, down, right, b, ldb, add, c, ldc)          C = A B, or C += A B

A is read element by element, `down` elements from row to row and `right` from column to column, so it may lie either way. B and C have rows
of contiguous elements; B is read up to the next multiple of 64 bytes. Where there are strips (print_gemm.py) they do it; elsewhere tiles
of 4 rows, small enough for the registers of any CPU.
"""

from __future__ import annotations

REALS = {"f32": ("float", 0, 64), "f64": ("double", 1, 32)}  # C's type, which strip, columns of a strip
DEPTH = 256  # of B at a time: it stays near while the rows of A go by

_TEXT = """
static inline void tile_{kind}(int64_t rows, int64_t cols, int64_t depth, const {real} *a, int64_t down, int64_t right, const {real} *b,
    int64_t ldb, int add, {real} *c, int64_t ldc) {{
    {real} sum[4][{half}] = {{{{0}}}};
    for (int64_t q = 0; q < depth; q++)
        for (int r = 0; r < 4; r++) {{ /* rows that are not there are the last one again */
            const {real} x = a[(r < rows ? r : rows - 1) * down + q * right];
            FL_IVDEP for (int l = 0; l < {half}; l++) sum[r][l] += x * b[q * ldb + l];
        }}
    for (int r = 0; r < rows; r++)
        for (int64_t l = 0; l < cols; l++) c[r * ldc + l] = add ? c[r * ldc + l] + sum[r][l] : sum[r][l];
}}
static __attribute__((noinline)) void fl_product_{kind}(int64_t rows, int64_t cols, int64_t depth, const {real} *a, int64_t down,
    int64_t right, const {real} *b, int64_t ldb, int add, {real} *c, int64_t ldc) {{
    static const {real} one = 1;
    fl_strip *const strip = FL_NAME(fl_strips)[{which}];
    for (int64_t j = 0; j < cols && rows > 0; j += {wide})
        for (int64_t q = 0; q < depth; q += {depth}) {{
            const int64_t some = cols - j < {wide} ? cols - j : {wide}, deep = depth - q < {depth} ? depth - q : {depth};
            const {real} *const from = a + q * right, *const with = b + q * ldb + j;
            const int adds = add || q > 0;
            if (strip) strip(rows, some, deep, from, down, right, 6 * down, with, ldb, with, &one, adds ? &one : 0, c + j, ldc, 0);
            else
                for (int64_t i = 0; i < rows; i += 4)
                    for (int64_t s = 0; s < some; s += {half})
                        tile_{kind}(rows - i < 4 ? rows - i : 4, some - s < {half} ? some - s : {half}, deep, from + i * down, down, right,
                                    with + s, ldb, adds, c + i * ldc + j + s, ldc);
        }}
}}
"""


def texts() -> list[str]:
    """The C of both dtypes, for the head of a file that uses it."""
    head = '#include <string.h>\n#include "tiles.h"\nextern fl_strip *const FL_NAME(fl_strips)[2];\n'
    return [head, *(_TEXT.format(kind=kind, real=real, which=i, wide=w, half=w // 4, depth=DEPTH) for kind, (real, i, w) in REALS.items())]
