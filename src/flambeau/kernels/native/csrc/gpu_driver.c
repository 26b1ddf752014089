/* CUDA's driver: found when a GPU is first asked for, for nothing of CUDA is there when this is compiled. */
#include "gpu.h"
#include <dlfcn.h>

fl_driver fl_cu;
enum { NO_CONTEXT = 201, MOST_GPUS = 64 };
static void *context[MOST_GPUS]; /* what CUDA's runtime, and so everybody, calls the GPU's primary context */

bool fl_cu_good(int status, const char *call) {
    const char *words = NULL;
    if (!status) return true;
    if (fl_cu.cuGetErrorString) fl_cu.cuGetErrorString(status, &words);
    PyErr_Format(PyExc_RuntimeError, "CUDA error: %s (%s gave %d)", words ? words : "unknown", call, status);
    return false;
}

PyObject *fl_gpu_open(PyObject *module, PyObject *path) {
    const char *name = PyUnicode_AsUTF8(path);
    void *library = name ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return name ? PyErr_Format(PyExc_OSError, "%s", dlerror()) : NULL;
#define FIND(function, takes)                                                                                                                      \
    if (!(*(void **)&fl_cu.function = dlsym(library, #function))) return PyErr_Format(PyExc_OSError, "%s has no %s: the driver is too old", name, #function);
    FL_DRIVER(FIND)
    memset(context, 0, sizeof context);
    return fl_cu_good(fl_cu.cuInit(0), "cuInit") ? Py_NewRef(Py_None) : NULL;
}

static bool find_context(int device) {
    if (device < 0 || device >= MOST_GPUS) return PyErr_Format(PyExc_RuntimeError, "there is no GPU %d", device), false;
    return context[device] || fl_cu_good(fl_cu.cuDevicePrimaryCtxRetain(&context[device], device), "cuDevicePrimaryCtxRetain");
}

int fl_gpu_here(void) {
    int device = 0, status = fl_cu.cuCtxGetDevice(&device);
    if (status != NO_CONTEXT) return fl_cu_good(status, "cuCtxGetDevice") ? device : -1;
    return find_context(0) && fl_cu_good(fl_cu.cuCtxSetCurrent(context[0]), "cuCtxSetCurrent") ? 0 : -1; /* as the runtime would */
}

void *fl_gpu_enter(int device) {
    void *before = NULL;
    if (fl_cu.cuCtxGetCurrent(&before) || !find_context(device)) return PyErr_Clear(), before;
    if (before != context[device]) fl_cu.cuCtxSetCurrent(context[device]);
    return before;
}

void fl_gpu_leave(void *before) {
    void *now = NULL;
    if (!fl_cu.cuCtxGetCurrent(&now) && now != before) fl_cu.cuCtxSetCurrent(before);
}
