/* What the parts that speak to GPUs share: CUDA's driver, which is found when the program runs; memory on GPUs; CuPy's arrays as C sees them. */
#pragma once
#include "front.h"

typedef unsigned long long fl_address; /* in the memory of a GPU */

/* The driver's functions by the names it exports, and what they take. All return 0, or the number of an error. */
#define FL_DRIVER(X)                                                                                                                               \
    X(cuInit, (unsigned))                                                                                                                          \
    X(cuGetErrorString, (int, const char **))                                                                                                      \
    X(cuCtxGetCurrent, (void **))                                                                                                                  \
    X(cuCtxSetCurrent, (void *))                                                                                                                   \
    X(cuCtxGetDevice, (int *))                                                                                                                     \
    X(cuDevicePrimaryCtxRetain, (void **, int))                                                                                                    \
    X(cuMemAlloc_v2, (fl_address *, size_t))                                                                                                       \
    X(cuMemFree_v2, (fl_address))                                                                                                                  \
    X(cuEventCreate, (void **, unsigned))                                                                                                          \
    X(cuEventRecord, (void *, void *))                                                                                                             \
    X(cuEventQuery, (void *))                                                                                                                      \
    X(cuEventSynchronize, (void *))                                                                                                                \
    X(cuThreadExchangeStreamCaptureMode, (int *))                                                                                                  \
    X(cuStreamGetCaptureInfo_v2, (void *, int *, unsigned long long *, void **, const void ***, size_t *))                                         \
    X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))
#define FL_MEMBER(name, takes) int(*name) takes;
typedef struct { FL_DRIVER(FL_MEMBER) } fl_driver;
extern fl_driver fl_cu;

bool fl_cu_good(int status, const char *call); /* false with RuntimeError */
int fl_gpu_here(void);                         /* the current GPU; one is made current in a thread that has none. -1 with an exception */
void *fl_gpu_enter(int device);                /* makes a GPU current, and gives what fl_gpu_leave takes */
void fl_gpu_leave(void *before);
bool fl_gpu_stream(void **stream); /* the current one */

/* -- memory (gpu_memory.c) */

typedef struct Block fl_block;
fl_block *fl_gpu_take(int device, void *stream, size_t size); /* NULL with an exception */
void fl_gpu_give(fl_block *block);
bool fl_gpu_also_used(fl_block *block, void *stream);
fl_address fl_gpu_at(const fl_block *block);
size_t fl_gpu_size(const fl_block *block);
int fl_gpu_device(const fl_block *block);

/* -- arrays (gpu_arrays.c) */

enum { FL_GPU_DIMS = 32 };
typedef struct { /* CuPy's array; `shape` and `strides` (bytes) may point into it */
    fl_address at;
    int device, ndim;
    npy_intp size;
    bool dense; /* row-major, without gaps */
    PyArray_Descr *descr;
    PyObject *pointer; /* CuPy's MemoryPointer; both of these are borrowed */
    const npy_intp *shape, *strides;
    npy_intp room[2][FL_GPU_DIMS];
} fl_gpu_array;
bool fl_gpu_is_array(PyObject *object);
bool fl_gpu_see(PyObject *array, fl_gpu_array *view); /* false with an exception */
/* A fresh array, uninitialised; strides in bytes, NULL: row-major. */
PyObject *fl_gpu_new(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides);

extern PyTypeObject fl_gpu_kernel_type, fl_gpu_layout_type, fl_gpu_formula_type; /* gpu_launch.c */

#define FL_GPU_METHODS(X)                                                                                                                              \
    X(gpu_open, METH_O, "gpu_open(path): find CUDA's driver there.")                                                                                    \
    X(gpu_arrays, METH_VARARGS, "gpu_arrays(ndarray, its base, pointer, memory, places, current_stream, refuse): what arrays are; see cuda/cupy_objects.py.")\
    X(gpu_alloc, METH_O, "gpu_alloc(bytes): memory on the current GPU, for the current stream, as CuPy's MemoryPointer.")                               \
    X(gpu_empty, METH_FASTCALL, "gpu_empty(shape, dtype, strides=None): an uninitialised array on the current GPU; strides in bytes.")                  \
    X(gpu_view, METH_FASTCALL, "gpu_view(array, shape, strides, offset, dtype=None): the same memory; strides and offset in elements.")                 \
    X(gpu_call, METH_FASTCALL, "gpu_call(address, *numbers) -> what a C function of integers and addresses returns, called at this address.")              \
    X(gpu_record_stream, METH_VARARGS, "gpu_record_stream(array, stream): that another stream uses it, too.")                                           \
    X(gpu_stats, METH_VARARGS, "gpu_stats(device, reset): the counters of a GPU's memory; reset: 0 nothing, 1 peaks, 2 what has added up.")             \
    X(gpu_segments, METH_NOARGS, "gpu_segments(): [(device, address, bytes, pool, stream, small, [(address, bytes, asked for, state), ...]), ...].")     \
    X(gpu_release, METH_VARARGS, "gpu_release(device): give what is free back to the driver; -1: on all GPUs.")                                         \
    X(gpu_limit, METH_VARARGS, "gpu_limit(device, bytes): take no more than this from the driver.")                                                     \
    X(gpu_pool_begin, METH_VARARGS, "gpu_pool_begin(device, pool, capture): what a capture (0: this thread) allocates from now on is this pool's own.")  \
    X(gpu_pool_end, METH_VARARGS, "gpu_pool_end(device, pool): no longer.")                                                                             \
    X(gpu_pool_release, METH_VARARGS, "gpu_pool_release(device, pool): one user of the pool less.")
#define FL_DECLARE(name, flags, doc) PyObject *fl_##name();
