"""Products that BLAS has not, printed as C.

    product.whole    (rows, depth) (depth, cols) of whole numbers, which wrap around: an element of the launch is a few rows of the result
    product.dot      the dot product of two pieces of vectors, in the widest dtype of the kind: an element is a piece

The rows of a result are added up four at a time in registers, two vectors wide, while the columns of B they need stay near.
"""

from __future__ import annotations

from flambeau.kernels.language.print_c import TYPES
from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table

WHOLE = {
    "uint8": "uint8_t",
    "int8": "uint8_t",
    "int16": "uint16_t",
    "int32": "uint32_t",
    "int64": "uint64_t",
}  # unsigned: overflow is defined
ROWS = 4


def table() -> Table:
    loops = Table()
    for dtype, word in WHOLE.items():
        function = f"product_{TYPES[dtype][0]}"
        loops.texts.append(_product(function, word))
        loops.add("product.whole", function, dtype, "T T", 8, LINES)
    for kind, real in (("f32", "float"), ("f64", "double")):
        loops.texts.append(_dot(f"product_dot_{kind}", real))
        loops.add("product.dot", f"product_dot_{kind}", kind, "T T", 1, LINES, out="f64")
    return loops


def _product(name: str, word: str) -> str:
    """Operands: A, B. Numbers: what the rows cost, how many, depth, columns; elements from row to row and column to column of A, from row to row
    of B and of the result."""
    tiles = "".join(_tile(name, word, rows, vectors) for rows in (ROWS, 1) for vectors in (2, 1))
    call = "{name}_{rows}_{vectors}(c + i * ldc + j, ldc, a + i * down, down, right, b + j, ldb, depth)".format

    def strip(vectors: int) -> str:
        fours = call(name=name, rows=ROWS, vectors=vectors)
        return f"""for (; j + {vectors} * lanes <= cols; j += {vectors} * lanes) {{
            int64_t i = 0;
            for (; i + {ROWS} <= rows; i += {ROWS}) {fours};
            for (; i < rows; i++) {call(name=name, rows=1, vectors=vectors)};
        }}"""

    return f"""typedef {word} {name}_vector __attribute__((vector_size(FL_VECTOR), aligned(sizeof({word})), may_alias));
{tiles}
void FL_NAME({name}){PARAMETERS} {{
    const int64_t rows = (int64_t)param[1], depth = (int64_t)param[2], cols = (int64_t)param[3], down = (int64_t)param[4], right = (int64_t)param[5];
    const int64_t ldb = (int64_t)param[6], ldc = (int64_t)param[7], lanes = FL_VECTOR / sizeof({word});
    for (int64_t k = 0; k < n; k++) {{
        {word} *const c = ({word} *)(ptr[0] + k * step[0]);
        const {word} *const a = (const {word} *)(ptr[1] + k * step[1]), *const b = (const {word} *)(ptr[2] + k * step[2]);
        int64_t j = 0;
        {strip(2)}
        {strip(1)}
        for (; j < cols; j++)
            for (int64_t i = 0; i < rows; i++) {{
                {word} sum = 0;
                for (int64_t q = 0; q < depth; q++) sum += (uint64_t)a[i * down + q * right] * b[q * ldb + j];
                c[i * ldc + j] = sum;
            }}
    }}
}}
"""


def _tile(name: str, word: str, rows: int, vectors: int) -> str:
    cells = [(r, v) for r in range(rows) for v in range(vectors)]
    return f"""
static inline void {name}_{rows}_{vectors}({word} *c, int64_t ldc, const {word} *a, int64_t down, int64_t right, const {word} *b, int64_t ldb, int64_t depth) {{
    {name}_vector {", ".join(f"s{r}_{v} = {{0}}" for r, v in cells)};
    for (int64_t q = 0; q < depth; q++, a += right, b += ldb) {{
        const {name}_vector {", ".join(f"b{v} = (({name}_vector *)b)[{v}]" for v in range(vectors))};
        {" ".join(f"s{r}_{v} += a[{r} * down] * b{v};" for r, v in cells)}
    }}
    {" ".join(f"(({name}_vector *)(c + {r} * ldc))[{v}] = s{r}_{v};" for r, v in cells)}
}}
"""


def _dot(name: str, word: str) -> str:
    """Operands: two pieces. Numbers: their length. Sixteen products of a lane are added in the dtype of the elements, then in double."""
    return f"""void FL_NAME({name}){PARAMETERS} {{
    const int64_t length = (int64_t)param[0];
    for (int64_t k = 0; k < n; k++) {{
        const {word} *const a = (const {word} *)(ptr[1] + k * step[1]), *const b = (const {word} *)(ptr[2] + k * step[2]);
        const {word} zero = ({word})fl_zero();
        FL_ALIGNED double part[64], total = 0;
        for (int l = 0; l < 64; l++) part[l] = zero;
        int64_t i = 0;
        for (int64_t end; length - i >= 64; ) {{
            end = length - i < 1024 ? length - (length - i) % 64 : i + 1024;
            FL_ALIGNED {word} lane[64];
            for (int l = 0; l < 64; l++) lane[l] = zero;
            for (; i < end; i += 64) FL_COUNTED for (int l = 0; l < 64; l++) lane[l] += a[i + l] * b[i + l];
            FL_COUNTED for (int l = 0; l < 64; l++) part[l] += lane[l];
        }}
        for (int width = 32; width; width /= 2) for (int l = 0; l < width; l++) part[l] += part[l + width];
        for (; i < length; i++) total += (double)a[i] * b[i];
        *(double *)(ptr[0] + k * step[0]) = total + part[0];
    }}
}}
"""
