/* Random numbers for Python: the generators of mt19937.h on the words of a Generator and a contiguous output array. */
#include "launcher.h"

#include "mt19937.h"

typedef struct {
    mt19937 *state;
    void *out;
    int64_t n;
    double a, b;
} Request;

static bool read_request(PyObject *args, Request *r, int type, int numbers) {
    PyArrayObject *words, *out;
    if (!PyArg_ParseTuple(args, numbers ? "O!O!dd" : "O!O!", &PyArray_Type, &words, &PyArray_Type, &out, &r->a, &r->b)) return false;
    int found = PyArray_DESCR(out)->kind == 'u' ? (PyArray_ITEMSIZE(out) == 4 ? FL_I32 : FL_I64) : fl_type_of(out);
    if (PyArray_NBYTES(words) != sizeof(mt19937) || found != type || !PyArray_ISCARRAY(words) || !PyArray_ISCARRAY(out)) {
        PyErr_SetString(PyExc_TypeError, "expected the words of a Generator and a contiguous array of the right dtype");
        return false;
    }
    r->state = (mt19937 *)PyArray_DATA(words), r->out = PyArray_DATA(out), r->n = PyArray_SIZE(out);
    return true;
}

#define FILL(name, type, ctype, numbers, ...)                                                                             \
    static PyObject *name(PyObject *module, PyObject *args) {                                                             \
        Request r = {0};                                                                                                  \
        if (!read_request(args, &r, type, numbers)) return NULL;                                                          \
        ctype *out = r.out;                                                                                               \
        Py_BEGIN_ALLOW_THREADS __VA_ARGS__;                                                                               \
        Py_END_ALLOW_THREADS Py_RETURN_NONE;                                                                              \
    }
FILL(u32, FL_I32, uint32_t, 0, mt19937_u32(r.state, out, r.n))
FILL(u64, FL_I64, uint64_t, 0, mt19937_u64(r.state, out, r.n))
FILL(uniform_f32, FL_F32, float, 1, mt19937_uniform_f32(r.state, out, r.n, (float)r.a, (float)r.b))
FILL(uniform_f64, FL_F64, double, 1, mt19937_uniform_f64(r.state, out, r.n, r.a, r.b))
FILL(normal_f32, FL_F32, float, 1, mt19937_normal_f32(r.state, out, r.n, (float)r.a, (float)r.b))
FILL(normal_f64, FL_F64, double, 1, mt19937_normal_f64(r.state, out, r.n, r.a, r.b))
FILL(permutation, FL_I64, int64_t, 0, mt19937_permutation(r.state, out, r.n))

static PyObject *libm(PyObject *module, PyObject *args) {
    int which;
    PyArrayObject *out;
    if (!PyArg_ParseTuple(args, "iO!", &which, &PyArray_Type, &out)) return NULL;
    if (which < 0 || which > 5 || fl_type_of(out) != FL_F64 || !PyArray_ISCARRAY(out))
        return PyErr_Format(PyExc_TypeError, "libm_f64(which, out) takes 0 to 5 and a contiguous float64 array");
    libm_f64(which, PyArray_DATA(out), PyArray_SIZE(out));
    Py_RETURN_NONE;
}

PyMethodDef fl_random_methods[] = {
    {"mt19937_u32", u32, METH_VARARGS, "mt19937_u32(words, out): raw 32-bit draws."},
    {"mt19937_u64", u64, METH_VARARGS, "mt19937_u64(words, out): raw 64-bit draws."},
    {"mt19937_uniform_f32", uniform_f32, METH_VARARGS, "mt19937_uniform_f32(words, out, low, high)"},
    {"mt19937_uniform_f64", uniform_f64, METH_VARARGS, "mt19937_uniform_f64(words, out, low, high)"},
    {"mt19937_normal_f32", normal_f32, METH_VARARGS, "mt19937_normal_f32(words, out, mean, std), 16 or more"},
    {"mt19937_normal_f64", normal_f64, METH_VARARGS, "mt19937_normal_f64(words, out, mean, std), 16 or more"},
    {"mt19937_permutation", permutation, METH_VARARGS, "mt19937_permutation(words, out): 0 to n - 1, shuffled."},
    {"libm_f64", libm, METH_VARARGS, "libm_f64(which, out): the C library's cos, exp, log, log1p, sin or tan, in place."},
    {NULL, NULL, 0, NULL},
};
