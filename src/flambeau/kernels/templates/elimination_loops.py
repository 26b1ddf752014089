"""Elimination in C: triangular systems, LU and Cholesky factors of matrices stored row after row.

    elimination.solve_float32   (right-hand sides, matrix; n, k, down, right, upper, unit) -> the solutions in their place
    elimination.lu_float32      (matrix, pivots; rows, columns) -> L and U in its place; pivots (from 1), and behind them info
    elimination.cholesky_float32 (matrix, info; n) -> U with U^T U = matrix in its upper triangle, zeros below
    elimination.invert_float32  (anything, matrix; n, down, right, upper, unit) -> the inverse of the triangle in its place
    elimination.exchange_float32 (rows, pivots; n, k) -> the rows, exchanged as the pivots say, last to first
    elimination.factored_float32 (right-hand sides, LU, pivots; n, k) -> the solutions in their place

A matrix is one row of the launcher's. All of them halve the matrix until few rows are left, so that nearly all the work is products
of halves, which have the threads (csrc/blas.c). `matrix` of `solve` may be any triangle: `down` and `right`, one of which is 1, are the
elements from row to row and from column to column.
"""

from __future__ import annotations

from flambeau.kernels.language.print_table import ROWS, Table, filled, of

REALS = {
    "float32": dict(REAL="float", KIND="f32", WHOLE="int32_t", TYPE="0", FABS="fabsf", SQRT="sqrtf", LANES="(FL_VECTOR / 4)"),
    "float64": dict(REAL="double", KIND="f64", WHOLE="int64_t", TYPE="1", FABS="fabs", SQRT="sqrt", LANES="(FL_VECTOR / 8)"),
}

TEXT = """
enum { FEW_KIND = 32 }; /* rows that are solved, or columns eliminated, at a time */
typedef REAL vec_KIND __attribute__((vector_size(FL_VECTOR), aligned(sizeof(REAL)), may_alias));
typedef WHOLE mask_KIND __attribute__((vector_size(FL_VECTOR), aligned(sizeof(REAL)), may_alias));
#define PICKED_KIND(m, a, b) (vec_KIND)(((mask_KIND)(a) & m) | ((mask_KIND)(b) & ~m))
static int64_t half_KIND(int64_t n) { return (n / 2 + 15) / 16 * 16; }

/* C -= A B */
static void less_KIND(int64_t m, int64_t n, int64_t k, const REAL *a, int64_t down, int64_t right, const REAL *b, REAL *c, int64_t ld) {
    const REAL minus = -1, one = 1;
    const fl_matrix left = {(char *)a, m, k, right == 1 ? down : right, 1, 0, right != 1};
    const fl_matrix other = {(char *)b, k, n, ld, 1, 0, false}, from = {(char *)c, m, n, ld, 1, 0, false};
    if (fl_gemm(TYPE, left, other, from, &minus, &one, NULL) == 0) return;
    for (int64_t q = 0; q < k; q++) /* a single column, without a BLAS library */
        for (int64_t i = 0; i < m; i++) {
            const REAL factor = a[i * down + q * right];
            for (int64_t j = 0; j < n; j++) c[i * ld + j] -= factor * b[q * ld + j];
        }
}

/* So many rows of the solution, from row t on (counted from the last one if `upper`), in columns side by side. */
static inline __attribute__((always_inline)) void
rows_KIND(const int count, const int vectors, int t, int n, const REAL *a, int64_t down, int64_t right, REAL *x, int64_t ld, int upper, int unit) {
    vec_KIND sum[4][4], other[4];
#define ROW(t) (upper ? n - 1 - (t) : (t))
#define FACTOR(t, s) a[ROW(t) * down + ROW(s) * right]
#define AT(t, v) (*(vec_KIND *)(x + ROW(t) * ld + (v) * LANES))
    for (int r = 0; r < count; r++)
        for (int v = 0; v < vectors; v++) sum[r][v] = AT(t + r, v);
    for (int s = 0; s < t; s++) {
        for (int v = 0; v < vectors; v++) other[v] = AT(s, v);
        for (int r = 0; r < count; r++)
            for (int v = 0; v < vectors; v++) sum[r][v] -= FACTOR(t + r, s) * other[v];
    }
    for (int r = 0; r < count; r++)
        for (int v = 0; v < vectors; v++) {
            for (int q = 0; q < r; q++) sum[r][v] -= FACTOR(t + r, t + q) * sum[q][v];
            if (!unit) sum[r][v] /= FACTOR(t + r, t + r);
            AT(t + r, v) = sum[r][v];
        }
#undef ROW
#undef FACTOR
#undef AT
}

static void few_KIND(int n, int64_t k, const REAL *a, int64_t down, int64_t right, REAL *x, int64_t ld, int upper, int unit) {
    for (int64_t first = 0, width; first < k; first += width) {
        const int64_t left = k - first, wide = left >= 4 * LANES;
        REAL edge[FEW_KIND * LANES] FL_ALIGNED, *const at = left < LANES ? edge : x + first;
        const int64_t apart = left < LANES ? LANES : ld;
        width = wide ? 4 * LANES : left < LANES ? left : LANES;
        for (int i = 0; i < n && at == edge; i++)
            for (int j = 0; j < LANES; j++) edge[i * LANES + j] = j < left ? x[i * ld + first + j] : 0;
        int t = 0;
        for (; t + 4 <= n; t += 4)
            if (wide) rows_KIND(4, 4, t, n, a, down, right, at, apart, upper, unit);
            else rows_KIND(4, 1, t, n, a, down, right, at, apart, upper, unit);
        for (; t < n; t++)
            if (wide) rows_KIND(1, 4, t, n, a, down, right, at, apart, upper, unit);
            else rows_KIND(1, 1, t, n, a, down, right, at, apart, upper, unit);
        for (int i = 0; i < n && at == edge; i++)
            for (int j = 0; j < left; j++) x[i * ld + first + j] = edge[i * LANES + j];
    }
}

static void solve_KIND(int64_t n, int64_t k, const REAL *a, int64_t down, int64_t right, REAL *x, int64_t ld, int upper, int unit) {
    if (n <= FEW_KIND) {
        few_KIND((int)n, k, a, down, right, x, ld, upper, unit);
        return;
    }
    const int64_t h = half_KIND(n);
    const REAL *const rest = a + h * (down + right);
    if (upper) {
        solve_KIND(n - h, k, rest, down, right, x + h * ld, ld, upper, unit);
        less_KIND(h, k, n - h, a + h * right, down, right, x + h * ld, x, ld);
        solve_KIND(h, k, a, down, right, x, ld, upper, unit);
    } else {
        solve_KIND(h, k, a, down, right, x, ld, upper, unit);
        less_KIND(n - h, k, h, a + h * down, down, right, x, x + h * ld, ld);
        solve_KIND(n - h, k, rest, down, right, x + h * ld, ld, upper, unit);
    }
}

/* The inverse of a triangle, in place of the identity, half of which stays zero. */
static void invert_KIND(int64_t n, const REAL *a, int64_t down, int64_t right, REAL *x, int64_t ld, int upper, int unit) {
    if (n <= FEW_KIND) {
        few_KIND((int)n, n, a, down, right, x, ld, upper, unit);
        return;
    }
    const int64_t h = half_KIND(n);
    const REAL *const rest = a + h * (down + right);
    REAL *const below = x + h * ld;
    invert_KIND(h, a, down, right, x, ld, upper, unit);
    invert_KIND(n - h, rest, down, right, below + h, ld, upper, unit);
    if (upper) {
        less_KIND(h, n - h, n - h, a + h * right, down, right, below + h, x + h, ld);
        solve_KIND(h, n - h, a, down, right, x + h, ld, upper, unit);
    } else {
        less_KIND(n - h, h, h, a + h * down, down, right, x, below, ld);
        solve_KIND(n - h, h, rest, down, right, below, ld, upper, unit);
    }
}

static void exchange_KIND(int64_t i, int64_t j, int64_t n, REAL *a, int64_t ld) {
    REAL *const x = a + i * ld, *const y = a + j * ld;
    for (int64_t w = 0; w < n && i != j; w++) {
        const REAL kept = x[w];
        x[w] = y[w], y[w] = kept;
    }
}

/* The place, counted from 1, of the first pivot that is zero; 0 if none is, -1 if there is no memory. Pivots count from 0 here.
   Few columns are turned, so that a column, and what is taken from it, is a run of whole vectors. */
static int64_t narrow_KIND(int64_t m, int64_t n, REAL *a, int64_t ld, int32_t *pivots) {
    const int64_t long_m = (m + LANES - 1) / LANES * LANES;
    const size_t room = (size_t)(n * long_m) * sizeof(REAL);
    REAL *const turned = fl_alloc(room);
    int64_t info = turned ? 0 : -1;
    if (!turned) return info;
    fl_turn(sizeof(REAL), m, n, (char *)a, ld, (char *)turned, long_m);
    for (int64_t w = 0; w < n; w++)
        for (int64_t i = m; i < long_m; i++) turned[w * long_m + i] = 0;
    for (int64_t j = 0; j < m && j < n; j++) {
        REAL *const column = turned + j * long_m, most = -1;
        int64_t best = j;
        const int64_t first = j / LANES * LANES; /* the vector that holds the diagonal: what is below it counts */
        mask_KIND below;
        for (int l = 0; l < LANES; l++) below[l] = -(first + l > j);
        _Pragma("omp simd reduction(fl_max : most)")
        for (int64_t i = j; i < m; i++) most = FABS(column[i]) > most ? FABS(column[i]) : most;
        while (best < m && FABS(column[best]) != most) best++;
        best = best < m && column[j] == column[j] ? best : j; /* a NaN there stays, as LAPACK's comparisons leave it */
        pivots[j] = (int32_t)best;
        for (int64_t w = 0; w < n && best != j; w++) {
            REAL *const x = turned + w * long_m, kept = x[j];
            x[j] = x[best], x[best] = kept;
        }
        const REAL head = column[j];
        if (head == 0) {
            info = info ? info : j + 1;
            continue;
        }
        vec_KIND *const from = (vec_KIND *)(column + first), *const end = (vec_KIND *)(column + long_m);
        *from = PICKED_KIND(below, *from / head, *from);
        for (vec_KIND *v = from + 1; v < end; v++) *v /= head;
        for (int64_t w = j + 1; w < n; w++) {
            REAL *const x = turned + w * long_m, factor = x[j];
            vec_KIND *to = (vec_KIND *)(x + first);
            *to = PICKED_KIND(below, *to - factor * *from, *to);
            for (vec_KIND *v = from + 1; v < end; v++) *++to -= factor * *v;
        }
    }
    fl_turn(sizeof(REAL), n, m, (char *)turned, long_m, (char *)a, ld);
    fl_free(turned, room);
    return info;
}

static int64_t lu_KIND(int64_t m, int64_t n, REAL *a, int64_t ld, int32_t *pivots) {
    const int64_t least = m < n ? m : n, h = least > FEW_KIND ? half_KIND(least) : least;
    if (n <= FEW_KIND) return narrow_KIND(m, n, a, ld, pivots);
    REAL *const below = a + h * ld;
    const int64_t info = lu_KIND(m, h, a, ld, pivots);
    for (int64_t i = 0; i < h; i++) exchange_KIND(i, pivots[i], n - h, a + h, ld);
    solve_KIND(h, n - h, a, ld, 1, a + h, ld, 0, 1);
    if (m == h) return info;
    less_KIND(m - h, n - h, h, below, ld, 1, a + h, below + h, ld);
    const int64_t more = lu_KIND(m - h, n - h, below + h, ld, pivots + h);
    for (int64_t i = h; i < least; i++) exchange_KIND(i, pivots[i] += (int32_t)h, h, a, ld);
    return info ? info : more > 0 ? more + h : more;
}

/* C -= U^T U above the diagonal, and perhaps somewhat below */
static void square_KIND(int64_t n, int64_t k, const REAL *u, REAL *c, int64_t ld) {
    const int64_t h = half_KIND(n);
    if (n <= 4 * FEW_KIND) {
        less_KIND(n, n, k, u, 1, ld, u, c, ld);
        return;
    }
    square_KIND(h, k, u, c, ld);
    less_KIND(h, n - h, k, u, 1, ld, u + h, c + h, ld);
    square_KIND(n - h, k, u + h, c + h * ld + h, ld);
}

/* 0, or the size of the first leading block that is not positive. */
static int64_t cholesky_KIND(int64_t n, REAL *a, int64_t ld) {
    if (n > FEW_KIND) {
        const int64_t h = half_KIND(n), info = cholesky_KIND(h, a, ld);
        if (info) return info;
        solve_KIND(h, n - h, a, 1, ld, a + h, ld, 0, 0);
        square_KIND(n - h, h, a + h, a + h * ld + h, ld);
        const int64_t more = cholesky_KIND(n - h, a + h * ld + h, ld);
        return more ? more + h : 0;
    }
    for (int64_t j = 0; j < n; j++) {
        REAL *const top = a + j * ld;
        if (!(top[j] > 0)) return j + 1;
        const REAL root = top[j] = SQRT(top[j]);
        for (int64_t w = j + 1; w < n; w++) top[w] /= root;
        for (int64_t i = j + 1; i < n; i++) {
            REAL *const row = a + i * ld, factor = top[i];
            FL_IVDEP for (int64_t w = i / 8 * 8; w < n; w++) row[w] -= factor * top[w];
        }
    }
    return 0;
}

void FL_NAME(elimination_solve_KIND)HEAD {
    const int64_t n = (int64_t)param[0], k = (int64_t)param[1];
    solve_KIND(n, k, (REAL *)ptr[1], (int64_t)param[2], (int64_t)param[3], (REAL *)ptr[0], k, param[4] != 0, param[5] != 0);
}
void FL_NAME(elimination_invert_KIND)HEAD {
    const int64_t n = (int64_t)param[0];
    REAL *const x = (REAL *)ptr[0];
    for (int64_t i = 0; i < n * n; i++) x[i] = i % (n + 1) == 0;
    invert_KIND(n, (REAL *)ptr[1], (int64_t)param[1], (int64_t)param[2], x, n, param[3] != 0, param[4] != 0);
}
void FL_NAME(elimination_exchange_KIND)HEAD {
    const int64_t n = (int64_t)param[0], k = (int64_t)param[1];
    for (int64_t i = n - 1; i >= 0; i--) exchange_KIND(i, ((int32_t *)ptr[1])[i] - 1, k, (REAL *)ptr[0], k);
}
void FL_NAME(elimination_lu_KIND)HEAD {
    const int64_t m = (int64_t)param[0], n = (int64_t)param[1], least = m < n ? m : n;
    int32_t *const pivots = (int32_t *)ptr[1];
    pivots[least] = (int32_t)lu_KIND(m, n, (REAL *)ptr[0], n, pivots);
    for (int64_t i = 0; i < least; i++) pivots[i]++;
}
void FL_NAME(elimination_cholesky_KIND)HEAD {
    const int64_t n = (int64_t)param[0];
    REAL *const a = (REAL *)ptr[0];
    *(int32_t *)ptr[1] = (int32_t)cholesky_KIND(n, a, n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) a[i * n + j] = 0;
}
void FL_NAME(elimination_factored_KIND)HEAD {
    const int64_t n = (int64_t)param[0], k = (int64_t)param[1];
    REAL *const x = (REAL *)ptr[0];
    for (int64_t i = 0; i < n; i++) exchange_KIND(i, ((int32_t *)ptr[2])[i] - 1, k, x, k);
    for (int upper = 0; upper < 2; upper++) solve_KIND(n, k, (REAL *)ptr[1], n, 1, x, k, upper, !upper);
}
"""


LOOPS = {  # what lies beside the matrix, how many numbers they take
    "solve": ("KIND", 6), "lu": ("i32", 2), "cholesky": ("i32", 1), "invert": ("KIND", 5), "exchange": ("i32", 2), "factored": ("KIND i32", 2),
}  # fmt: skip


def table() -> Table:
    loops = Table('#include "tiles.h"\n')
    for dtype, words in REALS.items():
        loops.texts.append(filled(TEXT, words | {"HEAD": of("total")}))
        for name, (beside, numbers) in LOOPS.items():
            loops.add(f"elimination.{name}_{dtype}", f"elimination_{name}_{words['KIND']}", dtype, filled(beside, words), numbers, ROWS)
    return loops
