"""Folds: the reductions that are compiled, each declared by four formulas.

    init      what nothing folds to
    map       what one element contributes (x; shift is a number per result, such as the mean)
    combine   how two contributions become one
    finish    the result from the accumulated value (count is a number per call)

Along a contiguous row the compiler may add the lanes of its vectors in any order (`omp simd`), which depends on the CPU variant but never
on the number of threads. Accumulators are double for floating dtypes and int64 for the others, whatever the dtype of the elements, so a float32 sum keeps its
digits along any axis; a maximum, which is one of the elements, is `exact` in theirs. Plain sums (`short`) first add a few elements, at most sixteen, in float32: to widen every one of them would halve the
speed of sums that fit the cache. `print_fold` turns a declaration into C; csrc/fold.c drives it over blocks fixed by the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flambeau.kernels import expr as e
from flambeau.kernels.print_c import CONVERT, ENUM, FLOATS, TYPES, CPrinter, LoopPrinter

INF = float("inf")
ALL = ("float32", "float64", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


@dataclass(frozen=True)
class Fold:
    """One reduction. `out` is "T" or the dtype of the result; `out_of` overrides it by dtype."""

    name: str
    init: float | Callable
    combine: Callable
    map: Callable = lambda x, shift: x
    finish: Callable = lambda acc, count, shift: acc
    out: str = "T"
    dtypes: tuple[str, ...] = ALL
    lanes: str = "+"  # the operator by which the lanes of a vector are combined
    short: bool = False  # whether some contributions may be added as float32 before they meet the accumulator
    exact: bool = False  # whether accumulators are of the dtype the elements are computed in
    find: bool = False  # whether a GPU can be asked for the position of the result (on the CPU: scan_loops.py)


SIZES = {"double": 8, "float": 4, "int64_t": 8, "int32_t": 4, "int16_t": 2, "int8_t": 1, "uint8_t": 1}
LONG = 4096  # bytes of a row that are worth more lanes than those of a vector
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")
LOWEST = {"int64": -(2**63), "int32": -(2**31), "int16": -(2**15), "int8": -128, "uint8": 0, "bool": 0}
HIGHEST = {"int64": 2**63 - 1, "int32": 2**31 - 1, "int16": 2**15 - 1, "int8": 127, "uint8": 255, "bool": 1}


def _sum(a, b):
    return a + b


def _mean(acc, count, shift):
    return acc / count


def _squared(x, shift):
    return (x - shift) * (x - shift)


FOLDS = [
    Fold("sum", 0, _sum, dtypes=FLOATS, short=True),
    Fold("isum", 0, _sum, out="int64", dtypes=INTEGERS),
    Fold("nansum", 0, _sum, map=lambda x, shift: e.where(e.isnan(x), e.const(0), x), dtypes=FLOATS, short=True),
    Fold("mean", 0, _sum, finish=_mean, dtypes=FLOATS, short=True),
    Fold("prod", 1, lambda a, b: a * b, dtypes=FLOATS, lanes="*"),
    Fold("iprod", 1, lambda a, b: a * b, out="int64", dtypes=INTEGERS, lanes="*"),
    Fold("max", lambda d: LOWEST.get(d, -INF), e.maximum, lanes="max", exact=True, find=True),
    Fold("min", lambda d: HIGHEST.get(d, INF), e.minimum, lanes="min", exact=True, find=True),
    Fold("any", 0, e.maximum, map=lambda x, shift: e.as_T(e.as_bool(x)), out="bool", lanes="max", exact=True),
    Fold("all", 1, e.minimum, map=lambda x, shift: e.as_T(e.as_bool(x)), out="bool", lanes="min", exact=True),
    Fold("count_nonzero", 0, _sum, map=lambda x, shift: e.as_T(e.as_bool(x)), out="int64"),
    Fold(
        "outside",
        0,
        e.maximum,
        map=lambda x, size: e.as_T((x < 0) | (x >= size)),
        out="bool",
        dtypes=("int64", "int32"),
        lanes="max",
        exact=True,
    ),
    Fold("norm1", 0, _sum, map=lambda x, shift: abs(x), dtypes=FLOATS),
    Fold("norm2", 0, _sum, map=lambda x, shift: x * x, finish=lambda acc, count, shift: e.sqrt(acc), dtypes=FLOATS),
    Fold("off", 0, _sum, map=lambda x, shift: x - shift, finish=_mean, dtypes=("float64",)),
    Fold("var", 0, _sum, map=_squared, finish=_mean, dtypes=FLOATS),
    Fold("std", 0, _sum, map=_squared, finish=lambda acc, count, shift: e.sqrt(acc / count), dtypes=FLOATS),
    Fold("logsumexp", 0, _sum, map=lambda x, shift: e.exp(x - shift), finish=lambda acc, count, shift: e.log(acc) + shift, dtypes=FLOATS),
]


def print_fold(fold: Fold, dtype: str) -> str:
    """The C of one fold for one dtype: small functions, see fl_fold in loops.h."""
    element, accumulator = LoopPrinter(dtype), LoopPrinter(_accumulator(fold, dtype))
    wide, narrow, storage = accumulator.compute, element.compute, element.storage
    name = f"fold_{fold.name}_{element.suffix}"
    out = dtype if fold.out == "T" else fold.out
    init = fold.init(dtype) if callable(fold.init) else fold.init
    short = fold.short and narrow == "float"
    x, y, z = e.load(0), e.load(1), e.load(2)
    more = "0, 0" if fold.exact else f"({wide})count, shift ? ({wide})shift[i] : 0"
    finished = f"{name}_finish(((const {wide} *)acc)[i], {more})"
    finished = f"(float){finished}" if out in ("float16", "bfloat16") else finished
    if dtype == "float16":
        walks = _widened(fold.name, wide, storage)
    else:
        walks = f"""
{inline(f"{name}_map", narrow if short else wide, [f"{narrow} x0", f"{narrow} x1"], element, fold.map(x, y))}
{inline(f"{name}_combine", wide, [f"{wide} x0", f"{wide} x1"], accumulator, fold.combine(x, y))}
{_merge(name, wide) if dtype == _accumulator(fold, dtype) else ""}
void FL_NAME({name}_row)(const char *x, int64_t step, int64_t n, double shift, void *acc) {{
    if (step != sizeof({storage})) {{ /* block by block through a buffer */
        {storage} buffer[FL_BLOCK];
        for (int64_t done = 0; done < n; done += FL_BLOCK) {{
            const int64_t m = n - done < FL_BLOCK ? n - done : FL_BLOCK;
            FL_NAME(fl_copy)(sizeof *buffer, (char *)buffer, sizeof *buffer, x + done * step, step, m);
            FL_NAME({name}_row)((const char *)buffer, sizeof *buffer, m, shift, acc);
        }}
        return;
    }}
    const {storage} *const a = (const {storage} *)x;
    const {narrow} s = ({narrow})shift;
    {wide} total = *({wide} *)acc;
    int64_t from = 0;
{_short_lanes(name, element, fold.map(x, y) is x) if short else ""}{_lanes(name, accumulator, fold.lanes, accumulator.literal(init), element.read("T", "a[{}]"))}    *({wide} *)acc = total;
}}
void FL_NAME({name}_columns)(const char *x, int64_t step, int64_t rows, int64_t columns, const double *shift, void *acc) {{
    {wide} *const total = ({wide} *)acc;
    int64_t r = 0;
    (void)shift;
{_short_columns(name, element) if short else ""}{_columns(name, element, shifted=1 in e.loads(e.lift(fold.map(x, y))))}}}"""
    return f"""{walks}
{inline(f"{name}_finish", wide, [f"{wide} x0", f"{wide} x1", f"{wide} x2"], accumulator, fold.finish(x, y, z))}
void FL_NAME({name}_init)(void *acc, int64_t n) {{
    FL_IVDEP for (int64_t i = 0; i < n; i++) (({wide} *)acc)[i] = {accumulator.literal(init)};
}}
void FL_NAME({name}_store)(const void *acc, int64_t n, double count, const double *shift, char *out) {{
    FL_IVDEP for (int64_t i = 0; i < n; i++)
        (({TYPES[out][1]} *)out)[i] = {CPrinter(out).write(out, finished)};
}}"""


def _widened(name: str, wide: str, storage: str) -> str:
    """Rows and columns of float16 are widened, a block at a time, and folded as float32, see Note [float16 in blocks] in print_c.py."""
    return f"""{CONVERT}
void FL_NAME(fold_{name}_f32_row)({PARTS["row"]});
void FL_NAME(fold_{name}_f32_columns)({PARTS["columns"]});
void FL_NAME(fold_{name}_f16_row)(const char *x, int64_t step, int64_t n, double shift, void *acc) {{
    {storage} buffer[1024];
    FL_ALIGNED float w[1024];
    for (int64_t m; n > 0; n -= m, x += m * step) {{
        m = n < 1024 ? n : 1024;
        if (step != sizeof *buffer) FL_NAME(fl_copy)(sizeof *buffer, (char *)buffer, sizeof *buffer, x, step, m);
        FL_NAME(fl_widen)(w, step == sizeof *buffer ? (const {storage} *)x : buffer, m);
        FL_NAME(fold_{name}_f32_row)((const char *)w, sizeof *w, m, shift, acc);
    }}
}}
void FL_NAME(fold_{name}_f16_columns)(const char *x, int64_t step, int64_t rows, int64_t columns, const double *shift, void *acc) {{
    FL_ALIGNED float w[8][FL_BLOCK];
    for (int64_t r = 0, some; r < rows; r += some, x += some * step) {{
        some = rows - r < 8 ? rows - r : 8;
        for (int64_t c = 0, m; c < columns; c += m) {{
            m = columns - c < FL_BLOCK ? columns - c : FL_BLOCK;
            for (int64_t k = 0; k < some; k++) FL_NAME(fl_widen)(w[k], (const {storage} *)(x + k * step) + c, m);
            FL_NAME(fold_{name}_f32_columns)((const char *)w, sizeof w[0], some, m, shift ? shift + c : NULL, ({wide} *)acc + c);
        }}
    }}
}}"""


def _accumulator(fold: Fold, dtype: str) -> str:
    if fold.exact:
        return "float32" if dtype in ("float16", "bfloat16") else dtype
    return "float64" if dtype in FLOATS else "int64"


def _merge(name: str, wide: str) -> str:
    """How accumulators are merged, which is the same for all dtypes that have them."""
    return f"""void FL_NAME({name}_merge)(void *acc, const void *more, int64_t n) {{
    FL_IVDEP for (int64_t i = 0; i < n; i++) (({wide} *)acc)[i] = {name}_combine((({wide} *)acc)[i], ((const {wide} *)more)[i]);
}}"""


def _columns(name: str, element: LoopPrinter, shifted: bool) -> str:
    """The loops over the columns of rows, four rows at a time: four streams from memory, and the accumulators read and written once.

    A fold that takes a number for each column has another loop for that.
    """
    text = ""
    for rows in (4, 1):
        loops = []
        for shift in (f"({element.compute})shift[c]", "0") if shifted else ("0",):
            value = "total[c]"
            for k in range(rows):
                value = f"{name}_combine({value}, {name}_map({element.read('T', f'a{k}[c]')}, {shift}))"
            loops.append(f"{{ FL_IVDEP for (int64_t c = 0; c < columns; c++) total[c] = {value}; }}\n")
        starts = "".join(
            f"        const {element.storage} *const a{k} = (const {element.storage} *)(x + {k} * step);\n" for k in range(rows)
        )
        choice = f"        if (shift) {loops[0]}        else {loops[1]}" if shifted else f"        {loops[0]}"
        text += f"    for (; r + {rows} <= rows; r += {rows}, x += {rows} * step) {{\n{starts}{choice}    }}\n"
    return text


AHEAD = """        for (const char *ahead = (const char *)(a + from) + 4096; ahead < (const char *)(a + end) + 4096; ahead += 64)
            __builtin_prefetch(ahead);
"""


_SIXTEEN = """    if (n >= 16 && n < 256) {
        own_float lanes[PARTS_float];
        for (int k = 0; k < PARTS_float; k++) lanes[k] = ((const own_float *)a)[k];
        for (from = 16; n - from >= 16; from += 16) for (int k = 0; k < PARTS_float; k++) lanes[k] += ((const own_float *)(a + from))[k];
        const float *const lane = (const float *)lanes;
        double part[8];
        for (int k = 0; k < 8; k++) part[k] = (double)lane[k] + lane[k + 8];
        total += ((part[0] + part[4]) + (part[2] + part[6])) + ((part[1] + part[5]) + (part[3] + part[7]));
        for (; from < n; from++) total += a[from];
    }
"""


def _short_lanes(name: str, element: LoopPrinter, plain: bool) -> str:
    """The greater part of a row, 64 lanes wide: sixteen elements of a lane are added as float32, then four lanes, then doubles.

    A short row of float32 that is only added up (`plain`) has sixteen lanes, which stay in registers.
    """
    return f"""{_SIXTEEN if element.storage == "float" and plain else ""}    if (n >= 256) {{ /* fewer are not worth so many lanes */
        FL_ALIGNED double part[16] = {{0}};
        const float zero = (float)fl_zero();
        for (int64_t end; n - from >= 64; from = end) {{
            end = n - from < 1024 ? n - (n - from) % 64 : from + 1024;
            FL_ALIGNED float lane[64];
            for (int k = 0; k < 64; k++) lane[k] = zero;
    {AHEAD}            for (int64_t i = from; i < end; i += 64) {{
                FL_IVDEP for (int k = 0; k < 64; k++) lane[k] += {name}_map({element.read("T", "a[i + k]")}, s);
            }}
            FL_IVDEP for (int k = 0; k < 16; k++) part[k] += (lane[k] + lane[k + 16]) + (lane[k + 32] + lane[k + 48]);
        }}
{"".join(f"        for (int k = 0; k < {w}; k++) part[k] += part[k + {w}];{chr(10)}" for w in (8, 4, 2))}        total += part[0] + part[1];
    }}
"""


def _short_columns(name: str, element: LoopPrinter) -> str:
    """Eight rows at a time, added as float32 in pairs, pairs of pairs and so on."""
    terms = [f"{name}_map({element.read('T', f'((const {element.storage} *)(x + {k} * step))[c]')}, 0)" for k in range(8)]
    while len(terms) > 1:
        terms = [f"({a} + {b})" for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return f"""    for (; r + 8 <= rows; r += 8, x += 8 * step)
        FL_IVDEP for (int64_t c = 0; c < columns; c++) total[c] += {terms[0]};
"""


def _lanes(name: str, accumulator: LoopPrinter, operator: str, init: str, read: str) -> str:
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
                FL_IVDEP for (int k = 0; k < {lanes}; k++) {{ const {wide} v = {name}_map({read.format("i + k")}, s); lane[k] = {in_lanes}; }}
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


def inline(name: str, result: str, parameters: list[str], printer: CPrinter, formula: e.Expr) -> str:
    """A C function of the formula."""
    lines, value = printer.body(formula)
    body = "".join(f"    {line}\n" for line in lines)
    used = "".join(f"    (void){p.split()[-1]};\n" for p in parameters)
    return f"static inline {result} {name}({', '.join(parameters)}) {{\n{used}{body}    return {value};\n}}"


def table() -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """(declarations, rows of the table, [(fold, dtype)])."""
    declarations, rows, instances = [], [], []
    for fold in FOLDS:
        for dtype in fold.dtypes:
            names = {part: f"FL_NAME(fold_{fold.name}_{TYPES[dtype][0]}_{part})" for part in PARTS}
            names["merge"] = f"FL_NAME(fold_{fold.name}_{TYPES[_accumulator(fold, dtype)][0]}_merge)"
            declarations.append("".join(f"void {name}({PARTS[part]});\n" for part, name in names.items()))
            out = dtype if fold.out == "T" else fold.out
            rows.append(f'{{"{fold.name}", {ENUM[dtype]}, {ENUM[out]}, {", ".join(names.values())}}}')
            instances.append((fold.name, dtype))
    return declarations, rows, instances


# The functions of a fold, in the order of fl_fold in loops.h, and what they take.
PARTS = {
    "init": "void *, int64_t",
    "merge": "void *, const void *, int64_t",
    "row": "const char *, int64_t, int64_t, double, void *",
    "columns": "const char *, int64_t, int64_t, int64_t, const double *, void *",
    "store": "const void *, int64_t, double, const double *, char *",
}
