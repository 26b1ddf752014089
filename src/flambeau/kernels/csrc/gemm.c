/* Matrix products of arrays: reads shapes and strides, and leaves the rest to blas.c. */
#include "launcher.h"

#include "blas.h"

enum { INLINE_UP_TO = 50000 }; /* multiplications; smaller products are not worth letting go of the GIL */

typedef struct {
    char *data;
    int64_t rows, cols, ld, batch, stride; /* ld and stride in elements */
    bool transposed;                       /* stored column after column */
} Matrix;

static Matrix flip(Matrix m) { return (Matrix){m.data, m.cols, m.rows, m.ld, m.batch, m.stride, !m.transposed}; }

/* (rows, cols) or (batch, rows, cols). False unless BLAS can read it: unit stride along rows or columns, no row on another. */
static bool read_matrix(PyObject *object, int type, int ndim, Matrix *m) {
    PyArrayObject *x = (PyArrayObject *)object;
    if (!PyArray_CheckExact(x) || fl_type_of(x) != type || PyArray_NDIM(x) != ndim || ndim < 2 || ndim > 3) return false;
    npy_intp itemsize = PyArray_ITEMSIZE(x), *size = PyArray_DIMS(x) + ndim - 2, *step = PyArray_STRIDES(x) + ndim - 2;
    int64_t rows = size[0], cols = size[1], down = step[0] / itemsize, right = step[1] / itemsize;
    bool by_rows = (right == 1 || cols <= 1) && (down >= cols || rows <= 1);
    bool by_cols = (down == 1 || rows <= 1) && (right >= rows || cols <= 1);
    *m = (Matrix){PyArray_BYTES(x), rows, cols, 1, 1, 0, !by_rows};
    m->ld = by_rows ? (rows > 1 ? down : cols) : (cols > 1 ? right : rows);
    if (m->ld < 1) m->ld = 1; /* an empty matrix */
    if (ndim == 3) m->batch = size[-1], m->stride = step[-1] / itemsize;
    bool whole = step[0] % itemsize == 0 && step[1] % itemsize == 0 && (ndim == 2 || step[-1] % itemsize == 0);
    return whole && (by_rows || by_cols);
}

static PyObject *gemm(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 5) return PyErr_Format(PyExc_TypeError, "gemm(a, b, out, alpha, beta) takes 5 arguments, got %zd", nargs);
    int type = PyArray_CheckExact(args[0]) ? fl_type_of((PyArrayObject *)args[0]) : -1;
    int ndim = type < 0 ? 0 : PyArray_NDIM((PyArrayObject *)args[0]);
    double alpha[2], beta[2];
    Matrix a, b, c;
    if (type < FL_F32 || !read_matrix(args[0], type, ndim, &a) || !read_matrix(args[1], type, ndim, &b) ||
        !read_matrix(args[2], type, ndim, &c) || !fl_store_number(args[3], type, alpha) || !fl_store_number(args[4], type, beta))
        Py_RETURN_NOTIMPLEMENTED;
    PyArrayObject *out = (PyArrayObject *)args[2];
    if (a.rows != c.rows || a.cols != b.rows || b.cols != c.cols || a.batch != c.batch || b.batch != c.batch ||
        !PyArray_ISWRITEABLE(out) || fl_overlap(out, (PyArrayObject *)args[0]) || fl_overlap(out, (PyArrayObject *)args[1]))
        Py_RETURN_NOTIMPLEMENTED;
    if (PyArray_SIZE(out) == 0) return Py_NewRef(args[2]);
    if (c.batch > 1 && c.stride == 0) Py_RETURN_NOTIMPLEMENTED; /* all products in one place */
    if (c.transposed) { /* C^T = B^T A^T: then the output is in rows */
        Matrix left = flip(b);
        b = flip(a), a = left, c = flip(c);
    }
    bool large = (double)c.batch * (double)c.rows * (double)c.cols * (double)a.cols > INLINE_UP_TO;
    PyThreadState *state = large ? PyEval_SaveThread() : NULL;
    int failed = fl_gemm(type - FL_F32, a.transposed, b.transposed, c.rows, c.cols, a.cols, alpha, a.data, a.ld, b.data, b.ld, beta,
                         c.data, c.ld, c.batch, a.stride, b.stride, c.stride);
    if (large) PyEval_RestoreThread(state);
    if (failed) Py_RETURN_NOTIMPLEMENTED;
    return Py_NewRef(args[2]);
}

static PyObject *matmul(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 2) return PyErr_Format(PyExc_TypeError, "matmul(a, b) takes 2 arguments, got %zd", nargs);
    if (!PyArray_CheckExact(args[0]) || !PyArray_CheckExact(args[1])) Py_RETURN_NOTIMPLEMENTED;
    PyArrayObject *a = (PyArrayObject *)args[0], *b = (PyArrayObject *)args[1];
    int ndim = PyArray_NDIM(a), type = fl_type_of(a);
    if (type < FL_F32 || ndim < 2 || ndim > 3 || PyArray_NDIM(b) != ndim) Py_RETURN_NOTIMPLEMENTED;
    npy_intp shape[3] = {PyArray_DIM(a, 0), PyArray_DIM(a, ndim - 2), PyArray_DIM(b, ndim - 1)};
    PyObject *out = fl_new_array(fl_descr[type], ndim, shape + 3 - ndim, NULL);
    if (!out) return NULL;
    PyObject *result = gemm(module, (PyObject *[]){args[0], args[1], out, Py_True, Py_False}, 5);
    Py_DECREF(out);
    return result;
}

static PyObject *blas_bind(PyObject *module, PyObject *args) {
    const char *path, *prefix, *suffix;
    if (!PyArg_ParseTuple(args, "sss:blas_bind", &path, &prefix, &suffix)) return NULL;
    return PyBool_FromLong(fl_blas_bind(path, prefix, suffix) == 0);
}

PyMethodDef fl_gemm_methods[] = {
    {"blas_bind", blas_bind, METH_VARARGS, "blas_bind(path, prefix, suffix) -> whether this library has the cblas functions."},
    FL_FAST(gemm, "gemm(a, b, out, alpha, beta): out = alpha a @ b + beta out, for (M, K) x (K, N) or batches of them."),
    FL_FAST(matmul, "matmul(a, b): a @ b in a fresh array, for (M, K) x (K, N) or batches of them."),
    {NULL, NULL, 0, NULL},
};
