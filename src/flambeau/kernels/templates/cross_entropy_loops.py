"""The loops behind cross entropy in C: rows of logits against one class each.

    classes.losses     log(sum(exp(x))) - x[target] of every row
    classes.summary    the sum or mean of these losses
    classes.gradients  scale / total * (softmax(x) - one at the target)

What is found of a row is kept in a room of three numbers for each: its loss, its maximum, and sum(exp(x - maximum)). A last number after
the rows' says how many count, or -1 if a target is no class.

A call takes any number of rows that lie one after another; how long they are is param[0]. Short rows (ten classes, say) would waste the CPU's
vectors: as many as fit are brought into a buffer, where one loop takes all their exponentials.

A row whose target is `ignore` counts nothing. One whose target is no class loses NaN. A NaN among the logits is found by the sum.
"""

from __future__ import annotations

from flambeau.kernels.language.print_c import ENUM, FLOATS, LoopPrinter
from flambeau.kernels.reductions import lanes

PARAMETERS = "(char *const *ptr, const int64_t *step, int64_t n, const double *param)"
BUFFER = 1024  # elements; longer rows are added up in stretches of so many, these in double
SHORT = 32  # in the gradient, longer rows are long enough for the CPU's vectors as they are


def wide(dtype: str) -> str:
    """The dtype of the room."""
    return "float64" if dtype == "float64" else "float32"


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table). A kernel's name ends with its dtype: the operands behind the first do not tell it."""
    texts, declarations, rows = lanes.texts(), [], []
    for dtype in FLOATS:
        p = LoopPrinter(dtype)
        own, more = ENUM[dtype], ENUM[wide(dtype)]
        for name, text, inputs, params, along in (
            ("losses", _losses(p), f"FL_I64, {more}, {own}", 4, 1),
            ("summary", _summary(p), f"{more}, {own}", 3, 1),
            ("gradients", _gradients(p), f"{own}, FL_I64, {more}, {more}, {more}", 4, 3),
        ):
            function = f"FL_NAME(classes_{name}_{p.suffix})"
            texts.append(text)
            declarations.append(f"void {function}{PARAMETERS};\n")
            first, count = "FL_I64" if name == "summary" else own, inputs.count(",") + 1
            rows.append(f'{{"classes.{name}_{dtype}", {function}, {first}, {count}, {params}, 0, {first}, {{{inputs}}}, {along}}}')
    return texts, declarations, rows


def _losses(p: LoopPrinter) -> str:
    """Operands: x, target, room, the result. Numbers: classes, ignore, smoothing, what the result is: 0 nothing, 1 the sum, 2 the mean."""
    t, s, read = p.compute, p.suffix, p.read("T", "x[{}]")
    return f"""
static void classes_summarize_{s}(const int64_t *target, {t} *room, {p.storage} *result, int64_t n, const double *param, int mean) {{
    const int64_t c = (int64_t)param[0], ignore = (int64_t)param[1];
    double sum[4] = {{0}};
    int64_t counted = 0, wrong = 0;
    for (int64_t i = 0; i < n; i++) {{
        sum[i % 4] += room[3 * i];
        counted += target[i] != ignore, wrong |= target[i] != ignore && (target[i] < 0 || target[i] >= c);
    }}
    const double total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    const {t} value = ({t})(mean ? total / (double)counted : total);
    *result = {p.write(p.dtype, "value")};
    room[3 * n] = wrong ? -1 : ({t})counted;
}}
void FL_NAME(classes_losses_{s}){PARAMETERS} {{
    const {p.storage} *x = (const {p.storage} *)ptr[0];
    const int64_t c = (int64_t)param[0], ignore = (int64_t)param[1], rows = n / c, *const target = (const int64_t *)ptr[1];
    const int64_t at_once = c < {BUFFER} ? {BUFFER} / c : 1;
    const {t} smoothing = ({t})param[2];
    {t} *const room = ({t} *)ptr[2];
    FL_ALIGNED {t} some[{BUFFER}];
    (void)step;
    for (int64_t r = 0; r < rows && c <= {BUFFER}; x += at_once * c) {{
        const int64_t first = r, last = rows - r < at_once ? rows : r + at_once, m = (last - first) * c;
        FL_IVDEP for (int64_t i = 0; i < m; i++) some[i] = {read.format("i")};
        for (; r < last; r++) {{
            {t} *const row = some + (r - first) * c;
            const {t} high = room[3 * r + 1] = peak_{t}(row, c);
            FL_IVDEP for (int64_t i = 0; i < c; i++) row[i] -= high;
        }}
        FL_IVDEP for (int64_t i = 0; i < m; i++) some[i] = {p.call("exp", "some[i]")};
        for (r = first; r < last; r++) room[3 * r + 2] = total_{t}(some + (r - first) * c, c);
    }}
    for (int64_t r = 0; r < rows && c > {BUFFER}; r++, x += c) {{
        {t} high = -INFINITY;
        double total = 0;
        for (int pass = 0; pass < 2; pass++) for (int64_t o = 0; o < c; o += {BUFFER}) {{
            const int64_t m = c - o < {BUFFER} ? c - o : {BUFFER};
            if (pass) FL_IVDEP for (int64_t i = 0; i < m; i++) some[i] = {p.call("exp", read.format("o + i") + " - high")};
            else FL_IVDEP for (int64_t i = 0; i < m; i++) some[i] = {read.format("o + i")};
            const {t} found = pass ? total_{t}(some, m) : peak_{t}(some, m);
            total += pass ? found : 0, high = !pass && found > high ? found : high;
        }}
        room[3 * r + 1] = high, room[3 * r + 2] = ({t})total;
    }}
    FL_IVDEP for (int64_t r = 0; r < rows; r++) room[3 * r] = {p.call("log", "room[3 * r + 2]")};
    x = (const {p.storage} *)ptr[0];
    for (int64_t r = 0; r < rows; r++, x += c) {{
        const int64_t at = target[r];
        const {t} high = room[3 * r + 1];
        if (at == ignore) room[3 * r] = 0;
        else if (at < 0 || at >= c) room[3 * r] = NAN;
        else if (smoothing == 0) room[3 * r] += high - {read.format("at")};
        else {{
            double below = 0; /* how far the others stay behind the largest */
            for (int64_t i = 0; i < c; i++) below += high - {read.format("i")};
            room[3 * r] += (1 - smoothing) * (high - {read.format("at")}) + smoothing * ({t})(below / (double)c);
        }}
    }}
    if (param[3] != 0) classes_summarize_{s}(target, room, ({p.storage} *)ptr[3], rows, param, param[3] == 2);
}}
"""


def _summary(p: LoopPrinter) -> str:
    """Operands: target, room, the result. Numbers: classes, ignore, 2 for the mean, 1 for the sum."""
    return f"""
void FL_NAME(classes_summary_{p.suffix}){PARAMETERS} {{
    (void)step;
    classes_summarize_{p.suffix}((const int64_t *)ptr[0], ({p.compute} *)ptr[1], ({p.storage} *)ptr[2], n, param, param[2] == 2);
}}
"""


def _gradients(p: LoopPrinter) -> str:
    """Operands: out, x, target, room, scale, total. Numbers: classes, ignore, smoothing, 1 if each row has a scale of its own, else 0."""
    t, read = p.compute, p.read("T", "x[{}]")
    return f"""
void FL_NAME(classes_gradients_{p.suffix}){PARAMETERS} {{
    {p.storage} *out = ({p.storage} *)ptr[0];
    const {p.storage} *x = (const {p.storage} *)ptr[1];
    const int64_t c = (int64_t)param[0], ignore = (int64_t)param[1], rows = n / c, *const target = (const int64_t *)ptr[2];
    const {t} smoothing = ({t})param[2], *const room = (const {t} *)ptr[3], *const scale = (const {t} *)ptr[4], total = *(const {t} *)ptr[5];
    FL_ALIGNED {t} powers[{BUFFER}];
    const int64_t at_once = c < {SHORT} ? {BUFFER} / c : 1;
    (void)step;
    for (int64_t r = 0; r < rows;) {{
        const int64_t first = r, last = rows - r < at_once ? rows : r + at_once;
        if (c < {SHORT}) {{
            {t} *at = powers;
            for (int64_t k = first; k < last; k++) for (int64_t i = 0; i < c; i++) *at++ = {read.format("(k - first) * c + i")} - room[3 * k + 1];
            FL_IVDEP for (int64_t i = 0; i < (last - first) * c; i++) powers[i] = {p.call("exp", "powers[i]")};
        }}
        for (; r < last; r++, x += c, out += c) {{
            const int64_t at = target[r];
            if (at == ignore || at < 0 || at >= c) {{
                for (int64_t i = 0; i < c; i++) out[i] = 0;
                continue;
            }}
            const {t} high = room[3 * r + 1], s = scale[r * (int64_t)param[3]] / total, factor = s / room[3 * r + 2];
            const {t} even = s * smoothing / ({t})c, *const power = powers + (r - first) * c;
            const {t} there = (c < {SHORT} ? power[at] : {p.call("exp", read.format("at") + " - high")}) * factor - even - s * (1 - smoothing);
            if (c < {SHORT}) for (int64_t i = 0; i < c; i++) out[i] = {p.write(p.dtype, "(power[i] * factor - even)")};
            else FL_IVDEP for (int64_t i = 0; i < c; i++) {{
                const {t} v = {p.call("exp", read.format("i") + " - high")} * factor - even;
                out[i] = {p.write(p.dtype, "v")};
            }}
            out[at] = {p.write(p.dtype, "there")};
        }}
    }}
}}
"""
