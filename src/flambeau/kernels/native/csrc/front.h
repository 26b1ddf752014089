/* What the parts of the front share: what a call looks like, plans, and what the house has told us about its objects. */
#pragma once
#include "launcher.h"

enum { MOST_WORDS = 192, MOST_SLOTS = 60, MOST_GIVEN = 64 };
#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

/* Of a tensor; the two after these, of a storage; the last, of a node. */
enum { ARRAY, BASE, INFERENCE, NEEDS, NODE, NR, STAMP, STORAGE, VIEW_MODE, VERSION, CHANGED_AT, SAVED, N_SLOTS };
typedef struct {
    PyTypeObject *tensor, *size, *elsewhere; /* `elsewhere`: arrays on the only GPU there is, if there is one */
    PyObject *plain, *lasting;                       /* sets of types: of tensors that have no say of their own; of what lives as long as the program, like dtypes */
    PyObject *wrap, *wrap_view, *store, *next, *as_array, *share, *kept, *out_of_memory, *shared_storage, *copy, *package;
    PyObject *modes, *state; /* modes.py: its variables, and the settings of the thread */
    Py_ssize_t at[N_SLOTS];
} House;
extern House fl_house;

/* A call in a few words, and the tensors among its arguments, those in lists among the others. */
typedef struct {
    int64_t word[MOST_WORDS];
    PyObject *tensor[MOST_SLOTS];
    int n, n_tensors, by_kind, n_numbers; /* by_kind: of so many arguments, the first ones, only the kind counts: dtypes, and types of numbers;
                                         n_numbers: so many of these there are */
    int64_t wanting;           /* which of the tensors require a gradient, a bit each */
    bool full, wants;          /* wants: whether one does, and operations are recorded */
} Look;
enum { FAILED = -1, UNKNOWN = 0, SEEN = 1 };
int fl_look(Look *look, PyObject *const *args, Py_ssize_t nargs, PyObject *names);

/* A plan that was made by eager/plans.py. NotImplemented where it does not hold for this call after all. */
PyObject *fl_plan_run(PyObject *plan, Look *look, PyObject *const *args);
extern PyTypeObject fl_plan_type, fl_front_type, fl_plans_type;

PyObject *fl_plans_find(PyObject *plans, const Look *look); /* borrowed; NULL: not there */
int fl_plans_put(PyObject *plans, const Look *look, PyObject *plan);

bool fl_is_recording(void);
static inline PyObject *fl_of(PyObject *object, int slot) { return SLOT(object, fl_house.at[slot]); }
