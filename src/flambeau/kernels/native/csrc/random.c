/* The Mersenne Twister at the speed of C, on the words of a Generator (generators.py tells how it works). What the words become is the
   business of generated loops, see random_loops.py; shuffling goes one by one and stays here, as what is drawn until it fits is in rejection.c. */
#include "launcher.h"

typedef struct { uint32_t word[624], left, next; } Twister; /* the memory of Generator.words */

#define MIX(i, j) (((w[i] & 0x80000000u) | (w[j] & 0x7fffffffu)) >> 1 ^ (-(w[j] & 1u) & 0x9908b0dfu))
static void twist(Twister *g) {
    uint32_t *w = g->word;
    for (int i = 0; i < 227; i++) w[i] = w[i + 397] ^ MIX(i, i + 1);
    for (int i = 227; i < 623; i++) w[i] = w[i - 227] ^ MIX(i, i + 1);
    w[623] = w[396] ^ MIX(623, 0);
    g->left = 625, g->next = 0;
}

void fl_draw32(void *words, uint32_t *out, int64_t n) {
    Twister *g = words;
    while (n > 0) {
        if (g->left == 1) twist(g);
        const uint32_t *w = g->word + g->next;
        uint32_t take = n < g->left - 1 ? (uint32_t)n : g->left - 1;
        for (uint32_t i = 0; i < take; i++) {
            uint32_t y = w[i] ^ w[i] >> 11;
            y ^= y << 7 & 0x9d2c5680u, y ^= y << 15 & 0xefc60000u;
            out[i] = y ^ y >> 18;
        }
        out += take, n -= take, g->next += take, g->left -= take;
    }
}

/* For n below 2^32 / 20: beyond, the remainder of a 32-bit word would be uneven, and PyTorch goes another way. */
static void permute(Twister *g, int64_t *out, int64_t n) {
    uint32_t words[512]; /* drawn together: tempering one word by itself takes as long as the exchange */
    for (int64_t i = 0; i < n; i++) out[i] = i;
    for (int64_t i = 0; i + 1 < n; i++) {
        if (i % 512 == 0) fl_draw32(g, words, n - 1 - i < 512 ? n - 1 - i : 512);
        int64_t kept = out[i], other = i + words[i % 512] % (uint32_t)(n - i);
        out[i] = out[other], out[other] = kept;
    }
}

static void draw(Twister *g, PyArrayObject *out, npy_intp size, npy_intp n, bool permutes) {
    if (permutes) permute(g, PyArray_DATA(out), n);
    else fl_draw32(g, PyArray_DATA(out), n * size / 4);
    for (uint64_t *word = PyArray_DATA(out), *end = word + n; !permutes && size == 8 && word < end; word++)
        *word = *word << 32 | *word >> 32; /* of 64 bits, the earlier word goes on top */
}

PyObject *fl_draw(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    if (!fl_takes("draw(words, out, permutes)", 3, nargs)) return NULL;
    if (!PyArray_Check(args[0]) || !PyArray_Check(args[1])) return PyErr_Format(PyExc_TypeError, "draw takes arrays");
    PyArrayObject *words = (PyArrayObject *)args[0], *out = (PyArrayObject *)args[1];
    const bool permutes = args[2] == Py_True;
    npy_intp size = PyArray_ITEMSIZE(out), n = PyArray_SIZE(out);
    if ((size != 8 && (size != 4 || permutes)) || PyArray_NBYTES(words) != sizeof(Twister) || !PyArray_ISCARRAY(words) || !PyArray_ISCARRAY(out))
        return PyErr_Format(PyExc_TypeError, "expected the words of a Generator and a contiguous array of 32- or 64-bit elements");
    Twister *g = PyArray_DATA(words);
    PyThreadState *paused = n > 4096 ? PyEval_SaveThread() : NULL; /* a few take less time than that */
    draw(g, out, size, n, permutes);
    if (paused) PyEval_RestoreThread(paused);
    Py_RETURN_NONE;
}
