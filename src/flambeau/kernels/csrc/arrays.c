/* Arrays whose memory comes from the pool, and strided views of any array.

   The memory of an array larger than SMALL belongs to a `Block`, a Python object that is a piece of the pool and nothing
   else. It is the array's `base`; when the last view of it dies, the piece goes back to the pool. */
#include "launcher.h"

#include "pool.h"

enum { SMALL = 1024 }; /* bytes: up to here NumPy has a cache of its own, and no Block need be made */

typedef struct {
    PyObject_HEAD
    void *data;
    size_t size;
} Block;

static void block_dealloc(PyObject *self) {
    fl_free(((Block *)self)->data, ((Block *)self)->size);
    PyObject_Free(self);
}

PyTypeObject fl_block_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.kernels._native.Block",
    .tp_doc = "A piece of the memory pool: the base of the arrays that live in it.",
    .tp_basicsize = sizeof(Block),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = block_dealloc,
};

static PyObject *array_in_block(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides, int64_t size) {
    Block *block = PyObject_New(Block, &fl_block_type);
    if (!block) return NULL;
    block->size = (size_t)size;
    block->data = fl_alloc(block->size);
    PyObject *array = NULL;
    if (!block->data) {
        PyErr_Format(PyExc_MemoryError, "cannot allocate %lld bytes%s for an array of %S", (long long)size,
                     size == INT64_MAX ? " or more" : "", (PyObject *)descr);
    } else {
        Py_INCREF(descr);
        array = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides, block->data, NPY_ARRAY_CARRAY, NULL);
    }
    if (!array) Py_DECREF(block);
    else if (PyArray_SetBaseObject((PyArrayObject *)array, (PyObject *)block) < 0) Py_CLEAR(array);
    return array;
}

/* a + b * c, all at least 0; what 64 bits cannot count is INT64_MAX, which no allocator grants. */
static int64_t saturated(int64_t a, int64_t b, int64_t c) {
    return __builtin_mul_overflow(b, c, &b) || __builtin_add_overflow(a, b, &a) ? INT64_MAX : a;
}

PyObject *fl_new_array(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides) {
    int64_t size = PyDataType_ELSIZE(descr);
    bool empty = false; /* then in a Block too: NumPy's own empty arrays have strides 0, whatever one asks for */
    for (int d = 0; d < ndim; d++) {
        empty |= shape[d] == 0;
        size = saturated(0, size, shape[d] ? shape[d] : 1);
    }
    if (empty && size < INT64_MAX) size = 1;
    if (empty || size > SMALL) return array_in_block(descr, ndim, shape, strides, size);
    Py_INCREF(descr);
    return PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides, NULL, 0, NULL);
}

/* Read shape and (if not NULL) strides, turning elements into bytes. Returns the number of dimensions, -1 with an error. */
static int read_layout(PyObject *shape, PyObject *strides, npy_intp itemsize, npy_intp *sizes, npy_intp *steps) {
    int ndim = PyArray_IntpFromSequence(shape, sizes, NPY_MAXDIMS);
    int n = ndim < 0 || !strides ? ndim : PyArray_IntpFromSequence(strides, steps, NPY_MAXDIMS);
    bool fits = n == ndim && 0 <= n && n <= NPY_MAXDIMS;
    for (int d = 0; fits && d < ndim; d++)
        fits = sizes[d] >= 0 && (!strides || !__builtin_mul_overflow(steps[d], itemsize, &steps[d]));
    if (fits) return ndim;
    if (!PyErr_Occurred())
        PyErr_Format(ndim < 0 || n < 0 ? PyExc_TypeError : PyExc_ValueError, "expected a tuple of sizes, none negative, at most "
                     "%d, and one stride for each; got %R and %R", NPY_MAXDIMS, shape, strides ? strides : Py_None);
    return -1;
}

/* Only plain numbers may be born uninitialised: NumPy would follow what it takes for pointers in an object array. */
static PyArray_Descr *number_dtype(PyObject *dtype) {
    int number = PyArray_DescrCheck(dtype) ? ((PyArray_Descr *)dtype)->type_num : NPY_OBJECT;
    bool plain = PyTypeNum_ISNUMBER(number) || PyTypeNum_ISBOOL(number) || number == fl_bfloat16_number;
    if (plain) return (PyArray_Descr *)dtype;
    PyErr_Format(PyExc_TypeError, "dtype must be a numpy.dtype of numbers, not %R", dtype);
    return NULL;
}

static bool takes(const char *signature, Py_ssize_t expected, Py_ssize_t found) {
    if (found != expected) PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", signature, expected, found);
    return found == expected;
}

static PyObject *empty(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    npy_intp shape[NPY_MAXDIMS];
    PyArray_Descr *descr = takes("empty(shape, dtype)", 2, nargs) ? number_dtype(args[1]) : NULL;
    int ndim = descr ? read_layout(args[0], NULL, 0, shape, NULL) : -1;
    return ndim < 0 ? NULL : fl_new_array(descr, ndim, shape, NULL);
}

static PyObject *empty_strided(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    PyArray_Descr *descr = takes("empty_strided(shape, strides, dtype)", 3, nargs) ? number_dtype(args[2]) : NULL;
    int ndim = descr ? read_layout(args[0], args[1], PyDataType_ELSIZE(descr), shape, strides) : -1;
    if (ndim < 0) return NULL;
    int64_t size = PyDataType_ELSIZE(descr);
    for (int d = 0; d < ndim; d++) {
        if (strides[d] < 0) return PyErr_Format(PyExc_ValueError, "strides cannot be negative, got %R", args[1]);
        if (shape[d] > 1) size = saturated(size, shape[d] - 1, strides[d]);
    }
    return array_in_block(descr, ndim, shape, strides, size);
}

static PyObject *strided_view(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    if (!takes("strided_view(array, shape, strides, offset)", 4, nargs)) return NULL;
    if (!PyArray_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "expected a numpy.ndarray, got %R", (PyObject *)Py_TYPE(args[0]));
    PyArrayObject *array = (PyArrayObject *)args[0];
    npy_intp offset = PyNumber_AsSsize_t(args[3], PyExc_OverflowError);
    int ndim = offset == -1 && PyErr_Occurred() ? -1 : read_layout(args[1], args[2], PyArray_ITEMSIZE(array), shape, strides);
    if (ndim < 0) return NULL;
    char *data = PyArray_BYTES(array) + (size_t)offset * (size_t)PyArray_ITEMSIZE(array);
    Py_INCREF(PyArray_DESCR(array));
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(array), ndim, shape, strides, data,
                                          PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE, NULL);
    if (!view) return NULL;
    /* A view of a view holds the owner of the memory, not the view in between, so that chains do not grow. */
    PyObject *owner = args[0], *base;
    while (PyArray_Check(owner) && (base = PyArray_BASE((PyArrayObject *)owner)) &&
           (Py_IS_TYPE(base, &fl_block_type) || PyArray_CheckExact(base)))
        owner = base;
    Py_INCREF(owner);
    if (PyArray_SetBaseObject((PyArrayObject *)view, owner) < 0) Py_CLEAR(view);
    return view;
}

PyMethodDef fl_array_methods[] = {
    FL_FAST(empty, "empty(shape, dtype): an uninitialised array in C order."),
    FL_FAST(empty_strided, "empty_strided(shape, strides, dtype): an uninitialised array. Strides count elements."),
    FL_FAST(strided_view, "strided_view(array, shape, strides, offset): the same memory seen with other strides, counted in "
                          "elements from the array's first. Staying inside the memory is the caller's care."),
    {NULL, NULL, 0, NULL},
};
