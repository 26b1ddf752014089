/* What a call looks like: everything in its arguments that decides what will happen, in a few words that can be compared.

   Geometry and dtype of tensors, and the values of numbers, texts, sizes and dtypes. Where only the kind of an argument counts (operands of
   formulas: any shapes, any numbers), that alone. What cannot be put into words is UNKNOWN, and such a call goes the general way. */
#include "gpu.h"

enum { NONE = 1, BOOL, INT, FLOAT, STRING, OBJECT, TUPLE, SIZE, SLICE, REST, TENSOR, AWAY, KEPT, AGAIN, NAME, NUMBER }; /* the kind of what follows; above it, how much */

static inline void put(Look *look, int64_t word) {
    if (look->n < MOST_WORDS) look->word[look->n++] = word;
    else look->full = true;
}

static int put_text(Look *look, int kind, PyObject *value) {
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(value, &length);
    if (!text) return FAILED;
    put(look, kind | (int64_t)length << 8);
    for (Py_ssize_t i = 0; i < length && !look->full; i += 8) {
        int64_t word = 0;
        memcpy(&word, text + i, (size_t)Py_MIN(8, length - i));
        put(look, word);
    }
    return SEEN;
}

static int put_int(Look *look, PyObject *value) {
    int overflow;
    put(look, PyLong_AsLongLongAndOverflow(value, &overflow));
    return overflow ? UNKNOWN : SEEN;
}

static inline bool is_plain(PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    return type == fl_house.tensor || (PyType_IsSubtype(type, fl_house.tensor) && PySet_Contains(fl_house.plain, (PyObject *)type) == 1);
}

/* The same of an array on the GPU. */
static int put_away(Look *look, PyObject *array, bool whole) {
    fl_gpu_array v;
    if (!fl_gpu_see(array, &v)) return FAILED;
    put(look, AWAY | (int64_t)(whole ? v.ndim : v.ndim != 0) << 8 | (int64_t)v.descr->type_num << 16);
    for (int i = 0; whole && i < v.ndim; i++) put(look, v.shape[i]), put(look, v.strides[i]);
    return SEEN;
}

/* Whether it was among the arguments before: which of them it is, is then all there is to say. */
static bool is_again(Look *look, PyObject *value) {
    for (int i = 0; i < look->n_tensors; i++)
        if (look->tensor[i] == value) return put(look, AGAIN | (int64_t)i << 8), true;
    return false;
}

static int put_tensor(Look *look, PyObject *tensor, bool whole) {
    PyObject *array = fl_of(tensor, ARRAY), *base = fl_of(tensor, BASE);
    if (is_again(look, tensor)) return SEEN;
    if (look->n_tensors == MOST_SLOTS) return UNKNOWN;
    if (PyArray_CheckExact(array)) {
        PyArrayObject *x = (PyArrayObject *)array;
        const int ndim = PyArray_NDIM(x), type = PyArray_DESCR(x)->type_num;
        if (!PyArray_ISNBO(PyArray_DESCR(x)->byteorder) || (type != fl_bfloat16_number && !PyTypeNum_ISNUMBER(type) && type != NPY_BOOL)) return UNKNOWN;
        put(look, TENSOR | (int64_t)(whole ? ndim : ndim != 0) << 8 | (int64_t)type << 16);
        for (int i = 0; whole && i < ndim; i++) put(look, PyArray_DIM(x, i)), put(look, PyArray_STRIDE(x, i));
    } else if (Py_TYPE(array) == fl_house.elsewhere) {
        const int said = put_away(look, array, whole);
        if (said != SEEN) return said;
    } else return UNKNOWN;
    if (fl_of(tensor, NEEDS) == Py_True) look->wanting |= (int64_t)1 << look->n_tensors;
    else if (base != Py_None && fl_of(base, NEEDS) == Py_True) {
        PyObject *wants = PyObject_GetAttrString(tensor, "requires_grad");
        if (!wants) return FAILED;
        look->wanting |= (int64_t)(wants == Py_True) << look->n_tensors;
        Py_DECREF(wants);
    }
    look->tensor[look->n_tensors++] = tensor;
    return SEEN;
}

static int put_value(Look *look, PyObject *value, bool by_kind);

static int put_values(Look *look, PyObject *const *values, Py_ssize_t n) {
    int said = SEEN;
    for (Py_ssize_t i = 0; said == SEEN && i < n; i++) said = look->full ? UNKNOWN : put_value(look, values[i], false);
    return said;
}

static int put_value(Look *look, PyObject *value, bool by_kind) {
    if (is_plain(value)) return put_tensor(look, value, !look->by_kind);
    if (value == Py_None) return put(look, NONE), SEEN;
    if (PyBool_Check(value)) return put(look, by_kind ? NUMBER | BOOL << 8 : BOOL | (int64_t)(value == Py_True) << 8), SEEN;
    if (PyLong_CheckExact(value)) return by_kind ? (put(look, NUMBER | INT << 8), SEEN) : (put(look, INT), put_int(look, value));
    if (PyFloat_CheckExact(value)) {
        int64_t bits;
        const double number = PyFloat_AS_DOUBLE(value);
        memcpy(&bits, &number, sizeof bits);
        if (by_kind) return put(look, NUMBER | FLOAT << 8), SEEN;
        return put(look, FLOAT), put(look, bits), SEEN;
    }
    if (PyUnicode_CheckExact(value)) return put_text(look, STRING, value);
    if (PySet_Contains(fl_house.lasting, (PyObject *)Py_TYPE(value)) == 1) return put(look, OBJECT), put(look, (int64_t)(intptr_t)value), SEEN;
    if ((PyObject *)Py_TYPE(value) == fl_house.kept) { /* what the work of an operation has left to its derivative: one of a kind, like a tensor */
        if (is_again(look, value)) return SEEN;
        if (look->n_tensors == MOST_SLOTS) return UNKNOWN;
        return put(look, KEPT), look->tensor[look->n_tensors++] = value, SEEN;
    }
    if (value == Py_Ellipsis) return put(look, REST), SEEN;
    if (PySlice_Check(value)) {
        PySliceObject *slice = (PySliceObject *)value;
        return put(look, SLICE), put_values(look, (PyObject *[]){slice->start, slice->stop, slice->step}, 3);
    }
    const bool is_size = Py_IS_TYPE(value, fl_house.size), is_tuple = PyTuple_CheckExact(value) || is_size;
    if (!is_tuple && !PyList_CheckExact(value)) return UNKNOWN;
    put(look, (is_size ? SIZE : TUPLE) | (int64_t)PySequence_Fast_GET_SIZE(value) << 8 | (int64_t)!is_tuple << 7);
    return put_values(look, PySequence_Fast_ITEMS(value), PySequence_Fast_GET_SIZE(value));
}

int fl_look(Look *look, PyObject *const *args, Py_ssize_t nargs, PyObject *names) {
    const Py_ssize_t n_names = names ? PyTuple_GET_SIZE(names) : 0;
    look->n = look->n_tensors = 0, look->wanting = 0, look->full = false, look->n_numbers = (int)Py_MIN(nargs, look->by_kind);
    int said = SEEN;
    for (Py_ssize_t i = 0; said == SEEN && i < nargs; i++) said = put_value(look, args[i], i < look->by_kind);
    for (Py_ssize_t i = 0; said == SEEN && i < n_names; i++)
        if ((said = put_text(look, NAME, PyTuple_GET_ITEM(names, i))) == SEEN) said = put_value(look, args[nargs + i], false);
    if (said != SEEN || look->full) return look->full ? UNKNOWN : said;
    look->wants = look->wanting && fl_is_recording();
    put(look, look->wanting), put(look, look->wants);
    return look->full ? UNKNOWN : SEEN;
}
