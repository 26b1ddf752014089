/* What generated loops look like to the launcher. The tables are printed by kernels/generate.py, one per CPU variant. */
#pragma once
#include "dtypes.h"
#include "system.h"

enum { FL_MAX_IN = 10, FL_LINES = 128 };

/* One inner loop over n elements. ptr[0] and step[0] (in bytes) are the output's, the others the inputs'. An input may start at
   the very address of the output (in-place work); otherwise they do not overlap. */
typedef void (*fl_loop)(char *const *ptr, const int64_t *step, int64_t n, const double *param);

typedef struct {
    const char *name;
    fl_loop loop;
    uint8_t key;            /* the dtype this instance is for: that of the operands whose kind is "T" */
    uint8_t n_in, n_param;
    uint8_t generic;        /* bit i: input i is of kind "T" (Python numbers given for it become `key`) */
    uint8_t out, in[FL_MAX_IN];
    uint8_t rows;           /* not 0: a program for whole rows along the last dimension, apart from its inputs in memory. Bit o:
                               operand o is contiguous along the row; otherwise it is one number for all of it.
                               FL_LINES: an element stands for a line of param[0] elements, see index_loops.py */
    uint8_t numbers;        /* not 0: for calls where input i is a Python number (bit i), which is not rounded to half precision */
} fl_pointwise;

/* A reduction. Accumulators have 8 bytes each; of which dtype they are is the fold's own affair (see fold.py). */
typedef struct {
    const char *name;
    uint8_t key, out;
    void (*init)(void *acc, int64_t n);
    void (*merge)(void *acc, const void *more, int64_t n);
    /* The n elements of each of `count` results; elements are `step` bytes from one to the next, results `apart`. */
    void (*rows)(const char *x, int64_t step, int64_t n, int64_t apart, int64_t count, const double *shift, void *acc);
    void (*columns)(const char *x, int64_t step, int64_t n, int64_t apart, int64_t count, const double *shift, void *acc);
    void (*store)(const void *acc, int64_t n, double count, const double *shift, char *out);
} fl_fold;

typedef struct {
    const char *variant;    /* "baseline", "avx2", "avx512" */
    const fl_pointwise *pointwise;
    int n_pointwise;
    const fl_fold *folds;
    int n_folds;
    const fl_products *products; /* for float32 and float64, see system.h */
} fl_table;
