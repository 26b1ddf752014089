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

from collections.abc import Callable
from functools import partial

from flambeau.kernels.language import expr as e
from flambeau.kernels.language.print_c import TYPES, CPrinter
from flambeau.kernels.language.print_table import PARAMETERS, Table
from flambeau.kernels.language.vecmath import random_numbers as formulas
from flambeau.kernels.language.vecmath.printing import CTYPES, MachinePrinter

REALS = {"f32": "i32", "f64": "i64"}  # kinds, and those of their words


def table() -> Table:
    loops = Table()

    def add(name: str, text: str, out: str, operands: str, numbers: int = 0) -> None:
        loops.texts.append(text)
        loops.add(f"random.{name}", f"random_{name}", out, operands, numbers)

    for kind, word in REALS.items():
        add(f"uniform_{kind}", _each(f"uniform_{kind}", formulas.uniform, kind, (word,), (kind, kind)), kind, kind, 2)
        add(f"normal_{kind}", _normal(kind, word), kind, kind, 2)
        add(f"choice_{kind}", _each(f"choice_{kind}", formulas.choice, kind, ("i64",), ("i64", kind)), kind, "i64", 2)
        exponential, race = (partial(f, kind=kind) for f in (formulas.exponential, formulas.race))
        add(f"exponential_{kind}", _each(f"exponential_{kind}", exponential, kind, ("i64",), ("f64",)), kind, "i64", 1)
        add(f"race_{kind}", _each(f"race_{kind}", race, kind, ("i64", kind)), kind, f"i64 {kind}")
    add("pairs", _pairs(), "f64", "f64")
    for dtype in TYPES:
        for word, formula in (("i32", formulas.integer), ("i64", formulas.long_integer)):
            name = f"integers{word[1:]}_{dtype}"
            add(name, _each(name, formula, dtype, (word, "i64", "i64"), single=2), dtype, f"{word} i64 i64")
    for name in formulas.LIBM:
        add(f"libm_{name}", _each(f"libm_{name}", partial(formulas.libm, name), "f64", ("f64",)), "f64", "f64")
    return loops


def _each(name: str, formula: Callable, out: str, operands: tuple[str, ...], numbers: tuple[str, ...] = (), single: int = 0) -> str:
    """The loop of a formula over machine types, of so many operands and then of numbers. The last operands may be `single` numbers, too."""
    kinds = (*operands, *numbers)
    each = len(operands) - single
    lines, value = MachinePrinter().body(e.lift(formula(*[e.load(i, kind) for i, kind in enumerate(kinds)])))
    fixed = [f"const {CTYPES[k]} x{i} = *a{i};" for i, k in enumerate(operands) if i >= each]
    fixed += [f"const {CTYPES[k]} x{i} = ({CTYPES[k]})param[{i - len(operands)}];" for i, k in enumerate(kinds) if i >= len(operands)]
    reads = [f"const {CTYPES[operands[i]]} x{i} = a{i}[i];" for i in range(each)]
    stored = value if out in REALS else CPrinter("int64").write(out, value)
    return f"""{_head(name, out, operands, single)}    {" ".join(fixed)}
    (void)param;
    FL_IVDEP for (int64_t i = 0; i < n; i++) {{ {" ".join([*reads, *lines])} o[i] = {stored}; }}
}}
"""


def _head(name: str, out: str, operands: tuple[str, ...], single: int = 0) -> str:
    """The beginning of a loop: operands that are not contiguous go through buffers, but for the last ones, which are single numbers."""
    types = [TYPES[out][1] if out in TYPES else CTYPES[out], *(CTYPES[kind] for kind in operands)]
    strided = " || ".join(f"step[{i}] != sizeof({t})" for i, t in enumerate(types[: len(types) - single]))
    sizes = ", ".join(f"sizeof({t})" for t in types)
    pointers = "".join(f"    const {t} *const a{i} = (const {t} *)ptr[{i + 1}];\n" for i, t in enumerate(types[1:]))
    return f"""void FL_NAME(random_{name}){PARAMETERS} {{
    if ({strided}) {{
        FL_NAME(fl_in_blocks)(FL_NAME(random_{name}), ptr, step, n, param, {len(types)}, (const uint8_t[]){{{sizes}}});
        return;
    }}
    {types[0]} *const o = ({types[0]} *)ptr[0];
{pointers}"""


def _normal(kind: str, word: str) -> str:
    real = CTYPES[kind]
    return f"""{_head(f"normal_{kind}", kind, (word,))}    const {real} mean = ({real})param[0], std = ({real})param[1];
    for (int64_t block = 0; block + 16 <= n; block += 16)
        FL_COUNTED for (int64_t i = block; i < block + 8; i++) {{
            const {real} u = fl_uniform_{kind}(a0[i], 0, 1), v = fl_uniform_{kind}(a0[i + 8], 0, 1);
            o[i] = fl_normal_cos_{kind}(u, v, mean, std), o[i + 8] = fl_normal_sin_{kind}(u, v, mean, std);
        }}
}}
"""


def _pairs() -> str:
    return f"""{_head("pairs", "f64", ("f64",))}    (void)param;
    for (int64_t i = 0; i + 2 <= n; i += 2) {{
        const double radius = sqrt(-2.0 * log1p(-a0[i + 1])), theta = 6.283185307179586 * a0[i];
        o[i] = radius * cos(theta), o[i + 1] = radius * sin(theta);
    }}
}}
"""
