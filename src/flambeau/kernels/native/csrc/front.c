/* The function in front of an operation, and its table of plans: one way from a call to what it does.

   A call is put into words (look.c) and looked up. What stands there is carried out (plan.c). A call that is not known, and every call while somebody has a say
   in it (an interpreter is active, a debugger steps), goes the general way, which is Python; the second of a kind is watched there, and leaves its plan.
   Where plans are made in vain, as for sequences of all lengths, a call must have come more often before it is watched. */
#include "front.h"
#include <structmember.h>

House fl_house;

static long variable(const char *name, PyObject **interned) {
    if (!*interned && !(*interned = PyUnicode_InternFromString(name))) return -1;
    PyObject *value = PyDict_GetItemWithError(fl_house.modes, *interned);
    return value ? PyLong_AsLong(value) : -1;
}

/* Whether operations are recorded in this thread: as a rule in all of them, which is quickly asked. */
bool fl_is_recording(void) {
    static PyObject *paused;
    if (!variable("paused", &paused)) return true;
    PyObject *found = PyObject_GetAttrString(fl_house.state, "grad");
    const bool is = found == Py_True;
    if (!found) PyErr_Clear();
    Py_XDECREF(found);
    return is;
}

/* -- tables */

enum { LEAST = 64, MOST = 1000 }; /* places at first; calls that are remembered */
enum { TRIED = 16, PAID = 4, OFTEN = 16 }; /* so many plans tell whether more are worth making; uses that pay for one; sightings of a call where they do not */
typedef struct { uint64_t hash; int n, seen; int64_t *word; PyObject *plan; /* NULL: none yet; False: to be run each time */ } Entry;
typedef struct {
    PyObject_HEAD
    Entry *entry;
    int size, used, by_kind, made;
    bool in_vain;                 /* the last plans were hardly used, or older ones in their time */
    long generation, carried_out; /* `made` plans since that was judged last, and so many uses of any */
} Plans;
static long generation; /* a setting has changed of which plans depend: no older ones hold */

static uint64_t hash_of(const Look *look) {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (int i = 0; i < look->n; i++) hash = (hash ^ (uint64_t)look->word[i]) * 0xFF51AFD7ED558CCDu, hash ^= hash >> 32;
    return hash;
}

static void clear(Plans *p) {
    Entry *old = p->entry;
    const int size = p->size;
    p->entry = NULL, p->size = p->used = 0, p->generation = generation;
    for (int i = 0; i < size; i++) PyMem_Free(old[i].word), Py_XDECREF(old[i].plan);
    PyMem_Free(old);
}

/* Where this call stands, or is to stand. */
static Entry *place(Entry *entry, int size, uint64_t hash, const int64_t *word, int n) {
    for (int i = (int)(hash & (uint64_t)(size - 1));; i = (i + 1) & (size - 1))
        if (!entry[i].word || (entry[i].hash == hash && entry[i].n == n && !memcmp(entry[i].word, word, sizeof *word * (size_t)n))) return &entry[i];
}

static PyObject *find(Plans *p, const Look *look) {
    if (p->generation != generation) clear(p);
    return p->size ? place(p->entry, p->size, hash_of(look), look->word, look->n)->plan : NULL;
}

static bool is_worth_a_plan(const Plans *p, const Entry *e) {
    return e->seen >= (p->in_vain ? OFTEN : 2);
}

static int grow(Plans *p) {
    const int size = p->size ? 2 * p->size : LEAST;
    Entry *larger = PyMem_Calloc((size_t)size, sizeof *larger);
    if (!larger) return PyErr_NoMemory(), -1;
    for (int i = 0; i < p->size; i++)
        if (p->entry[i].word) *place(larger, size, p->entry[i].hash, p->entry[i].word, p->entry[i].n) = p->entry[i];
    PyMem_Free(p->entry);
    p->entry = larger, p->size = size;
    return 0;
}

/* Where a call stands that is new, or has no plan yet. */
static Entry *noted(Plans *p, const Look *look) {
    if (p->used >= MOST) clear(p);
    if (2 * (p->used + 1) > p->size && grow(p) < 0) return NULL;
    const uint64_t hash = hash_of(look);
    Entry *e = place(p->entry, p->size, hash, look->word, look->n);
    if (!e->word) {
        const size_t bytes = sizeof *look->word * (size_t)look->n;
        if (!(e->word = PyMem_Malloc(bytes))) return PyErr_NoMemory(), NULL;
        memcpy(e->word, look->word, bytes);
        e->hash = hash, e->n = look->n, p->used++;
    }
    e->seen++;
    return e;
}

static int put(Plans *p, const Look *look, PyObject *plan) {
    Entry *e = noted(p, look);
    if (!e) return -1;
    PyObject *before = e->plan;
    e->plan = Py_NewRef(plan);
    if (++p->made == TRIED) p->in_vain = p->carried_out < PAID * TRIED, p->made = 0, p->carried_out = 0;
    Py_XDECREF(before);
    return 0;
}

/* The same for tables of others. */
PyObject *fl_plans_find(PyObject *plans, const Look *look) { return find((Plans *)plans, look); }
int fl_plans_put(PyObject *plans, const Look *look, PyObject *plan) { return put((Plans *)plans, look, plan); }

static PyObject *plans_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    Plans *p = (Plans *)type->tp_alloc(type, 0);
    if (p && !PyArg_ParseTuple(args, "|i:Plans", &p->by_kind)) Py_CLEAR(p);
    return (PyObject *)p;
}

static void plans_free(PyObject *self) { clear((Plans *)self), Py_TYPE(self)->tp_free(self); }
static Py_ssize_t plans_length(PyObject *self) { return ((Plans *)self)->used; }

static PyObject *plans_find(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) {
    Look look = {.by_kind = ((Plans *)self)->by_kind};
    const int said = fl_look(&look, args, nargs, names);
    if (said == FAILED) return NULL;
    PyObject *found = said == SEEN ? find((Plans *)self, &look) : Py_False;
    return Py_NewRef(found ? found : Py_None);
}

PyTypeObject fl_plans_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.kernels._native.Plans",
    .tp_doc = "Plans(by_kind=0): a table of plans, by what calls look like; of the first `by_kind` arguments, and of tensors, only the kind counts.",
    .tp_basicsize = sizeof(Plans),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = plans_new,
    .tp_dealloc = plans_free,
    .tp_as_sequence = &(PySequenceMethods){.sq_length = plans_length},
    .tp_methods = (PyMethodDef[]){{"find", (PyCFunction)(void (*)(void))plans_find, METH_FASTCALL | METH_KEYWORDS,
                                   "find(*args, **kwargs): the plan of such a call; None if there is none yet, False if there will be none."},
                                   {0}},
};

/* -- fronts */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    PyObject *plans, *miss, *learn, *before, *dict, *weak; /* before: is called with the arguments before a plan is carried out, or NULL */
} Front;

/* Whether a debugger, or who else traces, is to see every line: then the general way is taken, in Python. */
static inline bool is_traced(void) { return PyThreadState_Get()->c_tracefunc != NULL; }

static PyObject *learn(Front *f, Look *look, PyObject *const *args, size_t nargs, PyObject *names) {
    PyObject *given = PyTuple_New((Py_ssize_t)nargs), *by_name = PyDict_New(), *found = NULL, *result = NULL;
    for (size_t i = 0; given && i < nargs; i++) PyTuple_SET_ITEM(given, (Py_ssize_t)i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; by_name && names && i < PyTuple_GET_SIZE(names); i++)
        if (PyDict_SetItem(by_name, PyTuple_GET_ITEM(names, i), args[(Py_ssize_t)nargs + i]) < 0) Py_CLEAR(by_name);
    if (given && by_name) found = PyObject_CallFunction(f->learn, "OOOOi", f->miss, given, by_name, look->wants ? Py_True : Py_False, look->n_numbers);
    Py_XDECREF(given), Py_XDECREF(by_name);
    if (found && put((Plans *)f->plans, look, PyTuple_GET_ITEM(found, 1)) == 0) result = Py_NewRef(PyTuple_GET_ITEM(found, 0));
    Py_XDECREF(found);
    return result;
}

static PyObject *front_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    static PyObject *special, *watching;
    Front *f = (Front *)self;
    Plans *plans = (Plans *)f->plans;
    Look look;
    if (variable("special", &special) || variable("watching", &watching) || is_traced()) goto general;
    look.by_kind = plans->by_kind;
    const int said = fl_look(&look, args, PyVectorcall_NARGS(nargsf), names);
    if (said == FAILED) return NULL;
    if (said == UNKNOWN) goto general;
    PyObject *plan = find(plans, &look);
    if (plan && Py_IS_TYPE(plan, &fl_plan_type)) {
        PyObject *looked = f->before ? PyObject_Vectorcall(f->before, args, nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET, names) : Py_NewRef(Py_None);
        if (!looked) return NULL;
        Py_DECREF(looked);
        plans->carried_out++;
        PyObject *result = fl_plan_run(plan, &look, args);
        if (result != Py_NotImplemented) return result;
        Py_DECREF(result);
        goto general;
    }
    if (plan) goto general;
    const Entry *entry = noted(plans, &look);
    if (entry && is_worth_a_plan(plans, entry)) return learn(f, &look, args, (size_t)PyVectorcall_NARGS(nargsf), names);
general:
    return PyErr_Occurred() ? NULL : PyObject_Vectorcall(f->miss, args, nargsf, names);
}

static PyObject *front_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *plans, *miss, *learn, *before;
    if (!PyArg_ParseTuple(args, "O!OOO:Front", &fl_plans_type, &plans, &miss, &learn, &before)) return NULL;
    Front *f = (Front *)type->tp_alloc(type, 0);
    if (f) f->call = front_call, f->plans = Py_NewRef(plans), f->miss = Py_NewRef(miss), f->learn = Py_NewRef(learn), f->dict = PyDict_New();
    if (f && before != Py_None) f->before = Py_NewRef(before);
    return (PyObject *)f;
}

static int front_traverse(PyObject *self, visitproc visit, void *arg) {
    Front *f = (Front *)self;
    Py_VISIT(f->plans);
    Py_VISIT(f->miss);
    Py_VISIT(f->learn);
    Py_VISIT(f->before);
    Py_VISIT(f->dict);
    return 0;
}

static int front_clear(PyObject *self) {
    Front *f = (Front *)self;
    Py_CLEAR(f->plans);
    Py_CLEAR(f->miss);
    Py_CLEAR(f->learn);
    Py_CLEAR(f->before);
    Py_CLEAR(f->dict);
    return 0;
}

static void front_free(PyObject *self) {
    PyObject_GC_UnTrack(self);
    if (((Front *)self)->weak) PyObject_ClearWeakRefs(self);
    front_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *front_get(PyObject *self, PyObject *tensor, PyObject *type) {
    return !tensor || tensor == Py_None ? Py_NewRef(self) : PyMethod_New(self, tensor);
}

static PyObject *front_repr(PyObject *self) {
    PyObject *name = PyObject_GetAttrString(self, "__qualname__"), *words = name ? PyUnicode_FromFormat("<function %U>", name) : NULL;
    Py_XDECREF(name);
    return words;
}

/* Found again by its name, as functions are. */
static PyObject *front_reduce(PyObject *self, PyObject *unused) { return PyObject_GetAttrString(self, "__qualname__"); }

PyTypeObject fl_front_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.kernels._native.Front",
    .tp_doc = NULL,
    .tp_basicsize = sizeof(Front),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_GC,
    .tp_new = front_new,
    .tp_dealloc = front_free,
    .tp_traverse = front_traverse,
    .tp_clear = front_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Front, call),
    .tp_descr_get = front_get,
    .tp_repr = front_repr,
    .tp_dictoffset = offsetof(Front, dict),
    .tp_weaklistoffset = offsetof(Front, weak),
    .tp_methods = (PyMethodDef[]){{"__reduce__", front_reduce, METH_NOARGS, NULL}, {0}},
    .tp_members = (PyMemberDef[]){{"plans", T_OBJECT, offsetof(Front, plans), READONLY, "The table of plans."},
                                   {"miss", T_OBJECT, offsetof(Front, miss), READONLY, "The general way, in Python."}, {0}},
    .tp_getset = (PyGetSetDef[]){{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {0}},
};

PyObject *fl_forget_plans(PyObject *module, PyObject *unused) { return generation++, Py_NewRef(Py_None); }

PyObject *fl_set_elsewhere(PyObject *module, PyObject *type) {
    Py_XSETREF(fl_house.elsewhere, type == Py_None ? NULL : (PyTypeObject *)Py_NewRef(type));
    Py_RETURN_NONE;
}

PyObject *fl_furnish(PyObject *module, PyObject *args) {
    PyTypeObject *storage, *node;
    PyObject *names;
    House *h = &fl_house;
    if (!PyArg_ParseTuple(args, "(OOOO)OO(OOOOOOOOOO)UOOO!:furnish", &h->tensor, &h->size, &storage, &node, &h->plain, &h->lasting, &h->wrap, &h->wrap_view,
                          &h->store, &h->next, &h->as_array, &h->share, &h->kept, &h->out_of_memory, &h->shared_storage, &h->copy, &h->package, &h->modes, &h->state, &PyTuple_Type, &names))
        return NULL;
    for (int i = 0; i < N_SLOTS; i++)
        if ((h->at[i] = fl_slot_offset(i < VERSION ? h->tensor : i < SAVED ? storage : node, PyTuple_GET_ITEM(names, i))) < 0) return NULL;
    Py_INCREF(args); /* for good: all of it lives as long as the program */
    Py_RETURN_NONE;
}
