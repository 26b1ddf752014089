"""The loops behind cross entropy in C: rows of logits against one class each.

    classes.losses     log(sum(exp(x))) - x[target] of every row, and what its derivative needs of the row: its maximum and sum(exp(x - max))
    classes.summary    the sum or mean of these losses, and how many count
    classes.gradients  scale * (softmax(x) - one at the target)

A call takes any number of rows that lie one after another; how long they are is param[0]. Short rows (ten classes, say) would waste the CPU's
vectors: of those, many are shifted into a buffer first, where one loop takes all their exponentials.

A row whose target is `ignore` counts nothing. One whose target is no class loses NaN, and the summary says so by a total of -1.
"""

from __future__ import annotations

from flambeau.kernels.print_c import ENUM, FLOATS, LoopPrinter

PARAMETERS = "(char *const *ptr, const int64_t *step, int64_t n, const double *param)"
SHORT, BUFFER = 32, 1024  # rows below so many elements share the buffer; its size
LANES = 32  # sums are carried in so many lanes, whatever the width of the CPU's vectors, so that all CPUs round alike


def wide(dtype: str) -> str:
    """The dtype in which losses and statistics are kept."""
    return "float64" if dtype == "float64" else "float32"


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table). A kernel's name ends with its dtype: no operand beside the first tells it."""
    texts, declarations, rows = [], [], []
    for dtype in FLOATS:
        p = LoopPrinter(dtype)
        own, more = ENUM[dtype], ENUM[wide(dtype)]
        for name, text, inputs, params, along in (
            ("losses", _losses(p), f"FL_I64, {more}, {more}", 3, 1),
            ("summary", _summary(p), f"FL_I64, {own}, {more}", 3, 3),
            ("gradients", _gradients(p), f"{own}, FL_I64, {more}, {more}, {more}", 4, 3),
        ):
            function = f"FL_NAME(classes_{name}_{p.suffix})"
            texts.append(text)
            declarations.append(f"void {function}{PARAMETERS};\n")
            first = more if name == "summary" else own
            count = inputs.count(",") + 1
            rows.append(f'{{"classes.{name}_{dtype}", {function}, {first}, {count}, {params}, 0, {first}, {{{inputs}}}, {along}}}')
    return texts, declarations, rows


def _losses(p: LoopPrinter) -> str:
    """Operands: x, target, losses, statistics. Numbers: classes, ignore, smoothing."""
    t, s, read = p.compute, p.suffix, p.read("T", "x[{}]")
    return f"""
static inline {t} classes_sum_{s}(const {t} *v, int64_t n) {{
    {t} lane[{LANES}] = {{0}}, total = 0;
    int64_t i = 0;
    for (; i + {LANES} <= n; i += {LANES}) for (int l = 0; l < {LANES}; l++) lane[l] += v[i + l];
    for (; i < n; i++) total += v[i];
    for (int w = {LANES} / 2; w; w /= 2) for (int l = 0; l < w; l++) lane[l] += lane[l + w];
    return total + lane[0];
}}
static inline {t} classes_peak_{s}(const {p.storage} *x, int64_t c) {{
    {t} high = -INFINITY;
    int nan = 0;
    _Pragma("omp simd reduction(fl_max:high) reduction(|:nan)")
    for (int64_t i = 0; i < c; i++) {{
        const {t} v = {read.format("i")};
        nan |= v != v;
        high = v > high ? v : high;
    }}
    return nan ? NAN : high;
}}
void FL_NAME(classes_losses_{s}){PARAMETERS} {{
    const {p.storage} *x = (const {p.storage} *)ptr[0];
    const int64_t c = (int64_t)param[0], ignore = (int64_t)param[1], rows = n / c, *const target = (const int64_t *)ptr[1];
    const {t} smoothing = ({t})param[2];
    {t} *const loss = ({t} *)ptr[2], *const kept = ({t} *)ptr[3];
    FL_ALIGNED {t} powers[{BUFFER}];
    (void)step;
    if (c < {SHORT}) for (int64_t r = 0; r < rows;) {{
        const int64_t first = r, last = rows - r < {BUFFER} / c ? rows : r + {BUFFER} / c;
        {t} *at = powers;
        for (; r < last; r++, x += c) {{
            {t} high = {read.format("0")};
            for (int64_t i = 1; i < c; i++) {{
                const {t} v = {read.format("i")};
                high = v > high || v != v ? v : high;
            }}
            kept[2 * r] = high;
            for (int64_t i = 0; i < c; i++) *at++ = {read.format("i")} - high;
        }}
        FL_IVDEP for (int64_t i = 0; i < (last - first) * c; i++) powers[i] = {p.call("exp", "powers[i]")};
        at = powers;
        for (r = first; r < last; r++) {{
            {t} total = 0;
            for (int64_t i = 0; i < c; i++) total += *at++;
            kept[2 * r + 1] = total;
        }}
    }} else for (int64_t r = 0; r < rows; r++, x += c) {{
        const {t} high = classes_peak_{s}(x, c);
        double total = 0;
        for (int64_t o = 0; o < c; o += {BUFFER}) {{
            const int64_t m = c - o < {BUFFER} ? c - o : {BUFFER};
            FL_IVDEP for (int64_t i = 0; i < m; i++) powers[i] = {p.call("exp", read.format("o + i") + " - high")};
            total += classes_sum_{s}(powers, m);
        }}
        kept[2 * r] = high, kept[2 * r + 1] = ({t})total;
    }}
    FL_IVDEP for (int64_t r = 0; r < rows; r++) loss[r] = {p.call("log", "kept[2 * r + 1]")};
    x = (const {p.storage} *)ptr[0];
    for (int64_t r = 0; r < rows; r++, x += c) {{
        const int64_t at = target[r];
        if (at == ignore) loss[r] = 0;
        else if (at < 0 || at >= c) loss[r] = NAN;
        else if (smoothing == 0) loss[r] += kept[2 * r] - {read.format("at")};
        else {{
            double below = 0; /* how far the others stay behind the largest */
            for (int64_t i = 0; i < c; i++) below += kept[2 * r] - {read.format("i")};
            loss[r] += (1 - smoothing) * (kept[2 * r] - {read.format("at")}) + smoothing * ({t})(below / (double)c);
        }}
    }}
}}
"""


def _summary(p: LoopPrinter) -> str:
    """Operands: losses, target, the result, how many count. Numbers: classes, ignore, whether the mean is wanted."""
    return f"""
void FL_NAME(classes_summary_{p.suffix}){PARAMETERS} {{
    const {p.compute} *const loss = (const {p.compute} *)ptr[0];
    const int64_t c = (int64_t)param[0], ignore = (int64_t)param[1], *const target = (const int64_t *)ptr[1];
    double sum[8] = {{0}};
    int64_t ignored = 0, wrong = 0;
    (void)step;
    for (int64_t i = 0; i < n; i++) sum[i % 8] += loss[i];
    for (int64_t i = 0; i < n; i++) ignored += target[i] == ignore, wrong += target[i] != ignore && (target[i] < 0 || target[i] >= c);
    const double total = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    const {p.compute} value = ({p.compute})(param[2] != 0 ? total / (double)(n - ignored) : total);
    *({p.storage} *)ptr[2] = {p.write(p.dtype, "value")};
    *({p.compute} *)ptr[3] = wrong ? -1 : ({p.compute})(n - ignored);
}}
"""


def _gradients(p: LoopPrinter) -> str:
    """Operands: out, x, target, statistics, scale, total. Numbers: classes, ignore, smoothing, 1 if each row has a scale of its own, else 0."""
    t, read = p.compute, p.read("T", "x[{}]")
    return f"""
void FL_NAME(classes_gradients_{p.suffix}){PARAMETERS} {{
    {p.storage} *out = ({p.storage} *)ptr[0];
    const {p.storage} *x = (const {p.storage} *)ptr[1];
    const int64_t c = (int64_t)param[0], ignore = (int64_t)param[1], rows = n / c, *const target = (const int64_t *)ptr[2];
    const {t} smoothing = ({t})param[2], *const kept = (const {t} *)ptr[3], *const scale = (const {t} *)ptr[4], total = *(const {t} *)ptr[5];
    FL_ALIGNED {t} powers[{BUFFER}];
    const int64_t at_once = c < {SHORT} ? {BUFFER} / c : 1;
    (void)step;
    for (int64_t r = 0; r < rows;) {{
        const int64_t first = r, last = rows - r < at_once ? rows : r + at_once;
        if (c < {SHORT}) {{
            {t} *at = powers;
            for (int64_t k = first; k < last; k++) for (int64_t i = 0; i < c; i++) *at++ = {read.format("(k - first) * c + i")} - kept[2 * k];
            FL_IVDEP for (int64_t i = 0; i < (last - first) * c; i++) powers[i] = {p.call("exp", "powers[i]")};
        }}
        for (; r < last; r++, x += c, out += c) {{
            const int64_t at = target[r];
            if (at == ignore || at < 0 || at >= c) {{
                for (int64_t i = 0; i < c; i++) out[i] = 0;
                continue;
            }}
            const {t} high = kept[2 * r], s = scale[r * (int64_t)param[3]] / total, factor = s / kept[2 * r + 1];
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
