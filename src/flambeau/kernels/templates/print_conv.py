"""The loops of convolution, printed as C: what conv_plans.py runs, one task per block of output rows of an image.

A task first copies the patch of the image that its outputs need: pixel after pixel, all channels of a pixel side by side, zeros where the
kernel sticks out. In that order a row of the kernel meets kw * C neighbouring numbers, and a matrix product needs no other copy:

    direct     out (pixels, O) = patch rows, where they lie, times the weight (K * C, O), whose panels were packed before all tasks
    weight     grad (C, O), for every k, += patch (pixels, C) turned, times the gradient (pixels, O)
    winograd   for 3 x 3 kernels: 4 x 4 patches and the kernel are transformed by sums and differences, so that 16 products of a channel
               make 4 outputs, instead of 36 (Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015)
    depthwise  one channel to a group: no matrix, see print_depthwise.py

The tile of a product stays in registers while all of K is walked, as in print_gemm.py. Vectors are as wide as the CPU's: the same text is
compiled for each variant.
"""

from __future__ import annotations

from collections.abc import Iterable

from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table
from flambeau.kernels.templates import print_depthwise

TILES = {16: {1: 14, 2: 12, 3: 8, 4: 6}, 8: {1: 6, 2: 6}, 4: {1: 6, 2: 6}}  # width of a vector: {vectors across: rows}
CONDITIONS = {16: "#if defined(__AVX512F__)", 8: "#elif defined(__AVX2__)", 4: "#else"}
APART = 16  # numbers between the 16 parts of Winograd's products, which would often meet in the same few lines of a cache otherwise
NAMES = (
    "pack",
    "direct",
    "weight",
    "winograd_pack",
    "winograd",
    "winograd_weight",
    "weight_sum",
    "winograd_sum",
    "depthwise",
    "depthwise_weight",
    "depthwise_pack",
    "depthwise_last",
)

# What a task reads, in this order; pointers are numbers too. conv_plans.py fills it in by name.
FIELDS = """x w y bias groups cin cout xn xc xd xh xw wg wo wc wd wh ww yn yc yd yh yw D H W OD OH OW KD KH KW sd sh sw pd ph pw dd dh dw
            rows cols splits parts N pitch""".split()


def table() -> Table:
    tiles = [line for width in TILES for line in (CONDITIONS[width], *_tiles(width))]
    fields = "".join(f"    {'float *' if f in ('x', 'w', 'y', 'bias') else 'int64_t '}{f};\n" for f in FIELDS)
    texts = [
        f"#include <string.h>\nenum {{ APART = {APART} }};\ntypedef struct {{\n"
        + fields
        + f"}} Conv;\ntypedef void tile_fn{_TILE_PARAMETERS};\n",
        *tiles,
        "#endif",
        _TURN % _turned(),
        _TASKS,
        _WINOGRAD,
        _SUMS,
        *print_depthwise.texts(),
    ]
    return tasks(Table(*texts), "conv", NAMES, "Conv")


def tasks(loops: Table, room: str, names: Iterable[str], plan: str) -> Table:
    """Loops over tasks. Operands: what became of the task (0: done, 1: some result is not finite, 2: no memory), its number, the plan."""
    for name in names:
        loops.texts.append(f"""void FL_NAME({room}_{name}){PARAMETERS} {{
    for (int64_t i = 0; i < n; i++)
        *(int64_t *)(ptr[0] + i * step[0]) = {name}((const {plan} *)(ptr[2] + i * step[2]), *(const int64_t *)(ptr[1] + i * step[1]));
}}
""")
        loops.add(f"{room}.{name}", f"{room}_{name}", "i64", "T i64", 1, LINES)
    return loops


def _tiles(width: int):
    """Products of 1 to R rows of A with a panel of 1 to V vectors of B, for one width of vectors."""
    yield f"enum {{ VW = {width}, PANEL = {width * max(TILES[width])}, PANELS = {max(TILES[width])} }};"
    yield f"typedef float vec __attribute__((vector_size({4 * width}), aligned(4), may_alias));"
    yield f"typedef int32_t ivec __attribute__((vector_size({4 * width})));"
    for vectors, most in TILES[width].items():
        for rows in range(1, most + 1):
            yield _tile(rows, vectors)
        names = ", ".join(f"tile_{rows}_{vectors}" for rows in range(1, most + 1))
        yield f"static tile_fn *const tiles_{vectors}[] = {{{names}}};"
    yield f"static tile_fn *const *const tiles[] = {{{', '.join(f'tiles_{v}' for v in TILES[width])}}};"
    yield f"static const int64_t tile_rows[] = {{{', '.join(map(str, TILES[width].values()))}}};"


def _tile(rows: int, vectors: int) -> str:
    """C (rows, vectors) = A B, or C += A B. A is walked in `taps` stretches of `depth`; B lies in one."""
    cells = [(i, j) for i in range(rows) for j in range(vectors)]
    lines = ["vec " + ", ".join(f"c{i}{j} = {{0}}" for j in range(vectors)) + ";" for i in range(rows)]
    lines.append("for (int64_t t = 0; t < taps; t++) {")
    lines += [f"const float *a{i} = a + tap[t] + {i} * down;" for i in range(0, rows, 3)]
    lines.append("for (int64_t q = 0; q < depth; q++) {")
    lines += [f"const vec b{j} = *(const vec *)(b + {j} * VW);" for j in range(vectors)]
    for i in range(rows):
        lines.append(f"const vec x{i} = a{i // 3 * 3}[{i % 3} * down] - (vec){{0}};")
        lines += [f"c{i}{j} += x{i} * b{j};" for j in range(vectors)]
    lines += [f"a{i} += right;" for i in range(0, rows, 3)] + [f"b += {vectors} * VW;", "}", "}"]
    places = [(f"*(vec *)(c + {i} * ldc + {j} * VW)", f"c{i}{j}") for i, j in cells]
    lines += ["if (add) {", *(f"{c} += {x};" for c, x in places), "} else {", *(f"{c} = {x};" for c, x in places), "}"]
    return f"static void tile_{rows}_{vectors}{_TILE_PARAMETERS} {{\n    " + "\n    ".join(lines) + "\n}"


_TILE_PARAMETERS = """(int64_t taps, const int64_t *tap, int64_t depth, const float *a, int64_t down, int64_t right, const float *b, float *c,
    int64_t ldc, int add)"""


def _turned() -> str:
    """A square of VW x VW numbers turned in registers, as in print_tiles.py, for each width."""
    found = []
    for width in TILES:
        rows = [f"r{i}" for i in range(width)]
        lines = [CONDITIONS[width], *(f"vec {r} = *(const vec *)(from + {i} * fr);" for i, r in enumerate(rows))]
        lines.append("if (bias) { const vec more = *(const vec *)bias; " + " ".join(f"{r} += more;" for r in rows) + " }")
        for number in range(width.bit_length() - 1):
            fresh = [f"s{number}_{i}" for i in range(width)]
            for i, (a, b, picks) in enumerate(_exchange(width, number)):
                lines.append(f"const vec {fresh[i]} = PICK({rows[a]}, {rows[b]}, {', '.join(map(str, picks))});")
            rows = fresh
        found += [*lines, *(f"*(vec *)(to + {i} * tc) = {r};" for i, r in enumerate(rows))]
    return "\n    ".join([*found, "#endif"])


def _exchange(width: int, number: int) -> list[tuple[int, int, list[int]]]:
    """Step `number` of turning a square: for every new row two old ones, and which of their numbers it takes.

    Vectors of 8 have two halves that few instructions cross: numbers, then pairs of them, are exchanged within halves, and halves at the end."""
    if width != 8:
        halves = range(width // 2), range(width // 2, width)
        return [(i // 2, i // 2 + width // 2, [n for k in halves[i % 2] for n in (k, width + k)]) for i in range(width)]
    low, high = [[0, 1, 8, 9, 4, 5, 12, 13], [0, 8, 1, 9, 4, 12, 5, 13]], [[2, 3, 10, 11, 6, 7, 14, 15], [2, 10, 3, 11, 6, 14, 7, 15]]
    if number == 0:
        return [(i & 6, i | 1, high[1] if i & 1 else low[1]) for i in range(8)]
    if number == 1:
        return [((i & 4) + (i >> 1 & 1), (i & 4) + 2 + (i >> 1 & 1), high[0] if i & 1 else low[0]) for i in range(8)]
    return [(i & 3, i & 3 | 4, [n + (i & 4) for n in (0, 1, 2, 3, 8, 9, 10, 11)]) for i in range(8)]


_TURN = """
#if defined(__clang__)
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
#endif
static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static void turn(const float *from, int64_t fr, float *to, int64_t tc, const float *bias) {
    %s
}
/* to[i tr + j tc] = from[i fr + j fc] (+ bias[j], for fc = 1). Squares are turned in registers; the last ones overlap those before. */
static void move(int64_t m, int64_t n, const float *from, int64_t fr, int64_t fc, float *to, int64_t tr, int64_t tc, const float *bias) {
    if (fc != 1 && fr == 1 && !bias) {
        const int64_t size = m, step = fr, leap = tr;
        m = n, n = size, fr = fc, fc = step, tr = tc, tc = leap;
    }
    if (fc == 1 && tc == 1) {
        if (!bias && fr == n && tr == n) memcpy(to, from, sizeof(float) * (size_t)(m * n));
        else
            for (int64_t i = 0; i < m; i++)
                if (bias) for (int64_t j = 0; j < n; j++) to[i * tr + j] = from[i * fr + j] + bias[j];
                else memcpy(to + i * tr, from + i * fr, sizeof(float) * (size_t)n);
    } else if (fc == 1 && tr == 1 && m >= VW && n >= VW) {
        for (int64_t i = 0; i < m; i += VW)
            for (int64_t j = 0, r = least(i, m - VW); j < n; j += VW) {
                const int64_t c = least(j, n - VW);
                turn(from + r * fr + c, fr, to + r + c * tc, tc, bias ? bias + c : NULL);
            }
    } else if (m == 3 && tr == 1 && !bias) /* the colours of an image */
        for (int64_t j = 0; j < n; j++) {
            const float *const f = from + j * fc;
            float *const t = to + j * tc;
            t[0] = f[0], t[1] = f[fr], t[2] = f[2 * fr];
        }
    else
        for (int64_t j = 0; j < n; j++) {
            const float more = bias ? bias[j] : 0;
            for (int64_t i = 0; i < m; i++) to[i * tr + j * tc] = from[i * fr + j * fc] + more;
        }
}
static void multiply(int64_t rows, int64_t vectors, int64_t taps, const int64_t *tap, int64_t depth, const float *a, int64_t down, int64_t right,
    const float *b, float *c, int64_t ldc, int add) {
    const int64_t high = tile_rows[vectors - 1];
    for (int64_t i = 0; i < rows; i += high)
        tiles[vectors - 1][least(high, rows - i) - 1](taps, tap, depth, a + i * down, down, right, b, c + i * ldc, ldc, add);
}
/* Rows h to h + count of one plane, columns w to w + width, channels side by side, `pitch` to a pixel; zeros outside. */
static void load(const Conv *p, const float *x, int64_t channels, int64_t pitch, int64_t h, int64_t count, int64_t w, int64_t width, float *to) {
    const int64_t first = least(most(-w, 0), width), last = most(least(p->W - w, width), first);
    for (int64_t r = 0; r < count; r++, h++, to += width * pitch) {
        const int inside = h >= 0 && h < p->H && last > first;
        const int64_t from = inside ? first : width, until = inside ? last : width;
        memset(to, 0, sizeof(float) * (size_t)(from * pitch));
        memset(to + until * pitch, 0, sizeof(float) * (size_t)((width - until) * pitch));
        if (inside) {
            if (pitch > channels) memset(to + from * pitch, 0, sizeof(float) * (size_t)((until - from) * pitch));
            move(channels, until - from, x + h * p->xh + (w + from) * p->xw, p->xc, p->xw, to + from * pitch, 1, pitch, NULL);
        }
    }
}
static inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
static inline int64_t vectors_at(int64_t c, int64_t cout) { return least(PANELS, (cout - c + VW - 1) / VW); }
"""

_TASKS = """
/* Numbers q to q + n of the kernels of `used` channels of outputs, in the order (c, kd, kh, kw): to (n, VW), zeros for more channels. Kernels
   that lie in that order are turned; otherwise numbers are fetched one by one. */
static void some_weights(const Conv *p, const float *w, int64_t used, int64_t q, int64_t n, float *to) {
    const int64_t taps = p->KD * p->KH * p->KW;
    const int deep = p->KD == 1 || p->wd == p->KH * p->KW, high = p->KH == 1 || p->wh == p->KW, wide = p->KW == 1 || p->ww == 1;
    if (deep && high && wide && p->wc == taps && used == VW && n >= VW) {
        for (int64_t i = 0; i < n; i += VW) {
            const int64_t r = least(i, n - VW);
            turn(w + q + r, p->wo, to + r * VW, VW, NULL);
        }
        return;
    }
    int64_t k = q % taps, kw = k % p->KW, kh = k / p->KW % p->KH, kd = k / p->KW / p->KH, c = q / taps;
    for (int64_t i = 0; i < n; i++, to += VW) {
        const float *from = w + c * p->wc + kd * p->wd + kh * p->wh + kw * p->ww;
        for (int64_t j = 0; j < used; j++, from += p->wo) to[j] = *from;
        for (int64_t j = used; j < VW; j++) to[j] = 0;
        if (++kw == p->KW && (kw = 0, ++kh == p->KH) && (kh = 0, ++kd == p->KD)) kd = 0, c++;
    }
}
/* The weight of group g in panels: rows (kd, kh, kw, c), PANEL columns. */
static void pack_panel(const Conv *p, int64_t g, int64_t o) {
    enum { SOME = 72 };
    const int64_t wide = vectors_at(o, p->cout) * VW, taps = p->KD * p->KH * p->KW, few = most(SOME / taps, 1);
    float *const to = p->y + (g * round_up(p->cout, 64) + o) * taps * p->cin;
    for (int64_t c = 0; c < p->cin; c += few)
        for (int64_t first = 0; first < taps; first += SOME) /* all of a few channels, or some of one */
            for (int64_t j = 0; j < wide; j += VW) {
                float some[SOME * VW] FL_ALIGNED;
                const int64_t channels = least(few, p->cin - c), each = least(SOME, taps - first);
                some_weights(p, p->w + g * p->wg + (o + j) * p->wo, most(least(VW, p->cout - o - j), 0), c * taps + first, channels * each, some);
                for (int64_t k = 0; k < each; k++)
                    for (int64_t i = 0; i < channels; i++)
                        *(vec *)(to + ((first + k) * p->cin + c + i) * wide + j) = *(const vec *)(some + (i * each + k) * VW);
            }
}
static int64_t in_panels(const Conv *p, int64_t t, void (*one)(const Conv *, int64_t, int64_t)) { /* 64 channels to a task */
    const int64_t tasks = (p->cout + 63) / 64, first = t % tasks * 64;
    for (int64_t o = first; o < least(first + 64, p->cout); o += PANEL) one(p, t / tasks, o);
    return 0;
}
static int64_t pack(const Conv *p, int64_t t) { return in_panels(p, t, pack_panel); }
typedef struct { int64_t n, g, od, oh, ow, rows, cols, first, last, hin, win; } Block;
static Block block_of(const Conv *p, int64_t t) {
    const int64_t down = (p->OH + p->rows - 1) / p->rows, across = (p->OW + p->cols - 1) / p->cols;
    Block b;
    b.ow = t % across * p->cols, t /= across, b.oh = t % down * p->rows, t /= down;
    b.od = t % p->OD, t /= p->OD;
    const int64_t share = round_up((p->cout + p->splits - 1) / p->splits, 64);
    b.first = t % p->splits * share, b.last = least(b.first + share, p->cout), t /= p->splits;
    b.g = t % p->groups, b.n = t / p->groups;
    b.rows = least(p->rows, p->OH - b.oh), b.cols = least(p->cols, p->OW - b.ow);
    b.hin = (b.rows - 1) * p->sh + (p->KH - 1) * p->dh + 1, b.win = (b.cols - 1) * p->sw + (p->KW - 1) * p->dw + 1;
    return b;
}
/* All planes of the patch of a block. */
static void load_patch(const Conv *p, const Block *b, float *to) {
    const float *x = p->x + b->n * p->xn + b->g * p->cin * p->xc;
    for (int64_t k = 0; k < p->KD; k++, to += b->hin * b->win * p->cin) {
        const int64_t d = b->od * p->sd - p->pd + k * p->dd;
        if (d < 0 || d >= p->D) memset(to, 0, sizeof(float) * (size_t)(b->hin * b->win * p->cin));
        else load(p, x + d * p->xd, p->cin, p->cin, b->oh * p->sh - p->ph, b->hin, b->ow * p->sw - p->pw, b->win, to);
    }
}
/* pixels (count rows of width, ld) to y: one long row where rows of y follow each other. */
static void store(const Conv *p, const Block *b, int64_t o, int64_t used, const float *from, int64_t ld, int64_t pitch) {
    float *y = p->y + b->n * p->yn + (b->g * p->cout + o) * p->yc + b->od * p->yd + b->oh * p->yh + b->ow * p->yw;
    const float *bias = p->bias ? p->bias + b->g * p->cout + o : NULL;
    if (p->yh == b->cols * p->yw && pitch == b->cols * ld) move(b->rows * b->cols, used, from, ld, 1, y, p->yw, p->yc, bias);
    else
        for (int64_t r = 0; r < b->rows; r++) move(b->cols, used, from + r * pitch, ld, 1, y + r * p->yh, p->yw, p->yc, bias);
}
/* A long sum is made of up to 4 shorter ones, which loses fewer digits. */
static int64_t direct(const Conv *p, int64_t t) {
    const Block b = block_of(p, t);
    if (b.first >= b.last) return 0;
    const int64_t merged = p->dw == 1, taps = p->KD * p->KH * (merged ? 1 : p->KW), depth = p->cin * (merged ? p->KW : 1);
    const int64_t patch = round_up(p->KD * b.hin * b.win * p->cin, 16), all = taps * depth, sums = most(least(least(all / 96, 4), taps), 1);
    const size_t bytes = sizeof(float) * (size_t)(patch + b.rows * b.cols * PANEL) + sizeof(int64_t) * (size_t)taps;
    float *const scratch = fl_alloc(bytes), *const out = scratch + patch;
    if (!scratch) return 2;
    int64_t *const tap = (int64_t *)(out + b.rows * b.cols * PANEL);
    for (int64_t i = 0; i < taps; i++) {
        const int64_t kw = merged ? 0 : i % p->KW, k = merged ? i : i / p->KW;
        tap[i] = ((k / p->KH * b.hin + k % p->KH * p->dh) * b.win + kw * p->dw) * p->cin;
    }
    load_patch(p, &b, scratch);
    for (int64_t o = b.first; o < b.last; o += PANEL) {
        const int64_t vectors = vectors_at(o, p->cout), ld = vectors * VW;
        const float *w = p->w + b.g * round_up(p->cout, 64) * all + o * all;
        for (int64_t r = 0; r < b.rows; r++)
            for (int64_t i = 0, to = 0; i < sums; i++) {
                const int64_t from = to;
                to = (i + 1) * taps / sums;
                multiply(b.cols, vectors, to - from, tap + from, depth, scratch + r * p->sh * b.win * p->cin, p->sw * p->cin, 1,
                    w + from * depth * ld, out + r * b.cols * ld, ld, i > 0);
            }
        store(p, &b, o, least(ld, p->cout - o), out, ld, b.cols * ld);
    }
    fl_free(scratch, bytes);
    return 0;
}
/* The rows of y that belong to a block, as a matrix (pixels, ld), zeros beyond the last channel. */
static void load_gradient(const Conv *p, const Block *b, int64_t o, int64_t ld, float *to) {
    const int64_t used = least(ld, p->cout - o);
    const float *y = p->y + b->n * p->yn + (b->g * p->cout + o) * p->yc + b->od * p->yd + b->oh * p->yh + b->ow * p->yw;
    if (used < ld) memset(to, 0, sizeof(float) * (size_t)(b->rows * b->cols * ld));
    if (p->yh == b->cols * p->yw) move(used, b->rows * b->cols, y, p->yc, p->yw, to, 1, ld, NULL);
    else
        for (int64_t r = 0; r < b->rows; r++) move(used, b->cols, y + r * p->yh, p->yc, p->yw, to + r * b->cols * ld, 1, ld, NULL);
}
/* Part t of the sums: w (parts, groups, K, cin, pitch). A part has every parts-th block of its group, in order. */
static int64_t weight(const Conv *p, int64_t t) {
    const int64_t g = t % p->groups, part = t / p->groups, taps_k = p->KD * p->KH * p->KW, merged = p->dw == 1;
    const int64_t blocks = p->OD * ((p->OH + p->rows - 1) / p->rows) * ((p->OW + p->cols - 1) / p->cols);
    const int64_t win = (p->cols - 1) * p->sw + (p->KW - 1) * p->dw + 1, hin = (p->rows - 1) * p->sh + (p->KH - 1) * p->dh + 1;
    const int64_t patch = round_up(p->KD * hin * win * p->cin, 16), size = taps_k * p->cin * p->pitch;
    const size_t bytes = sizeof(float) * (size_t)(patch + p->rows * p->cols * PANEL) + sizeof(int64_t) * (size_t)p->rows;
    float *const scratch = fl_alloc(bytes), *const grad = scratch + patch, *const sum = p->w + t * size;
    if (!scratch) return 2;
    int64_t *const tap = (int64_t *)(grad + p->rows * p->cols * PANEL);
    int add = 0;
    for (int64_t i = part * p->N * blocks / p->parts; i < (part + 1) * p->N * blocks / p->parts; i++, add = 1) {
        const Block b = block_of(p, (i / blocks * p->groups + g) * blocks + i % blocks);
        for (int64_t r = 0; r < b.rows; r++) tap[r] = r * p->sh * b.win * p->cin;
        load_patch(p, &b, scratch);
        for (int64_t o = 0; o < p->cout; o += PANEL) {
            const int64_t vectors = vectors_at(o, p->cout), ld = vectors * VW;
            load_gradient(p, &b, o, ld, grad);
            for (int64_t k = 0; k < taps_k; k += merged ? p->KW : 1) { /* a row of the kernel meets neighbours: (kw, c) are rows of A */
                const int64_t kw = k % p->KW, kh = k / p->KW % p->KH, kd = k / p->KW / p->KH;
                const float *x = scratch + ((kd * b.hin + kh * p->dh) * b.win + kw * p->dw) * p->cin;
                multiply(p->cin * (merged ? p->KW : 1), vectors, b.rows, tap, b.cols, x, 1, p->sw * p->cin, grad,
                    sum + k * p->cin * p->pitch + o, p->pitch, add);
            }
        }
    }
    if (!add) memset(sum, 0, sizeof(float) * (size_t)size);
    fl_free(scratch, bytes);
    return 0;
}
"""

_WINOGRAD = """
/* Note [winograd]  y = A' [(G g G') * (B' d B)] A for a tile d (4, 4), a kernel g (3, 3), outputs y (2, 2), with
     B' = 1  0 -1  0     G = 1   0   0     A' = 1  1  1  0
          0  1  1  0        1/2  1/2 1/2        0  1 -1 -1
          0 -1  1  0        1/2 -1/2 1/2
          0  1  0 -1         0   0   1
   The derivative by g is G' [(A y A') * (B' d B)] G. An infinity anywhere in a tile makes NaN of all of it: tasks report results that are
   not finite, and are then done again directly. */
static void winograd_panel(const Conv *p, int64_t g, int64_t o) { /* y (groups, 16, panels, cin, PANEL) */
    const int64_t wide = vectors_at(o, p->cout) * VW;
    const int64_t all = round_up(p->cout, 64) * p->cin + APART;
    for (int64_t i = 0; i < p->cin; i += 8)
        for (int64_t j = 0; j < wide; j += VW) {
            float some[72 * VW] FL_ALIGNED;
            some_weights(p, p->w + g * p->wg + (o + j) * p->wo, most(least(VW, p->cout - o - j), 0), 9 * i, 9 * least(8, p->cin - i), some);
            for (int64_t c = i; c < least(i + 8, p->cin); c++) {
                const vec *k = (const vec *)some + 9 * (c - i);
                float *const to = p->y + g * 16 * all + o * p->cin + c * wide + j;
                vec half[4][3];
                for (int q = 0; q < 3; q++) {
                    half[0][q] = k[q], half[3][q] = k[6 + q];
                    half[1][q] = (k[q] + k[3 + q] + k[6 + q]) / 2, half[2][q] = (k[q] - k[3 + q] + k[6 + q]) / 2;
                }
                for (int r = 0; r < 4; r++) {
                    const vec a = half[r][0], b = half[r][1], d = half[r][2];
                    *(vec *)(to + 4 * r * all) = a, *(vec *)(to + (4 * r + 1) * all) = (a + b + d) / 2;
                    *(vec *)(to + (4 * r + 2) * all) = (a - b + d) / 2, *(vec *)(to + (4 * r + 3) * all) = d;
                }
            }
        }
}
static int64_t winograd_pack(const Conv *p, int64_t t) { return in_panels(p, t, winograd_panel); }
typedef struct { Block b; int64_t down, across, count, wide, pitch, apart; } Tiles; /* tiles of a block, width of its patch, channels padded */
static Tiles tiles_of(const Conv *p, int64_t t) {
    Tiles s = {.b = block_of(p, t)};
    s.down = (s.b.rows + 1) / 2, s.across = (s.b.cols + 1) / 2, s.count = s.down * s.across;
    s.wide = 2 * s.across + 2, s.pitch = round_up(p->cin, VW), s.apart = s.count * s.pitch + APART;
    return s;
}
/* v (16, tiles, pitch) = B' d B */
static void transform_patch(const Conv *p, const Tiles *s, float *patch, float *v) {
    const float *x = p->x + s->b.n * p->xn + s->b.g * p->cin * p->xc;
    const int64_t row = s->wide * s->pitch, apart = s->apart;
    load(p, x, p->cin, s->pitch, s->b.oh - p->ph, 2 * s->down + 2, s->b.ow - p->pw, s->wide, patch);
    for (int64_t i = 0; i < s->count; i++)
        for (int64_t c = 0; c < s->pitch; c += VW) {
            const float *d = patch + i / s->across * 2 * row + i % s->across * 2 * s->pitch + c;
            float *to = v + i * s->pitch + c;
            vec h[4][4];
            for (int j = 0; j < 4; j++) {
                const vec d0 = *(const vec *)(d + j * s->pitch), d1 = *(const vec *)(d + row + j * s->pitch);
                const vec d2 = *(const vec *)(d + 2 * row + j * s->pitch), d3 = *(const vec *)(d + 3 * row + j * s->pitch);
                h[0][j] = d0 - d2, h[1][j] = d1 + d2, h[2][j] = d2 - d1, h[3][j] = d1 - d3;
            }
            for (int r = 0; r < 4; r++) {
                *(vec *)(to + (4 * r) * apart) = h[r][0] - h[r][2], *(vec *)(to + (4 * r + 1) * apart) = h[r][1] + h[r][2];
                *(vec *)(to + (4 * r + 2) * apart) = h[r][2] - h[r][1], *(vec *)(to + (4 * r + 3) * apart) = h[r][1] - h[r][3];
            }
        }
}
static int64_t winograd(const Conv *p, int64_t t) {
    const Tiles s = tiles_of(p, t);
    if (s.b.first >= s.b.last) return 0;
    const int64_t patch = (2 * s.down + 2) * s.wide * s.pitch, of_v = 16 * s.apart, of_m = 16 * (s.count * PANEL + APART), zero = 0;
    const size_t bytes = sizeof(float) * (size_t)(most(patch, 4 * s.count * PANEL) + of_v + of_m);
    float *const v = fl_alloc(bytes), *const m = v + of_v, *const out = m + of_m;
    if (!v) return 2;
    transform_patch(p, &s, out, v);
    const int64_t all = round_up(p->cout, 64) * p->cin + APART;
    vec check = {0};
    for (int64_t o = s.b.first; o < s.b.last; o += PANEL) {
        const int64_t vectors = vectors_at(o, p->cout), ld = vectors * VW, apart = s.count * ld + APART, row = 2 * s.across * ld;
        const float *u = p->w + s.b.g * 16 * all + o * p->cin;
        for (int64_t k = 0; k < 16; k++)
            multiply(s.count, vectors, 1, &zero, p->cin, v + k * s.apart, s.pitch, 1, u + k * all, m + k * apart, ld, 0);
        for (int64_t i = 0; i < s.count; i++)
            for (int64_t c = 0; c < ld; c += VW) {
                const float *from = m + i * ld + c;
                float *to = out + i / s.across * 2 * row + i % s.across * 2 * ld + c;
                vec h[2][4];
                for (int j = 0; j < 4; j++) {
                    const vec m1 = *(const vec *)(from + (4 + j) * apart), m2 = *(const vec *)(from + (8 + j) * apart);
                    h[0][j] = *(const vec *)(from + j * apart) + m1 + m2, h[1][j] = m1 - m2 - *(const vec *)(from + (12 + j) * apart);
                }
                for (int r = 0; r < 2; r++) {
                    const vec y0 = h[r][0] + h[r][1] + h[r][2], y1 = h[r][1] - h[r][2] - h[r][3];
                    *(vec *)(to + r * row) = y0, *(vec *)(to + r * row + ld) = y1;
                    check += (y0 - y0) + (y1 - y1);
                }
            }
        store(p, &s.b, o, least(ld, p->cout - o), out, ld, row);
    }
    fl_free(v, bytes);
    int64_t strange = 0;
    for (int i = 0; i < VW; i++) strange |= check[i] != 0;
    return strange;
}
/* Part t of the sums in the transformed domain: w (parts, groups, 16, cin, pitch). */
static int64_t winograd_weight(const Conv *p, int64_t t) {
    const int64_t g = t % p->groups, part = t / p->groups;
    const int64_t blocks = ((p->OH + p->rows - 1) / p->rows) * ((p->OW + p->cols - 1) / p->cols);
    const int64_t down = (p->rows + 1) / 2, across = (p->cols + 1) / 2, tiles_most = down * across, pitch = round_up(p->cin, VW), zero = 0;
    const int64_t patch = most((2 * down + 2) * (2 * across + 2) * pitch, 4 * tiles_most * PANEL), of_v = 16 * (tiles_most * pitch + APART);
    const int64_t size = 16 * p->cin * p->pitch;
    const size_t bytes = sizeof(float) * (size_t)(patch + of_v + 16 * (tiles_most * PANEL + APART));
    float *const v = fl_alloc(bytes), *const m = v + of_v, *const area = m + 16 * (tiles_most * PANEL + APART), *const sum = p->w + t * size;
    if (!v) return 2;
    int add = 0;
    for (int64_t i = part * p->N * blocks / p->parts; i < (part + 1) * p->N * blocks / p->parts; i++, add = 1) {
        const Tiles s = tiles_of(p, (i / blocks * p->groups + g) * blocks + i % blocks);
        transform_patch(p, &s, area, v);
        for (int64_t o = 0; o < p->cout; o += PANEL) {
            const int64_t vectors = vectors_at(o, p->cout), ld = vectors * VW, apart = s.count * ld + APART;
            load_gradient(p, &s.b, o, ld, area);
            for (int64_t j = 0; j < s.count; j++) { /* A y A' */
                const int64_t r = j / s.across * 2, c = j % s.across * 2, low = r + 1 < s.b.rows, right = c + 1 < s.b.cols;
                const float *y = area + (r * s.b.cols + c) * ld;
                for (int64_t k = 0; k < ld; k += VW) {
                    const vec none = {0}, y00 = *(const vec *)(y + k), y01 = right ? *(const vec *)(y + ld + k) : none;
                    const vec y10 = low ? *(const vec *)(y + s.b.cols * ld + k) : none;
                    const vec y11 = low && right ? *(const vec *)(y + (s.b.cols + 1) * ld + k) : none;
                    const vec h[4][2] = {{y00, y01}, {y00 + y10, y01 + y11}, {y00 - y10, y01 - y11}, {-y10, -y11}};
                    float *to = m + j * ld + k;
                    for (int q = 0; q < 4; q++) {
                        *(vec *)(to + (4 * q) * apart) = h[q][0], *(vec *)(to + (4 * q + 1) * apart) = h[q][0] + h[q][1];
                        *(vec *)(to + (4 * q + 2) * apart) = h[q][0] - h[q][1], *(vec *)(to + (4 * q + 3) * apart) = -h[q][1];
                    }
                }
            }
            for (int64_t k = 0; k < 16; k++)
                multiply(p->cin, vectors, 1, &zero, s.count, v + k * s.apart, 1, s.pitch, m + k * apart, sum + k * p->cin * p->pitch + o,
                    p->pitch, add);
        }
    }
    if (!add) memset(sum, 0, sizeof(float) * (size_t)size);
    fl_free(v, bytes);
    return 0;
}
"""

# What the tasks for a weight's gradient leave behind, x (parts, groups, K, cin, pitch), added up and written to w as that lies.
_SUMS = """
static void add_parts(const Conv *p, int64_t g, int64_t k, int64_t taps, int64_t c, int64_t o, float *sum) {
    memset(sum, 0, 64 * sizeof(float));
    for (int64_t part = 0; part < p->parts; part++) {
        const float *from = p->x + (((part * p->groups + g) * taps + k) * p->cin + c) * p->pitch + o;
        for (int64_t j = 0; j < least(64, p->cout - o); j++) sum[j] += from[j];
    }
}
static int64_t weight_sum(const Conv *p, int64_t t) {
    const int64_t g = t / p->cin, c = t % p->cin, taps = p->KD * p->KH * p->KW;
    float sum[64];
    for (int64_t o = 0; o < p->cout; o += 64)
        for (int64_t k = 0; k < taps; k++) {
            float *to = p->w + g * p->wg + o * p->wo + c * p->wc + k / p->KW / p->KH * p->wd + k / p->KW % p->KH * p->wh + k % p->KW * p->ww;
            add_parts(p, g, k, taps, c, o, sum);
            for (int64_t j = 0; j < least(64, p->cout - o); j++) to[j * p->wo] = sum[j];
        }
    return 0;
}
static int64_t winograd_sum(const Conv *p, int64_t t) { /* G' S G */
    const int64_t g = t / p->cin, c = t % p->cin;
    float s[16][64], h[3][4][64], check = 0;
    for (int64_t o = 0; o < p->cout; o += 64) {
        for (int k = 0; k < 16; k++) add_parts(p, g, k, 16, c, o, s[k]);
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < 64; j++) {
                const float both = (s[4 + k][j] + s[8 + k][j]) / 2;
                h[0][k][j] = s[k][j] + both, h[1][k][j] = (s[4 + k][j] - s[8 + k][j]) / 2, h[2][k][j] = both + s[12 + k][j];
            }
        for (int r = 0; r < 3; r++)
            for (int64_t j = 0; j < least(64, p->cout - o); j++) {
                float *to = p->w + g * p->wg + (o + j) * p->wo + c * p->wc + r * p->wh;
                const float both = (h[r][1][j] + h[r][2][j]) / 2;
                to[0] = h[r][0][j] + both, to[p->ww] = (h[r][1][j] - h[r][2][j]) / 2, to[2 * p->ww] = both + h[r][3][j];
                check += (to[0] - to[0]) + (to[p->ww] - to[p->ww]) + (to[2 * p->ww] - to[2 * p->ww]);
            }
    }
    return check != 0;
}
"""
