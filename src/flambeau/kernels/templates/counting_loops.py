"""Counting and searching, printed as C: where a value belongs, and how many belong there.

    count.values      counts[x[i]] += 1                                    for whole numbers 0 ... bins - 1
    count.intervals   the same by equal intervals from low to high         with one more place, for what lies outside and for NaN
    sorted.search     the place of x[i] in sorted boundaries               before equals, or after them

The counting loops take a chunk of x at a time and leave its counts in a row of their own; to add the rows is left to a fold. A search takes four
values at a time, step by step, without a branch: one alone would do nothing but wait for what it reads. The steps are those PyTorch takes, so
that the answers are its own where boundaries are not sorted, or not numbers.
"""

from __future__ import annotations

from flambeau.kernels.language.print_c import TYPES
from flambeau.kernels.language.print_table import LINES, PARAMETERS, Table

WHOLE = ("uint8", "int8", "int16", "int32", "int64")
REAL = ("float32", "float64")
LANES = range(4)


def table() -> Table:
    loops = Table("#include <string.h>\n")
    for dtype in (*WHOLE, *REAL):
        suffix, word, _ = TYPES[dtype]
        count, numbers, printed = ("intervals", 4, _intervals) if dtype in REAL else ("values", 2, _values)
        loops.texts += [printed(f"count_{suffix}", word), _search(f"search_{suffix}", word)]
        loops.add(f"count.{count}", f"count_{suffix}", dtype, "T", numbers, LINES, out="i64")
        loops.add("sorted.search", f"search_{suffix}", dtype, "T T", 3, LINES, out="i64")
    return loops


def _values(name: str, word: str) -> str:
    """Numbers: elements of a chunk, bins. Whoever asks has looked whether the elements are within bounds."""
    return f"""void FL_NAME({name}){PARAMETERS} {{
    const int64_t length = (int64_t)param[0], bins = (int64_t)param[1];
    for (int64_t k = 0; k < n; k++) {{
        int64_t *const counts = (int64_t *)(ptr[0] + k * step[0]);
        const {word} *const x = (const {word} *)(ptr[1] + k * step[1]);
        memset(counts, 0, (size_t)bins * sizeof *counts);
        for (int64_t i = 0; i < length; i++) counts[x[i]]++;
    }}
}}
"""


def _intervals(name: str, word: str) -> str:
    """Numbers: elements of a chunk, bins, low, high. The last interval is closed on both sides."""
    return f"""void FL_NAME({name}){PARAMETERS} {{
    const int64_t length = (int64_t)param[0], bins = (int64_t)param[1];
    const {word} low = ({word})param[2], high = ({word})param[3], many = ({word})bins;
    for (int64_t k = 0; k < n; k++) {{
        int64_t *const counts = (int64_t *)(ptr[0] + k * step[0]);
        const {word} *const x = (const {word} *)(ptr[1] + k * step[1]);
        memset(counts, 0, (size_t)(bins + 1) * sizeof *counts);
        for (int64_t from = 0; from < length; from += FL_BLOCK) {{
            const int64_t some = length - from < FL_BLOCK ? length - from : FL_BLOCK;
            int32_t at[FL_BLOCK];
            FL_IVDEP for (int64_t i = 0; i < some; i++) {{
                const {word} v = x[from + i], place = (v - low) * many / (high - low);
                const {word} within = place < many ? (place >= 0 ? place : 0) : many - 1;
                at[i] = (int32_t)((v >= low) & (v <= high) ? within : many);
            }}
            for (int64_t i = 0; i < some; i++) counts[at[i]]++;
        }}
    }}
}}
"""


def _search(name: str, word: str) -> str:
    """Operands: boundaries, x. Numbers: what a search costs, how many boundaries, whether after equals."""
    # What is left after a step is half of it, or one less if that was an even number and the search goes on behind the middle.
    step = " ".join(
        f"{{ const int64_t left = left{k}, half = left >> 1, middle = start{k} + half;"
        f" const {word} here = b[middle]; const int64_t on = !(after ? here > v[{k}] : here >= v[{k}])LAST;"
        f" start{k} += -on & (half + 1), left{k} = half - (on & ~left & 1); }}"
        for k in LANES
    )
    return f"""static inline int64_t {name}_one(const {word} *b, int64_t size, {word} v, int after) {{
    int64_t start = 0, end = size;
    while (start < end) {{
        const int64_t middle = start + ((end - start) >> 1);
        if (after ? b[middle] > v : b[middle] >= v) end = middle;
        else start = middle + 1;
    }}
    return start;
}}
static inline __attribute__((always_inline)) void {name}_four(const {word} *b, int64_t size, const {word} *v, int64_t *out, const int after) {{
    int64_t {", ".join(f"start{k} = 0, left{k} = size" for k in LANES)};
    int64_t least = size; /* of what may be left to a value: the last step looks whether there is anything */
    for (; least > 0; least = (least - 1) >> 1) {{ {step.replace("LAST", "")} }}
    {step.replace("LAST", " & (left > 0)").replace("[middle]", "[left > 0 ? middle : 0]")}
    {" ".join(f"out[{k}] = start{k};" for k in LANES)}
}}
void FL_NAME({name}){PARAMETERS} {{
    const int64_t size = (int64_t)param[1];
    const int after = param[2] != 0;
    int64_t i = 0;
    if (step[0] == 8 && step[1] == 0 && step[2] == sizeof({word}))
        for (; i + 4 <= n; i += 4) {{
            const {word} *const b = (const {word} *)ptr[1], *const v = (const {word} *)ptr[2] + i;
            if (after) {name}_four(b, size, v, (int64_t *)ptr[0] + i, 1);
            else {name}_four(b, size, v, (int64_t *)ptr[0] + i, 0);
        }}
    for (; i < n; i++) *(int64_t *)(ptr[0] + i * step[0]) =
        {name}_one((const {word} *)(ptr[1] + i * step[1]), size, *(const {word} *)(ptr[2] + i * step[2]), after);
}}
"""
