/* Carrying out a plan: its steps one after another, each a call of work on arrays whose results become tensors, with a node where a gradient is wanted.

   Tensors have numbers: first those of the call, then the results of the steps. What a step takes is written as a number, too (see `Code`). */
#include "gpu.h"
#include <structmember.h>

/* What an argument of a step's work is, or what a node saves. eager/plans.py knows these numbers. */
enum { OF_SLOT = 0, OF_VALUE = 1000, OF_LIST = 2000, OF_ARGUMENT = 3000, OF_CAST = 4000, OF_RESULT = 5000, OF_CONSTANT_RESULT = 6000, OF_FRESH = 7000, OF_ORIGINAL = 8000 };
enum { MAKES, VIEWS, WRITES };

typedef struct {
    int64_t wanted;                                       /* which tensors want a gradient, a bit each */
    PyObject *make, *recipe, *values, *counts, *options; /* what makes the node, and what is put into it */
    int n;
    short code[];
} History;

typedef struct {
    PyObject *run, *names, *values, *record, *rewrite; /* record(tensors, results, args, kept) -> a history: the general way, once for each `wanted`;
                                                          rewrite(tensors): the history of what was written over, where it is not `history[0]`; or NULL */
    int kind, n_codes, n_positional, n_tensors, n_results;
    bool several, differentiable;
    int64_t floating, wanted; /* which results a gradient can flow to; which operands want one, of a write that is recorded */
    short *code, *tensor;
    History **history;
    int n_histories;
} Step;

typedef struct {
    PyObject_HEAD
    PyObject *source, *container; /* the plan as Python has it; what the results are put into, or NULL for one alone */
    Step *step;
    int n_steps, n_codes;
    short *code;
} Plan;

typedef struct { PyObject *slot[MOST_SLOTS]; int n; PyObject *const *args, *original; } Run; /* original: a copy of what is written over, if backward will ask for it */

static PyObject *array_of(PyObject *tensor) { return Py_NewRef(SLOT(tensor, fl_house.at[ARRAY])); }

static PyObject *list_of(const Run *run, PyObject *slots, PyObject *(*what)(PyObject *)) {
    PyObject *list = PyList_New(PyTuple_GET_SIZE(slots));
    for (Py_ssize_t i = 0; list && i < PyTuple_GET_SIZE(slots); i++) {
        PyObject *at = PyTuple_GET_ITEM(slots, i), *item = at == Py_None ? Py_NewRef(at) : what(run->slot[PyLong_AsLong(at)]);
        if (item) PyList_SET_ITEM(list, i, item);
        else Py_CLEAR(list);
    }
    return list;
}

static PyObject *given(const Run *run, PyObject *values, int code) {
    PyObject *value = code >= OF_VALUE && code < OF_ARGUMENT ? PyTuple_GET_ITEM(values, code % 1000) : NULL;
    if (code < OF_VALUE) return array_of(run->slot[code]);
    if (code < OF_LIST) return Py_NewRef(value);
    if (code < OF_ARGUMENT) return list_of(run, value, array_of);
    if (code < OF_CAST) return Py_NewRef(run->args[code - OF_ARGUMENT]);
    if (code >= OF_FRESH) return Py_NewRef(run->slot[code - OF_FRESH]); /* no tensor, but what work and derivative have in common */
    value = PyTuple_GET_ITEM(values, code - OF_CAST); /* (number of the tensor or, below zero, of the argument; function) */
    const long at = PyLong_AsLong(PyTuple_GET_ITEM(value, 0));
    return PyObject_CallOneArg(PyTuple_GET_ITEM(value, 1), at < 0 ? run->args[-1 - at] : fl_of(run->slot[at], ARRAY));
}

/* -- histories */

/* What a node keeps of a tensor: see eager/saved.py. */
static PyObject *saved_operand(PyObject *tensor) {
    static PyObject *zero;
    if (!zero && !(zero = PyLong_FromLong(0))) return NULL;
    PyObject *storage = fl_of(tensor, STORAGE);
    return PyTuple_Pack(3, tensor, fl_of(tensor, ARRAY), storage == Py_None ? zero : fl_of(storage, VERSION));
}

static PyObject *saved_result(PyObject *tensor, long number, bool is_output) {
    PyObject **storage = &SLOT(tensor, fl_house.at[STORAGE]), *array = fl_of(tensor, ARRAY);
    if (!is_output) return saved_operand(tensor);
    if (*storage == Py_None) {
        PyObject *made = PyObject_CallOneArg(fl_house.store, array);
        if (!made) return NULL;
        Py_SETREF(*storage, made);
    }
    PyObject *nr = PyLong_FromLong(number), *found = nr ? PyTuple_Pack(5, Py_None, array, fl_of(*storage, VERSION), *storage, nr) : NULL;
    Py_XDECREF(nr);
    return found;
}

static PyObject *kept(const Run *run, const History *h, int code, PyObject *const *results) {
    if (code < OF_VALUE) return saved_operand(run->slot[code]);
    if (code < OF_LIST) return Py_NewRef(PyTuple_GET_ITEM(h->values, code - OF_VALUE));
    if (code < OF_ARGUMENT) return list_of(run, PyTuple_GET_ITEM(h->values, code - OF_LIST), saved_operand);
    if (code < OF_CAST) return Py_NewRef(run->args[code - OF_ARGUMENT]);
    if (code == OF_ORIGINAL) return saved_operand(run->original);
    if (code >= OF_FRESH) return Py_NewRef(run->slot[code - OF_FRESH]);
    if (code >= OF_CONSTANT_RESULT) return saved_result(results[code - OF_CONSTANT_RESULT], 0, false);
    PyObject *both = PyTuple_GET_ITEM(h->values, code - OF_RESULT); /* (which result, its number as an output) */
    return saved_result(results[PyLong_AsLong(PyTuple_GET_ITEM(both, 0))], PyLong_AsLong(PyTuple_GET_ITEM(both, 1)), true);
}

/* Whether a view's history is what its slots say: nobody has written to its base since, and the base has not begun to want a gradient. */
static bool is_settled(PyObject *view, PyObject *base) {
    if (fl_of(view, NODE) == Py_None) return fl_of(view, NEEDS) == Py_False && fl_of(base, NEEDS) == Py_False;
    return fl_of(view, STAMP) == fl_of(fl_of(view, STORAGE), VERSION);
}

static PyObject *edge_to(PyObject *tensor) {
    static PyObject *leaf;
    if (!leaf && !(leaf = PyLong_FromLong(-1))) return NULL;
    PyObject *node = fl_of(tensor, NODE);
    return node == Py_None ? PyTuple_Pack(2, tensor, leaf) : PyTuple_Pack(2, node, fl_of(tensor, NR));
}

static PyObject *attribute(PyObject *array, bool shape) {
    static PyObject *shape_, *dtype_;
    fl_gpu_array x;
    if (PyArray_CheckExact(array)) {
        PyArrayObject *x = (PyArrayObject *)array;
        return shape ? PyArray_IntTupleFromIntp(PyArray_NDIM(x), PyArray_DIMS(x)) : Py_NewRef(PyArray_DESCR(x));
    }
    if (fl_gpu_is_array(array)) {
        if (!fl_gpu_see(array, &x)) return NULL;
        return shape ? PyArray_IntTupleFromIntp(x.ndim, x.shape) : Py_NewRef((PyObject *)x.descr);
    }
    if (!dtype_ && (!(shape_ = PyUnicode_InternFromString("shape")) || !(dtype_ = PyUnicode_InternFromString("dtype")))) return NULL;
    return PyObject_GetAttr(array, shape ? shape_ : dtype_);
}

/* The node of a step, made as a history says. 0, or -1 with an exception. */
static int follow(const Run *run, const Step *s, const History *h, PyObject *const *results) {
    PyObject *edges = PyTuple_New(s->n_tensors), *saved = h->n ? PyList_New(h->n) : NULL, *node = NULL, *outputs = NULL;
    PyObject *sequence = PyObject_CallNoArgs(fl_house.next), *first = NULL, *shape = NULL, *dtype = NULL;
    int n_outputs = 0, said = -1;
    for (int i = 0; i < s->n_results; i++)
        if (s->floating >> i & 1) n_outputs++, first = first ? first : results[i];
    if (!first || !edges || !sequence || (h->n && !saved)) goto end;
    if (!(shape = attribute(fl_of(first, ARRAY), true)) || !(dtype = attribute(fl_of(first, ARRAY), false))) goto end;
    for (int i = 0; i < s->n_tensors; i++) {
        PyObject *edge = h->wanted >> i & 1 ? edge_to(run->slot[s->tensor[i]]) : Py_NewRef(Py_None);
        if (!edge) goto end;
        PyTuple_SET_ITEM(edges, i, edge);
    }
    for (int i = 0; i < h->n; i++) {
        PyObject *entry = kept(run, h, h->code[i], results);
        if (!entry) goto end;
        PyList_SET_ITEM(saved, i, entry);
    }
    if (!(node = PyObject_Vectorcall(h->make, (PyObject *[]){h->recipe, edges, sequence, shape, dtype}, 5, NULL))) goto end;
    if (saved) Py_SETREF(SLOT(node, fl_house.at[SAVED]), Py_NewRef(saved));
    if (h->counts != Py_None && PyObject_SetAttrString(node, "counts", h->counts) < 0) goto end;
    if (h->options != Py_None && PyObject_SetAttrString(node, "options", h->options) < 0) goto end;
    if (n_outputs == 1) {
        PyObject *nr = PyLong_FromLong(0); /* what was written over may have been one of several outputs */
        if (!nr) goto end;
        Py_SETREF(SLOT(first, fl_house.at[NR]), nr);
        Py_SETREF(SLOT(first, fl_house.at[NODE]), Py_NewRef(node));
        Py_SETREF(SLOT(first, fl_house.at[NEEDS]), Py_NewRef(Py_True));
        said = 0;
        goto end;
    }
    if (!(outputs = PyList_New(0))) goto end;
    for (int i = 0; i < s->n_results; i++)
        if (s->floating >> i & 1 && PyList_Append(outputs, results[i]) < 0) goto end;
    PyObject *shared = PyObject_Vectorcall(fl_house.share, (PyObject *[]){node, outputs}, 2, NULL);
    said = shared ? 0 : -1;
    Py_XDECREF(shared);
end:
    Py_XDECREF(edges), Py_XDECREF(saved), Py_XDECREF(sequence), Py_XDECREF(shape), Py_XDECREF(dtype), Py_XDECREF(node), Py_XDECREF(outputs);
    return said;
}

static History *read_history(PyObject *told, int64_t wanted) {
    PyObject *make, *recipe, *codes, *values, *counts, *options;
    if (!PyArg_ParseTuple(told, "OOO!O!OO:history", &make, &recipe, &PyTuple_Type, &codes, &PyTuple_Type, &values, &counts, &options)) return NULL;
    const Py_ssize_t n = PyTuple_GET_SIZE(codes);
    History *h = PyMem_Malloc(sizeof *h + (size_t)n * sizeof *h->code);
    if (!h) return PyErr_NoMemory(), NULL;
    *h = (History){wanted, Py_NewRef(make), Py_NewRef(recipe), Py_NewRef(values), Py_NewRef(counts), Py_NewRef(options), (int)n};
    for (Py_ssize_t i = 0; i < n; i++) h->code[i] = (short)PyLong_AsLong(PyTuple_GET_ITEM(codes, i));
    return h;
}

static PyObject *tuple_of(PyObject *const *items, Py_ssize_t n) {
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple && i < n; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(items[i]));
    return tuple;
}

/* The general way, which is Python's; it says how the next call like this one is to be recorded, if it can. */
static int record_generally(const Run *run, Step *s, int64_t wanted, bool teach, PyObject *const *results, Py_ssize_t nargs) {
    PyObject *tensors = PyTuple_New(s->n_tensors), *made = tuple_of(results, s->n_results), *args = tuple_of(run->args, nargs), *told = NULL;
    for (int i = 0; tensors && i < s->n_tensors; i++) PyTuple_SET_ITEM(tensors, i, Py_NewRef(s->tensor[i] < 0 ? Py_None : run->slot[s->tensor[i]]));
    PyObject *kept = Py_None;
    for (int i = 0; i < s->n_codes; i++)
        if (s->code[i] >= OF_FRESH) kept = run->slot[s->code[i] - OF_FRESH];
    if (tensors && made && args) told = PyObject_CallFunctionObjArgs(s->record, tensors, made, args, kept, NULL);
    Py_XDECREF(tensors), Py_XDECREF(made), Py_XDECREF(args);
    if (teach && told && told != Py_None) {
        History *h = read_history(told, wanted), **more = h ? PyMem_Realloc(s->history, (size_t)(s->n_histories + 1) * sizeof *more) : NULL;
        if (more) s->history = more, more[s->n_histories++] = h;
    }
    Py_XDECREF(told);
    return PyErr_Occurred() ? -1 : 0;
}

/* Which tensors of a step want a gradient, a bit each. *plainly: whether their histories are what their slots say. */
static int64_t wanted_by(const Run *run, const Step *s, bool *plainly) {
    int64_t wanted = 0;
    *plainly = true;
    for (int i = 0; i < s->n_tensors; i++) {
        if (s->tensor[i] < 0 || s->tensor[i] >= run->n) continue; /* a number; or not there yet */
        PyObject *tensor = run->slot[s->tensor[i]], *base = fl_of(tensor, BASE);
        if (fl_of(tensor, INFERENCE) != Py_False || (base != Py_None && !is_settled(tensor, base))) *plainly = false;
        wanted |= (int64_t)(fl_of(tensor, NEEDS) == Py_True) << i;
    }
    return wanted;
}

static int record(const Run *run, Step *s, PyObject *const *results, Py_ssize_t nargs) {
    bool plainly;
    const int64_t wanted = wanted_by(run, s, &plainly);
    if (plainly && !wanted) return 0;
    for (int i = 0; plainly && i < s->n_histories; i++)
        if (s->history[i]->wanted == wanted) return follow(run, s, s->history[i], results);
    return record_generally(run, s, wanted, plainly, results, nargs);
}

/* -- steps */

/* Whether an array has elements: libraries give those without any strides of their own. */
static bool is_full(PyObject *array) {
    if (PyArray_CheckExact(array)) return PyArray_SIZE((PyArrayObject *)array) != 0;
    fl_gpu_array x;
    return Py_TYPE(array) == fl_house.elsewhere && fl_gpu_see(array, &x) && x.size;
}

static PyObject *wrapped(PyObject *made) {
    if (is_full(made)) return PyObject_CallOneArg(fl_house.wrap, made);
    PyObject *array = PyObject_CallOneArg(fl_house.as_array, made), *tensor = array ? PyObject_CallOneArg(fl_house.wrap, array) : NULL;
    Py_XDECREF(array);
    return tensor;
}

/* A tensor over part of the memory of another: `over` in eager/views.py. */
static PyObject *view_of(PyObject *input, PyObject *array, bool several) {
    static PyObject *no_grad, *multi;
    if (!multi && (!(no_grad = PyUnicode_InternFromString("no_grad")) || !(multi = PyUnicode_InternFromString("multi")))) return NULL;
    PyObject *storage = fl_of(input, STORAGE), *base = fl_of(input, BASE), *mode = fl_of(input, VIEW_MODE);
    storage = storage == Py_None ? PyObject_CallOneArg(fl_house.shared_storage, input) : Py_NewRef(storage);
    if (!storage) return NULL;
    if (!fl_is_recording()) mode = no_grad;
    else if (several && mode == Py_None) mode = multi;
    PyObject *parts[] = {array, storage, base == Py_None ? input : base, fl_of(storage, VERSION), mode, fl_of(input, INFERENCE)};
    PyObject *made = PyObject_Vectorcall(fl_house.wrap_view, parts, 6, NULL);
    Py_DECREF(storage);
    return made;
}

static int view(Run *run, Step *s) { /* values: the function that makes arrays takes one of these after the array, as its other arguments */
    PyObject *input = run->slot[s->code[0]];
    for (int i = 0; i < s->n_results; i++) {
        PyObject *geometry = PyTuple_GET_ITEM(s->values, i);
        PyObject *parts[] = {fl_of(input, ARRAY), PyTuple_GET_ITEM(geometry, 0), PyTuple_GET_ITEM(geometry, 1), PyTuple_GET_ITEM(geometry, 2)};
        PyObject *array = PyObject_Vectorcall(s->run, parts, 4, NULL), *made = array ? view_of(input, array, s->several) : NULL;
        Py_XDECREF(array);
        if (!made) return FAILED;
        run->slot[run->n++] = made;
    }
    return SEEN;
}

/* As the program sees it that there was no room: NumPy has an exception of its own, and programs that try a smaller batch next catch RuntimeError. */
static void tell_out_of_memory(void) {
    PyObject *type, *value, *trace, *ours;
    PyErr_Fetch(&type, &value, &trace), PyErr_NormalizeException(&type, &value, &trace);
    if ((ours = PyObject_CallOneArg(fl_house.out_of_memory, value))) PyErr_SetObject((PyObject *)Py_TYPE(ours), ours);
    Py_XDECREF(type), Py_XDECREF(value), Py_XDECREF(trace), Py_XDECREF(ours);
}

static PyObject *work(const Run *run, const Step *s) {
    PyObject *args[MOST_GIVEN] = {NULL}, *made = NULL;
    int n = 0;
    while (n < s->n_codes && (args[n] = given(run, s->values, s->code[n]))) n++;
    if (n == s->n_codes) made = PyObject_Vectorcall(s->run, args, (size_t)s->n_positional, s->names);
    while (n) Py_DECREF(args[--n]);
    if (!made && PyErr_ExceptionMatches(PyExc_MemoryError)) tell_out_of_memory();
    return made;
}

/* Whether the history of what a step writes over can go on as it did when the plan was made: it is no leaf, no view, and does not keep its gradient. */
static bool may_record(const Run *run, const Step *s) {
    PyObject *first = run->slot[s->code[0]];
    bool plainly;
    if ((!s->n_histories && !s->rewrite) || s->wanted != wanted_by(run, s, &plainly) || !plainly || fl_of(first, BASE) != Py_None) return false;
    if (fl_of(first, NODE) == Py_None) return fl_of(first, NEEDS) == Py_False;
    PyObject *keeps = PyObject_GetAttrString(first, "_retains");
    if (!keeps) PyErr_Clear();
    Py_XDECREF(keeps);
    return keeps == Py_False;
}

/* Whether a step may write over its first tensor: its history, if it is to have one, is known, and no other operand sees its memory, too. */
static bool may_write(const Run *run, const Step *s, bool wants) {
    PyObject *first = run->slot[s->code[0]], *storage = fl_of(first, STORAGE), *base = fl_of(first, BASE);
    if (fl_of(first, INFERENCE) != Py_False || (wants && s->differentiable && !may_record(run, s))) return false;
    if (wants && !s->differentiable && (fl_of(first, NEEDS) == Py_True || (base != Py_None && fl_of(base, NEEDS) == Py_True))) return false;
    for (int i = 1; i < s->n_tensors; i++) {
        PyObject *other = s->tensor[i] < 0 || s->tensor[i] >= run->n ? NULL : run->slot[s->tensor[i]];
        if (other && (other == first ? !s->several : storage != Py_None && fl_of(other, STORAGE) == storage)) return false;
    }
    PyArrayObject *out = (PyArrayObject *)fl_of(first, ARRAY);
    for (int d = 0; PyArray_CheckExact(out) && d < PyArray_NDIM(out); d++)
        if (!PyArray_STRIDE(out, d)) return false;
    return true;
}

static PyObject *place_in(PyCodeObject *code, int instruction) {
    PyObject *at = PyLong_FromLong(instruction), *found = at ? PyTuple_Pack(2, code, at) : NULL;
    Py_XDECREF(at);
    return found;
}

/* Where the program called this package: `place` in errors.py. */
static PyObject *place(void) {
    PyFrameObject *frame = (PyFrameObject *)Py_XNewRef((PyObject *)PyEval_GetFrame());
    PyObject *found = NULL;
    while (frame && !found) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        if (PyUnicode_Tailmatch(code->co_filename, fl_house.package, 0, PY_SSIZE_T_MAX, -1) == 0) found = place_in(code, PyFrame_GetLasti(frame));
        Py_DECREF(code);
        Py_SETREF(frame, PyFrame_GetBack(frame));
    }
    Py_XDECREF(frame);
    return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* Note that memory was written to: Tensor._bump. */
static int bump(PyObject *tensor) {
    static PyObject *one;
    if (!one && !(one = PyLong_FromLong(1))) return -1;
    PyObject *storage = fl_of(tensor, STORAGE);
    storage = storage == Py_None ? PyObject_CallOneArg(fl_house.shared_storage, tensor) : Py_NewRef(storage);
    PyObject *version = storage ? PyNumber_Add(fl_of(storage, VERSION), one) : NULL;
    int said = version ? 0 : -1;
    if (version) Py_SETREF(SLOT(storage, fl_house.at[VERSION]), version);
    if (!said && fl_is_recording()) { /* a derivative may ask for what was there before, and will have to say who overwrote it */
        PyObject *where = place();
        if (where) Py_XSETREF(SLOT(storage, fl_house.at[CHANGED_AT]), where);
        else said = -1;
    }
    Py_XDECREF(storage);
    return said;
}

/* What a tensor is before it is written over, as another one with the same history. */
static PyObject *original_of(PyObject *tensor) {
    PyObject *array = PyObject_CallOneArg(fl_house.copy, fl_of(tensor, ARRAY)), *made = array ? PyObject_CallOneArg(fl_house.wrap, array) : NULL;
    Py_XDECREF(array);
    for (int i = 0; made && i < 3; i++) {
        const int slot = (int[]){NEEDS, NODE, NR}[i];
        Py_SETREF(SLOT(made, fl_house.at[slot]), Py_NewRef(fl_of(tensor, slot)));
    }
    return made;
}

static int rewrite(const Run *run, const Step *s) {
    PyObject *tensors[MOST_SLOTS];
    for (int i = 0; i < s->n_tensors; i++) tensors[i] = run->slot[s->tensor[i]];
    PyObject *done = PyObject_Vectorcall(s->rewrite, tensors, (size_t)s->n_tensors, NULL);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

static int write_over(Run *run, const Step *s, bool wants) {
    PyObject *first = run->slot[s->code[0]];
    const History *h = wants && s->n_histories ? s->history[0] : NULL; /* may_write has seen that it holds */
    bool asked = false;
    for (int i = 0; h && i < h->n; i++) asked |= h->code[i] == OF_ORIGINAL;
    if (asked && !(run->original = original_of(first))) return FAILED;
    PyObject *made = work(run, s);
    int said = !made ? FAILED : made == Py_NotImplemented ? UNKNOWN : bump(first) < 0 ? FAILED : SEEN;
    if (said == SEEN && h && follow(run, s, h, &first) < 0) said = FAILED;
    if (said == SEEN && wants && s->rewrite && rewrite(run, s) < 0) said = FAILED;
    Py_XDECREF(made);
    Py_CLEAR(run->original);
    return said;
}

static int step(Run *run, Step *s, bool wants, Py_ssize_t nargs) {
    if (s->kind == WRITES) return write_over(run, s, wants);
    for (int i = 0; i < s->n_codes; i++) {
        if (s->code[i] - OF_FRESH < run->n) continue; /* it is there */
        PyObject *fresh = PyObject_CallNoArgs(fl_house.kept);
        if (!fresh) return FAILED;
        run->slot[run->n++] = fresh;
    }
    PyObject *const *results = run->slot + run->n;
    if (s->kind == VIEWS) {
        if (view(run, s) != SEEN) return FAILED;
    } else {
        PyObject *made = work(run, s);
        if (!made || made == Py_NotImplemented) return Py_XDECREF(made), made ? UNKNOWN : FAILED;
        const bool fits = !s->several || ((PyTuple_Check(made) || PyList_Check(made)) && PySequence_Fast_GET_SIZE(made) == s->n_results);
        for (int i = 0; fits && i < s->n_results; i++) {
            PyObject *tensor = wrapped(s->several ? PySequence_Fast_GET_ITEM(made, i) : made);
            if (!tensor) break;
            run->slot[run->n++] = tensor;
        }
        Py_DECREF(made);
        if (!fits || PyErr_Occurred()) return fits ? FAILED : UNKNOWN;
    }
    return wants && s->differentiable && record(run, s, results, nargs) < 0 ? FAILED : SEEN;
}

static PyObject *results_of(const Plan *p, const Run *run) {
    if (!p->container) return Py_NewRef(p->code[0] < 0 ? Py_None : run->slot[p->code[0]]);
    PyObject *items[MOST_SLOTS];
    for (int i = 0; i < p->n_codes; i++) items[i] = p->code[i] < 0 ? Py_None : run->slot[p->code[i]];
    if (p->container != (PyObject *)&PyTuple_Type && p->container != (PyObject *)&PyList_Type) return PyObject_Vectorcall(p->container, items, (size_t)p->n_codes, NULL);
    PyObject *tuple = tuple_of(items, p->n_codes);
    if (!tuple || p->container == (PyObject *)&PyTuple_Type) return tuple;
    PyObject *list = PySequence_List(tuple);
    Py_DECREF(tuple);
    return list;
}

PyObject *fl_plan_run(PyObject *plan, Look *look, PyObject *const *args) {
    Plan *p = (Plan *)plan;
    Run run = {.n = look->n_tensors, .args = args};
    memcpy(run.slot, look->tensor, (size_t)run.n * sizeof *run.slot);
    int said = SEEN;
    for (int i = 0; i < p->n_steps; i++) /* before anything has been done */
        if (p->step[i].kind == WRITES && !may_write(&run, &p->step[i], look->wants)) Py_RETURN_NOTIMPLEMENTED;
    Py_INCREF(plan); /* the work of a step may clear the table it stands in */
    for (int i = 0; said == SEEN && i < p->n_steps; i++) said = step(&run, &p->step[i], look->wants, look->n_numbers);
    PyObject *result = said == SEEN ? results_of(p, &run) : said == UNKNOWN ? Py_NewRef(Py_NotImplemented) : NULL;
    while (run.n > look->n_tensors) Py_DECREF(run.slot[--run.n]);
    Py_DECREF(plan);
    return result;
}

/* -- plans as Python makes them */

static short *codes_of(PyObject *tuple, int *n) {
    *n = (int)PyTuple_GET_SIZE(tuple);
    short *code = PyMem_Malloc(((size_t)*n + 1) * sizeof *code);
    for (int i = 0; code && i < *n; i++) code[i] = (short)PyLong_AsLong(PyTuple_GET_ITEM(tuple, i));
    if (!code) PyErr_NoMemory();
    return code;
}

static bool read_step(Step *s, PyObject *told) {
    PyObject *codes, *tensors, *written;
    int several, differentiable;
    long long floating, wanted;
    if (!PyArg_ParseTuple(told, "iOO!O!OiO!ipLpOOL:step", &s->kind, &s->run, &PyTuple_Type, &codes, &PyTuple_Type, &s->values, &s->names, &s->n_positional,
                          &PyTuple_Type, &tensors, &s->n_results, &several, &floating, &differentiable, &s->record, &written, &wanted))
        return false;
    s->several = several, s->differentiable = differentiable, s->floating = floating;
    if (s->names == Py_None) s->names = NULL;
    Py_INCREF(s->run), Py_INCREF(s->values), Py_XINCREF(s->names), Py_INCREF(s->record);
    s->wanted = wanted;
    if (PyTuple_Check(written)) {
        if (!(s->history = PyMem_Malloc(sizeof *s->history)) || !(s->history[0] = read_history(written, wanted))) return false;
        s->n_histories = 1;
    } else if (written != Py_None) s->rewrite = Py_NewRef(written);
    return (s->code = codes_of(codes, &s->n_codes)) && (s->tensor = codes_of(tensors, &s->n_tensors)) && s->n_codes <= MOST_GIVEN && s->n_tensors <= 60;
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *source, *steps, *container, *codes;
    if (!PyArg_ParseTuple(args, "OO!OO!:Plan", &source, &PyTuple_Type, &steps, &container, &PyTuple_Type, &codes)) return NULL;
    Plan *p = (Plan *)type->tp_alloc(type, 0);
    const Py_ssize_t n = PyTuple_GET_SIZE(steps);
    if (!p) return NULL;
    p->source = Py_NewRef(source), p->container = container == Py_None ? NULL : Py_NewRef(container);
    bool good = (p->code = codes_of(codes, &p->n_codes)) && (p->step = PyMem_Calloc((size_t)n + 1, sizeof *p->step));
    for (Py_ssize_t i = 0; good && i < n; i++, p->n_steps++) good = read_step(&p->step[i], PyTuple_GET_ITEM(steps, i));
    if (good) return (PyObject *)p;
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a plan takes too many values");
    Py_DECREF(p);
    return NULL;
}

static void plan_free(PyObject *self) {
    Plan *p = (Plan *)self;
    for (int i = 0; i < p->n_steps; i++) {
        Step *s = &p->step[i];
        for (int j = 0; j < s->n_histories; j++) {
            History *h = s->history[j];
            Py_DECREF(h->make), Py_DECREF(h->recipe), Py_DECREF(h->values), Py_DECREF(h->counts), Py_DECREF(h->options), PyMem_Free(h);
        }
        Py_DECREF(s->run), Py_DECREF(s->values), Py_XDECREF(s->names), Py_DECREF(s->record), Py_XDECREF(s->rewrite);
        PyMem_Free(s->code), PyMem_Free(s->tensor), PyMem_Free(s->history);
    }
    PyMem_Free(p->step), PyMem_Free(p->code);
    Py_XDECREF(p->source), Py_XDECREF(p->container);
    Py_TYPE(self)->tp_free(self);
}

PyTypeObject fl_plan_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.kernels._native.Plan",
    .tp_doc = "Plan(source, steps, container, codes): what eager/plans.py has worked out, ready to be carried out.",
    .tp_basicsize = sizeof(Plan),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = plan_new,
    .tp_dealloc = plan_free,
    .tp_members = (PyMemberDef[]){{"source", T_OBJECT, offsetof(Plan, source), READONLY, "The plan as Python has it."}, {0}},
};
