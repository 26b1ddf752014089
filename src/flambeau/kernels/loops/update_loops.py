"""Updates in C: one loop that reads an element of every operand, and writes the new ones back.

    void FL_NAME(update_adam_f32)(char *const *ptr, const int64_t *step, int64_t n, const double *param)

All operands are contiguous; the launcher (`Kernel.update`) runs the loop over the blocks of a whole list of tensors. A rule that notes a
condition leaves 1 in *step.
"""

from __future__ import annotations

from collections.abc import Iterable

from flambeau.kernels.language.print_c import CONVERT, FLOATS, TYPES, LoopPrinter
from flambeau.kernels.language.print_table import PARAMETERS, Table
from flambeau.kernels.loops.updates import Update


def table(updates: Iterable[Update]) -> Table:
    loops = Table(WIDENED)
    for update in updates:
        for dtype in FLOATS:
            loops.texts.append(print_update(update, dtype))
            loops.add(update.name, _function(update, dtype), dtype, "T " * (len(update.operands) - 1), update.n_param)
    return loops


def _function(update: Update, dtype: str) -> str:
    return f"{update.name.replace('.', '_')}_{TYPES[dtype][0]}"


def print_update(update: Update, dtype: str) -> str:
    """The C of one loop."""
    if dtype == "float16":
        return _widened(update)
    p = LoopPrinter(dtype)
    lines, values = p.bodies((*update.results, *update.noted))
    *values, held = values if update.noted else (*values, "")
    numbers = "".join(f"    const {p.compute} p{i} = ({p.compute})param[{i}];\n" for i in range(update.n_param))
    pointers = "".join(f"    {p.storage} *const a{i} = ({p.storage} *)ptr[{i}];\n" for i in range(len(update.operands)))
    reads = "".join(f"        const {p.compute} x{i} = {p.read('T', f'a{i}[i]')};\n" for i in range(len(update.operands)))
    body = "".join(f"        {line}\n" for line in lines)
    writes = "".join(f"        a{i}[i] = {p.write(dtype, value)};\n" for i, value in zip(update.written, values, strict=True))
    ask = f"        held |= {held};\n" if held else ""
    note = "    if (held) __atomic_store_n((int64_t *)step, 1, __ATOMIC_RELAXED);\n" if held else "    (void)step;\n"
    start = f"    {'int64_t' if dtype == 'float64' else 'int'} held = 0;\n" if held else ""
    loop = f"    FL_IVDEP for (int64_t i = 0; i < n; i++) {{\n{reads}{body}{ask}{writes}    }}\n"
    return f"void FL_NAME({_function(update, dtype)}){PARAMETERS} {{\n{numbers}{pointers}{start}{loop}{note}}}\n"


def _widened(update: Update) -> str:
    """The loop of float16: block by block through that of float32, see Note [float16 in blocks] in print_c.py."""
    operands, written = len(update.operands), ", ".join(map(str, update.written))
    return f"""void FL_NAME({_function(update, "float32")}){PARAMETERS};
void FL_NAME({_function(update, "float16")}){PARAMETERS} {{
    widened(FL_NAME({_function(update, "float32")}), {operands}, (const uint8_t[]){{{written}}}, {len(update.written)}, ptr, step, n, param);
}}
"""


WIDENED = f"""{CONVERT}static FL_ONCE void widened(fl_loop loop, int operands, const uint8_t *written, int count, char *const *ptr, const int64_t *step, int64_t n,
    const double *param) {{
    FL_ALIGNED float w[FL_MAX_IN + 1][FL_BLOCK];
    char *at[FL_MAX_IN + 1];
    for (int k = 0; k < operands; k++) at[k] = (char *)w[k];
    for (int64_t i = 0, m; i < n; i += m) {{
        m = n - i < FL_BLOCK ? n - i : FL_BLOCK;
        for (int k = 0; k < operands; k++) FL_NAME(fl_widen)(w[k], (const uint16_t *)ptr[k] + i, m);
        loop(at, step, m, param);
        for (int k = 0; k < count; k++) FL_NAME(fl_narrow)((uint16_t *)ptr[written[k]] + i, w[written[k]], m);
    }}
}}
"""
