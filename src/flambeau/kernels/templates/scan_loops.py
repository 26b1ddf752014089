"""Scans in C: loops from one element of a line to the next, each declared by a formula.

    cumsum, cumprod, logcumsumexp     the accumulated value from itself and the next element, in double (integers: in int64)
    cummax, cummin, max, min          whether the next element takes the place of the best so far: values and indices at once

Lines that lie side by side are walked together, row by row, so that the compiler makes SIMD code across them.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.print_c import FLOATS, TYPES, LoopPrinter, inline
from flambeau.kernels.language.print_table import ROWS, Table, of
from flambeau.kernels.reductions.along_dim import COLUMNS
from flambeau.kernels.reductions.fold import ALL

# What every loop begins with: the line's length, the distance of its elements, how many results it has, and how many lines there are.
GEOMETRY = """    const int64_t n = (int64_t)param[0], inner = (int64_t)param[1], k = (int64_t)param[2], width = total / n;
    (void)step, (void)k, (void)width;
"""


def _log_add(a, b):
    """log(exp(a) + exp(b)), shifted by the larger, unless both are the same infinity."""
    low, high = e.minimum(a, b), e.maximum(a, b)
    return e.where(e.eq(low, high) & e.isinf(low), high, e.log1p(e.exp(low - high)) + high)


SCANS: dict[str, tuple[float, Callable]] = {
    "cumsum": (0, lambda a, x: a + x),
    "cumprod": (1, lambda a, x: a * x),
    "logcumsumexp": (float("-inf"), _log_add),
}
# A running extremum goes on to the latest of equal elements and of NaNs, the extremum of a line stays at the first.
EXTREMA: dict[str, Callable] = {
    "cummax": lambda x, best: (x >= best) | e.isnan(x),
    "cummin": lambda x, best: (x <= best) | e.isnan(x),
    "max": lambda x, best: (x > best) | (e.isnan(x) & ~e.isnan(best)),
    "min": lambda x, best: (x < best) | (e.isnan(x) & ~e.isnan(best)),
}


def table() -> Table:
    loops = Table()
    for name, (init, combine) in SCANS.items():
        for dtype in FLOATS if name == "logcumsumexp" else (*FLOATS, "int64"):
            loops.texts.append(_scan(name, init, combine, dtype))
            loops.add(f"lines.{name}", f"lines_{name}_{TYPES[dtype][0]}", dtype, "T", 3, ROWS)
    for name, takes in EXTREMA.items():
        for dtype in ALL:
            loops.texts.append(_extremum(name, takes, dtype))
            loops.add(f"lines.{name}", f"lines_{name}_{TYPES[dtype][0]}", dtype, "T i64", 3, ROWS)
    return loops


def _scan(name: str, init: float, combine: Callable, dtype: str) -> str:
    p, wide = LoopPrinter(dtype), LoopPrinter("float64" if dtype in FLOATS else "int64")
    function, t = f"lines_{name}_{p.suffix}", wide.compute
    step = f"{function}_step({{}}, {p.read('T', 'x[{}]')})"
    value = p.write(dtype, f"({p.compute}){{}}")
    return f"""
{inline(f"{function}_step", t, [f"{t} x0", f"{t} x1"], wide, combine(e.load(0), e.load(1)))}
void FL_NAME({function}){of("total")} {{
{GEOMETRY}    const {p.storage} *x = (const {p.storage} *)ptr[0];
    {p.storage} *y = ({p.storage} *)ptr[1];
    if (inner == 1) {{
        {t} total = {wide.literal(init)};
        int64_t i = 0;
{_ahead(name, dtype, p.read("T", "x[{}]"), value)}        for (; i < n; i++) total = {step.format("total", "i")}, y[i] = {value.format("total")};
        return;
    }}
    {t} all[{COLUMNS}];
    for (int64_t c = 0; c < width; c++) all[c] = {wide.literal(init)};
    for (int64_t i = 0; i < n; i++, x += inner, y += inner)
        FL_IVDEP for (int64_t c = 0; c < width; c++) all[c] = {step.format("all[c]", "c")}, y[c] = {value.format("all[c]")};
}}
"""


def _ahead(name: str, dtype: str, read: str, write: str) -> str:
    """Loops that take a stretch of a row at a time, so that its elements need not wait for each other."""
    if name == "cumsum" and dtype in FLOATS[:3]:  # sums of four, in any grouping: these cannot overflow a double
        return f"""        for (; i + 4 <= n; i += 4) {{
            const double a = {read.format("i")}, b = a + {read.format("i + 1")}, c = b + {read.format("i + 2")}, d = c + {read.format("i + 3")};
            y[i] = {write.format("(total + a)")}, y[i + 1] = {write.format("(total + b)")};
            y[i + 2] = {write.format("(total + c)")}, y[i + 3] = {write.format("(total + d)")}, total += d;
        }}
"""
    if name != "logcumsumexp":
        return ""
    # Exponentials relative to the stretch's maximum, their running sum, its logarithms: if that sum does not begin at nothing.
    return f"""        double powers[FL_BLOCK];
        for (int m; i < n; i += m) {{
            m = n - i < FL_BLOCK ? (int)(n - i) : FL_BLOCK;
            double high = total, first = {read.format("i")};
            int nan = total != total;
            _Pragma("omp simd reduction(fl_max:high) reduction(|:nan)")
            for (int j = 0; j < m; j++) {{
                const double v = {read.format("i + j")};
                nan |= v != v, high = v > high ? v : high;
            }}
            if (nan || !(fabs(high) < INFINITY) || !((first > total ? first : total) - high > -600)) break;
            FL_IVDEP for (int j = 0; j < m; j++) powers[j] = fl_exp_f64({read.format("i + j")} - high);
            double sum = fl_exp_f64(total - high);
            for (int j = 0; j < m; j++) sum += powers[j], powers[j] = sum;
            FL_IVDEP for (int j = 0; j < m; j++) y[i + j] = {write.format("(fl_log_near_f64(powers[j]) + high)")};
            total = fl_log_near_f64(sum) + high;
        }}
"""


def _extremum(name: str, takes: Callable, dtype: str) -> str:
    p = LoopPrinter(dtype)
    function, running = f"lines_{name}_{p.suffix}", name.startswith("cum")
    read = p.read("T", "x[{}]")
    store = "for (int64_t c = 0; c < width; c++) y[c] = best[c], at[c] = place[c];"
    return f"""
{inline(f"{function}_takes", "int", [f"{p.compute} x0", f"{p.compute} x1"], p, takes(e.load(0), e.load(1)))}
void FL_NAME({function}){of("total")} {{
{GEOMETRY}    const {p.storage} *x = (const {p.storage} *)ptr[0];
    {p.storage} *y = ({p.storage} *)ptr[1];
    int64_t *at = (int64_t *)ptr[2];
{_running_row(function, p) if running else _row(name, p)}
    {p.storage} best[{COLUMNS}];
    int32_t place[{COLUMNS}];
    for (int64_t c = 0; c < width; c++) best[c] = x[c], place[c] = 0;
    for (int64_t i = 0; i < n; i++, x += inner{", y += inner, at += inner" if running else ""}) {{
        FL_IVDEP for (int64_t c = 0; c < width; c++) {{
            const int takes = {function}_takes({read.format("c")}, {p.read("T", "best[c]")});
            best[c] = takes ? x[c] : best[c], place[c] = takes ? (int32_t)i : place[c];
        }}
{"        " + store if running else ""}
    }}
{"" if running else "    " + store}
}}
"""


def _running_row(function: str, p: LoopPrinter) -> str:
    return f"""    if (inner == 1) {{
        int64_t place = 0;
        {p.compute} best = {p.read("T", "x[0]")};
        for (int64_t i = 0; i < n; i++) {{
            const {p.compute} v = {p.read("T", "x[i]")};
            if ({function}_takes(v, best)) best = v, place = i;
            y[i] = x[place], at[i] = place;
        }}
        return;
    }}"""


def _row(name: str, p: LoopPrinter) -> str:
    """Lanes of vectors compare in any order and lose a NaN, which `nan` keeps; then the first place is looked for in blocks."""
    better = ">" if name == "max" else "<"
    return f"""    if (inner == 1) {{
        {p.compute} best = {p.read("T", "x[0]")};
        int nan = 0;
        _Pragma("omp simd reduction({"fl_" * (p.compute in ("float", "double"))}{name}:best) reduction(|:nan)")
        for (int64_t i = 0; i < n; i++) {{
            const {p.compute} v = {p.read("T", "x[i]")};
            nan |= v != v;
            best = v {better} best ? v : best;
        }}
        for (int64_t from = 0; from < n; from += FL_BLOCK) {{
            const int64_t end = from + FL_BLOCK < n ? from + FL_BLOCK : n;
            int here = 0;
            for (int64_t i = from; i < end; i++) {{
                const {p.compute} v = {p.read("T", "x[i]")};
                here |= nan ? v != v : v == best;
            }}
            for (int64_t i = from; here && i < end; i++) {{
                const {p.compute} v = {p.read("T", "x[i]")};
                if (nan ? v != v : v == best) {{ *y = x[i], *at = i; return; }}
            }}
        }}
    }}"""
