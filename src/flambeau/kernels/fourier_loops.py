"""Fourier transforms in C: Stockham's passes over vectors of transforms that lie side by side.

    fft.rows              one transform after the other; its own columns, seen as an N1 x N2 matrix, are the lanes of vectors
    fft.half, fft.whole   the same from n real numbers to half a spectrum, and back
    fft.columns           some transforms at a time, each of them a lane: dimensions that are not the last, and many short transforms

A transform of n = N1 N2 points is N2 transforms of N1 points, a multiplication and N1 transforms of N2 points (j = j1 N2 + j2, k = k1 + N1 k2):

    X[k1 + N1 k2] = sum_j2 W_N2^(j2 k2)  W_n^(j2 k1)  sum_j1 W_N1^(j1 k1) x[j1 N2 + j2]              W_n = exp(-2 pi i / n)

Both have so few points that they stay in the nearest cache for all their passes. A pass of radix r takes r points m apart, transforms them
by straight code, multiplies, and leaves them side by side, so that after the last pass all are in order. Real and imaginary parts are
apart; backward is forward with the two exchanged. All arithmetic is in whole vectors: a transform's bits depend on its own numbers alone.

n real numbers (n even) are n / 2 complex ones, from whose spectrum theirs is put together. fourier.py has the plans and what calls these.
"""

from __future__ import annotations

from math import sqrt

from flambeau.kernels.fourier import FACTS, RADICES, root
from flambeau.kernels.index_loops import LINES, PARAMETERS

# What replaces the names in capitals.
REALS = {"float32": {"REAL": "float", "KIND": "f32", "WORD": "int32_t"}, "float64": {"REAL": "double", "KIND": "f64", "WORD": "int64_t"}}

BEGINNING = """#include "tiles.h"
#if defined(__AVX512F__)
enum { BYTES = 64 };
#elif defined(__AVX2__)
enum { BYTES = 32 };
#else
enum { BYTES = 16 };
#endif
#if defined(__clang__)
#define PICK(word, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(word, a, b, ...) __builtin_shuffle(a, b, (word){__VA_ARGS__})
#endif
"""

TYPES = """
typedef REAL vec_KIND __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));
typedef WORD word_KIND __attribute__((vector_size(BYTES)));
enum { L_KIND = BYTES / sizeof(REAL) };
"""


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    texts, declarations, rows = [BEGINNING], [], []
    for words in REALS.values():
        kind = words["KIND"]
        parts = [
            TYPES,
            *(_pass(r) for r in RADICES),
            _split_and_join({"f32": 16, "f64": 8}[kind]),
            LANES.replace("CASES", _cases()),
            ROWS,
            COLUMNS,
        ]
        text = "\n".join(parts).replace("FACTS", _facts()).replace("PARAMETERS", PARAMETERS)
        for word, meaning in words.items():
            text = text.replace(word, meaning)
        texts.append(text)
        real, own = f"FL_{kind.upper()}", {"f32": "FL_C64", "f64": "FL_C128"}[kind]
        for name, params, out, inputs in (
            ("rows", 6, own, (own, real, "FL_I64")),
            ("half", 2, own, (real, real, "FL_I64")),
            ("whole", 2, real, (own, real, "FL_I64")),
            ("columns", 11, own, (own, real, "FL_I64", own)),
        ):
            function = f"FL_NAME(fft_{name}_{kind})"
            declarations.append(f"void {function}{PARAMETERS};\n")
            rows.append(f'{{"fft.{name}", {function}, {real}, {len(inputs)}, {params}, 2, {out}, {{{", ".join(inputs)}}}, {LINES}}}')
    return texts, declarations, rows


def _facts() -> str:
    """The plan's numbers by name, the radices of both parts, and the tables that `facts` has the places of."""
    lines = [f"const int64_t {name} = facts[{i}]; (void){name};" for i, name in enumerate(FACTS)]
    lines.append(
        f"const int64_t *const radices1 = facts + {len(FACTS)}, *const radices2 = radices1 + count1; (void)radices1, (void)radices2;"
    )
    return " ".join(lines)


# -- passes ----------------------------------------------------------------------------------------------------------------


class _Straight:
    """Straight code on complex vectors, a pair of names each."""

    def __init__(self):
        self.lines: list[str] = []

    def name(self, real: str, imaginary: str) -> tuple[str, str]:
        number = len(self.lines)
        self.lines.append(f"const vec_KIND r{number} = {real}, i{number} = {imaginary};")
        return f"r{number}", f"i{number}"

    def add(self, a, b):
        return self.name(f"{a[0]} + {b[0]}", f"{a[1]} + {b[1]}")

    def sub(self, a, b):
        return self.name(f"{a[0]} - {b[0]}", f"{a[1]} - {b[1]}")

    def turned(self, a):
        """-i a"""
        return self.name(a[1], f"-{a[0]}")

    def times(self, a, real: str, imaginary: str):
        return self.name(f"{a[0]} * {real} - {a[1]} * {imaginary}", f"{a[0]} * {imaginary} + {a[1]} * {real}")

    def transform(self, x: list) -> list:
        """The Fourier transform of a few points."""
        n = len(x)
        if n == 2:
            return [self.add(*x), self.sub(*x)]
        if n % 2:
            return self.odd(x)
        half = n // 2
        even = self.transform([self.add(x[j], x[j + half]) for j in range(half)])
        odd = self.transform([self.power(self.sub(x[j], x[j + half]), j, n) for j in range(half)])
        return [both for pair in zip(even, odd, strict=True) for both in pair]

    def power(self, a, j: int, n: int):
        """W_n^j a"""
        if j == 0:
            return a
        if 4 * j == n:
            return self.turned(a)
        if 8 * j == n:
            return self.name(f"({a[0]} + {a[1]}) * {_literal(sqrt(0.5))}", f"({a[1]} - {a[0]}) * {_literal(sqrt(0.5))}")
        if 8 * j == 3 * n:
            return self.name(f"({a[1]} - {a[0]}) * {_literal(sqrt(0.5))}", f"({a[0]} + {a[1]}) * {_literal(-sqrt(0.5))}")
        return self.times(a, *map(_literal, root(j, n)))

    def odd(self, x: list) -> list:
        """An odd number of points: those that mirror each other share their cosines, and their sines up to the sign."""
        n = len(x)
        pairs = range(1, n // 2 + 1)
        sums = {j: self.add(x[j], x[n - j]) for j in pairs}
        differences = {j: self.sub(x[j], x[n - j]) for j in pairs}
        found = [self.name(*(" + ".join(part) for part in zip(x[0], *sums.values(), strict=True)))] * n
        for k in pairs:
            c = [_literal(root(j * k, n)[0]) for j in pairs]
            s = [_literal(-root(j * k, n)[1]) for j in pairs]
            across = [" + ".join([x[0][part], *(f"{sums[j][part]} * {c[j - 1]}" for j in pairs)]) for part in (0, 1)]
            along = [" + ".join(f"{differences[j][part]} * {s[j - 1]}" for j in pairs) for part in (1, 0)]
            even, odd = self.name(*across), self.name(*along)
            found[k] = self.name(f"{even[0]} + {odd[0]}", f"{even[1]} - {odd[1]}")
            found[n - k] = self.name(f"{even[0]} - {odd[0]}", f"{even[1]} + {odd[1]}")
        return found


def _literal(value: float) -> str:
    return f"(REAL){value!r}"


def _pass(radix: int) -> str:
    """Point p of m, of s transforms that lie side by side: r points m apart become the r points after r p, times W_len^(p k)."""
    return f"""
static void pass_{radix}_KIND(int64_t len, int64_t s, const REAL *xr, const REAL *xi, int64_t xstep, REAL *restrict yr, REAL *restrict yi,
                              int64_t ystep, const REAL *restrict w) {{
    const int64_t m = len / {radix}, across = s * m * xstep, along = s * ystep;
    for (int64_t q = 0; q < s; q++) {{
        const REAL *const ar = xr + q * xstep, *const ai = xi + q * xstep;
        REAL *const br = yr + q * ystep, *const bi = yi + q * ystep;
{_butterfly(radix, False)}    }}
    for (int64_t p = 1; p < m; p++) {{
        w += {2 * radix - 2};
        for (int64_t q = 0; q < s; q++) {{
            const REAL *const ar = xr + (q + s * p) * xstep, *const ai = xi + (q + s * p) * xstep;
            REAL *const br = yr + (q + s * {radix} * p) * ystep, *const bi = yi + (q + s * {radix} * p) * ystep;
{_butterfly(radix, True)}        }}
    }}
}}
"""


def _butterfly(radix: int, multiplied: bool) -> str:
    code = _Straight()
    read = "*(const vec_KIND *)({} + {} * across)"
    points = [code.name(read.format("ar", k), read.format("ai", k)) for k in range(radix)]
    for k, point in enumerate(code.transform(points)):
        if k and multiplied:
            point = code.times(point, f"w[{2 * k - 2}]", f"w[{2 * k - 1}]")
        code.lines.append(f"*(vec_KIND *)(br + {k} * along) = {point[0]}, *(vec_KIND *)(bi + {k} * along) = {point[1]};")
    return "".join(f"            {line}\n" for line in code.lines)


def _cases() -> str:
    """Which function does a pass."""
    return " ".join(f"case {r}: pass_{r}_KIND(len, s, ar, ai, astep, br, bi, bstep, w); break;" for r in RADICES)


LANES = """
/* The transforms of n points, a vector of them at a time, from x to y; `work` is room for 4 n vectors. */
static void lanes_KIND(int64_t n, int64_t count, const int64_t *radices, const REAL *w, const REAL *xr, const REAL *xi, int64_t xstep,
                       REAL *yr, REAL *yi, int64_t ystep, REAL *work) {
    const REAL *ar = xr, *ai = xi;
    int64_t astep = xstep, len = n, s = 1;
    if (!count) *(vec_KIND *)yr = *(const vec_KIND *)xr, *(vec_KIND *)yi = *(const vec_KIND *)xi;
    for (int64_t i = 0; i < count; i++) {
        REAL *const there = work + (i & 1) * n * 2 * L_KIND, *const br = i == count - 1 ? yr : there, *const bi = i == count - 1 ? yi : there + L_KIND;
        const int64_t bstep = i == count - 1 ? ystep : 2 * L_KIND;
        switch (radices[i]) { CASES }
        w += (2 * radices[i] - 2) * (len / radices[i]), len /= radices[i], s *= radices[i];
        ar = br, ai = bi, astep = bstep;
    }
}
"""


def _split_and_join(lanes: int) -> str:
    """Vectors of complex numbers to their parts and back; `lanes` is how many real numbers fill 64 bytes."""
    lines = []
    for test, n in (("if defined(__AVX512F__)", lanes), ("elif defined(__AVX2__)", lanes // 2), ("else", lanes // 4)):
        picks = {
            "EVEN": range(0, 2 * n, 2),
            "ODD": range(1, 2 * n, 2),
            "LOW": [p for k in range(n // 2) for p in (k, n + k)],
            "HIGH": [p for k in range(n // 2, n) for p in (k, n + k)],
        }
        lines.append(f"#{test}")
        for name, numbers in picks.items():
            lines += [f"#undef {name}", f"#define {name} {', '.join(map(str, numbers))}"]
    return "\n".join([*lines, "#endif"]) + SPLIT


SPLIT = """
static inline void split_KIND(const REAL *x, REAL *re, REAL *im) {
    const vec_KIND a = *(const vec_KIND *)x, b = *(const vec_KIND *)(x + L_KIND);
    *(vec_KIND *)re = PICK(word_KIND, a, b, EVEN), *(vec_KIND *)im = PICK(word_KIND, a, b, ODD);
}
static inline void join_KIND(vec_KIND re, vec_KIND im, REAL *y) {
    *(vec_KIND *)y = PICK(word_KIND, re, im, LOW), *(vec_KIND *)(y + L_KIND) = PICK(word_KIND, re, im, HIGH);
}
"""

ROWS = """
/* In place: the transform of z, of N1 N2 points, with room for a vector after them; `turned` is room for as many, in rows of whole vectors. */
static void row_KIND(const int64_t *facts, const REAL *table, REAL *zr, REAL *zi, REAL *turned, REAL *work) {
    FACTS
    const int64_t ld = (N1 + L_KIND - 1) / L_KIND * L_KIND, rows = (N2 + L_KIND - 1) / L_KIND * L_KIND;
    REAL *const tr = turned, *const ti = tr + rows * ld, *const panel = work + 4 * L_KIND * (N1 > N2 ? N1 : N2);
    const REAL *const wr = table + between, *const wi = wr + N1 * N2;
    if (N1 == 1) {
        lanes_KIND(N2, count2, radices2, table + table2, zr, zi, 1, panel, panel + L_KIND, 2 * L_KIND, work);
        for (int64_t p = 0; p < N2; p++) zr[p] = panel[2 * L_KIND * p], zi[p] = panel[2 * L_KIND * p + L_KIND];
        return;
    }
    for (int64_t j = 0; j < N2; j += L_KIND) {
        lanes_KIND(N1, count1, radices1, table + table1, zr + j, zi + j, N2, panel, panel + L_KIND, 2 * L_KIND, work);
        for (int64_t k = 1; k < N1; k++) {
            REAL *const at = panel + 2 * L_KIND * k;
            const vec_KIND re = *(vec_KIND *)at, im = *(vec_KIND *)(at + L_KIND);
            const vec_KIND c = *(const vec_KIND *)(wr + k * N2 + j), s = *(const vec_KIND *)(wi + k * N2 + j);
            *(vec_KIND *)at = re * c - im * s, *(vec_KIND *)(at + L_KIND) = re * s + im * c;
        }
        fl_turn(sizeof(REAL), N1, L_KIND, (const char *)panel, 2 * L_KIND, (char *)(tr + j * ld), ld);
        fl_turn(sizeof(REAL), N1, L_KIND, (const char *)(panel + L_KIND), 2 * L_KIND, (char *)(ti + j * ld), ld);
    }
    if (N1 < L_KIND) { /* vectors reach into the rows that follow, which are written after them */
        lanes_KIND(N2, count2, radices2, table + table2, tr, ti, ld, panel, panel + L_KIND, 2 * L_KIND, work);
        for (int64_t p = 0; p < N2; p++) {
            *(vec_KIND *)(zr + p * N1) = *(vec_KIND *)(panel + 2 * L_KIND * p);
            *(vec_KIND *)(zi + p * N1) = *(vec_KIND *)(panel + 2 * L_KIND * p + L_KIND);
        }
        return;
    }
    /* The last vectors reach into the next row, whose first vectors come last. */
    for (int64_t k = ld - L_KIND; k >= 0; k -= L_KIND)
        lanes_KIND(N2, count2, radices2, table + table2, tr + k, ti + k, ld, zr + k, zi + k, N1, work);
}

/* Rooms for one row: z in two parts, each with room for a vector more, the turned matrix, what passes leave. */
#define ROOMS_KIND                                                                                                            \\
    const int64_t *const facts = (const int64_t *)ptr[3];                                                                       \\
    FACTS                                                                                                                      \\
    const REAL *const table = (const REAL *)ptr[2];                                                                             \\
    const int64_t m = N1 * N2, longer = N1 > N2 ? N1 : N2, padded = (N1 + L_KIND) * (N2 + L_KIND), part = (m + 2 * L_KIND) / L_KIND * L_KIND; \\
    FL_ALIGNED REAL zr[part], zi[part], turned[2 * padded], work[6 * L_KIND * longer];                                          \\
    memset(turned, 0, sizeof turned), memset(zr + m, 0, sizeof(REAL) * (size_t)(part - m)), memset(zi + m, 0, sizeof(REAL) * (size_t)(part - m));

/* Numbers: points; scale; backward; elements from point to point of x and of y; whether x is y. */
void FL_NAME(fft_rows_KIND)PARAMETERS {
    ROOMS_KIND
    const REAL scale = (REAL)param[1];
    const int64_t back = param[2] != 0, xs = 2 * (int64_t)param[3], ys = 2 * (int64_t)param[4];
    REAL *const re = back ? zi : zr, *const im = back ? zr : zi;
    for (int64_t e = 0; e < n; e++) {
        const REAL *const x = (const REAL *)(param[5] ? ptr[0] + e * step[0] : ptr[1] + e * step[1]);
        REAL *const y = (REAL *)(ptr[0] + e * step[0]);
        int64_t j = 0;
        for (; xs == 2 && j + L_KIND <= m; j += L_KIND) split_KIND(x + 2 * j, re + j, im + j);
        for (; j < m; j++) re[j] = x[j * xs], im[j] = x[j * xs + 1];
        row_KIND(facts, table, zr, zi, turned, work);
        for (j = 0; ys == 2 && j + L_KIND <= m; j += L_KIND) join_KIND(*(vec_KIND *)(re + j) * scale, *(vec_KIND *)(im + j) * scale, y + 2 * j);
        for (; j < m; j++) y[j * ys] = re[j] * scale, y[j * ys + 1] = im[j] * scale;
    }
}

/* 2 m real numbers x to m + 1 of their frequencies: with z = x[2 j] + i x[2 j + 1] and its spectrum Z, and Y[k] the conjugate of Z[m - k],
   X[k] = (Z[k] + Y[k]) / 2 - i W_2m^k (Z[k] - Y[k]) / 2. Numbers: points; scale. */
void FL_NAME(fft_half_KIND)PARAMETERS {
    ROOMS_KIND
    const REAL half = (REAL)(param[1] / 2);
    const REAL *const wr = table + halves, *const wi = wr + m + 1;
    for (int64_t e = 0; e < n; e++) {
        const REAL *const x = (const REAL *)(ptr[1] + e * step[1]);
        REAL *restrict const y = (REAL *)(ptr[0] + e * step[0]);
        int64_t j = 0;
        for (; j + L_KIND <= m; j += L_KIND) split_KIND(x + 2 * j, zr + j, zi + j);
        for (; j < m; j++) zr[j] = x[2 * j], zi[j] = x[2 * j + 1];
        row_KIND(facts, table, zr, zi, turned, work);
        zr[m] = zr[0], zi[m] = zi[0];
        FL_IVDEP for (int64_t k = 0; k <= m; k++) {
            const REAL ar = zr[k] + zr[m - k], ai = zi[k] - zi[m - k], br = zi[k] + zi[m - k], bi = zr[m - k] - zr[k];
            y[2 * k] = half * (ar + (br * wr[k] - bi * wi[k])), y[2 * k + 1] = half * (ai + (br * wi[k] + bi * wr[k]));
        }
        y[1] = 0, y[2 * m + 1] = 0;
    }
}

/* The way back: Z[k] = X[k] + Y[k] + i (X[k] - Y[k]) / W_2m^k, transformed backward; the imaginary parts of X[0] and X[m] do not count. */
void FL_NAME(fft_whole_KIND)PARAMETERS {
    ROOMS_KIND
    const REAL scale = (REAL)param[1];
    const REAL *const wr = table + halves, *const wi = wr + m + 1;
    for (int64_t e = 0; e < n; e++) {
        const REAL *const x = (const REAL *)(ptr[1] + e * step[1]);
        REAL *restrict const y = (REAL *)(ptr[0] + e * step[0]);
        FL_IVDEP for (int64_t k = 1; k < m; k++) {
            const REAL ar = x[2 * k] + x[2 * (m - k)], ai = x[2 * k + 1] - x[2 * (m - k) + 1];
            const REAL br = x[2 * k] - x[2 * (m - k)], bi = x[2 * k + 1] + x[2 * (m - k) + 1];
            zi[k] = ar + (br * wi[k] - bi * wr[k]), zr[k] = ai + (br * wr[k] + bi * wi[k]);
        }
        zi[0] = x[0] + x[2 * m], zr[0] = x[0] - x[2 * m];
        row_KIND(facts, table, zr, zi, turned, work);
        int64_t j = 0;
        for (; j + L_KIND <= m; j += L_KIND) join_KIND(*(vec_KIND *)(zi + j) * scale, *(vec_KIND *)(zr + j) * scale, y + 2 * j);
        for (; j < m; j++) y[2 * j] = zi[j] * scale, y[2 * j + 1] = zr[j] * scale;
    }
}
"""

COLUMNS = """
static inline void read_KIND(const REAL *x, int64_t apart, int64_t lanes, REAL *to) {
    if (apart == 2 && lanes == L_KIND) { split_KIND(x, to, to + L_KIND); return; }
    for (int64_t l = 0; l < L_KIND; l++) to[l] = l < lanes ? x[l * apart] : 0, to[L_KIND + l] = l < lanes ? x[l * apart + 1] : 0;
}

/* Numbers: elements of work; points; transforms; scale; backward; elements from point to point and from transform to transform of x, and of y;
   whether x is y; whether the result is multiplied by `more`, which lies as y does. */
void FL_NAME(fft_columns_KIND)PARAMETERS {
    enum { L = L_KIND };
    const int64_t *const facts = (const int64_t *)ptr[3];
    FACTS
    const REAL *const table = (const REAL *)ptr[2], *const wr = table + between, *const wi = wr + N1 * N2;
    const int64_t m = N1 * N2, wide = (int64_t)param[2], longer = N1 > N2 ? N1 : N2;
    const int64_t xs = 2 * (int64_t)param[5], xl = 2 * (int64_t)param[6], ys = 2 * (int64_t)param[7], yl = 2 * (int64_t)param[8];
    const REAL scale = (REAL)param[3];
    const int re = param[4] ? L : 0, im = L - re, turn_x = xl != 2 && xs == 2, turn_y = yl != 2 && ys == 2 && !param[10];
    FL_ALIGNED REAL all[2 * L * m], turned[turn_y ? 2 * L * m : 1], work[4 * L * longer], few[2 * L * longer], done[2 * L * longer];
    for (int64_t e = 0; e < n; e++)
        for (int64_t first = 0; first < wide; first += L) {
            const int64_t lanes = wide - first < L ? wide - first : L;
            const REAL *const x = (const REAL *)(param[9] ? ptr[0] + e * step[0] : ptr[1] + e * step[1]) + first * xl;
            const REAL *const more = (const REAL *)(ptr[4] + e * step[4]) + first * 2;
            REAL *const y = (REAL *)(ptr[0] + e * step[0]) + first * yl;
            if (turn_x) {
                if (lanes < L) memset(all, 0, sizeof all);
                fl_turn(sizeof(REAL), lanes, 2 * m, (const char *)x, xl, (char *)all, L);
            } else if (N1 == 1)
                for (int64_t j = 0; j < N2; j++) read_KIND(x + j * xs, xl, lanes, all + 2 * L * j);
            for (int64_t j = 0; N1 > 1 && j < N2; j++) { /* the transforms of N1 points, N2 apart */
                const REAL *from = all + 2 * L * j;
                if (!turn_x) {
                    for (int64_t p = 0; p < N1; p++) read_KIND(x + (p * N2 + j) * xs, xl, lanes, few + 2 * L * p);
                    from = few;
                }
                lanes_KIND(N1, count1, radices1, table + table1, from + re, from + im, turn_x ? 2 * L * N2 : 2 * L, done, done + L, 2 * L, work);
                for (int64_t k = 0; k < N1; k++) {
                    const REAL *const at = done + 2 * L * k;
                    REAL *const to = all + 2 * L * (k * N2 + j);
                    const vec_KIND a = *(const vec_KIND *)at, b = *(const vec_KIND *)(at + L);
                    const REAL c = wr[k * N2 + j], s = wi[k * N2 + j];
                    if (j && k) *(vec_KIND *)to = a * c - b * s, *(vec_KIND *)(to + L) = a * s + b * c;
                    else *(vec_KIND *)to = a, *(vec_KIND *)(to + L) = b;
                }
            }
            for (int64_t k = 0; k < N1; k++) { /* those of N2 points, side by side */
                const REAL *const from = all + 2 * L * N2 * k;
                lanes_KIND(N2, count2, radices2, table + table2, from + (N1 == 1 ? re : 0), from + (N1 == 1 ? im : L), 2 * L, done, done + L, 2 * L, work);
                for (int64_t p = 0; p < N2; p++) {
                    const REAL *const at = done + 2 * L * p;
                    const vec_KIND a = *(const vec_KIND *)(at + re) * scale, b = *(const vec_KIND *)(at + im) * scale;
                    if (turn_y) { *(vec_KIND *)(turned + 2 * L * (k + N1 * p)) = a, *(vec_KIND *)(turned + 2 * L * (k + N1 * p) + L) = b; continue; }
                    REAL *const to = y + (k + N1 * p) * ys;
                    FL_ALIGNED REAL both[2 * L];
                    if (param[10]) {
                        FL_ALIGNED REAL cs[2 * L];
                        const REAL *const w = more + (k + N1 * p) * ys;
                        read_KIND(w, 2, lanes, cs);
                        const vec_KIND u = *(vec_KIND *)cs, v = *(vec_KIND *)(cs + L);
                        join_KIND(a * u - b * v, a * v + b * u, both);
                    } else join_KIND(a, b, both);
                    if (yl == 2 && lanes == L) memcpy(to, both, sizeof both);
                    else for (int64_t l = 0; l < lanes; l++) to[l * yl] = both[2 * l], to[l * yl + 1] = both[2 * l + 1];
                }
            }
            if (turn_y) fl_turn(sizeof(REAL), 2 * m, lanes, (const char *)turned, L, (char *)y, yl);
        }
}
"""
