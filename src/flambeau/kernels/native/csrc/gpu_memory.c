/* Memory on GPUs: pieces taken from the driver, cut into blocks, which are kept when they are freed.

   To ask the driver for memory, or to give it back, means to wait for the GPU. So a freed block goes to the next who asks. It may still be written to then by
   work that was launched before; but what is launched later on the same stream comes later, so a block is given only to its own stream again.
   Who uses it on another stream has to say so (record_stream): it is then free when the GPU has passed an event there.

     segment   a piece from the driver: 2 MiB for small blocks, 20 MiB for middle ones, larger ones for themselves
     block     a part of it, a multiple of 512 bytes; free neighbours are joined
     arena     what one stream has of one kind (small or large) in one pool. Pool 0 is everybody's; others are the own of graphs, whose replays write
               to the same addresses again, so that nobody else may have them meanwhile
     bin       the free blocks of about one size

   The sizes are those PyTorch's allocator has, and so are the counters. The GIL guards all of it. */
#include "gpu.h"

enum { UNIT = 512, SMALL = 1 << 20, SMALL_SEGMENT = 2 << 20, MIDDLE = 10 << 20, MIDDLE_SEGMENT = 20 << 20, LARGE_UNIT = 2 << 20 };
enum { EXACT = 64, BINS = 640, MOST_GPUS = 64, MOST_BUSY = 16, RELAXED = 2, ACTIVE_CAPTURE = 1, NO_TIMING = 2 };
enum State { FREE, LIVE, WAITING };

typedef struct Segment Segment;
typedef struct Arena Arena;
struct Block {
    fl_address at;
    size_t size, asked;
    Segment *segment;
    fl_block *before, *after;  /* in the segment */
    fl_block *previous, *next; /* in its bin */
    enum State state;
    int waits, n_streams;
    void **stream; /* others that use it */
};
struct Segment {
    size_t size;
    Arena *arena;
    fl_block *first;
    Segment *previous, *next;
};
struct Arena {
    int device;
    int64_t pool;
    void *stream;
    bool small;
    Arena *next;
    Segment *segments;
    uint64_t filled[BINS / 64]; /* which bins hold something */
    fl_block *bin[BINS];
};
typedef struct Wait {
    void *event, *stream; /* the event is NULL if it could not be recorded yet */
    fl_block *block;
    struct Wait *next;
} Wait;
typedef struct Route { /* where allocations go while a graph is captured, or a thread uses a pool */
    int device;
    int64_t pool;
    unsigned long long capture;
    unsigned long thread;
    struct Route *next;
} Route;
typedef struct Pool {
    int device, users;
    int64_t id;
    struct Pool *next;
} Pool;

static Arena *arenas;
static Wait *waits, **last_wait = &waits;
static Route *routes;
static Pool *pools;
static struct { void **event; int n, room; } idle[MOST_GPUS]; /* events that nobody needs at the moment */

/* -- counters */

enum { ALLOCATION, SEGMENT, ACTIVE, INACTIVE_SPLIT, ALLOCATED, RESERVED, ACTIVE_BYTES, INACTIVE_SPLIT_BYTES, REQUESTED, N_STATS };
static const char *const stat_names[N_STATS] = {"allocation", "segment", "active", "inactive_split", "allocated_bytes",
                                                "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes"};
typedef struct { int64_t current, peak, allocated, freed; } Stat;
static struct {
    Stat stat[N_STATS][3]; /* all, small, large */
    int64_t limit, retries, refusals, device_allocs, device_frees;
} gpu[MOST_GPUS];

static void count(const Arena *a, int which, int64_t by) {
    Stat *both[] = {&gpu[a->device].stat[which][0], &gpu[a->device].stat[which][a->small ? 1 : 2]};
    for (int i = 0; i < 2; i++) {
        both[i]->current += by;
        *(by > 0 ? &both[i]->allocated : &both[i]->freed) += by > 0 ? by : -by;
        if (both[i]->current > both[i]->peak) both[i]->peak = both[i]->current;
    }
}

static void count_both(const Arena *a, int number, int bytes, int sign, size_t size) { count(a, number, sign), count(a, bytes, sign * (int64_t)size); }

/* -- bins */

static int bin_of(size_t size) {
    const size_t units = size / UNIT;
    if (units < EXACT) return (int)units;
    const int power = 63 - __builtin_clzll(units); /* 16 bins for each power of two */
    return EXACT + (power - 6) * 16 + (int)(units >> (power - 4) & 15);
}

static void put(fl_block *b) {
    Arena *a = b->segment->arena;
    const int bin = bin_of(b->size);
    b->state = FREE, b->previous = NULL, b->next = a->bin[bin];
    if (b->next) b->next->previous = b;
    a->bin[bin] = b, a->filled[bin / 64] |= (uint64_t)1 << bin % 64;
    if (b->before || b->after) count_both(a, INACTIVE_SPLIT, INACTIVE_SPLIT_BYTES, 1, b->size);
}

static void pull(fl_block *b) {
    Arena *a = b->segment->arena;
    const int bin = bin_of(b->size);
    if (b->next) b->next->previous = b->previous;
    if (b->previous) b->previous->next = b->next;
    else if (!(a->bin[bin] = b->next)) a->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
    if (b->before || b->after) count_both(a, INACTIVE_SPLIT, INACTIVE_SPLIT_BYTES, -1, b->size);
}

static fl_block *smallest(fl_block *b, size_t size) {
    fl_block *found = NULL;
    for (; b; b = b->next) {
        if (b->size == size) return b;
        if (b->size > size && (!found || b->size < found->size || (b->size == found->size && b->at < found->at))) found = b;
    }
    return found;
}

static fl_block *find(const Arena *a, size_t size) {
    const int bin = bin_of(size);
    fl_block *found = smallest(a->bin[bin], size);
    for (int word = (bin + 1) / 64; !found && word < BINS / 64; word++) {
        const uint64_t filled = a->filled[word] & (word == (bin + 1) / 64 ? ~(uint64_t)0 << (bin + 1) % 64 : ~(uint64_t)0);
        if (filled) found = smallest(a->bin[word * 64 + __builtin_ctzll(filled)], size);
    }
    return found;
}

/* -- pools and arenas */

static Pool *pool_of(int device, int64_t id) {
    Pool *p = pools;
    while (p && (p->device != device || p->id != id)) p = p->next;
    return p;
}

static bool is_capturing(void) {
    for (const Route *r = routes; r; r = r->next)
        if (r->capture) return true;
    return false;
}

static int64_t pool_for(int device, void *stream) {
    unsigned long long capture = 0;
    int status = 0;
    if (!routes) return 0;
    if (fl_cu.cuStreamGetCaptureInfo_v2(stream, &status, &capture, NULL, NULL, NULL) || status != ACTIVE_CAPTURE) capture = 0;
    for (const Route *r = routes; r; r = r->next)
        if (r->device == device && (r->capture ? r->capture == capture : r->thread == PyThread_get_thread_ident())) return r->pool;
    return 0;
}

static Arena *arena_for(int device, int64_t pool, void *stream, bool small) {
    Arena *a = arenas;
    while (a && (a->device != device || a->stream != stream || a->small != small || a->pool != pool)) a = a->next;
    if (!a && (a = PyMem_Calloc(1, sizeof *a))) a->device = device, a->pool = pool, a->stream = stream, a->small = small, a->next = arenas, arenas = a;
    return a;
}

/* -- from the driver, and back */

static fl_block *grow(Arena *a, size_t size) {
    const size_t bytes = a->small ? SMALL_SEGMENT : size < MIDDLE ? MIDDLE_SEGMENT : (size + LARGE_UNIT - 1) / LARGE_UNIT * LARGE_UNIT;
    const int64_t limit = gpu[a->device].limit;
    if (limit && gpu[a->device].stat[RESERVED][0].current + (int64_t)bytes > limit) return NULL;
    fl_address at = 0;
    int mode = RELAXED; /* a capture forbids what may wait for the GPU, but memory is not part of the graph */
    fl_cu.cuThreadExchangeStreamCaptureMode(&mode);
    const int status = fl_cu.cuMemAlloc_v2(&at, bytes);
    fl_cu.cuThreadExchangeStreamCaptureMode(&mode);
    if (status) return NULL;
    Segment *s = PyMem_Calloc(1, sizeof *s);
    fl_block *b = PyMem_Calloc(1, sizeof *b);
    if (!s || !b) return fl_cu.cuMemFree_v2(at), PyMem_Free(s), PyMem_Free(b), NULL;
    *s = (Segment){bytes, a, b, NULL, a->segments};
    if (s->next) s->next->previous = s;
    a->segments = s;
    b->at = at, b->size = bytes, b->segment = s;
    gpu[a->device].device_allocs++;
    count_both(a, SEGMENT, RESERVED, 1, bytes);
    put(b);
    return b;
}

static void release_segment(Segment *s) {
    Arena *a = s->arena;
    pull(s->first);
    fl_cu.cuMemFree_v2(s->first->at);
    gpu[a->device].device_frees++;
    count_both(a, SEGMENT, RESERVED, -1, s->size);
    if (s->next) s->next->previous = s->previous;
    *(s->previous ? &s->previous->next : &a->segments) = s->next;
    PyMem_Free(s->first), PyMem_Free(s);
}

static void finish_waits(int device, bool block);

/* Everything that is free goes back, but for what belongs to a graph that may be replayed. */
static void release(int device) {
    if (is_capturing()) return; /* to give memory back waits for the GPU, which a capture forbids */
    finish_waits(device, true);
    void *before = fl_gpu_enter(device);
    for (Arena **at = &arenas, *a; (a = *at);) {
        const Pool *p = a->pool ? pool_of(a->device, a->pool) : NULL;
        if (a->device == device && (!p || !p->users))
            for (Segment *s = a->segments, *next; s; s = next) {
                next = s->next;
                if (s->first->state == FREE && !s->first->after) release_segment(s);
            }
        if (a->pool && !p && !a->segments) *at = a->next, PyMem_Free(a);
        else at = &a->next;
    }
    fl_gpu_leave(before);
}

/* -- blocks */

static void split(fl_block *b, size_t size) {
    const size_t rest = b->size - size;
    if (b->segment->arena->small ? rest < UNIT : rest <= SMALL) return;
    fl_block *tail = PyMem_Calloc(1, sizeof *tail);
    if (!tail) return;
    tail->at = b->at + size, tail->size = rest, tail->segment = b->segment, tail->before = b, tail->after = b->after;
    if (tail->after) tail->after->before = tail;
    b->after = tail, b->size = size;
    put(tail);
}

static PyObject *refuse; /* refuse(bytes, tries): what nobody can reach is let go of (1), or the exception that says who has the memory (2) */

static void let_go(size_t size) {
    PyObject *done = refuse ? PyObject_CallFunction(refuse, "Ki", (unsigned long long)size, 1) : NULL;
    if (!done) PyErr_Clear();
    Py_XDECREF(done);
}

static fl_block *refused(int device, size_t size) {
    gpu[device].refusals++;
    PyObject *why = refuse ? PyObject_CallFunction(refuse, "Ki", (unsigned long long)size, 2) : NULL;
    if (why) PyErr_SetObject((PyObject *)Py_TYPE(why), why);
    else if (!PyErr_Occurred()) PyErr_NoMemory();
    return Py_XDECREF(why), NULL;
}

static fl_block *find_or_grow(Arena *a, size_t size) {
    fl_block *found = find(a, size);
    return found ? found : grow(a, size);
}

fl_block *fl_gpu_take(int device, void *stream, size_t asked) {
    if (device >= MOST_GPUS || asked > (size_t)1 << 46) return refused(device, asked);
    const size_t size = (Py_MAX(asked, 1) + UNIT - 1) / UNIT * UNIT;
    if (waits) finish_waits(device, false);
    Arena *a = arena_for(device, pool_for(device, stream), stream, size <= SMALL);
    fl_block *b = a ? find_or_grow(a, size) : NULL;
    if (a && !b) {
        gpu[device].retries++;
        release(device);
        b = find_or_grow(a, size);
    }
    if (a && !b) {
        let_go(size), release(device);
        b = find_or_grow(a, size);
    }
    if (!b) return refused(device, asked);
    pull(b);
    split(b, size);
    b->state = LIVE, b->asked = asked;
    count_both(a, ALLOCATION, ALLOCATED, 1, b->size), count_both(a, ACTIVE, ACTIVE_BYTES, 1, b->size), count(a, REQUESTED, (int64_t)asked);
    return b;
}

/* A neighbour that is free becomes part of the block. */
static void join(fl_block *b, fl_block *other) {
    if (!other || other->state != FREE) return;
    pull(other);
    if (other == b->before) {
        b->at = other->at;
        if ((b->before = other->before)) b->before->after = b;
        else b->segment->first = b;
    } else if ((b->after = other->after)) b->after->before = b;
    b->size += other->size;
    PyMem_Free(other);
}

static void set_free(fl_block *b) {
    count_both(b->segment->arena, ACTIVE, ACTIVE_BYTES, -1, b->size);
    join(b, b->before), join(b, b->after);
    put(b);
}

/* -- streams */

static void *an_event(int device) {
    void *event = NULL;
    if (idle[device].n) return idle[device].event[--idle[device].n];
    return fl_cu.cuEventCreate(&event, NO_TIMING) ? NULL : event;
}

static void keep_event(int device, void *event) {
    if (idle[device].n == idle[device].room) {
        void **more = PyMem_Realloc(idle[device].event, sizeof *more * (size_t)(2 * idle[device].room + 8));
        if (!more) return;
        idle[device].event = more, idle[device].room = 2 * idle[device].room + 8;
    }
    idle[device].event[idle[device].n++] = event;
}

static void record(Wait *w) {
    const int device = w->block->segment->arena->device;
    void *before = fl_gpu_enter(device);
    if ((w->event = an_event(device)) && fl_cu.cuEventRecord(w->event, w->stream)) keep_event(device, w->event), w->event = NULL;
    fl_gpu_leave(before);
}

/* Blocks are free whose events have happened. `block`: wait for all of a GPU. While a graph is captured nobody may ask. */
static void finish_waits(int device, bool block) {
    void *busy[MOST_BUSY]; /* streams that have not come so far: their later events need not be asked for */
    int n_busy = 0;
    if (is_capturing()) return;
    last_wait = &waits;
    for (Wait *w; (w = *last_wait);) {
        bool happened = w->block->segment->arena->device == device;
        for (int i = 0; happened && !block && i < n_busy; i++) happened = busy[i] != w->stream;
        if (happened && !w->event) record(w), happened = block;
        if (happened && w->event) {
            if (block) fl_cu.cuEventSynchronize(w->event);
            else if (fl_cu.cuEventQuery(w->event)) { /* not yet */
                happened = false;
                if (n_busy < MOST_BUSY) busy[n_busy++] = w->stream;
            }
        }
        if (!happened) {
            last_wait = &w->next;
            continue;
        }
        *last_wait = w->next;
        if (w->event) keep_event(device, w->event);
        if (!--w->block->waits) set_free(w->block);
        PyMem_Free(w);
    }
}

void fl_gpu_give(fl_block *b) {
    const Arena *a = b->segment->arena;
    count_both(a, ALLOCATION, ALLOCATED, -1, b->size), count(a, REQUESTED, -(int64_t)b->asked);
    for (int i = 0; i < b->n_streams; i++) {
        Wait *w = PyMem_Calloc(1, sizeof *w);
        if (!w) continue;
        *w = (Wait){.stream = b->stream[i], .block = b};
        if (!is_capturing()) record(w);
        *last_wait = w, last_wait = &w->next;
        b->waits++;
    }
    PyMem_Free(b->stream);
    b->stream = NULL, b->n_streams = 0;
    if (b->waits) b->state = WAITING;
    else set_free(b);
}

bool fl_gpu_also_used(fl_block *b, void *stream) {
    if (stream == b->segment->arena->stream) return true;
    for (int i = 0; i < b->n_streams; i++)
        if (b->stream[i] == stream) return true;
    void **more = PyMem_Realloc(b->stream, sizeof *more * (size_t)(b->n_streams + 1));
    if (!more) return PyErr_NoMemory(), false;
    b->stream = more, b->stream[b->n_streams++] = stream;
    return true;
}

fl_address fl_gpu_at(const fl_block *b) { return b->at; }
size_t fl_gpu_size(const fl_block *b) { return b->size; }
int fl_gpu_device(const fl_block *b) { return b->segment->arena->device; }

/* -- for Python */

void fl_gpu_on_refusal(PyObject *function) { Py_XSETREF(refuse, Py_NewRef(function)); }

static bool read_device(PyObject *args, const char *format, int *device, void *first, void *second) {
    if (!PyArg_ParseTuple(args, format, device, first, second)) return false;
    if (*device >= -1 && *device < MOST_GPUS) return true;
    return PyErr_Format(PyExc_ValueError, "there is no GPU %d", *device), false;
}

static int put_number(PyObject *found, const char *name, const char *part, const char *last, int64_t value) {
    char words[96];
    PyOS_snprintf(words, sizeof words, "%s%s%s%s%s", name, part ? "." : "", part ? part : "", last ? "." : "", last ? last : "");
    PyObject *number = PyLong_FromLongLong(value);
    const int said = number ? PyDict_SetItemString(found, words, number) : -1;
    return Py_XDECREF(number), said;
}

PyObject *fl_gpu_stats(PyObject *module, PyObject *args) {
    static const char *const part[] = {"all", "small_pool", "large_pool"};
    int device, reset;
    if (!read_device(args, "ii:gpu_stats", &device, &reset, NULL) || device < 0) return NULL;
    PyObject *found = PyDict_New();
    int said = found ? 0 : -1;
    for (int i = 0; !said && i < N_STATS; i++)
        for (int p = 0; !said && p < 3; p++) {
            Stat *s = &gpu[device].stat[i][p];
            if (reset == 1) s->peak = s->current;
            if (reset == 2) s->allocated = s->freed = 0;
            said = put_number(found, stat_names[i], part[p], "current", s->current) | put_number(found, stat_names[i], part[p], "peak", s->peak) |
                   put_number(found, stat_names[i], part[p], "allocated", s->allocated) | put_number(found, stat_names[i], part[p], "freed", s->freed);
        }
    if (reset == 2) gpu[device].retries = gpu[device].refusals = gpu[device].device_allocs = gpu[device].device_frees = 0;
    if (!said)
        said = put_number(found, "num_alloc_retries", NULL, NULL, gpu[device].retries) | put_number(found, "num_ooms", NULL, NULL, gpu[device].refusals) |
               put_number(found, "num_device_alloc", NULL, NULL, gpu[device].device_allocs) | put_number(found, "num_device_free", NULL, NULL, gpu[device].device_frees);
    if (said) Py_CLEAR(found);
    return found;
}

static PyObject *blocks_of(const Segment *s) {
    PyObject *found = PyList_New(0);
    for (const fl_block *b = s->first; found && b; b = b->after) {
        PyObject *one = Py_BuildValue("KKKi", b->at, (unsigned long long)b->size, (unsigned long long)(b->state == LIVE ? b->asked : 0), (int)b->state);
        if (!one || PyList_Append(found, one) < 0) Py_CLEAR(found);
        Py_XDECREF(one);
    }
    return found;
}

PyObject *fl_gpu_segments(PyObject *module, PyObject *unused) {
    PyObject *found = PyList_New(0);
    for (const Arena *a = arenas; found && a; a = a->next)
        for (const Segment *s = a->segments; found && s; s = s->next) {
            PyObject *one = Py_BuildValue("iKKLKON", a->device, s->first->at, (unsigned long long)s->size, (long long)a->pool, (unsigned long long)(uintptr_t)a->stream,
                                          a->small ? Py_True : Py_False, blocks_of(s));
            if (!one || PyList_Append(found, one) < 0) Py_CLEAR(found);
            Py_XDECREF(one);
        }
    return found;
}

PyObject *fl_gpu_release(PyObject *module, PyObject *args) {
    int device;
    if (!read_device(args, "i:gpu_release", &device, NULL, NULL)) return NULL;
    for (int d = 0; d < MOST_GPUS; d++)
        if ((device < 0 || d == device) && gpu[d].stat[SEGMENT][0].current) release(d);
    Py_RETURN_NONE;
}

PyObject *fl_gpu_limit(PyObject *module, PyObject *args) {
    int device;
    long long limit;
    if (!read_device(args, "iL:gpu_limit", &device, &limit, NULL) || device < 0) return NULL;
    gpu[device].limit = limit;
    Py_RETURN_NONE;
}

PyObject *fl_gpu_pool_begin(PyObject *module, PyObject *args) {
    int device;
    long long id;
    unsigned long long capture;
    if (!PyArg_ParseTuple(args, "iLK:gpu_pool_begin", &device, &id, &capture)) return NULL;
    Pool *p = pool_of(device, id);
    Route *r = PyMem_Calloc(1, sizeof *r);
    if (!p && r && (p = PyMem_Calloc(1, sizeof *p))) *p = (Pool){device, 0, id, pools}, pools = p;
    if (!p || !r) return PyMem_Free(r), PyErr_NoMemory();
    p->users++;
    *r = (Route){device, id, capture, PyThread_get_thread_ident(), routes}, routes = r;
    Py_RETURN_NONE;
}

PyObject *fl_gpu_pool_end(PyObject *module, PyObject *args) {
    int device;
    long long id;
    if (!read_device(args, "iL:gpu_pool_end", &device, &id, NULL)) return NULL;
    for (Route **at = &routes, *r; (r = *at); at = &r->next)
        if (r->device == device && r->pool == id) {
            *at = r->next, PyMem_Free(r);
            Py_RETURN_NONE;
        }
    return PyErr_Format(PyExc_RuntimeError, "nothing goes to pool %lld of GPU %d", id, device);
}

PyObject *fl_gpu_pool_release(PyObject *module, PyObject *args) {
    int device;
    long long id;
    if (!read_device(args, "iL:gpu_pool_release", &device, &id, NULL)) return NULL;
    for (Pool **at = &pools, *p; (p = *at); at = &p->next)
        if (p->device == device && p->id == id && !--p->users) {
            *at = p->next, PyMem_Free(p);
            break;
        }
    Py_RETURN_NONE;
}
