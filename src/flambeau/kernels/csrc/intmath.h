/* Integer division, remainder, powers and shifts with Python's meaning, for the generated loops. */
#ifndef FLAMBEAU_INTMATH_H
#define FLAMBEAU_INTMATH_H
#include <stdint.h>
#include "vecmath.h"

#if defined(__clang__)
#define FL_IVDEP _Pragma("clang loop vectorize(assume_safety)")
#else
#define FL_IVDEP _Pragma("GCC ivdep")
#endif

/* A divisor of zero is refused before the loop runs; -1 is kept away from the one quotient that overflows. */
#define FL_INTEGER(T, s)                                                                                                   \
    static inline T fl_floordiv_##s(T a, T b) {                                                                            \
        if (b == (T)-1) return (T)(0 - a);                                                                                 \
        T q = (T)(a / b);                                                                                                  \
        return (T)(q - (a % b != 0 && (a < 0) != (b < 0)));                                                                \
    }                                                                                                                      \
    static inline T fl_fmod_##s(T a, T b) { return (T)(b == (T)-1 ? 0 : a % b); }                                          \
    static inline T fl_remainder_##s(T a, T b) {                                                                           \
        T r = fl_fmod_##s(a, b);                                                                                           \
        return (T)(r != 0 && (r < 0) != (b < 0) ? r + b : r);                                                              \
    }                                                                                                                      \
    static inline T fl_pow_##s(T a, T b) {                                                                                 \
        if (b < 0) return (T)(a == 1 ? 1 : a == (T)-1 ? (b & 1 ? -1 : 1) : 0);                                             \
        uint64_t r = 1, x = (uint64_t)a;                                                                                   \
        for (uint64_t n = (uint64_t)b; n; n >>= 1, x *= x) r = n & 1 ? r * x : r;                                          \
        return (T)r;                                                                                                       \
    }                                                                                                                      \
    static inline T fl_gcd_##s(T a, T b) {                                                                                 \
        for (T r; b != 0; a = b, b = r) r = fl_fmod_##s(a, b);                                                             \
        return (T)(a < 0 ? 0 - a : a);                                                                                     \
    }                                                                                                                      \
    static inline T fl_shl_##s(T a, T b) { return b < 0 || b >= (T)(8 * sizeof(T)) ? 0 : (T)((uint64_t)a << b); }          \
    static inline T fl_shr_##s(T a, T b) { return b < 0 || b >= (T)(8 * sizeof(T)) ? (T)(a < 0 ? -1 : 0) : (T)(a >> b); }

/* For uint8_t the comparison with -1 must not see 255. */
#define FL_UNSIGNED(T, s)                                                                                                  \
    static inline T fl_floordiv_##s(T a, T b) { return (T)(a / b); }                                                       \
    static inline T fl_fmod_##s(T a, T b) { return (T)(a % b); }                                                           \
    static inline T fl_remainder_##s(T a, T b) { return (T)(a % b); }                                                      \
    static inline T fl_pow_##s(T a, T b) {                                                                                 \
        uint64_t r = 1, x = a;                                                                                             \
        for (uint64_t n = b; n; n >>= 1, x *= x) r = n & 1 ? r * x : r;                                                    \
        return (T)r;                                                                                                       \
    }                                                                                                                      \
    static inline T fl_gcd_##s(T a, T b) {                                                                                 \
        for (T r; b != 0; a = b, b = r) r = (T)(a % b);                                                                    \
        return a;                                                                                                          \
    }                                                                                                                      \
    static inline T fl_shl_##s(T a, T b) { return b >= 8 * sizeof(T) ? 0 : (T)(a << b); }                                  \
    static inline T fl_shr_##s(T a, T b) { return b >= 8 * sizeof(T) ? 0 : (T)(a >> b); }

FL_INTEGER(int8_t, i8)
FL_INTEGER(int16_t, i16)
FL_INTEGER(int32_t, i32)
FL_INTEGER(int64_t, i64)
FL_UNSIGNED(uint8_t, u8)

/* Floor division and remainder of floats: fmod is exact, the quotient is corrected to the nearest whole number below. */
#define FL_FLOATING(T, s, sfx)                                                                                             \
    static inline T fl_remainder_##s(T a, T b) {                                                                           \
        T r = fl_fmod_##s(a, b);                                                                                           \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                                                   \
    }                                                                                                                      \
    static inline T fl_floordiv_##s(T a, T b) {                                                                            \
        if (b == 0) return a / b;                                                                                          \
        T r = fl_fmod_##s(a, b), q = (a - r) / b;                                                                          \
        if (r != 0 && (r < 0) != (b < 0)) q -= 1;                                                                          \
        if (q == 0) return copysign##sfx(0, a / b);                                                                        \
        T f = floor##sfx(q);                                                                                               \
        return q - f > (T)0.5 ? f + 1 : f;                                                                                 \
    }
FL_FLOATING(float, f32, f)
FL_FLOATING(double, f64, )
#endif
