"""The innermost loops of matrix products, printed as C for CPUs with AVX-512 or AVX2: what csrc/blas.c multiplies panels with.

A tile of 6 rows and 4 vectors of C stays in registers (24 of 32) while K is walked: 4 loads of B and 6 numbers of A, each repeated over a
vector, feed 24 multiply-adds, so that the two units that do them never wait for memory. With AVX2, which has 16 registers, it is 2 vectors.
Edges have tiles of their own: fewer rows, and fewer vectors, of 12 rows if they are few: less than 8 sums at a time would wait for each other.

A few rows times a transposed matrix (a linear layer of a small batch) are dot products of rows with rows: both are read as they lie, some
of each at a time, and nothing is copied. Otherwise panels of a transposed B are turned (print_tiles.py), and a transposed A is cut into
tiles of 6 rows.
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS = 6
SOON = 2  # rows of B, where it lies, that are called for while a tile takes 16
TYPES = {"f32": ("float", 4), "f64": ("double", 8)}
SUFFIXES = {"f32": "ps", "f64": "pd"}


@dataclass(frozen=True)
class Unit:
    """The vectors of a CPU, and the tiles that fit their registers."""

    macro: str  # which a compiler defines that may use it
    bits: int
    tall: dict[int, int]  # vectors of a tile: its rows
    few: dict[int, int]  # rows of A whose dot products are taken at a time: with so many columns of B
    depth: int  # of a panel
    calls_ahead: bool  # a panel is too large for the nearest cache, so that what comes next must be called for

    @property
    def size(self) -> int:
        return self.bits // 8

    @property
    def vectors(self) -> int:
        return max(self.tall)

    @property
    def call(self) -> str:
        """What the names of its intrinsics begin with."""
        return f"_mm{self.bits}_"

    def name(self, kind: str) -> str:
        """The type of its vectors."""
        return f"__m{self.bits}" + ("d" if kind == "f64" else "")


UNITS = (
    Unit("__AVX512F__", 512, {1: 12, 2: 12, 3: 6, 4: 6}, {1: 8, 2: 8, 3: 4, 4: 4, 5: 4, 6: 4}, 528, True),
    Unit("__AVX2__", 256, {1: 12, 2: 6}, {1: 8, 2: 4, 3: 2, 4: 2, 5: 2, 6: 2}, 384, False),
)


def texts() -> list[str]:
    """The C of both dtypes for each unit, and the table of them (see fl_products in system.h)."""
    table = "const fl_products FL_NAME(fl_products)[2] = {%s};\n"
    printed = [*(_TINY.format(kind=kind, real=real) for kind, (real, _) in TYPES.items()), "#if 0\n"]
    for unit in UNITS:
        printed.append(f'#elif defined({unit.macro})\n#include <immintrin.h>\n#include "tiles.h"\n')
        printed += [text for kind in TYPES for text in (*_strips(unit, kind), *_dots(unit, kind), _copies(unit, kind))]
        sizes = f"{unit.size}, {unit.size * unit.vectors}, {unit.depth}"
        loops = ("strip", "dots", "pack", "cut", "turn", "spread")
        printed.append(
            table % ", ".join("{" + ", ".join([f"{loop}_{kind}" for loop in loops] + [sizes, f"tiny_{kind}"]) + "}" for kind in TYPES)
        )
    return [*printed, "#else\n", table % ", ".join(f"{{.tiny = tiny_{kind}}}" for kind in TYPES), "#endif\n"]


def _strips(unit: Unit, kind: str):
    real, size = TYPES[kind]
    width = unit.size // size
    yield f"typedef {real} vec_{kind} __attribute__((vector_size({unit.size}), aligned({size}), may_alias));\n"
    shapes = [(rows, vectors) for vectors, most in unit.tall.items() for rows in range(1, most + 1)]
    for rows, vectors in shapes:
        yield _tile(unit, kind, rows, vectors)
    tiles = [f"[{rows}][{vectors - 1}] = tile_{kind}_{rows}_{vectors}" for rows, vectors in shapes]
    yield _STRIP.format(
        kind=kind,
        real=real,
        width=width,
        rows=ROWS,
        vectors=unit.vectors,
        most=max(unit.tall.values()),
        tall=", ".join(map(str, unit.tall.values())),
        tiles=", ".join(tiles),
        wide=unit.vectors * width,
        soon=SOON,
        part=_part(unit, kind),
    )


def _part(unit: Unit, kind: str) -> str:
    """The first elements of a row, less than a tile is wide; a call would cost more than the few vectors of a narrow one."""
    real, size = TYPES[kind]
    most = unit.vectors * unit.size // size
    lines = [f"    memcpy(to, from, {size} * (size_t)n);"]
    if unit.bits == 256:
        lines = [f"    if (n & {some}) memcpy(to, from, {some * size}), from += {some}, to += {some};" for some in _groups(most)]
        lines.append("    if (n & 1) *to = *from;")
    return f"static inline void part_{kind}(int64_t n, const {real} *from, {real} *to) {{\n" + "\n".join(lines) + "\n}\n"


def _tile(unit: Unit, kind: str, rows: int, vectors: int) -> str:
    """C (rows, vectors) = alpha A B + beta D, or alpha A B without reading D, if there is no beta. D is C, or a row for all its rows."""
    real, size = TYPES[kind]
    width = unit.size // size
    cells = [(i, j) for i in range(rows) for j in range(vectors)]
    lines = [f"vec_{kind} " + ", ".join(f"c{i}{j} = {{0}}" for j in range(vectors)) + ";" for i in range(rows)]
    # Row pointers three rows apart, and `down` times 0, 1, 2: what an x86 address can add by itself.
    lines += [f"const {real} *a{i} = a + {i // ROWS} * next + {i % ROWS} * down;" for i in range(0, rows, 3)]
    before, after = _loop(unit, kind, rows, vectors)
    lines += before
    lines += [f"    const vec_{kind} b{j} = *(const vec_{kind} *)(b + {j * width});" for j in range(vectors)]
    for i in range(rows):
        lines.append(f"    const vec_{kind} x{i} = a{i // 3 * 3}[{i % 3} * down] - (vec_{kind}){{0}};")
        lines += [f"    c{i}{j} += x{i} * b{j};" for j in range(vectors)]
    lines += [f"    a{i} += right;" for i in range(0, rows, 3)] + ["    b += ldb;", *after]
    here = f"*(vec_{kind} *)(c + {{0}} * ldc + {{1}})"
    there = f"*(const vec_{kind} *)(d + {{0}} * ldd + {{1}})"
    places = [(here.format(i, j * width), there.format(i, j * width), f"c{i}{j}") for i, j in cells]
    lines += ["if (beta) {", *(f"    {c} = *beta * {d} + *alpha * {x};" for c, d, x in places), "} else {"]
    lines += [*(f"    {c} = *alpha * {x};" for c, _, x in places), "}"]
    body = "".join(f"    {line}\n" for line in lines)
    return (
        f"static void tile_{kind}_{rows}_{vectors}(int64_t depth, const {real} *a, int64_t down, int64_t right, int64_t next,\n        const {real} *later, int64_t lines, const {real} *b, int64_t ldb, const {real} *soon,\n"
        f"    const {real} *alpha, const {real} *beta, const {real} *d, int64_t ldd, {real} *c, int64_t ldc) {{\n{body}}}\n"
    )


def _loop(unit: Unit, kind: str, rows: int, vectors: int) -> tuple[list[str], list[str]]:
    """What is before and after the steps along K, and calls for the memory that will be needed soon."""
    real, size = TYPES[kind]
    width, line = unit.size // size, 64 // size
    if not unit.calls_ahead:
        calls = [f"__builtin_prefetch(c + {i} * ldc + {vectors * width}, 1);" for i in range(rows)]
        return ["(void)later, (void)lines, (void)soon;", *calls, "for (int64_t q = 0; q < depth; q++) {"], ["}"]
    across = vectors * width // line  # of the lines that memory comes in
    late = [f"__builtin_prefetch(ahead + {i} * ldc + {k}, 1);" for i in (0, 1) for k in range(0, vectors * width, line)]
    rows_of_b = [
        f"__builtin_prefetch(soon + {row} * ldb + {k}, 0, 2);" for row in range(SOON) for k in range(0, unit.vectors * width, line)
    ]
    text = f"""const {real} *coming = c + {rows} * ldc;  /* of C, for the tile that comes next */
for (int64_t q = 0; q < depth;) {{
    const int64_t stop = q + 16 < depth ? q + 16 : depth;
    for (int64_t i = 0; i < lines; i++) {{
        {" ".join(f"__builtin_prefetch(later + i * down + {k}, 0, 2);" for k in range(0, 16, line))}
    }}
    later += 16;
    __builtin_prefetch(coming, 1);
    coming += q / 16 % {across} == {across - 1} ? ldc - {(across - 1) * line} : {line};
    if (soon) {{
        {" ".join(rows_of_b)}
        soon += {SOON} * ldb;
    }}
    if (depth - q <= {8 * rows}) {{ /* two rows of C at a time, late: what comes early the panel, larger than the nearest cache, would drive out again */
        const {real} *const ahead = c + (depth - q - 1) / 16 * 2 * ldc;
        {" ".join(late)}
    }}
    for (; q < stop; q++) {{"""
    return text.splitlines(), ["}", "}"]


def _dots(unit: Unit, kind: str):
    """C = alpha A B + beta D, where B lies there column after column: `ldb` elements from one to the next."""
    real, size = TYPES[kind]
    width, vector, suffix, call = unit.size // size, unit.name(kind), SUFFIXES[kind], unit.call
    blocks = [(rows, cols) for rows, most in unit.few.items() for cols in (1, most)]
    yield _picks(unit, kind)
    yield "".join(
        f"typedef {real} row_{kind}_{n} __attribute__((vector_size({n} * sizeof({real})), aligned({size}), may_alias));\n"
        for n in (1, 2, 4, 8)
    )
    for rows, cols in blocks:
        cells = [f"c{i}_{j}" for i in range(rows) for j in range(cols)]
        lines = [f"{vector} " + ", ".join(f"{c} = {call}setzero_{suffix}()" for c in cells) + ";", "int64_t q = 0;"]

        # Two loads a cycle are what a loop of short vectors waits for: the fewer of A and B stay in registers, and the others are read once.
        short = unit.bits == 256
        once = short and rows > 1  # of a single row everything is used once anyway
        held, passing = (("a", rows), ("b", cols)) if short and rows < cols else (("b", cols), ("a", rows))

        def step(load: str, at: str = "q", held=held, passing=passing, once=once) -> list[str]:
            places = {"a": "a + {} * down + " + at, "b": "b + {} * ldb + " + at}
            read = lambda name, i, how="": f"    {how}{vector} {name}{i} = {load.format(places[name].format(i))};"  # noqa: E731
            kept = '    __asm__("" : "+v"({}{}));'  # or the compiler would read it again where it is used next
            found = [read(held[0], j) for j in range(held[1])] + [kept.format(held[0], j) for j in range(held[1])]
            for i in range(passing[1]):
                found += [read(passing[0], i, "" if once else "const ")] + [kept.format(passing[0], i)] * once
                for j in range(held[1]):
                    cell = f"c{i}_{j}" if held[0] == "b" else f"c{j}_{i}"
                    found.append(f"    {cell} = {call}fmadd_{suffix}({passing[0]}{i}, {held[0]}{j}, {cell});")
            return found

        # Of the rows that come next: each is long, and a new one takes the prefetcher by surprise.
        ahead = [f"    __builtin_prefetch(b + {cols + j} * ldb + q);" for j in range(cols)]
        whole = f"{call}loadu_{suffix}({{}})"
        if short:  # a line of memory at a time
            lines += [f"for (; q + {2 * width} <= depth; q += {2 * width}) {{", *ahead, "{", *step(whole), "} {"]
            lines += [*step(whole, f"q + {width}"), "}", "}"]
            lines += [f"if (q + {width} <= depth) {{", *step(whole), f"q += {width};", "}"]
        else:
            lines += [f"for (; q + {width} <= depth; q += {width}) {{", *ahead, *step(whole), "}"]
        if unit.bits == 512:
            some, part = f"const __mmask{width} some = (1u << (depth - q)) - 1;", f"{call}maskz_loadu_{suffix}(some, {{}})"
        else:
            some = f"const __m256i some = _mm256_loadu_si256((const __m256i *)(some_{kind} + {width} - (depth - q)));"
            part = f"{call}maskload_{suffix}({{}}, some)"
        lines += ["if (q < depth) {", f"    {some}", *step(part), "}"]
        group, store = _at_once(unit, kind), "_mm512_store" if unit.bits == 512 else "_mm_store"
        lines.append(f"FL_ALIGNED {real} sums[{-(-len(cells) // group) * group}];")
        for first in range(0, len(cells), group):
            folds, total = _folded(unit, kind, cells[first : first + group])
            lines += [*folds, f"{store}_{suffix}(sums + {first}, {total});"]
        row = f"*(row_{kind}_{cols} *)"
        places = [(f"{row}(c + {i} * ldc)", f"*alpha * {row}(sums + {i * cols})") for i in range(rows)]
        lines += [f"if (beta) {{ {' '.join(f'{c} = *beta * {row}(d + {i} * ldd) + {x};' for i, (c, x) in enumerate(places))} }}"]
        lines += [f"else {{ {' '.join(f'{c} = {x};' for c, x in places)} }}"]
        head = f"static void dot_{kind}_{rows}_{cols}(int64_t depth, const {real} *a, int64_t down, const {real} *b, int64_t ldb, const {real} *alpha,\n"
        head += f"    const {real} *beta, const {real} *d, int64_t ldd, {real} *c, int64_t ldc)"
        yield head + " {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    table = ", ".join(f"{{dot_{kind}_{rows}_1, dot_{kind}_{rows}_{most}}}" for rows, most in unit.few.items())
    across = ", ".join(map(str, unit.few.values()))
    yield _DOTS.format(kind=kind, real=real, few=max(unit.few), table=table, across=across)


def _at_once(unit: Unit, kind: str) -> int:
    """Vectors whose sums become one vector (see _folded)."""
    width = unit.size // TYPES[kind][1]
    return width if unit.bits == 512 else width // 2


def _groups(width: int) -> list[int]:
    return [width >> i for i in range(width.bit_length() - 1)]


def _picks(unit: Unit, kind: str) -> str:
    """What the sums of two vectors' parts are picked by, and what is read of a vector that is not whole."""
    width = unit.size // TYPES[kind][1]
    if unit.bits == 256:
        whole = ", ".join(["-1"] * width + ["0"] * width)
        return f"static const int{256 // width}_t some_{kind}[{2 * width}] = {{{whole}}};\n"
    lines = ""
    for group in _groups(width):
        firsts = [k for k in range(2 * width) if k % group < group // 2]  # elements in the first halves of groups, of two vectors
        for half in (0, 1):
            picks = ", ".join(str(k + half * group // 2) for k in reversed(firsts))
            lines += f"#define FOLD_{kind}_{group}_{half} _mm512_set_epi{512 // width}({picks})\n"
    return lines


def _folded(unit: Unit, kind: str, vectors: list[str]) -> tuple[list[str], str]:
    """(lines of C, a vector of the sums of vectors), in log2 rounds: groups of two vectors are folded in the middle into one. Where halves
    of a vector do not mix, their sums are added in the end."""
    vector, suffix, call = unit.name(kind), SUFFIXES[kind], unit.call
    lines: list[str] = []
    for number, group in enumerate(_groups(_at_once(unit, kind))):
        fresh = []
        for i in range(0, len(vectors), 2):
            a, b = vectors[i], vectors[min(i + 1, len(vectors) - 1)]
            fresh.append(f"{vectors[0]}_{number}_{i}")
            halves = [f"_mm512_permutex2var_{suffix}({a}, FOLD_{kind}_{group}_{half}, {b})" for half in (0, 1)]
            total = f"{call}add_{suffix}({', '.join(halves)})" if unit.bits == 512 else f"{call}hadd_{suffix}({a}, {b})"
            lines.append(f"const {vector} {fresh[-1]} = {total};")
        vectors = fresh
    (total,) = vectors
    if unit.bits == 256:
        total = f"_mm_add_{suffix}(_mm256_cast{suffix}256_{suffix}128({total}), _mm256_extractf128_{suffix}({total}, 1))"
    return lines, total


def _copies(unit: Unit, kind: str) -> str:
    """How B comes into panels, and A into tiles."""
    real, size = TYPES[kind]
    width = unit.size // size
    # A call would cost more.
    copy = " ".join(f"((vec_{kind} *)at)[{j}] = ((const vec_{kind} *)here)[{j}];" for j in range(unit.vectors))
    calls = " ".join(f"__builtin_prefetch(here + 4 * ld + {k});" for k in range(0, unit.vectors * width, 64 // size))
    parts = (_copies_by_masks if unit.bits == 512 else _copies_in_parts)(unit, kind)
    sizes = {"kind": kind, "real": real, "size": size, "panel": unit.vectors * width, "tile": ROWS, "vector": unit.size}
    return _COPIES.format(copy=copy, calls=calls, **parts, **sizes)


def _copies_by_masks(unit: Unit, kind: str) -> dict[str, str]:
    """How a row of a last panel is copied, and one of a tile, where not all of a vector need be written."""
    size = TYPES[kind][1]
    vector, call = (unit.name(kind), unit.call) if kind == "f64" else ("__m256", "_mm256_")  # 6 elements
    last = f"""const size_t used = {size} * (size_t)rest;
        if (!turned) memcpy(at, here, used);
        if (used % 64) memset((char *)at + used, 0, -used & 63);"""
    move = f"""const __mmask8 some = (1u << (rows - s < {ROWS} ? rows - s : {ROWS})) - 1;
            const {vector} x = {call}maskz_loadu_{SUFFIXES[kind]}(some, from);
            {call}mask_storeu_{SUFFIXES[kind]}(to, some, x);"""
    return {"last": last, "fast": "0", "quick": "", "move": move}


def _copies_in_parts(unit: Unit, kind: str) -> dict[str, str]:
    """The same for AVX2, which reads by masks quickly, but does not write so. What is written past a row of a tile the next row takes back."""
    size = TYPES[kind][1]
    width = unit.size // size
    last = []
    for j in range(unit.vectors):
        used = f"(rest < {j * width} ? 0 : rest - {j * width} < {width} ? rest - {j * width} : {width})"
        some = f"_mm256_loadu_si256((const __m256i *)(some_{kind} + {width} - {used}))"
        last.append(f"_mm256_storeu_{SUFFIXES[kind]}(at + {j * width}, _mm256_maskload_{SUFFIXES[kind]}(here + {j * width}, {some}));")
    fast, quick = f"rows / {ROWS} * {ROWS}", f"memcpy(to, from, {ROWS * size});"
    if width > ROWS:
        fast, quick = f"r + 1 < depth ? (rows - {width - ROWS}) / {ROWS} * {ROWS} : 0", f"*(vec_{kind} *)to = *(const vec_{kind} *)from;"
    move = f"""if (rows - s >= {ROWS}) memcpy(to, from, {ROWS * size});
            else memcpy(to, from, {size} * (size_t)(rows - s));"""
    return {"last": "\n        ".join(last), "fast": fast, "quick": quick, "move": move}


_TINY = """
static void tiny_{kind}(int64_t rows, int64_t cols, int64_t depth, const void *a, int64_t down, int64_t right, const void *b, int64_t under,
    int64_t beside, const void *alpha, const void *beta, const void *row, void *c, int64_t ldc) {{
    const {real} times = *(const {real} *)alpha;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {{
            const {real} *const x = (const {real} *)a + i * down, *const y = (const {real} *)b + j * beside;
            {real} sum = 0, *const to = ({real} *)c + i * ldc + j;
            for (int64_t q = 0; q < depth; q++) sum += x[q * right] * y[q * under];
            *to = times * sum + (beta ? *(const {real} *)beta * (row ? ((const {real} *)row)[j] : *to) : 0);
        }}
}}
"""

_DOTS = """
static void dots_{kind}(int64_t rows, int64_t cols, int64_t depth, const void *a, int64_t down, int64_t right, int64_t next,
    const void *later, int64_t lines, const void *b, int64_t ldb, const void *soon, const void *alpha, const void *beta, const void *d, int64_t ldd, void *c, int64_t ldc) {{
    static void (*const dot[{few}][2])(int64_t, const {real} *, int64_t, const {real} *, int64_t, const {real} *, const {real} *,
        const {real} *, int64_t, {real} *, int64_t) = {{{table}}};
    const int64_t parts = (rows + {few} - 1) / {few};
    (void)right, (void)next, (void)later, (void)lines, (void)soon;
    static const int64_t most[] = {{{across}}}; /* columns at a time, by rows */
    for (int64_t j = 0, across; j < cols; j += across) {{
        across = most[rows / parts - 1];
        if (cols - j < across) across = 1;
        for (int64_t part = 0, i = 0; part < parts; part++) {{
            const int64_t end = rows * (part + 1) / parts, some = end - i, step = across > 1 ? most[some - 1] : 1;
            for (int64_t k = j; k < j + across; k += step)
                dot[some - 1][step > 1](depth, (const {real} *)a + i * down, down, (const {real} *)b + k * ldb, ldb, alpha, beta,
                    (const {real} *)d + i * ldd + k, ldd, ({real} *)c + i * ldc + k, ldc);
            i = end;
        }}
    }}
}}
"""

_COPIES = """
static void turn_{kind}(int64_t rows, int64_t cols, const void *from, int64_t ld, void *to, int64_t ld_to) {{
    fl_turn({size}, rows, cols, from, ld, to, ld_to);
}}
/* Columns of B, from (depth, cols) or turned, into panels, `deep` rows apart; a row through all of them, as it lies. What fills up the last
   vector is 0: what was there could be slow to multiply with. */
static void pack_{kind}(int64_t depth, int64_t cols, const void *b, int64_t ld, bool turned, void *panels, int64_t deep) {{
    const {real} *const from = b;
    {real} *const to = panels;
    for (int64_t s = 0; turned && s < cols; s += {panel})
        fl_turn({size}, cols - s < {panel} ? cols - s : {panel}, depth, (const char *)(from + s * ld), ld, (char *)(to + s * deep), {panel});
    const int64_t rest = cols % {panel}, whole = cols - rest; /* columns */
    for (int64_t r = 0; r < depth && !turned; r++) {{
        const {real} *here = from + r * ld;
        char *at = (char *)(to + r * {panel});
        for (int64_t s = 0; s < whole; s += {panel}, here += {panel}, at += {panel} * {size} * deep) {{
            {calls}
            {copy}
        }}
    }}
    for (int64_t r = 0; r < depth && rest; r++) {{
        {real} *const at = to + whole * deep + r * {panel};
        const {real} *const here = turned ? at : from + r * ld + whole;
        {last}
    }}
}}
/* Every row of `to` full of one number of `from`, to the end of its last vector: what would else be there could be slow to add. */
static void spread_{kind}(int64_t rows, int64_t cols, const void *from, void *to, int64_t ld) {{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j += {vector} / {size})
            *(vec_{kind} *)(({real} *)to + r * ld + j) = ((const {real} *)from)[r] - (vec_{kind}){{0}};
}}
/* Rows of a transposed A, which lie side by side, into tiles, `deep` columns apart. */
static void cut_{kind}(int64_t depth, int64_t rows, const void *a, int64_t ld, void *tiles, int64_t deep) {{
    for (int64_t r = 0; r < depth; r++) {{
        for (int64_t s = 0; s < rows; s += 64 / {size}) __builtin_prefetch((const {real} *)a + (r + 4) * ld + s);
        const {real} *from = (const {real} *)a + r * ld;
        {real} *to = ({real} *)tiles + r * {tile};
        int64_t s = 0;
        for (const int64_t fast = {fast}; s < fast; s += {tile}, from += {tile}, to += {tile} * deep) {{ {quick} }}
        for (; s < rows; s += {tile}, from += {tile}, to += {tile} * deep) {{
            {move}
        }}
    }}
}}
"""


# All rows of one panel of columns. Where the last vector of a row is not whole, a tile works in a corner of its own.
_STRIP = """
{part}static void strip_{kind}(int64_t rows, int64_t cols, int64_t depth, const void *a, int64_t down, int64_t right, int64_t next,
    const void *later, int64_t lines, const void *b, int64_t ldb, const void *soon, const void *alpha, const void *beta, const void *d, int64_t ldd, void *c, int64_t ldc) {{
    static void (*const tiles[{most} + 1][{vectors}])(int64_t, const {real} *, int64_t, int64_t, int64_t, const {real} *, int64_t, const {real} *, int64_t, const {real} *,
        const {real} *, const {real} *, const {real} *, int64_t, {real} *, int64_t) = {{{tiles}}};
    static const int64_t tall[] = {{{tall}}};
    const int64_t vectors = (cols + {width} - 1) / {width}, ahead = soon ? {rows} * 16 / {soon} : 0;
    const {real} *const near = soon;
    const {real} *from = a, *with = d;
    {real} *to = c, corner[{most} * {wide}];
    if (cols % {width}) memset(corner, 0, sizeof corner);
    const bool whole = cols == vectors * {width};
    const int64_t most = tall[vectors - 1], parts = (rows + most - 1) / most;
    for (int64_t i = 0, part = 1, some; i < rows; i += some, part++) {{
        some = right == 1 ? rows * part / parts - i : rows - i < most ? rows - i : most; /* tiles of one height, or as A was cut */
        for (int64_t r = 0; !whole && beta && r < some; r++) part_{kind}(cols, with + r * ldd, corner + r * {wide});
        tiles[some][vectors - 1](depth, from, down, right, next, (const {real} *)later + i * down, lines, b, ldb, i < ahead ? near + i / {rows} * {soon} * ((depth + 15) / 16) * ldb : 0, alpha, beta, whole ? with : corner, whole ? ldd : {wide}, whole ? to : corner, whole ? ldc : {wide});
        for (int64_t r = 0; !whole && r < some; r++) part_{kind}(cols, corner + r * {wide}, to + r * ldc);
        from += right == 1 ? some * down : some / {rows} * next, with += some * ldd, to += some * ldc;
    }}
}}
"""
