"""Folds in C: small functions for each declaration of reductions/fold.py and each dtype (see fl_fold in loops.h), which csrc/fold.c drives over blocks
fixed by the shape.

Along a contiguous row the compiler may add the lanes of its vectors in any order (`omp simd`), which depends on the CPU variant but never on the number
of threads. Plain sums (`short`) first add a few elements, at most sixteen, in float32: to widen every one of them would halve the speed of sums that
fit the cache. What is the same C under two names is printed once (`home`).
"""

from __future__ import annotations

import functools

from flambeau.kernels.language import expr as e
from flambeau.kernels.language import print_lanes
from flambeau.kernels.language.print_c import CONVERT, ENUM, FLOATS, TYPES, CPrinter, LoopPrinter, inline, is_dear
from flambeau.kernels.reductions.fold import FOLDS, Fold

SIZES = {"double": 8, "float": 4, "int64_t": 8, "int32_t": 4, "int16_t": 2, "int8_t": 1, "uint8_t": 1}
WALK = "const char *x, int64_t step, int64_t n, int64_t apart, int64_t count, const double *shift, void *acc"
MOST_SHORT = 256  # elements of a row for which sixteen lanes of float32 will do
LONG = 4096  # bytes of a row that are worth more lanes than those of a vector


def print_fold(fold: Fold, dtype: str) -> str:
    """The C of one fold for one dtype: small functions, see fl_fold in loops.h."""
    accumulator = LoopPrinter(_accumulator(fold, dtype))
    wide, name = accumulator.compute, fold_name(fold.name, dtype)
    out = dtype if fold.out == "T" else fold.out
    x, y, z = e.load(0), e.load(1), e.load(2)
    more = "0, 0" if fold.exact else f"({wide})count, shift ? ({wide})shift[i] : 0"
    finished = f"{name}_finish(((const {wide} *)acc)[i], {more})"
    finished = f"(float){finished}" if out in ("float16", "bfloat16") else finished
    store = f"    FL_IVDEP for (int64_t i = 0; i < n; i++) (({TYPES[out][1]} *)out)[i] = {CPrinter(out).write(out, finished)};"
    if out == "float16":
        store = f"""    float w[FL_BLOCK];
    for (int64_t from = 0, m; from < n; from += m) {{
        m = n - from < FL_BLOCK ? n - from : FL_BLOCK;
        FL_IVDEP for (int64_t i = from; i < from + m; i++) w[i - from] = {finished};
        FL_NAME(fl_narrow)((uint16_t *)out + from, w, m);
    }}"""
    return f"""{print_walks(fold, dtype, name) if home(fold, dtype) == name else ""}
{inline(f"{name}_finish", wide, [f"{wide} x0", f"{wide} x1", f"{wide} x2"], accumulator, fold.finish(x, y, z))}
void FL_NAME({name}_store)(const void *acc, int64_t n, double count, const double *shift, char *out) {{
{store}
}}"""


def fold_name(name: str, dtype: str) -> str:
    """What the functions of a fold begin with."""
    return f"fold_{name}_{TYPES[dtype][0]}"


def home(fold: Fold, dtype: str) -> str:
    """The name under which a fold goes over elements of a dtype: that of the first whose C is the same. A mean is a sum until it is stored."""
    if dtype == "float16":
        return home(fold, "float32").removesuffix("f32") + "f16"
    return _homes()[fold.name, dtype]


@functools.cache
def _homes() -> dict[tuple[str, str], str]:
    first: dict[str, str] = {}
    places = [(fold, dtype) for fold in FOLDS for dtype in fold.dtypes if dtype != "float16"]
    return {(f.name, dtype): first.setdefault(print_walks(f, dtype, "@"), fold_name(f.name, dtype)) for f, dtype in places}


def print_walks(fold: Fold, dtype: str, name: str) -> str:
    """All but the end of a fold: how accumulators start, how elements come to them by rows and by columns, how they are merged."""
    element, accumulator = LoopPrinter(dtype), LoopPrinter(_accumulator(fold, dtype))
    wide, narrow, storage = accumulator.compute, element.compute, element.storage
    init = accumulator.literal(fold.init(dtype) if callable(fold.init) else fold.init)
    start = f"""void FL_NAME({name}_init)(void *acc, int64_t n) {{
    FL_IVDEP for (int64_t i = 0; i < n; i++) (({wide} *)acc)[i] = {init};
}}
"""
    if dtype == "float16":
        return start + _widened(name, home(fold, "float32"), wide)
    short = fold.short and narrow == "float"
    x, y = e.load(0), e.load(1)
    formula = fold.map(x, y)
    plain, dear = e.lift(formula) is x, is_dear(e.lift(formula))
    shift, shifted = "0", ""
    if 1 in e.loads(e.lift(formula)):
        shift = f"({narrow})shift[c]"
        shifted = f"""    if (!shift) {{
        unshifted(FL_NAME({name}_columns), sizeof({wide}), x, step, n, apart, count, shift, acc);
        return;
    }}
"""
    first = _short_lanes(name, element, plain) if short else ""
    least = 4 if plain and {wide, storage} <= set(VECTORS) else 16
    return f"""{start}
{inline(f"{name}_map", narrow if short else wide, [f"{narrow} x0", f"{narrow} x1"], element, formula)}
{inline(f"{name}_combine", wide, [f"{wide} x0", f"{wide} x1"], accumulator, fold.combine(x, y))}
{_merge(name, wide) if dtype == _accumulator(fold, dtype) else ""}
static FL_ONCE void {name}_row(const {storage} *a, int64_t n, {narrow} s, {wide} *acc) {{
    {wide} total = *acc;
    int64_t from = 0;
{first}{_lanes(name, accumulator, fold.lanes, init, element.read("T", "a[{}]"), "FL_IVDEP" if dear else "FL_COUNTED")}    *acc = total;
}}
{_in_lanes(name, element if short else accumulator, fold.lanes, init, element, plain)}
void FL_NAME({name}_columns)({WALK}) {{
    {wide} *const total = ({wide} *)acc;
    int64_t r = 0;
    (void)shift;
    if (apart != sizeof({storage})) {{
        packed(FL_NAME({name}_columns), sizeof({storage}), sizeof({wide}), x, step, n, apart, count, shift, acc);
        return;
    }}
{shifted}{_short_columns(name, element) if short else ""}{_columns(name, element, dear).replace("SHIFT", shift)}}}
{_rows(name, element, wide, narrow if short else wide, least, f"n <= {MOST_SHORT}" if short else f"n * sizeof({storage}) < {LONG}")}"""


def _widened(name: str, single: str, wide: str) -> str:
    """Rows and columns of float16 are widened and folded as float32."""
    return "".join(
        f"""void FL_NAME({single}_{walk})({WALK});
void FL_NAME({name}_{walk})({WALK}) {{ widened_{walk}(FL_NAME({single}_{walk}), sizeof({wide}), x, step, n, apart, count, shift, acc); }}
"""
        for walk in ("rows", "columns")
    )


def _accumulator(fold: Fold, dtype: str) -> str:
    if fold.exact:
        return "float32" if dtype in ("float16", "bfloat16") else dtype
    return "float64" if dtype in FLOATS else "int64"


def _merge(name: str, wide: str) -> str:
    """How accumulators are merged, which is the same for all dtypes that have them."""
    return f"""void FL_NAME({name}_merge)(void *acc, const void *more, int64_t n) {{
    FL_IVDEP for (int64_t i = 0; i < n; i++) (({wide} *)acc)[i] = {name}_combine((({wide} *)acc)[i], ((const {wide} *)more)[i]);
}}"""


def _columns(name: str, element: LoopPrinter, dear: bool) -> str:
    """The loops over the columns of rows, four rows at a time: four streams from memory, and the accumulators read and written once. Where
    to compute what is added takes much longer than that, one row at a time.
    """
    text = ""
    for rows in (1,) if dear else (4, 1):
        value = "total[c]"
        for k in range(rows):
            value = f"{name}_combine({value}, {name}_map({element.read('T', f'a{k}[c]')}, SHIFT))"
        starts = "".join(
            f"        const {element.storage} *const a{k} = (const {element.storage} *)(x + {k} * step);\n" for k in range(rows)
        )
        text += f"""    for (; r + {rows} <= n; r += {rows}, x += {rows} * step) {{
{starts}        FL_IVDEP for (int64_t c = 0; c < count; c++) total[c] = {value};
    }}
"""
    return text


AHEAD = """        for (const char *ahead = (const char *)(a + from) + 4096; ahead < (const char *)(a + end) + 4096; ahead += 64)
            __builtin_prefetch(ahead);
"""


VECTORS = {"float": "int32_t", "double": "int64_t", "int32_t": "int32_t", "int64_t": "int64_t"}
_FRESH = "static const {bits} fresh_{t}[32] = {{" + "0, " * 16 + "-1, " * 16 + "}}; /* from [n] on: the last n of sixteen are set */\n"
# Note [float16 in blocks] in print_c.py: a block is widened, as many rows as fit or a part of one, or some of eight rows, and folded as float32.
WIDENED = """static FL_ONCE void widened_rows(fold_walk *rows_of_floats, int64_t wide, WALK) {
    uint16_t buffer[1024];
    FL_ALIGNED float w[1024];
    const int dense = step == sizeof *buffer;
    for (int64_t r = 0, rows = 1; r < count; r += rows, x += rows * apart) {
        const double *const of = shift ? shift + r : NULL;
        const int64_t together = n * count < 1024 ? count : n < 512 ? 1024 / (n + 1) : 1;
        rows = count - r < together ? count - r : together;
        for (int64_t i = 0, m; i < n; i += m) {
            m = n - i < 1024 ? n - i : 1024;
            const int at_once = dense && apart == n * (int64_t)sizeof *buffer;
            for (int64_t k = 0; k < (at_once ? 1 : rows); k++) {
                const char *const from = x + k * apart + i * step;
                if (!dense) FL_NAME(fl_copy)(sizeof *buffer, (char *)buffer, sizeof *buffer, from, step, m);
                FL_NAME(fl_widen)(w + k * m, dense ? (const uint16_t *)from : buffer, at_once ? rows * m : m);
            }
            rows_of_floats((const char *)w, sizeof *w, m, m * (int64_t)sizeof *w, rows, of, (char *)acc + r * wide);
        }
    }
}
static FL_ONCE void widened_columns(fold_walk *columns_of_floats, int64_t wide, WALK) {
    FL_ALIGNED float w[8][FL_BLOCK];
    if (apart != sizeof(uint16_t)) { /* columns some distance apart, side by side */
        uint16_t buffer[8][FL_BLOCK];
        for (int64_t c = 0, m; c < count; c += m, x += m * apart) {
            m = count - c < FL_BLOCK ? count - c : FL_BLOCK;
            for (int64_t r = 0, some; r < n; r += some) {
                some = n - r < 8 ? n - r : 8;
                for (int64_t k = 0; k < some; k++) FL_NAME(fl_copy)(sizeof **buffer, (char *)buffer[k], sizeof **buffer, x + (r + k) * step, apart, m);
                for (int64_t k = 0; k < some; k++) FL_NAME(fl_widen)(w[k], buffer[k], m);
                columns_of_floats((const char *)w, sizeof w[0], some, sizeof **w, m, shift ? shift + c : NULL, (char *)acc + c * wide);
            }
        }
        return;
    }
    for (int64_t r = 0, some; r < n; r += some, x += some * step) {
        some = n - r < 8 ? n - r : 8;
        for (int64_t c = 0, m; c < count; c += m) {
            m = count - c < FL_BLOCK ? count - c : FL_BLOCK;
            for (int64_t k = 0; k < some; k++) FL_NAME(fl_widen)(w[k], (const uint16_t *)(x + k * step) + c, m);
            columns_of_floats((const char *)w, sizeof w[0], some, sizeof **w, m, shift ? shift + c : NULL, (char *)acc + c * wide);
        }
    }
}
""".replace("WALK", WALK)

HEAD = (
    """#define FL_EITHER(vector, bits, mask, a, b) ((vector)(((bits)(a) & (mask)) | ((bits)(b) & ~(mask))))
#define SIMD _Pragma("omp simd")
/* gcc does not know that to put vectors together from single elements takes longer. */
static inline int64_t one_by_one(int64_t i) { __asm__("" : "+r"(i)); return i; }
#define PACK(T) for (int64_t i = 0; i < width; i++) ((T *)to)[one_by_one(i)] = *(const T *)(from + i * apart)
typedef void fold_walk(WALK);
/* Columns some distance apart, or the elements of short rows, brought side by side. */
static void packed(fold_walk *columns, int64_t size, int64_t wide, WALK) {
    FL_ALIGNED char buffer[32768];
    for (int64_t c = 0, width; c < count; c += width, x += width * apart) {
        width = count - c < 256 ? count - c : 256;
        const int64_t line = width * size, most = (int64_t)sizeof buffer / line / 8 * 8;
        for (int64_t done = 0, rows; done < n; done += rows) {
            rows = n - done < most ? n - done : most;
            for (int64_t r = 0; r < rows; r++) {
                char *const to = buffer + r * line;
                const char *const from = x + (done + r) * step;
                if (size == 4) PACK(uint32_t);
                else if (size == 8) PACK(uint64_t);
                else if (size == 2) PACK(uint16_t);
                else PACK(uint8_t);
            }
            columns(buffer, line, rows, size, width, shift ? shift + c : NULL, (char *)acc + c * wide);
        }
    }
}
/* Columns of a fold that takes a number for each, and is given none: zeros. */
static FL_ONCE void unshifted(fold_walk *columns, int64_t wide, WALK) {
    static const double zeros[FL_BLOCK];
    for (int64_t c = 0, m; c < count; c += m) {
        m = count - c < FL_BLOCK ? count - c : FL_BLOCK;
        columns(x + c * apart, step, n, apart, m, zeros, (char *)acc + c * wide);
    }
    (void)shift;
}
""".replace("WALK", WALK)
    + CONVERT
    + WIDENED
    + "".join(_FRESH.format(t=t, bits=bits) for t, bits in VECTORS.items())
)


def _in_lanes(name: str, lane: LoopPrinter, operator: str, init: str, element: LoopPrinter, plain: bool) -> str:
    """A function for a row of sixteen elements or more in as many lanes, and these as four; and one for shorter rows, if it has their vectors."""
    t, few = lane.compute, ""
    if plain and {t, element.storage} <= set(VECTORS):
        few = _four(name, t, operator, init, element)
        if t == element.storage and operator == "+":
            return _SIXTEEN_ADDED.replace("NAME", name).replace("REAL", t) + few
    sign = ">" if operator == "max" else "<"
    both = f"lane[k] {operator} v"
    if operator in ("max", "min"):
        both = f"(v {sign} lane[k]) | (v != v) ? v : lane[k]" if lane.is_float else f"{name}_combine(lane[k], v)"
    value = f"{name}_map({element.read('T', 'a[{}]')}, s)"
    last = f"k < seen ? {init} : w" if operator in "+*" else "w"
    return f"""static inline void {name}_sixteen(const {element.storage} *a, int64_t n, {element.compute} s, {t} *to) {{
    FL_ALIGNED {t} lane[16];
    const {t} start = {init} + ({t})fl_zero(); /* a copy of the first elements gcc would make in pieces, and wait for them to come together */
    for (int k = 0; k < 16; k++) lane[k] = start;
    int64_t from = 0;
    for (; n - from >= 16; from += 16) {{
        SIMD for (int k = 0; k < 16; k++) {{ const {t} v = {value.format("from + k")}; lane[k] = {both}; }}
    }}
    if (from < n) {{ /* the last ones, less those that have been counted, if that matters */
        const int seen = (int)(from + 16 - n);
        (void)seen;
        SIMD for (int k = 0; k < 16; k++) {{ const {t} w = {value.format("n - 16 + k")}, v = {last}; lane[k] = {both}; }}
    }}
    SIMD for (int k = 0; k < 8; k++) {{ const {t} v = lane[k + 8]; lane[k] = {both}; }}
    SIMD for (int k = 0; k < 4; k++) {{ const {t} v = lane[k + 4]; to[k] = {both}; }}
}}
{few}"""


# The same where elements are only added up, in the CPU's vectors.
_SIXTEEN_ADDED = """static inline void NAME_sixteen(const REAL *a, int64_t n, REAL s, REAL *to) {
    enum { PARTS = 16 * sizeof(REAL) / FL_VECTOR };
    own_REAL lane[PARTS];
    (void)s;
    for (int k = 0; k < PARTS; k++) lane[k] = ((const own_REAL *)a)[k];
    int64_t from = 16;
    for (; n - from >= 16; from += 16) for (int k = 0; k < PARTS; k++) lane[k] += ((const own_REAL *)(a + from))[k];
    if (from < n) {
        const own_bits_REAL *const fresh = (const own_bits_REAL *)(fresh_REAL + (n - from));
        for (int k = 0; k < PARTS; k++) lane[k] += (own_REAL)((own_bits_REAL)((const own_REAL *)(a + n - 16))[k] & fresh[k]);
    }
    const four_REAL *const x = (const four_REAL *)lane;
    *(four_REAL *)to = (x[0] + x[1]) + (x[2] + x[3]);
}
"""


def _four(name: str, t: str, operator: str, init: str, element: LoopPrinter) -> str:
    """The function for a row of four elements or more, in one vector."""
    vector, bits = f"four_{t}", f"four_bits_{t}"
    value = f"__builtin_convertvector(*(const four_{element.storage} *)({{}}), {vector})"
    both, last = f"lane = lane {operator} v;", f"v = FL_EITHER({vector}, {bits}, fresh, v, none);"
    if operator in ("max", "min"):
        both = f"lane = FL_EITHER({vector}, {bits}, ({bits})(v {'>' if operator == 'max' else '<'} lane) | ({bits})(v != v), v, lane);"
        last = "(void)fresh, (void)none;"
    return f"""static inline void {name}_four(const {element.storage} *a, int64_t n, {element.compute} s, {t} *to) {{
    {vector} lane = {value.format("a")}, v;
    int64_t from = 4;
    (void)s;
    for (; n - from >= 4; from += 4) {{ v = {value.format("a + from")}; {both} }}
    if (from < n) {{
        const {vector} none = {{{", ".join([init] * 4)}}};
        const {bits} fresh = *(const {bits} *)(fresh_{t} + 12 + (n - from));
        v = {value.format("a + n - 4")};
        {last}
        {both}
    }}
    *({vector} *)to = lane;
}}
"""


def _rows(name: str, element: LoopPrinter, wide: str, lane: str, least: int, is_short: str) -> str:
    """The function for rows: short ones many at a time, so that the last lanes of all are combined together."""
    storage, narrow = element.storage, element.compute
    each = f"            for (int64_t k = 0; k < some; k++, x += apart) {name}_sixteen((const {storage} *)x, n, shift ? ({narrow})shift[r + k] : 0, few[k]);"
    tiny = ""
    if least < 16:
        for n in (2, 3):
            value = "total[r]"
            for k in range(n):
                value = f"{name}_combine({value}, a[{n} * r + {k}])"
            tiny += f"""    if (n == {n} && step == sizeof({storage}) && apart == {n} * sizeof({storage})) {{
        const {storage} *const a = (const {storage} *)x;
        FL_IVDEP for (int64_t r = 0; r < count; r++) total[r] = {value};
        return;
    }}
"""
        each = f"            if (n < 16) {each.replace('sixteen', 'four').strip()}\n            else {each.strip()}"
    last = f"{name}_combine({name}_combine(few[k][0], few[k][2]), {name}_combine(few[k][1], few[k][3]))"
    return f"""void FL_NAME({name}_rows)({WALK}) {{
    {wide} *const total = ({wide} *)acc;
{tiny}    if (count > 1 && (n < {least} || (n < 48 && step != sizeof({storage})))) {{
        packed(FL_NAME({name}_columns), sizeof({storage}), sizeof({wide}), x, step, n, apart, count, shift, acc);
        return;
    }}
    if (step != sizeof({storage})) {{ /* block by block through a buffer */
        {storage} buffer[FL_BLOCK];
        for (int64_t r = 0; r < count; r++)
            for (int64_t i = 0, m; i < n; i += m) {{
                m = n - i < FL_BLOCK ? n - i : FL_BLOCK;
                FL_NAME(fl_copy)(sizeof *buffer, (char *)buffer, sizeof *buffer, x + r * apart + i * step, step, m);
                {name}_row(buffer, m, shift ? ({narrow})shift[r] : 0, total + r);
            }}
        return;
    }}
    if (n >= {least} && {is_short}) {{
        FL_ALIGNED {lane} few[64][4];
        for (int64_t r = 0, some; r < count; r += some) {{
            some = count - r < 64 ? count - r : 64;
{each}
            FL_IVDEP for (int64_t k = 0; k < some; k++) total[r + k] = {name}_combine(total[r + k], {last});
        }}
        return;
    }}
    for (int64_t r = 0; r < count; r++, x += apart) {name}_row((const {storage} *)x, n, shift ? ({narrow})shift[r] : 0, total + r);
}}"""


def _short_lanes(name: str, element: LoopPrinter, plain: bool) -> str:
    """The greater part of a row, 64 lanes wide: sixteen elements of a lane are added as float32, then four lanes, then doubles.

    Where float32 is only added up (`plain`), lanes are carried in the CPU's vectors."""
    if plain and element.storage == "float":
        lanes, ready = "own_float lane[4 * PARTS_float]", "((const float *)lane)[k]"
        first = "for (int k = 0; k < 4 * PARTS_float; k++) lane[k] = ((const own_float *)(a + from))[k];"
        more = "for (int k = 0; k < 4 * PARTS_float; k++) lane[k] += ((const own_float *)(a + i))[k];"
        last = f"""FL_ALIGNED float v[64];
                SIMD for (int k = 0; k < 64; k++) {{ const float w = a[end - 64 + k]; v[k] = k < seen ? 0 : w; }}
                {more.replace("(a + i)", "v")}"""
        four = "for (int k = 0, p = PARTS_float; k < p; k++) lane[k] = (lane[k] + lane[k + p]) + (lane[k + 2 * p] + lane[k + 3 * p]);"
    else:
        lanes, ready = "FL_ALIGNED float lane[64]", "(lane[k] + lane[k + 16]) + (lane[k + 32] + lane[k + 48])"
        first = f"FL_COUNTED for (int k = 0; k < 64; k++) lane[k] = {name}_map({element.read('T', 'a[from + k]')}, s);"
        more = f"FL_COUNTED for (int k = 0; k < 64; k++) lane[k] += {name}_map({element.read('T', 'a[i + k]')}, s);"
        last = f"SIMD for (int k = 0; k < 64; k++) {{ const float v = {name}_map({element.read('T', 'a[end - 64 + k]')}, s); lane[k] += k < seen ? 0 : v; }}"
        four = ""
    return f"""    if (n > {MOST_SHORT}) {{ /* fewer are not worth so many lanes */
        FL_ALIGNED double part[16] = {{0}};
        for (int64_t i, end; from < n; from = end) {{
            end = n - from < 1088 ? n : from + 1024;
            {lanes};
            {first}
    {AHEAD}            for (i = from + 64; i + 64 <= end; i += 64) {{
                {more}
            }}
            if (i < end) {{ /* the last 64, less those that have been counted */
                const int seen = (int)(i + 64 - end);
                {last}
            }}
            {four}
            FL_COUNTED for (int k = 0; k < 16; k++) part[k] += {ready};
        }}
{"".join(f"        for (int k = 0; k < {w}; k++) part[k] += part[k + {w}];{chr(10)}" for w in (8, 4, 2))}        total += part[0] + part[1];
    }}
"""


def _short_columns(name: str, element: LoopPrinter) -> str:
    """Eight rows at a time, added as float32 in pairs, pairs of pairs and so on."""
    terms = [f"{name}_map({element.read('T', f'((const {element.storage} *)(x + {k} * step))[c]')}, 0)" for k in range(8)]
    while len(terms) > 1:
        terms = [f"({a} + {b})" for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return f"""    for (; r + 8 <= n; r += 8, x += 8 * step)
        FL_IVDEP for (int64_t c = 0; c < count; c++) total[c] += {terms[0]};
"""


def _lanes(name: str, accumulator: LoopPrinter, operator: str, init: str, read: str, each: str) -> str:
    """The loop along a contiguous row, asking for the memory a page ahead, where the CPU's own prefetching stops.

    A long row goes to so many lanes that none waits for the one before, the rest to those of a vector, combined in any order. Comparing these
    loses a NaN, which `bad` keeps.
    """
    wide = accumulator.compute
    keeps = accumulator.is_float and operator in ("max", "min")
    lanes = min(64, 256 // SIZES[wide])
    sign = ">" if operator == "max" else "<"
    combined = f"v {sign} total ? v : total" if keeps else f"{name}_combine(total, v)"
    in_lanes = f"(v {sign} lane[k]) | (v != v) ? v : lane[k]" if keeps else f"{name}_combine(lane[k], v)"
    clauses = f"reduction({'fl_' * keeps}{operator}:total)" + " reduction(|:bad)" * keeps
    halves = [2**i for i in reversed(range(lanes.bit_length() - 1))]
    together = "\n        ".join(
        f"for (int k = 0; k < {w}; k++) {{ const {wide} v = lane[k + {w}]; lane[k] = {in_lanes}; }}" for w in halves
    )
    bad = "bad |= v != v;" if keeps else ""
    return f"""    {"int bad = total != total;" if keeps else ""}
    if ((n - from) * (int64_t)sizeof *a >= {LONG}) {{
        FL_ALIGNED {wide} lane[{lanes}];
        const {wide} start = {init} + ({wide})fl_zero();
        for (int k = 0; k < {lanes}; k++) lane[k] = start;
        for (int64_t end; n - from >= {lanes}; from = end) {{
            end = n - from < 1024 ? n - (n - from) % {lanes} : from + 1024;
    {AHEAD}            for (int64_t i = from; i < end; i += {lanes}) {{
                {each} for (int k = 0; k < {lanes}; k++) {{ const {wide} v = {name}_map({read.format("i + k")}, s); lane[k] = {in_lanes}; }}
            }}
        }}
        {together}
        const {wide} v = lane[0];
        {bad}
        total = {combined};
    }}
    if (from < n) {{
        _Pragma("omp simd {clauses}")
        for (int64_t i = from; i < n; i++) {{
            const {wide} v = {name}_map({read.format("i")}, s);
            {bad}
            total = {combined};
        }}
    }}
    {"total = bad ? NAN : total;" if keeps else ""}
"""


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the table)."""
    texts = [*print_lanes.texts(), *(print_lanes.vectors(t, t) for t in ("int32_t", "int64_t")), HEAD]
    declarations, rows = [], []
    for fold, dtype in [(f, d) for f in FOLDS for d in f.dtypes]:
        texts.append(print_fold(fold, dtype))
        names = {part: f"FL_NAME({home(fold, dtype)}_{part})" for part in PARTS}
        names["merge"] = f"FL_NAME({home(fold, _accumulator(fold, dtype))}_merge)"
        names["store"] = f"FL_NAME({fold_name(fold.name, dtype)}_store)"
        declarations.append("".join(f"void {name}({PARTS[part]});\n" for part, name in names.items()))
        out = dtype if fold.out == "T" else fold.out
        rows.append(f'{{"{fold.name}", {ENUM[dtype]}, {ENUM[out]}, {", ".join(names.values())}}}')
    return texts, declarations, rows


# The functions of a fold, in the order of fl_fold in loops.h, and what they take.
PARTS = {
    "init": "void *, int64_t",
    "merge": "void *, const void *, int64_t",
    "rows": WALK,
    "columns": WALK,
    "store": "const void *, int64_t, double, const double *, char *",
}
