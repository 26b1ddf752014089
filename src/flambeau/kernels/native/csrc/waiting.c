/* Waiting for requests of MPI while Python goes on. The library is loaded at run time or never, so its MPI_Test comes as an address. */
#include "launcher.h"

#include <sched.h>
#include <time.h>

typedef int mpi_test(void *request, int *done, void *status);
enum { STATUS_BYTES = 256 }; /* no MPI has a larger MPI_Status; nobody reads it here */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Each look at the requests moves the messages of the whole process on. At first looks follow at once, then others may run in
   between, then this thread sleeps a little longer each time: a rank that computes should not pay for one that waits. */
static void rest(double waited, double eager) {
    if (waited < eager) return;
    if (waited < 20 * eager) {
        sched_yield();
        return;
    }
    struct timespec pause = {0, waited < 0.05 ? 20000 : 200000};
    nanosleep(&pause, NULL);
}

PyObject *fl_poll(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    enum { FIXED = 5, MOST = 1024 };
    void *requests[MOST];
    if (nargs < FIXED || nargs - FIXED > MOST)
        return PyErr_Format(PyExc_TypeError, "poll(test, stop, seconds, eager, any, *requests) takes up to %d requests, got %zd", (int)MOST, nargs - FIXED);
    mpi_test *test = (mpi_test *)PyLong_AsVoidPtr(args[0]);
    const volatile char *stop = PyLong_AsVoidPtr(args[1]);
    double seconds = PyFloat_AsDouble(args[2]), eager = PyFloat_AsDouble(args[3]);
    int any = PyObject_IsTrue(args[4]), count = (int)(nargs - FIXED), error = 0, finished = 0;
    for (int i = 0; i < count; i++) requests[i] = PyLong_AsVoidPtr(args[FIXED + i]);
    if (PyErr_Occurred()) return NULL;
    int64_t status[STATUS_BYTES / 8];
    Py_BEGIN_ALLOW_THREADS
    double start = now(), waited = 0;
    while (!error && !*stop) {
        int left = 0;
        for (int i = 0; i < count && !error; i++) {
            int done = 1;
            if (requests[i] && (error = test(requests[i], &done, status))) break;
            if (!done) left++;
            else requests[i] = NULL;
        }
        finished = any ? left < count : left == 0;
        if (finished || waited >= seconds) break;
        rest(waited = now() - start, eager);
    }
    Py_END_ALLOW_THREADS
    if (error) return PyErr_Format(PyExc_RuntimeError, "MPI_Test failed with error %d", error);
    return PyBool_FromLong(finished);
}
