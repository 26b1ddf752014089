"""The loops of convolution with one channel to a group, printed as C: no matrix, but rows of pixels times numbers of the kernel.

A task has a few blocks of output rows, or of whole planes. The part of a plane that a block needs is copied between zeros, and cut by the
stride: pixels w, w + sw, w + 2 sw ... side by side. Then AT_ONCE vectors of outputs, wherever they lie in the block, meet one number of the
kernel after the other. In channels-last images a vector holds channels, and nothing is copied.
"""

from __future__ import annotations

from itertools import product

AT_ONCE = 8  # vectors of outputs: with fewer, a multiplication waits for the one before
TALL = (3, 5, 7)  # heights of kernels for which ...
STRIDES = (1, 2)
ROWS = (7, 4)  # ... so many rows of outputs are made at once, which read the same rows: images of 224 x 224 come down to multiples of 7
TAPS = 9  # sums of a weight's gradient at once: as many as leave room for their operands in 16 registers


def texts() -> list[str]:
    """The C, which follows that of print_conv.py."""
    return [
        _pairs(),
        _SMALL,
        _meet(),
        *[_rows(*way) for way in product(STRIDES, TALL, ROWS)],
        _rows_table(),
        _FORWARD,
        *[_along(count) for count in range(1, TAPS + 1)],
        _along_table(),
        _WEIGHT,
        _LAST,
    ]


def _pairs() -> str:
    """The first, and the second, of each pair of numbers in two vectors; both, of one vector; for each width."""
    lines = []
    for condition, width in (("#if defined(__AVX512F__)", 16), ("#elif defined(__AVX2__)", 8), ("#else", 4)):
        lines.append(condition)
        for name, first in (("FIRST", 0), ("SECOND", 1)):
            lines.append(f"#define {name} {', '.join(str(i) for i in range(first, 2 * width, 2))}")
        lines.append(f"#define HALVES {', '.join(str(i) for i in (*range(0, width, 2), *range(1, width, 2)))}")
    return "\n".join([*lines, "#endif"])


def _meet() -> str:
    """The products of AT_ONCE vectors with all numbers of the kernel, in registers."""
    lines = [f"const float *x{i} = x + from[{i}];" for i in range(AT_ONCE)]
    lines.append("vec " + ", ".join(f"s{i} = first" for i in range(AT_ONCE)) + ";")
    lines.append("for (int64_t k = 0; k < taps; k++) {")
    lines += ["    const int64_t at = tap[k];", "    const vec by = w[k] - (vec){0};"]
    lines += [f"    s{i} += by * *(const vec *)(x{i} + at);" for i in range(AT_ONCE)]
    lines += ["}", *[f"s[{i}] = s{i};" for i in range(AT_ONCE)]]
    head = "static void meet(const float *x, const int64_t *from, int64_t taps, const int64_t *tap, const float *w, vec first, vec *s) {"
    return f"enum {{ AT_ONCE = {AT_ONCE} }};\n{head}\n    " + "\n    ".join(lines) + "\n}\n"


def _rows(stride: int, height: int, rows: int) -> str:
    """One vector of each of `rows` rows of outputs, `down` numbers from one to the next, for a kernel of that height; w (KW, KH)."""
    inputs = range((rows - 1) * stride + height)
    lines = ["vec " + ", ".join(f"s{i} = first" for i in range(rows)) + ";", f"for (int64_t k = 0; k < wide; k++, w += {height}) {{"]
    lines += ["    const float *a0 = x + tap[k];", *[f"    const float *a{i} = a{i - 3} + 3 * pitch;" for i in inputs[3::3]]]
    lines += ["    const vec " + ", ".join(f"w{k} = w[{k}] - (vec){{0}}" for k in range(height)) + ";"]
    for i in inputs:
        meets = [(divmod(i - k, stride), k) for k in range(height)]
        lines.append(f"    const vec v{i} = *(const vec *)(a{i // 3 * 3} + {i % 3} * pitch);")
        lines += [f"    s{row} += w{k} * v{i};" for (row, rest), k in meets if 0 <= row < rows and not rest]
    lines += ["}", *[f"*(vec *)(to + {i} * down) = s{i};" for i in range(rows)]]
    return f"static void rows_{stride}_{height}_{rows}{_ROWS_PARAMETERS} {{\n    " + "\n    ".join(lines) + "\n}\n"


_ROWS_PARAMETERS = "(const float *x, int64_t pitch, int64_t wide, const int64_t *tap, const float *w, vec first, float *to, int64_t down)"


def _rows_table() -> str:
    """The same by stride, height of the kernel, and few rows or many; NULL for other heights."""
    entries = [f"[{s}][{h}][{i}] = rows_{s}_{h}_{n}" for s, h, (i, n) in product(STRIDES, TALL, enumerate(ROWS))]
    size = f"[{max(STRIDES) + 1}][{max(TALL) + 1}][{len(ROWS)}]"
    return (
        f"enum {{ LONGEST_STRIDE = {max(STRIDES)}, TALLEST = {max(TALL)}, MANY = {ROWS[0]}, FEW = {ROWS[1]} }};\n"
        f"static void (*const rows_of{size}){_ROWS_PARAMETERS} = {{{', '.join(entries)}}};\n"
    )


def _along(count: int) -> str:
    """Sums over a block of the gradient times what `count` numbers of the kernel meet, added to sums of doubles."""
    every = range(count)
    lines = [f"const float *x{k} = x + tap[{k}];" for k in every]
    lines += ["vec " + ", ".join(f"s{k} = {{0}}" for k in every) + ";", "for (int64_t r = 0; r < rows; r++, grad += pitch) {"]
    lines += ["    for (int64_t c = 0; c < pitch; c += VW) {", "        const vec g = *(const vec *)(grad + c);"]
    lines += [f"        s{k} += g * *(const vec *)(x{k} + c);" for k in every]
    lines += ["    }", "    " + " ".join(f"x{k} += down;" for k in every), "}"]
    lines += [f"to_doubles(s{k}, sum + {k} * VW);" for k in every]
    return f"static void along_{count}{_ALONG_PARAMETERS} {{\n    " + "\n    ".join(lines) + "\n}\n"


_ALONG_PARAMETERS = "(const float *x, const int64_t *tap, int64_t rows, int64_t down, const float *grad, int64_t pitch, double *sum)"


def _along_table() -> str:
    names = ", ".join(f"along_{count}" for count in range(1, TAPS + 1))
    return f"enum {{ TAPS = {TAPS} }};\nstatic void (*const along[]){_ALONG_PARAMETERS} = {{{names}}};\n"


_SMALL = """
typedef float half_vec __attribute__((vector_size(2 * VW), aligned(4), may_alias));
static inline void to_doubles(vec s, double *sum) {
    float each[VW] FL_ALIGNED;
    *(vec *)each = s;
    for (int j = 0; j < VW; j++) sum[j] += each[j];
}
/* to (n) = from (n), neighbours, without the call of memcpy. */
static inline void copy_row(const float *from, int64_t n, float *to) {
    if (n >= VW)
        for (int64_t i = 0; i < n; i += VW) {
            const int64_t c = least(i, n - VW);
            *(vec *)(to + c) = *(const vec *)(from + c);
        }
    else if (n >= VW / 2) {
        const half_vec a = *(const half_vec *)from, b = *(const half_vec *)(from + n - VW / 2);
        *(half_vec *)to = a, *(half_vec *)(to + n - VW / 2) = b;
    } else for (int64_t i = 0; i < n; i++) to[i] = from[i];
}
/* A vector of pairs from number i on: the first of each, the second of each. */
static inline void part(const float *from, int64_t i, float *to, int64_t wide) {
    const vec a = *(const vec *)(from + 2 * i), b = *(const vec *)(from + 2 * i + VW);
    *(vec *)(to + i) = PICK(a, b, FIRST), *(vec *)(to + wide + i) = PICK(a, b, SECOND);
}
static inline void part_half(const float *from, int64_t i, float *to, int64_t wide) {
    const vec a = *(const vec *)(from + 2 * i), both = PICK(a, a, HALVES);
    memcpy(to + i, &both, 2 * VW), memcpy(to + wide + i, (const char *)&both + 2 * VW, 2 * VW);
}
/* The sizes of a block, which follow from its place. */
static inline void settle(const Conv *p, Block *b) {
    b->rows = least(p->rows, p->OH - b->oh), b->cols = least(p->cols, p->OW - b->ow);
    b->hin = (b->rows - 1) * p->sh + (p->KH - 1) * p->dh + 1, b->win = (b->cols - 1) * p->sw + (p->KW - 1) * p->dw + 1;
}
/* The block after b. */
static void advance(const Conv *p, Block *b) {
    if ((b->ow += p->cols) >= p->OW) {
        b->ow = 0;
        if ((b->oh += p->rows) >= p->OH) {
            b->oh = 0;
            if (++b->od >= p->OD) {
                b->od = 0;
                if (++b->g >= p->groups) b->g = 0, b->n++;
            }
        }
    }
    settle(p, b);
}
/* One channel of a patch: rows (kd, h), each cut by the stride: pixels w, w + sw, w + 2 sw ... side by side, `wide` of them. What is outside is
   zero: it was before, unless `clear`. */
static void load_channel(const Conv *p, const Block *b, int64_t wide, float *to, int clear) {
    const float *x = p->x + b->n * p->xn + b->g * p->xc;
    const int64_t top = b->oh * p->sh - p->ph, w = b->ow * p->sw - p->pw;
    if (clear) memset(to, 0, sizeof(float) * (size_t)(p->KD * b->hin * p->sw * wide));
    for (int64_t k = 0; k < p->KD; k++, to += b->hin * p->sw * wide) {
        const int64_t d = b->od * p->sd - p->pd + k * p->dd;
        if (d < 0 || d >= p->D) continue;
        for (int64_t r = most(-top, 0); r < least(b->hin, p->H - top); r++) {
            const float *const from = x + d * p->xd + (top + r) * p->xh + w * p->xw;
            float *const row = to + r * p->sw * wide;
            if (p->sw == 1) {
                const int64_t first = least(most(-w, 0), b->win), last = most(least(b->win, p->W - w), first);
                if (p->xw == 1) copy_row(from + first, last - first, row + first);
                else for (int64_t i = first; i < last; i++) row[i] = from[i * p->xw];
            } else if (p->sw == 2 && p->xw == 1) {
                const int64_t first = (most(-w, 0) + 1) / 2, last = most(least(b->win, p->W - w) / 2, first); /* both of a pair are inside */
                for (int64_t j = first; j < last - VW + 1; j += VW) part(from, j, row, wide);
                if (last - first >= VW) part(from, last - VW, row, wide);
                else if (last - first >= VW / 2) part_half(from, first, row, wide), part_half(from, last - VW / 2, row, wide);
                else for (int64_t i = first; i < last; i++) row[i] = from[2 * i], row[wide + i] = from[2 * i + 1];
                if (first && w + 2 * first > 0) row[wide + first - 1] = from[2 * first - 1];
                if (2 * last < least(b->win, p->W - w)) row[last] = from[2 * last];
            } else
                for (int64_t s = 0; s < p->sw && s < b->win; s++) {
                    const int64_t first = w + s < 0 ? (-w - s + p->sw - 1) / p->sw : 0;
                    const int64_t last = least((b->win - s + p->sw - 1) / p->sw, (p->W - w - s + p->sw - 1) / p->sw);
                    for (int64_t i = first; i < last; i++) row[s * wide + i] = from[(i * p->sw + s) * p->xw];
                }
        }
    }
}
/* Where in a patch, and in the weight, the numbers of the kernel are. */
static void place_taps(const Conv *p, int64_t hin, int64_t wide, int64_t *tap, int64_t *of_w) {
    int64_t k = 0;
    for (int64_t d = 0; d < p->KD; d++)
        for (int64_t h = 0; h < p->KH; h++)
            for (int64_t w = 0; w < p->KW; w++, k++) {
                const int64_t cut = p->sw > 1 ? w * p->dw / p->sw : w * p->dw;
                tap[k] = ((d * hin + h * p->dh) * p->sw + w * p->dw - cut * p->sw) * wide + cut;
                of_w[k] = d * p->wd + h * p->wh + w * p->ww;
            }
}
"""

_FORWARD = """
/* Vectors of outputs: where their windows begin in the patch, where they go. The last of a row overlaps the one before. */
static int64_t place_vectors(const Conv *p, const Block *b, int64_t wide, int64_t *from, int64_t *to) {
    int64_t count = 0;
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t i = 0; i < b->cols; i += VW, count++) {
            const int64_t c = b->cols < VW ? 0 : least(i, b->cols - VW);
            from[count] = r * p->sh * p->sw * wide + c, to[count] = r * p->yh + c * p->yw;
        }
    for (int64_t i = count; i % AT_ONCE; i++) from[i] = from[count - 1], to[i] = to[count - 1];
    return count;
}
/* Lines that will be written: in the order in which vectors of several rows are, the CPU would not foresee them (2.8 ms became 1.8). */
static inline void soon(const float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) __builtin_prefetch(y + i, 1);
}
/* Up to which place vectors may be written whole: all of long rows; of short ones that follow each other, those whose end later ones write
   over, if need be those of the next plane, where this task makes it too. */
static inline int64_t all_of(const Conv *p, const Block *b, int more) {
    const int64_t size = b->rows * b->cols;
    if (p->yw != 1 || b->cols >= VW || p->yh != b->cols) return p->yw == 1 && b->cols >= VW ? INT64_MAX : -1;
    return size - (more && b->rows == p->OH && p->OD == 1 && p->yc == size && size >= VW && p->yn == p->groups * p->cout * p->yc ? 1 : VW);
}
/* n vectors of outputs to their places, or to rows from `at` on. */
static inline void put(const Conv *p, const Block *b, const vec *s, int64_t n, int64_t at, float *y, const int64_t *to, int64_t whole) {
    for (int64_t k = 0; k < n; k++) {
        const int64_t here = to ? to[k] : at + k * p->yh;
        if (here <= whole) *(vec *)(y + here) = s[k];
        else for (int64_t c = 0; c < least(VW, b->cols); c++) y[here + c * p->yw] = s[k][c];
    }
}
/* Blocks t * parts and on; cin = 1, w as it was given. */
static int64_t depthwise(const Conv *p, int64_t t) {
    const int64_t blocks = p->OD * ((p->OH + p->rows - 1) / p->rows) * ((p->OW + p->cols - 1) / p->cols) * p->groups * p->N;
    const int64_t win = (p->cols - 1) * p->sw + (p->KW - 1) * p->dw + 1, hin = (p->rows - 1) * p->sh + (p->KH - 1) * p->dh + 1;
    const int64_t wide = most(win / p->sw + 1, VW + (p->KW - 1) * p->dw / p->sw + 1), taps = p->KD * p->KH * p->KW, pitch = p->sw * wide;
    const int stacked = p->KD == 1 && p->sh <= LONGEST_STRIDE && p->dh == 1 && p->KH <= TALLEST && rows_of[p->sh][p->KH][0];
    const int64_t size = round_up((p->KD * hin + (stacked ? MANY * p->sh : 0)) * pitch, 16), room = stacked ? 0 : p->rows * ((p->cols + VW - 1) / VW) + AT_ONCE;
    const size_t bytes = sizeof(float) * (size_t)(size + round_up(taps, 16)) + sizeof(int64_t) * (size_t)(2 * taps + 2 * room);
    float *const patch = fl_alloc(bytes), *const w = patch + size;
    if (!patch) return 2;
    int64_t *const tap = (int64_t *)(w + round_up(taps, 16)), *const of_w = tap + taps, *const from = of_w + taps, *const to = from + room;
    Block b = block_of(p, t * p->parts), known = {.rows = 0};
    int64_t count = 0;
    for (int64_t i = t * p->parts, end = least((t + 1) * p->parts, blocks); i < end; i++, advance(p, &b)) {
        if (b.rows != known.rows || b.cols != known.cols) {
            place_taps(p, b.hin, wide, tap, of_w);
            if (!stacked) count = place_vectors(p, &b, wide, from, to);
        }
        if (p->yw == 1 && p->yh == b.cols) soon(p->y + b.n * p->yn + b.g * p->cout * p->yc + b.od * p->yd + b.oh * p->yh, b.rows * b.cols);
        load_channel(p, &b, wide, patch, !known.rows || b.od != known.od || b.oh != known.oh || b.ow != known.ow);
        known = b;
        for (int64_t o = 0; o < p->cout; o++) {
            float *const y = p->y + b.n * p->yn + (b.g * p->cout + o) * p->yc + b.od * p->yd + b.oh * p->yh + b.ow * p->yw;
            const float *const of_group = p->w + b.g * p->wg + o * p->wo;
            const vec first = (p->bias ? p->bias[b.g * p->cout + o] : 0) - (vec){0};
            const int64_t whole = all_of(p, &b, o + 1 < p->cout || i + 1 < end);
            vec s[AT_ONCE];
            if (stacked) {
                for (int64_t h = 0; h < p->KH; h++)
                    for (int64_t k = 0; k < p->KW; k++) w[k * p->KH + h] = of_group[h * p->wh + k * p->ww];
                for (int64_t r = 0, n; r < b.rows; r += n) {
                    const int few = b.rows - r <= FEW;
                    n = few ? FEW : MANY;
                    r = most(least(r, b.rows - n), 0);
                    for (int64_t c = 0; c < b.cols; c += VW) {
                        const int64_t left = b.cols < VW ? 0 : least(c, b.cols - VW);
                        const int64_t at = r * p->yh + left * p->yw, direct = b.rows >= n && at + (n - 1) * p->yh <= whole;
                        rows_of[p->sh][p->KH][few](patch + r * p->sh * pitch + left, pitch, p->KW, tap, w, first, direct ? y + at : (float *)s, direct ? p->yh : VW);
                        if (!direct) put(p, &b, s, least(n, b.rows), at, y, NULL, whole);
                    }
                }
                continue;
            }
            for (int64_t k = 0; k < taps; k++) w[k] = of_group[of_w[k]];
            for (int64_t j = 0; j < count; j += AT_ONCE) {
                meet(patch, from + j, taps, tap, w, first, s);
                put(p, &b, s, least(AT_ONCE, count - j), 0, y, to + j, whole);
            }
        }
    }
    fl_free(patch, bytes);
    return 0;
}
"""

_WEIGHT = """
/* w (groups, cout, K); one task to a group, in double from block to block */
static int64_t depthwise_weight(const Conv *p, int64_t t) {
    const int64_t blocks = p->OD * ((p->OH + p->rows - 1) / p->rows) * ((p->OW + p->cols - 1) / p->cols), taps = p->KD * p->KH * p->KW;
    const int64_t win = (p->cols - 1) * p->sw + (p->KW - 1) * p->dw + 1, hin = (p->rows - 1) * p->sh + (p->KH - 1) * p->dh + 1;
    const int64_t pitch = round_up(p->cols, VW), wide = most(win / p->sw + 1, pitch + (p->KW - 1) * p->dw / p->sw + 1);
    const int64_t size = round_up(p->KD * hin * p->sw * wide + p->rows * pitch, 16);
    const size_t bytes = sizeof(float) * (size_t)size + sizeof(double) * (size_t)(p->cout * taps * VW) + sizeof(int64_t) * (size_t)(2 * taps);
    float *const patch = fl_alloc(bytes), *const grad = patch + p->KD * hin * p->sw * wide;
    if (!patch) return 2;
    double *const sum = (double *)(patch + size);
    int64_t *const tap = (int64_t *)(sum + p->cout * taps * VW), *const of_w = tap + taps;
    Block b = {.rows = 0}, known;
    for (int64_t k = 0; k < p->cout * taps * VW; k++) sum[k] = 0;
    for (int64_t n = 0; n < p->N; n++)
        for (int64_t i = 0; i < blocks; i++) {
            known = b;
            if (i) advance(p, &b);
            else b = (Block){.n = n, .g = t}, settle(p, &b);
            const int alike = b.rows == known.rows && b.cols == known.cols, there = alike && b.od == known.od && b.oh == known.oh && b.ow == known.ow;
            if (!alike) place_taps(p, b.hin, wide, tap, of_w), memset(grad, 0, sizeof(float) * (size_t)(p->rows * pitch));
            load_channel(p, &b, wide, patch, !there);
            for (int64_t o = 0; o < p->cout; o++) {
                const float *y = p->y + b.n * p->yn + (t * p->cout + o) * p->yc + b.od * p->yd + b.oh * p->yh + b.ow * p->yw;
                for (int64_t r = 0; r < b.rows; r++)
                    if (p->yw == 1) copy_row(y + r * p->yh, b.cols, grad + r * pitch);
                    else for (int64_t c = 0; c < b.cols; c++) grad[r * pitch + c] = y[r * p->yh + c * p->yw];
                for (int64_t k = 0, some; k < taps; k += some) {
                    some = least(TAPS, taps - k);
                    along[some - 1](patch, tap + k, b.rows, p->sh * p->sw * wide, grad, pitch, sum + (o * taps + k) * VW);
                }
            }
        }
    for (int64_t k = 0; k < p->cout * taps; k++) {
        double all = 0;
        for (int j = 0; j < VW; j++) all += sum[k * VW + j];
        p->w[t * p->cout * taps + k] = (float)all;
    }
    fl_free(patch, bytes);
    return 0;
}
"""

_LAST = """
/* Channels last: xc = yc = cout = 1, at least a vector of channels. The weight: y (K, groups). */
static int64_t depthwise_pack(const Conv *p, int64_t t) {
    const float *const w = p->w + t * p->wg;
    float *to = p->y + t;
    for (int64_t d = 0; d < p->KD; d++)
        for (int64_t h = 0; h < p->KH; h++)
            for (int64_t k = 0; k < p->KW; k++, to += p->groups) *to = w[d * p->wd + h * p->wh + k * p->ww];
    return 0;
}
/* n neighbouring outputs, with numbers first to last of each row of the kernel; x where their first window begins. */
static inline __attribute__((always_inline)) void pixels(const Conv *p, const float *x, int64_t d0, int64_t d1, int64_t h0, int64_t h1, int64_t first, int64_t last, int n, float *y) {
    for (int64_t i = 0; i < p->groups; i += 2 * VW) {
        const int64_t c = least(i, p->groups - VW), more = least(i + VW, p->groups - VW) - c; /* two vectors of channels */
        const vec none = {0}, start = p->bias ? *(const vec *)(p->bias + c) : none, other = p->bias ? *(const vec *)(p->bias + c + more) : none;
        vec s[2][4] = {{start, start, start, start}, {other, other, other, other}};
        for (int64_t d = d0; d < d1; d++)
            for (int64_t h = h0; h < h1; h++) {
                const float *from = x + d * p->dd * p->xd + h * p->dh * p->xh + first * p->dw * p->xw + c;
                const float *w = p->w + ((d * p->KH + h) * p->KW + first) * p->groups + c;
                for (int64_t k = first; k < last; k++, from += p->dw * p->xw, w += p->groups) {
                    const vec by = *(const vec *)w, by_more = *(const vec *)(w + more);
                    for (int j = 0; j < n; j++) {
                        s[0][j] += by * *(const vec *)(from + j * p->sw * p->xw);
                        s[1][j] += by_more * *(const vec *)(from + j * p->sw * p->xw + more);
                    }
                }
            }
        for (int j = 0; j < n; j++) *(vec *)(y + j * p->yw + c) = s[0][j], *(vec *)(y + j * p->yw + c + more) = s[1][j];
    }
}
/* The numbers of the kernel that are inside: from the first, to before the last. */
static inline int64_t first_in(int64_t at, int64_t apart) { return at >= 0 ? 0 : (-at + apart - 1) / apart; }
static inline int64_t last_in(int64_t at, int64_t apart, int64_t kernel, int64_t size) {
    return at + (kernel - 1) * apart < size ? kernel : most(size - at + apart - 1, 0) / apart;
}
static int64_t depthwise_last(const Conv *p, int64_t t) { /* rows t * rows and on of all images */
    for (int64_t i = t * p->rows; i < least((t + 1) * p->rows, p->N * p->OD * p->OH); i++) {
        const int64_t n = i / p->OH / p->OD, od = i / p->OH % p->OD, oh = i % p->OH, d = od * p->sd - p->pd, h = oh * p->sh - p->ph;
        const int64_t d0 = first_in(d, p->dd), d1 = last_in(d, p->dd, p->KD, p->D), h0 = first_in(h, p->dh), h1 = last_in(h, p->dh, p->KH, p->H);
        const float *const x = p->x + n * p->xn + d * p->xd + h * p->xh;
        float *const y = p->y + n * p->yn + od * p->yd + oh * p->yh;
        for (int64_t o = 0, some; o < p->OW; o += some) {
            const int64_t w = o * p->sw - p->pw, inside = w >= 0 && w + 3 * p->sw + (p->KW - 1) * p->dw < p->W && o + 4 <= p->OW;
            some = inside ? 4 : 1;
            if (inside) pixels(p, x + w * p->xw, d0, d1, h0, h1, 0, p->KW, 4, y + o * p->yw);
            else pixels(p, x + w * p->xw, d0, d1, h0, h1, first_in(w, p->dw), last_in(w, p->dw, p->KW, p->W), 1, y + o * p->yw);
        }
    }
    return 0;
}
"""
