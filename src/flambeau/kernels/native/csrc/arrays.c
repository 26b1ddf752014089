/* Arrays whose memory comes from the pool, and strided views of any array.

   The memory of an array larger than SMALL belongs to a capsule, a Python object that holds a piece of the pool and nothing
   else. It is the array's `base`; when the last view of it dies, the piece goes back to the pool. */
#include "launcher.h"

enum { SMALL = 1024 };     /* bytes: up to here NumPy has a cache of its own, and no capsule need be made */
enum { LARGE = 64 << 20 }; /* and from here on a piece may be more than the container has left */

static const char *const FROM_POOL = "a piece of Flambeau's memory pool";

static void give_back(PyObject *capsule) {
    fl_free(PyCapsule_GetPointer(capsule, FROM_POOL), (size_t)PyCapsule_GetContext(capsule));
}

/* An array over `data`, which belongs to `owner`, a reference that goes over to the array; of both NULL, over memory of NumPy's. */
static PyObject *array_on(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides, void *data, int flags, PyObject *owner) {
    Py_INCREF(descr);
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, strides, data, data ? flags : 0, NULL);
    if (!array) Py_XDECREF(owner);
    else if (owner && PyArray_SetBaseObject((PyArrayObject *)array, owner) < 0) Py_CLEAR(array);
    return array;
}

PyObject *fl_keeper; /* keeper(bytes, tries): see kernels/native/memory_guard.py */

static bool may(int64_t bytes, int tries) {
    PyObject *granted = fl_keeper ? PyObject_CallFunction(fl_keeper, "Li", (long long)bytes, tries)
                        : tries   ? PyErr_Format(PyExc_MemoryError, "cannot allocate %lld bytes", (long long)bytes)
                                  : Py_NewRef(Py_None);
    Py_XDECREF(granted);
    return granted != NULL;
}

/* Memory for an array. The keeper is asked before a large piece is taken from the system, and where there is none. */
static void *memory_for(int64_t bytes) {
    void *data = bytes < LARGE || fl_is_cached((size_t)bytes) || may(bytes, 0) ? fl_alloc((size_t)bytes) : NULL;
    if (!data && !PyErr_Occurred() && may(bytes, 1)) data = fl_alloc((size_t)bytes);
    if (!data && !PyErr_Occurred() && may(bytes, 2)) PyErr_NoMemory();
    return data;
}

PyObject *fl_new_array(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides) {
    int64_t size = PyDataType_ELSIZE(descr);
    bool empty = false; /* then in the pool too: NumPy's own empty arrays have strides 0, whatever one asks for */
    for (int d = 0; d < ndim; d++) {
        empty |= shape[d] == 0;
        if (__builtin_mul_overflow(size, shape[d] ? shape[d] : 1, &size)) size = INT64_MAX; /* which no allocator grants */
    }
    if (empty && size < INT64_MAX) size = 1;
    bool pooled = empty || size > SMALL;
    void *data = pooled ? memory_for(size) : NULL;
    if (pooled && !data) return NULL;
    PyObject *capsule = pooled ? PyCapsule_New(data, FROM_POOL, give_back) : NULL;
    if (pooled && (!capsule || PyCapsule_SetContext(capsule, (void *)size) < 0)) return NULL;
    return array_on(descr, ndim, shape, strides, data, NPY_ARRAY_CARRAY, capsule);
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
        PyErr_Format(ndim < 0 || n < 0 ? PyExc_TypeError : PyExc_ValueError, "a tensor has at most %d dimensions, as NumPy's "
                     "arrays have: expected a tuple of sizes, none negative, and one stride for each; got %R and %R", NPY_MAXDIMS, shape, strides ? strides : Py_None);
    return -1;
}

PyObject *fl_empty(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    npy_intp shape[NPY_MAXDIMS];
    if (!fl_takes("empty(shape, dtype)", 2, nargs)) return NULL;
    /* Only plain numbers may be born uninitialised: NumPy would follow what it takes for pointers in an object array. */
    int number = PyArray_DescrCheck(args[1]) ? ((PyArray_Descr *)args[1])->type_num : NPY_OBJECT;
    bool of_ml_dtypes = PyTypeNum_ISUSERDEF(number) && !PyDataType_REFCHK((PyArray_Descr *)args[1]); /* bfloat16, floats of 8 bits */
    if (!PyTypeNum_ISNUMBER(number) && !PyTypeNum_ISBOOL(number) && !of_ml_dtypes)
        return PyErr_Format(PyExc_TypeError, "dtype must be a numpy.dtype of numbers, not %R", args[1]);
    int ndim = read_layout(args[0], NULL, 0, shape, NULL);
    return ndim < 0 ? NULL : fl_new_array((PyArray_Descr *)args[1], ndim, shape, NULL);
}

PyObject *fl_strided_view(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    npy_intp shape[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    if (!fl_takes("strided_view(array, shape, strides, offset)", 4, nargs)) return NULL;
    if (!PyArray_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "expected a numpy.ndarray, got %R", (PyObject *)Py_TYPE(args[0]));
    PyArrayObject *array = (PyArrayObject *)args[0];
    npy_intp offset = PyNumber_AsSsize_t(args[3], PyExc_OverflowError);
    int ndim = offset == -1 && PyErr_Occurred() ? -1 : read_layout(args[1], args[2], PyArray_ITEMSIZE(array), shape, strides);
    if (ndim < 0) return NULL;
    char *data = PyArray_BYTES(array) + (size_t)offset * (size_t)PyArray_ITEMSIZE(array);
    /* A view of a view holds the owner of the memory, not the view in between, so that chains do not grow. */
    PyObject *owner = args[0], *base;
    while (PyArray_Check(owner) && (base = PyArray_BASE((PyArrayObject *)owner)) &&
           (PyCapsule_IsValid(base, FROM_POOL) || PyArray_CheckExact(base)))
        owner = base;
    return array_on(PyArray_DESCR(array), ndim, shape, strides, data, PyArray_FLAGS(array) & NPY_ARRAY_WRITEABLE, Py_NewRef(owner));
}

/* Row r of `out` is what row r of each array holds, one after the other; all of them lie row after row. */
PyObject *fl_join(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (!fl_takes("join(arrays, out, rows)", 3, nargs)) return NULL;
    const npy_intp rows = PyNumber_AsSsize_t(args[2], PyExc_OverflowError);
    PyArrayObject *out = (PyArrayObject *)args[1];
    if (!PyList_Check(args[0]) || !PyArray_Check(out) || rows < 1) return PyErr_Format(PyExc_TypeError, "join takes a list of arrays, an array, and how many rows they have");
    npy_intp width = 0, at = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); i++) {
        PyArrayObject *a = (PyArrayObject *)PyList_GET_ITEM(args[0], i);
        if (!PyArray_CheckExact(a) || !PyArray_IS_C_CONTIGUOUS(a) || PyArray_DESCR(a)->type_num != PyArray_DESCR(out)->type_num) Py_RETURN_NOTIMPLEMENTED;
        width += PyArray_NBYTES(a) / rows;
    }
    if (width * rows != PyArray_NBYTES(out) || !PyArray_IS_C_CONTIGUOUS(out) || !PyArray_ISWRITEABLE(out)) Py_RETURN_NOTIMPLEMENTED;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); i++) {
        PyArrayObject *a = (PyArrayObject *)PyList_GET_ITEM(args[0], i);
        const npy_intp bytes = PyArray_NBYTES(a) / rows;
        for (npy_intp r = 0; r < rows; r++) memcpy(PyArray_BYTES(out) + r * width + at, PyArray_BYTES(a) + r * bytes, (size_t)bytes);
        at += bytes;
    }
    return Py_NewRef(out);
}
