/* CRC-32 (zip's), many bytes at a time: fast enough to check a file while it is copied.

   A checksum is the remainder of the message, read as a polynomial over bits, modulo P. So 64 bytes may be replaced by any 64 bytes with
   the same remainder further on: multiply by x^distance mod P (carry-less, two halves of 64 bits each) and add to the bytes there. The
   message shrinks to its last 64 bytes, which the table does. Constants: x^(distance + 32) and x^(distance - 32) mod P, bits reversed.

   Copying waits for memory, and the sums are made meanwhile: 500 MB from the page cache, by two threads of a Zen 3, are copied in 33 ms and
   copied and summed in 34; read and then summed, chunk by chunk, in 49. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

#include "launcher.h"

enum { CHUNK = 1 << 17, FIRST = 256 }; /* so many bytes are in the vectors before the loop */

static uint32_t table[256];

static uint32_t bytewise(uint32_t crc, const uint8_t *p, size_t n) {
    for (const uint8_t *end = p + n; p < end; p++) crc = table[(crc ^ *p) & 255] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__)
#include <immintrin.h>
#define BY_512 0x1c6e41596, 0x154442bd4
#define BY_2048 0x1322d1430, 0x11542778a

/* All begin with 64 bytes of message in `last` and leave 64 bytes that stand for all that was read; they return where they stopped. */
__attribute__((target("pclmul,sse4.1"))) static const uint8_t *fold(uint8_t last[64], const uint8_t *p, const uint8_t *end) {
    const __m128i k = _mm_set_epi64x(BY_512);
    __m128i x[4];
    memcpy(x, last, 64);
    for (; end - p >= 64; p += 64)
        for (int i = 0; i < 4; i++) {
            __m128i moved = _mm_xor_si128(_mm_clmulepi64_si128(x[i], k, 0x00), _mm_clmulepi64_si128(x[i], k, 0x11));
            x[i] = _mm_xor_si128(moved, _mm_loadu_si128((const __m128i *)p + i));
        }
    return memcpy(last, x, 64), p;
}

/* 256 bytes at a time, in as many vectors as fill the units' pipelines. With `to`, what is read is written there, past the caches. */
#define FOLD(NAME, TARGET, VECTOR, COUNT, STEP, LOAD, STORE, STREAM, REPEAT, MOVED)                                      \
    __attribute__((target(TARGET))) static const uint8_t *NAME(uint8_t last[64], const uint8_t *p, const uint8_t *end, VECTOR *to) { \
        if (end - p < 448) return p;                                                                                     \
        const VECTOR far = REPEAT(_mm_set_epi64x(BY_2048)), near = REPEAT(_mm_set_epi64x(BY_512));                       \
        VECTOR x[COUNT], new;                                                                                            \
        for (int i = 0; i < COUNT; i++) x[i] = LOAD(i < STEP ? (void *)((VECTOR *)last + i) : (void *)((VECTOR *)p + i - STEP)); \
        for (p += 192; end - p >= 256 && !to; p += 256)                                                                  \
            for (int i = 0; i < COUNT; i++) x[i] = MOVED(x[i], far, LOAD((void *)((VECTOR *)p + i)));                    \
        for (; end - p >= 256; p += 256)                                                                                 \
            for (int i = 0; i < COUNT; i++) STREAM((void *)to++, new = LOAD((void *)((VECTOR *)p + i))), x[i] = MOVED(x[i], far, new); \
        for (int i = 0; i + STEP < COUNT; i++) x[i + STEP] = MOVED(x[i], near, x[i + STEP]);                             \
        for (int i = 0; i < STEP; i++) STORE((void *)((VECTOR *)last + i), x[COUNT - STEP + i]);                         \
        return p;                                                                                                        \
    }
#define MOVED_256(x, k, onto) _mm256_xor_si256(_mm256_xor_si256(_mm256_clmulepi64_epi128(x, k, 0x00), _mm256_clmulepi64_epi128(x, k, 0x11)), onto)
#define MOVED_512(x, k, onto) _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), onto, 0x96)
FOLD(fold_256, "avx2,vpclmulqdq", __m256i, 8, 2, _mm256_loadu_si256, _mm256_storeu_si256, _mm256_stream_si256, _mm256_broadcastsi128_si256, MOVED_256)
FOLD(fold_512, "avx512f,vpclmulqdq", __m512i, 4, 1, _mm512_loadu_si512, _mm512_storeu_si512, _mm512_stream_si512, _mm512_broadcast_i32x4, MOVED_512)
#endif

static int able; /* to multiply without carries so many bits at a time */
static void prepare(void) {
#if defined(__x86_64__)
    able = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1") ? 128 : 0;
    if (able && __builtin_cpu_supports("vpclmulqdq") && strcmp(fl_tables[0]->variant, "baseline"))
        able = strcmp(fl_tables[0]->variant, "avx512") ? 256 : 512;
#endif
    for (uint32_t i = 0; i < 256 && !table[255]; i++) {
        uint32_t rest = i;
        for (int bit = 0; bit < 8; bit++) rest = rest >> 1 ^ (rest & 1 ? 0xedb88320u : 0);
        table[i] = rest;
    }
}

/* All bits inverted. With `to`, at a multiple of 64, the bytes are copied there. */
static uint32_t go_on(uint32_t crc, const uint8_t *p, size_t n, uint8_t *to) {
    const uint8_t *begin = p, *end = p + n;
#if defined(__x86_64__)
    if (able && n >= 128) {
        uint8_t last[64];
        memcpy(last, p, 64), p += 64;
        for (int i = 0; i < 4; i++) last[i] ^= (uint8_t)(crc >> 8 * i);
        void *stream = to && n >= 2 * FIRST ? (uint8_t *)memcpy(to, begin, FIRST) + FIRST : NULL;
        p = able == 512 ? fold_512(last, p, end, stream) : able == 256 ? fold_256(last, p, end, stream) : p;
        if (stream && able > 128) to += p - begin, begin = p, _mm_sfence();
        p = fold(last, p, end);
        crc = bytewise(0, last, 64);
    }
#endif
    if (to) memcpy(to, begin, (size_t)(end - begin));
    return bytewise(crc, p, (size_t)(end - p));
}

/* crc32(buffer, crc): as zlib.crc32; NotImplemented on a machine without carry-less products, where zlib is as good. */
PyObject *fl_crc32(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    Py_buffer buffer;
    if (!fl_takes("crc32(buffer, crc)", 2, nargs)) return NULL;
    uint32_t crc = ~(uint32_t)PyLong_AsUnsignedLongMask(args[1]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &buffer, PyBUF_SIMPLE) < 0) return NULL;
    prepare();
    Py_BEGIN_ALLOW_THREADS
    crc = go_on(crc, buffer.buf, (size_t)buffer.len, NULL);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&buffer);
    return able ? PyLong_FromUnsignedLong(~crc & 0xffffffffu) : Py_NewRef(Py_NotImplemented);
}

/* read_summed(descriptor, place, buffer, crc) -> (bytes read, checksum continued): fewer bytes than the buffer has if the file ends. Each
   chunk is summed while it is in the cache. */
PyObject *fl_read_summed(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    Py_buffer buffer;
    if (!fl_takes("read_summed(descriptor, place, buffer, crc)", 4, nargs)) return NULL;
    int descriptor = (int)PyLong_AsLong(args[0]);
    long long place = PyLong_AsLongLong(args[1]);
    uint32_t crc = ~(uint32_t)PyLong_AsUnsignedLongMask(args[3]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[2], &buffer, PyBUF_WRITABLE) < 0) return NULL;
    Py_ssize_t done = 0;
    ssize_t got = 0;
    prepare();
    Py_BEGIN_ALLOW_THREADS
    while (done < buffer.len) {
        got = pread(descriptor, (char *)buffer.buf + done, (size_t)Py_MIN(buffer.len - done, CHUNK), (off_t)(place + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        crc = go_on(crc, (const uint8_t *)buffer.buf + done, (size_t)got, NULL), done += got;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&buffer);
    if (got < 0) return PyErr_SetFromErrno(PyExc_OSError);
    return Py_BuildValue("nk", done, (unsigned long)(~crc & 0xffffffffu));
}

/* The pages of a mapped file are gone when somebody cuts the file short, or its disk fails: reading them is a SIGBUS, which ends the copy
   and not the process. A signal that was not ours goes to whoever had it before. */
static _Thread_local sigjmp_buf *volatile rescue;
static struct sigaction others;

static void on_bus_error(int number, siginfo_t *info, void *context) {
    if (rescue) siglongjmp(*rescue, 1);
    sigaction(number, &others, NULL);
    raise(number);
}

static void watch(void) {
    struct sigaction now, ours = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    sigaction(SIGBUS, NULL, &now);
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_bus_error) others = now, sigaction(SIGBUS, &ours, NULL);
}

/* copy_summed(mapped, place, buffer) -> the checksum of what was copied, None if the file could not be read to the end. */
PyObject *fl_copy_summed(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    Py_buffer from, to;
    if (!fl_takes("copy_summed(mapped, place, buffer)", 3, nargs)) return NULL;
    Py_ssize_t place = PyLong_AsSsize_t(args[1]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &from, PyBUF_SIMPLE) < 0) return NULL;
    if (PyObject_GetBuffer(args[2], &to, PyBUF_WRITABLE) < 0) return PyBuffer_Release(&from), NULL;
    bool fits = place >= 0 && place <= from.len - to.len && (uintptr_t)to.buf % 64 == 0;
    volatile uint32_t crc = 0;
    volatile bool done = false;
    prepare(), watch();
    Py_BEGIN_ALLOW_THREADS
    sigjmp_buf here;
    if (fits && !sigsetjmp(here, 1)) rescue = &here, crc = go_on(~crc, (uint8_t *)from.buf + place, (size_t)to.len, to.buf), done = true;
    rescue = NULL;
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&from), PyBuffer_Release(&to);
    return done ? PyLong_FromUnsignedLong(~crc & 0xffffffffu) : Py_NewRef(Py_None);
}
