"""Softmax and its relatives for short rows, in C.

A row of ten classes would waste the CPU's vectors, and wait for itself: greatest, powers, sum, result. So as many rows as fit are brought into
a buffer, and all their elements take each step together; what is found of a row is spread over the places of its elements.

    short.softmax   short.log_softmax   short.softmax_backward   short.log_softmax_backward

A call takes any number of rows that lie one after another; how long they are is the only number.
"""

from __future__ import annotations

from flambeau.kernels.language.print_c import ENUM, FLOATS, LoopPrinter
from flambeau.kernels.reductions import lanes

PARAMETERS = "(char *const *ptr, const int64_t *step, int64_t n, const double *param)"
BUFFER = 1024  # elements

# name -> (operands besides the result, its steps). In a step, {r} is row by row, {i} element by element; `a`, `b` are the operands and `c` a row's length.
PROGRAMS = {
    "softmax": (
        1,
        [
            "{r} SPREAD(peak_REAL(a + o, c))",
            "{i} a[i] = EXP(a[i] - of[i])",
            "{r} SPREAD(1 / total_REAL(a + o, c))",
            "{i} a[i] = a[i] * of[i]",
        ],
    ),
    "log_softmax": (
        1,
        [
            "{r} SPREAD(peak_REAL(a + o, c))",
            "{i} { a[i] -= of[i]; b[i] = EXP(a[i]); }",
            "{r} sum[r] = total_REAL(b + o, c)",
            "FL_IVDEP for (int64_t r = 0; r < some; r++) sum[r] = LOG(sum[r])",
            "{r} SPREAD(sum[r])",
            "{i} a[i] = a[i] - of[i]",
        ],
    ),
    "softmax_backward": (2, ["{i} p[i] = a[i] * b[i]", "{r} SPREAD(total_REAL(p + o, c))", "{i} a[i] = b[i] * (a[i] - of[i])"]),
    "log_softmax_backward": (2, ["{r} SPREAD(total_REAL(a + o, c))", "{i} a[i] = a[i] - EXP(b[i]) * of[i]"]),
}
ROW_BY_ROW = "for (int64_t r = 0, o = 0; r < some; r++, o += c)"
ONE_BY_ONE = "FL_IVDEP for (int64_t i = 0; i < m; i++)"


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    texts, declarations, rows = [*lanes.texts(), SPREAD], [], []
    for name, (operands, steps) in PROGRAMS.items():
        for dtype in FLOATS:
            p = LoopPrinter(dtype)
            function, enum = f"FL_NAME(short_{name}_{p.suffix})", ENUM[dtype]
            texts.append(_text(p, function, operands, steps))
            declarations.append(f"void {function}{PARAMETERS};\n")
            inputs, along = ", ".join([enum] * operands), 2 ** (operands + 1) - 1
            rows.append(f'{{"short.{name}", {function}, {enum}, {operands}, 1, {2**operands - 1}, {enum}, {{{inputs}}}, {along}}}')
    return texts, declarations, rows


# The last four places of a row are written from its end, or into the next row, which is yet to come.
SPREAD = "#define SPREAD(value) do { const real v = value; for (int64_t l = 0; l < c; l += 4) of[o + l] = of[o + l + 1] = of[o + l + 2] = of[o + l + 3] = v; } while (0)\n"


def _text(p: LoopPrinter, function: str, operands: int, steps: list[str]) -> str:
    t = p.compute
    body = "".join(f"        {s.replace('{r}', ROW_BY_ROW).replace('{i}', ONE_BY_ONE)}{'' if s.endswith('}') else ';'}\n" for s in steps)
    for word, meaning in (("REAL", t), ("EXP", f"fl_{p.called('exp')}"), ("LOG", f"fl_{p.called('log')}")):
        body = body.replace(word, meaning)
    reads = "".join(f"            {'ab'[k]}[i] = {p.read('T', f'x{k}[i]')};\n" for k in range(operands))
    starts = "".join(f"    const {p.storage} *x{k} = (const {p.storage} *)ptr[{k + 1}];\n" for k in range(operands))
    return f"""void {function}{PARAMETERS} {{
    typedef {t} real;
    const int64_t c = (int64_t)param[0], at_once = {BUFFER} / c;
    FL_ALIGNED real a[{BUFFER}], b[{BUFFER}], p[{BUFFER}], of[{BUFFER} + 4], sum[{BUFFER}];
    {p.storage} *out = ({p.storage} *)ptr[0];
{starts}    (void)step, (void)b, (void)p, (void)sum;
    for (int64_t left = n / c, some; left > 0; left -= some) {{
        some = left < at_once ? left : at_once;
        const int64_t m = some * c;
        {ONE_BY_ONE} {{
{reads}        }}
{body}        {ONE_BY_ONE} out[i] = {p.write(p.dtype, "a[i]")};
        out += m{"".join(f", x{k} += m" for k in range(operands))};
    }}
}}
"""
