/* Poisson, binomial and gamma numbers one by one, from the words of a Generator: rejection.py tells how, and does the same without a compiler. */
#include "launcher.h"
#include <math.h>

#ifdef __clang__ /* every product and every sum is rounded, so that the numbers are the same bits on every machine */
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

typedef struct { void *words; double *waiting; } Source; /* waiting: the second of a pair of normal numbers, or NaN */

static double unit(Source *s) {
    uint32_t word[2];
    fl_draw32(s->words, word, 2);
    return (double)(((uint64_t)word[0] << 32 | word[1]) & 0x1FFFFFFFFFFFFF) * 0x1p-53;
}

static double normal(Source *s) {
    double found = *s->waiting;
    *s->waiting = NAN;
    if (!isnan(found)) return found;
    double theta = 6.283185307179586 * unit(s), radius = sqrt(-2 * log1p(-unit(s)));
    *s->waiting = radius * sin(theta);
    return radius * cos(theta);
}

/* A sampler finds what rejection.py has prepared for one place of the result in x[0], x[n], x[2 n] ... */

static double poisson(Source *s, const double *x, npy_intp n) {
    double rate = *x;
    if (rate == 0 || isinf(rate)) return rate;
    if (rate < 10) {
        double bound = exp(-rate), product = unit(s), count = 0;
        for (; product > bound; count++) product *= unit(s);
        return count;
    }
    double b = 0.931 + 2.53 * sqrt(rate), a = -0.059 + 0.02483 * b, inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), quick = 0.9277 - 3.6224 / (b - 2);
    for (;;) {
        double u = unit(s) - 0.5, v = unit(s), edge = 0.5 - fabs(u), k = floor((2 * a / edge + b) * u + rate + 0.43);
        if (edge >= 0.07 && v <= quick) return k;
        if (k < 0 || (edge < 0.013 && v > edge)) continue;
        if (log(v) + log(inverse_alpha) - log(a / (edge * edge) + b) <= -rate + k * log(rate) - lgamma(k + 1)) return k;
    }
}

static double stirling_tail(double k) {
    double next = k + 1, square = next * next;
    if (k < 10) return lgamma(next) - ((k + 0.5) * log(next) - next + 0.9189385332046727);
    return (1. / 12 - (1. / 360 - 1. / 1260 / square) / square) / next;
}

static double binomial(Source *s, const double *x, npy_intp step) {
    double n = x[0], p = x[step], mean = x[2 * step], deviation = x[3 * step], odds = x[4 * step], mode = x[5 * step], log_failure = x[6 * step];
    if (!(n > 0 && p > 0)) return 0;
    if (!(mean >= 10)) {
        double trials = 0, successes = -1;
        for (; trials <= n; successes++) trials += ceil(log(unit(s)) / log_failure);
        return successes;
    }
    double b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p, centre = mean + 0.5, quick = 0.92 - 4.2 / b;
    double alpha = (2.83 + 5.1 / b) * deviation;
    for (;;) {
        double u = unit(s) - 0.5, v = unit(s), edge = 0.5 - fabs(u), k = floor((2 * a / edge + b) * u + centre);
        if (k < 0 || k > n) continue;
        if (edge >= 0.07 && v <= quick) return k;
        double bound = (mode + 0.5) * log((mode + 1) / (odds * (n - mode + 1))) + (n + 1) * log((n - mode + 1) / (n - k + 1))
            + (k + 0.5) * log(odds * (n - k + 1) / (k + 1)) + (stirling_tail(mode) + stirling_tail(n - mode) - stirling_tail(k) - stirling_tail(n - k));
        if (log(v * alpha / (a / (edge * edge) + b)) <= bound) return k;
    }
}

static double gamma_number(Source *s, const double *operands, npy_intp n) {
    double d = operands[0], c = operands[n], power = operands[2 * n];
    if (d == 0) return 0;
    double scale = power ? pow(1 - unit(s), power) : 1;
    for (;;) {
        double x = normal(s), y = 1 + c * x;
        if (y <= 0) continue;
        double v = y * y * y, u = 1 - unit(s), square = x * x;
        if (u < 1 - (double)0.0331f * square * square || log(u) < 0.5 * square + d * (1 - v + log(v))) return scale * d * v;
    }
}

static bool is(PyArrayObject *a, int type, npy_intp size) { return PyArray_ISCARRAY(a) && PyArray_TYPE(a) == type && PyArray_SIZE(a) == size; }

PyObject *fl_reject(PyObject *module, PyObject *args) {
    static double (*const samplers[])(Source *, const double *, npy_intp) = {poisson, binomial, gamma_number};
    static const int rows[] = {1, 7, 3};
    PyArrayObject *words, *operands, *out, *waiting;
    int which;
    if (!PyArg_ParseTuple(args, "O!iO!O!O!:reject", &PyArray_Type, &words, &which, &PyArray_Type, &operands, &PyArray_Type, &out, &PyArray_Type, &waiting))
        return NULL;
    npy_intp n = PyArray_SIZE(out);
    if (which < 0 || which > 2 || !is(words, NPY_UINT32, 626) || !is(operands, NPY_DOUBLE, rows[which] * n) || !is(out, NPY_DOUBLE, n) || !is(waiting, NPY_DOUBLE, 1))
        return PyErr_Format(PyExc_TypeError, "expected the words of a Generator, a sampler 0 to 2, its operands for each place of out, and one number that waits");
    double *o = PyArray_DATA(out), *x = PyArray_DATA(operands);
    Source source = {PyArray_DATA(words), PyArray_DATA(waiting)};
    Py_BEGIN_ALLOW_THREADS
    for (npy_intp i = 0; i < n; i++) o[i] = samplers[which](&source, x + i, n);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
