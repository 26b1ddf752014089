/* Matrix products, cut into pieces of C such that results have the same bits with any number of threads.

   Note [panels]
   Where the CPU has AVX-512 or AVX2, real products run on loops of our own (kernels/templates/print_gemm.py): rows of A, where they lie, times a panel
   of B, which is 256 or 64 bytes wide.
     A   is read 48 rows at a time, which stay near while some panels go by, each of which calls for a part of the next 48; if it is
         transposed, it is copied into tiles of 6 rows first;
     B   is read where it lies if it is small or A has few rows; else each piece packs the panels it needs, or, if C is made transposed
         or many pieces need the same ones, all pieces together pack them all;
     K   is walked in chunks, so that a chunk of the panel is still near when the next rows of A come.
   If B is transposed and A has few rows (a linear layer with a small batch), C^T = B^T A^T costs less to turn; if it has very few, dot
   products of rows with rows need nothing turned at all.
   All else is OpenBLAS on one thread, called piece by piece; without it, these loops do all real products. GFLOPS of an Ice Lake core
   (peak 178): OpenBLAS 132, MKL and ours 150 to 160. */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "system.h"

enum { F32, F64, C64, C128 };                                     /* types */
enum { ROW_MAJOR = 101, NOT_TRANSPOSED = 111, TRANSPOSED = 112 }; /* CBLAS's numbers */
enum { WIDEST = 256, TILE = 6, SLICE = 48, BLOCK = 48 };          /* Note [panels]: bytes of one, rows, K of a copy, rows of A that stay near */
enum { MOST_ROWS = 96, SOME = 16, SHARE = 1024, MANY = 3072 };    /* of a piece of C^T; panels or tiles of a copy; bytes of a row of B that a piece packs, or reads in place */
enum { PIECES = 8 };                    /* for each thread */
enum { FEW_ROWS = 24, SOME_ROWS = 40 }; /* so few that nothing need be copied; or that vectors across them had better be full */
enum { MOST_PACKED = 16 << 20, NEAR = 32 << 10 };                 /* bytes of all copies, and what stays in the nearest cache beside other things */
enum { WORTH_A_THREAD = 1000000, WORTH_A_COPY = 1 << 17 };         /* flops, bytes: 5 to 10 us */
enum { TINY = 80, MOST_IN_A_ROW = 1 << 16 };                      /* multiplications that take less time than a plan; of a row by panels, which any gemv beats */

#define GEMM(T) (int, int, int, int, int, int, T, const void *, int, const void *, int, T, void *, int)
#define GEMV(T) (int, int, int, int, T, const void *, int, const void *, int, T, void *, int)
static union {
    struct {
        void (*sgemm)GEMM(float), (*dgemm)GEMM(double), (*cgemm)GEMM(const void *), (*zgemm)GEMM(const void *);
        void (*sgemv)GEMV(float), (*dgemv)GEMV(double);
    };
    void *all[6]; /* NULL: there is no library */
} blas;
static const fl_products *loops; /* for float32 and float64, or NULL */

typedef struct Product Product;
struct Product {
    void (*execute)(Product *);
    int type;
    int64_t size;      /* of an element */
    fl_matrix a, b, c; /* (m, k), (k, n), (m, n) */
    int64_t m, n, k;
    const char *row;                    /* takes the place of every row of C on the right side, unless it is NULL */
    const void *alpha, *beta;
    int64_t group;                      /* products of a batch to a block */
    int64_t rows, cols;                 /* of a piece, at most */
    int64_t below, beside;              /* pieces below each other, which come first: they read the same of B; and side by side */
    int64_t panel, kc;                  /* columns and depth of one call */
    const fl_products *loops;           /* NULL: OpenBLAS */
    char *panels, *tiles;               /* B in panels, A in tiles; NULL: use them as they are */
    bool packs;                         /* a piece packs its part of B first */
    int64_t for_a, for_b;               /* bytes of a column of tiles, and of a row of panels, that are copied before */
};

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
/* Equal parts of x, each at most `most`, a multiple of `unit`: their size, a multiple too. */
static int64_t even(int64_t x, int64_t most, int64_t unit) { return ceil_div(ceil_div(x, ceil_div(x, most)), unit) * unit; }

static int64_t in_vectors(const Product *p, int64_t n) { return ceil_div(n * p->size, p->loops->vector) * p->loops->vector / p->size; }

static char *at(const Product *p, const fl_matrix *x, int64_t i, int64_t j) {
    return x->data + p->size * (x->transposed ? j * x->ld + i : i * x->ld + j);
}
static char *a_at(const Product *p, int64_t i, int64_t q) { /* tiles: chunk after chunk of K, i a multiple of TILE */
    return p->tiles ? p->tiles + p->size * ((q / p->kc * ceil_div(p->m, TILE) * TILE + i) * p->kc + q % p->kc * TILE) : at(p, &p->a, i, q);
}
static char *b_at(const Product *p, int64_t q, int64_t j) {
    return p->panels ? p->panels + p->size * (p->k * j + q * p->panel) : at(p, &p->b, q, j);
}

/* OpenBLAS has a lock of its own, and a child forked while another thread holds it would wait for it for ever (1 to 4 %
   of forks did). So a fork waits until nobody is inside. */
static atomic_int inside, forks;
static void enter(void) {
    while (atomic_fetch_add(&inside, 1), atomic_load(&forks)) {
        atomic_fetch_sub(&inside, 1);
        while (atomic_load(&forks)) sched_yield();
    }
}
static void leave(void) { atomic_fetch_sub(&inside, 1); }
static void before_fork(void) {
    atomic_fetch_add(&forks, 1);
    while (atomic_load(&inside)) sched_yield();
}
static void after_fork(void) { atomic_fetch_sub(&forks, 1); }
static void in_child(void) { atomic_store(&forks, 0), atomic_store(&inside, 0); }

static const double zero[2];
static const struct { float f; double d; } ones = {1, 1};
static const void *one(const Product *p) { return p->type == F32 ? (const void *)&ones.f : &ones.d; }

static void run_tiny(Product *p) {
    const int64_t down = p->a.transposed ? 1 : p->a.ld, right = p->a.transposed ? p->a.ld : 1;
    const int64_t under = p->b.transposed ? 1 : p->b.ld, beside = p->b.transposed ? p->b.ld : 1;
    loops[p->type].tiny(p->m, p->n, p->k, p->a.data, down, right, p->b.data, under, beside, p->alpha, p->beta, p->row, p->c.data, p->c.ld);
}

static void call(const Product *p, int64_t rows, int64_t cols, const void *a, const void *b, void *c) {
    int ta = p->a.transposed ? TRANSPOSED : NOT_TRANSPOSED, la = (int)p->a.ld, m = (int)rows, k = (int)p->k;
    int tb = p->b.transposed ? TRANSPOSED : NOT_TRANSPOSED, lb = (int)p->b.ld, n = (int)cols, lc = (int)p->c.ld;
    const void *beta = p->beta ? p->beta : zero;
    const float *f = p->alpha, *fb = beta;
    const double *d = p->alpha, *db = beta;
    if (!blas.all[0]) { /* there was no memory for copies */
        Product part = *p;
        part.m = rows, part.n = cols, part.a.data = (char *)a, part.b.data = (char *)b, part.c.data = c, part.row = NULL;
        run_tiny(&part);
        return;
    }
    enter();
    switch (p->type) {
    case F32: blas.sgemm(ROW_MAJOR, ta, tb, m, n, k, *f, a, la, b, lb, *fb, c, lc); break;
    case F64: blas.dgemm(ROW_MAJOR, ta, tb, m, n, k, *d, a, la, b, lb, *db, c, lc); break;
    case C64: blas.cgemm(ROW_MAJOR, ta, tb, m, n, k, f, a, la, b, lb, fb, c, lc); break;
    default: blas.zgemm(ROW_MAJOR, ta, tb, m, n, k, d, a, la, b, lb, db, c, lc);
    }
    leave();
}

/* The first column of a piece: as many panels for each as for the others, or one more. */
static int64_t first_column(const Product *p, int64_t piece) { return least(p->n, ceil_div(p->n, p->panel) * piece / p->beside * p->panel); }

static void piece(void *ctx, int64_t t) {
    const Product *p = ctx;
    int64_t i = t % p->below * p->rows, rows = least(p->rows, p->m - i);
    int64_t j = first_column(p, t / p->below), cols = first_column(p, t / p->below + 1) - j;
    _Alignas(64) char corner[MOST_ROWS * WIDEST]; /* C^T on its way into C */
    const int64_t panels = p->loops ? ceil_div(cols, p->panel) : 0;
    const size_t room = p->packs ? (size_t)(panels * p->kc * p->panel * p->size) : 0;
    char *const near = room ? fl_alloc(room) : NULL;
    char *c = at(p, &p->c, i, j), *out = p->c.transposed ? corner : c;
    int64_t ldc = p->c.transposed ? p->cols : p->c.ld;
    int64_t down = p->tiles ? 1 : p->a.ld, right = p->tiles ? TILE : 1, next = TILE * (p->tiles ? p->kc : p->a.ld);
    const void *beta = p->beta;
    if (beta && p->c.transposed && p->row) p->loops->spread(rows, cols, p->row + p->size * i, out, ldc);
    else if (beta && p->c.transposed) memset(out, 0, (size_t)(p->size * rows * ldc)), p->loops->turn(cols, rows, c, p->c.ld, out, ldc);
    const bool alone = p->loops && (near || !room), from_row = p->row && !p->c.transposed;
    for (int64_t r = 0; !alone && from_row && r < rows; r++) memcpy(out + p->size * r * ldc, p->row + p->size * j, (size_t)(p->size * cols));
    if (!alone) call(p, rows, cols, at(p, &p->a, i, 0), at(p, &p->b, 0, j), c);
    for (int64_t q = 0; alone && q < p->k; q += p->kc, beta = one(p)) {
        if (p->packs) p->loops->pack(least(p->kc, p->k - q), cols, at(p, &p->b, q, j), p->b.ld, p->b.transposed, near, p->kc);
        for (int64_t r = 0; r < rows; r += BLOCK)
            for (int64_t s = 0; s < cols; s += p->panel) {
                const int64_t wide = least(p->panel, cols - s);
                const bool more = r + BLOCK < rows, last = s + p->panel >= cols, ends = last && q + p->kc >= p->k;
                const char *soon = ends ? at(p, &p->b, 0, (j + cols) % p->n) : last ? at(p, &p->b, q + p->kc, j) : at(p, &p->b, q, j + s + p->panel);
                const int64_t n = s / p->panel, first = TILE * n / panels, lines = p->tiles ? 0 : TILE * (n + 1) / panels - first;
                const char *later = at(p, &p->a, i + first + (more ? r + BLOCK : 0), more ? q : q + p->kc);
                char *const to = out + p->size * (r * ldc + s);
                const bool row = from_row && q == 0; /* beta multiplies it, or C */
                const char *b = p->packs ? near + s * p->kc * p->size : b_at(p, q, j + s);
                /* In a corner of its own there is room for a last vector that is not whole, and zeros in the panel. */
                p->loops->strip(least(BLOCK, rows - r), p->c.transposed ? in_vectors(p, wide) : wide,
                                least(p->kc, p->k - q), a_at(p, i + r, q), down, right, next, later, lines, b, p->packs || p->panels ? p->panel : p->b.ld,
                                p->packs || p->panels || more ? NULL : soon, p->alpha, beta,
                                row ? p->row + p->size * (j + s) : to, row ? 0 : ldc, to, ldc);
            }
    }
    if (p->c.transposed) p->loops->turn(rows, cols, out, ldc, c, p->c.ld);
    fl_free(near, room);
}

/* A few rows of A and some columns of B, which lies there transposed: products of rows with rows. */
static void dots_piece(void *ctx, int64_t t) {
    const Product *p = ctx;
    int64_t j = t * p->cols, cols = least(p->cols, p->n - j);
    char *c = at(p, &p->c, 0, j);
    for (int64_t q = 0; q < p->k; q += p->kc) /* so little of K that A stays in the nearest cache while B goes by */
        p->loops->dots(p->m, cols, least(p->kc, p->k - q), at(p, &p->a, 0, q), p->a.ld, 1, 0, NULL, 0, at(p, &p->b, q, j), p->b.ld, NULL, p->alpha,
                       q ? one(p) : p->beta, p->row && !q ? p->row + p->size * j : c, p->row && !q ? 0 : p->c.ld, c, p->c.ld);
}

/* B and C have one column: gemm would copy all of A first, gemv does not. */
static void vector_piece(void *ctx, int64_t t) {
    const Product *p = ctx;
    int64_t i = t * p->rows, rows = least(p->rows, p->m - i);
    int trans = p->a.transposed ? TRANSPOSED : NOT_TRANSPOSED, la = (int)p->a.ld;
    int m = (int)(p->a.transposed ? p->k : rows), n = (int)(p->a.transposed ? rows : p->k);
    int lb = p->b.transposed ? 1 : (int)p->b.ld, lc = p->c.transposed ? 1 : (int)p->c.ld;
    const void *a = at(p, &p->a, i, 0), *b = p->b.data, *alpha = p->alpha, *beta = p->beta ? p->beta : zero;
    void *c = at(p, &p->c, i, 0);
    enter();
    if (p->type == F32) blas.sgemv(ROW_MAJOR, trans, m, n, *(const float *)alpha, a, la, b, lb, *(const float *)beta, c, lc);
    else blas.dgemv(ROW_MAJOR, trans, m, n, *(const double *)alpha, a, la, b, lb, *(const double *)beta, c, lc);
    leave();
}

static int64_t packs(const Product *p) { return p->panels ? ceil_div(p->n, SOME * p->panel) : 0; }
static int64_t cuts(const Product *p) { return p->tiles ? ceil_div(p->m, SOME * TILE) : 0; }

static void prepare(void *ctx, int64_t t) { /* a slice of K in some panels, which B's rows go through as they lie, or in some tiles */
    const Product *p = ctx;
    int64_t slices = ceil_div(p->k, SLICE), q = t % slices * SLICE, depth = least(SLICE, p->k - q), group = t / slices;
    int64_t wide = SOME * p->panel, j = group * wide, i = (group - packs(p)) * SOME * TILE;
    if (i < 0) p->loops->pack(depth, least(p->n - j, wide), at(p, &p->b, q, j), p->b.ld, p->b.transposed, b_at(p, q, j), p->k);
    else p->loops->cut(depth, least(p->m - i, SOME * TILE), at(p, &p->a, i, q), p->a.ld, a_at(p, i, q), p->kc);
}

/* C^T = B^T A^T */
static void flip(Product *p) {
    fl_matrix a = p->a;
    int64_t m = p->m;
    p->a = p->b, p->b = a, p->m = p->n, p->n = m;
    p->a.transposed ^= 1, p->b.transposed ^= 1, p->c.transposed ^= 1;
}

static void run(void (*fn)(void *, int64_t), Product *p, int64_t count, bool large) {
    if (large && 2.0 * (double)p->m * (double)p->n * (double)p->k >= WORTH_A_THREAD) fl_parallel(fn, p, count);
    else
        for (int64_t t = 0; t < count; t++) fn(p, t);
}

/* At least four pieces, if they are worth a thread each, and none with more than 512 x 1024 elements. */
static void run_plain(Product *p) {
    int64_t area = least(1 << 19, p->m * p->n / 4 + WORTH_A_THREAD / (2 * p->k + 1));
    p->rows = p->m, p->cols = p->n;
    while (p->rows * p->cols > area && (p->rows > 32 || p->cols > 64))
        if (p->rows > 32 && (p->rows >= p->cols || p->cols <= 64)) p->rows = ceil_div(p->rows, 32) * 16;
        else p->cols = ceil_div(p->cols, 128) * 64;
    p->below = ceil_div(p->m, p->rows), p->beside = ceil_div(p->n, p->cols), p->panel = least(p->cols, 64);
    run(piece, p, p->below * p->beside, true);
}

/* Pieces for all threads, several for each: cores are often not equally quick, be it that a neighbour on the machine takes some of one's
   time. (256 x 256 on such a one: 1.0 to 1.2 of MKL's time with 3 for each, 0.8 to 0.9 with 8.) Where each packs its part of B, rows are cut
   last: they would pack it again. Not by shape alone: however C is cut, an element is the same sum in the same order. */
static void cut(Product *p) {
    const int64_t threads = fl_get_num_threads(), enough = PIECES * threads, unit = !p->c.transposed ? 2 * TILE : p->a.transposed ? 8 * TILE : 16;
    const int64_t most = (p->c.transposed ? WIDEST : p->packs ? SHARE : MANY) / p->size;
    p->rows = p->c.transposed ? even(p->m, MOST_ROWS, unit) : p->m, p->cols = p->panel * ceil_div(p->n, p->panel * ceil_div(p->n, most));
    const bool small = 2.0 * (double)p->m * (double)p->n * (double)p->k < 2e8; /* then rows are better left together */
    const bool at_once = p->rows <= 2 * MOST_ROWS || (p->packs && p->loops->panel == WIDEST); /* rows of A are not read often */
    const int64_t narrowest = at_once ? p->panel : SHARE / 4 / p->size;
    for (int64_t count; p->below = ceil_div(p->m, p->rows), p->beside = ceil_div(p->n, p->cols), (count = p->below * p->beside) < enough;)
        if (p->cols > narrowest) p->cols = p->panel * ceil_div(p->cols, 2 * p->panel);
        else if (p->rows > 4 * TILE && p->rows > unit && !(small && 2 * count >= enough)) p->rows = ceil_div(ceil_div(p->rows, 2), unit) * unit;
        else break;
    /* As many for each thread as for the others, unless there are so many that one more is no matter. */
    while (p->below * p->beside % threads && p->below * p->beside < 8 * threads && p->beside < ceil_div(p->n, p->panel)) p->beside++;
}

static void run_vector(Product *p) { run(vector_piece, p, ceil_div(p->m, p->rows), true); }
static void run_dots(Product *p) { run(dots_piece, p, ceil_div(p->n, p->cols), true); }

static void run_strips(Product *p) {
    int64_t parts = 1 + p->k * (p->for_a + p->for_b) / MOST_PACKED, deep = least(p->k, p->kc * ceil_div(ceil_div(p->k, parts), p->kc)), q = 0;
    size_t bytes = (size_t)((p->for_a + p->for_b) * (deep + SLICE * ceil_div(deep, p->loops->depth)));
    char *buffer = bytes ? fl_alloc(bytes) : NULL;
    if (bytes && !buffer) {
        if (p->c.transposed) flip(p);
        p->loops = NULL, p->packs = false, run_plain(p);
        return;
    }
    p->panels = p->for_b ? buffer : NULL, p->tiles = p->for_a ? buffer + p->for_b * deep : NULL;
    for (Product part = *p; q < p->k; q += deep, part.row = NULL, part.beta = one(p)) {
        part.k = least(deep, p->k - q);
        part.a.data = at(p, &p->a, 0, q), part.b.data = at(p, &p->b, q, 0);
        run(prepare, &part, (packs(&part) + cuts(&part)) * ceil_div(part.k, SLICE), part.k * (p->for_a + p->for_b) > WORTH_A_COPY);
        run(piece, &part, p->below * p->beside, true);
    }
    fl_free(buffer, bytes);
}

/* A row is a column too, if its elements lie side by side. */
static void lie(fl_matrix *x, bool transposed) {
    if (x->ld == 1) x->transposed = transposed;
}

/* Note [panels]. False if there are no such loops, or if most of their vectors would be empty and the library has something better. */
static bool plan_strips(Product *p) {
    if (p->type > F64 || !loops || !loops->strip || p->k == 0) return false;
    p->loops = loops + p->type;
    if (p->n == 1 && p->m > 1) flip(p);
    if (p->m == 1) lie(&p->a, false), lie(&p->c, false);
    if (p->n == 1) lie(&p->b, true);
    const bool few = p->m <= 2 * TILE || (p->m <= FEW_ROWS && (p->loops->panel == WIDEST || p->n <= 2 * p->m)) ||
                     (p->m <= SOME_ROWS && 16 * p->m <= 13 * in_vectors(p, p->m));
    if (few && p->b.transposed && !p->a.transposed && !p->c.transposed) {
        p->cols = ceil_div(WORTH_A_THREAD, 32 * p->m * p->k) * 16;
        p->kc = even(p->k, NEAR / (p->m * p->size), 64 / p->size);
        return p->execute = run_dots, true;
    }
    if (blas.all[0] ? p->n <= 8 && (!p->a.transposed || p->m <= 16) : p->m == 1 && p->k * p->n > MOST_IN_A_ROW) return p->loops = NULL, false;
    if (p->b.transposed && p->k * p->m + p->m * p->n < p->k * p->n) flip(p);
    else if (p->a.transposed && !p->b.transposed && !p->c.transposed && !p->row && p->m >= 2 * p->n) flip(p); /* panels cost less than tiles */
    p->panel = p->loops->panel / p->size;
    int64_t step = p->b.ld * p->size;
    bool whole = !p->b.transposed && p->n * p->size % 64 == 0, aligned = ((uintptr_t)p->b.data | (uintptr_t)step) % 64 == 0;
    bool apart = aligned && step % 2048; /* else rows of B compete for the same places of the cache, or vectors lie in two lines of it */
    bool in_place = whole && (p->loops->panel < WIDEST ? p->k * step <= NEAR / 2 || p->m <= (apart && step < 4096 && p->k <= 256 ? BLOCK : 2 * TILE) /* lines here and there */
                              : p->k * step <= NEAR || (apart && (p->k <= 256 || p->m <= 336)) || p->m <= (apart ? 128 : step % 4096 ? 48 : 16));
    p->packs = !in_place && !p->c.transposed;
    cut(p);
    if (p->packs && p->below > 3) p->packs = false, cut(p); /* each of them would pack the same */
    p->for_a = p->a.transposed ? p->size * ceil_div(p->m, TILE) * TILE : 0;
    p->for_b = in_place || p->packs ? 0 : ceil_div(p->n, p->panel) * p->loops->panel;
    p->kc = even(p->k, p->loops->depth, SLICE); /* of all of K, however much of it is copied at a time: where a sum is rounded must not depend on that */
    return p->execute = run_strips, true;
}

/* How to go about it: the same for all products of a batch. False if only the library could, and there is none. */
static bool plan(Product *p) {
    bool is_row = p->m == 1 && p->n > 1, bound = blas.all[0];
    if (loops && p->type <= F64 && p->m * p->n * p->k <= TINY) p->execute = run_tiny;
    else if (bound && (is_row || p->n == 1) && p->k > 0 && p->type <= F64) {
        if (is_row) flip(p);
        p->rows = even(p->m, ceil_div(1 << 15, p->k) * 12, 12);
        p->execute = run_vector;
    } else if (!plan_strips(p)) p->execute = bound ? run_plain : NULL;
    return p->execute;
}

static void batch_block(void *ctx, int64_t t) {
    const Product *all = ctx;
    for (int64_t i = t * all->group; i < least(all->c.batch, (t + 1) * all->group); i++) {
        Product p = *all;
        p.a.data += p.size * i * p.a.stride, p.b.data += p.size * i * p.b.stride, p.c.data += p.size * i * p.c.stride;
        p.execute(&p);
    }
}

static bool fits(fl_matrix *x) {
    int64_t rows = x->transposed ? x->cols : x->rows, cols = x->transposed ? x->rows : x->cols; /* as stored */
    if (rows <= 1 || cols < 1) x->ld = cols > 1 ? cols : 1; /* a single row has no next one */
    return rows <= INT_MAX && x->ld >= cols && x->ld > 0 && x->ld <= INT_MAX;
}

int fl_gemm(int type, fl_matrix a, fl_matrix b, fl_matrix c, const void *alpha, const void *beta, const void *row) {
    static const int sizes[] = {4, 8, 8, 16};
    if (!fits(&a) || !fits(&b) || !fits(&c)) return -1;
    if (c.rows <= 0 || c.cols <= 0 || c.batch <= 0) return 0;
    Product p = {.type = type, .size = sizes[type], .a = a, .b = b, .c = c, .alpha = alpha, .beta = beta, .m = c.rows, .n = c.cols,
                 .k = a.cols, .row = row};
    if (row && (type > F64 || c.transposed || c.rows == 1 || c.cols == 1)) return -1;
    if (type == F32 ? *(const float *)beta == 0 : type == F64 && *(const double *)beta == 0) p.beta = NULL; /* C is not read */
    if (c.transposed) flip(&p);
    /* Few big products: one after the other, each with all threads. Else each thread takes a product, or several. */
    double flops = 2.0 * (double)p.m * (double)p.n * (double)p.k;
    p.group = c.batch < 16 && flops > 32.0 * WORTH_A_THREAD ? c.batch : 1 + (int64_t)(WORTH_A_THREAD / (flops + 1));
    if (!plan(&p)) return -1;
    if (c.batch <= p.group) batch_block(&p, 0);
    else fl_parallel(batch_block, &p, ceil_div(c.batch, p.group));
    return 0;
}

void fl_blas_bind(void *const functions[6], const fl_products ours[2]) {
    if (!blas.all[0] && functions[0]) pthread_atfork(before_fork, after_fork, in_child);
    memcpy(blas.all, functions, sizeof blas.all);
    loops = ours;
}
