"""The loops behind random numbers, in C: words to uniform, uniform to normal, and the C library's functions.

    random.uniform_f32      (words; low, high) -> float32, the words lying in the memory of float32, as in `out` itself; float64 likewise
    random.normal_f32       (words; mean, std) -> float32, in blocks of 16: 8 r cos t, then the 8 r sin t that go with them
    random.pairs            (uniform float64) -> float64, of every two: r cos t, then r sin t, by the C library
    random.choice_f32       (words int64; threshold, value) -> float32: value where the lowest 53 bits are below the threshold, else 0
    random.exponential_f32  (words int64; scale) -> float32: scale log(1 - u), computed in float64
    random.race_f32         (words int64, weights float32) -> float32: weight / -log(1 - u)
    random.integers32_uint8 (words int32, span int64, low int64) -> uint8: low + word % span, and so for every dtype; integers64 of words int64
    random.libm_cos ...     float64 -> float64

sampling.py runs them through the launcher like any other kernel. Their formulas are those of vecmath/random_numbers.py.
"""

from __future__ import annotations

from flambeau.kernels.language.print_c import ENUM, TYPES, CPrinter
from flambeau.kernels.language.vecmath.random_numbers import LIBM

REALS = {"f32": ("float", "int32_t", "FL_F32"), "f64": ("double", "int64_t", "FL_F64")}


def table() -> tuple[list[str], list[str], list[str]]:
    """(C texts, declarations, rows of the launcher's table)."""
    loops: list[tuple[str, str, int, str, tuple[str, ...]]] = []  # name, text, number of parameters, dtypes of the result and of operands
    for kind, (real, word, real_type) in REALS.items():
        loops.append((f"uniform_{kind}", _uniform(kind, real, word), 2, real_type, (real_type,)))
        loops.append((f"normal_{kind}", _normal(kind, real, word), 2, real_type, (real_type,)))
        loops.append((f"choice_{kind}", _choice(kind, real), 2, real_type, ("FL_I64",)))
        loops.append((f"exponential_{kind}", _exponential(kind, real), 1, real_type, ("FL_I64",)))
        loops.append((f"race_{kind}", _race(kind, real), 0, real_type, ("FL_I64", real_type)))
    loops.append(("pairs", _pairs(), 0, "FL_F64", ("FL_F64",)))
    for dtype in TYPES:
        loops += [(f"integers{b}_{dtype}", _integers(b, dtype), 0, ENUM[dtype], (f"FL_I{b}", "FL_I64", "FL_I64")) for b in (32, 64)]
    loops += [(f"libm_{name}", _libm(name), 0, "FL_F64", ("FL_F64",)) for name in LIBM]
    rows = [
        f'{{"random.{name}", FL_NAME(random_{name}), {out}, {len(operands)}, {n}, 0, {out}, {{{", ".join(operands)}}}}}'
        for name, _, n, out, operands in loops
    ]
    return [loop[1] for loop in loops], [f"void {_signature(loop[0])};\n" for loop in loops], rows


def _signature(name: str) -> str:
    return f"FL_NAME(random_{name})(char *const *ptr, const int64_t *step, int64_t n, const double *param)"


def _head(name: str, real: str, *sources: str, single: int = 0) -> str:
    """The beginning of a loop: operands that are not contiguous go through buffers, but for the last ones, which are single numbers."""
    types = (real, *sources)
    strided = " || ".join(f"step[{i}] != sizeof({t})" for i, t in enumerate(types[: len(types) - single]))
    sizes = ", ".join(f"sizeof({t})" for t in types)
    operands = "".join(f"    const {t} *const {'abc'[i]} = (const {t} *)ptr[{i + 1}];\n" for i, t in enumerate(sources))
    return f"""void {_signature(name)} {{
    if ({strided}) {{
        FL_NAME(fl_in_blocks)(FL_NAME(random_{name}), ptr, step, n, param, {len(types)}, (const uint8_t[]){{{sizes}}});
        return;
    }}
    {real} *const o = ({real} *)ptr[0];
{operands}"""


def _uniform(kind: str, real: str, word: str) -> str:
    return f"""{_head(f"uniform_{kind}", real, real)}    const {word} *const words = (const {word} *)a;
    const {real} low = ({real})param[0], high = ({real})param[1];
    FL_IVDEP for (int64_t i = 0; i < n; i++) o[i] = fl_uniform_{kind}(words[i], low, high);
}}
"""


def _normal(kind: str, real: str, word: str) -> str:
    return f"""{_head(f"normal_{kind}", real, real)}    const {word} *const words = (const {word} *)a;
    const {real} mean = ({real})param[0], std = ({real})param[1];
    for (int64_t block = 0; block + 16 <= n; block += 16)
        FL_COUNTED for (int64_t i = block; i < block + 8; i++) {{
            const {real} u = fl_uniform_{kind}(words[i], 0, 1), v = fl_uniform_{kind}(words[i + 8], 0, 1);
            o[i] = fl_normal_cos_{kind}(u, v, mean, std), o[i + 8] = fl_normal_sin_{kind}(u, v, mean, std);
        }}
}}
"""


def _pairs() -> str:
    return f"""{_head("pairs", "double", "double")}    (void)param;
    for (int64_t i = 0; i + 2 <= n; i += 2) {{
        const double radius = sqrt(-2.0 * log1p(-a[i + 1])), theta = 6.283185307179586 * a[i];
        o[i] = radius * cos(theta), o[i + 1] = radius * sin(theta);
    }}
}}
"""


def _choice(kind: str, real: str) -> str:
    return f"""{_head(f"choice_{kind}", real, "int64_t")}    const int64_t threshold = (int64_t)param[0];
    const {real} value = ({real})param[1];
    FL_IVDEP for (int64_t i = 0; i < n; i++) o[i] = (a[i] & 0x1FFFFFFFFFFFFF) < threshold ? value : 0;
}}
"""


def _exponential(kind: str, real: str) -> str:
    return f"""{_head(f"exponential_{kind}", real, "int64_t")}    for (int64_t i = 0; i < n; i++) o[i] = ({real})(param[0] * log1p(-fl_uniform_f64(a[i], 0, 1)));
}}
"""


def _integers(bits: int, dtype: str) -> str:
    """All arithmetic wraps around at 2^64. A span of 0 stands for 2^64; the quotient by its inverse is right or short by one."""
    storage = TYPES[dtype][1]
    if bits == 32:
        take = "const uint64_t r = fl_word_modulo(a[i], whole);"
    else:
        take = """const uint64_t word = (uint64_t)a[i], q = (uint64_t)((unsigned __int128)word * inverse >> 64) * span;
        const uint64_t r = word - q >= span ? word - q - span : word - q;"""
    known = "const double whole = (double)span;" if bits == 32 else "const uint64_t inverse = span ? UINT64_MAX / span : 0;"
    return f"""{_head(f"integers{bits}_{dtype}", storage, f"int{bits}_t", "int64_t", "int64_t", single=2)}    (void)param;
    const uint64_t span = (uint64_t)*b, low = (uint64_t)*c;
    {known}
    FL_IVDEP for (int64_t i = 0; i < n; i++) {{
        {take}
        o[i] = {CPrinter("int64").write(dtype, "(int64_t)(low + r)")};
    }}
}}
"""


def _race(kind: str, real: str) -> str:
    return f"""{_head(f"race_{kind}", real, "int64_t", real)}    (void)param;
    for (int64_t i = 0; i < n; i++) o[i] = b[i] / ({real})-log1p(-fl_uniform_f64(a[i], 0, 1));
}}
"""


def _libm(name: str) -> str:
    return f"""{_head(f"libm_{name}", "double", "double")}    (void)param;
    for (int64_t i = 0; i < n; i++) o[i] = {name}(a[i]);
}}
"""
