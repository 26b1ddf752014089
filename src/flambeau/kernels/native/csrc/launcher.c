/* The launcher: from Python operands to calls of a generated loop.

   A Kernel is called for every small operation of a program, so things stand in the order of their frequency:
     1. `gather` finds the instance of the loop for the operands' dtype, and turns numbers into operands of one element;
     2. `is_flat`: all arrays have one shape and are in C order, so that all work is one row and there is nothing to ask;
     3. otherwise `broadcast` the shapes, `sort` the dimensions as PyTorch does, and `collapse` them into few;
     4. `run`: small work here and now, large work in fixed blocks over the threads, without the GIL.
   Whatever is no such case is answered with NotImplemented, and Python takes its slower path. */
#include "launcher.h"

enum { MAX_DIM = 32, MAX_OPERANDS = 1 + FL_MAX_IN, MAX_PARAM = 12, INLINE_UP_TO = 32768, BLOCK = 16384, WIDE = 128, TALL = 32 }; /* the last four: elements; of a tile */

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    const char *name;
    const fl_pointwise *entry[FL_NTYPES], *with_number[FL_NTYPES]; /* by key */
    const fl_pointwise *only; /* the one instance of a kernel without generic operands, otherwise NULL */
    int n_in, n_param, generic;
    bool formula; /* its numbers are meant in the type of its operands; those of other loops, whose names have a point, are sizes and steps */
} Kernel;

typedef struct {
    npy_intp size;
    int64_t step[MAX_OPERANDS]; /* bytes; operand 0 is the output */
} Dim;

typedef struct { /* all that the blocks of one launch need */
    fl_loop loop;
    void (*turn)(int64_t rows, int64_t cols, const void *from, int64_t ld, void *to, int64_t ld_to); /* see cut_tiles */
    int turned; /* the operand that this is for, or 0 */
    int n_operands, ndim, rows; /* rows: 1 if dimension 0 is a row that must stay whole, else 0 */
    int64_t numel, block, line; /* line: how many elements of work an element stands for */
    char *data[MAX_OPERANDS];
    double number[FL_MAX_IN][2]; /* Python numbers, stored as what the loop reads */
    double param[MAX_PARAM];
    Dim dim[MAX_DIM];
} Launch;

static const int accepts[FL_NTYPES] = {FL_CATEGORIES};

bool fl_store_number(PyObject *value, int type, void *cell) {
    bool whole = PyLong_CheckExact(value) || PyBool_Check(value);
    int overflow = 0, category = PyBool_Check(value) ? 0 : whole ? 1 : PyFloat_CheckExact(value) ? 2 : 3;
    if (category > accepts[type] || (category == 3 && !PyComplex_CheckExact(value))) return false;
    int64_t integer = whole ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    Py_complex z = whole ? (Py_complex){(double)integer, 0} : PyComplex_AsCComplex(value);
    return !overflow && fl_store(type, whole, integer, z.real, z.imag, cell);
}

static bool read_param(PyObject *value, double *to) {
    if (!PyFloat_Check(value) && !PyLong_Check(value)) return false;
    *to = PyFloat_Check(value) ? PyFloat_AS_DOUBLE(value) : PyLong_AsDouble(value); /* runs no Python code, whatever the subclass */
    if (*to != -1 || !PyErr_Occurred()) return true;
    PyErr_Clear(); /* an integer beyond double */
    return false;
}

/* Whether an integer type holds this number, but for its fraction. To unsigned types -1 is the largest value. */
static bool holds(int type, double number) {
    int64_t cell, whole = fabs(number) < 0x1p63 ? (int64_t)number : INT64_MIN;
    return whole != INT64_MIN && (fl_store(type, 1, whole, 0, 0, &cell) || (number < 0 && fl_store(type, 1, -whole, 0, 0, &cell)));
}

static const fl_pointwise *gather(Kernel *k, PyObject *const *args, PyArrayObject **op, Launch *l) {
    int type[FL_MAX_IN], key = -1, numbers = 0;
    for (int i = 0; i < k->n_in; i++) {
        op[i + 1] = PyArray_CheckExact(args[i]) ? (PyArrayObject *)args[i] : NULL;
        numbers |= !op[i + 1] << i;
        if (op[i + 1] && (type[i] = fl_type_of(op[i + 1])) < 0) return NULL;
        if (op[i + 1] && key < 0 && k->generic >> i & 1) key = type[i];
    }
    const fl_pointwise *e = key < 0 ? k->only : k->entry[key], *exact = key < 0 ? NULL : k->with_number[key];
    if (exact && exact->numbers == numbers) e = exact;
    if (!e || !fl_descr[e->out]) return NULL;
    for (int i = 0; i < k->n_in; i++) {
        if (op[i + 1] ? type[i] != e->in[i] : !fl_store_number(args[i], e->in[i], l->number[i])) return NULL;
        l->data[i + 1] = op[i + 1] ? PyArray_BYTES(op[i + 1]) : (char *)l->number[i];
    }
    for (int i = 0; i < k->n_param; i++)
        if (!read_param(args[k->n_in + i], &l->param[i]) || (k->formula && key >= 0 && accepts[key] == 1 && !holds(key, l->param[i]))) return NULL;
    return e;
}

static bool is_flat(PyArrayObject *const *op, int n, PyArrayObject *widest) {
    int ndim = PyArray_NDIM(widest);
    bool repeats = false, canonical = true;
    for (int o = 0; o < n; o++) {
        if (!op[o] || (o && PyArray_NDIM(op[o]) == 0)) {
            repeats |= o > 0; /* a number */
            continue;
        }
        if (PyArray_NDIM(op[o]) != ndim || !PyArray_IS_C_CONTIGUOUS(op[o])) return false;
        npy_intp dense = PyArray_ITEMSIZE(op[o]);
        for (int d = ndim - 1; d >= 0; dense *= PyArray_DIM(op[o], d--)) {
            if (PyArray_DIM(op[o], d) != PyArray_DIM(widest, d)) return false;
            canonical &= PyArray_STRIDE(op[o], d) == dense;
        }
        canonical &= dense != 0;
    }
    /* PyTorch takes this path only without numbers; with them, the strides of sizes 0 and 1 have their say. */
    return op[0] || canonical || !repeats;
}

/* Fill l->dim with the inputs' common shape, and with strides: 0 where an operand repeats, or where there is no output yet. False if
   the shapes do not fit, or if the output has two elements in one place. */
static bool broadcast(Launch *l, PyArrayObject *const *op) {
    for (int d = 0; d < l->ndim; d++) l->dim[d] = (Dim){.size = 1};
    for (int strides = 0; strides < 2; strides++) /* the shape must be known first */
        for (int o = !strides; o < l->n_operands; o++) {
            int rank = op[o] ? PyArray_NDIM(op[o]) : 0;
            if (rank > l->ndim || (o == 0 && op[0] && rank < l->ndim)) return false;
            for (int d = 0; d < rank; d++) {
                Dim *dim = &l->dim[l->ndim - rank + d];
                npy_intp size = PyArray_DIM(op[o], d), stride = PyArray_STRIDE(op[o], d);
                if (o == 0 && (size != dim->size || (size > 1 && stride == 0))) return false;
                if (strides) dim->step[o] = size == dim->size ? stride : 0;
                else if (dim->size == 1) dim->size = size;
                else if (size != 1 && size != dim->size) return false;
            }
        }
    return true;
}

/* Do the operands of a row program lie along the row as it wants them? */
static bool fits_rows(const Launch *l, const fl_pointwise *e, PyArrayObject *out) {
    const Dim *row = &l->dim[l->ndim - 1];
    for (int o = !out; l->ndim && row->size > 1 && o < l->n_operands; o++)
        if (row->step[o] != (e->rows >> o & 1 ? fl_itemsize[o ? e->in[o - 1] : e->out] : 0)) return false;
    return l->ndim > 0;
}

/* Does dimension a belong outside of b? 1: yes, -1: no, 0: the strides do not say. This is the question PyTorch's
   TensorIterator asks, of the operands in order, so that results have the strides they have there. */
static int outside(const Launch *l, const Dim *a, const Dim *b) {
    for (int o = 0; o < l->n_operands; o++) {
        int64_t sa = Py_ABS(a->step[o]), sb = Py_ABS(b->step[o]);
        if (!sa || !sb) continue;
        if (sa != sb) return sa > sb ? 1 : -1;
        if (a->size > b->size) return 1;
    }
    return 0;
}

/* perm: the dimensions, the innermost first. An insertion sort, because the order is not total. */
static void sort(const Launch *l, int *perm) {
    for (int i = 0; i < l->ndim; i++) perm[i] = l->ndim - 1 - i;
    for (int i = l->rows + 1; i < l->ndim; i++)
        for (int here = i, j = i - 1; j >= l->rows; j--) {
            int order = outside(l, &l->dim[perm[j]], &l->dim[perm[here]]);
            if (order < 0) break;
            if (order == 0) continue;
            int moved = perm[j];
            perm[j] = perm[here], perm[here] = moved, here = j;
        }
}

/* Are all inputs dense in this order of dimensions? Sizes of 1 have no say. */
static bool all_dense(const Launch *l, const fl_pointwise *e, const int *perm) {
    npy_intp next = 1;
    for (int i = 0; i < l->ndim; next *= l->dim[perm[i++]].size)
        for (int o = 1; o < l->n_operands; o++)
            if (l->dim[perm[i]].size != 1 && l->dim[perm[i]].step[o] != next * fl_itemsize[e->in[o - 1]]) return false;
    return true;
}

/* A fresh output, dense in the order of perm. PyTorch makes exceptions for dense inputs of one shape: images in channels-last
   format stay so, and strides that all agree are handed on, even the meaningless ones of sizes 1. */
static PyObject *new_output(Launch *l, const fl_pointwise *e, PyArrayObject *const *op, const int *perm) {
    static const int channels_last[] = {1, 3, 2, 0};
    npy_intp shape[MAX_DIM], stride[MAX_DIM];
    size_t next = fl_itemsize[e->out]; /* may wrap; then there is no memory for the array either */
    bool c_order = true, one_shape = true;
    for (int o = 1; o < l->n_operands; o++) one_shape &= op[o] && PyArray_NDIM(op[o]) == l->ndim;
    bool images = one_shape && l->ndim == 4 && all_dense(l, e, channels_last);
    bool agree = one_shape && !images && all_dense(l, e, perm);
    if (images) perm = channels_last;
    for (int i = 0; i < l->ndim; i++) {
        const Dim *dim = &l->dim[perm[i]];
        shape[perm[i]] = dim->size, stride[perm[i]] = (npy_intp)next;
        next *= (size_t)dim->size;
        c_order &= perm[i] == l->ndim - 1 - i;
        for (int o = 2; o < l->n_operands; o++)
            agree &= dim->step[o] / fl_itemsize[e->in[o - 1]] == dim->step[1] / fl_itemsize[e->in[0]];
    }
    for (int d = 0; agree && d < l->ndim; d++) stride[d] = l->dim[d].step[1] / fl_itemsize[e->in[0]] * fl_itemsize[e->out];
    PyObject *out = fl_new_array(fl_descr[e->out], l->ndim, shape, c_order && !agree ? NULL : stride);
    for (int d = 0; out && d < l->ndim; d++) l->dim[d].step[0] = PyArray_STRIDE((PyArrayObject *)out, d);
    return out;
}

/* An input that lies across the grain, along another dimension than the rows, is turned tile by tile: rows are cut into equal pieces, a piece goes
   through all of that dimension before the next one starts, and what is left of the rows is a dimension of its own. */
static void cut_tiles(Launch *l, const fl_pointwise *e) {
    int64_t along = 0, wide = Py_MIN(WIDE, l->dim[0].size);
    for (int o = 1; !along && o < l->n_operands; o++)
        for (int d = 1, size = fl_itemsize[e->in[o - 1]]; d < l->ndim && Py_ABS(l->dim[0].step[o]) >= 64 && (size == 4 || size == 8); d++)
            if (l->dim[d].size >= 8 && l->dim[d].step[o] == size) along = d, l->turned = o;
    while (wide >= 16 && l->dim[0].size % wide) wide--;
    l->turn = !fl_tables[0]->products ? NULL : fl_tables[0]->products[along && l->dim[along].step[l->turned] == 8].turn;
    if (wide < 16 || !l->turn || l->ndim == MAX_DIM || (along && l->dim[0].step[l->turned] % l->dim[along].step[l->turned])) along = l->turned = 0;
    if (!along) return;
    Dim turned = l->dim[along], left = l->dim[0];
    memmove(l->dim + along + 2, l->dim + along + 1, sizeof(Dim) * (size_t)(l->ndim - along - 1));
    memmove(l->dim + 3, l->dim + 1, sizeof(Dim) * (size_t)(along - 1));
    for (int o = 0; o < l->n_operands; o++) left.step[o] *= wide;
    left.size /= wide, l->dim[0].size = wide, l->dim[1] = turned, l->dim[2] = left, l->ndim++;
}

/* Put the dimensions in order, leave out those of size 1, and join those that continue the one before. */
static void collapse(Launch *l, const fl_pointwise *e, const int *perm) {
    Dim from[MAX_DIM];
    int n = 0, inner = 0;
    memcpy(from, l->dim, sizeof(Dim) * (size_t)l->ndim);
    l->numel = 1;
    for (int i = 0; i < l->ndim; i++) {
        const Dim *dim = &from[perm[i]];
        l->numel *= dim->size;
        if (dim->size == 1 && n >= l->rows) continue;
        bool joins = n > l->rows;
        for (int o = 0; joins && o < l->n_operands; o++) joins = dim->step[o] == l->dim[n - 1].step[o] * l->dim[n - 1].size;
        if (joins) l->dim[n - 1].size *= dim->size;
        else l->dim[n++] = *dim;
    }
    if (n == 0) l->dim[n++] = (Dim){.size = 1};
    l->ndim = n;
    /* A row of a few elements costs more to start than to compute: rather a long one with wide steps. */
    for (int d = 1; !l->rows && l->dim[0].size < 16 && d < n; d++)
        if (l->dim[d].size > 2 * l->dim[inner].size) inner = d;
    Dim first = l->dim[0];
    l->dim[0] = l->dim[inner], l->dim[inner] = first;
    if (!l->rows && l->line == 1 && l->numel >= BLOCK && Py_ABS(l->dim[0].step[0]) < 64) cut_tiles(l, e);
}

/* One block of the iteration space, dimension 0 fastest. */
static void run_block(void *launch, int64_t block) {
    const Launch *l = launch;
    char *at[MAX_OPERANDS];
    int64_t begin = block * l->block, end = Py_MIN(begin + l->block, l->numel), index[MAX_DIM], rest = begin;
    int64_t step[MAX_OPERANDS], ready = 0, tile[WIDE * TALL]; /* rows of the turned operand */
    memcpy(at, l->data, sizeof at), memcpy(step, l->dim[0].step, sizeof step);
    char **turned = &at[l->turned], *next = NULL;
    if (l->turned) step[l->turned] = l->dim[1].step[l->turned];
    for (int d = 0; d < l->ndim; rest /= l->dim[d++].size) {
        index[d] = rest % l->dim[d].size;
        for (int o = 0; o < l->n_operands; o++) at[o] += index[d] * l->dim[d].step[o];
    }
    for (int64_t n; begin < end; begin += n) {
        n = Py_MIN(l->dim[0].size - index[0], end - begin);
        char *here = *turned;
        if (l->turned && !ready) {
            ready = Py_MIN(TALL, Py_MIN(l->dim[1].size - index[1], (end - begin) / n)), next = (char *)tile;
            l->turn(n, ready, here, l->dim[0].step[l->turned] / step[l->turned], tile, n);
        }
        if (l->turned) *turned = next, next += n * step[l->turned], ready--;
        l->loop(at, step, n, l->param), *turned = here;
        for (int o = 0; o < l->n_operands; o++) at[o] -= index[0] * l->dim[0].step[o];
        index[0] = 0;
        for (int d = 1; d < l->ndim; d++) { /* an odometer: a dimension at its end starts again, and the next one moves */
            bool at_end = ++index[d] == l->dim[d].size;
            int64_t move = at_end ? 1 - l->dim[d].size : 1;
            for (int o = 0; o < l->n_operands; o++) at[o] += move * l->dim[d].step[o];
            if (!at_end) break;
            index[d] = 0;
        }
    }
}

/* Blocks depend on the shape alone, so that a result has the same bits with any number of threads. */
static void run(Launch *l) {
    if (l->numel * l->line <= INLINE_UP_TO) {
        l->block = l->numel;
        if (l->ndim == 1) l->loop(l->data, l->dim[0].step, l->numel, l->param);
        else run_block(l, 0);
        return;
    }
    int64_t blocks = (l->numel * l->line + BLOCK - 1) / BLOCK, apart = l->line > 1 && Py_ABS(l->dim[0].step[0]) >= 64;
    int64_t unit = l->rows || l->turned ? l->dim[0].size : apart ? 1 : 64;               /* whole rows, or whole cache lines */
    l->block = ((l->numel + blocks - 1) / blocks + unit - 1) / unit * unit;                  /* about equal */
    Py_BEGIN_ALLOW_THREADS
    fl_parallel(run_block, l, (l->numel + l->block - 1) / l->block);
    Py_END_ALLOW_THREADS
}

bool fl_overlap(PyArrayObject *a, PyArrayObject *b) {
    char *low[2], *high[2]; /* the first byte that belongs to an element, and the one after the last */
    for (int i = 0; i < 2; i++, a = b) {
        low[i] = PyArray_BYTES(a), high[i] = low[i] + PyArray_ITEMSIZE(a);
        if (PyArray_SIZE(a) == 0) return false;
        for (int d = 0; d < PyArray_NDIM(a); d++)
            *(PyArray_STRIDE(a, d) < 0 ? &low[i] : &high[i]) += (PyArray_DIM(a, d) - 1) * PyArray_STRIDE(a, d);
    }
    return low[0] < high[1] && low[1] < high[0];
}

static bool may_write(PyArrayObject *const *op, int n, const fl_pointwise *e) {
    PyArrayObject *out = op[0];
    if (!PyArray_ISWRITEABLE(out) || fl_type_of(out) != e->out) return false;
    for (int o = 1; o < n; o++) {
        if (!op[o] || !fl_overlap(out, op[o])) continue;
        /* Element on element is fine: the loop reads each before it writes it. */
        if (e->rows || PyArray_BYTES(out) != PyArray_BYTES(op[o]) || e->in[o - 1] != e->out || !PyArray_SAMESHAPE(out, op[o]) ||
            !PyArray_CompareLists(PyArray_STRIDES(out), PyArray_STRIDES(op[o]), PyArray_NDIM(out)))
            return false;
    }
    return true;
}

static PyObject *launch(Kernel *k, PyArrayObject *out, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != k->n_in + k->n_param)
        return PyErr_Format(PyExc_TypeError, "kernel %s takes %d operands and %d numbers, got %zd arguments", k->name, k->n_in,
                            k->n_param, nargs);
    Launch l;
    PyArrayObject *op[MAX_OPERANDS] = {out}, *widest = NULL;
    const fl_pointwise *e = gather(k, args, op, &l);
    if (!e) Py_RETURN_NOTIMPLEMENTED;
    l.loop = e->loop, l.turned = 0, l.n_operands = 1 + k->n_in, l.rows = e->rows & 1, l.line = e->rows == FL_LINES ? (int64_t)l.param[0] : 1;
    for (int o = 1; o < l.n_operands; o++)
        if (op[o] && (!widest || PyArray_NDIM(op[o]) > PyArray_NDIM(widest))) widest = op[o];
    if (!widest || (out && !may_write(op, l.n_operands, e))) Py_RETURN_NOTIMPLEMENTED;
    l.ndim = PyArray_NDIM(widest);
    bool flat = !l.rows && is_flat(op, l.n_operands, widest);
    if (!flat && (l.ndim > MAX_DIM || !broadcast(&l, op) || (l.rows && !fits_rows(&l, e, out)))) Py_RETURN_NOTIMPLEMENTED;
    PyObject *result = Py_XNewRef(out);
    if (flat) {
        if (!out) result = fl_new_array(fl_descr[e->out], l.ndim, PyArray_DIMS(widest), NULL);
        l.ndim = 1, l.numel = l.dim[0].size = PyArray_SIZE(widest), l.dim[0].step[0] = fl_itemsize[e->out];
        for (int o = 1; o < l.n_operands; o++)
            l.dim[0].step[o] = op[o] && PyArray_NDIM(op[o]) ? fl_itemsize[e->in[o - 1]] : 0;
    } else {
        int perm[MAX_DIM];
        sort(&l, perm);
        if (!out) result = new_output(&l, e, op, perm);
        if (result) collapse(&l, e, perm);
    }
    if (result) l.data[0] = PyArray_BYTES((PyArrayObject *)result);
    if (result && l.numel) run(&l);
    return result;
}

static PyObject *kernel_call(PyObject *self, PyObject *const *args, size_t nargs, PyObject *names) {
    if (names && PyTuple_GET_SIZE(names)) return PyErr_Format(PyExc_TypeError, "a kernel takes no keyword arguments");
    return launch((Kernel *)self, NULL, args, PyVectorcall_NARGS(nargs));
}

static PyObject *into(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    if (nargs < 1) return PyErr_Format(PyExc_TypeError, "into(out, *operands): out is missing");
    if (!PyArray_CheckExact(args[0])) Py_RETURN_NOTIMPLEMENTED;
    return launch((Kernel *)self, (PyArrayObject *)args[0], args + 1, nargs - 1);
}

typedef struct { char *data[MAX_OPERANDS]; int64_t numel, first; } Piece; /* of an update: a tensor, and the number of its first block */
typedef struct { const fl_pointwise *entry; Piece *piece; int64_t count, blocks, numel, noted; double param[MAX_PARAM]; } Update;

static void update_block(void *update, int64_t block) {
    Update *u = update;
    int64_t low = 0, high = u->count; /* to the last piece that begins at or before this block */
    while (high - low > 1) *(u->piece[(low + high) / 2].first <= block ? &low : &high) = (low + high) / 2;
    Piece piece = u->piece[low];
    int64_t begin = (block - piece.first) * BLOCK;
    for (int o = 0; o <= u->entry->n_in; o++) piece.data[o] += begin * fl_itemsize[u->entry->key];
    u->entry->loop(piece.data, &u->noted, Py_MIN(piece.numel - begin, BLOCK), u->param);
}

static bool add_piece(Update *u, Kernel *k, PyObject *lists, int64_t i) {
    PyArrayObject *a, *first = (PyArrayObject *)PyList_GetItem(PyTuple_GET_ITEM(lists, 0), i);
    for (int type, o = 0; o <= k->n_in; o++) {
        a = (PyArrayObject *)PyList_GetItem(PyTuple_GET_ITEM(lists, o), i);
        if (!a || !PyArray_CheckExact(a) || !PyArray_ISCARRAY(a) || (type = fl_type_of(a)) < 0) return false;
        if (!u->entry) u->entry = k->entry[type];
        if (!u->entry || type != u->entry->key || !PyArray_SAMESHAPE(a, first)) return false;
        u->piece[i].data[o] = PyArray_BYTES(a), u->piece[i].numel = PyArray_SIZE(a), u->piece[i].first = u->blocks;
    }
    return u->numel += u->piece[i].numel, u->blocks += (u->piece[i].numel + BLOCK - 1) / BLOCK, true;
}

static PyObject *update(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
    Kernel *k = (Kernel *)self;
    if (nargs != 2 || !PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != k->n_in + 1 || !PyList_Check(PyTuple_GET_ITEM(args[0], 0)))
        return PyErr_Format(PyExc_TypeError, "update(lists, numbers) of %s takes %d lists", k->name, k->n_in + 1);
    Update u = {.count = PyList_GET_SIZE(PyTuple_GET_ITEM(args[0], 0))};
    bool fits = (u.piece = PyMem_Malloc(sizeof(Piece) * (size_t)u.count + 1)) && PyTuple_Check(args[1]) && PyTuple_Size(args[1]) == k->n_param;
    for (int i = 0; fits && i < k->n_param; i++) fits = read_param(PyTuple_GET_ITEM(args[1], i), &u.param[i]);
    for (int64_t i = 0; fits && i < u.count; i++) fits = add_piece(&u, k, args[0], i);
    PyThreadState *paused = fits && u.numel > INLINE_UP_TO ? PyEval_SaveThread() : NULL;
    if (paused) fl_parallel(update_block, &u, u.blocks), PyEval_RestoreThread(paused);
    for (int64_t block = 0; fits && !paused && block < u.blocks; block++) update_block(&u, block);
    return PyMem_Free(u.piece), PyErr_Occurred() ? NULL : Py_NewRef(!fits ? Py_NotImplemented : u.noted ? Py_True : Py_False);
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    const char *name;
    PyObject *loaded = NULL;
    if (!PyArg_ParseTuple(args, "s|O:Kernel", &name, &loaded)) return NULL;
    const fl_table *of_loaded[2] = {loaded ? fl_table_of(loaded) : NULL, NULL};
    if (loaded && !of_loaded[0]) return NULL;
    Kernel *k = (Kernel *)type->tp_alloc(type, 0); /* zeroed */
    if (!k) return NULL;
    int found = 0;
    for (const fl_table *const *table = loaded ? of_loaded : fl_tables; *table; table++)
        for (const fl_pointwise *e = (*table)->pointwise; e < (*table)->pointwise + (*table)->n_pointwise; e++) {
            const fl_pointwise **at = e->numbers ? &k->with_number[e->key] : &k->entry[e->key];
            if (strcmp(e->name, name) || *at) continue;
            *at = e, found++;
            k->name = e->name, k->formula = !strchr(e->name, '.'), k->n_in = e->n_in, k->n_param = e->n_param, k->generic = e->generic;
            k->only = found == 1 && !e->generic ? e : NULL;
        }
    k->call = kernel_call;
    if (found && k->n_in <= FL_MAX_IN && k->n_param <= MAX_PARAM) return (PyObject *)k;
    Py_DECREF(k);
    return PyErr_Format(PyExc_KeyError, "there is no compiled kernel named %s", name);
}

PyTypeObject fl_kernel_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "flambeau.kernels._native.Kernel",
    .tp_doc = "Kernel(name, loaded): a generated loop for all its dtypes, among those that `load` gave, else of the extension. k(*operands, *numbers) returns a fresh array, or\n"
              "NotImplemented where this fast path does not apply; k.into(out, *operands, *numbers) writes into out.",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = kernel_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Kernel, call),
    .tp_methods = (PyMethodDef[]){{"into", (PyCFunction)(void (*)(void))into, METH_FASTCALL, "into(out, *operands, *numbers)"},
                                   {"update", (PyCFunction)(void (*)(void))update, METH_FASTCALL, "update(lists, numbers): see updates.py"}, {0}},
};
