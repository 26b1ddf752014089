/* What a call looks like, in a few words that can be looked up: see eager/looks.py, which says the same in Python. */
#include "launcher.h"
#include <structmember.h>

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))
enum { MOST_WORDS = 256 };
enum { NONE = 1, BOOL, INT, FLOAT, STRING, OBJECT, TUPLE, SIZE, TENSOR, LIST, NAME }; /* the kind of what follows; above it, how much */

typedef struct {
    PyTypeObject *tensor, *size, *dtype;
    PyObject *plain, *elsewhere; /* the set of tensor types that have no say of their own; who is asked about memory that is not NumPy's */
    Py_ssize_t array, needs, base;
} Looker;

typedef struct {
    int64_t word[MOST_WORDS];
    int n;
    bool full, needs;
    PyObject *tensors; /* of the call, those in lists among the others */
} Look;

enum { UNKNOWN = 0, SEEN = 1, ELSEWHERE = 2, FAILED = -1 }; /* what is to be said of a value; ELSEWHERE: its memory is not NumPy's */

static inline void put(Look *look, int64_t word) {
    if (look->n < MOST_WORDS) look->word[look->n++] = word;
    else look->full = true;
}

static void put_text(Look *look, int kind, const char *text, Py_ssize_t length) {
    put(look, kind | length << 8);
    for (Py_ssize_t i = 0; i < length && !look->full; i += 8) {
        int64_t word = 0;
        memcpy(&word, text + i, (size_t)Py_MIN(8, length - i));
        put(look, word);
    }
}

static bool put_int(Look *look, PyObject *value) {
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    put(look, number);
    return !overflow;
}

static bool is_plain(const Looker *l, PyObject *value) {
    PyTypeObject *type = Py_TYPE(value);
    return type == l->tensor || (PyType_IsSubtype(type, l->tensor) && PySet_Contains(l->plain, (PyObject *)type) == 1);
}

/* One tensor: its geometry and dtype. `given` receives its array. */
static int put_tensor(const Looker *l, Look *look, PyObject *tensor, PyObject **given) {
    PyObject *array = SLOT(tensor, l->array), *base = SLOT(tensor, l->base);
    if (!PyArray_CheckExact(array)) return ELSEWHERE;
    PyArrayObject *x = (PyArrayObject *)array;
    const int ndim = PyArray_NDIM(x), type = PyArray_DESCR(x)->type_num;
    if (!PyArray_ISNBO(PyArray_DESCR(x)->byteorder) || PyTypeNum_ISFLEXIBLE(type)) return UNKNOWN;
    put(look, TENSOR | (int64_t)ndim << 8 | (int64_t)type << 16);
    for (int i = 0; i < ndim; i++) put(look, PyArray_DIM(x, i)), put(look, PyArray_STRIDE(x, i));
    if (SLOT(tensor, l->needs) == Py_True) look->needs = true;
    else if (base != Py_None && SLOT(base, l->needs) == Py_True) {
        PyObject *wants = PyObject_GetAttrString(tensor, "requires_grad");
        if (!wants) return FAILED;
        look->needs |= wants == Py_True;
        Py_DECREF(wants);
    }
    *given = array;
    return PyList_Append(look->tensors, tensor) < 0 ? FAILED : SEEN;
}

static int put_group(const Looker *l, Look *look, PyObject *values, PyObject **group) {
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(values);
    put(look, LIST | n << 8);
    if (!(*group = PyList_New(n))) return FAILED;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *value = PySequence_Fast_GET_ITEM(values, i), *array = NULL;
        const int found = is_plain(l, value) ? put_tensor(l, look, value, &array) : UNKNOWN;
        if (found != SEEN) return found;
        PyList_SET_ITEM(*group, i, Py_NewRef(array));
    }
    return SEEN;
}

/* Any argument. A tensor, or a list of them, is noted in `given` as its arrays. */
static int put_value(const Looker *l, Look *look, PyObject *value, PyObject *given) {
    if (is_plain(l, value)) {
        PyObject *array = NULL;
        const int found = put_tensor(l, look, value, &array);
        return found == SEEN && PyList_Append(given, array) < 0 ? FAILED : found;
    }
    if (value == Py_None) return put(look, NONE), SEEN;
    if (PyBool_Check(value)) return put(look, BOOL | (int64_t)(value == Py_True) << 8), SEEN;
    if (PyLong_CheckExact(value)) return put(look, INT), put_int(look, value) ? SEEN : UNKNOWN;
    if (PyFloat_CheckExact(value)) {
        int64_t bits;
        const double number = PyFloat_AS_DOUBLE(value);
        memcpy(&bits, &number, sizeof bits);
        return put(look, FLOAT), put(look, bits), SEEN;
    }
    if (PyUnicode_CheckExact(value)) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(value, &length);
        if (!text) return FAILED;
        return put_text(look, STRING, text, length), SEEN;
    }
    if (Py_IS_TYPE(value, l->dtype)) return put(look, OBJECT), put(look, (int64_t)(intptr_t)value), SEEN; /* dtypes live as long as the program */
    const bool is_size = Py_IS_TYPE(value, l->size), is_tuple = PyTuple_CheckExact(value) || is_size;
    if (!is_tuple && !PyList_CheckExact(value)) return UNKNOWN;
    const Py_ssize_t n = PySequence_Fast_GET_SIZE(value);
    if (is_tuple && (n == 0 || PyLong_CheckExact(PyTuple_GET_ITEM(value, 0)))) {
        put(look, (is_size ? SIZE : TUPLE) | n << 8);
        for (Py_ssize_t i = 0; i < n; i++)
            if (!PyLong_CheckExact(PyTuple_GET_ITEM(value, i)) || !put_int(look, PyTuple_GET_ITEM(value, i))) return UNKNOWN;
        return SEEN;
    }
    if (n == 0) return UNKNOWN;
    PyObject *group = NULL;
    int found = put_group(l, look, value, &group);
    if (found == SEEN && PyList_Append(given, group) < 0) found = FAILED;
    Py_XDECREF(group);
    return found;
}

/* look(args, kwargs) -> (key, tensors, their arrays as they are given, whether one wants a gradient), or None. */
static PyObject *look_at(PyObject *capsule, PyObject *const *args, Py_ssize_t nargs) {
    const Looker *l = PyCapsule_GetPointer(capsule, NULL);
    Look look = {.n = 0};
    PyObject *given = PyList_New(0), *found = NULL, *name, *value;
    int said = SEEN;
    look.tensors = PyList_New(0);
    if (!fl_takes("look", 2, nargs) || !given || !look.tensors) goto end;
    for (Py_ssize_t i = 0; said == SEEN && i < PyTuple_GET_SIZE(args[0]); i++) said = put_value(l, &look, PyTuple_GET_ITEM(args[0], i), given);
    for (Py_ssize_t at = 0; said == SEEN && PyDict_Next(args[1], &at, &name, &value);) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(name, &length);
        if (!text) goto end;
        put_text(&look, NAME, text, length);
        said = put_value(l, &look, value, given);
    }
    if (said == FAILED || (said == SEEN && PyErr_Occurred())) goto end;
    if (said == ELSEWHERE) found = PyObject_Vectorcall(l->elsewhere, args, 2, NULL);
    else if (said == UNKNOWN || look.full) found = Py_NewRef(Py_None);
    else {
        PyObject *key = PyBytes_FromStringAndSize((const char *)look.word, (Py_ssize_t)(sizeof *look.word) * look.n);
        if (key) found = PyTuple_Pack(4, key, look.tensors, given, look.needs ? Py_True : Py_False);
        Py_XDECREF(key);
    }
end:
    Py_XDECREF(given), Py_XDECREF(look.tensors);
    return found;
}

PyObject *fl_looker(PyObject *module, PyObject *args) {
    static PyMethodDef definition = {"look", (PyCFunction)(void (*)(void))look_at, METH_FASTCALL, "What a call looks like."};
    Looker *l = PyMem_Malloc(sizeof *l);
    PyObject *names[3];
    Py_ssize_t *at[] = {&l->array, &l->needs, &l->base};
    if (!l) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "OOOOO(OOO):looker", &l->tensor, &l->size, &l->dtype, &l->plain, &l->elsewhere, names, names + 1, names + 2)) return NULL;
    for (int i = 0; i < 3; i++)
        if ((*at[i] = fl_slot_offset(l->tensor, names[i])) < 0) return NULL;
    Py_INCREF(l->tensor), Py_INCREF(l->size), Py_INCREF(l->dtype), Py_INCREF(l->plain), Py_INCREF(l->elsewhere); /* for good */
    return fl_closure(&definition, l);
}

enum { W_ARRAY, W_NEEDS, W_BASE, W_STORAGE, W_INFERENCE, W_SLOTS };
typedef struct {
    PyTypeObject *tensor;
    PyObject *plain;
    Py_ssize_t at[W_SLOTS];
} Writer;

static bool wants(const Writer *w, PyObject *tensor) {
    PyObject *base = SLOT(tensor, w->at[W_BASE]);
    return SLOT(tensor, w->at[W_NEEDS]) == Py_True || (base != Py_None && SLOT(base, w->at[W_NEEDS]) == Py_True);
}

/* An operand of a write over `first`, new: the array of a tensor, a list of such, a number, text or None as it is. NULL where there is more to it. */
static PyObject *operand(const Writer *w, PyObject *value, PyObject *first, bool recording, bool itself) {
    PyTypeObject *type = Py_TYPE(value);
    if (type == w->tensor || (PyType_IsSubtype(type, w->tensor) && PySet_Contains(w->plain, (PyObject *)type) == 1)) {
        PyObject *array = SLOT(value, w->at[W_ARRAY]), *storage = SLOT(first, w->at[W_STORAGE]);
        if (!PyArray_CheckExact(array) || (recording && wants(w, value))) return NULL;
        if (value == first ? !itself : storage != Py_None && SLOT(value, w->at[W_STORAGE]) == storage) return NULL;
        return Py_NewRef(array);
    }
    if (value == Py_None || PyFloat_CheckExact(value) || PyLong_CheckExact(value) || PyBool_Check(value) || PyComplex_CheckExact(value) ||
        PyUnicode_CheckExact(value))
        return Py_NewRef(value);
    if (!PyList_CheckExact(value)) return NULL;
    PyObject *list = PyList_New(PyList_GET_SIZE(value)); /* what an index is made of */
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(value); i++) {
        PyObject *item = PyList_GET_ITEM(value, i), *found = PyNumber_Check(item) && !PyObject_TypeCheck(item, w->tensor) ? NULL : operand(w, item, first, recording, itself);
        if (found) PyList_SET_ITEM(list, i, found);
        else Py_CLEAR(list);
    }
    return list;
}

/* written(recording, itself, first, *others) -> what a loop is given to write over the tensor `first`; None where there is more to it: history, memory that
   is not NumPy's or repeats, or that another operand looks at (`itself`: that operand may be `first`), or values of other types. */
static PyObject *written(PyObject *capsule, PyObject *const *args, Py_ssize_t nargs) {
    const Writer *w = PyCapsule_GetPointer(capsule, NULL);
    if (nargs < 3) return PyErr_Format(PyExc_TypeError, "written takes 3 arguments or more, got %zd", nargs);
    const bool recording = args[0] == Py_True, itself = args[1] == Py_True;
    PyObject *first = args[2], *given = PyTuple_New(nargs - 2);
    if (!given || !PyObject_TypeCheck(first, w->tensor)) goto more;
    for (Py_ssize_t i = 2; i < nargs; i++) {
        PyObject *found = operand(w, args[i], first, recording, itself || i == 2);
        if (!found) goto more;
        PyTuple_SET_ITEM(given, i - 2, found);
    }
    PyArrayObject *out = (PyArrayObject *)PyTuple_GET_ITEM(given, 0);
    if (!PyArray_CheckExact(out) || SLOT(first, w->at[W_INFERENCE]) != Py_False) goto more;
    for (int d = 0; d < PyArray_NDIM(out); d++)
        if (!PyArray_STRIDE(out, d)) goto more;
    return given;
more:
    Py_XDECREF(given);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

PyObject *fl_writer(PyObject *module, PyObject *args) {
    static PyMethodDef definition = {"written", (PyCFunction)(void (*)(void))written, METH_FASTCALL, "What a loop is given to write over a tensor."};
    Writer *w = PyMem_Malloc(sizeof *w);
    PyObject *names;
    if (!w) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "OOO!:writer", &w->tensor, &w->plain, &PyTuple_Type, &names) || PyTuple_GET_SIZE(names) != W_SLOTS) return NULL;
    for (int i = 0; i < W_SLOTS; i++)
        if ((w->at[i] = fl_slot_offset(w->tensor, PyTuple_GET_ITEM(names, i))) < 0) return NULL;
    Py_INCREF(w->tensor), Py_INCREF(w->plain); /* for good: they live as long as the program */
    return fl_closure(&definition, w);
}
