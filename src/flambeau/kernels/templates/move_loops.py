"""The loops that move elements or write them down without computing much, in C.

    move.copy      out[i] = x[i]                                 in any strides; elements are words of their size, whatever they mean
    move.lines     pieces that lie together in both arrays
    move.turn      out[j, i] = x[i, j]                           tiles, which are read and written in whole lines of the cache: see copies.py
    move.triangle  out[j] = x[j] on one side of a column, else 0 rows of matrices; `move.clear` does the same to a row where it lies
    move.range     out[j] = start + step * (at + j)              rows of a long sequence, each of which knows the number of its first element
    move.spread    the same from both ends: see ranges.py
    move.places    where a row of elements is not zero           written from the place on that the counts of the rows before it say

Operands that are one number for a row (`at`, the column of a diagonal) are int64.
"""

from __future__ import annotations

from flambeau.kernels.indexing.nonzero import MAX_DIMS
from flambeau.kernels.language.dtype_table import DTYPES
from flambeau.kernels.language.print_c import ENUM, TYPES, LoopPrinter
from flambeau.kernels.language.print_table import LINES, PARAMETERS, ROWS, Table
from flambeau.kernels.templates.index_loops import WORDS


def table() -> Table:
    loops = Table(HEAD)
    for size, word in WORDS.items():
        loops.texts += [_copy(size, word), _turn(size, word)]
    for dtype, size, *_ in DTYPES.values():
        loops.add("move.copy", f"move_copy_{size}", dtype, "T")
        loops.add("move.lines", "move_lines", dtype, "T", 2, LINES)
        loops.add("move.turn", f"move_turn_{size}", dtype, "T", 5, LINES)
        loops.add("move.triangle", "move_triangle", dtype, "T i64", 2, "3")
        loops.add("move.clear", "move_clear", dtype, "T i64", 2, ROWS)
    for dtype in ENUM:
        p = LoopPrinter(dtype)
        loops.texts.append(_places(p))
        loops.add(f"move.places_{dtype}", f"move_places_{p.suffix}", dtype, "i64 i64 i64", MAX_DIMS + 2, ROWS)
        if dtype != "bool":
            loops.texts.append(_range(p))
            loops.add(f"move.range_{dtype}", f"move_range_{p.suffix}", dtype, "i64", 2, ROWS)
        if p.is_float and p.compute == p.storage:
            loops.texts.append(_spread(p))
            loops.add(f"move.spread_{dtype}", f"move_spread_{p.suffix}", dtype, "i64", 5, ROWS)
    return loops


# Numbers of the lines: elements and bytes of one. Its end is moved as a whole vector too, some of which is there already.
# Numbers of the triangles: bytes of an element, whether the lower one is kept. The row's diagonal is at column `at`.
HEAD = f"""#include "tiles.h"
typedef struct {{ uint64_t half[2]; }} fl_pair;
static inline int64_t within(int64_t x, int64_t n) {{ return x < 0 ? 0 : x < n ? x : n; }}
static inline void kept(int64_t at, int64_t n, int lower, int64_t *from, int64_t *to) {{
    *from = lower ? 0 : within(at, n), *to = lower ? within(at + 1, n) : n;
}}
#define BOTH_ENDS(size) memcpy(to, from, size), memcpy(to + bytes - size, from + bytes - size, size)
static inline void move_line(char *to, const char *from, int64_t bytes) {{
    if (bytes >= 64) {{
        for (int64_t b = 0; b + 64 <= bytes; b += 64) memcpy(to + b, from + b, 64);
        memcpy(to + bytes - 64, from + bytes - 64, 64);
    }} else if (bytes >= 32) BOTH_ENDS(32);
    else if (bytes >= 16) BOTH_ENDS(16);
    else if (bytes >= 8) BOTH_ENDS(8);
    else if (bytes >= 4) BOTH_ENDS(4);
    else for (int64_t b = 0; b < bytes; b++) to[b] = from[b];
}}
void FL_NAME(move_lines){PARAMETERS} {{
    const int64_t bytes = (int64_t)param[1];
    for (int64_t k = 0; k < n; k++) move_line(ptr[0] + k * step[0], ptr[1] + k * step[1], bytes);
}}
void FL_NAME(move_triangle){PARAMETERS} {{
    int64_t size = (int64_t)param[0], from, to;
    kept(*(const int64_t *)ptr[2], n, param[1] != 0, &from, &to);
    memset(ptr[0], 0, (size_t)(from * size));
    memcpy(ptr[0] + from * size, ptr[1] + from * size, (size_t)((to - from) * size));
    memset(ptr[0] + to * size, 0, (size_t)((n - to) * size));
}}
void FL_NAME(move_clear){PARAMETERS} {{
    int64_t size = (int64_t)param[0], from, to;
    kept(*(const int64_t *)ptr[2], n, param[1] != 0, &from, &to);
    memset(ptr[0], 0, (size_t)(from * size));
    memset(ptr[0] + to * size, 0, (size_t)((n - to) * size));
}}
"""


def _copy(size: int, word: str) -> str:
    """Steps the compiler knows become shuffles of whole vectors."""
    loop = "FL_IVDEP for (int64_t i = 0; i < n; i++)"
    return f"""void FL_NAME(move_copy_{size}){PARAMETERS} {{
    {word} *const o = ({word} *)ptr[0];
    const {word} *const x = (const {word} *)ptr[1], first = *x;
    if (step[0] == {size} && step[1] == {size} && n < {2048 // size}) {loop} o[i] = x[i]; /* done before a call has begun */
    else if (step[0] == {size} && step[1] == {size}) memmove(o, x, (size_t)n * {size});
    else if (step[0] == {size} && step[1] == 0) {loop} o[i] = first;
    else if (step[0] == {size} && step[1] == -{size}) {loop} o[i] = x[-i];
    else if (step[0] == {size} && step[1] == {2 * size}) {loop} o[i] = x[2 * i];
    else for (int64_t i = 0; i < n; i++) *({word} *)(ptr[0] + i * step[0]) = *(const {word} *)(ptr[1] + i * step[1]);
}}
"""


def _turn(size: int, word: str) -> str:
    """Numbers: elements of a tile; its rows and columns as they lie in x; bytes from row to row of x, and of the result. Pixels of three colours,
    the most common of all, are taken apart and put together by shuffles the compiler finds."""
    whole = (
        f"if (rows > 4 && cols > 4) fl_turn({size}, rows, cols, from, step_x / {size}, to, step_o / {size});\n        else "
        if size in (4, 8)
        else ""
    )
    x, o = f"(const {word} *)(from + {{}} * step_x)", f"({word} *)(to + {{}} * step_o)"
    apart = ", ".join(f"*const o{k} = {o.format(k)}" for k in range(3))
    rows = ", ".join(f"*const x{k} = {x.format(k)}" for k in range(3))
    return f"""void FL_NAME(move_turn_{size}){PARAMETERS} {{
    const int64_t rows = (int64_t)param[1], cols = (int64_t)param[2], step_x = (int64_t)param[3], step_o = (int64_t)param[4];
    for (int64_t k = 0; k < n; k++) {{
        const char *const from = ptr[1] + k * step[1];
        char *const to = ptr[0] + k * step[0];
        if (cols == 3 && step_x == {3 * size}) {{
            const {word} *const x = (const {word} *)from;
            {word} {apart};
            FL_IVDEP for (int64_t r = 0; r < rows; r++) o0[r] = x[3 * r], o1[r] = x[3 * r + 1], o2[r] = x[3 * r + 2];
        }} else if (rows == 3 && step_o == {3 * size}) {{
            {word} *const o = ({word} *)to;
            const {word} {rows};
            FL_IVDEP for (int64_t c = 0; c < cols; c++) o[3 * c] = x0[c], o[3 * c + 1] = x1[c], o[3 * c + 2] = x2[c];
        }} else {whole}for (int64_t c0 = 0; c0 < cols; c0 += 32)
            for (int64_t r0 = 0; r0 < rows; r0 += 32) /* so many lines the nearest cache holds */
                for (int64_t c = c0; c < cols && c < c0 + 32; c++)
                    for (int64_t r = r0; r < rows && r < r0 + 32; r++)
                        (({word} *)(to + c * step_o))[r] = ((const {word} *)(from + r * step_x))[c];
    }}
}}
"""


def _range(p: LoopPrinter) -> str:
    """Numbers: start, step. Floating dtypes are computed in double, half precision by way of float32, integers as int64."""
    wide = "double" if p.is_float else "int64_t"
    value = f"first + by * (at + ({wide})j)"
    return f"""void FL_NAME(move_range_{p.suffix}){PARAMETERS} {{
    {p.storage} *const o = ({p.storage} *)ptr[0];
    const {wide} first = ({wide})param[0], by = ({wide})param[1], at = ({wide})*(const int64_t *)ptr[1];
    FL_IVDEP for (int32_t j = 0; j < (int32_t)n; j++) o[j] = {p.write(p.dtype, f"({p.compute})({value})")};
}}
"""


def _spread(p: LoopPrinter) -> str:
    """Numbers: start, end, step, how many elements there are in all, how many are counted from the start."""
    loop = f"FL_IVDEP for (int32_t j = {{}}; j < {{}}; j++) o[j] = ({p.storage})({{}});"
    return f"""void FL_NAME(move_spread_{p.suffix}){PARAMETERS} {{
    {p.storage} *const o = ({p.storage} *)ptr[0];
    const int64_t number = *(const int64_t *)ptr[1];
    const int32_t low = (int32_t)within((int64_t)param[4] - number, n), all = (int32_t)n;
    const double first = param[0], last = param[1], by = param[2], at = (double)number, left = param[3] - 1 - at;
    {loop.format("0", "low", "first + by * (at + j)")}
    {loop.format("low", "all", "last - by * (left - j)")}
}}
"""


def _places(p: LoopPrinter) -> str:
    """Operands: the row, how many places there are before it, the number of its first element, the result. Numbers: how many places there
    are in all, how many dimensions, their sizes. A row is taken in pieces that do not go beyond the last dimension. (Its inner loop is so short that it takes
    a fifth longer where it lies in two lines of the cache: hence FL_ALIGNED.)"""
    test = "(x[at + j] & 0x7fff) != 0" if p.dtype in ("float16", "bfloat16") else "x[at + j] != 0"
    return f"""FL_ALIGNED void FL_NAME(move_places_{p.suffix}){PARAMETERS} {{
    const {TYPES[p.dtype][1]} *const x = (const {TYPES[p.dtype][1]} *)ptr[0];
    const int64_t count = (int64_t)param[0], last = (int64_t)param[1] - 1, width = (int64_t)param[2 + last];
    int64_t *out = (int64_t *)ptr[3] + *(const int64_t *)ptr[1], index[{MAX_DIMS}], rest = *(const int64_t *)ptr[2];
    for (int64_t d = last; d >= 0; d--) index[d] = d ? rest % (int64_t)param[2 + d] : rest, rest /= (int64_t)param[2 + d];
    for (int64_t at = 0, m; at < n; at += m) {{
        int32_t found[FL_BLOCK], k = 0;
        m = within(width - index[last], n - at < FL_BLOCK ? n - at : FL_BLOCK);
        for (int32_t j = 0; j < (int32_t)m; j++) found[k] = j, k += {test}; /* no branch: nobody could predict it */
        for (int64_t d = 0; d < last; d++)
            for (int32_t j = 0; j < k; j++) out[d * count + j] = index[d];
        for (int32_t j = 0; j < k; j++) out[last * count + j] = index[last] + found[j];
        out += k, index[last] += m;
        for (int64_t d = last; d > 0 && index[d] == (int64_t)param[2 + d]; d--) index[d] = 0, index[d - 1]++;
    }}
}}
"""
