"""Fourier transforms in C: Stockham's passes over vectors of transforms that lie side by side.

    fft.rows              one transform after the other; its own columns, seen as an N1 x N2 matrix, are the lanes of vectors
    fft.half, fft.whole   the same from n real numbers to half a spectrum, and back
    fft.columns           some transforms at a time, each of them a lane: dimensions that are not the last, and many short transforms;
                          likewise fft.columns_half and fft.columns_whole

A transform of n = N1 N2 points is N2 transforms of N1 points, a multiplication and N1 transforms of N2 points (j = j1 N2 + j2, k = k1 + N1 k2):

    X[k1 + N1 k2] = sum_j2 W_N2^(j2 k2)  W_n^(j2 k1)  sum_j1 W_N1^(j1 k1) x[j1 N2 + j2]              W_n = exp(-2 pi i / n)

Both have so few points that they stay in the nearest cache for all their passes. A pass of radix r takes r points m apart, transforms them
by straight code, multiplies, and leaves them side by side, so that after the last pass all are in order. Real and imaginary parts are
apart; backward is forward with the two exchanged. All arithmetic is in whole vectors: a transform's bits depend on its own numbers alone.

n real numbers (n even) are n / 2 complex ones, from whose spectrum theirs is put together. fourier.py has the plans and what calls these.
"""

from __future__ import annotations

from math import sqrt

from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table, filled
from flambeau.kernels.templates.fourier import FACTS, RADICES, root

JOINED = (2, 3, 4, 5, 8)  # radices whose passes read and write complex numbers, too
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
enum { L_KIND = BYTES / sizeof(REAL), SKEW_KIND = 9 * L_KIND }; /* what is a multiple of 4096 bytes apart looks alike to the CPU for a while */
"""


def table() -> Table:
    loops = Table(BEGINNING)
    for words in REALS.values():
        kind = words["KIND"]
        parts = [TYPES, _split_and_join({"f32": 16, "f64": 8}[kind]), *map(_pass, RADICES), *map(_first, JOINED), *map(_last, JOINED)]
        parts += [_lanes(), ROWS.replace("HALVES", str(FACTS.index("halves"))), COLUMNS]
        loops.texts.append(filled("\n".join(parts), {"FACTS": _facts(), "PARAMETERS": PARAMETERS} | words))
        pair = {"f32": "c64", "f64": "c128"}[kind]
        for name, numbers, out, operands in (
            ("rows", 6, pair, f"{pair} T i64"),
            ("half", 2, pair, f"{kind} T i64"),
            ("whole", 2, kind, f"{pair} T i64"),
            ("columns", 11, pair, f"{pair} T i64 {pair}"),
            ("columns_half", 11, pair, f"{kind} T i64 {pair}"),
            ("columns_whole", 11, kind, f"{pair} T i64 {pair}"),
        ):
            loops.add(f"fft.{name}", f"fft_{name}_{kind}", kind, operands, numbers, LINES, out)
    return loops


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


def _first(radix: int) -> str:
    """The first pass, from complex numbers as they lie in memory."""
    take = "    const REAL *const ax = x + p * xstep; REAL *const br = y + p * {} * 2 * L_KIND, *const bi = br + L_KIND;\n"
    loops = [
        f"""        {{ const int64_t p = 0;
{take.format(radix)}{_butterfly(radix, False, read)}        }}
        for (int64_t p = 1; p < m; p++) {{ w += {2 * radix - 2};
{take.format(radix)}{_butterfly(radix, True, read)}        }}
"""
        for read in (("EVEN", "ODD"), ("ODD", "EVEN"))
    ]
    return f"""
static void first_{radix}_KIND(int64_t len, const REAL *x, int64_t xstep, REAL *restrict y, const REAL *restrict w, int back) {{
    const int64_t m = len / {radix}, across = m * xstep, along = 2 * L_KIND;
    if (!back) {{
{loops[0]}    }} else {{
{loops[1]}    }}
}}
"""


def _last(radix: int) -> str:
    """The last pass, to complex numbers as they lie in memory; and the last pass of the N1 points, with the multiplication."""
    loops = [_butterfly(radix, False, write=write) for write in (("re", "im"), ("im", "re"))]
    take = "        const REAL *const ar = x + q * 2 * L_KIND, *const ai = ar + L_KIND;\n"
    return f"""
static void last_{radix}_KIND(int64_t s, const REAL *x, REAL *restrict y, int64_t ystep, REAL scale, int back) {{
    const int64_t across = s * 2 * L_KIND, along = s * ystep;
    if (!back)
        for (int64_t q = 0; q < s; q++) {{
{take}        REAL *const by = y + q * ystep;
{loops[0]}        }}
    else
        for (int64_t q = 0; q < s; q++) {{
{take}        REAL *const by = y + q * ystep;
{loops[1]}        }}
}}
static void between_{radix}_KIND(int64_t s, const REAL *x, REAL *restrict y, const REAL *restrict wr, const REAL *restrict wi, int64_t wstep,
                                 const char *soon, char *there) {{
    const int64_t across = s * 2 * L_KIND, along = s * 2 * L_KIND;
    for (int64_t q = 0; q < s; q++, soon += {radix} * 2 * BYTES, there += {radix} * 2 * BYTES) {{
        for (int l = 0; l < {radix} * 2 * BYTES; l += 64) __builtin_prefetch(soon + l), __builtin_prefetch(there + l, 1);
{take}        REAL *const br = y + q * 2 * L_KIND, *const bi = br + L_KIND;
{_butterfly(radix, False, weigh=True)}    }}
}}
"""


def _butterfly(radix: int, multiplied: bool, read=None, write=None, weigh: bool = False) -> str:
    """Reads r points, transforms them, multiplies by numbers or vectors, writes them. `read`, `write`: complex numbers, the parts in this order."""
    code = _Straight()
    if read is None:
        part = "*(const vec_KIND *)({} + {} * across)"
        points = [code.name(part.format("ar", k), part.format("ai", k)) for k in range(radix)]
    else:
        part = "PICK(word_KIND, *(const vec_KIND *)(ax + {0} * across), *(const vec_KIND *)(ax + {0} * across + L_KIND), {1})"
        points = [code.name(*(part.format(k, which) for which in read)) for k in range(radix)]
    for k, point in enumerate(code.transform(points)):
        if k and multiplied:
            point = code.times(point, f"w[{2 * k - 2}]", f"w[{2 * k - 1}]")
        if weigh:
            vector = f"*(const vec_KIND *)({{}} + (q + {k} * s) * wstep)"
            c, d = code.name(vector.format("wr"), vector.format("wi"))
            point = code.times(point, c, d)
        if write is None:
            code.lines.append(f"*(vec_KIND *)(br + {k} * along) = {point[0]}, *(vec_KIND *)(bi + {k} * along) = {point[1]};")
        else:
            re, im = point if write[0] == "re" else point[::-1]
            code.lines.append(f"join_KIND({re} * scale, {im} * scale, by + {k} * along);")
    return "".join(f"            {line}\n" for line in code.lines)


def _cases(name: str, arguments: str, which=RADICES) -> str:
    """Which function does a pass."""
    return " ".join(f"case {r}: {name}_{r}_KIND({arguments}); break;" for r in which)


def _lanes() -> str:
    text = LANES.replace("FIRST", _cases("first", "len, e->x, xstep, br, w, e->back", JOINED))
    text = text.replace("LAST", _cases("last", "s, ar, e->y, ystep, e->scale, e->back", JOINED))
    text = text.replace("BETWEEN", _cases("between", "s, ar, yr, e->wr, e->wi, e->wstep, e->soon, e->there", JOINED))
    text = text.replace("JOINED", " || ".join(f"radix == {r}" for r in JOINED))
    return text.replace("CASES", _cases("pass", "len, s, ar, ai, astep, br, bi, bstep, w"))


LANES = """
/* What the first and the last of several passes may do besides: read complex numbers, multiply by vectors, write complex numbers. */
typedef struct {
    const REAL *x, *wr, *wi;
    REAL *y, scale;
    int64_t wstep;
    int back;
    const char *soon; /* what is read next, and where the result goes: called for meanwhile */
    char *there;
} ends_KIND;
static inline int joined_KIND(int64_t count, int64_t radix) { return count > 1 && (JOINED); }

/* The transforms of n points, a vector of them at a time, from x to y; `work` is room for 4 n vectors and two SKEWs. */
static void lanes_KIND(int64_t n, int64_t count, const int64_t *radices, const REAL *w, const REAL *xr, const REAL *xi, int64_t xstep,
                       REAL *yr, REAL *yi, int64_t ystep, REAL *work, const ends_KIND *e) {
    const REAL *ar = xr, *ai = xi;
    int64_t astep = xstep, len = n, s = 1;
    if (!count) *(vec_KIND *)yr = *(const vec_KIND *)xr, *(vec_KIND *)yi = *(const vec_KIND *)xi;
    for (int64_t i = 0; i < count; i++) {
        const int last = i == count - 1;
        REAL *const there = work + (i & 1) * (2 * L_KIND * n + SKEW_KIND), *const br = last ? yr : there, *const bi = last ? yi : there + L_KIND;
        const int64_t bstep = last ? ystep : 2 * L_KIND;
        if (e && e->x && i == 0) switch (radices[i]) { FIRST }
        else if (e && e->y && last) switch (radices[i]) { LAST }
        else if (e && e->wr && last) switch (radices[i]) { BETWEEN }
        else switch (radices[i]) { CASES }
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
        picks |= {f"{name}_BACK": [*reversed(numbers)] for name, numbers in picks.items()}
        picks["LOW_BACK"], picks["HIGH_BACK"] = (
            [p for k in ks for p in (k, n + k)] for ks in (range(n - 1, n // 2 - 1, -1), range(n // 2 - 1, -1, -1))
        )
        picks["BACK"] = [*range(n - 1, -1, -1)]
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
static inline void join_back_KIND(vec_KIND re, vec_KIND im, REAL *y) { /* the last lane first */
    *(vec_KIND *)y = PICK(word_KIND, re, im, LOW_BACK), *(vec_KIND *)(y + L_KIND) = PICK(word_KIND, re, im, HIGH_BACK);
}
"""

ROWS = """
/* The transform of N1 N2 points from x to y, complex numbers side by side; or from z or to z, their parts, where x or y is NULL. z has room for
   a vector more; `turned` is room for as many, in rows of whole vectors. What is read `soon` and where the
   result goes is called for meanwhile. */
static void row_KIND(const int64_t *facts, const REAL *table, const REAL *x, REAL *y, REAL scale, int back, REAL *zr, REAL *zi, REAL *turned,
                     REAL *work, const char *soon, char *there) {
    FACTS
    const int64_t ld = (N1 + L_KIND - 1) / L_KIND * L_KIND, rows = (N2 + L_KIND - 1) / L_KIND * L_KIND, m = N1 * N2;
    REAL *const tr = turned, *const ti = tr + rows * ld, *const panel = work + 4 * L_KIND * (N1 > N2 ? N1 : N2) + 2 * SKEW_KIND;
    REAL *const re = back ? zi : zr, *const im = back ? zr : zi;
    const REAL *const wr = table + between, *const wi = wr + m;
    const int from_x = x && N2 % L_KIND == 0 && joined_KIND(count1, radices1[0]), weighed = joined_KIND(count1, radices1[count1 - 1]);
    const int to_y = y && N1 % L_KIND == 0 && joined_KIND(count2, radices2[count2 - 1]);
    int64_t j = 0;
    for (; x && !from_x && j + L_KIND <= m; j += L_KIND) split_KIND(x + 2 * j, re + j, im + j);
    for (; x && !from_x && j < m; j++) re[j] = x[2 * j], im[j] = x[2 * j + 1];
    for (j = 0; N1 > 1 && j < N2; j += L_KIND) {
        const ends_KIND ends = {from_x ? x + 2 * j : 0, weighed ? wr + j : 0, wi + j, 0, 1, N2, back, soon, there};
        lanes_KIND(N1, count1, radices1, table + table1, zr + j, zi + j, from_x ? 2 * N2 : N2, panel, panel + L_KIND, 2 * L_KIND, work, &ends);
        for (int64_t k = 1; k < N1 && !weighed; k++) {
            REAL *const at = panel + 2 * L_KIND * k;
            const vec_KIND a = *(vec_KIND *)at, b = *(vec_KIND *)(at + L_KIND);
            const vec_KIND c = *(const vec_KIND *)(wr + k * N2 + j), s = *(const vec_KIND *)(wi + k * N2 + j);
            *(vec_KIND *)at = a * c - b * s, *(vec_KIND *)(at + L_KIND) = a * s + b * c;
        }
        soon += N1 * 2 * BYTES, there += N1 * 2 * BYTES;
        fl_turn(sizeof(REAL), N1, L_KIND, (const char *)panel, 2 * L_KIND, (char *)(tr + j * ld), ld);
        fl_turn(sizeof(REAL), N1, L_KIND, (const char *)(panel + L_KIND), 2 * L_KIND, (char *)(ti + j * ld), ld);
    }
    if (N1 < L_KIND) { /* vectors reach into the rows that follow, which are written after them */
        lanes_KIND(N2, count2, radices2, table + table2, N1 > 1 ? tr : zr, N1 > 1 ? ti : zi, N1 > 1 ? ld : 1, panel, panel + L_KIND, 2 * L_KIND, work, 0);
        for (int64_t p = 0; p < N2; p++) {
            *(vec_KIND *)(zr + p * N1) = *(vec_KIND *)(panel + 2 * L_KIND * p);
            *(vec_KIND *)(zi + p * N1) = *(vec_KIND *)(panel + 2 * L_KIND * p + L_KIND);
        }
    } else /* the last vectors reach into the next row, whose first vectors come last */
        for (int64_t k = ld - L_KIND; k >= 0; k -= L_KIND) {
            const ends_KIND ends = {.y = to_y ? y + 2 * k : 0, .scale = scale, .back = back};
            lanes_KIND(N2, count2, radices2, table + table2, tr + k, ti + k, ld, zr + k, zi + k, to_y ? 2 * N1 : N1, work, &ends);
        }
    for (j = 0; y && !to_y && j + L_KIND <= m; j += L_KIND) join_KIND(*(vec_KIND *)(re + j) * scale, *(vec_KIND *)(im + j) * scale, y + 2 * j);
    for (; y && !to_y && j < m; j++) y[2 * j] = re[j] * scale, y[2 * j + 1] = im[j] * scale;
}

/* Rooms for one row: z in two parts, each with room for a vector more, the turned matrix, what passes leave. */
#define ROOMS_KIND                                                                                                            \\
    const int64_t *const facts = (const int64_t *)ptr[3];                                                                       \\
    const REAL *const table = (const REAL *)ptr[2];                                                                             \\
    const int64_t n1 = facts[0], n2 = facts[1], m = n1 * n2, longer = n1 > n2 ? n1 : n2;                                         \\
    const int64_t padded = (n1 + L_KIND) * (n2 + L_KIND), part = (m + 2 * L_KIND) / L_KIND * L_KIND;                             \\
    FL_ALIGNED REAL zr[part], zi[part], turned[2 * padded], work[6 * L_KIND * longer + 2 * SKEW_KIND];                           \\
    memset(turned, 0, sizeof turned), memset(zr + m, 0, sizeof(REAL) * (size_t)(part - m)), memset(zi + m, 0, sizeof(REAL) * (size_t)(part - m));

/* Numbers: points; scale; backward; elements from point to point of x and of y; whether x is y. */
void FL_NAME(fft_rows_KIND)PARAMETERS {
    ROOMS_KIND
    const REAL scale = (REAL)param[1];
    const int64_t xs = 2 * (int64_t)param[3], ys = 2 * (int64_t)param[4];
    const int back = param[2] != 0, here = param[5] != 0;
    REAL *const re = back ? zi : zr, *const im = back ? zr : zi;
    for (int64_t e = 0; e < n; e++) {
        const char *const from = here ? ptr[0] + e * step[0] : ptr[1] + e * step[1];
        const REAL *const x = (const REAL *)from;
        REAL *const y = (REAL *)(ptr[0] + e * step[0]);
        for (int64_t j = 0; xs != 2 && j < m; j++) re[j] = x[j * xs], im[j] = x[j * xs + 1];
        row_KIND(facts, table, xs == 2 ? x : 0, ys == 2 ? y : 0, scale, back, zr, zi, turned, work, from + step[here ? 0 : 1], (char *)y);
        for (int64_t j = 0; ys != 2 && j < m; j++) y[j * ys] = re[j] * scale, y[j * ys + 1] = im[j] * scale;
    }
}

/* 2 m real numbers x to m + 1 of their frequencies: with z = x[2 j] + i x[2 j + 1] and its spectrum Z, and Y[k] the conjugate of Z[m - k],
   X[k] = (Z[k] + Y[k]) / 2 - i W_2m^k (Z[k] - Y[k]) / 2. Numbers: points; scale. */
void FL_NAME(fft_half_KIND)PARAMETERS {
    ROOMS_KIND
    const REAL half = (REAL)(param[1] / 2);
    const REAL *const wr = table + facts[HALVES], *const wi = wr + m + 1;
    for (int64_t e = 0; e < n; e++) {
        const REAL *const x = (const REAL *)(ptr[1] + e * step[1]);
        REAL *restrict const y = (REAL *)(ptr[0] + e * step[0]);
        row_KIND(facts, table, x, 0, 1, 0, zr, zi, turned, work, (const char *)x + step[1], (char *)y);
        zr[m] = zr[0], zi[m] = zi[0];
        int64_t k = 0;
        for (; 2 * k + 2 * L_KIND <= m; k += L_KIND) { /* with those that mirror them: there W is -1 / W */
            const int64_t mirror = m - k - L_KIND + 1;
            const vec_KIND pr = *(vec_KIND *)(zr + k), pi = *(vec_KIND *)(zi + k), c = *(const vec_KIND *)(wr + k), d = *(const vec_KIND *)(wi + k);
            const vec_KIND rr = *(vec_KIND *)(zr + mirror), ri = *(vec_KIND *)(zi + mirror);
            const vec_KIND qr = PICK(word_KIND, rr, rr, BACK), qi = PICK(word_KIND, ri, ri, BACK);
            const vec_KIND ar = pr + qr, ai = pi - qi, br = pi + qi, bi = qr - pr, t = br * c - bi * d, u = br * d + bi * c;
            join_KIND(half * (ar + t), half * (ai + u), y + 2 * k);
            join_back_KIND(half * (ar - t), half * (u - ai), y + 2 * mirror);
        }
        for (const int64_t end = m - k; k <= end; k++) {
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
    const REAL *const wr = table + facts[HALVES], *const wi = wr + m + 1;
    for (int64_t e = 0; e < n; e++) {
        const REAL *const x = (const REAL *)(ptr[1] + e * step[1]);
        int64_t k = 0;
        for (; 2 * k + 2 * L_KIND <= m; k += L_KIND) {
            const int64_t mirror = m - k - L_KIND + 1;
            const vec_KIND p = *(const vec_KIND *)(x + 2 * k), q = *(const vec_KIND *)(x + 2 * k + L_KIND);
            const vec_KIND r = *(const vec_KIND *)(x + 2 * mirror), v = *(const vec_KIND *)(x + 2 * mirror + L_KIND);
            const vec_KIND pr = PICK(word_KIND, p, q, EVEN), pi = PICK(word_KIND, p, q, ODD), c = *(const vec_KIND *)(wr + k), d = *(const vec_KIND *)(wi + k);
            const vec_KIND qr = PICK(word_KIND, r, v, EVEN_BACK), qi = PICK(word_KIND, r, v, ODD_BACK);
            const vec_KIND ar = pr + qr, ai = pi - qi, br = pr - qr, bi = pi + qi, t = br * d - bi * c, u = br * c + bi * d, w = ar - t, z = u - ai;
            *(vec_KIND *)(zi + mirror) = PICK(word_KIND, w, w, BACK), *(vec_KIND *)(zr + mirror) = PICK(word_KIND, z, z, BACK);
            *(vec_KIND *)(zi + k) = ar + t, *(vec_KIND *)(zr + k) = ai + u;
        }
        for (const int64_t end = m - k; k <= end; k++) {
            const REAL *const p = x + 2 * k, *const q = x + 2 * (m - k);
            const REAL ar = p[0] + q[0], ai = p[1] - q[1], br = p[0] - q[0], bi = p[1] + q[1];
            zi[k] = ar + (br * wi[k] - bi * wr[k]), zr[k] = ai + (br * wr[k] + bi * wi[k]);
        }
        zi[0] = x[0] + x[2 * m], zr[0] = x[0] - x[2 * m], zr[m] = 0, zi[m] = 0;
        row_KIND(facts, table, 0, (REAL *)(ptr[0] + e * step[0]), scale, 1, zr, zi, turned, work, (const char *)x + step[1], ptr[0] + e * step[0]);
    }
}
"""

COLUMNS = """
static inline void read_KIND(const REAL *x, int64_t apart, int64_t lanes, REAL *to) {
    if (apart == 2 && lanes == L_KIND) { split_KIND(x, to, to + L_KIND); return; }
    for (int64_t l = 0; l < L_KIND; l++) to[l] = l < lanes ? x[l * apart] : 0, to[L_KIND + l] = l < lanes ? x[l * apart + 1] : 0;
}
static inline void read_real_KIND(const REAL *x, int64_t apart, int64_t lanes, REAL *to) {
    if (apart == 1 && lanes == L_KIND) { *(vec_KIND *)to = *(const vec_KIND *)x; return; }
    for (int64_t l = 0; l < L_KIND; l++) to[l] = l < lanes ? x[l * apart] : 0;
}
static inline void write_KIND(vec_KIND v, REAL *y, int64_t apart, int64_t lanes) {
    if (apart == 1 && lanes == L_KIND) *(vec_KIND *)y = v;
    else for (int64_t l = 0; l < lanes; l++) y[l * apart] = v[l];
}

enum { WHOLE_KIND, HALF_KIND, BACK_KIND }; /* complex to complex, real to half a spectrum, half a spectrum to real */

/* Numbers: elements of work; points; transforms; scale; backward; elements from point to point and from transform to transform of x, and of y;
   whether x is y; whether the result is multiplied by `more`, which lies as y does. In `all` and `done` a point is a vector of real parts and
   one of imaginary parts. */
static inline __attribute__((always_inline)) void columns_KIND(char *const *ptr, const int64_t *step, int64_t n, const double *param, const int way) {
    enum { L = L_KIND };
    const int64_t *const facts = (const int64_t *)ptr[3];
    FACTS
    const REAL *const table = (const REAL *)ptr[2], *const wr = table + between, *const wi = wr + N1 * N2, *const hr = table + halves;
    const int64_t m = N1 * N2, wide = (int64_t)param[2], longer = N1 > N2 ? N1 : N2, x_part = way == HALF_KIND ? 1 : 2, y_part = way == BACK_KIND ? 1 : 2;
    const int64_t xs = x_part * (int64_t)param[5], xl = x_part * (int64_t)param[6], ys = y_part * (int64_t)param[7], yl = y_part * (int64_t)param[8];
    const int64_t x_points = way == BACK_KIND ? m + 1 : m, y_points = way == HALF_KIND ? m + 1 : m;
    const REAL scale = (REAL)(way == HALF_KIND ? param[3] / 2 : param[3]);
    const int back = way == BACK_KIND || (way == WHOLE_KIND && param[4] != 0), re = back ? L : 0, im = L - re, weighed = param[10] != 0;
    const int turn_x = xl != x_part && xs == x_part, turn_y = yl != y_part && ys == y_part && !weighed, kept = turn_y || way != WHOLE_KIND;
    FL_ALIGNED REAL all[2 * L * m], done[kept ? 2 * L * (m + 1) : 2 * L * longer], work[4 * L * longer + 2 * SKEW_KIND], few[2 * L * longer + SKEW_KIND];
    for (int64_t e = 0; e < n; e++)
        for (int64_t first = 0; first < wide; first += L) {
            const int64_t lanes = wide - first < L ? wide - first : L;
            const int from_x = way == WHOLE_KIND && xl == 2 && lanes == L && N1 > 1 && joined_KIND(count1, radices1[0]);
            const int to_y = !kept && yl == 2 && lanes == L && N1 > 1 && !weighed && joined_KIND(count2, radices2[count2 - 1]);
            const int at_once = turn_x || way == BACK_KIND || (N1 == 1 && !from_x); /* all points are read first */
            const REAL *const x = (const REAL *)(param[9] ? ptr[0] + e * step[0] : ptr[1] + e * step[1]) + first * xl;
            const REAL *const more = (const REAL *)(ptr[4] + e * step[4]) + first * 2;
            REAL *const y = (REAL *)(ptr[0] + e * step[0]) + first * yl, *const all_x = way == BACK_KIND ? done : all;
            if (turn_x) {
                if (lanes < L) memset(all_x, 0, sizeof(REAL) * 2 * L * (size_t)x_points);
                fl_turn(sizeof(REAL), lanes, 2 * x_points, (const char *)x, xl, (char *)all_x, L);
            } else
                for (int64_t j = 0; at_once && j < x_points; j++) {
                    REAL *const to = all_x + 2 * L * j;
                    if (way == HALF_KIND) read_real_KIND(x + 2 * j * xs, xl, lanes, to), read_real_KIND(x + (2 * j + 1) * xs, xl, lanes, to + L);
                    else read_KIND(x + j * xs, xl, lanes, to);
                }
            for (int64_t k = 0; way == BACK_KIND && k < m; k++) { /* Z from X, see fft_whole */
                const REAL *const p = done + 2 * L * k, *const q = done + 2 * L * (m - k), c = hr[k], d = hr[m + 1 + k];
                const vec_KIND pr = *(const vec_KIND *)p, pi = *(const vec_KIND *)(p + L), qr = *(const vec_KIND *)q, qi = *(const vec_KIND *)(q + L);
                const vec_KIND ar = pr + qr, ai = pi - qi, br = pr - qr, bi = pi + qi;
                REAL *const to = all + 2 * L * k;
                if (k) *(vec_KIND *)to = ar + (br * d - bi * c), *(vec_KIND *)(to + L) = ai + (br * c + bi * d);
                else *(vec_KIND *)to = ar, *(vec_KIND *)(to + L) = br;
            }
            for (int64_t j = 0; N1 > 1 && j < N2; j++) { /* the transforms of N1 points, N2 apart */
                const REAL *from = at_once ? all + 2 * L * j : few;
                const ends_KIND ends = {.x = from_x ? x + j * xs : 0, .back = back};
                for (int64_t p = 0; !at_once && !from_x && p < N1; p++) {
                    REAL *const to = few + 2 * L * p;
                    const int64_t at = p * N2 + j;
                    if (way == HALF_KIND) read_real_KIND(x + 2 * at * xs, xl, lanes, to), read_real_KIND(x + (2 * at + 1) * xs, xl, lanes, to + L);
                    else read_KIND(x + at * xs, xl, lanes, to);
                }
                for (int64_t p = 0; from_x && p < N1; p++) /* so far apart, the CPU does not see by itself what comes */
                    for (int64_t q = 0; q < 2 * BYTES; q += 64) __builtin_prefetch((const char *)(x + (p * N2 + j + 1) * xs) + q);
                const int64_t apart = from_x ? N2 * xs : at_once ? 2 * L * N2 : 2 * L;
                lanes_KIND(N1, count1, radices1, table + table1, from + re, from + im, apart, done, done + L, 2 * L, work, &ends);
                for (int64_t k = 0; k < N1; k++) {
                    const REAL *const at = done + 2 * L * k, c = wr[k * N2 + j], d = wi[k * N2 + j];
                    REAL *const to = all + 2 * L * (k * N2 + j);
                    const vec_KIND a = *(const vec_KIND *)at, b = *(const vec_KIND *)(at + L);
                    if (j && k) *(vec_KIND *)to = a * c - b * d, *(vec_KIND *)(to + L) = a * d + b * c;
                    else *(vec_KIND *)to = a, *(vec_KIND *)(to + L) = b;
                }
            }
            for (int64_t k = 0; k < N1; k++) { /* those of N2 points, side by side */
                const REAL *const from = all + 2 * L * N2 * k;
                const ends_KIND ends = {.y = to_y ? y + k * ys : 0, .scale = scale, .back = back};
                REAL *const to = done + (kept ? 2 * L * k : 0);
                for (int64_t p = 0; to_y && p < N2; p++)
                    for (int64_t q = 0; q < 2 * BYTES; q += 64) __builtin_prefetch((char *)(y + (k + 1 + p * N1) * ys) + q, 1);
                lanes_KIND(N2, count2, radices2, table + table2, from + (N1 == 1 ? re : 0), from + (N1 == 1 ? im : L), 2 * L, to + re, to + im,
                           to_y ? N1 * ys : kept ? 2 * L * N1 : 2 * L, work, &ends);
                for (int64_t p = 0; p < N2 && !to_y && !kept; p++) {
                    const REAL *const at = done + 2 * L * p;
                    const vec_KIND a = *(const vec_KIND *)at * scale, b = *(const vec_KIND *)(at + L) * scale;
                    FL_ALIGNED REAL both[2 * L], w[2 * L];
                    if (weighed) {
                        read_KIND(more + (k + N1 * p) * ys, 2, lanes, w);
                        const vec_KIND c = *(vec_KIND *)w, d = *(vec_KIND *)(w + L);
                        join_KIND(a * c - b * d, a * d + b * c, both);
                    } else join_KIND(a, b, both);
                    REAL *const out = y + (k + N1 * p) * ys;
                    if (yl == 2 && lanes == L) memcpy(out, both, sizeof both);
                    else for (int64_t l = 0; l < lanes; l++) out[l * yl] = both[2 * l], out[l * yl + 1] = both[2 * l + 1];
                }
            }
            if (way == HALF_KIND) { /* X from Z, see fft_half, two at a time */
                memcpy(done + 2 * L * m, done, sizeof(REAL) * 2 * L);
                for (int64_t k = 0; k <= m / 2; k++) {
                    REAL *const p = done + 2 * L * k, *const q = done + 2 * L * (m - k);
                    const REAL c = hr[k], d = hr[m + 1 + k], f = hr[m - k], g = hr[m + 1 + m - k];
                    const vec_KIND pr = *(vec_KIND *)p, pi = *(vec_KIND *)(p + L), qr = *(vec_KIND *)q, qi = *(vec_KIND *)(q + L), zero = {0};
                    const vec_KIND ar = pr + qr, ai = pi - qi, br = pi + qi, bi = qr - pr;
                    *(vec_KIND *)p = ar + (br * c - bi * d), *(vec_KIND *)(p + L) = ai + (br * d + bi * c);
                    *(vec_KIND *)q = ar + (br * f + bi * g), *(vec_KIND *)(q + L) = (br * g - bi * f) - ai;
                    if (!k) *(vec_KIND *)(p + L) = zero, *(vec_KIND *)(q + L) = zero;
                }
            }
            for (int64_t k = 0; kept && scale != 1 && k < 2 * y_points; k++) *(vec_KIND *)(done + L * k) *= scale;
            if (turn_y) fl_turn(sizeof(REAL), 2 * y_points, lanes, (const char *)done, L, (char *)y, yl);
            else
                for (int64_t k = 0; kept && k < y_points; k++) {
                    const vec_KIND a = *(vec_KIND *)(done + 2 * L * k), b = *(vec_KIND *)(done + 2 * L * k + L);
                    FL_ALIGNED REAL both[2 * L];
                    if (way == BACK_KIND) { write_KIND(a, y + 2 * k * ys, yl, lanes), write_KIND(b, y + (2 * k + 1) * ys, yl, lanes); continue; }
                    join_KIND(a, b, both);
                    if (yl == 2 && lanes == L) memcpy(y + k * ys, both, sizeof both);
                    else for (int64_t l = 0; l < lanes; l++) y[k * ys + l * yl] = both[2 * l], y[k * ys + l * yl + 1] = both[2 * l + 1];
                }
        }
}
void FL_NAME(fft_columns_KIND)PARAMETERS { columns_KIND(ptr, step, n, param, WHOLE_KIND); }
void FL_NAME(fft_columns_half_KIND)PARAMETERS { columns_KIND(ptr, step, n, param, HALF_KIND); }
void FL_NAME(fft_columns_whole_KIND)PARAMETERS { columns_KIND(ptr, step, n, param, BACK_KIND); }
"""
