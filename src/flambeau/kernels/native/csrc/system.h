/* What the extension stands on: threads, memory and matrix products. Plain C that knows nothing of tensors or Python. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- threads.c: the one worker pool of the process ---- */
/* Call fn(ctx, 0), ..., fn(ctx, nblocks - 1), each exactly once, in any order, on any thread; return when all are done.
   The caller works too. A call made inside a block, or while another thread's call holds the pool, runs its blocks
   itself, one after the other: never a deadlock, never more threads than asked for.
   Cut work into blocks by its shape alone, and the result is the same bits with any number of threads. */
void fl_parallel(void (*fn)(void *ctx, int64_t block), void *ctx, int64_t nblocks);

int fl_get_num_threads(void); /* threads one fl_parallel uses, the caller included */
void fl_set_num_threads(int n);
void fl_set_available_cpus(int n); /* what this process may use; Python finds out and tells, see limits.py */

/* ---- pool.c: tensor memory. Safe from any thread, and across fork ---- */
void *fl_alloc(size_t n);        /* n bytes, aligned to 64, contents undefined; NULL when there is no memory */
void fl_free(void *p, size_t n); /* n is the n of fl_alloc */
bool fl_is_cached(size_t n);     /* whether fl_alloc(n) would take nothing from the system */

/* Bytes in use, kept for reuse, and in use at most since the last reset; sizes as rounded up to their class. */
void fl_pool_stats(int64_t *live, int64_t *cached, int64_t *peak, bool reset_peak);
void fl_pool_trim(void);               /* give every cached block back to the system */
void fl_pool_set_memory(double bytes); /* what the process may use; a quarter of it, at most 4 GiB, may be cached */

/* ---- blas.c: our loops or OpenBLAS on one thread for each piece of a product, our own threads for all pieces ---- */
/* C (rows, cols) = alpha A B + beta D, or alpha A B without reading D if beta is NULL. D is C or, with ldd 0, one row for all. At most a panel of columns; B is read in whole
   vectors. A: elements from row to row, from column to column, and from 6 rows to the next.
   `later`: so many lines, from row to row, of the rows of A that come after these; `soon`: what of B comes next, if it is not near; else
   NULL. Printed by print_gemm.py. */
typedef void fl_strip(int64_t rows, int64_t cols, int64_t depth, const void *a, int64_t down, int64_t right, int64_t next, const void *later, int64_t lines, const void *b,
                      int64_t ldb, const void *soon, const void *alpha, const void *beta, const void *d, int64_t ldd, void *c, int64_t ldc);
typedef struct {
    fl_strip *strip, *dots; /* dots: B is read where it lies, column after column, `ldb` elements from one to the next */
    void (*pack)(int64_t depth, int64_t cols, const void *b, int64_t ld, bool turned, void *panels, int64_t deep);
    void (*cut)(int64_t depth, int64_t rows, const void *a, int64_t ld, void *tiles, int64_t deep); /* A lies there transposed */
    void (*turn)(int64_t rows, int64_t cols, const void *from, int64_t ld, void *to, int64_t ld_to);
    void (*spread)(int64_t rows, int64_t cols, const void *from, void *to, int64_t ld); /* one number of `from` in each row */
    int64_t vector, panel, depth; /* bytes, bytes, and how much of K a panel had best hold */
    /* So few numbers that it pays to plan nothing, as the 3 x 3 matrices of geometry: elements from row to row and column to column. */
    void (*tiny)(int64_t rows, int64_t cols, int64_t depth, const void *a, int64_t down, int64_t right, const void *b, int64_t under, int64_t beside,
                 const void *alpha, const void *beta, const void *row, void *c, int64_t ldc);
} fl_products;
/* cblas_sgemm, dgemm, cgemm, zgemm, sgemv and dgemv of a library with 32-bit integers that is set to one thread (all NULL: there is none),
   and our loops for float32 and float64, of which all but `tiny` are NULL where there are none. */
void fl_blas_bind(void *const functions[6], const fl_products loops[2]);

typedef struct { /* (rows, cols), or a batch of such matrices */
    char *data;
    int64_t rows, cols, ld, batch, stride; /* ld: elements from row to row. stride: from matrix to matrix, 0 for the same one */
    bool transposed;                       /* stored column after column; ld is from column to column then */
} fl_matrix;

/* C = alpha A B + beta C; type 0 float32, 1 float64, 2 complex64, 3 complex128. beta = 0 ignores what C holds, NaN too.
   With a row, C = alpha A B + beta times that in every row; for real C with more than one row and column, not transposed.
   Work is cut by shape alone: same bits with any number of threads.
   0, or -1 if a size exceeds 32 bits, rows overlap (ld below their length), or only a library could do it and none is bound. */
int fl_gemm(int type, fl_matrix a, fl_matrix b, fl_matrix c, const void *alpha, const void *beta, const void *row);
