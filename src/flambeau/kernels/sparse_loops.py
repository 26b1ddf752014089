"""The two loops behind products of sparse matrices, in C. A matrix is given by its rows: those of row i are the places crow[i] ... crow[i + 1] - 1
of `col` (in which column) and `v` (how much).

    csr.product   out[i, :] = sum over the places k of row i of v[k] * x[col[k], :]
    csr.dots      out[k] = sum over j of a[row[k], j] * b[col[k], j]

A row of the result belongs to one thread, which adds up its places in order: any number of threads gives the same bits. Four places are
added at a time, so that the row of the result is read and written a quarter as often. Indices are int64 and were checked before.
"""

from __future__ import annotations

from flambeau.kernels.index_loops import LINES, PARAMETERS
from flambeau.kernels.print_c import ENUM, LoopPrinter

DTYPES = ("float32", "float64", "int64", "int32")


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    texts, names, rows = [], [], []
    for dtype in DTYPES:
        p, enum = LoopPrinter(dtype), ENUM[dtype]
        texts += [_product(f"csr_product_{p.suffix}", p.storage), _dots(f"csr_dots_{p.suffix}", p.storage)]
        names += [f"csr_product_{p.suffix}", f"csr_dots_{p.suffix}"]
        rows.append(f'{{"csr.product", FL_NAME({names[-2]}), {enum}, 4, 3, 12, {enum}, {{FL_I64, FL_I64, {enum}, {enum}}}, {LINES}}}')
        rows.append(f'{{"csr.dots", FL_NAME({names[-1]}), {enum}, 4, 3, 12, {enum}, {{FL_I64, FL_I64, {enum}, {enum}}}, {LINES}}}')
    return texts, [f"void FL_NAME({name}){PARAMETERS};\n" for name in names], rows


def _product(name: str, word: str) -> str:
    """Operands: crow, col, v, x. Numbers: what a row costs (elements), columns of x, bytes from row to row of it."""
    four = "".join(f"const {word} v{q} = v[k + {q}], *const x{q} = (const {word} *)(x + col[k + {q}] * pitch); " for q in range(4))
    return f"""void FL_NAME({name}){PARAMETERS} {{
    const int64_t width = (int64_t)param[1], pitch = (int64_t)param[2], *const col = (const int64_t *)ptr[2];
    const {word} *const v = (const {word} *)ptr[3];
    const char *const x = ptr[4];
    for (int64_t i = 0; i < n; i++) {{
        {word} *const out = ({word} *)(ptr[0] + i * step[0]);
        const int64_t *const crow = (const int64_t *)(ptr[1] + i * step[1]), end = crow[1];
        int64_t k = crow[0];
        if (width == 1) {{
            {word} sum = 0;
            for (; k < end; k++) sum += v[k] * *(const {word} *)(x + col[k] * pitch);
            *out = sum;
            continue;
        }}
        for (int64_t j = 0; j < width; j++) out[j] = 0;
        for (; k + 4 <= end; k += 4) {{
            {four}
            FL_IVDEP for (int64_t j = 0; j < width; j++) out[j] = out[j] + v0 * x0[j] + v1 * x1[j] + v2 * x2[j] + v3 * x3[j];
        }}
        for (; k < end; k++) {{
            const {word} v0 = v[k], *const x0 = (const {word} *)(x + col[k] * pitch);
            FL_IVDEP for (int64_t j = 0; j < width; j++) out[j] += v0 * x0[j];
        }}
    }}
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
