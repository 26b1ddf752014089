"""Recurrent networks as loops over all steps of a few samples, printed as C.

Samples do not meet: a thread takes some of them (`rows`) through all steps, so threads never wait for each other, and what a step reads was
written by the same core. Very few samples are taken together, and the threads share out the units of a step: each reads its part of the weights,
which stays in its core's own cache, and all wait for each other after a step. A step is a product of the states with the weights, which lie in panels (recurrent.py), and one pass over the gates.

    forward    A = H W_hhᵀ, then per element the formulas of a cell: the gates (kept for backward), the new c and h
    backward   the steps in the other order: gradients of the gates, then dH = dA W_hh

A step has the rows from offsets[t] to offsets[t + 1]; `kept` of a thread's rows come from the step before, the others start here with h0, c0.
"""

from __future__ import annotations

from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table
from flambeau.kernels.templates import print_products
from flambeau.kernels.templates.recurrent import BACKWARD, FACTS, FORWARD, GATES

WORTH_A_THREAD = 1 << 15  # multiplications: 2 us, and to share out a step takes half of one

# Per element k of a row of `h` elements. forward: x and a are the gates' two parts, s the state before (c, or h for a gru), keep what is kept.
# backward: g and gc arrive at h and c, dh and dc are carried (dh must become what the product is added to), y is the new state.
CELLS = {
    "lstm": (
        """const {real} i = SIGMOID(x[k] + a[k]), f = SIGMOID(x[h + k] + a[h + k]), u = TANH(x[2 * h + k] + a[2 * h + k]),
               o = SIGMOID(x[3 * h + k] + a[3 * h + k]), c = f * s[k] + i * u;
           keep[k] = i, keep[h + k] = f, keep[2 * h + k] = u, keep[3 * h + k] = o, cell[k] = c, out[k] = o * TANH(c);""",
        """const {real} i = keep[k], f = keep[h + k], u = keep[2 * h + k], o = keep[3 * h + k], t = TANH(y[k]), d = g[k] + dh[k],
               c = dc[k] + gc[k] + d * o * (1 - t * t);
           dx[k] = c * u * i * (1 - i), dx[h + k] = c * s[k] * f * (1 - f), dx[2 * h + k] = c * i * (1 - u * u);
           dx[3 * h + k] = d * t * o * (1 - o), dc[k] = c * f;""",
    ),
    "gru": (
        """const {real} r = SIGMOID(x[k] + a[k]), z = SIGMOID(x[h + k] + a[h + k]), u = TANH(x[2 * h + k] + r * a[2 * h + k]);
           keep[k] = r, keep[h + k] = z, keep[2 * h + k] = u, keep[3 * h + k] = a[2 * h + k], out[k] = u + z * (s[k] - u);""",
        """const {real} r = keep[k], z = keep[h + k], u = keep[2 * h + k], d = g[k] + dh[k], n = d * (1 - z) * (1 - u * u);
           dx[k] = da[k] = n * keep[3 * h + k] * r * (1 - r), dx[h + k] = da[h + k] = d * (s[k] - u) * z * (1 - z);
           dx[2 * h + k] = n, da[2 * h + k] = n * r, dh[k] = d * z;""",
    ),
    "rnn_tanh": ("out[k] = TANH(x[k] + a[k]);", "dx[k] = (g[k] + dh[k]) * (1 - y[k] * y[k]);"),
    "rnn_relu": (
        "const {real} sum = x[k] + a[k]; out[k] = sum < 0 ? 0 : sum;",
        "dx[k] = y[k] > 0 ? g[k] + dh[k] : 0;",
    ),
}


def table() -> Table:
    loops = Table(*print_products.texts(), f"enum {{ WORTH_A_THREAD = {WORTH_A_THREAD} }};\n")
    for kind, (real, which, _) in print_products.REALS.items():
        loops.texts.append(_DOTS.format(kind=kind, real=real, which=which))
        loops.texts.append(f"#undef SIGMOID\n#undef TANH\n#define SIGMOID fl_sigmoid_{kind}\n#define TANH fl_tanh_{kind}\n")
        for cell, formulas in CELLS.items():
            for name, operands, body, formula in zip(
                ("forward", "backward"), (FORWARD, BACKWARD), (_FORWARD, _BACKWARD), formulas, strict=True
            ):
                state = "cell" if cell == "lstm" else "out"
                words = dict(
                    kind=kind, real=real, gates=GATES[cell], formula=formula.format(real=real), state=state, cell=cell,
                    start="c0" if cell == "lstm" else "h0", added="1" if cell == "gru" else "0", da="da" if cell == "gru" else "dx",
                    lstm=int(cell == "lstm"),
                )  # fmt: skip
                if name == "forward":
                    loops.texts.append(_UNITS.format(**words))
                inner = body.format(**words)
                function, kinds = f"recurrent_{cell}_{name}_{kind}", "T " * (len(operands) - 2) + "i64"
                loops.texts.append(f"void FL_NAME({function}){PARAMETERS} {{\n{_each(real, operands)}{inner}}}\n}}\n")
                loops.add(f"recurrent.{cell}_{name}", function, kind, kinds, 1, LINES)
    return loops


def _each(real: str, operands: tuple[str, ...]) -> str:
    """For each element: its operands, its facts by name, and the offsets of the steps."""
    lines = ["for (int64_t element = 0; element < n; element++) {"]
    lines += [f"    {real} *const {o}_ = ({real} *)(ptr[{i}] + element * step[{i}]); (void){o}_;" for i, o in enumerate(operands[:-1])]
    lines.append(f"    const int64_t *const facts = (const int64_t *)(ptr[{len(operands) - 1}] + element * step[{len(operands) - 1}]);")
    lines += [f"    const int64_t {name} = facts[{i}]; (void){name};" for i, name in enumerate(FACTS)]
    lines.append(f"    const int64_t *const at = facts + {len(FACTS)};")
    return "".join(f"    {line}\n" for line in lines)


# Which step, how many rows it has here, and how many of them the step before had.
_STEP = """
            const int64_t t = reverse ? steps - 1 - number : number, before = reverse ? t + 1 : t - 1;
            int64_t some = at[t + 1] - at[t] - first, kept = before < 0 || before >= steps ? 0 : at[before + 1] - at[before] - first;
            some = some < rows ? some : rows, kept = kept < 0 ? 0 : kept < some ? kept : some;
            if (some <= 0) continue;
"""

# C = A Wᵀ or C += A Wᵀ, rows with rows: A (rows, depth), W (cols, depth), C (rows, cols). And a step of few samples, in which units are shared out.
_DOTS = """
static void dots_{kind}(int64_t rows, int64_t cols, int64_t depth, const {real} *a, const {real} *w, int add, {real} *c, int64_t ldc) {{
    static const {real} one = 1;
    fl_strip *const dots = FL_NAME(fl_products)[{which}].dots;
    if (rows == 0) return;
    if (dots) {{ dots(rows, cols, depth, a, depth, 1, 0, 0, 0, w, depth, 0, &one, add ? &one : 0, c, ldc, c, ldc); return; }}
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < cols; j++) {{
            {real} sum = 0;
            _Pragma("omp simd reduction(+:sum)")
            for (int64_t q = 0; q < depth; q++) sum += a[r * depth + q] * w[j * depth + q];
            c[r * ldc + j] = add ? c[r * ldc + j] + sum : sum;
        }}
}}
struct step_{kind} {{
    int64_t h, some, kept, units, biased, keeps;
    const {real} *x, *before, *h0, *carried, *start, *weight, *bias; /* carried and start: the state that the formulas read */
    {real} *sums, *unkept, *out, *cell, *keep;
}};
"""

# The units from block * units on, of all samples of a step.
_UNITS = """
static void {cell}_units_{kind}(void *ctx, int64_t block) {{
    const struct step_{kind} *const p = ctx;
    const int64_t h = p->h, some = p->some, kept = p->kept, biased = p->biased, first = block * p->units;
    const int64_t end = h - first < p->units ? h : first + p->units;
    for (int64_t gate = 0; gate < {gates}; gate++) {{
        const int64_t at = gate * h + first;
        {real} *const sums = p->sums + at;
        for (int64_t r = 0; biased && r < some; r++) memcpy(sums + r * {gates} * h, p->bias + at, sizeof({real}) * (size_t)(end - first));
        dots_{kind}(kept, end - first, h, p->before, p->weight + at * h, (int)biased, sums, {gates} * h);
        dots_{kind}(some - kept, end - first, h, p->h0 + kept * h, p->weight + at * h, (int)biased, sums + kept * {gates} * h, {gates} * h);
    }}
    for (int64_t r = 0; r < some; r++) {{
        const {real} *const x = p->x + r * {gates} * h, *const a = p->sums + r * {gates} * h, *const s = (r < kept ? p->carried : p->start) + r * h;
        {real} *const out = p->out + r * h, *const cell = p->cell + r * h, *const keep = p->keeps ? p->keep + r * 4 * h : p->unkept;
        (void)s, (void)cell, (void)keep;
        FL_IVDEP for (int64_t k = first; k < end; k++) {{
            {formula}
        }}
    }}
}}
"""

_FORWARD = (
    """
        FL_ALIGNED {real} sums[rows * {gates} * h], unkept[4 * h];
        for (int64_t number = 0; number < steps; number++) {{"""
    + _STEP
    + """
            if (as_it_lies) {{
                const int64_t enough = (WORTH_A_THREAD / ({gates} * h * some) + 15) / 16 * 16; /* by shape alone: the same bits with any number of threads */
                struct step_{kind} now = {{
                    h, some, kept, enough, biased, keeps, gates_ + at[t] * {gates} * h, out_ + (kept ? at[before] * h : 0), h0_,
                    {state}_ + (kept ? at[before] * h : 0), {start}_, panels_, bias_, sums, unkept, out_ + at[t] * h, cell_ + at[t] * h, keep_ + at[t] * 4 * h,
                }};
                fl_parallel({cell}_units_{kind}, &now, (h + enough - 1) / enough);
                continue;
            }}
            for (int64_t r = 0; biased && r < some; r++) memcpy(sums + r * {gates} * h, bias_, sizeof({real}) * {gates} * (size_t)h);
            for (int64_t j = 0; j < {gates} * h; j += ldw) {{
                const int64_t columns = {gates} * h - j < ldw ? {gates} * h - j : ldw;
                if (kept) fl_product_{kind}(kept, columns, h, out_ + at[before] * h, h, 1, panels_ + j * h, ldw, (int)biased, sums + j, {gates} * h);
                fl_product_{kind}(some - kept, columns, h, h0_ + kept * h, h, 1, panels_ + j * h, ldw, (int)biased, sums + kept * {gates} * h + j, {gates} * h);
            }}
            for (int64_t r = 0; r < some; r++) {{
                const {real} *const x = gates_ + (at[t] + r) * {gates} * h, *const a = sums + r * {gates} * h;
                const {real} *const s = r < kept ? {state}_ + (at[before] + r) * h : {start}_ + r * h;
                {real} *const out = out_ + (at[t] + r) * h, *const cell = cell_ + (at[t] + r) * h, *const keep = keeps ? keep_ + (at[t] + r) * 4 * h : unkept;
                (void)s, (void)cell, (void)keep;
                FL_IVDEP for (int64_t k = 0; k < h; k++) {{
                    {formula}
                }}
            }}
        }}
    """
)

_BACKWARD = (
    """
        FL_ALIGNED {real} carried[rows * h], cells[rows * h], zero[h];
        memset(zero, 0, sizeof zero);
        int64_t arrived = 0; /* rows that the step done last had in common with this one */
        for (int64_t number = steps - 1; number >= 0; number--) {{"""
    + _STEP
    + """
            memset(carried + arrived * h, 0, sizeof({real}) * (size_t)((some - arrived) * h));
            memset(cells + arrived * h, 0, sizeof({real}) * (size_t)((some - arrived) * h));
            for (int64_t r = 0; r < some; r++) {{
                const int64_t row = at[t] + r;
                const {real} *const g = has_g ? g_ + row * h : zero, *const gc = has_gc ? gc_ + row * h : zero;
                const {real} *const keep = keep_ + row * 4 * h, *const y = state_ + row * h;
                const {real} *const s = r < kept ? state_ + (at[before] + r) * h : start_ + r * h;
                {real} *const dx = dx_ + row * {gates} * h, *const da = da_ + row * {gates} * h, *const dh = carried + r * h, *const dc = cells + r * h;
                (void)gc, (void)keep, (void)y, (void)s, (void)da, (void)dc;
                FL_IVDEP for (int64_t k = 0; k < h; k++) {{
                    {formula}
                }}
            }}
            fl_product_{kind}(some, h, {gates} * h, {da}_ + at[t] * {gates} * h, {gates} * h, 1, weight_, ldw, {added}, carried, h);
            memcpy(dh0_ + kept * h, carried + kept * h, sizeof({real}) * (size_t)((some - kept) * h));
            if ({lstm}) memcpy(dc0_ + kept * h, cells + kept * h, sizeof({real}) * (size_t)((some - kept) * h));
            arrived = kept;
        }}
    """
)
