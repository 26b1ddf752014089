/* Making Python objects of classes with slots: several times as fast as object.__new__ and an assignment for each slot.
   And recording a call, which is making a node that points to where its operands came from. */
#include "launcher.h"
#include <structmember.h>

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

/* Where in an object of this type the slot lies; -1 with an exception if there is none. */
Py_ssize_t fl_slot_offset(PyTypeObject *type, PyObject *name) {
    PyObject *slot = PyObject_GetAttr((PyObject *)type, name);
    Py_ssize_t offset = slot && Py_IS_TYPE(slot, &PyMemberDescr_Type) ? ((PyMemberDescrObject *)slot)->d_member->offset : -1;
    if (slot && offset < 0) PyErr_Format(PyExc_TypeError, "%R is no slot of %s", name, type->tp_name);
    Py_XDECREF(slot);
    return offset;
}

/* A builtin function that is called with `state`, which lives as long as the program. */
PyObject *fl_closure(PyMethodDef *definition, void *state) {
    PyObject *capsule = PyCapsule_New(state, NULL, NULL), *function = capsule ? PyCFunction_New(definition, capsule) : NULL;
    Py_XDECREF(capsule);
    return function;
}

typedef struct {
    PyTypeObject *type;
    PyObject *values; /* of all slots; those of the first `given` are replaced by the arguments of a call */
    Py_ssize_t given, offset[];
} Maker;

static PyObject *make(PyObject *capsule, PyObject *const *args, Py_ssize_t nargs) {
    const Maker *m = PyCapsule_GetPointer(capsule, NULL);
    if (nargs != m->given)
        return PyErr_Format(PyExc_TypeError, "%s is made of %zd values, got %zd", m->type->tp_name, m->given, nargs);
    PyObject *made = m->type->tp_alloc(m->type, 0);
    for (Py_ssize_t i = 0; made && i < PyTuple_GET_SIZE(m->values); i++)
        SLOT(made, m->offset[i]) = Py_NewRef(i < nargs ? args[i] : PyTuple_GET_ITEM(m->values, i));
    return made;
}

PyObject *fl_maker(PyObject *module, PyObject *args) {
    static PyMethodDef definition = {"make", (PyCFunction)(void (*)(void))make, METH_FASTCALL, "The object with these slots."};
    PyTypeObject *type;
    PyObject *names, *values;
    Py_ssize_t given;
    if (!PyArg_ParseTuple(args, "O!O!nO!:maker", &PyType_Type, &type, &PyTuple_Type, &names, &given, &PyTuple_Type, &values)) return NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(names);
    Maker *m = n == PyTuple_GET_SIZE(values) && given <= n ? PyMem_Malloc(sizeof *m + (size_t)n * sizeof *m->offset) : NULL;
    if (!m) return PyErr_Format(PyExc_ValueError, "maker: %zd slots, %zd values", n, PyTuple_GET_SIZE(values));
    *m = (Maker){(PyTypeObject *)Py_NewRef(type), Py_NewRef(values), given}; /* for good: classes live as long as the program */
    for (Py_ssize_t i = 0; i < n; i++)
        if ((m->offset[i] = fl_slot_offset(type, PyTuple_GET_ITEM(names, i))) < 0) return NULL;
    return fl_closure(&definition, m);
}

enum { ARRAY, BASE, INFERENCE, NEEDS, NODE, NR, STAMP, STORAGE, VERSION, SAVED, N_SLOTS }; /* of a tensor; the last two, of a storage and a node */
typedef struct {
    PyObject *make, *plans, *next, *store;
    PyTypeObject *tensor;
    Py_ssize_t offset[N_SLOTS];
} Recorder;

/* The shape or the dtype of an array, or whether it is stored by columns and not by rows: read off NumPy's, asked of others by name. */
enum { TENSOR, SHAPE, TURNED, DTYPE, LATER = DTYPE, PART = 64 }; /* kept of tensor i is i + PART * one of these, says eager/record.py */
static PyObject *asked(PyObject *array, int what) {
    static PyObject *shape, *dtype, *flags, *turned;
    if (PyArray_CheckExact(array)) {
        PyArrayObject *x = (PyArrayObject *)array;
        if (what == SHAPE) return PyArray_IntTupleFromIntp(PyArray_NDIM(x), PyArray_DIMS(x));
        return what == DTYPE ? Py_NewRef(PyArray_DESCR(x)) : PyBool_FromLong(PyArray_IS_F_CONTIGUOUS(x) && !PyArray_IS_C_CONTIGUOUS(x));
    }
    if (!turned && (!(shape = PyUnicode_InternFromString("shape")) || !(dtype = PyUnicode_InternFromString("dtype")) ||
                    !(flags = PyUnicode_InternFromString("flags")) || !(turned = PyUnicode_InternFromString("fnc"))))
        return NULL;
    PyObject *found = PyObject_GetAttr(array, what == SHAPE ? shape : what == DTYPE ? dtype : flags);
    if (found && what == TURNED) Py_SETREF(found, PyObject_GetAttr(found, turned));
    return found;
}

/* What a node keeps of an operand, or of its own result: see eager/saved.py. A number is kept as it is. */
static PyObject *kept(const Recorder *r, PyObject *const *tensors, Py_ssize_t which) {
    static PyObject *zero;
    if (!zero && !(zero = PyLong_FromLong(0))) return NULL;
    if (which >= LATER * PART) return Py_NewRef(Py_None); /* Python will put something there */
    PyObject *tensor = tensors[which % PART];
    const bool is_result = which == 0;
    if (!PyObject_TypeCheck(tensor, r->tensor)) return Py_NewRef(tensor);
    PyObject **storage = &SLOT(tensor, r->offset[STORAGE]), *array = SLOT(tensor, r->offset[ARRAY]);
    if (which >= PART) return asked(array, (int)(which / PART));
    if (is_result && *storage == Py_None) {
        PyObject *made = PyObject_CallOneArg(r->store, array);
        if (!made) return NULL;
        Py_SETREF(*storage, made);
    }
    PyObject *version = *storage == Py_None ? zero : SLOT(*storage, r->offset[VERSION]);
    return is_result ? PyTuple_Pack(5, Py_None, array, version, *storage, zero) : PyTuple_Pack(3, tensor, array, version);
}

/* Whether a view's history is what its slots say: nobody has written to its base since, and the base has not begun to want a gradient. */
static bool is_settled(const Recorder *r, PyObject *view, PyObject *base) {
    const Py_ssize_t *at = r->offset;
    if (SLOT(view, at[NODE]) == Py_None) return SLOT(view, at[NEEDS]) == Py_False && SLOT(base, at[NEEDS]) == Py_False;
    return SLOT(view, at[STAMP]) == SLOT(SLOT(view, at[STORAGE]), at[VERSION]);
}

/* record(result, *operands): the node of `result`, or NotImplemented where there is more to it than a plan that was made before. */
static PyObject *record(PyObject *capsule, PyObject *const *args, Py_ssize_t nargs) {
    const Recorder *r = PyCapsule_GetPointer(capsule, NULL);
    const Py_ssize_t *at = r->offset;
    PyObject *array = SLOT(args[0], at[ARRAY]);
    long needed = 0;
    for (Py_ssize_t i = 1; i < nargs; i++) {
        if (!PyObject_TypeCheck(args[i], r->tensor)) continue;
        PyObject *base = SLOT(args[i], at[BASE]);
        if (SLOT(args[i], at[INFERENCE]) != Py_False || (base != Py_None && !is_settled(r, args[i], base))) Py_RETURN_NOTIMPLEMENTED;
        needed |= (long)(SLOT(args[i], at[NEEDS]) == Py_True) << (i - 1);
    }
    PyObject *key = PyLong_FromLong(needed), *plan = key ? PyDict_GetItemWithError(r->plans, key) : NULL;
    Py_XDECREF(key);
    if (!plan && PyErr_Occurred()) return NULL;
    if (!plan) Py_RETURN_NOTIMPLEMENTED;
    PyObject *keep = PyTuple_GET_ITEM(plan, 1), *node = NULL, *saved = NULL, *edges = PyTuple_New(nargs - 1);
    PyObject *sequence = PyObject_CallNoArgs(r->next), *shape = asked(array, SHAPE), *dtype = asked(array, DTYPE);
    for (Py_ssize_t i = 1; edges && i < nargs; i++) {
        static PyObject *leaf;
        if (!leaf && !(leaf = PyLong_FromLong(-1))) goto end;
        PyObject *by = needed >> (i - 1) & 1 ? SLOT(args[i], at[NODE]) : NULL, *edge;
        if (!by) edge = Py_NewRef(Py_None);
        else edge = by == Py_None ? PyTuple_Pack(2, args[i], leaf) : PyTuple_Pack(2, by, SLOT(args[i], at[NR]));
        if (!edge) goto end;
        PyTuple_SET_ITEM(edges, i - 1, edge);
    }
    if (!edges || !sequence || !shape || !dtype) goto end;
    if (PyTuple_GET_SIZE(keep) && !(saved = PyList_New(PyTuple_GET_SIZE(keep)))) goto end;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keep); i++) {
        PyObject *entry = kept(r, args, PyLong_AsSsize_t(PyTuple_GET_ITEM(keep, i)));
        if (!entry) goto end;
        PyList_SET_ITEM(saved, i, entry);
    }
    node = PyObject_Vectorcall(r->make, (PyObject *[]){PyTuple_GET_ITEM(plan, 0), edges, sequence, shape, dtype}, 5, NULL);
    if (!node) goto end;
    if (saved) Py_SETREF(SLOT(node, at[SAVED]), Py_NewRef(saved));
    Py_SETREF(SLOT(args[0], at[NODE]), Py_NewRef(node));
    Py_SETREF(SLOT(args[0], at[NEEDS]), Py_NewRef(Py_True));
end:
    Py_XDECREF(edges), Py_XDECREF(sequence), Py_XDECREF(shape), Py_XDECREF(dtype), Py_XDECREF(saved);
    return node;
}

PyObject *fl_recorder(PyObject *module, PyObject *args) {
    static PyMethodDef definition = {"record", (PyCFunction)(void (*)(void))record, METH_FASTCALL, "The node of a result."};
    PyTypeObject *classes[3];
    PyObject *names;
    Recorder *r = PyMem_Malloc(sizeof *r);
    if (!r) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "OOOO(OOO)O!:recorder", &r->make, &r->plans, &r->next, &r->store, classes, classes + 1, classes + 2, &PyTuple_Type, &names))
        return NULL;
    for (int i = 0; i < N_SLOTS; i++)
        if ((r->offset[i] = fl_slot_offset(classes[Py_MAX(i - STORAGE, 0)], PyTuple_GET_ITEM(names, i))) < 0) return NULL;
    r->tensor = (PyTypeObject *)Py_NewRef(classes[0]);
    Py_INCREF(r->make), Py_INCREF(r->plans), Py_INCREF(r->next), Py_INCREF(r->store); /* for good: classes live as long as the program */
    return fl_closure(&definition, r);
}
