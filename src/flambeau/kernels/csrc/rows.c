/* Drives the generated row programs: each row on its own, blocks of rows on the threads. */
#include "launcher.h"

#include "pool.h"
#include "threads.h"

enum { GRAIN = 16384 };

typedef struct {
    const fl_rows *program;
    char *ptr[1 + FL_MAX_IN];
    int64_t step[1 + FL_MAX_IN], rows, n, per_block; /* step: bytes from row to row */
    double param[8];
    bool failed;
} Job;

static void run_block(void *context, int64_t block) {
    Job *j = context;
    size_t size = (size_t)(j->n * j->program->scratch) * sizeof(double);
    void *scratch = size ? fl_alloc(size) : NULL;
    if (size && !scratch) {
        j->failed = true;
        return;
    }
    int64_t last = (block + 1) * j->per_block < j->rows ? (block + 1) * j->per_block : j->rows;
    for (int64_t r = block * j->per_block; r < last; r++) {
        char *ptr[1 + FL_MAX_IN];
        for (int k = 0; k <= j->program->n_in; k++) ptr[k] = j->ptr[k] + r * j->step[k];
        j->program->run(ptr, j->n, j->param, scratch);
    }
    if (size) fl_free(scratch, size);
}

/* rows(name, rows, n, arrays (out first), steps in bytes, params) -> whether it was done */
static PyObject *rows(PyObject *module, PyObject *args) {
    const char *name;
    long long count, n;
    PyObject *arrays, *steps, *params;
    Job j = {0};
    if (!PyArg_ParseTuple(args, "sLLO!O!O!", &name, &count, &n, &PyTuple_Type, &arrays, &PyTuple_Type, &steps, &PyTuple_Type, &params)) return NULL;
    int type = fl_type_of((PyArrayObject *)PyTuple_GET_ITEM(arrays, 0));
    for (const fl_table *const *table = fl_tables; type >= 0 && *table && !j.program; table++)
        for (int i = 0; i < (*table)->n_rows && !j.program; i++)
            if ((*table)->rows[i].key == type && !strcmp((*table)->rows[i].name, name)) j.program = &(*table)->rows[i];
    if (!j.program || PyTuple_GET_SIZE(arrays) != 1 + j.program->n_in || PyTuple_GET_SIZE(steps) != 1 + j.program->n_in ||
        PyTuple_GET_SIZE(params) != j.program->n_param)
        Py_RETURN_FALSE;
    for (int k = 0; k <= j.program->n_in; k++) {
        PyArrayObject *a = (PyArrayObject *)PyTuple_GET_ITEM(arrays, k);
        if (!PyArray_CheckExact(a) || fl_type_of(a) != type) Py_RETURN_FALSE;
        j.ptr[k] = PyArray_BYTES(a), j.step[k] = PyLong_AsLongLong(PyTuple_GET_ITEM(steps, k));
    }
    for (int k = 0; k < j.program->n_param; k++) j.param[k] = PyFloat_AsDouble(PyTuple_GET_ITEM(params, k));
    if (PyErr_Occurred()) return NULL;
    j.rows = count, j.n = n, j.per_block = GRAIN / (n + 1) + 1;
    PyThreadState *state = count * n > GRAIN ? PyEval_SaveThread() : NULL;
    fl_parallel(run_block, &j, (count + j.per_block - 1) / j.per_block);
    if (state) PyEval_RestoreThread(state);
    return j.failed ? PyErr_NoMemory() : Py_NewRef(Py_True);
}

PyMethodDef fl_rows_methods[] = {
    {"rows", rows, METH_VARARGS, "rows(name, rows, n, arrays, steps, params): run a row program on every row."},
    {NULL, NULL, 0, NULL},
};
