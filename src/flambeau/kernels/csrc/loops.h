/* What generated loops look like to the launcher. The tables are printed by kernels/generate.py, one per CPU variant. */
#ifndef FLAMBEAU_LOOPS_H
#define FLAMBEAU_LOOPS_H
#include <stdint.h>

enum fl_type {
    FL_BOOL, FL_U8, FL_I8, FL_I16, FL_I32, FL_I64, FL_F16, FL_BF16, FL_F32, FL_F64, FL_C64, FL_C128, FL_NTYPES
};

#define FL_MAX_IN 6

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
} fl_pointwise;

/* A reduction. Accumulators are 8 bytes each: double for floating dtypes, int64_t for the others. */
typedef struct {
    const char *name;
    uint8_t key, out;
    void (*init)(void *acc, int64_t n);
    void (*merge)(void *acc, const void *more, int64_t n);
    void (*row)(const char *x, int64_t step, int64_t n, double shift, void *acc);
    void (*columns)(const char *x, int64_t step, int64_t rows, int64_t columns, const double *shift, void *acc);
    void (*store)(const void *acc, int64_t n, double count, const double *shift, char *out);
    int64_t (*find)(const char *x, int64_t step, int64_t n, const void *value); /* or NULL */
} fl_fold;

/* A row program. ptr[0] is the output's row; `scratch` holds that many rows of doubles. */
typedef struct {
    const char *name;
    uint8_t key, n_in, n_param, scratch;
    void (*run)(char *const *ptr, int64_t n, const double *param, void *scratch);
} fl_rows;

typedef struct {
    const char *variant;    /* "baseline", "avx2", "avx512" */
    const fl_pointwise *pointwise;
    int n_pointwise;
    const fl_fold *folds;
    int n_folds;
    const fl_rows *rows;
    int n_rows;
} fl_table;
#endif
