"""Sums and maxima that are carried in lanes: vectors for the C of loops, and the way from many lanes to one number.

Lanes come in sixteens on every CPU, so that all round alike, and are carried in arrays of the CPU's own vectors (FL_VECTOR bytes each): wider
ones gcc keeps in memory from step to step, and takes apart to compare.
"""

from __future__ import annotations

BITS = {"float": "int32_t", "double": "int64_t"}
KINDS = {"own": "FL_VECTOR", "four": "4 * sizeof({real})"}


def texts() -> list[str]:
    """The C for float and double, for the head of a file that uses it."""
    return [_texts(real, bits) for real, bits in BITS.items()]


def _texts(real: str, bits: str) -> str:
    return f"""{vectors(real, bits)}enum {{ PARTS_{real} = 16 * sizeof({real}) / FL_VECTOR }}; /* own vectors of sixteen lanes */
{_together(real, "sum")}{_together(real, "max")}{_of_rows(real)}"""


def vectors(real: str, bits: str) -> str:
    """The vectors of a type of numbers, and those of as many integers."""
    return "".join(_vector(real, bits, kind, size.format(real=real)) for kind, size in KINDS.items())


def _vector(real: str, bits: str, kind: str, size: str) -> str:
    """A vector that may lie anywhere, and the sum and the greater of two of them: b where neither is.

    No functions: a CPU may have no register to hand so wide a vector over in.
    """
    vector, mask = f"{kind}_{real}", f"{kind}_bits_{real}"
    return f"""typedef {real} {vector} __attribute__((vector_size({size}), aligned(sizeof({real})), may_alias));
typedef {bits} {mask} __attribute__((vector_size({size}), aligned(sizeof({real})), may_alias));
#define {kind}_sum_{real}(a, b) ((a) + (b))
#define {kind}_max_{real}(a, b) ({{ \\
    const {vector} a_ = (a), b_ = (b); \\
    const {mask} more_ = a_ > b_; \\
    ({vector})((more_ & ({mask})a_) | (~more_ & ({mask})b_)); }})
"""


def _together(real: str, how: str) -> str:
    """Sixteen lanes as four, four as one, and sixty-four as one."""
    own, four = f"own_{how}_{real}", f"four_{how}_{real}"
    low, high = ("{0} + {2}", "{1} + {3}") if how == "sum" else ("{0} > {2} ? {0} : {2}", "{1} > {3} ? {1} : {3}")
    x = [f"(*x)[{i}]" for i in range(4)]
    return f"""static inline void to_four_{how}_{real}(const own_{real} *lanes, four_{real} *to) {{
    const four_{real} *const x = (const four_{real} *)lanes;
    *to = {four}({four}(x[0], x[1]), {four}(x[2], x[3]));
}}
static inline {real} to_one_{how}_{real}(const four_{real} *x) {{
    const {real} a = {low.format(*x)}, b = {high.format(*x)};
    return {"a + b" if how == "sum" else "a > b ? a : b"};
}}
static inline {real} lanes_{how}_{real}(const {real} *lanes) {{
    const own_{real} *const x = (const own_{real} *)lanes;
    own_{real} sixteen[PARTS_{real}];
    four_{real} few;
    for (int k = 0, p = PARTS_{real}; k < p; k++) sixteen[k] = {own}({own}(x[k], x[p + k]), {own}(x[2 * p + k], x[3 * p + k]));
    to_four_{how}_{real}(sixteen, &few);
    return to_one_{how}_{real}(&few);
}}
"""


def _of_rows(t: str) -> str:
    """The greatest and the sum of a row, in sixteen lanes, then four."""
    return f"""static inline {t} peak_{t}(const {t} *x, int64_t n) {{
    four_{t} best;
    if (n < 4) {{
        {t} high = x[0];
        for (int64_t i = 1; i < n; i++) high = x[i] > high ? x[i] : high;
        return high;
    }}
    /* The last step may look at elements again, rather than go one by one to the end. */
    if (n < 16) {{
        best = *(const four_{t} *)x;
        for (int64_t i = 4; i < n; i += 4) best = four_max_{t}(*(const four_{t} *)(x + (n - i < 4 ? n - 4 : i)), best);
    }} else {{
        own_{t} lanes[PARTS_{t}];
        for (int k = 0; k < PARTS_{t}; k++) lanes[k] = ((const own_{t} *)x)[k];
        for (int64_t i = 16; i < n; i += 16) {{
            const own_{t} *const v = (const own_{t} *)(x + (n - i < 16 ? n - 16 : i));
            for (int k = 0; k < PARTS_{t}; k++) lanes[k] = own_max_{t}(v[k], lanes[k]);
        }}
        to_four_max_{t}(lanes, &best);
    }}
    return to_one_max_{t}(&best);
}}
static inline {t} total_{t}(const {t} *x, int64_t n) {{
    four_{t} sum = {{0}};
    int64_t i = 0;
    if (n >= 16) {{
        own_{t} lanes[PARTS_{t}] = {{0}};
        for (; i + 16 <= n; i += 16) for (int k = 0; k < PARTS_{t}; k++) lanes[k] += ((const own_{t} *)(x + i))[k];
        to_four_sum_{t}(lanes, &sum);
    }}
    for (; i + 4 <= n; i += 4) sum += *(const four_{t} *)(x + i);
    {t} total = to_one_sum_{t}(&sum);
    for (; i < n; i++) total += x[i];
    return total;
}}
"""
