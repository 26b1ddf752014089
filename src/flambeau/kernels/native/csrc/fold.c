/* Drives the generated folds: an array seen as (outer, n, inner) becomes one result for each (outer, inner). The n may repeat,
   `again` times, some distance apart: the height and width of all images, for each of their channels.

   A unit of work is some neighbouring results: up to WIDTH columns, or rows of about GRAIN elements together. If there are few units and
   they are long, each is cut into parts that are merged in order at the end. All this depends on the array's shape and strides alone:
   same bits with any number of threads. */
#include "launcher.h"

enum { WIDTH = 1024, GRAIN = 32768 }; /* results of a unit at most; elements worth a block of their own */

typedef struct {
    const fl_fold *fold;
    char *x, *out, *shift; /* shift: a number for each result, or NULL */
    long long outer, n, inner, outer_step, step, inner_step, again, again_step; /* steps in bytes */
    double count;
    int64_t width, across, units, per_block; /* results of a unit, units side by side, all units, units of a block */
    bool beside;                             /* whether results lie nearer to each other than the elements of one */
    int64_t parts, part;                     /* of a unit: how many, and how long */
    int64_t (*partial)[WIDTH];               /* accumulators of the parts */
} Job;

/* The first result of a unit, how many it has, and their shifts. */
static int64_t results(const Job *j, int64_t unit, int64_t *width, const double **shift) {
    int64_t i = unit % j->across * j->width, first = unit / j->across * j->inner + i;
    *width = Py_MIN(j->width, j->inner - i);
    *shift = j->shift ? (const double *)j->shift + first : NULL;
    return first;
}

static void fold_part(const Job *j, int64_t unit, int64_t part, int64_t *acc) {
    const double *shift;
    int64_t width, first = results(j, unit, &width, &shift), from = part * j->part, end = Py_MIN(from + j->part, j->n * j->again);
    j->fold->init(acc, width);
    for (int64_t n; from < end; from += n) {
        const char *x = j->x + first / j->inner * j->outer_step + first % j->inner * j->inner_step + from / j->n * j->again_step + from % j->n * j->step;
        n = Py_MIN(j->n - from % j->n, end - from);
        (j->beside ? j->fold->columns : j->fold->rows)(x, j->step, n, j->inner_step, width, shift, acc);
    }
}

static void finish(const Job *j, int64_t unit, const int64_t *acc) {
    const double *shift;
    int64_t width, first = results(j, unit, &width, &shift);
    j->fold->store(acc, width, j->count, shift, j->out + first * fl_itemsize[j->fold->out]);
}

/* Some units, or one part of one. */
static void fold_block(void *job, int64_t block) {
    const Job *j = job;
    int64_t acc[WIDTH];
    int64_t unit = block * j->per_block, end = Py_MIN(unit + j->per_block, j->units);
    if (j->parts > 1) fold_part(j, block / j->parts, block % j->parts, j->partial[block]);
    else for (; unit < end; unit++) fold_part(j, unit, 0, acc), finish(j, unit, acc);
}

static PyObject *run(Job *j, PyObject *result) {
    int64_t all = j->n * j->again;
    j->width = j->beside ? WIDTH : Py_MAX(1, Py_MIN(WIDTH, GRAIN / (all + 1)));
    int64_t side = Py_MIN(j->inner, j->width), work = all * side; /* elements of a unit */
    j->across = (j->inner + j->width - 1) / j->width, j->units = j->outer * j->across;
    bool cut = j->units < 16 && work >= 2 * GRAIN;
    j->per_block = GRAIN / (work + 1) + 1, j->part = cut ? Py_MAX((GRAIN + side - 1) / side, all * j->units / 64) : all;
    j->parts = cut ? (all + j->part - 1) / j->part : 1;
    size_t size = (size_t)(j->units * j->parts) * sizeof *j->partial;
    if (cut && !(j->partial = fl_alloc(size))) return PyErr_NoMemory();
    PyThreadState *state = (double)j->outer * (double)j->inner * (double)all > GRAIN ? PyEval_SaveThread() : NULL;
    fl_parallel(fold_block, j, cut ? j->units * j->parts : (j->units + j->per_block - 1) / j->per_block);
    for (int64_t unit = 0; cut && unit < j->units; unit++) {
        int64_t (*acc)[WIDTH] = j->partial + unit * j->parts;
        for (int64_t p = 1; p < j->parts; p++) j->fold->merge(acc[0], acc[p], side);
        finish(j, unit, acc[0]);
    }
    fl_free(j->partial, size); /* NULL is nothing */
    if (state) PyEval_RestoreThread(state);
    return Py_NewRef(result);
}

/* None, or a contiguous array of this type with a place for each result. */
static bool read_array(const Job *j, PyObject *object, int type, char **data) {
    PyArrayObject *array = (PyArrayObject *)object;
    if (object == Py_None) return true;
    bool fits = PyArray_CheckExact(array) && PyArray_IS_C_CONTIGUOUS(array) && PyArray_SIZE(array) == j->outer * j->inner;
    *data = fits ? PyArray_BYTES(array) : NULL;
    return fits && fl_type_of(array) == type;
}

static const fl_fold *find(const char *name, int type) {
    for (const fl_table *const *table = fl_tables; *table; table++)
        for (const fl_fold *f = (*table)->folds; f < (*table)->folds + (*table)->n_folds; f++)
            if (f->key == type && !strcmp(f->name, name)) return f;
    return NULL;
}

PyObject *fl_fold_all(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (!fl_takes("fold_all(name, x)", 2, nargs)) return NULL;
    const char *name = PyUnicode_AsUTF8(args[0]);
    PyArrayObject *x = (PyArrayObject *)args[1];
    if (!name || !PyArray_CheckExact(x) || !PyArray_IS_C_CONTIGUOUS(x)) return name ? Py_NewRef(Py_NotImplemented) : NULL;
    Job j = {find(name, fl_type_of(x)), PyArray_BYTES(x), .outer = 1, .n = PyArray_SIZE(x), .inner = 1, .step = PyArray_ITEMSIZE(x), .again = 1};
    if (!j.fold || j.fold->out != j.fold->key) Py_RETURN_NOTIMPLEMENTED;
    PyObject *out = fl_new_array(PyArray_DESCR(x), 0, NULL, NULL), *done = NULL;
    if (out) j.out = PyArray_BYTES((PyArrayObject *)out), j.count = (double)j.n, done = run(&j, out);
    Py_XDECREF(out);
    return done;
}

PyObject *fl_fold_into(PyObject *module, PyObject *args) {
    const char *name;
    PyArrayObject *x;
    PyObject *out, *shift;
    Job j = {.again = 1};
    if (!PyArg_ParseTuple(args, "sO!(LLL)(LLL)OOd|(LL)", &name, &PyArray_Type, &x, &j.outer, &j.n, &j.inner, &j.outer_step, &j.step,
                          &j.inner_step, &out, &shift, &j.count, &j.again, &j.again_step))
        return NULL;
    if (!(j.fold = find(name, fl_type_of(x))) || !read_array(&j, out, j.fold->out, &j.out) || !j.out || !read_array(&j, shift, FL_F64, &j.shift)) Py_RETURN_FALSE;
    if (j.outer * j.inner == 0) Py_RETURN_TRUE;
    j.x = PyArray_BYTES(x);
    if (j.inner == 1) j.inner = j.outer, j.inner_step = j.outer_step, j.outer = 1;
    j.beside = j.inner > 1 && (j.step == 0 || Py_ABS(j.step) > Py_ABS(j.inner_step));
    return run(&j, Py_True);
}
