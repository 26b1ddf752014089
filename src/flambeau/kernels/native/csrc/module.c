/* flambeau.kernels._native: what Python sees of the compiled part, and the choice of CPU variant. */
#define FL_IMPORTS_NUMPY
#include "gpu.h"

PyArray_Descr *fl_descr[FL_NTYPES];
signed char fl_type_of_number[NPY_NTYPES_LEGACY];
int fl_bfloat16_number = -2; /* -1 is what NumPy's newest dtypes have */
const fl_table *fl_tables[4];

extern const fl_table fl_table_baseline, fl_table_avx2, fl_table_avx512;

/* FLAMBEAU_CPU=baseline or avx2 asks for less than the machine can do: to compare, or to reproduce a result elsewhere. */
static void choose_tables(void) {
    const fl_table **next = fl_tables;
    const char *wish = getenv("FLAMBEAU_CPU");
    int level = !wish ? 2 : !strcmp(wish, "baseline") ? 0 : !strcmp(wish, "avx2") ? 1 : 2;
#define HAS __builtin_cpu_supports
#ifdef FL_HAVE_AVX512
    if (level >= 2 && HAS("avx512f") && HAS("avx512vl") && HAS("avx512bw") && HAS("avx512dq")) *next++ = &fl_table_avx512;
#endif
#ifdef FL_HAVE_AVX2
    if (level >= 1 && HAS("avx2") && HAS("fma") && HAS("f16c")) *next++ = &fl_table_avx2;
#endif
    *next = &fl_table_baseline;
    (void)level;
}

static int collect_dtypes(void) {
    static const int number[FL_NTYPES] = {FL_NUMPY_NUMBERS};
    memset(fl_type_of_number, -1, sizeof fl_type_of_number);
    for (int t = 0; t < FL_NTYPES; t++) {
        if (t == FL_BF16) continue;
        fl_type_of_number[number[t]] = (signed char)t;
        if (!(fl_descr[t] = PyArray_DescrFromType(number[t]))) return -1;
    }
    /* C has two integer types of the same width, and NumPy keeps both: which one is NPY_INT64 depends on the platform. */
    fl_type_of_number[NPY_LONG] = sizeof(long) == 8 ? FL_I64 : FL_I32;
    fl_type_of_number[NPY_LONGLONG] = FL_I64, fl_type_of_number[NPY_INT] = FL_I32;
    return 0;
}

static PyObject *setup(PyObject *module, PyObject *args) {
    PyArray_Descr *bfloat16;
    PyObject *keeper = NULL;
    int cpus = 0;
    double memory = 0;
    if (!PyArg_ParseTuple(args, "O!|idO:setup", &PyArrayDescr_Type, &bfloat16, &cpus, &memory, &keeper)) return NULL;
    if (!PyTypeNum_ISUSERDEF(bfloat16->type_num))
        return PyErr_Format(PyExc_TypeError, "setup takes numpy.dtype(ml_dtypes.bfloat16), got %R", (PyObject *)bfloat16);
    fl_bfloat16_number = bfloat16->type_num;
    Py_XSETREF(fl_descr[FL_BF16], (PyArray_Descr *)Py_NewRef(bfloat16));
    if (cpus > 0) fl_set_available_cpus(cpus), fl_pool_set_memory(memory);
    if (keeper) Py_XSETREF(fl_keeper, Py_NewRef(keeper));
    Py_RETURN_NONE;
}

static PyObject *variant(PyObject *module, PyObject *unused) { return PyUnicode_FromString(fl_tables[0]->variant); }
static PyObject *get_num_threads(PyObject *module, PyObject *unused) { return PyLong_FromLong(fl_get_num_threads()); }
static PyObject *pool_trim(PyObject *module, PyObject *unused) { return fl_pool_trim(), Py_NewRef(Py_None); }

static PyObject *loops(PyObject *module, PyObject *unused) {
    static const char *const dtype[FL_NTYPES] = {FL_NAMES};
    PyObject *found = PyList_New(0);
    for (const fl_table *const *table = fl_tables; found && *table; table++)
        for (const fl_pointwise *e = (*table)->pointwise; found && e < (*table)->pointwise + (*table)->n_pointwise; e++) {
            PyObject *pair = Py_BuildValue("ss", e->name, dtype[e->key]);
            if (!pair || PyList_Append(found, pair) < 0) Py_CLEAR(found);
            Py_XDECREF(pair);
        }
    return found;
}

static PyObject *set_num_threads(PyObject *module, PyObject *number) {
    long n = PyLong_AsLong(number);
    if (n == -1 && PyErr_Occurred()) return NULL;
    if (n < 1) return PyErr_Format(PyExc_RuntimeError, "set_num_threads: expected a positive number of threads, got %ld", n);
    fl_set_num_threads((int)Py_MIN(n, INT32_MAX));
    Py_RETURN_NONE;
}

static PyObject *pool_stats(PyObject *module, PyObject *args) {
    int64_t live, cached, peak;
    int reset_peak = 0;
    if (!PyArg_ParseTuple(args, "|p:pool_stats", &reset_peak)) return NULL;
    fl_pool_stats(&live, &cached, &peak, reset_peak);
    return Py_BuildValue("{sLsLsL}", "live", (long long)live, "cached", (long long)cached, "peak", (long long)peak);
}

static PyObject *blas_bind(PyObject *module, PyObject *args) {
    unsigned long long f[6];
    if (!PyArg_ParseTuple(args, "KKKKKK:blas_bind", f, f + 1, f + 2, f + 3, f + 4, f + 5)) return NULL;
    fl_blas_bind((void *[]){(void *)f[0], (void *)f[1], (void *)f[2], (void *)f[3], (void *)f[4], (void *)f[5]}, fl_tables[0]->products);
    return PyBool_FromLong(f[0] || fl_tables[0]->products->strip);
}

static PyObject *address(PyObject *module, PyObject *array) {
    if (!PyArray_Check(array)) return PyErr_Format(PyExc_TypeError, "expected a numpy.ndarray, got %R", (PyObject *)Py_TYPE(array));
    return PyLong_FromVoidPtr(PyArray_DATA((PyArrayObject *)array));
}

#define FAST(name, function, doc) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, doc}
#define FL_GPU_ENTRY(name, flags, doc) {#name, (PyCFunction)(void (*)(void))fl_##name, flags, doc},
FL_GPU_METHODS(FL_DECLARE)
static PyMethodDef methods[] = {
    {"setup", setup, METH_VARARGS, "setup(dtype, cpus, bytes, keeper): ml_dtypes' bfloat16, what this process may use of the machine, and who is asked for memory."},
    {"variant", variant, METH_NOARGS, "The CPU variant in use: baseline, avx2 or avx512."},
    {"loops", loops, METH_NOARGS, "(name, dtype) of every loop that Kernel() finds, the best variant first."},
    {"load", fl_load, METH_O, "load(path): the loops in a shared object, for Kernel(). The path is bytes, and whoever wrote there can do all that you can."},
    {"set_num_threads", set_num_threads, METH_O, "set_num_threads(n): how many threads share large work."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "How many threads share large work."},
    {"pool_stats", pool_stats, METH_VARARGS, "pool_stats(reset_peak=False): bytes live, cached for reuse, and the peak of live."},
    {"pool_trim", pool_trim, METH_NOARGS, "Give all cached memory back to the system."},
    FAST("empty", fl_empty, "empty(shape, dtype): an uninitialised array in C order."),
    FAST("join", fl_join, "join(arrays, out, rows): the arrays, each of so many rows of memory, side by side; NotImplemented where they do not lie so."),
    {"address", address, METH_O, "The address of an array's first element: NumPy's own answers take 20 times as long."},
    FAST("strided_view", fl_strided_view, "strided_view(array, shape, strides, offset): the same memory, whose bounds are the caller's care."),
    {"blas_bind", blas_bind, METH_VARARGS, "blas_bind(*addresses) -> whether real products run compiled: see fl_blas_bind. Addresses are 0 where there is no library."},
    FAST("gemm", fl_gemm_into, "gemm(a, b, out, alpha, beta, row): out = alpha a @ b + beta row (or out, if that is None), for (M, K) x (K, N) or batches."),
    FAST("matmul", fl_matmul, "matmul(a, b): a @ b in a fresh array, for (M, K) x (K, N) or batches of them."),
    FAST("linear", fl_linear, "linear(input, weight, bias): input @ weight.T + bias; NotImplemented unless all are dense and of one real dtype."),
    {"fold", fl_fold_into, METH_VARARGS, "fold(name, x, (outer, n, inner), steps, out, shift or None, count, (again, step)) -> whether there is such a fold."},
    FAST("fold_all", fl_fold_all, "fold_all(name, x): the fold of all elements as a fresh array (); NotImplemented unless x is contiguous and there is one."),
    FAST("crc32", fl_crc32, "crc32(buffer, crc): zlib.crc32, faster; NotImplemented where this machine has no instruction for it."),
    FAST("read_summed", fl_read_summed, "read_summed(descriptor, place, buffer, crc) -> (bytes read, crc): fills the buffer from a file, and sums it."),
    FAST("copy_summed", fl_copy_summed, "copy_summed(mapped, place, buffer) -> crc: fills the buffer from a mapped file, and sums it; None if it cannot."),
    {"maker", fl_maker, METH_VARARGS, "maker(class, slots, n, values): a function of n values, for the first n slots of a new object."},
    {"furnish", fl_furnish, METH_VARARGS, "furnish(classes, plain, functions, modes, state, slots): what fronts and plans know of tensors and nodes, see eager/plans.py."},
    {"forget_plans", fl_forget_plans, METH_NOARGS, "forget_plans(): a setting has changed of which plans depend."},
    {"set_elsewhere", fl_set_elsewhere, METH_O, "set_elsewhere(type): the type of arrays on the only GPU there is; None if there is none, or several."},
    FL_GPU_METHODS(FL_GPU_ENTRY)
    FAST("draw", fl_draw, "draw(words, out, permutes): fill out with random words, or with the integers from 0 on, shuffled."),
    {"reject", fl_reject, METH_VARARGS, "reject(words, sampler, operands, out, waiting): fill out with Poisson (0), binomial (1) or gamma (2) numbers."},
    FAST("poll", fl_poll, "poll(test, stop, seconds, eager, any, *requests) -> whether all (or any) of MPI's requests are done; ends early if *stop."),
    {NULL, NULL, 0, NULL},
};

static int add_types(PyObject *module) {
    PyTypeObject *types[] = {&fl_kernel_type, &fl_plan_type, &fl_plans_type, &fl_front_type,
                             &fl_gpu_kernel_type, &fl_gpu_layout_type, &fl_gpu_formula_type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyModule_AddType(module, types[i]) < 0) return -1;
    return 0;
}

PyMODINIT_FUNC PyInit__native(void) {
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "flambeau.kernels._native", NULL, -1, methods};
    import_array1(NULL);
    choose_tables();
    PyObject *module = PyModule_Create(&definition);
    if (module && (collect_dtypes() < 0 || add_types(module) < 0)) Py_CLEAR(module);
    return module;
}
