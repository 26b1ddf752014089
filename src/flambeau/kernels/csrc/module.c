/* flambeau.kernels._native: what Python sees of the compiled part. Each file brings its own functions; this one brings
   the dtypes, the choice of CPU variant, and the knobs of threads and memory. */
#define FL_IMPORTS_NUMPY
#include "launcher.h"

#include "pool.h"
#include "threads.h"

PyArray_Descr *fl_descr[FL_NTYPES];
signed char fl_type_of_number[NPY_NTYPES_LEGACY];
int fl_bfloat16_number = -2; /* -1 is what NumPy's newest dtypes have */
const fl_table *fl_tables[4];

extern const fl_table fl_table_baseline, fl_table_avx2, fl_table_avx512;
extern PyMethodDef fl_array_methods[], fl_gemm_methods[], fl_fold_methods[], fl_rows_methods[], fl_random_methods[];

/* FLAMBEAU_CPU=baseline or avx2 asks for less than the machine can do: to compare, or to reproduce a result elsewhere. */
static void choose_tables(void) {
    const fl_table **next = fl_tables;
    const char *wish = getenv("FLAMBEAU_CPU");
    int level = !wish ? 2 : !strcmp(wish, "baseline") ? 0 : !strcmp(wish, "avx2") ? 1 : 2;
#ifdef FL_HAVE_AVX512
    if (level >= 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        *next++ = &fl_table_avx512;
#endif
#ifdef FL_HAVE_AVX2
    if (level >= 1 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        *next++ = &fl_table_avx2;
#endif
    *next = &fl_table_baseline;
    (void)level;
}

static int collect_dtypes(void) {
    static const int number[FL_NTYPES] = {NPY_BOOL,  NPY_UINT8, NPY_INT8,    NPY_INT16,   NPY_INT32,     NPY_INT64,
                                          NPY_FLOAT16, -1,      NPY_FLOAT32, NPY_FLOAT64, NPY_COMPLEX64, NPY_COMPLEX128};
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

static PyObject *setup(PyObject *module, PyObject *bfloat16) {
    if (!PyArray_DescrCheck(bfloat16) || !PyTypeNum_ISUSERDEF(((PyArray_Descr *)bfloat16)->type_num))
        return PyErr_Format(PyExc_TypeError, "setup takes numpy.dtype(ml_dtypes.bfloat16), got %R", bfloat16);
    fl_bfloat16_number = ((PyArray_Descr *)bfloat16)->type_num;
    Py_INCREF(bfloat16);
    Py_XSETREF(fl_descr[FL_BF16], (PyArray_Descr *)bfloat16);
    Py_RETURN_NONE;
}

static PyObject *variant(PyObject *module, PyObject *unused) { return PyUnicode_FromString(fl_tables[0]->variant); }

static PyObject *kernel_names(PyObject *module, PyObject *unused) {
    PyObject *names = PySet_New(NULL);
    for (const fl_table *const *table = fl_tables; names && *table; table++)
        for (int i = 0; names && i < (*table)->n_pointwise; i++) {
            PyObject *name = PyUnicode_FromString((*table)->pointwise[i].name);
            if (!name || PySet_Add(names, name) < 0) Py_CLEAR(names);
            Py_XDECREF(name);
        }
    return names;
}

static PyObject *set_num_threads(PyObject *module, PyObject *number) {
    long n = PyLong_AsLong(number);
    if (n == -1 && PyErr_Occurred()) return NULL;
    if (n < 1) return PyErr_Format(PyExc_RuntimeError, "set_num_threads: expected a positive number of threads, got %ld", n);
    fl_set_num_threads((int)Py_MIN(n, INT32_MAX));
    Py_RETURN_NONE;
}

static PyObject *get_num_threads(PyObject *module, PyObject *unused) { return PyLong_FromLong(fl_get_num_threads()); }
static PyObject *available_cpus(PyObject *module, PyObject *unused) { return PyLong_FromLong(fl_available_cpus()); }

static PyObject *pool_stats(PyObject *module, PyObject *unused) {
    int64_t live, cached, peak;
    fl_pool_stats(&live, &cached, &peak);
    return Py_BuildValue("{sLsLsL}", "live", (long long)live, "cached", (long long)cached, "peak", (long long)peak);
}

static PyObject *pool_reset_peak(PyObject *module, PyObject *unused) { return fl_pool_reset_peak(), Py_NewRef(Py_None); }
static PyObject *pool_trim(PyObject *module, PyObject *unused) { return fl_pool_trim(), Py_NewRef(Py_None); }

static PyMethodDef module_methods[] = {
    {"setup", setup, METH_O, "setup(dtype): make ml_dtypes' bfloat16 known."},
    {"variant", variant, METH_NOARGS, "The CPU variant in use: baseline, avx2 or avx512."},
    {"kernel_names", kernel_names, METH_NOARGS, "The set of names that Kernel() takes."},
    {"set_num_threads", set_num_threads, METH_O, "set_num_threads(n): how many threads share large work."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "How many threads share large work."},
    {"available_cpus", available_cpus, METH_NOARGS, "CPUs this process may use: affinity and the container's quota."},
    {"pool_stats", pool_stats, METH_NOARGS, "Bytes of the memory pool: live, cached for reuse, and the peak of live."},
    {"pool_reset_peak", pool_reset_peak, METH_NOARGS, "Begin a new peak at what is live now."},
    {"pool_trim", pool_trim, METH_NOARGS, "Give all cached memory back to the system."},
    {NULL, NULL, 0, NULL},
};

PyMODINIT_FUNC PyInit__native(void) {
    static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "flambeau.kernels._native", NULL, -1, NULL};
    static PyMethodDef *const methods[] = {module_methods, fl_array_methods, fl_gemm_methods, fl_fold_methods, fl_rows_methods, fl_random_methods};
    import_array1(NULL);
    choose_tables();
    PyObject *module = PyModule_Create(&definition);
    if (!module || collect_dtypes() < 0) goto failed;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (PyModule_AddFunctions(module, methods[i]) < 0) goto failed;
    if (PyModule_AddType(module, &fl_kernel_type) < 0 || PyModule_AddType(module, &fl_block_type) < 0) goto failed;
    return module;
failed:
    Py_XDECREF(module);
    return NULL;
}
