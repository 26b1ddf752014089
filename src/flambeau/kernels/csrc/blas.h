/* Matrix products: OpenBLAS on one thread for each piece, our own threads for all pieces. */
#ifndef FLAMBEAU_BLAS_H
#define FLAMBEAU_BLAS_H

#include <stdint.h>

/* Find <prefix>cblas_{s,d,c,z}gemm<suffix> and {s,d}gemv in a library with 32-bit integers, and set it to one thread.
   0, or -1 if the library cannot be opened or lacks one of them. */
int fl_blas_bind(const char *library_path, const char *prefix, const char *suffix);

/* C = alpha op(A) op(B) + beta C for each of `batch` products; type 0 float32, 1 float64, 2 complex64, 3 complex128.
     op(A) (m, k)   stored (k, m) if transa
     op(B) (k, n)   stored (n, k) if transb
     C     (m, n)
   Row major; leading dimensions and strides in elements; a stride of 0 uses the same matrix for the whole batch.
   beta = 0 ignores what C holds, NaN too. Work is cut by shape alone: same bits with any number of threads.
   0, or -1 if no library is bound, a size exceeds 32 bits, or rows overlap (leading dimension below the row length). */
int fl_gemm(int type, int transa, int transb, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a,
            int64_t lda, const void *b, int64_t ldb, const void *beta, void *c, int64_t ldc, int64_t batch,
            int64_t stride_a, int64_t stride_b, int64_t stride_c);

#endif
