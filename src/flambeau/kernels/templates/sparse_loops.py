"""The two loops behind products of sparse matrices, in C. A matrix is given by its rows: those of row i are the places crow[i] ... crow[i + 1] - 1
of `col` (in which column) and `v` (how much).

    csr.product   out[i, :] = sum over the places k of row i of v[k] * x[col[k], :]                  matrices, bags of rows, images resized
    csr.dots      out[k] = sum over j of a[row[k], j] * b[col[k], j]

A row of the result belongs to one thread, which adds up its places in order: any number of threads gives the same bits. A strip of it
stays in registers meanwhile. Indices are int64 and were checked before.
"""

from __future__ import annotations

from flambeau.kernels.language.print_c import LoopPrinter
from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table

DTYPES = ("float32", "float64", "int64", "int32")
WIDE = 4  # vectors in a strip


def table() -> Table:
    loops = Table()
    for dtype in DTYPES:
        p = LoopPrinter(dtype)
        for name, printed in (("product", _product), ("dots", _dots)):
            loops.texts.append(printed(f"csr_{name}_{p.suffix}", p.storage))
            loops.add(f"csr.{name}", f"csr_{name}_{p.suffix}", dtype, "i64 i64 T T", 3, LINES)
    return loops


def _product(name: str, word: str) -> str:
    """Operands: crow, col, v, x. Numbers: what a row costs (elements), columns of x, bytes from row to row of it."""
    return f"""typedef {word} {name}_vector __attribute__((vector_size(FL_VECTOR), aligned(sizeof({word})), may_alias));
{_strip(name, word, WIDE)}{_strip(name, word, 1)}
void FL_NAME({name}){PARAMETERS} {{
    const int64_t width = (int64_t)param[1], pitch = (int64_t)param[2], lanes = FL_VECTOR / sizeof({word}), *const col = (const int64_t *)ptr[2];
    const {word} *const v = (const {word} *)ptr[3];
    if (width == 1 && step[1] == sizeof *col) {{
        const int64_t *const crow = (const int64_t *)ptr[1];
        for (int64_t i = 0, k = crow[0]; i < n; i++) {{
            const char *const x = ptr[4] + i * step[4];
            {word} sum = 0;
            for (const int64_t end = crow[i + 1]; k < end; k++) sum += v[k] * *(const {word} *)(x + col[k] * pitch);
            *({word} *)(ptr[0] + i * step[0]) = sum;
        }}
        return;
    }}
    for (int64_t i = 0; i < n; i++) {{
        {word} *out = ({word} *)(ptr[0] + i * step[0]);
        const int64_t *const crow = (const int64_t *)(ptr[1] + i * step[1]), start = crow[0], end = crow[1];
        const char *x = ptr[4] + i * step[4];
        int64_t left = width;
        for (; left >= {WIDE} * lanes; left -= {WIDE} * lanes, out += {WIDE} * lanes, x += {WIDE} * FL_VECTOR) {name}_{WIDE}(out, col, v, x, pitch, start, end);
        for (; left >= lanes; left -= lanes, out += lanes, x += FL_VECTOR) {name}_1(out, col, v, x, pitch, start, end);
        if (left && width > lanes) {{ /* the last vector, some of which is there already */
            const int64_t back = lanes - left;
            {name}_1(out - back, col, v, x - back * (int64_t)sizeof({word}), pitch, start, end);
        }} else for (; left > 0; left--, out++, x += sizeof({word})) {{
            {word} sum = 0;
            for (int64_t k = start; k < end; k++) sum += v[k] * *(const {word} *)(x + col[k] * pitch);
            *out = sum;
        }}
    }}
}}
"""


def _strip(name: str, word: str, vectors: int) -> str:
    """So many vectors of a row of the result, which stay in registers while its places are added up."""
    each = lambda text: " ".join(text.replace("Q", str(q)) for q in range(vectors))  # noqa: E731
    return f"""
static inline void {name}_{vectors}({word} *out, const int64_t *col, const {word} *v, const char *x, int64_t pitch, int64_t k, int64_t end) {{
    {name}_vector {", ".join(f"s{q} = {{0}}" for q in range(vectors))};
    for (; k < end; k++) {{
        __builtin_prefetch(x + col[k + 8 < end ? k + 8 : k] * pitch);
        const {name}_vector *const row = (const {name}_vector *)(x + col[k] * pitch);
        {each("sQ += v[k] * row[Q];")}
    }}
    {each(f"(({name}_vector *)out)[Q] = sQ;")}
}}
"""


def _dots(name: str, word: str) -> str:
    """Operands: row, col, a, b. Numbers: columns, bytes from row to row of a and of b."""
    return f"""void FL_NAME({name}){PARAMETERS} {{
    const int64_t width = (int64_t)param[0], a_pitch = (int64_t)param[1], b_pitch = (int64_t)param[2];
    for (int64_t i = 0; i < n; i++) {{
        const {word} *const a = (const {word} *)(ptr[3] + *(const int64_t *)(ptr[1] + i * step[1]) * a_pitch);
        const {word} *const b = (const {word} *)(ptr[4] + *(const int64_t *)(ptr[2] + i * step[2]) * b_pitch);
        {word} sum = 0;
        _Pragma("omp simd reduction(+:sum)")
        for (int64_t j = 0; j < width; j++) sum += a[j] * b[j];
        *({word} *)(ptr[0] + i * step[0]) = sum;
    }}
}}
"""
