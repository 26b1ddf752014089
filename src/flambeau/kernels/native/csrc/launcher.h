/* What the C files of the extension share: NumPy's C API, dtypes by fl_type, and arrays that live in the pool. */
#pragma once

#define PY_SSIZE_T_CLEAN
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL flambeau_numpy_api
#ifndef FL_IMPORTS_NUMPY /* module.c defines it: one file loads NumPy's function table, the others borrow it */
#define NO_IMPORT_ARRAY
#endif
#include <Python.h>
#include <numpy/arrayobject.h>

#include "loops.h"

extern const fl_table *fl_tables[4]; /* those this machine can run, the best first, then NULL */
extern PyArray_Descr *fl_descr[FL_NTYPES]; /* NumPy's dtype of each fl_type; bfloat16's is NULL until setup() brings it */
extern signed char fl_type_of_number[NPY_NTYPES_LEGACY]; /* the way back, from NumPy's type numbers; -1: not ours */
extern int fl_bfloat16_number;
extern PyObject *fl_keeper;

/* The fl_type of an array that loops may read as it stands: a dtype of ours, aligned, native byte order. Otherwise -1. */
static inline int fl_type_of(PyArrayObject *array) {
    PyArray_Descr *descr = PyArray_DESCR(array);
    if (!PyArray_ISALIGNED(array) || !PyArray_ISNBO(descr->byteorder)) return -1;
    if ((unsigned)descr->type_num < NPY_NTYPES_LEGACY) return fl_type_of_number[descr->type_num];
    return descr->type_num == fl_bfloat16_number ? FL_BF16 : -1;
}

/* A fresh, dense, uninitialised array. `strides` (bytes) may be NULL: C order. NULL with the keeper's error if there is no room. */
PyObject *fl_new_array(PyArray_Descr *descr, int ndim, const npy_intp *shape, const npy_intp *strides);

/* Write a Python number as `type`. False where PyTorch would promote instead, or where the integer does not fit. */
bool fl_store_number(PyObject *value, int type, void *cell);

/* Do the stretches of memory from first to last element meet? */
bool fl_overlap(PyArrayObject *a, PyArrayObject *b);

/* What Python calls: module.c has the list. */
typedef PyObject *fl_function(PyObject *module, PyObject *const *args, Py_ssize_t nargs);
fl_function fl_empty, fl_strided_view, fl_gemm_into, fl_matmul, fl_linear, fl_fold_all, fl_crc32, fl_read_summed, fl_copy_summed, fl_poll, fl_draw, fl_join;
PyObject *fl_fold_into(PyObject *module, PyObject *args), *fl_maker(PyObject *module, PyObject *args), *fl_furnish(PyObject *module, PyObject *args),
    *fl_reject(PyObject *module, PyObject *args), *fl_forget_plans(PyObject *module, PyObject *unused),
    *fl_set_elsewhere(PyObject *module, PyObject *type);
void fl_draw32(void *words, uint32_t *out, int64_t n); /* the next n words of a Generator */
PyObject *fl_load(PyObject *module, PyObject *path);
const fl_table *fl_table_of(PyObject *capsule); /* of what fl_load gave; NULL with an exception for anything else */
extern PyTypeObject fl_kernel_type, fl_plan_type, fl_plans_type, fl_front_type;

Py_ssize_t fl_slot_offset(PyTypeObject *type, PyObject *name); /* where in an object of this type the slot lies; -1 with an exception if there is none */
PyObject *fl_closure(PyMethodDef *definition, void *state); /* a builtin function that is called with `state`, which lives as long as the program */

static inline bool fl_takes(const char *signature, Py_ssize_t expected, Py_ssize_t found) {
    if (found != expected) PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", signature, expected, found);
    return found == expected;
}
