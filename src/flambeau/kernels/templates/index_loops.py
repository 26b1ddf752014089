"""The loops behind reading and writing by index, in C.

    index.take     out[i] = x[i, at[i]]                          a kernel like any other: one element of the result at a time
    index.rows     out[i, k] = x[i, at[i], k]  for all k         lines that lie in one piece
    index.put      x[i, at[i, k]]  = v[i, k]   for all k         lines: the launcher goes over i, the loop over the line of k
    index.pad      rows with sides of their own, see borders.py
    index.add ...  x[i, at[i, k]] += v[i, k]   for all k         likewise, by a formula of what is there and what arrives

Here i is any number of dimensions, with any strides. The dimension that is picked in has none in the launcher's eyes: x is given without it,
and how many bytes lie between two of its places is a number (`pitch`). Since a line belongs to one thread, which goes through it in order,
of two values for one place the last stays, sums are added up in the order of the index, and any number of threads gives the same bits.

`at` is int64. Each loop looks whether it lies within bounds (0 ... size - 1) before it reads or writes there, while the index is in the
cache anyway, and where not it stops there and raises the flag, one int64. Where `at` is the same for all i, whole rows are moved.
"""

from __future__ import annotations

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.dtype_table import DTYPES
from flambeau.kernels.language.print_c import TYPES, LoopPrinter
from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table

COMBINE = {"add": lambda old, new: old + new, "mul": lambda old, new: old * new, "max": e.maximum, "min": e.minimum}
WORDS = {1: "uint8_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t", 16: "fl_pair"}  # what is only moved, by its size


def table() -> Table:
    loops = Table("typedef struct { uint64_t half[2]; } fl_pair;\n#include <string.h>\n", MOVED_ROWS)
    for size, word in WORDS.items():
        loops.texts += [_take(f"index_take_{size}", word), _line(f"index_put_{size}", word, "*new"), _pad(f"index_pad_{size}", word)]
    for dtype, size, *_ in DTYPES.values():
        loops.add("index.take", f"index_take_{size}", dtype, "T i64 i64", 2)
        loops.add("index.rows", "index_rows", dtype, "T i64 i64", 4, LINES)
        loops.add("index.pad", f"index_pad_{size}", dtype, "T i64 i64 T", 6, LINES)
        loops.add("index.put", f"index_put_{size}", dtype, ONTO, 5, LINES)
    for how, formula in COMBINE.items():
        for dtype in TYPES:
            if dtype in ("float16", "bfloat16"):
                continue  # their sums are carried in float32: see gather.py
            p = LoopPrinter(dtype)
            name = f"index_{how}_{p.suffix}"
            lines, value = p.body(formula(e.load(0), e.load(1)))
            body = " ".join([f"const {p.compute} x0 = *old, x1 = *new;", *lines])
            loops.texts.append(_line(name, p.storage, p.write(dtype, value), body))
            loops.add(f"index.{how}", name, dtype, ONTO, 5, LINES)
    return loops


# Operands of the lines, beside x: at, v, flag. Numbers: length of the line; bytes from place to place of x, of at and of v; size.
ONTO = "i64 T i64"
PIECES = "\n    ".join(f"else if (bytes >= {size}) MOVE_ROWS({size});" for size in (32, 16, 8, 4, 2, 1))
# Numbers: elements and bytes of a line, bytes from place to place, size. Rows lie anywhere: one that comes soon is called for early.
MOVED_ROWS = f"""
static inline int strays(const char *at, int64_t step, int64_t n, uint64_t size) {{
    const int64_t last = (int64_t)size - 1;
    int64_t wrong = 0; /* below 0 if a place is, or if it is so far from the last one */
    if (step == 8) for (int64_t i = 0; i < n; i++) wrong |= ((const int64_t *)at)[i] | (last - ((const int64_t *)at)[i]);
    else for (int64_t i = 0; i < n; i++) wrong |= *(const int64_t *)(at + i * step) | (last - *(const int64_t *)(at + i * step));
    return wrong < 0;
}}
static inline void call_for(const char *row, int64_t bytes) {{
    for (int64_t b = 0; b < bytes && b < 1024; b += 64) __builtin_prefetch(row + b);
}}
/* In pieces of a constant size: a call for each row would take longer. The last piece may bring again what is there. */
#define MOVE_ROWS(piece) do {{ \\
    typedef uint8_t some __attribute__((vector_size(piece), aligned(1), may_alias)); \\
    for (int64_t i = 0; i < n; i++, to += to_step) {{ \\
        if (i + 8 < n) call_for(x + (i + 8) * x_step + *(const int64_t *)(at + (i + 8) * at_step) * pitch, bytes); \\
        const char *const from = x + i * x_step + *(const int64_t *)(at + i * at_step) * pitch; \\
        for (int64_t b = 0; b < bytes - piece; b += piece) *(some *)(to + b) = *(const some *)(from + b); \\
        *(some *)(to + bytes - piece) = *(const some *)(from + bytes - piece); \\
    }} }} while (0)
void FL_NAME(index_rows){PARAMETERS} {{
    const int64_t bytes = (int64_t)param[1], pitch = (int64_t)param[2], to_step = step[0], x_step = step[1], at_step = step[2];
    const char *const x = ptr[1], *const at = ptr[2];
    char *to = ptr[0];
    if (strays(at, at_step, n, (uint64_t)param[3])) *(int64_t *)ptr[3] = 1;
    else if (bytes >= FL_VECTOR) MOVE_ROWS(FL_VECTOR);
    {PIECES}
}}
"""


def _take(name: str, word: str) -> str:
    """Numbers: bytes from place to place; size. 1024 elements at a time, so that the index is still near after the look at it."""
    loop = "for (int64_t i = 0; i < n; i++)"
    return f"""void FL_NAME({name}){PARAMETERS} {{
    const int64_t pitch = (int64_t)param[0], size = sizeof({word}), left = n - 1024;
    char *const out = ptr[0];
    const char *x = ptr[1];
    const int64_t *const at = (const int64_t *)ptr[2];
    if (n > 1024) n = 1024;
    if (strays(ptr[2], step[2], step[2] ? n : 1, (uint64_t)param[1])) *(int64_t *)ptr[3] = 1;
    else if (step[2] == 0) {{ /* a row */
        x += *at * pitch;
        if (step[0] == size && step[1] == size) memcpy(out, x, (size_t)(n * size));
        else {loop} *({word} *)(out + i * step[0]) = *(const {word} *)(x + i * step[1]);
    }} else if (step[0] == size && step[1] == 0 && step[2] == 8) {{
        if (pitch == size) {loop} (({word} *)out)[i] = ((const {word} *)x)[at[i]];
        else {loop} (({word} *)out)[i] = *(const {word} *)(x + at[i] * pitch);
    }} else if (step[0] == size && step[1] == size && step[2] == 8) {{
        {loop} (({word} *)out)[i] = *(const {word} *)(x + i * size + at[i] * pitch);
    }} else {loop}
        *({word} *)(out + i * step[0]) = *(const {word} *)(x + i * step[1] + *(const int64_t *)((const char *)at + i * step[2]) * pitch);
    if (left > 0) FL_NAME({name})((char *[]){{out + n * step[0], ptr[1] + n * step[1], ptr[2] + n * step[2], ptr[3]}}, step, left, param);
}}
"""


def _pad(name: str, word: str) -> str:
    """Numbers: elements of a row, bytes of a row of x, where its middle goes, elements of that, where it begins; elements at the sides."""
    sides = f"for (int64_t i = FROM; i < TO; i++) (({word} *)out)[i + AT] = side[i] < 0 ? *v : x[side[i]];"
    left = sides.replace("FROM", "0").replace("TO", "start").replace(" + AT", "")
    right = sides.replace("FROM", "start").replace("TO", "all").replace("AT", "count")
    return f"""void FL_NAME({name}){PARAMETERS} {{
    const int64_t width = (int64_t)param[0], pitch = (int64_t)param[1], start = (int64_t)param[2], count = (int64_t)param[3], skip = (int64_t)param[4];
    const int64_t all = (int64_t)param[5], *const side = (const int64_t *)ptr[3];
    const {word} *const v = (const {word} *)ptr[4];
    for (int64_t k = 0; k < n; k++) {{
        char *const out = ptr[0] + k * step[0];
        const int64_t row = *(const int64_t *)(ptr[2] + k * step[2]);
        const {word} *const x = (const {word} *)(ptr[1] + k * step[1] + row * pitch);
        if (row < 0) for (int64_t i = 0; i < width; i++) (({word} *)out)[i] = *v;
        else {{
            {left}
            memcpy(out + start * (int64_t)sizeof({word}), x + skip, (size_t)count * sizeof({word}));
            {right}
        }}
    }}
}}
"""


def _line(name: str, word: str, value: str, body: str = "") -> str:
    """The loop for lines; `value` is what `*old` becomes when `*new` arrives."""
    return f"""static inline void {name}_one({word} *old, const {word} *new) {{ {body} *old = {value}; }}
void FL_NAME({name}){PARAMETERS} {{
    int64_t count = (int64_t)param[0], pitch = (int64_t)param[1], x_step = 0, at_step = (int64_t)param[2], v_step = (int64_t)param[3];
    const uint64_t size = (uint64_t)param[4];
    if (step[1] == 0 && step[0] == sizeof({word}) && (step[2] == sizeof({word}) || step[2] == 0)) {{ /* rows */
        if (strays(ptr[1], at_step, count, size)) {{ *(int64_t *)ptr[3] = 1; return; }}
        for (int64_t k = 0; k < count; k++) {{
            if (k + 8 < count) call_for(ptr[0] + *(const int64_t *)(ptr[1] + (k + 8) * at_step) * pitch, n * (int64_t)sizeof({word}));
            {word} *const x = ({word} *)(ptr[0] + *(const int64_t *)(ptr[1] + k * at_step) * pitch);
            const {word} *const v = (const {word} *)(ptr[2] + k * v_step), first = *v;
            if (step[2]) FL_IVDEP for (int64_t i = 0; i < n; i++) {name}_one(x + i, v + i);
            else FL_IVDEP for (int64_t i = 0; i < n; i++) {name}_one(x + i, &first);
        }}
        return;
    }}
    /* Go along the index as it lies in memory: n lines side by side, or one after the other. */
    int64_t along[] = {{step[0], step[1], step[2]}};
    if (n == 1 || along[1] > at_step) {{
        const int64_t lines = n, other[] = {{x_step, at_step, v_step}};
        x_step = along[0], at_step = along[1], v_step = along[2], n = count, count = lines;
        memcpy(along, other, sizeof along);
    }}
    const int dense = along[0] == 0 && along[1] == 8 && along[2] == sizeof({word}) && pitch == sizeof({word});
    for (int64_t k = 0; k < count; k++) {{
        char *const x = ptr[0] + k * x_step;
        const char *const at = ptr[1] + k * at_step, *const v = ptr[2] + k * v_step;
        if (dense) for (int64_t i = 0; i < n; i++) {{ /* looks as it goes: a fifth faster than going through the index twice */
            const uint64_t place = ((const uint64_t *)at)[i];
            if (place >= size) {{ *(int64_t *)ptr[3] = 1; break; }}
            {name}_one(({word} *)x + place, (const {word} *)v + i);
        }} else if (strays(at, along[1], n, size)) *(int64_t *)ptr[3] = 1;
        else for (int64_t i = 0; i < n; i++) {{
            {word} *const old = ({word} *)(x + i * along[0] + *(const int64_t *)(at + i * along[1]) * pitch);
            __builtin_prefetch(old, 1); /* stores wait for each other, prefetches do not */
            {name}_one(old, (const {word} *)(v + i * along[2]));
        }}
    }}
}}
"""
