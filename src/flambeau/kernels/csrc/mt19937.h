/* Random numbers at the speed of C: the words of random.py and the roundings of kernels/sampling.py, which tell the why.
   Every product below that meets a sum is exact or inside an fma, so no compiler flag can change a bit. fma must be the CPU's
   own instruction to be fast: on x86-64 MT_FAST compiles a loop twice, with and without it, and picks when called. */
#ifndef FLAMBEAU_MT19937_H
#define FLAMBEAU_MT19937_H
#include <math.h>
#include <stddef.h>
#include <stdint.h>

typedef struct { uint32_t word[624], left, next; } mt19937; /* the memory of Generator.words */

#define MT_LOOP static inline __attribute__((always_inline)) void
#if defined(__x86_64__) && defined(__GNUC__)
#define MT_FAST(name, params, ...) \
    __attribute__((target("avx2,fma"))) static void name##_fma params { name##_loop(__VA_ARGS__); } \
    static inline void name params { \
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) name##_fma(__VA_ARGS__); \
        else name##_loop(__VA_ARGS__); \
    }
#else
#define MT_FAST(name, params, ...) static inline void name params { name##_loop(__VA_ARGS__); }
#endif

#define MT_MIX(i, j) (((w[i] & 0x80000000u) | (w[j] & 0x7fffffffu)) >> 1 ^ (-(w[j] & 1u) & 0x9908b0dfu))
static inline void mt19937_twist(mt19937 *g) {
    uint32_t *w = g->word;
    for (int i = 0; i < 227; i++) w[i] = w[i + 397] ^ MT_MIX(i, i + 1);
    for (int i = 227; i < 623; i++) w[i] = w[i - 227] ^ MT_MIX(i, i + 1);
    w[623] = w[396] ^ MT_MIX(623, 0);
    g->left = 625, g->next = 0;
}

static inline void mt19937_u32(mt19937 *g, uint32_t *out, ptrdiff_t n) {
    while (n > 0) {
        if (g->left == 1) mt19937_twist(g);
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

static inline void mt19937_u64(mt19937 *g, uint64_t *out, ptrdiff_t n) {
    uint32_t pair[512];
    for (ptrdiff_t k; n > 0; out += k, n -= k) {
        mt19937_u32(g, pair, 2 * (k = n < 256 ? n : 256));
        for (ptrdiff_t i = 0; i < k; i++) out[i] = (uint64_t)pair[2 * i] << 32 | pair[2 * i + 1];
    }
}

/* Uniforms to normal values, whole blocks of 16: _log32 and _sincos32 of sampling.py, eight lanes side by side. */
MT_LOOP mt_box_muller_f32_loop(float *d, ptrdiff_t n, float mean, float std) {
    for (float *end = d + n; d < end; d += 16)
        for (int j = 0; j < 8; j++) {
            union { float f; uint32_t bits; } u = {1.0f - d[j]};
            int32_t e = (int32_t)(u.bits >> 23) - 126;
            u.bits = (u.bits & 0x7fffffu) | 0x3f000000u;
            int small = u.f < 0.707106781186547524f;
            float m = (small ? u.f + u.f : u.f) - 1.0f, z = m * m, q = (float)(e - small);
            float p = fmaf(fmaf(fmaf(7.0376836292e-2f, m, -1.1514610310e-1f), m, 1.1676998740e-1f), m, -1.2420140846e-1f);
            p = fmaf(fmaf(fmaf(p, m, 1.4249322787e-1f), m, -1.6668057665e-1f), m, 2.0000714765e-1f);
            p = fmaf(fmaf(p, m, -2.4999993993e-1f), m, 3.3333331174e-1f) * m;
            p = fmaf(p, z, q * -2.12194440e-4f) - 0.5f * z;
            float radius = sqrtf(-2.0f * fmaf(q, 0.693359375f, m + p)), x = d[j + 8] * 6.28318530717958647692f;
            int32_t octant = ((int32_t)(x * 1.27323954473516f) + 1) & ~1;
            q = (float)octant;
            x = fmaf(q, -3.77489497744594108e-8f, fmaf(q, -2.4187564849853515625e-4f, fmaf(q, -0.78515625f, x)));
            z = x * x;
            float c = fmaf(fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f) * z;
            float s = fmaf(fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f) * z;
            c = fmaf(c, z, -0.5f * z) + 1.0f, s = fmaf(s, x, x);
            float sine = octant & 2 ? c : s, cosine = octant & 2 ? s : c;
            d[j] = fmaf(radius * ((octant + 2) & 4 ? -cosine : cosine), std, mean);
            d[j + 8] = fmaf(radius * (octant & 4 ? -sine : sine), std, mean);
        }
}
MT_FAST(mt_box_muller_f32, (float *d, ptrdiff_t n, float mean, float std), d, n, mean, std)

static inline void mt_box_muller_f64(double *d, ptrdiff_t n, double mean, double std) {
    for (double *end = d + n; d < end; d += 16)
        for (int j = 0; j < 8; j++) {
            double radius = sqrt(-2.0 * log(1.0 - d[j])), theta = 6.28318530717958647692 * d[j + 8];
            d[j] = fma(radius * cos(theta), std, mean), d[j + 8] = fma(radius * sin(theta), std, mean);
        }
}

/* mt19937_uniform_* and mt19937_normal_*; the latter for n >= 16. If 16 does not divide n, the last 16 are drawn anew. */
#define MT_REAL(type, real, bits, digits, fma) \
    MT_LOOP mt_affine_##type##_loop(real *out, const uint##bits##_t *word, ptrdiff_t n, real low, real high) { \
        for (ptrdiff_t i = 0; i < n; i++) { \
            real u = (real)(int##bits##_t)(word[i] & ((1ull << digits) - 1)) / (1ull << digits), x = fma(u, high - low, low); \
            out[i] = x == high ? low : x; \
        } \
    } \
    MT_FAST(mt_affine_##type, (real *out, const uint##bits##_t *word, ptrdiff_t n, real low, real high), out, word, n, low, high) \
    static inline void mt19937_uniform_##type(mt19937 *g, real *out, ptrdiff_t n, real low, real high) { \
        uint##bits##_t word[512]; \
        for (ptrdiff_t k; n > 0; out += k, n -= k) { \
            mt19937_u##bits(g, word, k = n < 512 ? n : 512); \
            mt_affine_##type(out, word, k, low, high); \
        } \
    } \
    static inline void mt19937_normal_##type(mt19937 *g, real *out, ptrdiff_t n, real mean, real std) { \
        mt19937_uniform_##type(g, out, n, 0, 1), mt_box_muller_##type(out, n & ~(ptrdiff_t)15, mean, std); \
        if (n & 15) mt19937_uniform_##type(g, out += n - 16, 16, 0, 1), mt_box_muller_##type(out, 16, mean, std); \
    }
MT_REAL(f32, float, 32, 24, fmaf)
MT_REAL(f64, double, 64, 53, fma)

static inline void mt19937_permutation(mt19937 *g, int64_t *out, ptrdiff_t n) {
    int few = n < UINT32_MAX / 20; /* beyond, the remainder of a 32-bit word would be uneven */
    for (ptrdiff_t i = 0; i < n; i++) out[i] = i;
    for (ptrdiff_t i = 0; i < n - few; i++) {
        uint64_t wide;
        uint32_t word;
        if (few) mt19937_u32(g, &word, 1), wide = (uint64_t)i + word % (uint32_t)(n - i);
        else mt19937_u64(g, &wide, 1), wide %= (uint64_t)i + 1;
        int64_t kept = out[i];
        out[i] = out[wide], out[wide] = kept;
    }
}

/* The C library's cos, exp, log, log1p, sin or tan (0 to 5) on every element, in place. */
static inline void libm_f64(int which, double *x, ptrdiff_t n) {
    double (*const known[])(double) = {cos, exp, log, log1p, sin, tan};
    for (ptrdiff_t i = 0; i < n; i++) x[i] = known[which](x[i]);
}
#endif
