/* Matrix products of arrays: reads shapes and strides, and leaves the rest to blas.c. */
#include "launcher.h"

enum { LONG = 16384, SMALL = 1024 }; /* K, and elements of C: gemm.py cuts such products along K, since C cannot be shared out */
enum { MAX_DIM = 8, INLINE_UP_TO = 50000 }; /* dimensions of an input of `linear`; multiplications; smaller products are not worth letting go of the GIL */

/* (rows, cols) or (batch, rows, cols). False unless BLAS can read it: unit stride along rows or columns, no row on another. */
static bool read_matrix(PyObject *object, int type, int ndim, fl_matrix *m) {
    PyArrayObject *x = (PyArrayObject *)object;
    if (!PyArray_CheckExact(x) || fl_type_of(x) != type || PyArray_NDIM(x) != ndim || ndim < 2 || ndim > 3) return false;
    npy_intp itemsize = PyArray_ITEMSIZE(x), *size = PyArray_DIMS(x) + ndim - 2, *step = PyArray_STRIDES(x) + ndim - 2;
    for (int d = 0; d < ndim; d++)
        if (PyArray_STRIDE(x, d) % itemsize) return false;
    int64_t rows = size[0], cols = size[1], down = step[0] / itemsize, right = step[1] / itemsize;
    bool by_rows = (right == 1 || cols <= 1) && (down >= cols || rows <= 1);
    bool by_cols = (down == 1 || rows <= 1) && (right >= rows || cols <= 1);
    *m = (fl_matrix){PyArray_BYTES(x), rows, cols, by_rows ? down : right, 1, 0, !by_rows};
    if (ndim == 3) m->batch = size[-1], m->stride = step[-1] / itemsize;
    return by_rows || by_cols;
}

PyObject *fl_gemm_into(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (!fl_takes("gemm(a, b, out, alpha, beta, row)", 6, nargs)) return NULL;
    int type = PyArray_CheckExact(args[0]) ? fl_type_of((PyArrayObject *)args[0]) : -1;
    int ndim = type < 0 ? 0 : PyArray_NDIM((PyArrayObject *)args[0]);
    double alpha[2], beta[2];
    fl_matrix a, b, c;
    PyArrayObject *row = args[5] == Py_None ? NULL : (PyArrayObject *)args[5];
    if (type < FL_F32 || !read_matrix(args[0], type, ndim, &a) || !read_matrix(args[1], type, ndim, &b) ||
        !read_matrix(args[2], type, ndim, &c) || !fl_store_number(args[3], type, alpha) || !fl_store_number(args[4], type, beta) ||
        (row && (!PyArray_CheckExact(row) || fl_type_of(row) != type || PyArray_NDIM(row) != 1 || PyArray_DIM(row, 0) != c.cols ||
                 !PyArray_IS_C_CONTIGUOUS(row) || fl_overlap(row, (PyArrayObject *)args[2]))))
        Py_RETURN_NOTIMPLEMENTED;
    PyArrayObject *out = (PyArrayObject *)args[2];
    if (a.rows != c.rows || a.cols != b.rows || b.cols != c.cols || a.batch != c.batch || b.batch != c.batch ||
        !PyArray_ISWRITEABLE(out) || fl_overlap(out, (PyArrayObject *)args[0]) || fl_overlap(out, (PyArrayObject *)args[1]))
        Py_RETURN_NOTIMPLEMENTED;
    if (PyArray_SIZE(out) == 0) return Py_NewRef(args[2]);
    if (c.batch > 1 && c.stride == 0) Py_RETURN_NOTIMPLEMENTED; /* all products in one place */
    bool large = (double)c.batch * (double)c.rows * (double)c.cols * (double)a.cols > INLINE_UP_TO;
    PyThreadState *state = large ? PyEval_SaveThread() : NULL;
    int failed = fl_gemm(type - FL_F32, a, b, c, alpha, beta, row ? PyArray_DATA(row) : NULL);
    if (large) PyEval_RestoreThread(state);
    return Py_NewRef(failed ? Py_NotImplemented : args[2]);
}

PyObject *fl_matmul(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (!fl_takes("matmul(a, b)", 2, nargs)) return NULL;
    if (!PyArray_CheckExact(args[0]) || !PyArray_CheckExact(args[1])) Py_RETURN_NOTIMPLEMENTED;
    PyArrayObject *a = (PyArrayObject *)args[0], *b = (PyArrayObject *)args[1];
    int ndim = PyArray_NDIM(a), type = fl_type_of(a);
    if (type < FL_F32 || ndim < 2 || ndim > 3 || PyArray_NDIM(b) != ndim) Py_RETURN_NOTIMPLEMENTED;
    npy_intp shape[3] = {PyArray_DIM(a, 0), PyArray_DIM(a, ndim - 2), PyArray_DIM(b, ndim - 1)};
    if (ndim == 2 && PyArray_DIM(a, 1) >= LONG && shape[1] * shape[2] <= SMALL && shape[1] * shape[2] > 0) Py_RETURN_NOTIMPLEMENTED;
    PyObject *out = fl_new_array(fl_descr[type], ndim, shape + 3 - ndim, NULL);
    if (!out) return NULL;
    PyObject *result = fl_gemm_into(module, (PyObject *[]){args[0], args[1], out, Py_True, Py_False, Py_None}, 6);
    Py_DECREF(out);
    return result;
}

/* input (*, in), weight (out, in), bias (out,), all contiguous and of one real type -> input @ weight.T + bias. */
PyObject *fl_linear(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (!fl_takes("linear(input, weight, bias)", 3, nargs)) return NULL;
    PyArrayObject *const *given = (PyArrayObject *const *)args, *x = given[0], *w = given[1], *bias = given[2];
    for (int i = 0; i < 3; i++)
        if (!PyArray_CheckExact(args[i]) || fl_type_of(given[i]) != fl_type_of(x) || !PyArray_IS_C_CONTIGUOUS(given[i])) Py_RETURN_NOTIMPLEMENTED;
    int ndim = PyArray_NDIM(x), type = fl_type_of(x);
    if ((type != FL_F32 && type != FL_F64) || ndim < 1 || ndim > MAX_DIM || PyArray_NDIM(w) != 2 || PyArray_NDIM(bias) != 1)
        Py_RETURN_NOTIMPLEMENTED;
    npy_intp in = PyArray_DIM(w, 1), out = PyArray_DIM(w, 0), shape[MAX_DIM];
    if (PyArray_DIM(x, ndim - 1) != in || PyArray_DIM(bias, 0) != out || PyArray_SIZE(x) == 0 || out == 0) Py_RETURN_NOTIMPLEMENTED;
    memcpy(shape, PyArray_DIMS(x), sizeof(npy_intp) * (size_t)ndim), shape[ndim - 1] = out;
    PyArrayObject *made = (PyArrayObject *)fl_new_array(fl_descr[type], ndim, shape, NULL);
    if (!made) return NULL;
    int64_t rows = PyArray_SIZE(x) / in;
    fl_matrix a = {PyArray_BYTES(x), rows, in, in, 1, 0, false}, b = {PyArray_BYTES(w), in, out, in, 1, 0, true};
    fl_matrix c = {PyArray_BYTES(made), rows, out, out, 1, 0, false};
    const char *row = PyArray_BYTES(bias);
    const union { float f; double d; } one = type == FL_F32 ? (__typeof__(one)){.f = 1} : (__typeof__(one)){.d = 1};
    if (rows == 1 || out == 1) { /* to a single row or column it is C */
        for (int64_t i = 0; i < rows; i++) memcpy(c.data + i * PyArray_NBYTES(bias), row, (size_t)PyArray_NBYTES(bias));
        row = NULL;
    }
    PyThreadState *state = (double)rows * (double)out * (double)in > INLINE_UP_TO ? PyEval_SaveThread() : NULL;
    int failed = fl_gemm(type - FL_F32, a, b, c, &one, &one, row);
    if (state) PyEval_RestoreThread(state);
    if (!failed) return (PyObject *)made;
    Py_DECREF(made);
    Py_RETURN_NOTIMPLEMENTED;
}
