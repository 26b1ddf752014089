/* CUDA's driver, as far as Flambeau calls it: memory is main memory, kernels are functions that run at once, graphs are lists of launches with copies of
   their arguments. A test can hold events back (fake_hold), bound the memory (fake_limit), and count what was asked (fake_count). */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#define API extern "C"
enum { INVALID = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201, NOT_READY = 600, FORBIDDEN = 900, INVALIDATED = 901 };

struct Graph { std::vector<std::function<void()>> nodes; };
struct Capture { Graph *graph; unsigned long long id; };
struct Stream { Capture *capture = nullptr; };
struct Event { Capture *capture = nullptr; unsigned long long recorded = 0; };
struct Function { void (*launch)(unsigned, unsigned, unsigned, void **); int n; const int *sizes; };

static Stream null_stream;
static std::vector<Stream *> streams{&null_stream};
static std::map<uintptr_t, size_t> memory;
static size_t used, limit = (size_t)1 << 33;
static unsigned long long clock_ = 1, passed = ~0ull, captures, counts[3];
static thread_local void *context;
static thread_local int mode;
static char primary;

static Stream *of(void *stream) { return stream ? (Stream *)stream : &null_stream; }
static std::recursive_mutex working; /* kernels of the stand-in have but one set of threads */
static int run(void *stream, std::function<void()> work) {
    std::lock_guard<std::recursive_mutex> alone(working);
    if (of(stream)->capture) of(stream)->capture->graph->nodes.push_back(work);
    else work();
    return 0;
}

API void fake_hold(int hold) { passed = hold ? clock_++ : ~0ull; } /* events that are recorded from now on do not happen */
API void fake_limit(size_t bytes) { limit = bytes; }
API unsigned long long fake_count(int which) { return counts[which]; } /* launches, memory taken, memory given back */

API int cuInit(unsigned) { return 0; }
API int cuGetErrorString(int error, const char **words) {
    *words = error == OUT_OF_MEMORY ? "out of memory" : error == FORBIDDEN ? "operation not permitted when stream is capturing" : error == NO_CONTEXT ? "invalid device context" : "an error";
    return 0;
}
API int cuCtxGetCurrent(void **to) { return *to = context, 0; }
API int cuCtxSetCurrent(void *to) { return context = to, 0; }
API int cuCtxGetDevice(int *device) { return *device = 0, context ? 0 : NO_CONTEXT; }
API int cuDevicePrimaryCtxRetain(void **to, int device) { return *to = &primary, device ? INVALID : 0; }

API int cuMemAlloc_v2(unsigned long long *at, size_t size) {
    for (Stream *s : streams)
        if (s->capture && mode != 2) return FORBIDDEN;
    if (used + size > limit) return OUT_OF_MEMORY;
    void *found = aligned_alloc(512, (size + 511) / 512 * 512);
    if (!found) return OUT_OF_MEMORY;
    memset(found, 0xAB, size < 65536 ? size : 65536); /* nobody may count on zeros */
    return *at = (uintptr_t)found, memory[*at] = size, used += size, counts[1]++, 0;
}
API int cuMemFree_v2(unsigned long long at) {
    auto found = memory.find(at);
    if (found == memory.end()) return INVALID;
    used -= found->second, memory.erase(found), counts[2]++;
    return free((void *)at), 0;
}
API size_t fake_used() { return used; }

API int cuStreamCreate(void **to, unsigned) { return streams.push_back(new Stream), *to = streams.back(), 0; }
API int cuEventCreate(void **to, unsigned) { return *to = new Event, 0; }
API int cuEventDestroy_v2(void *event) { return delete (Event *)event, 0; }
API int cuEventRecord(void *event, void *stream) { return *(Event *)event = {of(stream)->capture, clock_++}, 0; }
API int cuEventQuery(void *event) { return ((Event *)event)->capture ? FORBIDDEN : ((Event *)event)->recorded > passed ? NOT_READY : 0; }
API int cuEventSynchronize(void *event) { return passed = ~0ull, 0; }
API int cuStreamWaitEvent(void *stream, void *event, unsigned) {
    if (((Event *)event)->capture) of(stream)->capture = ((Event *)event)->capture; /* it is part of the same graph from here on */
    return 0;
}
API int cuStreamSynchronize(void *stream) { return of(stream)->capture ? FORBIDDEN : 0; }
API int cuStreamIsCapturing(void *stream, int *status) { return *status = of(stream)->capture != nullptr, 0; }
API int cuStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **, const void ***, size_t *) {
    const Capture *c = of(stream)->capture;
    return *status = c != nullptr, *id = c ? c->id : 0, 0;
}
API int cuThreadExchangeStreamCaptureMode(int *with) { int before = mode; return mode = *with, *with = before, 0; }
API int cuStreamBeginCapture_v2(void *stream, int) {
    if (!stream || of(stream)->capture) return FORBIDDEN;
    return of(stream)->capture = new Capture{new Graph, ++captures}, 0;
}
API int cuStreamEndCapture(void *stream, void **graph) {
    Capture *c = of(stream)->capture;
    if (!c) return FORBIDDEN;
    for (Stream *s : streams)
        if (s->capture == c) s->capture = nullptr;
    return *graph = c->graph, 0;
}
API int cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) { return *exec = new Graph(*(Graph *)graph), 0; }
API int cuGraphLaunch(void *exec, void *stream) {
    for (auto &node : ((Graph *)exec)->nodes) node();
    return of(stream)->capture ? FORBIDDEN : 0;
}
API int cuGraphExecDestroy(void *exec) { return delete (Graph *)exec, 0; }
API int cuGraphDestroy(void *graph) { return delete (Graph *)graph, 0; }
API int cuGraphDebugDotPrint(void *graph, const char *path, unsigned) {
    FILE *file = fopen(path, "w");
    if (!file) return INVALID;
    fprintf(file, "digraph dot { /* %zu nodes */ }\n", ((Graph *)graph)->nodes.size());
    return fclose(file), 0;
}

API int cuMemcpyAsync(unsigned long long to, unsigned long long from, size_t size, void *stream) {
    return run(stream, [=] { memmove((void *)to, (void *)from, size); });
}
API int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t size, void *stream) {
    return run(stream, [=] { memset((void *)to, value, size); });
}
API int cuLaunchKernel(void *function, unsigned across, unsigned down, unsigned deep, unsigned threads, unsigned, unsigned, unsigned shared, void *stream, void **args, void **) {
    const Function *f = (const Function *)function;
    if (!context) return NO_CONTEXT;
    if (!across || !down || deep != 1 || !threads || threads > 1024 || shared > (227u << 10)) return INVALID;
    counts[0]++;
    std::vector<std::vector<char>> given;
    for (int i = 0; i < f->n; i++) given.emplace_back((char *)args[i], (char *)args[i] + f->sizes[i]);
    return run(stream, [=]() mutable {
        std::vector<void *> places;
        for (auto &one : given) places.push_back(one.data());
        f->launch(across, down, threads, places.data());
    });
}
