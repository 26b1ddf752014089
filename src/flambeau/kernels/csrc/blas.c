/* Matrix products, cut into pieces of C; a piece is one call of single-threaded OpenBLAS, or a few.

   Note [panels]
   OpenBLAS's usual kernel copies both operands into a layout of its own in every call, which pays for big pieces only.
   For AVX-512 it has another, taken when m n k <= 10^6, which reads them where they lie: 170 GFLOP/s a core instead of
   100 to 130, if nothing is transposed and C is 64 columns wide. So there we do the copying, once for all pieces:
     B   is cut into panels of 64 columns, whose rows then lie side by side (in place if A has few rows);
     A   is turned if it is transposed and small, and B wide;
     K   is walked in chunks that keep a call below 10^6.
   If B is transposed and A has few rows (a linear layer with a small batch), C^T = B A^T costs less to turn.
   Measured with two threads of an Ice Lake, 64 x 784 x 256 to 1024^3: 0.75 to 1 of the time of OpenBLAS's threads. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* setenv, strdup */
#endif
#include "blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "pool.h"
#include "threads.h"

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
    int64_t size;                 /* of an element */
    bool transa, transb, flipped; /* flipped: C is stored transposed */
    int64_t m, n, k, lda, ldb, ldc;
    const char *a, *b;
    char *c;
    const void *alpha, *beta;
    int64_t batch, stride_a, stride_b, stride_c, group; /* how many products, and how many to a block */
    int64_t rows, cols, across, mc, kc; /* size of a piece, pieces beside each other; rows and depth of one call */
    char *panels, *turned;              /* B in panels, A turned; NULL: use them as they are */
} Product;

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }
static int64_t ceil_div(int64_t x, int64_t y) { return (x + y - 1) / y; }
/* Equal parts of x, each at most `most`: their size, a multiple of four because kernels like that. */
static int64_t even(int64_t x, int64_t most) { return ceil_div(ceil_div(x, ceil_div(x, most)), 4) * 4; }

static int64_t at(const Product *p, int64_t i, int64_t j, int64_t ld, bool transposed) {
    return p->size * (transposed ? j * ld + i : i * ld + j);
}
static const char *a_at(const Product *p, int64_t i, int64_t q) {
    if (p->turned) return p->turned + p->size * (q / p->kc * p->m + i) * (p->kc + PAD); /* chunk after chunk of K */
    return p->a + at(p, i, q, p->lda, p->transa);
}
static const char *b_at(const Product *p, int64_t q, int64_t j) {
    if (p->panels) return p->panels + p->size * (p->k * j + q * PANEL);
    return p->b + at(p, q, j, p->ldb, p->transb);
}
static char *c_at(const Product *p, int64_t i, int64_t j) { return p->c + at(p, i, j, p->ldc, p->flipped); }

/* to (cols, rows) = from (rows, cols) turned, for a tile of at most 4 x 4. Steps from row to row in bytes. */
static void turn_tile(int64_t size, int64_t rows, int64_t cols, const char *from, int64_t step, char *to,
                      int64_t leap) {
#ifdef __SSE2__
    if (size == 4 && rows == 4 && cols == 4) { /* 2.5 times as fast as element by element */
        __m128 r0 = _mm_loadu_ps((const float *)from), r1 = _mm_loadu_ps((const float *)(from + step));
        __m128 r2 = _mm_loadu_ps((const float *)(from + 2 * step)), r3 = _mm_loadu_ps((const float *)(from + 3 * step));
        _MM_TRANSPOSE4_PS(r0, r1, r2, r3);
        _mm_storeu_ps((float *)to, r0), _mm_storeu_ps((float *)(to + leap), r1);
        _mm_storeu_ps((float *)(to + 2 * leap), r2), _mm_storeu_ps((float *)(to + 3 * leap), r3);
        return;
    }
#endif
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            if (size == 4) memcpy(to + j * leap + i * 4, from + i * step + j * 4, 4);
            else memcpy(to + j * leap + i * 8, from + i * step + j * 8, 8);
}

/* The same for any size, 16 rows at a time: so many lines the nearest cache holds easily. */
static void turn(int64_t size, int64_t rows, int64_t cols, const char *from, int64_t ld, char *to, int64_t ld_to) {
    for (int64_t strip = 0; strip < rows; strip += 16)
        for (int64_t j = 0; j < cols; j += 4)
            for (int64_t i = strip; i < least(strip + 16, rows); i += 4)
                turn_tile(size, least(4, rows - i), least(4, cols - j), from + size * (i * ld + j), size * ld,
                          to + size * (j * ld_to + i), size * ld_to);
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

static void call(const Product *p, int64_t rows, int64_t cols, int64_t depth, const void *a, const void *b,
                 const void *beta, void *c, int64_t ldc) {
    int ta = p->transa && !p->turned ? TRANSPOSED : NOT_TRANSPOSED, la = (int)(p->turned ? p->kc + PAD : p->lda);
    int tb = p->transb && !p->panels ? TRANSPOSED : NOT_TRANSPOSED, lb = (int)(p->panels ? PANEL : p->ldb);
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
    static const float one_f = 1;
    static const double one_d = 1;
    const Product *p = ctx;
    int64_t i = t / p->across * p->rows, rows = least(p->rows, p->m - i);
    int64_t j = t % p->across * p->cols, cols = least(p->cols, p->n - j), q = 0;
    double corner[MOST_ROWS * PANEL]; /* a piece of C^T on its way into C */
    char *c = c_at(p, i, j), *out = p->flipped ? (char *)corner : c;
    int64_t ldc = p->flipped ? PANEL : p->ldc;
    if (p->flipped) turn(p->size, cols, rows, c, p->ldc, out, ldc);
    do { /* once for k = 0, too: C = beta C */
        const void *beta = q == 0 ? p->beta : p->type == F32 ? (const void *)&one_f : &one_d;
        for (int64_t r = 0; r < rows; r += p->mc)
            call(p, least(p->mc, rows - r), cols, least(p->kc, p->k - q), a_at(p, i + r, q), b_at(p, q, j), beta,
                 out + p->size * r * ldc, ldc);
    } while ((q += p->kc) < p->k);
    if (p->flipped) turn(p->size, rows, cols, out, ldc, c, p->ldc);
}

/* B and C have one column: gemm would copy all of A first, gemv does not. */
static void vector_piece(void *ctx, int64_t t) {
    const Product *p = ctx;
    int64_t i = t * p->rows, rows = least(p->rows, p->m - i);
    int trans = p->transa ? TRANSPOSED : NOT_TRANSPOSED;
    int m = (int)(p->transa ? p->k : rows), n = (int)(p->transa ? rows : p->k);
    int la = (int)p->lda, step = p->transb ? 1 : (int)p->ldb, lc = (int)p->ldc;
    const float *f = p->alpha, *fb = p->beta;
    const double *d = p->alpha, *db = p->beta;
    enter();
    if (p->type == F32) blas.sgemv(ROW_MAJOR, trans, m, n, *f, a_at(p, i, 0), la, p->b, step, *fb, c_at(p, i, 0), lc);
    else blas.dgemv(ROW_MAJOR, trans, m, n, *d, a_at(p, i, 0), la, p->b, step, *db, c_at(p, i, 0), lc);
    leave();
}

static void pack_chunk(void *ctx, int64_t t) {
    const Product *p = ctx;
    int64_t j = t % p->across * PANEL, cols = least(PANEL, p->n - j), q = t / p->across * p->kc;
    const char *from = p->b + at(p, q, j, p->ldb, p->transb);
    char *to = (char *)b_at(p, q, j);
    if (p->transb) turn(p->size, cols, least(p->kc, p->k - q), from, p->ldb, to, PANEL);
    else
        for (int64_t r = 0; r < least(p->kc, p->k - q); r++)
            memcpy(to + p->size * r * PANEL, from + p->size * r * p->ldb, (size_t)(p->size * cols));
}

static void turn_chunk(void *ctx, int64_t t) {
    const Product *p = ctx;
    int64_t q = t * p->kc, depth = least(p->kc, p->k - q);
    turn(p->size, depth, p->m, p->a + p->size * q * p->lda, p->lda, (char *)a_at(p, 0, q), p->kc + PAD);
}

/* C^T = op(B)^T op(A)^T */
static void flip(Product *p) {
    Product q = *p;
    p->m = q.n, p->a = q.b, p->lda = q.ldb, p->transa = !q.transb;
    p->n = q.m, p->b = q.a, p->ldb = q.lda, p->transb = !q.transa;
    p->flipped = true;
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
    int64_t cols = p.transb ? least(p.n, PANEL) : p.n;
    if (p.m * cols * p.k <= SMALL_KERNEL && (!p.transb || p.m * cols <= SMALL_C)) { /* OpenBLAS does it by itself */
        p.rows = p.mc = p.m, p.cols = cols, p.kc = p.k;
        return run_pieces(&p), true;
    }
    if (p.transb && (p.transa || p.k * p.m + p.m * p.n < p.k * p.n)) flip(&p);
    bool turns_a = p.transa && p.n >= 4 * PANEL && p.size * p.k * p.m <= MOST_PACKED / 4;
    if (p.size * p.k * p.n > (p.transa && !turns_a ? MOST_PACKED / 8 : MOST_PACKED)) return false;
    p.rows = even(p.m, MOST_ROWS), p.cols = PANEL, p.across = ceil_div(p.n, PANEL);
    while (p.rows > 120 && ceil_div(p.m, p.rows) * p.across < 8) p.rows = even(p.rows, (p.rows / 2 + 3) & ~3);
    p.kc = even(p.k, p.transa && !turns_a ? 64 : 128), p.mc = even(p.rows, SMALL_KERNEL / PANEL / p.kc & ~3);
    int64_t step = p.ldb * p.size, chunks = ceil_div(p.k, p.kc);
    bool aligned = ((uintptr_t)p.b | (uintptr_t)step) % 64 == 0;
    bool in_place = !p.transb && aligned && (p.m <= 16 || (p.m <= 64 && step % 2048)); /* 2048: as PAD */
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
    if (p.m == 1 && p.n > 1) flip(&p), p.flipped = false, p.ldc = 1; /* a row of C is a column of C^T */
    if (p.n == 1 && p.k > 0 && p.type <= F64) {
        p.rows = even(p.m, ceil_div(1 << 17, p.k) * 4);
        run(vector_piece, &p, ceil_div(p.m, p.rows));
    } else if (!run_panels(p)) run_plain(&p);
}

static void batch_block(void *ctx, int64_t t) {
    const Product *first = ctx;
    for (int64_t i = t * first->group; i < least(first->batch, (t + 1) * first->group); i++) {
        Product p = *first;
        p.a += p.size * i * p.stride_a, p.b += p.size * i * p.stride_b, p.c += p.size * i * p.stride_c;
        multiply(p);
    }
}

static bool fits(int64_t rows, int64_t cols, int64_t *ld) {
    if (rows <= 1) *ld = cols > 1 ? cols : 1; /* a single row has no next one */
    return rows <= INT_MAX && *ld >= cols && *ld > 0 && *ld <= INT_MAX;
}

int fl_gemm(int type, int transa, int transb, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a,
            int64_t lda, const void *b, int64_t ldb, const void *beta, void *c, int64_t ldc, int64_t batch,
            int64_t stride_a, int64_t stride_b, int64_t stride_c) {
    static const int sizes[] = {4, 8, 8, 16};
    if (!blas.all[0] || !fits(transa ? k : m, transa ? m : k, &lda) || !fits(transb ? n : k, transb ? k : n, &ldb) ||
        !fits(m, n, &ldc))
        return -1;
    if (m <= 0 || n <= 0 || batch <= 0) return 0;
    if (stride_b == 0 && !transa && stride_a == m * lda && stride_c == m * ldc && m * batch <= INT_MAX)
        m *= batch, batch = 1; /* the same B for all: one product with a high A */
    /* Few big products: one after the other, each with all threads. Else each thread takes a product, or several. */
    double flops = 2.0 * (double)m * (double)n * (double)k;
    int64_t group = batch < 16 && flops > 32.0 * WORTH_A_THREAD ? batch : 1 + (int64_t)(WORTH_A_THREAD / (flops + 1));
    Product all = {.type = type, .size = sizes[type], .transa = transa, .transb = transb, .m = m, .n = n, .k = k,
                   .lda = lda, .ldb = ldb, .ldc = ldc, .a = a, .b = b, .c = c, .alpha = alpha, .beta = beta,
                   .batch = batch, .stride_a = stride_a, .stride_b = stride_b, .stride_c = stride_c, .group = group};
    if (batch <= group) batch_block(&all, 0);
    else fl_parallel(batch_block, &all, ceil_div(batch, group));
    return 0;
}

static void *find(void *library, const char *prefix, const char *name, const char *suffix) {
    char symbol[256];
    snprintf(symbol, sizeof symbol, "%s%s%s", prefix, name, suffix);
    return dlsym(library, symbol);
}

/* When it is loaded, OpenBLAS starts a thread per CPU, and they spin for a while, unless it is told not to. */
static void *open_quietly(const char *path) {
    static const char *const variable = "OPENBLAS_NUM_THREADS";
    char *before = getenv(variable) ? strdup(getenv(variable)) : NULL;
    setenv(variable, "1", 1);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    before ? setenv(variable, before, 1) : unsetenv(variable);
    free(before);
    return library;
}

int fl_blas_bind(const char *library_path, const char *prefix, const char *suffix) {
    static const char *const names[] = {"cblas_sgemm", "cblas_dgemm", "cblas_cgemm",
                                        "cblas_zgemm", "cblas_sgemv", "cblas_dgemv"};
    void *library = open_quietly(library_path), *found[6];
    for (int i = 0; i < 6; i++)
        if (!library || !(found[i] = find(library, prefix, names[i], suffix))) return -1;
    void (*set_threads)(int);
    char *(*get_core)(void);
    *(void **)&set_threads = find(library, prefix, "openblas_set_num_threads", suffix);
    *(void **)&get_core = find(library, prefix, "openblas_get_corename", suffix);
    if (set_threads) set_threads(1); /* it may have been loaded before us */
    const char *core = get_core ? get_core() : "";
    has_small_kernel = !strcmp(core, "SkylakeX") || !strcmp(core, "Cooperlake") || !strcmp(core, "SapphireRapids");
    if (!blas.all[0]) pthread_atfork(before_fork, after_fork, in_child);
    memcpy(blas.all, found, sizeof found);
    return 0;
}
