/* Drives the generated folds: an array seen as (outer, reduced, inner), one result for each (outer, inner).
   Blocks depend on the shape alone, and partial results are merged in order: same bits with any number of threads. */
#include "launcher.h"

#include "pool.h"
#include "threads.h"

enum { WIDTH = 512, GRAIN = 32768 }; /* columns folded side by side; elements worth a block of their own */

typedef struct {
    const fl_fold *fold;
    const char *x;
    int64_t outer, n, inner, outer_step, step, inner_step; /* steps in bytes */
    char *out;
    int64_t *index; /* positions instead of values, or NULL */
    const double *shift;
    double count;
    bool columns;
    int64_t units, per_block, parts, part; /* units of work; a unit is cut into `parts` of `part` elements if there are few */
    double *partial;
} Job;

static int64_t width_of(const Job *j, int64_t at) { return !j->columns ? 1 : j->inner - at < WIDTH ? j->inner - at : WIDTH; }

/* Fold elements [from, to) of one unit into acc. A unit is one row, or WIDTH neighbouring columns. */
static void fold_part(const Job *j, int64_t unit, int64_t from, int64_t to, void *acc, int64_t *first, int64_t *width) {
    int64_t across = j->columns ? (j->inner + WIDTH - 1) / WIDTH : j->inner;
    int64_t o = unit / across, i = unit % across * (j->columns ? WIDTH : 1);
    const char *x = j->x + o * j->outer_step + i * j->inner_step + from * j->step;
    *first = o * j->inner + i, *width = width_of(j, i);
    j->fold->init(acc, *width);
    if (j->columns)
        j->fold->columns(x, j->step, to - from, *width, j->shift ? j->shift + *first : NULL, acc);
    else
        j->fold->row(x, j->step, to - from, j->shift ? j->shift[*first] : 0, acc);
}

static void finish(const Job *j, int64_t unit, const void *acc, int64_t first, int64_t width) {
    static const unsigned char size[FL_NTYPES] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
    if (!j->index) {
        j->fold->store(acc, width, j->count, j->shift ? j->shift + first : NULL, j->out + first * size[j->fold->out]);
        return;
    }
    for (int64_t k = 0; k < width; k++) {
        const char *x = j->x + (first + k) / j->inner * j->outer_step + (first + k) % j->inner * j->inner_step;
        j->index[first + k] = j->fold->find(x, j->step, j->n, (const double *)acc + k);
    }
    if (j->out) j->fold->store(acc, width, j->count, NULL, j->out + first * size[j->fold->out]);
    (void)unit;
}

static void run_block(void *context, int64_t block) {
    const Job *j = context;
    double acc[WIDTH];
    int64_t first, width;
    if (j->parts > 1) {
        int64_t from = block % j->parts * j->part, to = from + j->part < j->n ? from + j->part : j->n;
        fold_part(j, block / j->parts, from, to, j->partial + block * WIDTH, &first, &width);
        return;
    }
    int64_t last = (block + 1) * j->per_block < j->units ? (block + 1) * j->per_block : j->units;
    for (int64_t unit = block * j->per_block; unit < last; unit++) {
        fold_part(j, unit, 0, j->n, acc, &first, &width);
        finish(j, unit, acc, first, width);
    }
}

static void merge_parts(const Job *j) {
    int64_t across = j->columns ? (j->inner + WIDTH - 1) / WIDTH : j->inner;
    for (int64_t unit = 0; unit < j->units; unit++) {
        int64_t i = unit % across * (j->columns ? WIDTH : 1), width = width_of(j, i);
        double *acc = j->partial + unit * j->parts * WIDTH;
        for (int64_t p = 1; p < j->parts; p++) j->fold->merge(acc, acc + p * WIDTH, width);
        finish(j, unit, acc, unit / across * j->inner + i, width);
    }
}

static int run(Job *j) {
    j->columns = j->inner > 1 && j->inner_step > 0 && j->inner_step < j->step;
    j->units = j->outer * (j->columns ? (j->inner + WIDTH - 1) / WIDTH : j->inner);
    int64_t work = j->n * (j->columns ? (j->inner < WIDTH ? j->inner : WIDTH) : 1); /* elements of a unit */
    j->parts = 1, j->per_block = work < GRAIN ? GRAIN / (work + 1) + 1 : 1;
    if (j->units < 16 && work >= 2 * GRAIN) {
        j->part = (j->n * GRAIN + work - 1) / work, j->parts = (j->n + j->part - 1) / j->part;
        if (!(j->partial = fl_alloc((size_t)(j->units * j->parts * WIDTH) * sizeof(double)))) return -1;
        fl_parallel(run_block, j, j->units * j->parts);
        merge_parts(j);
        fl_free(j->partial, (size_t)(j->units * j->parts * WIDTH) * sizeof(double));
    } else {
        fl_parallel(run_block, j, (j->units + j->per_block - 1) / j->per_block);
    }
    return 0;
}

/* fold(name, x, (outer, n, inner), (steps in bytes), out or None, index or None, shift or None, count) -> bool: whether it was done */
static PyObject *fold(PyObject *module, PyObject *args) {
    const char *name;
    PyArrayObject *x;
    PyObject *out, *index, *shift;
    long long n[3], step[3];
    Job j = {0};
    if (!PyArg_ParseTuple(args, "sO!(LLL)(LLL)OOOd", &name, &PyArray_Type, &x, n, n + 1, n + 2, step, step + 1, step + 2, &out, &index,
                          &shift, &j.count))
        return NULL;
    int type = fl_type_of(x);
    for (const fl_table *const *table = fl_tables; type >= 0 && *table && !j.fold; table++)
        for (int i = 0; i < (*table)->n_folds && !j.fold; i++)
            if ((*table)->folds[i].key == type && !strcmp((*table)->folds[i].name, name)) j.fold = &(*table)->folds[i];
    if (!j.fold || (out != Py_None && fl_type_of((PyArrayObject *)out) != j.fold->out) || (index != Py_None && !j.fold->find)) Py_RETURN_FALSE;
    j.x = PyArray_BYTES(x);
    j.outer = n[0], j.n = n[1], j.inner = n[2], j.outer_step = step[0], j.step = step[1], j.inner_step = step[2];
    j.out = out == Py_None ? NULL : PyArray_BYTES((PyArrayObject *)out);
    j.index = index == Py_None ? NULL : (int64_t *)PyArray_BYTES((PyArrayObject *)index);
    j.shift = shift == Py_None ? NULL : (const double *)PyArray_BYTES((PyArrayObject *)shift);
    if (j.columns = j.inner > 1 && j.inner_step > 0 && j.inner_step < j.step, j.columns && j.inner_step != PyArray_ITEMSIZE(x)) Py_RETURN_FALSE;
    if (j.outer * j.inner == 0) Py_RETURN_TRUE;
    PyThreadState *state = j.outer * j.inner * j.n > GRAIN ? PyEval_SaveThread() : NULL;
    int failed = run(&j);
    if (state) PyEval_RestoreThread(state);
    return failed ? PyErr_NoMemory() : Py_NewRef(Py_True);
}

PyMethodDef fl_fold_methods[] = {
    {"fold", fold, METH_VARARGS, "fold(name, x, sizes, steps, out, index, shift, count): reduce the middle of (outer, n, inner)."},
    {NULL, NULL, 0, NULL},
};
