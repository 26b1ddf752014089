/* Matrix products, cut into pieces of C; a piece is one call of single-threaded OpenBLAS, or a few.

   Note [panels]
   OpenBLAS's usual kernel copies both operands into a layout of its own in every call, which pays for big pieces only.
   For AVX-512 it has another, taken when m n k <= 10^6, which reads them where they lie: within 3 % of the CPU's peak
   if nothing is transposed and C is 64 columns wide. So there we do the copying, once for all pieces:
     B   is cut into panels of 64 columns, whose rows then lie side by side (in place if A has few rows);
     A   is turned if it is transposed and small, and B wide;
     K   is walked in chunks that keep a call below 10^6.
   If B is transposed and A has few rows (a linear layer with a small batch), C^T = B A^T costs less to turn.
   Measured on two threads of an Ice Lake: 0.65 to 0.95 of the time of OpenBLAS's own threads up to 1024 x 1024. */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "system.h"
#include "tiles.h"

enum { F32, F64, C64, C128 };                                     /* types */
enum { ROW_MAJOR = 101, NOT_TRANSPOSED = 111, TRANSPOSED = 112 }; /* CBLAS's numbers */
enum { PANEL = 64, MOST_ROWS = 240, SMALL_KERNEL = 1000000 };     /* Note [panels] */
enum { SMALL_C = 1200 };           /* up to so many elements the small kernel takes a transposed B, too */
enum { MOST_PACKED = 4 << 20 };    /* bytes of B in panels: beyond the cache, plain pieces are faster */
enum { PAD = 16 };                 /* rows a power of two apart would compete for the same lines of the cache */
enum { WORTH_A_THREAD = 1000000 }; /* flops: 5 to 10 us */

#define GEMM(T) (int, int, int, int, int, int, T, const void *, int, const void *, int, T, void *, int)
#define GEMV(T) (int, int, int, int, T, const void *, int, const void *, int, T, void *, int)
static union {
    struct {
        void (*sgemm)GEMM(float), (*dgemm)GEMM(double), (*cgemm)GEMM(const void *), (*zgemm)GEMM(const void *);
        void (*sgemv)GEMV(float), (*dgemv)GEMV(double);
    };
    void *all[6];
} blas;
static bool has_small_kernel;

typedef struct {
    int type;
    int64_t size;      /* of an element */
    fl_matrix a, b, c; /* (m, k), (k, n), (m, n) */
    int64_t m, n, k;
    const void *alpha, *beta;
    int64_t group;                      /* products of a batch to a block */
    int64_t rows, cols, across, mc, kc; /* size of a piece, pieces beside each other; rows and depth of one call */
    char *panels, *turned;              /* B in panels, A turned; NULL: use them as they are */
} Product;

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
/* Equal parts of x, each at most `most`: their size, a multiple of four because kernels like that. */
static int64_t even(int64_t x, int64_t most) { return ceil_div(ceil_div(x, ceil_div(x, most)), 4) * 4; }

static char *at(const Product *p, const fl_matrix *x, int64_t i, int64_t j) {
    return x->data + p->size * (x->transposed ? j * x->ld + i : i * x->ld + j);
}
static char *a_at(const Product *p, int64_t i, int64_t q) { /* turned: chunk after chunk of K */
    return p->turned ? p->turned + p->size * (q / p->kc * p->m + i) * (p->kc + PAD) : at(p, &p->a, i, q);
}
static char *b_at(const Product *p, int64_t q, int64_t j) {
    return p->panels ? p->panels + p->size * (p->k * j + q * PANEL) : at(p, &p->b, q, j);
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

static void call(const Product *p, int64_t rows, int64_t cols, int64_t depth, const void *a, const void *b, const void *beta,
                 void *c, int64_t ldc) {
    int ta = p->a.transposed && !p->turned ? TRANSPOSED : NOT_TRANSPOSED, la = (int)(p->turned ? p->kc + PAD : p->a.ld);
    int tb = p->b.transposed && !p->panels ? TRANSPOSED : NOT_TRANSPOSED, lb = (int)(p->panels ? PANEL : p->b.ld);
    int m = (int)rows, n = (int)cols, k = (int)depth, lc = (int)ldc;
    const float *f = p->alpha, *fb = beta;
    const double *d = p->alpha, *db = beta;
    enter();
    switch (p->type) {
    case F32: blas.sgemm(ROW_MAJOR, ta, tb, m, n, k, *f, a, la, b, lb, *fb, c, lc); break;
    case F64: blas.dgemm(ROW_MAJOR, ta, tb, m, n, k, *d, a, la, b, lb, *db, c, lc); break;
    case C64: blas.cgemm(ROW_MAJOR, ta, tb, m, n, k, f, a, la, b, lb, fb, c, lc); break;
    default: blas.zgemm(ROW_MAJOR, ta, tb, m, n, k, d, a, la, b, lb, db, c, lc);
    }
    leave();
}

static void piece(void *ctx, int64_t t) {
    static const struct { float f; double d; } one = {1, 1};
    const Product *p = ctx;
    int64_t i = t / p->across * p->rows, rows = least(p->rows, p->m - i);
    int64_t j = t % p->across * p->cols, cols = least(p->cols, p->n - j), q = 0;
    double corner[MOST_ROWS * PANEL]; /* a piece of C^T on its way into C */
    char *c = at(p, &p->c, i, j), *out = p->c.transposed ? (char *)corner : c;
    int64_t ldc = p->c.transposed ? PANEL : p->c.ld;
    if (p->c.transposed) fl_turn(p->size, cols, rows, c, p->c.ld, out, ldc);
    do { /* once for k = 0, too: C = beta C */
        const void *beta = q == 0 ? p->beta : p->type == F32 ? (const void *)&one.f : &one.d;
        for (int64_t r = 0; r < rows; r += p->mc)
            call(p, least(p->mc, rows - r), cols, least(p->kc, p->k - q), a_at(p, i + r, q), b_at(p, q, j), beta,
                 out + p->size * r * ldc, ldc);
    } while ((q += p->kc) < p->k);
    if (p->c.transposed) fl_turn(p->size, rows, cols, out, ldc, c, p->c.ld);
}

/* B and C have one column: gemm would copy all of A first, gemv does not. */
static void vector_piece(void *ctx, int64_t t) {
    const Product *p = ctx;
    int64_t i = t * p->rows, rows = least(p->rows, p->m - i);
    int trans = p->a.transposed ? TRANSPOSED : NOT_TRANSPOSED, la = (int)p->a.ld;
    int m = (int)(p->a.transposed ? p->k : rows), n = (int)(p->a.transposed ? rows : p->k);
    int lb = p->b.transposed ? 1 : (int)p->b.ld, lc = p->c.transposed ? 1 : (int)p->c.ld;
    const void *a = at(p, &p->a, i, 0), *b = p->b.data, *alpha = p->alpha, *beta = p->beta;
    void *c = at(p, &p->c, i, 0);
    enter();
    if (p->type == F32) blas.sgemv(ROW_MAJOR, trans, m, n, *(const float *)alpha, a, la, b, lb, *(const float *)beta, c, lc);
    else blas.dgemv(ROW_MAJOR, trans, m, n, *(const double *)alpha, a, la, b, lb, *(const double *)beta, c, lc);
    leave();
}

static void pack_chunk(void *ctx, int64_t t) {
    const Product *p = ctx;
    int64_t j = t % p->across * PANEL, cols = least(PANEL, p->n - j), q = t / p->across * p->kc, depth = least(p->kc, p->k - q);
    const char *from = at(p, &p->b, q, j);
    char *to = b_at(p, q, j);
    if (p->b.transposed) fl_turn(p->size, cols, depth, from, p->b.ld, to, PANEL);
    else
        for (int64_t r = 0; r < depth; r++)
            memcpy(to + p->size * r * PANEL, from + p->size * r * p->b.ld, (size_t)(p->size * cols));
}

static void turn_chunk(void *ctx, int64_t t) {
    const Product *p = ctx;
    int64_t q = t * p->kc;
    fl_turn(p->size, least(p->kc, p->k - q), p->m, at(p, &p->a, 0, q), p->a.ld, a_at(p, 0, q), p->kc + PAD);
}

/* C^T = B^T A^T */
static void flip(Product *p) {
    fl_matrix a = p->a;
    int64_t m = p->m;
    p->a = p->b, p->b = a, p->m = p->n, p->n = m;
    p->a.transposed ^= 1, p->b.transposed ^= 1, p->c.transposed ^= 1;
}

static void run(void (*fn)(void *, int64_t), Product *p, int64_t count) {
    if (2.0 * (double)p->m * (double)p->n * (double)p->k >= WORTH_A_THREAD) fl_parallel(fn, p, count);
    else
        for (int64_t t = 0; t < count; t++) fn(p, t);
}

static void run_pieces(Product *p) {
    p->across = ceil_div(p->n, p->cols);
    run(piece, p, ceil_div(p->m, p->rows) * p->across);
}

/* At least four pieces, if they are worth a thread each, and none with more than 512 x 1024 elements. */
static void run_plain(Product *p) {
    int64_t area = least(1 << 19, p->m * p->n / 4 + WORTH_A_THREAD / (2 * p->k + 1));
    p->rows = p->m, p->cols = p->n;
    while (p->rows * p->cols > area && (p->rows > 32 || p->cols > PANEL))
        if (p->rows > 32 && (p->rows >= p->cols || p->cols <= PANEL)) p->rows = ceil_div(p->rows, 32) * 16;
        else p->cols = ceil_div(p->cols, 2 * PANEL) * PANEL;
    p->mc = p->rows, p->kc = p->k;
    run_pieces(p);
}

/* Note [panels]. False if they are not for this product. */
static bool run_panels(Product p) {
    if (!has_small_kernel || p.type > F64 || p.k == 0) return false;
    int64_t cols = p.b.transposed ? least(p.n, PANEL) : p.n;
    if (p.m * cols * p.k <= SMALL_KERNEL && (!p.b.transposed || p.m * cols <= SMALL_C)) { /* OpenBLAS does it by itself */
        p.rows = p.mc = p.m, p.cols = cols, p.kc = p.k;
        return run_pieces(&p), true;
    }
    if (p.b.transposed && (p.a.transposed || p.k * p.m + p.m * p.n < p.k * p.n)) flip(&p);
    bool turns_a = p.a.transposed && p.n >= 4 * PANEL && p.size * p.k * p.m <= MOST_PACKED / 4;
    bool reads_columns = p.a.transposed && !turns_a;
    if (p.size * p.k * p.n > (reads_columns ? MOST_PACKED / 8 : MOST_PACKED)) return false;
    p.rows = even(p.m, MOST_ROWS), p.cols = PANEL, p.across = ceil_div(p.n, PANEL);
    while (p.rows > 120 && ceil_div(p.m, p.rows) * p.across < 8) p.rows = even(p.rows, (p.rows / 2 + 3) & ~3);
    p.kc = even(p.k, reads_columns ? 64 : 128), p.mc = even(p.rows, SMALL_KERNEL / PANEL / p.kc & ~3);
    int64_t step = p.b.ld * p.size, chunks = ceil_div(p.k, p.kc);
    bool aligned = ((uintptr_t)p.b.data | (uintptr_t)step) % 64 == 0;
    bool in_place = !p.b.transposed && aligned && (p.m <= 16 || (p.m <= 64 && step % 2048)); /* 2048: as PAD */
    size_t for_b = in_place ? 0 : (size_t)(p.size * p.k * p.across * PANEL);
    size_t for_a = turns_a ? (size_t)(p.size * p.m * chunks * (p.kc + PAD)) : 0;
    char *buffer = for_a + for_b ? fl_alloc(for_a + for_b) : NULL;
    if (for_a + for_b && !buffer) return false;
    if (for_b) p.panels = buffer, run(pack_chunk, &p, chunks * p.across);
    if (for_a) p.turned = buffer + for_b, run(turn_chunk, &p, chunks);
    run_pieces(&p);
    fl_free(buffer, for_a + for_b);
    return true;
}

static void multiply(Product p) {
    bool is_row = p.m == 1 && p.n > 1;
    if ((is_row || p.n == 1) && p.k > 0 && p.type <= F64) {
        if (is_row) flip(&p);
        p.rows = even(p.m, ceil_div(1 << 17, p.k) * 4);
        run(vector_piece, &p, ceil_div(p.m, p.rows));
    } else if (!run_panels(p)) run_plain(&p);
}

static void batch_block(void *ctx, int64_t t) {
    const Product *all = ctx;
    for (int64_t i = t * all->group; i < least(all->c.batch, (t + 1) * all->group); i++) {
        Product p = *all;
        p.a.data += p.size * i * p.a.stride, p.b.data += p.size * i * p.b.stride, p.c.data += p.size * i * p.c.stride;
        multiply(p);
    }
}

static bool fits(fl_matrix *x) {
    int64_t rows = x->transposed ? x->cols : x->rows, cols = x->transposed ? x->rows : x->cols; /* as stored */
    if (rows <= 1 || cols < 1) x->ld = cols > 1 ? cols : 1; /* a single row has no next one */
    return rows <= INT_MAX && x->ld >= cols && x->ld > 0 && x->ld <= INT_MAX;
}

int fl_gemm(int type, fl_matrix a, fl_matrix b, fl_matrix c, const void *alpha, const void *beta) {
    static const int sizes[] = {4, 8, 8, 16};
    if (!blas.all[0] || !fits(&a) || !fits(&b) || !fits(&c)) return -1;
    if (c.rows <= 0 || c.cols <= 0 || c.batch <= 0) return 0;
    Product p = {.type = type, .size = sizes[type], .a = a, .b = b, .c = c, .alpha = alpha, .beta = beta, .m = c.rows, .n = c.cols,
                 .k = a.cols};
    if (c.transposed) flip(&p);
    /* Few big products: one after the other, each with all threads. Else each thread takes a product, or several. */
    double flops = 2.0 * (double)p.m * (double)p.n * (double)p.k;
    p.group = c.batch < 16 && flops > 32.0 * WORTH_A_THREAD ? c.batch : 1 + (int64_t)(WORTH_A_THREAD / (flops + 1));
    if (c.batch <= p.group) batch_block(&p, 0);
    else fl_parallel(batch_block, &p, ceil_div(c.batch, p.group));
    return 0;
}

void fl_blas_bind(void *const functions[6], int small_kernel) {
    if (!blas.all[0]) pthread_atfork(before_fork, after_fork, in_child);
    memcpy(blas.all, functions, sizeof blas.all);
    has_small_kernel = small_kernel;
}
