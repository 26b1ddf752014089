/* Elementary functions that the compiler can vectorise.
 *
 * Called in a plain loop, `for (i = 0; i < n; i++) o[i] = fl_exp_f32(a[i]);`, they become SIMD code on SSE2, AVX2,
 * AVX-512 and NEON with -O3 -fno-math-errno -fno-trapping-math (-ffp-contract=fast welcome). Two rules make that
 * possible: no branches, only selects between values already computed, and no calls. NaN, infinities, signed zeros and
 * subnormals are values like any other: never compile this with -ffast-math or -ffinite-math-only.
 *
 * fl_<name>_f32 and fl_<name>_f64 share most of their text, so the second part of this file is read twice, once for
 * each type: T is float or double, FL(exp) is fl_exp_f32 or fl_exp_f64, BOTH(a, b) is a in float and b in double.
 * Rare float functions compute in double (VIA_F64, 0.5 ulp). "(0.8, 0.9 ulp)" is the largest error found in f32 and in
 * f64, in units in the last place; tests/kernels/test_vecmath.py holds every function to such a bound.
 *
 * Not vectorised: fmod and lgamma, which are libm's. For huge doubles in sin, cos and tan see Note [huge angles].
 */
#ifndef FLAMBEAU_VECMATH_H
#define FLAMBEAU_VECMATH_H

#include <math.h>
#include <stdint.h>

/* A function left out of line would cost the loop its vectorisation. */
#define FL_FN static inline __attribute__((always_inline, unused))

FL_FN uint32_t fl__bits_f32(float x) { union { float f; uint32_t u; } v = {x}; return v.u; }
FL_FN uint64_t fl__bits_f64(double x) { union { double f; uint64_t u; } v = {x}; return v.u; }
FL_FN float fl__from_f32(uint32_t u) { union { uint32_t u; float f; } v = {u}; return v.f; }
FL_FN double fl__from_f64(uint64_t u) { union { uint64_t u; double f; } v = {u}; return v.f; }
/* A small integer as a number. SSE2 and AVX2 convert no 64-bit integers, but 2^52 + u has u in its low bits. */
FL_FN float fl__number_f32(uint32_t u) { return (float)(int32_t)u; }
FL_FN double fl__number_f64(uint64_t u) { return fl__from_f64(u | 0x4330000000000000u) - 0x1p52; }

/* a b + c, written out where the compiler has a choice of products to fuse: it may choose differently for the vectors
 * of a loop and for its last elements, and a result must not depend on where in an array its argument stands. */
#if defined(__FMA__) || defined(__aarch64__)
#define FL_HAS_FMA 1
#define FL_FMA(a, b, c) LIBM(__builtin_fma)(a, b, c)
#else
#define FL_FMA(a, b, c) ((a) * (b) + (c))
#endif
#define FL_ABS(x) LIBM(fabs)(x)
#define FL_SIGN(x, s) LIBM(copysign)(x, s)
#define FL_INF ((T)INFINITY)
#define FL_NAN ((T)NAN)
#define FL_MANTISSA BOTH(23, 52) /* bits after the leading one */
#define FL_BIAS BOTH(127, 1023)  /* exponent field of 1.0 */
/* x + MAGIC has rint(x) in its low bits: rounding and conversion to an integer in one addition, defined for any x. */
#define FL_MAGIC BOTH(0x1.8p23f, 0x1.8p52)
#define FL_LN2 0.6931471805599453
#define FL_LN2_HI BOTH(0.693359375f, 0.6931471803691238) /* short, so that a whole exponent times it is exact */
#define FL_LN2_LO BOTH(-2.1219444e-4f, 1.9082149292705877e-10)
#define FL_PI BOTH(3.1415927f, 3.141592653589793)
#define FL_PI_LO BOTH(-8.742278e-08f, 1.2246467991473532e-16)

#define FL_BITS 64
#include "vecmath.h"
#define FL_BITS 32
#include "vecmath.h"

/* ---- half precisions: exact one way, round to nearest even the other; a NaN stays a NaN and becomes quiet ---- */

FL_FN float fl_bf16_to_f32(uint16_t h) { return fl__from_f32((uint32_t)h << 16); }
FL_FN uint16_t fl_f32_to_bf16(float x) {
    uint32_t u = fl__bits_f32(x), rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    return (uint16_t)((int32_t)(u & 0x7fffffffu) > 0x7f800000 ? (u >> 16) | 0x40u : rounded);
}
FL_FN float fl_f16_to_f32(uint16_t h) {
    uint32_t a = h & 0x7fffu, normal = (a << 13) + (112u << 23);
    uint32_t tiny = fl__bits_f32((float)(int32_t)a * 0x1p-24f); /* a subnormal half counts units of 2^-24 */
    uint32_t u = (int32_t)a < 0x400 ? tiny : (int32_t)a >= 0x7c00 ? normal + (112u << 23) : normal;
    return fl__from_f32(u | ((h & 0x8000u) << 16) | ((int32_t)a > 0x7c00 ? 0x400000u : 0u));
}
FL_FN uint16_t fl_f32_to_f16(float x) {
    uint32_t u = fl__bits_f32(x), a = u & 0x7fffffffu;
    uint32_t normal = (a - (112u << 23) + 0xfffu + ((a >> 13) & 1u)) >> 13;
    uint32_t tiny = fl__bits_f32(fl__from_f32(a) + 0.5f) - 0x3f000000u; /* the addition rounds to units of 2^-24 */
    uint32_t r = (int32_t)a < 0x38800000 ? tiny : (int32_t)a >= 0x47800000 ? 0x7c00u : normal;
    r = (int32_t)a > 0x7f800000 ? 0x7e00u | ((a >> 13) & 0x3ffu) : r;
    return (uint16_t)(r | ((u >> 16) & 0x8000u));
}

#elif defined(FL_BITS) /* ======== from here on: read with FL_BITS 64, then with FL_BITS 32 ======== */

#if FL_BITS == 64
#define T double
#define U uint64_t
#define FL(name) fl_##name##_f64
#define LIBM(name) name
#define BOTH(single, twice) twice
#else
#define T float
#define U uint32_t
#define FL(name) fl_##name##_f32
#define LIBM(name) name##f
#define BOTH(single, twice) single
#define VIA_F64(name) FL_FN float fl_##name##_f32(float x) { return (float)fl_##name##_f64(x); }
#endif

/* Out of range the result is known. Clamping x beforehand looks cheaper, but GCC then folds the constant through every
 * later step and selects there again: 12 blends instead of 2. */
FL_FN T FL(_limits)(T x, T low, T at_low, T high, T at_high, T r) {
    r = x < low ? at_low : r;
    return x > high ? at_high : r;
}
FL_FN T FL(_pick)(U odd, T a, T b) { /* odd & 1 ? a : b, in bits because SSE2 cannot compare 64-bit integers */
    U mask = 0 - (odd & 1);
    return FL(_from)((FL(_bits)(a) & mask) | (FL(_bits)(b) & ~mask));
}

/* ---- rounding, exact. Before SSE4.1 there is no instruction, but adding and subtracting 2^23 (2^52) rounds. ---- */

FL_FN T FL(rint)(T x) {
#if defined(__SSE4_1__) || defined(__aarch64__)
    return LIBM(__builtin_rint)(x);
#else
    T a = FL_ABS(x), r = (a + BOTH(0x1p23f, 0x1p52)) - BOTH(0x1p23f, 0x1p52);
    return FL_SIGN(a < BOTH(0x1p23f, 0x1p52) ? r : a, x);
#endif
}
FL_FN T FL(floor)(T x) { T r = FL(rint)(x); return r - (r > x ? (T)1 : (T)0); }
FL_FN T FL(ceil)(T x) { return -FL(floor)(-x); }
FL_FN T FL(trunc)(T x) { return FL_SIGN(FL(floor)(FL_ABS(x)), x); }

/* ---- exponentials: x = n ln2 + r with |r| <= ln2/2, then e^x = 2^n e^r ---- */

/* e^r - 1 - r + c = r^2 q(r) + c, q fitted to 2^-26 (2^-55) of e^r - 1. */
FL_FN T FL(_exp_rest)(T r, T c) {
    T q = BOTH(0.5f + r * (0.16666539f + r * (0.0416666f + r * (0.008367026f + r * 0.0013921546f))),
        0.5000000000000006 + r * (0.16666666666666685 + r * (0.041666666666572205 + r * (0.008333333333314498 + r * (
        0.0013888888932879072 + r * (0.00019841269903301157 + r * (2.4801503809023002e-05 + r * (
        2.7557227637614807e-06 + r * (2.7626591846134066e-07 + r * 2.5114596632227808e-08)))))))));
    return FL_FMA(r * r, q, c);
}
/* e^(x + extra) = 2^n (1 + (hi + result)), t = n + MAGIC. hi is exact, so that only the small result is rounded. */
FL_FN T FL(_exp_split)(T x, T extra, T *t, T *hi) {
    *t = x * (T)1.4426950408889634 + FL_MAGIC;
    T n = *t - FL_MAGIC, lo = FL_FMA(n, -FL_LN2_LO, extra);
    *hi = x - n * FL_LN2_HI;
    return FL(_exp_rest)(*hi + lo, lo);
}
FL_FN T FL(_power)(T t) { return FL(_from)((FL(_bits)(t) + FL_BIAS) << FL_MANTISSA); } /* 2^n */
/* p 2^n. Two factors: 2^n itself may be too small or too large a number while the product is not. */
FL_FN T FL(_scale)(T p, T t) {
    U k = FL(_bits)(t) - FL(_bits)(FL_MAGIC) + 2 * FL_BIAS, half = k >> 1;
    return p * FL(_from)(half << FL_MANTISSA) * FL(_from)((k - half) << FL_MANTISSA);
}
FL_FN T FL(_exp_over)(T x, T halvings) { /* e^x / 2^halvings */
    T t, hi, lo = FL(_exp_split)(x, 0, &t, &hi), r = FL(_scale)(1 + (hi + lo), t - halvings);
    return FL(_limits)(x, BOTH(-104, -746), 0, BOTH(90, 712), FL_INF, r);
}
FL_FN T FL(exp)(T x) { return FL(_exp_over)(x, 0); } /* (0.9, 0.9 ulp) */
FL_FN T FL(exp2)(T x) {                              /* (1.1, 1.1 ulp) */
    T t = x + FL_MAGIC, r = (x - (t - FL_MAGIC)) * (T)FL_LN2;
    return FL(_limits)(x, BOTH(-151, -1077), 0, BOTH(129, 1025), FL_INF, FL(_scale)(1 + FL(_exp_rest)(r, r), t));
}
/* e^x - 1 = 2 (s hi + (s - 1/2) + s lo), s = 2^(n-1); where the first two cancel they are exact. (1.2, 1.2 ulp) */
FL_FN T FL(expm1)(T x) {
    T t, hi, lo = FL(_exp_split)(x, 0, &t, &hi), s = FL(_power)(t - 1), r = 2 * ((s * hi + (s - (T)0.5)) + s * lo);
    r = FL_ABS(x) < BOTH(0x1p-26f, 0x1p-55) ? x : r;
    return FL(_limits)(x, -40, -1, BOTH(89, 710), FL_INF, r);
}
/* 1 / (1 + e^-x) = 1 / (1 + s + s p), s = 2^n. Far out the sum is taken small enough to stay finite where the result is
 * subnormal, and the 1 goes with the smaller term. (1.7, 1.7 ulp) */
FL_FN T FL(sigmoid)(T x) {
    T t, hi, lo = FL(_exp_split)(-x, 0, &t, &hi);
    int far = x < BOTH(-16, -36);
    T s = FL(_power)(t - (far ? BOTH(64.0f, 512.0) : 0)), one = far ? BOTH(0x1p-64f, 0x1p-512) : 1;
    T r = one / ((s + (far ? 0 : one)) + (s * (hi + lo) + (far ? one : 0)));
    return FL(_limits)(x, BOTH(-104, -746), 0, 40, 1, r);
}
#if FL_BITS == 64
FL_FN T FL(tanh)(T x) { /* e / (e + 2), e = e^2|x| - 1 (2.5 ulp) */
    T a = FL_ABS(x), e = FL(expm1)(2 * a);
    return FL_SIGN(a > 20 ? 1 : e / (e + 2), x);
}
FL_FN T FL(sinh)(T x) { /* (e + e / (e + 1)) / 2, e = e^|x| - 1; beyond 40, e^|x| / 2 to the last digit (2.2 ulp) */
    T a = FL_ABS(x), e = FL(expm1)(a), r = 0.5 * (e + e / (e + 1));
    return a < 0x1p-28 ? x : FL_SIGN(a > 40 ? FL(_exp_over)(a, 1) : r, x);
}
#else
FL_FN T FL(tanh)(T x) { /* a polynomial below 0.6, above 1 - 1 / (s + 1/2 + s p), s = 2^(n-1) (1.3 ulp) */
    T t, hi, a = FL_ABS(x), z = x * x, lo = FL(_exp_split)(2 * a, 0, &t, &hi);
    T s = FL(_power)(t - 1), outer = 1 - 1 / ((s + 0.5f) + s * (hi + lo));
    T p = -0.333333f + z * (0.13331936f + z * (-0.053784724f + z * (0.020798713f + z * -0.0058981543f)));
    return FL_SIGN(FL(_limits)(a, 0.6f, a + a * z * p, 10, 1, outer), x);
}
VIA_F64(sinh)
#endif
FL_FN T FL(cosh)(T x) { /* h + 1 / 4h, h = e^|x| / 2 (1.5, 1.5 ulp) */
    T h = FL(_exp_over)(FL_ABS(x), 1);
    return h + (T)0.25 / h;
}

/* ---- logarithms: x = 2^k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), then log x = k ln2 + log(1 + f) ---- */

FL_FN U FL(_exponent)(T x) { /* k + BIAS */
    U root_half = BOTH(0x3f3504f3u, 0x3fe6a09e667f3bcdu);
    return (FL(_bits)(x) + (((U)FL_BIAS << FL_MANTISSA) - root_half)) >> FL_MANTISSA;
}
FL_FN T FL(_log_split)(T x, T *k) { /* f and k of x > 0; subnormals are multiplied into the normal range first */
    U up = x < BOTH(0x1p-126f, 0x1p-1022) ? FL_MANTISSA : 0;
    T y = x * FL(_from)((FL_BIAS + up) << FL_MANTISSA);
    U e = FL(_exponent)(y);
    *k = FL(_number)(e) - FL(_number)(FL_BIAS + up);
    return FL(_from)(FL(_bits)(y) - ((e - FL_BIAS) << FL_MANTISSA)) - 1;
}
/* log(1 + f) - f + f^2/2. In f32 f^3 times a polynomial; in f64 through s = f / (2 + f), log(1 + f) = 2 atanh s. */
FL_FN T FL(_log_rest)(T f) {
#if FL_BITS == 64
    T s = f / (2 + f), z = s * s;
    T p = 0.6666666666666734 + z * (0.3999999999941555 + z * (0.2857142874220522 + z * (0.22222198589971828 + z * (
        0.18183563577520917 + z * (0.15314066362840728 + z * 0.14795824023704598)))));
    return s * FL_FMA(z, p, 0.5 * f * f);
#else
    return f * f * f * (0.3333333f + f * (-0.2500082f + f * (0.20001228f + f * (-0.16623358f + f * (0.14201725f +
           f * (-0.1316014f + f * (0.12761773f + f * -0.0763484f)))))));
#endif
}
FL_FN T FL(_log_edges)(T x, T r) { /* -inf at 0, NaN below, infinity and NaN as they come */
    r = x < 0 ? FL_NAN : r;
    r = x == 0 ? -FL_INF : r;
    return x < FL_INF ? r : x;
}
FL_FN T FL(_log_sum)(T x, T f, T k) {
    return FL(_log_edges)(x, k * FL_LN2_HI + (f + (FL_FMA(k, FL_LN2_LO, FL(_log_rest)(f)) - (T)0.5 * f * f)));
}
FL_FN T FL(log)(T x) { T k, f = FL(_log_split)(x, &k); return FL(_log_sum)(x, f, k); } /* (0.9, 0.8 ulp) */
/* k is that of the rounded 1 + x, but f = 2^-k x + (2^-k - 1) is rounded once. 2^-k in two factors. (1.5, 1.4 ulp) */
FL_FN T FL(log1p)(T x) {
    U e = FL(_exponent)(1 + x), half = e >> 1, top = BOTH(190, 1534);
    T p = FL(_from)((top - half) << FL_MANTISSA), q = FL(_from)((top + 1 - (e - half)) << FL_MANTISSA);
    return FL_SIGN(FL(_log_sum)(1 + x, x * p * q + (p * q - 1), FL(_number)(e) - FL_BIAS), x);
}
/* Other bases: the high part of log(1 + f) is short, and so is c ~ 1/log(base): the product is exact. (0.9, 0.8 ulp) */
FL_FN T FL(_log_base)(T x, T c, T c_lo, T c_k, T c_k_lo) {
    T k, f = FL(_log_split)(x, &k), half = (T)0.5 * f * f;
    T hi = FL(_from)(FL(_bits)(f - half) & BOTH(0xfffff000u, 0xfffffffff8000000u));
    T lo = ((f - hi) - half) + FL(_log_rest)(f), sum = k * c_k + hi * c, rest = (k * c_k - sum) + hi * c;
    return FL(_log_edges)(x, sum + (rest + (k * c_k_lo + FL_FMA(lo, c + c_lo, hi * c_lo))));
}
FL_FN T FL(log2)(T x) {
    T c = BOTH(1.44287109375f, 1.4426950514316559), c_lo = BOTH(-0.00017605285f, -1.0542692476429138e-08);
    return FL(_log_base)(x, c, c_lo, 1, 0);
}
FL_FN T FL(log10)(T x) {
    T c = BOTH(0.434326171875f, 0.4342944845557213), c_lo = BOTH(-3.1689971e-05f, -2.6524694553078553e-09);
    T two = BOTH(0.301025390625f, 0.3010299956640665), two_lo = BOTH(4.605039e-06f, -8.532344317057107e-14);
    return FL(_log_base)(x, c, c_lo, two, two_lo);
}
#if FL_BITS == 64
/* Inverse hyperbolics: log1p of an argument arranged to keep its digits; for the huge, log 2x. (1.7, 2.6, 2.1 ulp) */
FL_FN T FL(asinh)(T x) {
    T a = FL_ABS(x), t = a + a * a / (1 + sqrt(1 + a * a));
    return FL_SIGN(FL(log1p)(a > 0x1p500 ? a : t) + (a > 0x1p500 ? FL_LN2 : 0.0), x);
}
FL_FN T FL(acosh)(T x) {
    T t = x - 1, r = FL(log1p)(x > 0x1p500 ? x : t + sqrt(t * (t + 2))) + (x > 0x1p500 ? FL_LN2 : 0.0);
    return x < 1 ? FL_NAN : r;
}
FL_FN T FL(atanh)(T x) { return FL_SIGN(0.5 * FL(log1p)(2 * FL_ABS(x) / (1 - FL_ABS(x))), x); }
#else
VIA_F64(asinh) VIA_F64(acosh) VIA_F64(atanh)
#endif

/* ---- trigonometry: x = q pi/2 + r + lo with |r| <= pi/4 ---- */

#if FL_BITS == 64
/* For |x| < 2e8: pi/2 in pieces of 26, 26, 26 and 53 bits; q times each of the first three is exact. */
FL_FN T FL(_trig_reduce)(T x, T *lo, U *q) {
    T t = x * (2 / FL_PI) + FL_MAGIC, n = t - FL_MAGIC, a = x - n * 0x1.921fb5p+0;
    T b = a - n * 0x1.110b46p-26, b_lo = (a - b) - n * 0x1.110b46p-26;
    T c = b - n * 0x1.1a6262p-54, c_lo = b_lo + (((b - c) - n * 0x1.1a6262p-54) - n * 0x1.3145c06e0e689p-78);
    *q = FL(_bits)(t);
    *lo = (c - (c + c_lo)) + c_lo;
    return c + c_lo;
}
FL_FN T FL(_sin_small)(T r, T lo) {
    T z = r * r;
    return r + (lo + r * z * (-0.1666666666666663 + z * (0.00833333333332202 + z * (-0.00019841269829503765 + z * (
           2.755731358974593e-06 + z * (-2.505074254603292e-08 + z * 1.5895914181512471e-10))))));
}
FL_FN T FL(_cos_small)(T r, T lo) {
    T z = r * r, w = 1 - 0.5 * z;
    T p = 0.041666666666666595 + z * (-0.0013888888888872897 + z * (2.480158728874918e-05 + z * (
        -2.755731414875462e-07 + z * (2.0875696575485586e-09 + z * -1.1358310079094088e-11))));
    return w + (((1 - w) - 0.5 * z) + FL_FMA(z * z, p, -r * lo));
}
/* Note [huge angles]. A double beyond 2e8 needs many more digits of pi, which is libm's trade. A call would end the
 * vectorisation, but GCC calls a function with the attribute `simd` for a whole vector at a time: it compiles a version
 * that walks the lanes, for 1 ns per element. clang does as much unasked. */
#if defined(__GNUC__) && !defined(__clang__)
#define FL_LANES static __attribute__((simd("notinbranch"), noinline, const, unused))
#else
#define FL_LANES FL_FN
#endif
FL_LANES T fl__huge_sin(T x, T r) { return FL_ABS(x) > 2e8 ? sin(x) : r; }
FL_LANES T fl__huge_cos(T x, T r) { return FL_ABS(x) > 2e8 ? cos(x) : r; }
FL_LANES T fl__huge_tan(T x, T r) { return FL_ABS(x) > 2e8 ? tan(x) : r; }
#else
/* For any float. 1/(2 pi) is cut in pieces of 29 bits: a 24-bit x times a piece is exact in double, and so is dropping
 * the whole turns from it. Six pieces reach far enough for the largest float; an infinity gives NaN. */
FL_FN double fl__part_of_turn(double turns) { return turns - fl_rint_f64(turns); }
FL_FN T FL(_trig_reduce)(T x, T *lo, U *q) {
    double d = x, part = fl__part_of_turn(d * 0x1.45f306ep-3) + fl__part_of_turn(d * -0x1.b1bbeacp-34);
    part += fl__part_of_turn(d * -0x1.603d8a8p-62);
    part += fl__part_of_turn(d * -0x1.705659p-93);
    part += fl__part_of_turn(d * -0x1.1f924ecp-121);
    part = 4 * (part + d * 0x1.5993c439041fep-150);
    double t = part + 0x1.8p52;
    *q = (U)fl__bits_f64(t);
    *lo = 0;
    return (T)((part - (t - 0x1.8p52)) * 1.5707963267948966);
}
FL_FN T FL(_sin_small)(T r, T lo) {
    T z = r * r;
    return (void)lo, r + r * z * (-0.16666655f + z * (0.008332188f + z * -0.00019518066f));
}
FL_FN T FL(_cos_small)(T r, T lo) {
    T z = r * r;
    return (void)lo, 1 + FL_FMA(z * z, 0.041666646f + z * (-0.001388731f + z * 2.4432333e-05f), -0.5f * z);
}
#endif
FL_FN T FL(_sin_shifted)(T x, U quarters) { /* sin(x + quarters pi/2) */
    U q;
    T lo, r = FL(_trig_reduce)(x, &lo, &q), v = FL(_pick)(q + quarters, FL(_cos_small)(r, lo), FL(_sin_small)(r, lo));
    return FL(_from)(FL(_bits)(v) ^ (((q + quarters) & 2) << (FL_BITS - 2)));
}
FL_FN T FL(_tan_near)(T x) {
    U q;
    T lo, r = FL(_trig_reduce)(x, &lo, &q), s = FL(_sin_small)(r, lo), c = FL(_cos_small)(r, lo);
    return FL(_from)(FL(_bits)(FL(_pick)(q, c, s) / FL(_pick)(q, s, c)) ^ (q << (FL_BITS - 1)));
}
/* The tiny are their own sine and tangent, which keeps the sign of zero. sin, cos (1.5, 0.9 ulp), tan (3.3, 2.2 ulp) */
#define FL_OWN_SINE(x) (FL_ABS(x) < BOTH(0x1p-13f, 0x1p-27))
#define FL_UNLESS_HUGE(function, x, r) BOTH(r, fl__huge_##function(x, r))
FL_FN T FL(sin)(T x) { return FL_UNLESS_HUGE(sin, x, (FL_OWN_SINE(x) ? x : FL(_sin_shifted)(x, 0))); }
FL_FN T FL(cos)(T x) { return FL_UNLESS_HUGE(cos, x, FL(_sin_shifted)(x, 1)); }
FL_FN T FL(tan)(T x) { return FL_UNLESS_HUGE(tan, x, (FL_OWN_SINE(x) ? x : FL(_tan_near)(x))); }

/* Angle in [0, pi/2] of the point (d, n), both >= 0. One division turns it by 0, 45 or 90 degrees: |t| <= tan(pi/8). */
FL_FN T FL(_angle)(T n, T d) {
    T up = BOTH(0x1p30f, 0x1p100), scale = n + d > BOTH(0x1p120f, 0x1p1000) ? 1 / up : 1;
    scale = n + d < BOTH(0x1p-90f, 0x1p-900) ? up : scale; /* away from infinity and from subnormals */
    n *= scale, d *= scale;
    int steep = n > (T)2.414213562373095 * d, middle = n > (T)0.41421356237309503 * d;
    T t = (steep ? -d : middle ? n - d : n) / (steep ? n : middle ? n + d : d), z = t * t;
    T turn = steep ? FL_PI / 2 : middle ? FL_PI / 4 : 0;
    T p = BOTH(-0.33333316f + z * (0.19998528f + z * (-0.14244391f + z * (0.10599168f + z * -0.060900465f))),
        -0.333333333333332 + z * (0.19999999999953202 + z * (-0.14285714280161893 + z * (0.11111110781914081 + z * (
        -0.09090897718097064 + z * (0.07692059586283623 + z * (-0.06663097671857399 + z * (0.058478478495720486 +
        z * (-0.05039137795742433 + z * (0.0380607753755941 + z * -0.01790351716493766))))))))));
    return turn + (t + FL_FMA(t * z, p, turn * (FL_PI_LO / FL_PI)));
}
FL_FN T FL(atan)(T x) { return FL_SIGN(FL(_angle)(FL_ABS(x), 1), x); } /* (1.9, 1.9 ulp), like atan2 */
FL_FN T FL(atan2)(T y, T x) { /* the equal pairs, (0, 0) and (inf, inf) among them, become (0, 1) or (1, 1) */
    T n = FL_ABS(y), d = FL_ABS(x), r = FL(_angle)(n == d ? (n > 0 ? (T)1 : (T)0) : n, n == d ? 1 : d);
    return FL_SIGN(FL(_pick)(FL(_bits)(x) >> (FL_BITS - 1), FL_PI - (r - FL_PI_LO), r), y);
}
/* asin t = t + t z S(z), z = t^2 <= 1/4. If a > 1/2, t is sqrt((1 - a) / 2) and asin a = pi/2 - 2 asin t. (2, 2 ulp) */
FL_FN T FL(_asin_rest)(T a, T *t) { /* t z S(z) */
    T z = a > (T)0.5 ? (T)0.5 * (1 - a) : a * a;
    *t = a > (T)0.5 ? LIBM(sqrt)(z) : a;
    return *t * z * BOTH((0.16666752f + z * (0.074953094f + z * (0.045469135f + z * (0.024184939f + z * 0.04215787f)))),
        (0.16666666666665408 + z * (0.07500000000336965 + z * (0.04464285682836556 + z * (0.030381959135545103 + z * (
        0.022371758082349927 + z * (0.017359704307933464 + z * (0.013885239768341048 + z * (0.012169184378465444 +
        z * (0.006528089740209243 + z * (0.0195279599606276 + z * (-0.016223784944273227 +
        z * 0.03191195603877054))))))))))));
}
FL_FN T FL(asin)(T x) {
    T t, a = FL_ABS(x), p = FL(_asin_rest)(a, &t);
    return FL_SIGN(a > (T)0.5 ? (FL_PI / 2 - 2 * t) - (2 * p - FL_PI_LO / 2) : t + p, x);
}
FL_FN T FL(acos)(T x) {
    T t, a = FL_ABS(x), p = FL(_asin_rest)(a, &t), outer = x > 0 ? 2 * (t + p) : FL_PI - (2 * (t + p) - FL_PI_LO);
    return a > (T)0.5 ? outer : FL_PI / 2 - (FL_SIGN(t + p, x) - FL_PI_LO / 2);
}

/* ---- error functions ---- */

FL_FN T FL(_erf_small)(T x) { /* x + x P(x^2) for |x| < 0.9 (0.5) */
    T z = x * x, p = BOTH(0.12837915f + z * (-0.37612504f + z * (0.11281922f + z * (-0.026770491f + z * (0.004998954f +
        z * -0.00060207647f)))), 0.12837916709551256 + z * (-0.37612638903183465 + z * (0.11283791670924816 + z * (
        -0.026866170632716322 + z * (0.005223977370332408 + z * (-0.0008548297524748163 + z * (0.00012053324323886661 +
        z * (-1.4845583855143466e-05 + z * 1.4723215353508247e-06))))))));
    return x + x * p;
}
#if FL_BITS == 64
/* erfc a = e^(-a^2) G(v) / d with d = a + 4, v = (a - 4) / d, for a > 0.49. a^2 has a high and a low part, since its
 * rounding error alone would be hundreds of ulp in the tail; the digits that d has lost come back by the derivative. */
FL_FN T FL(_erfc_tail)(T a) {
    T top = FL(_from)(FL(_bits)(a) & 0xfffffffff8000000u), t, hi;
    T lo = FL(_exp_split)(-top * top, (top - a) * (top + a), &t, &hi), d = a + 4, v = (d - 8) / d;
    T g = 1.095995661000491 + v * (-0.976548729080882 + v * (0.7732087022652362 + v * (-0.5408538313132353 + v * (
        0.3308515878780741 + v * (-0.17401093723993785 + v * (0.07638151490772821 + v * (-0.0263700533400786 + v * (
        0.006112055676400875 + v * (-0.0002809588696192047 + v * (-0.0004550528430054228 + v * (
        0.00017681285188205585 + v * (-3.6344082782255836e-06 + v * (-1.8861038082742995e-05 + v * (
        4.692071105898432e-06 + v * (1.424592347955333e-06 + v * (-8.416237404122511e-07 + v * (
        -7.612522599680286e-08 + v * (1.1869622774733012e-07 + v * (1.3257531356526545e-09 +
        v * -1.1868943170685543e-08)))))))))))))))))));
    g /= d;
    g += (a - (d - 4)) * (2 * a * g - 1.1283791670955126);
    return a > 28 ? 0 : FL(_scale)(g + g * (hi + lo), t);
}
FL_FN T FL(erf)(T x) { /* (2.3 ulp) */
    T a = FL_ABS(x), outer = FL_SIGN(1 - FL(_erfc_tail)(a), x);
    return a < 0.5 ? FL(_erf_small)(x) : outer;
}
FL_FN T FL(erfc)(T x) { /* (3.7 ulp) */
    T a = FL_ABS(x), tail = FL(_erfc_tail)(a), outer = x < 0 ? 2 - tail : tail;
    return a < 0.5 ? 1 - FL(_erf_small)(x) : outer;
}
/* A fit good to 2^-21 in w = -log(1 - y^2) or its root, then one Halley step (which cubes the error) on erf or, above
 * 0.52, on erfc, because there 1 - |y| is exact. (3.6 ulp) */
FL_FN T FL(erfinv)(T y) {
    T a = FL_ABS(y), w = -FL(log)((1 - a) * (1 + a)), v = sqrt(w), i = 1 / v;
    T near = a * (0.8862266888297744 + w * (0.23202136496881096 + w * (0.011509274944712359 + w * (
        -0.002256762085294263 + w * (-0.00020277437684529932 + w * (8.512076276961247e-05 + w * (
        -8.709445763880119e-06 + w * 3.156322670200538e-07)))))));
    T far = 1.0022599392791518 * v + (-0.07720388515710226 + i * (-0.6781353523223245 + i * (1.4742099190745581 +
        i * (-0.9550111005429447 + i * 0.06814108319684604))));
    T x = w < 5 ? near : far, miss = a < 0.52 ? FL(_erf_small)(x) - a : (1 - a) - FL(_erfc_tail)(x);
    T step = miss * 0.886226925452758 * FL(exp)(x * x); /* sqrt(pi) / 2 */
    x -= step / (1 + x * step);
    return FL_SIGN(a < 1 ? x : a == 1 ? FL_INF : FL_NAN, y);
}
#else
FL_FN T FL(erf)(T x) { /* outside, 1 - e^Q(|x|), Q fitted to log erfc up to 3.95, beyond which erf is 1 (1.3 ulp) */
    T a = FL_ABS(x), q = -0.00016645373f + a * (-1.1277971f + a * (-0.6369765f + a * (-0.104113124f + a * (
        0.022314833f + a * (-0.0030653595f + a * 0.00019820064f)))));
    return FL_SIGN(FL(_limits)(a, 0.9f, FL(_erf_small)(a), 3.95f, 1, 1 - FL(exp)(q)), x);
}
VIA_F64(erfc) VIA_F64(erfinv)
#endif

/* ---- powers ---- */

/* The cases of C99 F.9.4.4, given r = |x|^y: odd and other integers, negative bases, the ones. */
FL_FN T FL(_pow_edges)(T x, T y, T r) {
    int whole = FL(rint)(y) == y, odd = whole & (FL(rint)((T)0.5 * y) != (T)0.5 * y);
    r = odd ? FL_SIGN(r, x) : r;
    r = ((x < 0) & (x > -FL_INF) & !whole) ? FL_NAN : r;
    return ((x == 1) | (y == 0)) ? 1 : r;
}
#if FL_BITS == 64
/* The rounding error of p = a b: one fused operation, or Dekker's sum of exact half products. */
FL_FN T FL(_mul_rest)(T a, T b, T p) {
#ifdef FL_HAS_FMA
    return __builtin_fma(a, b, -p);
#else
    T ah = FL(_from)(FL(_bits)(a) & 0xfffffffff8000000u), al = a - ah;
    T bh = FL(_from)(FL(_bits)(b) & 0xfffffffff8000000u), bl = b - bh;
    return ((ah * bh - p) + ah * bl + al * bh) + al * bl;
#endif
}
/* e^(y log|x|) with log|x| to 2^-65: each step has a high and a low part. With s = f / (2 + f) and z = s^2,
 * log(1 + f) = 2s + s z (2/3 + 2/5 z + ...). (1 ulp) */
FL_FN T FL(pow)(T x, T y) {
    T a = FL_ABS(x), k, f = FL(_log_split)(a, &k), d = 2 + f, d_lo = f - (d - 2), inv = 1 / d;
    T s = f * inv, p = s * d, s_lo = inv * (((f - p) - FL(_mul_rest)(s, d, p)) - s * d_lo);
    T z = s * s, z_lo = FL(_mul_rest)(s, s, z) + 2 * s * s_lo;
    T w = 0.4000000000000225 + z * (0.2857142857010153 + z * (0.22222222519626939 + z * (0.18181784389467812 + z * (
        0.1538675641777777 + z * (0.13256837164767615 + z * 0.13196160018452896)))));
    T c = FL_FMA(z, w, 0.6666666666666666), c_lo = FL_FMA(z, w, 0.6666666666666666 - c) + 3.700743415417188e-17;
    T v = z * c, v_lo = FL(_mul_rest)(z, c, v) + FL_FMA(z, c_lo, z_lo * c);
    T u = s * v, u_lo = FL(_mul_rest)(s, v, u) + FL_FMA(s, v_lo, s_lo * v);
    T m = 2 * s + u, m_lo = ((2 * s - m) + u) + (2 * s_lo + u_lo);
    T n = k * 0.6931471805601177, l = n + m, l_lo = ((n - l) + m) + (m_lo + k * -1.7239444525614835e-13);
    T e = y * l, e_lo = FL(_mul_rest)(y, l, e) + y * l_lo;
    int plain = (a > 0) & (a < FL_INF) & (a != 1);
    e = plain ? e : a == 1 ? 0.0 : y * (a == 0 ? -FL_INF : a); /* 1^inf is 1; 0 and infinity have infinite logarithms */
    T t, hi, lo = FL(_exp_split)(e, plain ? e_lo : 0.0, &t, &hi), r = FL(_scale)(1 + (hi + lo), t);
    return FL(_pow_edges)(x, y, FL(_limits)(e, -746, 0, 712, FL_INF, r));
}
#else
/* 2^(y log2|x|), the logarithm (to 2^-35) and the product in double. (1.1 ulp) */
FL_FN T FL(pow)(T x, T y) {
    T a = FL_ABS(x), k, m = FL(_log_split)(a, &k);
    double f = m, p = 0.3333333389065165 + f * (-0.24999997075808977 + f * (0.19999911419582228 + f * (
        -0.1666685526376243 + f * (0.14290170028411098 + f * (-0.1249827996103778 + f * (0.11014834615555527 + f * (
        -0.09924627243603949 + f * (0.09988351534590309 + f * (-0.09862733546756314 + f * 0.05386658270749924)))))))));
    double log2 = k + (f - f * f * (0.5 - f * p)) * 1.4426950408889634;
    int plain = (a > 0) & (a < FL_INF);
    double e = (double)y * (plain ? log2 : (double)(a == 0 ? -FL_INF : a));
    e = a == 1 ? 0.0 : e; /* 1^inf */
    double n = (e + 0x1.8p52) - 0x1.8p52;
    T r = (T)((e - n) * FL_LN2), p2 = FL(_scale)(1 + FL(_exp_rest)(r, r), (T)n + FL_MAGIC);
    return FL(_pow_edges)(x, y, FL(_limits)((T)e, -151, 0, 129, FL_INF, p2));
}
#endif
FL_FN T FL(hypot)(T x, T y) { /* scaled by a power of two against overflow; infinity beats NaN (1.2, 1.2 ulp) */
    T a = FL_ABS(x), b = FL_ABS(y), s = a + b > BOTH(0x1p60f, 0x1p500) ? BOTH(0x1p-70f, 0x1p-600) : 1;
    s = a + b < BOTH(0x1p-50f, 0x1p-400) ? BOTH(0x1p90f, 0x1p600) : s;
    T r = LIBM(sqrt)(FL_FMA(a * s, a * s, b * s * (b * s))) / s;
    return ((a == FL_INF) | (b == FL_INF)) ? FL_INF : r;
}
FL_FN T FL(rsqrt)(T x) { return 1 / LIBM(sqrt)(x); } /* (1.5, 1.5 ulp) */
FL_FN T FL(fmod)(T x, T y) { return LIBM(fmod)(x, y); } /* exact */

/* ---- gamma ---- */

#if FL_BITS == 64
/* log|gamma x|, libm's. lgamma_r, because plain lgamma would write the global signgam from every thread. */
extern double lgamma_r(double, int *);
FL_FN T FL(lgamma)(T x) { int sign; return lgamma_r(x, &sign); }
/* psi(x) = psi(1 - x) - pi / tan(pi x) for negative x. Below 10, psi(b) = psi(b + 10) - sum of 1 / (b + j), j < 10, and
 * the terms j and 9 - j pair up to (2b + 9) / (u + j (9 - j)), u = b (b + 9): one fraction D'(u) / D(u) of positive
 * terms. Above, Stirling's series. (3e-15, or 4 ulp where psi is large) */
FL_FN T FL(digamma)(T x) {
    T part = x - FL(rint)(x), reflected = x < 0 ? FL_PI / FL(_tan_near)(FL_PI * part) : 0.0;
    T b = x < 0 ? 1 - x : x, u = b * (b + 9), slope = 40320 + u * (24352 + u * (3924 + u * (240 + u * 5)));
    T sum = slope / (u * (u + 8) * (u + 14) * (u + 18) * (u + 20));
    T w = b < 10 ? b + 10 : b, i = 1 / w, z = i * i, tail = 1.0 / 132 - z * (691.0 / 32760 - z / 12);
    tail = 1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * tail)));
    T r = FL_FMA(-z, tail, FL(log)(w) - 0.5 * i);
    r = (b < 10 ? FL_FMA(-(2 * b + 9), sum, r) : r) - reflected;
    return ((x < 0) & (part == 0)) ? FL_NAN : r;
}
#else
VIA_F64(lgamma) VIA_F64(digamma)
#endif

#undef T
#undef U
#undef FL
#undef LIBM
#undef BOTH
#undef VIA_F64
#undef FL_BITS
#endif
