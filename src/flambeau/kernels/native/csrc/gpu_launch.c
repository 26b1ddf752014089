/* Launching kernels on a GPU: a kernel with its arguments, and a formula on arrays of any shapes. */
#include "gpu.h"
#include <structmember.h>

enum { MOST_ARGUMENTS = 64, MOST_GIVEN_TO_LIBRARIES = 16, THREADS = 256, NO_CONTEXT = 201 };

static bool launch(void *function, unsigned across, unsigned down, unsigned threads, unsigned shared, void *stream, void **arguments) {
    int status;
    for (int tries = 0; tries < 2; tries++) {
        Py_BEGIN_ALLOW_THREADS /* where many launches wait already, this one waits, too */
        status = fl_cu.cuLaunchKernel(function, across, down, 1, threads, 1, 1, shared, stream, arguments, NULL);
        Py_END_ALLOW_THREADS
        if (status != NO_CONTEXT || fl_gpu_here() < 0) break;
    }
    return !PyErr_Occurred() && fl_cu_good(status, "cuLaunchKernel");
}

/* -- kernels */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    unsigned long long ptr;
    PyObject *module; /* which the function belongs to */
} Kernel;

/* Numbers take 8 bytes, as kernels declare them; structures are NumPy's arrays or bytes, and handed over by value; arrays on a GPU are their addresses. */
static bool put_argument(PyObject *value, void **argument, uint64_t *room) {
    *argument = room;
    if (PyFloat_Check(value)) {
        const double number = PyFloat_AS_DOUBLE(value);
        memcpy(room, &number, sizeof number);
    } else if (PyLong_Check(value)) *room = PyLong_AsUnsignedLongLongMask(value);
    else if (PyArray_Check(value)) *argument = PyArray_DATA((PyArrayObject *)value);
    else if (PyBytes_Check(value)) *argument = PyBytes_AS_STRING(value);
    else if (fl_gpu_is_array(value)) {
        fl_gpu_array v;
        if (!fl_gpu_see(value, &v)) return false;
        *room = v.at;
    } else if (PyArray_IsScalar(value, Integer)) {
        PyObject *number = PyNumber_Long(value);
        *room = number ? PyLong_AsUnsignedLongLongMask(number) : 0;
        Py_XDECREF(number);
    } else PyErr_Format(PyExc_TypeError, "a kernel takes integers, floats, structures and arrays, got %R", (PyObject *)Py_TYPE(value));
    return !PyErr_Occurred();
}

static unsigned number_at(PyObject *tuple, Py_ssize_t i) {
    return PyTuple_Check(tuple) && i < PyTuple_GET_SIZE(tuple) ? (unsigned)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(tuple, i)) : 1;
}

static PyObject *kernel_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    uint64_t room[MOST_ARGUMENTS];
    void *arguments[MOST_ARGUMENTS], *stream;
    if (nargs < 3 || nargs > 4 || names) return PyErr_Format(PyExc_TypeError, "a kernel is called with grid, block, arguments and perhaps bytes of shared memory");
    PyObject *given = PySequence_Fast(args[2], "the arguments of a kernel are a sequence");
    const Py_ssize_t n = given ? PySequence_Fast_GET_SIZE(given) : 0;
    bool good = given && n <= MOST_ARGUMENTS;
    if (given && !good) PyErr_Format(PyExc_TypeError, "a kernel takes at most %d arguments, got %zd", MOST_ARGUMENTS, n);
    for (Py_ssize_t i = 0; good && i < n; i++) good = put_argument(PySequence_Fast_GET_ITEM(given, i), &arguments[i], &room[i]);
    const unsigned shared = nargs == 4 ? (unsigned)PyLong_AsUnsignedLong(args[3]) : 0, across = number_at(args[0], 0), down = number_at(args[0], 1);
    const unsigned threads = number_at(args[1], 0);
    good = good && !PyErr_Occurred() && fl_gpu_stream(&stream);
    good = good && launch((void *)(uintptr_t)((Kernel *)self)->ptr, across, down, threads, shared, stream, arguments);
    Py_XDECREF(given);
    return good ? Py_NewRef(Py_None) : NULL;
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    unsigned long long ptr;
    PyObject *module;
    if (!PyArg_ParseTuple(args, "KO:GpuKernel", &ptr, &module)) return NULL;
    Kernel *k = (Kernel *)type->tp_alloc(type, 0);
    if (k) k->call = kernel_call, k->ptr = ptr, k->module = Py_NewRef(module);
    return (PyObject *)k;
}

static void kernel_free(PyObject *self) { Py_XDECREF(((Kernel *)self)->module), Py_TYPE(self)->tp_free(self); }

PyTypeObject fl_gpu_kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.kernels._native.GpuKernel",
    .tp_doc = "GpuKernel(ptr, module): a function of CUDA's. Called with (blocks across, down), (threads,), arguments and perhaps bytes of shared memory.",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = kernel_new,
    .tp_dealloc = kernel_free,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Kernel, call),
    .tp_members = (PyMemberDef[]){{"ptr", T_ULONGLONG, offsetof(Kernel, ptr), READONLY, "The function's handle."}, {0}},
};

/* A function of a library that takes integers and addresses, and returns a status: where a call is made at every product, ctypes would be most of its time. */
PyObject *fl_gpu_call(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    uint64_t a[MOST_GIVEN_TO_LIBRARIES + 1] = {0};
    if (nargs < 1 || nargs > MOST_GIVEN_TO_LIBRARIES + 1) return PyErr_Format(PyExc_TypeError, "gpu_call takes an address and at most %d numbers", MOST_GIVEN_TO_LIBRARIES);
    for (Py_ssize_t i = 0; i < nargs; i++) a[i] = PyLong_AsUnsignedLongLongMask(args[i]);
    if (PyErr_Occurred()) return NULL;
    int (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    *(void **)&function = (void *)(uintptr_t)a[0];
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = function(a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16]);
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(status);
}

/* -- formulas */

/* How the work of a formula is laid out for operands of one geometry: what cuda/launch.py has worked out. */
typedef struct {
    PyObject_HEAD
    PyObject *kernel, *geometry; /* NULL: there is nothing to do; the struct Geometry of print_cuda, a NumPy array */
    long long n, pack;           /* elements; how many a thread moves at once. n is 0 where it is that of the operands */
    unsigned blocks;
    int ndim;
    npy_intp shape[FL_GPU_DIMS], strides[FL_GPU_DIMS]; /* of a fresh result; strides in bytes */
} Layout;

static PyObject *layout_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *kernel, *geometry, *shape, *strides;
    Layout *l = (Layout *)type->tp_alloc(type, 0);
    if (l && !PyArg_ParseTuple(args, "OOLLIO!O!:GpuLayout", &kernel, &geometry, &l->n, &l->pack, &l->blocks, &PyTuple_Type, &shape, &PyTuple_Type, &strides)) Py_CLEAR(l);
    if (!l) return NULL;
    l->kernel = kernel == Py_None ? NULL : Py_NewRef(kernel), l->geometry = Py_NewRef(geometry);
    l->ndim = (int)PyTuple_GET_SIZE(shape);
    const bool fits = l->ndim <= FL_GPU_DIMS && PyTuple_GET_SIZE(strides) == l->ndim && (!l->kernel || (PyArray_Check(geometry) && Py_IS_TYPE(kernel, &fl_gpu_kernel_type)));
    for (int d = 0; fits && d < l->ndim; d++) l->shape[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, d)), l->strides[d] = PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, d));
    if (fits && !PyErr_Occurred()) return (PyObject *)l;
    Py_DECREF(l);
    return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected a kernel, its geometry, numbers, and at most %d sizes with their strides", FL_GPU_DIMS);
}

static void layout_free(PyObject *self) {
    Py_XDECREF(((Layout *)self)->kernel), Py_XDECREF(((Layout *)self)->geometry);
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject fl_gpu_layout_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.kernels._native.GpuLayout",
    .tp_doc = "GpuLayout(kernel, geometry, n, pack, blocks, shape, strides): see cuda/launch.py.",
    .tp_basicsize = sizeof(Layout),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = layout_new,
    .tp_dealloc = layout_free,
};

/* Of calls with any operands. lay_out(flat, device, low bits of addresses, views, out's view) -> a layout, or None where there is none for them;
   otherwise(operands, params, out): the way in Python for those, and for operands elsewhere. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *plans, *lay_out, *otherwise;
    PyArray_Descr *out;
    int n_in, n_param, is_complex;
    unsigned long long whole; /* which operands are integers where they are numbers, a bit each */
} Formula;
enum { MOST_OPERANDS = 16 };

typedef struct { /* one call */
    fl_gpu_array view[MOST_OPERANDS + 1]; /* that of `out` comes last */
    bool is_array[MOST_OPERANDS + 1];
    int n, first, device; /* n: with `out`, if it is given; first: the first array, or -1 */
    bool flat;            /* all arrays are row-major and of one shape */
} Seen;

static bool is_canonical(const fl_gpu_array *v) {
    npy_intp step = PyDataType_ELSIZE(v->descr);
    if (!v->dense || !v->size) return false;
    for (int d = v->ndim - 1; d >= 0; d--) {
        if (v->strides[d] != step) return false; /* of a dimension of size 1, any stride is handed on: see layout.pointwise_strides */
        step *= v->shape[d];
    }
    return true;
}

/* What the operands are. UNKNOWN: not all that are arrays are on the current GPU. */
static int see(const Formula *f, PyObject *const *args, PyObject *out, Seen *s) {
    s->n = f->n_in + (out != NULL), s->first = -1, s->flat = true;
    if ((s->device = fl_gpu_here()) < 0) return FAILED;
    for (int i = s->n - 1; i >= 0; i--) {
        PyObject *value = i < f->n_in ? args[i] : out;
        fl_gpu_array *v = &s->view[i];
        if (!(s->is_array[i] = fl_gpu_is_array(value))) {
            if (PyArray_Check(value)) return UNKNOWN;
            continue;
        }
        if (!fl_gpu_see(value, v)) return FAILED;
        if (v->device != s->device) return UNKNOWN;
        s->flat = s->flat && is_canonical(v) && v->size < INT32_MAX;
        if (s->flat && s->first >= 0) {
            const fl_gpu_array *other = &s->view[s->first];
            s->flat = v->ndim == other->ndim && !memcmp(v->shape, other->shape, sizeof *v->shape * (size_t)v->ndim);
        }
        s->first = i;
    }
    return s->first < 0 ? UNKNOWN : SEEN;
}

static void word(Look *look, int64_t word) {
    if (look->n < MOST_WORDS) look->word[look->n++] = word;
    else look->full = true;
}

/* The call in words: shapes count only where the work depends on them. */
static void put_words(const Seen *s, Look *look) {
    look->n = 0, look->full = false;
    word(look, s->flat | s->device << 1);
    for (int i = 0; i < s->n; i++) {
        const fl_gpu_array *v = &s->view[i];
        if (!s->is_array[i]) {
            word(look, -1);
            continue;
        }
        word(look, (int64_t)(v->at & 15) | (s->flat ? 0 : (int64_t)(v->ndim + 1) << 4));
        for (int d = 0; !s->flat && d < v->ndim; d++) word(look, v->shape[d]), word(look, v->strides[d]);
    }
}

/* (shape, strides, bytes of an element) */
static PyObject *told(const fl_gpu_array *v) {
    PyObject *shape = PyArray_IntTupleFromIntp(v->ndim, v->shape), *strides = PyArray_IntTupleFromIntp(v->ndim, v->strides);
    PyObject *found = shape && strides ? Py_BuildValue("OOn", shape, strides, (Py_ssize_t)PyDataType_ELSIZE(v->descr)) : NULL;
    return Py_XDECREF(shape), Py_XDECREF(strides), found;
}

/* A layout from Python: of what is flat it is told one element, for the code does not depend on the shape. */
static PyObject *lay_out(const Formula *f, const Seen *s) {
    PyObject *views = PyTuple_New(f->n_in), *low = PyTuple_New(s->n), *out = NULL, *found = NULL;
    for (int i = 0; views && low && i < s->n; i++) {
        PyObject *view = s->is_array[i] ? told(&s->view[i]) : Py_NewRef(Py_None);
        if (!view) goto end;
        if (i < f->n_in) PyTuple_SET_ITEM(views, i, view);
        else out = view;
        PyTuple_SET_ITEM(low, i, PyLong_FromLong(s->is_array[i] ? (long)(s->view[i].at & 15) : 0));
    }
    if (views && low) found = PyObject_CallFunction(f->lay_out, "OiOOO", s->flat ? Py_True : Py_False, s->device, low, views, out ? out : Py_None);
end:
    Py_XDECREF(views), Py_XDECREF(low), Py_XDECREF(out);
    return found;
}

/* The layout for such a call, remembered; None where there is none, False where there is none for it as flat. */
static PyObject *layout_for(const Formula *f, const Seen *s) {
    Look look;
    put_words(s, &look);
    if (look.full) Py_RETURN_NONE;
    PyObject *found = fl_plans_find(f->plans, &look);
    if (found) return Py_NewRef(found);
    if ((found = lay_out(f, s)) && fl_plans_put(f->plans, &look, found) < 0) Py_CLEAR(found);
    return found;
}

static bool put_real(PyObject *value, uint64_t *room) {
    const double number = PyFloat_AsDouble(value);
    memcpy(room, &number, sizeof number);
    return !(number == -1 && PyErr_Occurred());
}

/* A number as the kernel's parameters: an integer, a double, or the two parts of a complex number. How many there are; -1 with an exception. */
static int put_number(const Formula *f, PyObject *value, bool whole, uint64_t *room) {
    if (whole) {
        PyObject *number = PyNumber_Long(value);
        *room = number ? PyLong_AsUnsignedLongLongMask(number) : 0;
        Py_XDECREF(number);
        return PyErr_Occurred() ? -1 : 1;
    }
    if (!f->is_complex) return put_real(value, room) ? 1 : -1;
    const Py_complex z = PyComplex_AsCComplex(value);
    memcpy(room, &z.real, sizeof z.real), memcpy(room + 1, &z.imag, sizeof z.imag);
    return PyErr_Occurred() ? -1 : 2;
}

static PyObject *otherwise(const Formula *f, PyObject *const *args, PyObject *out) {
    PyObject *operands = PyTuple_New(f->n_in), *params = PyTuple_New(f->n_param), *found = NULL;
    for (int i = 0; operands && i < f->n_in; i++) PyTuple_SET_ITEM(operands, i, Py_NewRef(args[i]));
    for (int i = 0; params && i < f->n_param; i++) PyTuple_SET_ITEM(params, i, Py_NewRef(args[f->n_in + i]));
    if (operands && params) found = PyObject_CallFunctionObjArgs(f->otherwise, operands, params, out ? out : Py_None, NULL);
    return Py_XDECREF(operands), Py_XDECREF(params), found;
}

static PyObject *carry_out(const Formula *f, PyObject *const *args, PyObject *out, Seen *s) {
    PyObject *found = layout_for(f, s), *made;
    if (!found) return NULL;
    if (found == Py_False && s->flat) { /* an address is odd, or there is nothing to pack: laid out like any other */
        s->flat = false;
        Py_SETREF(found, layout_for(f, s));
        if (!found) return NULL;
    }
    if (!Py_IS_TYPE(found, &fl_gpu_layout_type)) return Py_DECREF(found), otherwise(f, args, out);
    const Layout *l = (Layout *)found;
    const fl_gpu_array *like = &s->view[s->first];
    if (out) made = Py_NewRef(out);
    else made = s->flat ? fl_gpu_new(f->out, like->ndim, like->shape, NULL) : fl_gpu_new(f->out, l->ndim, l->shape, l->strides);
    fl_gpu_array result;
    uint64_t room[MOST_ARGUMENTS];
    void *arguments[MOST_ARGUMENTS], *stream;
    if (!made || !l->kernel) return Py_DECREF(found), made;
    if (!fl_gpu_see(made, &result) || !fl_gpu_stream(&stream)) goto failed;
    int n = 0, more = 1;
    room[n++] = result.at;
    for (int i = 0; i < f->n_in + f->n_param; i++, n += more) {
        if (i < f->n_in && s->is_array[i]) room[n] = s->view[i].at, more = 1;
        else if ((more = put_number(f, args[i], i < f->n_in && f->whole >> i & 1, &room[n])) < 0) goto failed;
    }
    const long long elements = s->flat ? like->size : l->n, threads = s->flat ? elements / l->pack + elements % l->pack : 0;
    room[n++] = (uint64_t)elements;
    for (int i = 0; i < n; i++) arguments[i] = &room[i];
    arguments[n] = PyArray_DATA((PyArrayObject *)l->geometry);
    const unsigned blocks = s->flat ? (unsigned)((threads + THREADS - 1) / THREADS) : l->blocks;
    if (!launch((void *)(uintptr_t)((Kernel *)l->kernel)->ptr, blocks, 1, THREADS, 0, stream, arguments)) goto failed;
    return Py_DECREF(found), made;
failed:
    Py_DECREF(found), Py_DECREF(made);
    return NULL;
}

static PyObject *formula_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    const Formula *f = (Formula *)self;
    const Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), takes = f->n_in + f->n_param;
    if (names || nargs < takes || nargs > takes + 1) return PyErr_Format(PyExc_TypeError, "a formula takes %zd operands and options, and perhaps an array for the result, got %zd", takes, nargs);
    PyObject *out = nargs > takes && args[takes] != Py_None ? args[takes] : NULL;
    Seen s;
    const int said = see(f, args, out, &s);
    return said == SEEN ? carry_out(f, args, out, &s) : said == FAILED ? NULL : otherwise(f, args, out);
}

/* The first byte of an array, and the one behind its last. */
static void reach(const fl_gpu_array *v, fl_address *low, fl_address *high) {
    *low = v->at, *high = v->at + (fl_address)PyDataType_ELSIZE(v->descr);
    for (int d = 0; d < v->ndim; d++) *(v->strides[d] < 0 ? low : high) += (fl_address)((v->shape[d] - 1) * v->strides[d]);
}

/* Whether a result can be written over `out` while this operand is read: element by element the same memory, or none of it, and no other shape. */
static bool stays_apart(const fl_gpu_array *out, const fl_gpu_array *v) {
    const size_t bytes = sizeof *v->shape * (size_t)v->ndim;
    const bool alike = v->ndim == out->ndim && !memcmp(v->shape, out->shape, bytes);
    fl_address low, high, from, to;
    if (!alike && v->ndim) return false;
    if (!out->size || (alike && v->at == out->at && !memcmp(v->strides, out->strides, bytes))) return true;
    reach(out, &low, &high), reach(v, &from, &to);
    return to <= low || high <= from;
}

static PyObject *formula_into(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    const Formula *f = (Formula *)self;
    Seen s;
    if (nargs != 1 + f->n_in + f->n_param) return PyErr_Format(PyExc_TypeError, "into(out, *operands, *options): got %zd values", nargs);
    const int said = see(f, args + 1, args[0], &s);
    if (said == FAILED) return NULL;
    bool good = said == SEEN && s.is_array[f->n_in];
    for (int i = 0; good && i < f->n_in; i++) good = !s.is_array[i] || stays_apart(&s.view[f->n_in], &s.view[i]);
    if (!good) Py_RETURN_NOTIMPLEMENTED;
    return carry_out(f, args + 1, args[0], &s);
}

static PyObject *formula_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *lay_out, *otherwise, *out;
    int n_in, n_param, is_complex;
    unsigned long long whole;
    if (!PyArg_ParseTuple(args, "iiO!pKOO:GpuFormula", &n_in, &n_param, &PyArrayDescr_Type, &out, &is_complex, &whole, &lay_out, &otherwise)) return NULL;
    if (n_in > MOST_OPERANDS || 2 * (n_in + n_param) + 3 > MOST_ARGUMENTS) return PyErr_Format(PyExc_ValueError, "a formula of %d operands and %d options is too long", n_in, n_param);
    Formula *f = (Formula *)type->tp_alloc(type, 0);
    if (!f) return NULL;
    f->call = formula_call, f->lay_out = Py_NewRef(lay_out), f->otherwise = Py_NewRef(otherwise), f->out = (PyArray_Descr *)Py_NewRef(out);
    f->n_in = n_in, f->n_param = n_param, f->is_complex = is_complex, f->whole = whole;
    if (!(f->plans = PyObject_CallNoArgs((PyObject *)&fl_plans_type))) Py_CLEAR(f);
    return (PyObject *)f;
}

static void formula_free(PyObject *self) {
    Formula *f = (Formula *)self;
    Py_XDECREF(f->plans), Py_XDECREF(f->lay_out), Py_XDECREF(f->otherwise), Py_XDECREF((PyObject *)f->out);
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject fl_gpu_formula_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.kernels._native.GpuFormula",
    .tp_doc = "GpuFormula(operands, options, dtype of the result, complex, whole, lay_out, otherwise): called with operands, options, and perhaps an array for the result.",
    .tp_basicsize = sizeof(Formula),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = formula_new,
    .tp_dealloc = formula_free,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Formula, call),
    .tp_methods = (PyMethodDef[]){{"into", (PyCFunction)(void (*)(void))formula_into, METH_FASTCALL,
                                   "into(out, *operands, *options): the same in place; NotImplemented where an operand has another shape, or shares memory in part."},
                                  {0}},
};
