"""The innermost loops of matrix products, printed as C for CPUs with AVX-512: what csrc/blas.c multiplies panels with.

A tile of 6 rows and 4 vectors of C stays in registers (24 of 32) while K is walked: 4 loads of B and 6 numbers of A, each repeated over a
vector, feed 24 multiply-adds, so that the two units that do them never wait for memory. Edges have tiles of their own: 1 to 6 rows, 1 to 4
vectors.

A few rows times a transposed matrix (a linear layer of a small batch) are dot products of rows with rows: both are read as they lie, four
by four of them at a time, and nothing is copied.
"""

from __future__ import annotations

ROWS, VECTORS = 6, 4
FEW = 4  # rows of A, and of the transposed B, whose dot products are taken at a time
TYPES = {"f32": ("float", 16), "f64": ("double", 8)}


def texts() -> list[str]:
    """The C of both dtypes, and the table of them (see fl_strip in system.h)."""
    printed = [text for kind in TYPES for text in (*_strips(kind), *_dots(kind))]
    names = ", ".join(f"{loop}_{kind}" for loop in ("strip", "dots") for kind in TYPES)
    table = "fl_strip *const FL_NAME(fl_strips)[4] = {%s};\n"
    return [
        "#include <string.h>\n#ifdef __AVX512F__\n#include <immintrin.h>\n",
        *printed,
        table % names,
        "#else\n",
        table % "0",
        "#endif\n",
    ]


def _strips(kind: str):
    real, width = TYPES[kind]
    yield f"typedef {real} vec_{kind} __attribute__((vector_size(64), aligned({64 // width}), may_alias));\n"
    for rows in range(1, ROWS + 1):
        for vectors in range(1, VECTORS + 1):
            yield _tile(kind, rows, vectors)
    for vectors in range(1, VECTORS + 1):
        yield _tile(kind, ROWS, vectors, keeps=True)
    names = [", ".join(f"tile_{kind}_{rows}_{vectors}" for vectors in range(1, VECTORS + 1)) for rows in range(1, ROWS + 1)]
    names.append(", ".join(f"tile_{kind}_keeps_{vectors}" for vectors in range(1, VECTORS + 1)))
    tiles = ", ".join(f"{{{n}}}" for n in names)
    yield _STRIP.format(kind=kind, real=real, width=width, rows=ROWS, vectors=VECTORS, tiles=tiles, wide=VECTORS * width, size=64 // width)


def _tile(kind: str, rows: int, vectors: int, keeps: bool = False) -> str:
    """C (rows, vectors) = alpha A B + beta C, or alpha A B without reading C, if there is no beta. One that keeps copies B into a panel."""
    real, width = TYPES[kind]
    cells = [(i, j) for i in range(rows) for j in range(vectors)]
    lines = [f"vec_{kind} " + ", ".join(f"c{i}{j} = {{0}}" for j in range(vectors)) + ";" for i in range(rows)]
    # Row pointers three rows apart, and `down` times 0, 1, 2: what an x86 address can add by itself.
    lines += [f"const {real} *a{i} = a + {i} * down;" for i in range(0, rows, 3)]
    lines += [] if keeps else ["(void)keep;"]
    lines.append("for (int64_t q = 0; q < depth;) {")
    lines.append("    const int64_t stop = q + 16 < depth ? q + 16 : depth;")
    lines += [f"    __builtin_prefetch(soon + {row} * step + {64 * line}, 0, 2);" for row in (0, 1) for line in range(4)]
    lines.append("    soon += 2 * step;")
    # Two rows of C at a time, late: what comes early the panel, larger than the nearest cache, would drive out again.
    lines.append(f"    if (depth - q <= {8 * rows}) {{")
    lines.append(f"        const {real} *const ahead = c + (depth - q - 1) / 16 * 2 * ldc;")
    lines += [f"        __builtin_prefetch(ahead + {i} * ldc + {j * width}, 1);" for i in (0, 1) for j in range(vectors)] + ["    }"]
    lines.append("    for (; q < stop; q++) {")
    lines += [f"    const vec_{kind} b{j} = *(const vec_{kind} *)(b + {j * width});" for j in range(vectors)]
    if keeps:  # beside so many multiplications a store costs nothing
        lines += [f"    __builtin_prefetch(b + 8 * ldb + {j * width});" for j in range(vectors)]
        lines += [f"    *(vec_{kind} *)(keep + {j * width}) = b{j};" for j in range(vectors)] + [f"    keep += {VECTORS * width};"]
    for i in range(rows):
        lines.append(f"    const vec_{kind} x{i} = a{i // 3 * 3}[{i % 3} * down] - (vec_{kind}){{0}};")
        lines += [f"    c{i}{j} += x{i} * b{j};" for j in range(vectors)]
    lines += [f"    a{i} += right;" for i in range(0, rows, 3)] + ["    b += ldb;", "}", "}"]
    here = f"*(vec_{kind} *)(c + {{0}} * ldc + {{1}})"
    places = [(here.format(i, j * width), f"c{i}{j}") for i, j in cells]
    lines += ["if (beta) {", *(f"    {c} = *beta * {c} + *alpha * {x};" for c, x in places), "} else {"]
    lines += [*(f"    {c} = *alpha * {x};" for c, x in places), "}"]
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"static void tile_{kind}_{'keeps' if keeps else rows}_{vectors}(int64_t depth, const {real} *a, int64_t down, int64_t right, const {real} *b, int64_t ldb, const char *soon, int64_t step,\n"
        f"    const {real} *alpha, const {real} *beta, {real} *c, int64_t ldc, {real} *keep) {{\n{body}}}\n"
    )


def _dots(kind: str):
    """C = alpha A B + beta C, where B lies there column after column: `ldb` elements from one to the next."""
    real, width = TYPES[kind]
    blocks = [(rows, cols) for rows in range(1, FEW + 1) for cols in (1, FEW)]
    for rows, cols in blocks:
        cells = [(i, j) for i in range(rows) for j in range(cols)]
        lines = [f"vec_{kind} " + ", ".join(f"c{i}{j} = {{0}}" for i, j in cells) + ";", "int64_t q = 0;"]
        lines.append(f"for (; q + {width} <= depth; q += {width}) {{")
        lines += [f"    const vec_{kind} b{j} = *(const vec_{kind} *)(b + {j} * ldb + q);" for j in range(cols)]
        for i in range(rows):
            lines.append(f"    const vec_{kind} a{i} = *(const vec_{kind} *)(a + {i} * down + q);")
            lines += [f"    c{i}{j} += a{i} * b{j};" for j in range(cols)]
        lines.append("}")
        add, vector = {"f32": ("_mm512_reduce_add_ps", "__m512"), "f64": ("_mm512_reduce_add_pd", "__m512d")}[kind]
        lines += [f"to[{i * cols + j}] = {add}(({vector})c{i}{j});" for i, j in cells]
        lines += ["for (; q < depth; q++) {", *(f"    to[{i * cols + j}] += a[{i} * down + q] * b[{j} * ldb + q];" for i, j in cells), "}"]
        head = (
            f"static void dot_{kind}_{rows}_{cols}(int64_t depth, const {real} *a, int64_t down, const {real} *b, int64_t ldb, {real} *to)"
        )
        yield head + " {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    table = ", ".join(f"{{dot_{kind}_{rows}_1, dot_{kind}_{rows}_{FEW}}}" for rows in range(1, FEW + 1))
    yield _DOTS.format(kind=kind, real=real, few=FEW, table=table)


_DOTS = """
static void dots_{kind}(int64_t rows, int64_t cols, int64_t depth, const void *a, int64_t down, int64_t right, int64_t next,
    const void *b, int64_t ldb, const void *soon, const void *alpha, const void *beta, void *c, int64_t ldc, void *keep) {{
    static void (*const dot[{few}][2])(int64_t, const {real} *, int64_t, const {real} *, int64_t, {real} *) = {{{table}}};
    {real} found[{few} * {few}];
    (void)right, (void)next, (void)soon, (void)keep;
    for (int64_t j = 0, across; j < cols; j += across) {{
        across = cols - j < {few} ? 1 : {few};
        for (int64_t i = 0; i < rows; i += {few}) {{
            const int64_t some = rows - i < {few} ? rows - i : {few};
            dot[some - 1][across > 1](depth, (const {real} *)a + i * down, down, (const {real} *)b + j * ldb, ldb, found);
            for (int64_t r = 0; r < some; r++) {{
                {real} *const to = ({real} *)c + (i + r) * ldc + j;
                const {real} *const from = found + r * across, scale = *(const {real} *)alpha, share = beta ? *(const {real} *)beta : 0;
                for (int64_t s = 0; s < across; s++) to[s] = beta ? share * to[s] + scale * from[s] : scale * from[s];
            }}
        }}
    }}
}}
"""


# All rows of one panel of columns. Where the last vector of a row is not whole, a tile works in a corner of its own.
_STRIP = """
static void strip_{kind}(int64_t rows, int64_t cols, int64_t depth, const void *a, int64_t down, int64_t right, int64_t next,
    const void *b, int64_t ldb, const void *soon, const void *alpha, const void *beta, void *c, int64_t ldc, void *keep) {{
    static void (*const tiles[{rows} + 1][{vectors}])(int64_t, const {real} *, int64_t, int64_t, const {real} *, int64_t, const char *, int64_t, const {real} *,
        const {real} *, {real} *, int64_t, {real} *) = {{{tiles}}};
    const int64_t vectors = (cols + {width} - 1) / {width};
    const {real} *from = a;
    const char *const near = soon;
    const int64_t step = ldb * {size};
    {real} *to = c, corner[{rows} * {wide}] = {{0}};
    for (int64_t i = 0; i < rows; i += {rows}, from += next, to += {rows} * ldc) {{
        const int64_t some = rows - i < {rows} ? rows - i : {rows};
        const bool whole = cols == vectors * {width};
        for (int64_t r = 0; !whole && beta && r < some; r++) memcpy(corner + r * {wide}, to + r * ldc, sizeof({real}) * (size_t)cols);
        const bool keeps = keep && i == 0 && rows > {rows};
        tiles[keeps ? {rows} : some - 1][vectors - 1](depth, from, down, right, b, ldb, near + (depth + 15) / 16 * (i / {rows} % 8) * 2 * step, step,
            alpha, beta, whole ? to : corner, whole ? ldc : {wide}, keep);
        if (keeps) b = keep, ldb = {wide};
        for (int64_t r = 0; !whole && r < some; r++) memcpy(to + r * ldc, corner + r * {wide}, sizeof({real}) * (size_t)cols);
    }}
}}
"""
