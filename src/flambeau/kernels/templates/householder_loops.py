"""Householder's reflections in C: QR of matrices with few columns or rows, rounded in PyTorch's order.

    householder.factor      (matrix, tau; rows, columns) -> R, and the vectors v below it; tau beside it
    householder.product     (vectors, tau; rows, columns, k) -> the first columns of H_1 ... H_k,  H = 1 - tau v v^T

A matrix is stored column after column, and is one row of the launcher's (see along_dim.py).

Note [the last bits of QR]. Every LAPACK finds the same reflections, and rounds in its own order. Where random numbers go through QR, as in
nn.init.orthogonal_, a seed gives the same weights as in PyTorch only if that order is the same as well. PyTorch's is that of MKL, found by
experiment: every bit agrees for up to 32 reflections in matrices of up to 12,500 elements (beyond 64 x 20 MKL rounds as it has threads: here
as with one). MKL has two orders that are known here: that of Intel's CPUs with AVX-512, which all of Intel's take here, and a NARROW one for
the CPUs of others, in vectors of 16 bytes, where nothing is fused. Sizes decide between four ways:

    SMALL    up to 20 x 20: norms with a running scale. In float32, one product after the other is added, and nothing is fused;
             in float64, products are added in vectors of 8 (narrow: of 2).
    SQUARE   3 x 3 to 5 x 5 in float64: as SMALL, but short sums are chains of fused multiplications and additions. Not narrow.
    TALL     more rows than columns: the column's products with itself and all others in one go, before it is scaled to v. Where one of
             them is so small or large that digits may be lost, the step is done the PLAIN way.
    PLAIN    the rest: norms with a running scale (float64, not narrow: in 80 bits), then products with v.

In TALL and PLAIN, and for `product`, sums are carried in vectors, of 64 bytes: one or two. In float32 four columns go together, and begin
with the element that is not in vectors; of up to three left over, the second has one vector of sums, and the others have two. In narrow
vectors, four columns go together in float64 as well, and have one vector each; of those left over, a pair has two and one, and a last
one as many as hold 8 elements. The first element, and those up to a multiple of 16 bytes, are added before all vectors.
"""

from __future__ import annotations

from flambeau.kernels.language.print_table import ROWS, Table, filled, of
from flambeau.kernels.templates.householder import MOST

# What replaces the names in capitals. TINY: below 2^-126 / 2^-24 (or 2^-1022 / 2^-53) squares and reciprocals lose digits.
_SINGLE = dict(REAL="float", KIND="f32", DOUBLE="0", LANES="16", WIDTH="4", FMA="fmaf", SQRT="sqrtf", TINY="0x1p-102f", LARGE="0x1p126f")
_DOUBLE = dict(REAL="double", KIND="f64", DOUBLE="1", LANES="8", WIDTH="2", FMA="fma", SQRT="sqrt", TINY="0x1p-969", LARGE="0x1p1022")
REALS = {"float32": _SINGLE, "float64": _DOUBLE}

# What is fused is written as such: the compiler must not fuse more.
BEGINNING = """
#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif
enum { SMALL, SQUARE, TALL, PLAIN };
#if defined(__x86_64__) && defined(__GNUC__)
#define NARROW (!__builtin_cpu_is("intel"))
#else
#define NARROW 0
#endif
#define FUSED(a, b, c) (NARROW ? (a) * (b) + (c) : fma(a, b, c))
"""

TEXT = """
static REAL halves_KIND(REAL *s, int n) {
    for (int h = n / 2; h; h /= 2)
        for (int l = 0; l < h; l++) s[l] += s[l + h];
    return s[0];
}
static REAL lanes_KIND(REAL *s) {
    return DOUBLE ? ((s[0] + s[2]) + (s[1] + s[3])) + ((s[4] + s[6]) + (s[5] + s[7])) : halves_KIND(s, LANES);
}

/* start + a.b, for column j of so many */
static REAL dot_KIND(REAL start, const REAL *a, const REAL *b, int n, int j, int columns) {
    const int four = !DOUBLE && j < columns / 4 * 4, two = !four && (DOUBLE || j % 2 == 0), stride = LANES << two;
    REAL s[LANES] = {0}, more[LANES] = {0};
    int i = 0;
    if (four) s[0] = start;
    for (; i + stride <= n; i += stride) {
        for (int l = 0; l < LANES; l++) s[l] = FMA(a[i + l], b[i + l], s[l]);
        if (two)
            for (int l = 0; l < LANES; l++) more[l] = FMA(a[i + LANES + l], b[i + LANES + l], more[l]);
    }
    if (four && 0 < i && i < n) {
        s[0] = lanes_KIND(s);
        for (int l = 1; l < LANES; l++) s[l] = 0;
    }
    if (two)
        for (int l = 0; l < LANES; l++) s[l] += more[l];
    for (int l = 0; i < n; i++, l = (l + 1) % LANES) s[l] = FMA(a[i], b[i], s[l]);
    return four ? lanes_KIND(s) : start + lanes_KIND(s);
}

/* c.v, or c.x, as dot, in narrow vectors */
static REAL narrow_dot_KIND(const REAL *c, const REAL *v, int n, int j, int columns, int rows) {
    const int fours = columns / 4 * 4, four = j < fours, last = j == columns - 1 && columns % 2, block = four ? WIDTH : 8;
    const int vectors = four ? 1 : last ? 8 / WIDTH : j % 2 ? 1 : 2;
    const REAL *aligned = four ? c + (3 - j % 4) * rows : v;
    REAL s[4][WIDTH] = {{0}};
    int i = 0;
    for (; i < n && (i == 0 || (uintptr_t)(aligned + i) % 16); i++) s[0][0] += c[i] * v[i];
    for (; i + block <= n; i += block)
        for (int e = 0; e < block; e++) s[e / WIDTH % vectors][e % WIDTH] += c[i + e] * v[i + e];
    for (int l = 0; l < WIDTH; l++) s[0][l] = (s[0][l] + s[1][l]) + (s[2][l] + s[3][l]);
    REAL sum = halves_KIND(s[0], WIDTH);
    for (; i < n; i++) sum += c[i] * v[i];
    return sum;
}

static REAL short_dot_KIND(const REAL *a, const REAL *b, int n) {
    if (DOUBLE && NARROW) {
        REAL even = 0, odd = 0;
        for (int i = 0; i + 1 < n; i += 2) even += a[i] * b[i], odd += a[i + 1] * b[i + 1];
        return n % 2 ? (even + odd) + a[n - 1] * b[n - 1] : even + odd;
    }
    REAL sum = a[0] * b[0];
    for (int i = 1; i < n && !DOUBLE; i++) sum += a[i] * b[i];
    for (int i = 0, taken; i < n && DOUBLE; i += taken) {
        REAL s[8];
        taken = n - i < 8 ? n - i : n - i < 16 ? 8 : 16;
        for (int l = 0; l < 8; l++) s[l] = i + l < n ? a[i + l] * b[i + l] : 0;
        for (int l = 0; l < 8 && taken == 16; l++) s[l] = FMA(a[i + 8 + l], b[i + 8 + l], s[l]);
        sum = i ? sum + halves_KIND(s, 8) : halves_KIND(s, 8);
    }
    return sum;
}

static REAL square_dot_KIND(const REAL *a, const REAL *b, int n) {
    REAL sum = n < 4 ? a[0] : short_dot_KIND(a, b, 4);
    for (int i = n < 4 ? 1 : 4; i < n; i++) sum = FMA(a[i], b[i], sum);
    return sum;
}

static REAL norm_KIND(const REAL *x, int n, int way) {
    if (DOUBLE && way >= TALL && !NARROW) {
        long double s[4] = {0};
        int i = 0;
        for (; i + 4 <= n; i += 4)
            for (int l = 0; l < 4; l++) s[l] += (long double)x[i + l] * x[i + l];
        s[0] += s[2], s[1] += s[3];
        for (; i + 2 <= n; i += 2)
            for (int l = 0; l < 2; l++) s[l] += (long double)x[i + l] * x[i + l];
        s[0] += s[1];
        return sqrtl(i < n ? s[0] + (long double)x[i] * x[i] : s[0]);
    }
    REAL scale = 0, sum = 1;
    for (int i = 0; i < n; i++) {
        const REAL a = x[i] < 0 ? -x[i] : x[i], t = scale < a ? scale / a : a / scale;
        if (a == 0) continue;
        if (scale < a) sum = DOUBLE == (way >= TALL) ? 1 + sum * t * t : DOUBLE ? FUSED(sum, t * t, 1) : 1 + sum * (t * t), scale = a;
        else sum = DOUBLE ? FUSED(t, t, sum) : sum + t * t;
    }
    return scale * SQRT(sum);
}

/* -sign(a) sqrt(a^2 + norm^2) */
static REAL opposite_KIND(REAL a, REAL norm, int way) {
    const REAL size = a < 0 ? -a : a, low = size < norm ? size : norm, high = size < norm ? norm : size, t = low / high;
    const REAL found = high * SQRT(DOUBLE && way < TALL ? FUSED(t, t, 1) : 1 + t * t);
    return a < 0 ? found : -found;
}

/* The columns c -= tau v (v^T c). Of v and c, n elements count; v[0] is 1. TALL: v^T c is c[0] + scale * dots. */
static void reflect_KIND(const REAL *v, REAL tau, int n, REAL *c, int rows, int columns, int way, const REAL *dots, REAL scale) {
    if (way == PLAIN && !dots) { /* zeros at the ends are left out, which moves what is left over to other sums */
        while (n && v[n - 1] == 0) n--;
        for (int i = 0; columns && !i; columns -= !i)
            for (i = n; i && c[(columns - 1) * rows + i - 1] == 0;) i--;
    }
    for (int j = 0; j < columns; j++, c += rows) {
        const REAL w = way == SMALL ? short_dot_KIND(c, v, n) : way == SQUARE ? square_dot_KIND(c, v, n) :
                       way == TALL ? dots[j] * scale + c[0] : NARROW ? narrow_dot_KIND(c, v, n, j, columns, rows) :
                       DOUBLE ? dot_KIND(0, c, v, n, j, columns) : dot_KIND(c[0], c + 1, v + 1, n - 1, j, columns);
        const REAL by = tau * w;
        if (NARROW || (way == SMALL && !DOUBLE)) for (int i = 0; i < n; i++) c[i] -= by * v[i];
        else for (int i = 0; i < n; i++) c[i] = FMA(-by, v[i], c[i]);
    }
}

void FL_NAME(householder_factor_KIND)HEAD {
    const int m = (int)param[0], n = (int)param[1], near = m > 50 && m <= 64, tiny = DOUBLE && m == n && m <= (NARROW ? 2 : 5);
    const int chosen = tiny && m > 2 ? SQUARE : m <= 20 && n <= 20 ? SMALL : m > n && !(near && n > 20) ? TALL : PLAIN;
    const int divide = chosen == SMALL && (!DOUBLE || tiny); /* rather than multiply by a reciprocal */
    REAL *v = (REAL *)ptr[0], *tau = (REAL *)ptr[1];
    for (int i = 0; i < m && i < n; i++, v += m + 1) {
        REAL dots[MOST], norm = 0, head, beta, scale, unit = 1;
        const int left = m - i;
        int way = chosen;
        tau[i] = 0;
        for (int j = 0; j < n - i && way == TALL; j++) {
            const REAL *c = v + j * m;
            dots[j] = NARROW ? narrow_dot_KIND(c + 1, v + 1, left - 1, j, n - i, m) :
                      DOUBLE ? dot_KIND(0, c + 1, v + 1, left - 1, j, n - i) : dot_KIND(v[1] * c[1], c + 2, v + 2, left - 2, j, n - i);
            const REAL size = dots[j] < 0 ? -dots[j] : dots[j];
            if (!(size >= TINY && size <= LARGE)) way = PLAIN;
        }
        norm = way == TALL ? SQRT(dots[0]) : norm_KIND(v + 1, left - 1, way);
        if (norm == 0) continue;
        beta = opposite_KIND(v[0], norm, way);
        if (beta < TINY && -beta < TINY) {
            unit = TINY;
            for (int q = 0; q < left; q++) v[q] *= 1 / TINY;
            beta = opposite_KIND(v[0], norm_KIND(v + 1, left - 1, way), way);
        }
        head = v[0], tau[i] = (beta - head) / beta, scale = 1 / (head - beta);
        for (int q = 1; q < left; q++) v[q] = divide ? v[q] / (head - beta) : v[q] * scale;
        v[0] = 1;
        reflect_KIND(v, tau[i], left, v + m, m, n - 1 - i, way, chosen == TALL ? dots + 1 : 0, scale);
        v[0] = beta * unit;
    }
}

void FL_NAME(householder_product_KIND)HEAD {
    const int m = (int)param[0], n = (int)param[1], k = (int)param[2];
    REAL *const q = (REAL *)ptr[0], *const tau = (REAL *)ptr[1];
    for (int j = k; j < n; j++)
        for (int i = 0; i < m; i++) q[j * m + i] = i == j;
    for (int i = k - 1; i >= 0; i--) {
        REAL *const v = q + i * m + i;
        v[0] = 1;
        reflect_KIND(v, tau[i], m - i, v + m, m, n - 1 - i, PLAIN, 0, 0);
        v[0] = 1 - tau[i];
        for (int l = 1; l < m - i; l++) v[l] *= -tau[i];
        for (int l = 1; l <= i; l++) v[-l] = 0;
    }
}
"""


def table() -> Table:
    loops = Table(BEGINNING)
    for dtype, words in REALS.items():
        loops.texts.append(filled(TEXT, words | {"MOST": str(MOST), "HEAD": of("total")}))
        for name, numbers in (("factor", 2), ("product", 3)):
            loops.add(f"householder.{name}", f"householder_{name}_{words['KIND']}", dtype, "T", numbers, ROWS)
    return loops
