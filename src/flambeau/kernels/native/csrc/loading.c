/* Loops that were compiled while the program runs: a shared object with a table like those of the extension (see loops/source.py). */
#include "launcher.h"
#include <dlfcn.h>

static void release(PyObject *capsule) { /* loops may still run, and kernels point into the table: it stays for as long as the process */
    (void)capsule;
}

PyObject *fl_load(PyObject *module, PyObject *path) {
    const char *name = PyBytes_AsString(path);
    void *library = name ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) return name ? PyErr_Format(PyExc_OSError, "%s", dlerror()) : NULL;
    const fl_table *table = dlsym(library, "fl_loaded_table");
    const int *size = dlsym(library, "fl_loaded_size");
    void (*imports)(void *(*)(size_t), void (*)(void *, size_t));
    *(void **)&imports = dlsym(library, "fl_loaded_imports");
    if (!table || !size || !imports || *size != (int)sizeof(fl_pointwise)) {
        dlclose(library);
        return PyErr_Format(PyExc_OSError, "%s holds no loops that this version can run", name);
    }
    imports(fl_alloc, fl_free);
    return PyCapsule_New((void *)table, "flambeau.loops", release);
}

const fl_table *fl_table_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, "flambeau.loops"); }
