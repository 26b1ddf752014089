/* CuPy's arrays, looked at and made without CuPy's functions.

   To make an array by calling cupy.ndarray takes 2.1 us, to ask one for its shape 0.2 us; an addition of two small tensors takes PyTorch 6.7 us, of which the launch
   is 4.1 (measured beside an H200, 2026-11-19). CuPy declares in files that it ships, for those who compile against it, what its objects consist of. We compile
   against nothing: cuda/cupy_objects.py finds the places of the fields when a GPU is first asked for, and tells us. Where it does not find them all, as for the
   stand-in that tests use, attributes are asked and classes are called. */
#include "gpu.h"

/* Where the fields of an array, of a pointer and of a piece of memory lie. */
enum { SIZE, SHAPE, STRIDES, C_DENSE, F_DENSE, SHORT, DTYPE, DATA, POINTER_AT, POINTER_DEVICE, POINTER_MEMORY, MEMORY_AT, MEMORY_SIZE, MEMORY_DEVICE, N_PLACES };
static struct {
    PyTypeObject *array, *array_base, *pointer, *memory, *memory_base;
    PyObject *current_stream, *nothing; /* a function; an empty tuple */
    bool known;
    Py_ssize_t place[N_PLACES];
    void *(*room)(size_t); /* C++'s operator new, which vectors of shapes are freed by */
} cupy;
#define AT(object, field, type) (*(type *)((char *)(object) + cupy.place[field]))

bool fl_gpu_is_array(PyObject *object) { return cupy.array && Py_IS_TYPE(object, cupy.array); }

bool fl_gpu_stream(void **stream) {
    static PyObject *ptr;
    if (!ptr && !(ptr = PyUnicode_InternFromString("ptr"))) return false;
    PyObject *now = PyObject_CallNoArgs(cupy.current_stream), *address = now ? PyObject_GetAttr(now, ptr) : NULL;
    *stream = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(now), Py_XDECREF(address);
    return !PyErr_Occurred();
}

/* -- pieces of memory: objects that own a block */

static fl_block **block_of(PyObject *memory) { return (fl_block **)((char *)memory + cupy.memory_base->tp_basicsize); }

static void memory_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    fl_block *block = *block_of(self);
    if (block) {
        PyObject *kind, *value, *trace; /* whoever lets go of an array may be handling an exception */
        PyErr_Fetch(&kind, &value, &trace);
        fl_gpu_give(block);
        PyErr_Restore(kind, value, trace);
    }
    if (cupy.memory_base == &PyBaseObject_Type) type->tp_free(self);
    else cupy.memory_base->tp_dealloc(self);
    Py_DECREF(type);
}

static PyObject *memory_ptr(PyObject *self, void *unused) {
    fl_block *b = *block_of(self);
    return PyLong_FromUnsignedLongLong(b ? fl_gpu_at(b) : 0);
}
static PyObject *memory_size(PyObject *self, void *unused) {
    fl_block *b = *block_of(self);
    return PyLong_FromSize_t(b ? fl_gpu_size(b) : 0);
}
static PyObject *memory_device(PyObject *self, void *unused) {
    fl_block *b = *block_of(self);
    return PyLong_FromLong(b ? fl_gpu_device(b) : 0);
}

static bool make_memory_type(PyObject *base) {
    static PyGetSetDef fields[] = {{"ptr", memory_ptr}, {"size", memory_size}, {"device_id", memory_device}, {0}};
    PyType_Slot slots[] = {{Py_tp_dealloc, memory_free}, {Py_tp_getset, fields}, {Py_tp_doc, "A piece of the memory of a GPU."}, {0}};
    cupy.memory_base = base == Py_None ? &PyBaseObject_Type : (PyTypeObject *)base;
    PyType_Spec spec = {"flambeau.kernels._native.GpuMemory", (int)(cupy.memory_base->tp_basicsize + (Py_ssize_t)sizeof(fl_block *)), 0, Py_TPFLAGS_DEFAULT, slots};
    PyObject *bases = PyTuple_Pack(1, (PyObject *)cupy.memory_base);
    cupy.memory = bases ? (PyTypeObject *)PyType_FromSpecWithBases(&spec, bases) : NULL;
    Py_XDECREF(bases);
    return cupy.memory;
}

static PyObject *new_pointer_to(PyObject *memory, fl_address at, int device) {
    if (!cupy.known) return PyObject_CallFunction((PyObject *)cupy.pointer, "Oi", memory, 0);
    PyObject *pointer = cupy.pointer->tp_new(cupy.pointer, cupy.nothing, NULL);
    if (!pointer) return NULL;
    AT(pointer, POINTER_AT, intptr_t) = (intptr_t)at, AT(pointer, POINTER_DEVICE, int) = device;
    Py_XSETREF(AT(pointer, POINTER_MEMORY, PyObject *), Py_NewRef(memory));
    return pointer;
}

/* Memory on the current GPU, for the current stream, as CuPy's pointer. */
static PyObject *fresh(size_t bytes) {
    void *stream;
    const int device = fl_gpu_here();
    if (device < 0 || !fl_gpu_stream(&stream)) return NULL;
    fl_block *block = bytes ? fl_gpu_take(device, stream, bytes) : NULL;
    if (bytes && !block) return NULL;
    PyObject *memory = cupy.memory->tp_new(cupy.memory, cupy.nothing, NULL), *pointer;
    if (!memory) {
        if (block) fl_gpu_give(block);
        return NULL;
    }
    *block_of(memory) = block;
    const fl_address at = block ? fl_gpu_at(block) : 0;
    if (cupy.known) {
        AT(memory, MEMORY_AT, intptr_t) = (intptr_t)at, AT(memory, MEMORY_DEVICE, int) = device;
        AT(memory, MEMORY_SIZE, size_t) = block ? fl_gpu_size(block) : 0;
    }
    pointer = new_pointer_to(memory, at, device);
    Py_DECREF(memory);
    return pointer;
}

/* -- arrays */

static PyObject *tuple_of(const npy_intp *numbers, int n) {
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple && i < n; i++) {
        PyObject *number = PyLong_FromSsize_t(numbers[i]);
        if (number) PyTuple_SET_ITEM(tuple, i, number);
        else Py_CLEAR(tuple);
    }
    return tuple;
}

/* Reads a sequence of sizes; -1 with an exception. */
static int read_sizes(PyObject *sequence, npy_intp *to) {
    const int n = PyArray_IntpFromSequence(sequence, to, FL_GPU_DIMS);
    if (n >= 0 && n <= FL_GPU_DIMS) return n;
    if (!PyErr_Occurred()) PyErr_Format(PyExc_ValueError, "expected a tuple of at most %d sizes, got %R", FL_GPU_DIMS, sequence);
    return -1;
}

static bool ask(PyObject *array, fl_gpu_array *v) {
    static PyObject *names[8];
    static const char *const words[] = {"shape", "strides", "dtype", "data", "_c_contiguous", "ptr", "device_id"};
    for (int i = 0; i < 7; i++)
        if (!names[i] && !(names[i] = PyUnicode_InternFromString(words[i]))) return false;
    PyObject *found[7] = {NULL};
    bool good = true;
    for (int i = 0; good && i < 7; i++) good = (found[i] = PyObject_GetAttr(i < 5 ? array : found[3], names[i]));
    good = good && (v->ndim = read_sizes(found[0], v->room[0])) >= 0 && read_sizes(found[1], v->room[1]) == v->ndim && PyArray_DescrCheck(found[2]);
    if (good) {
        v->shape = v->room[0], v->strides = v->room[1], v->size = 1, v->descr = (PyArray_Descr *)found[2], v->pointer = found[3];
        for (int d = 0; d < v->ndim; d++) v->size *= v->shape[d];
        v->dense = PyObject_IsTrue(found[4]) == 1, v->at = PyLong_AsUnsignedLongLong(found[5]), v->device = (int)PyLong_AsLong(found[6]);
    }
    for (int i = 0; i < 7; i++) Py_XDECREF(found[i]);
    return !PyErr_Occurred() && good;
}

bool fl_gpu_see(PyObject *array, fl_gpu_array *v) {
    if (!cupy.known) return ask(array, v);
    npy_intp *const *shape = &AT(array, SHAPE, npy_intp *), *const *strides = &AT(array, STRIDES, npy_intp *); /* vectors: begin, end */
    v->shape = shape[0], v->strides = strides[0], v->ndim = (int)(shape[1] - shape[0]);
    v->size = AT(array, SIZE, Py_ssize_t), v->dense = AT(array, C_DENSE, int), v->descr = AT(array, DTYPE, PyArray_Descr *);
    v->pointer = AT(array, DATA, PyObject *);
    v->at = (fl_address)AT(v->pointer, POINTER_AT, intptr_t), v->device = AT(v->pointer, POINTER_DEVICE, int);
    if (v->ndim <= FL_GPU_DIMS) return true;
    return PyErr_Format(PyExc_ValueError, "a tensor on a GPU has at most %d dimensions, found %d", FL_GPU_DIMS, v->ndim), false;
}

static bool set_vector(PyObject *array, int field, const npy_intp *values, int n) {
    npy_intp **vector = &AT(array, field, npy_intp *), *room = n ? cupy.room(sizeof *room * (size_t)n) : NULL;
    if (n && !room) return PyErr_NoMemory(), false;
    if (n) memcpy(room, values, sizeof *room * (size_t)n);
    vector[0] = room, vector[1] = vector[2] = room + n;
    return true;
}

static bool is_dense(const npy_intp *shape, const npy_intp *strides, int n, npy_intp size, bool rows) {
    for (int i = 0; i < n; i++) {
        const int d = rows ? n - 1 - i : i;
        if (shape[d] != 1 && strides[d] != size) return false;
        size *= shape[d];
    }
    return true;
}

/* An array over this memory. */
static PyObject *over(PyObject *pointer, PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides) {
    if (!cupy.known) {
        PyObject *sizes = tuple_of(shape, ndim), *steps = tuple_of(strides, ndim);
        PyObject *made = sizes && steps ? PyObject_CallFunctionObjArgs((PyObject *)cupy.array, sizes, (PyObject *)descr, pointer, steps, NULL) : NULL;
        return Py_XDECREF(sizes), Py_XDECREF(steps), made;
    }
    PyObject *array = cupy.array_base->tp_new(cupy.array, cupy.nothing, NULL);
    if (!array || !set_vector(array, SHAPE, shape, ndim) || !set_vector(array, STRIDES, strides, ndim)) return Py_XDECREF(array), NULL;
    npy_intp size = 1, reach = PyDataType_ELSIZE(descr);
    for (int d = 0; d < ndim; d++) size *= shape[d], reach += (shape[d] - 1) * (strides[d] < 0 ? -strides[d] : strides[d]);
    AT(array, SIZE, Py_ssize_t) = size, AT(array, SHORT, int) = reach <= (npy_intp)1 << 31;
    AT(array, C_DENSE, int) = !size || is_dense(shape, strides, ndim, PyDataType_ELSIZE(descr), true);
    AT(array, F_DENSE, int) = !size || is_dense(shape, strides, ndim, PyDataType_ELSIZE(descr), false);
    Py_XSETREF(AT(array, DTYPE, PyObject *), Py_NewRef((PyObject *)descr));
    Py_XSETREF(AT(array, DATA, PyObject *), Py_NewRef(pointer));
    return array;
}

PyObject *fl_gpu_new(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides) {
    npy_intp rows[FL_GPU_DIMS], step = PyDataType_ELSIZE(descr), reach = step;
    bool empty = false;
    for (int d = ndim - 1; d >= 0; d--) {
        rows[d] = step, empty |= !shape[d];
        if (__builtin_mul_overflow(step, Py_MAX(shape[d], 1), &step)) step = (npy_intp)1 << 62; /* which nobody has */
        if (strides) reach += (shape[d] - 1) * strides[d];
    }
    PyObject *pointer = fresh(empty ? 0 : (size_t)(strides ? reach : step)), *made = pointer ? over(pointer, descr, ndim, shape, strides ? strides : rows) : NULL;
    return Py_XDECREF(pointer), made;
}

/* -- for Python */

void fl_gpu_on_refusal(PyObject *function); /* gpu_memory.c */

PyObject *fl_gpu_arrays(PyObject *module, PyObject *args) {
    PyObject *array, *array_base, *pointer, *memory, *places, *stream, *refuse;
    if (!PyArg_ParseTuple(args, "OOOOOOO:gpu_arrays", &array, &array_base, &pointer, &memory, &places, &stream, &refuse)) return NULL;
    Py_XSETREF(cupy.array, (PyTypeObject *)Py_NewRef(array));
    Py_XSETREF(cupy.array_base, (PyTypeObject *)Py_NewRef(array_base));
    Py_XSETREF(cupy.pointer, (PyTypeObject *)Py_NewRef(pointer));
    Py_XSETREF(cupy.current_stream, Py_NewRef(stream));
    if (!cupy.nothing && !(cupy.nothing = PyTuple_New(0))) return NULL;
    if (!make_memory_type(memory)) return NULL;
    fl_gpu_on_refusal(refuse);
    cupy.known = places != Py_None;
    for (Py_ssize_t i = 0; cupy.known && i < N_PLACES; i++) {
        PyObject *place = PyTuple_Check(places) && PyTuple_GET_SIZE(places) == N_PLACES + 1 ? PyTuple_GET_ITEM(places, i) : NULL;
        if (!place) return PyErr_Format(PyExc_TypeError, "expected %d places and the address of operator new, got %R", N_PLACES, places);
        cupy.place[i] = PyLong_AsSsize_t(place);
    }
    if (cupy.known) *(void **)&cupy.room = PyLong_AsVoidPtr(PyTuple_GET_ITEM(places, N_PLACES));
    if (PyErr_Occurred()) return NULL;
    return Py_NewRef((PyObject *)cupy.memory);
}

PyObject *fl_gpu_alloc(PyObject *module, PyObject *bytes) {
    const size_t size = PyLong_AsSize_t(bytes);
    return size == (size_t)-1 && PyErr_Occurred() ? NULL : fresh(size);
}

PyObject *fl_gpu_empty(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    npy_intp shape[FL_GPU_DIMS], strides[FL_GPU_DIMS];
    if (nargs < 2 || nargs > 3 || !PyArray_DescrCheck(args[1])) return PyErr_Format(PyExc_TypeError, "expected a shape, a numpy.dtype and perhaps strides");
    const int ndim = read_sizes(args[0], shape), n = ndim < 0 || nargs < 3 ? ndim : read_sizes(args[2], strides);
    if (ndim < 0 || n < 0) return NULL;
    if (n != ndim) return PyErr_Format(PyExc_ValueError, "expected a stride for each size, got %R and %R", args[0], args[2]);
    return fl_gpu_new((PyArray_Descr *)args[1], ndim, shape, nargs == 3 ? strides : NULL);
}

PyObject *fl_gpu_view(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    npy_intp shape[FL_GPU_DIMS], strides[FL_GPU_DIMS];
    fl_gpu_array v;
    if (nargs < 4 || nargs > 5 || !fl_gpu_is_array(args[0]) || (nargs == 5 && !PyArray_DescrCheck(args[4])))
        return PyErr_Format(PyExc_TypeError, "expected an array on a GPU, shape, strides, offset and perhaps a numpy.dtype");
    if (!fl_gpu_see(args[0], &v)) return NULL;
    PyArray_Descr *descr = nargs == 5 ? (PyArray_Descr *)args[4] : v.descr;
    const npy_intp element = PyDataType_ELSIZE(descr), offset = PyNumber_AsSsize_t(args[3], PyExc_OverflowError);
    const int ndim = offset == -1 && PyErr_Occurred() ? -1 : read_sizes(args[1], shape), n = ndim < 0 ? -1 : read_sizes(args[2], strides);
    if (n < 0) return NULL;
    if (n != ndim) return PyErr_Format(PyExc_ValueError, "expected a stride for each size, got %R and %R", args[1], args[2]);
    for (int d = 0; d < ndim; d++) strides[d] *= element;
    PyObject *pointer = v.pointer, *made;
    if (!offset || !v.at) Py_INCREF(pointer); /* memory of no bytes has no address to move from */
    else if (cupy.known) pointer = new_pointer_to(AT(pointer, POINTER_MEMORY, PyObject *), v.at + (fl_address)(offset * element), v.device);
    else {
        PyObject *bytes = PyLong_FromSsize_t(offset * element);
        pointer = bytes ? PyNumber_Add(pointer, bytes) : NULL;
        Py_XDECREF(bytes);
    }
    made = pointer ? over(pointer, descr, ndim, shape, strides) : NULL;
    return Py_XDECREF(pointer), made;
}

PyObject *fl_gpu_record_stream(PyObject *module, PyObject *args) {
    PyObject *array;
    unsigned long long stream;
    fl_gpu_array v;
    if (!PyArg_ParseTuple(args, "OK:gpu_record_stream", &array, &stream)) return NULL;
    if (!fl_gpu_is_array(array)) return PyErr_Format(PyExc_TypeError, "expected an array on a GPU, got %R", (PyObject *)Py_TYPE(array));
    PyObject *memory = fl_gpu_see(array, &v) ? PyObject_GetAttrString(v.pointer, "mem") : NULL;
    if (!memory) return NULL;
    fl_block *block = Py_IS_TYPE(memory, cupy.memory) ? *block_of(memory) : NULL; /* what others have lent has no stream here */
    const bool good = !block || fl_gpu_also_used(block, (void *)(uintptr_t)stream);
    Py_DECREF(memory);
    return good ? Py_NewRef(Py_None) : NULL;
}
