"""Formulas as C: one inner loop per formula and dtype, readable and named after its operation.

    void FL_NAME(silu_f32)(char *const *ptr, const int64_t *step, int64_t n, const double *param)

A loop comes in variants the launcher need not know of: everything contiguous (vectorised by the compiler), one operand a single number,
and any strides. Half precision is read into float32, computed there and rounded once when stored.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence

from flambeau.kernels.language.expr import LEAVES, NEAR, Expr, node, replace

# dtype name -> (suffix, storage type, compute type)
TYPES: dict[str, tuple[str, str, str]] = {
    "bool": ("b", "uint8_t", "uint8_t"),
    "uint8": ("u8", "uint8_t", "uint8_t"),
    "int8": ("i8", "int8_t", "int8_t"),
    "int16": ("i16", "int16_t", "int16_t"),
    "int32": ("i32", "int32_t", "int32_t"),
    "int64": ("i64", "int64_t", "int64_t"),
    "float16": ("f16", "uint16_t", "float"),
    "bfloat16": ("bf16", "uint16_t", "float"),
    "float32": ("f32", "float", "float"),
    "float64": ("f64", "double", "double"),
}
ENUM = {"bool": "FL_BOOL", "uint8": "FL_U8", "int8": "FL_I8", "int16": "FL_I16", "int32": "FL_I32", "int64": "FL_I64"}
ENUM |= {"float16": "FL_F16", "bfloat16": "FL_BF16", "float32": "FL_F32", "float64": "FL_F64"}
FLOATS = ("float16", "bfloat16", "float32", "float64")

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "&", "or": "|", "xor": "!=", "bitand": "&", "bitor": "|", "bitxor": "^",
}  # fmt: skip


class CPrinter:
    """Prints formulas for one dtype. A printer for another C-like language overrides the tables and `call`."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.suffix, self.storage, self.compute = TYPES[dtype]
        self.is_float = dtype in FLOATS

    # -- values

    def ctype_of_kind(self, kind: str) -> str:
        return {"T": self.compute, "wide": self.compute, "bool": "int", "i64": "int64_t", "f32": "float", "f64": "double"}[kind]

    def ctype(self, expr: Expr) -> str:
        return self.ctype_of_kind(expr.kind)

    def leaf(self, e: Expr) -> str:
        """What an expression reads. In a loop, `i` is the place of `n` along the row."""
        return "i" if e.op == "position" else f"(({self.compute})n)" if e.op == "extent" else repr(e)

    def constant(self, e: Expr) -> str:
        return str(int(e.value)) if e.kind == "i64" else self.literal(e.value)

    def literal(self, value) -> str:
        if isinstance(value, bool):
            return str(int(value))
        if not self.is_float:
            return f"({self.compute})({int(value)}LL)" if value != -(2**63) else "INT64_MIN"
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return repr(float(value)) + ("f" if self.compute == "float" else "")

    def called(self, op: str) -> str:
        """The name of the function of this dtype, without the prefix all have."""
        return f"{op}_{'f32' if self.compute == 'float' else self.suffix}"

    def call(self, name: str, *args: str) -> str:
        """The call of a mathematical function of this dtype."""
        return f"fl_{self.called(name)}({', '.join(args)})"

    def apply(self, expr: Expr, args: list[str]) -> str:
        """One primitive, its arguments already printed."""
        op = expr.op
        if op == "pick":
            return self.picked(expr.value, *args)
        if op in INFIX:
            return f"({args[0]} {INFIX[op]} {args[1]})"
        custom = getattr(self, f"print_{op}", None)
        if custom is not None:
            return custom(*args)
        return self.call(op, *args)

    def picked(self, operand: int, at: str) -> str:
        """An element of a row, which begins at a0, a1 ... and has n of them."""
        return f"(({at}) >= 0 && ({at}) < n ? {self.read('T', f'a{operand}[{at}]')} : NAN)"

    def print_neg(self, x):
        return f"(-{x})"

    def print_not(self, x):
        return f"(!{x})"

    def print_bitnot(self, x):
        return f"(!{x})" if self.dtype == "bool" else f"(~{x})"

    def print_conj(self, x):
        return x

    print_precise = print_conj  # a request to the printer of a whole loop, which has been heard by now

    def print_as_T(self, x):
        return f"(({self.compute}){x})"

    def print_as_bool(self, x):
        return f"({x} != 0)"

    def print_isnan(self, x):
        return f"({x} != {x})" if self.is_float else "0"

    def print_isinf(self, x):
        return f"({self.print_abs(x)} == INFINITY)" if self.is_float else "0"

    def print_where(self, c, a, b):
        return f"({c} ? {a} : {b})"

    def print_abs(self, x):
        if self.is_float:
            return f"{'fabsf' if self.compute == 'float' else 'fabs'}({x})"
        return x if self.compute.startswith("u") else f"({x} < 0 ? -{x} : {x})"

    def print_sgn(self, x):
        return f"(({self.compute})(({x} > 0) - ({x} < 0)))"

    def rounding(name):
        """Integers are whole already."""
        return lambda self, x: self.call(name, x) if self.is_float else x

    print_floor, print_ceil, print_trunc, print_rint = map(rounding, ("floor", "ceil", "trunc", "rint"))  # type: ignore[arg-type]
    del rounding

    def print_reciprocal(self, x):
        return f"(1 / {x})"

    def print_maximum(self, a, b):
        return f"({a} > {b} || {a} != {a} ? {a} : {b})" if self.is_float else f"({a} > {b} ? {a} : {b})"

    def print_minimum(self, a, b):
        return f"({a} < {b} || {a} != {a} ? {a} : {b})" if self.is_float else f"({a} < {b} ? {a} : {b})"

    def print_sqrt(self, x):
        return f"{'sqrtf' if self.compute == 'float' else 'sqrt'}({x})"

    def print_rsqrt(self, x):
        return f"(1 / {self.print_sqrt(x)})"

    def print_copysign(self, a, b):
        return f"{'copysignf' if self.compute == 'float' else 'copysign'}({a}, {b})"

    def print_nextafter(self, a, b):
        return f"{'nextafterf' if self.compute == 'float' else 'nextafter'}({a}, {b})"

    # -- a formula as statements

    def body(self, expr: Expr) -> tuple[list[str], str]:
        """Statements that name what is used more than once, and the final value."""
        lines, values = self.bodies((expr,))
        return lines, values[0]

    def bodies(self, exprs: Sequence[Expr]) -> tuple[list[str], list[str]]:
        """The same for several values that share their statements."""
        uses: dict[Expr, int] = {}
        order: list[Expr] = []
        for expr in exprs:
            _count(expr, uses, order)
        chosen = {a for e in order if e.op == "where" for a in e.args[1:]}
        names: dict[Expr, str] = {}
        lines: list[str] = []
        for e in order:
            if e.op in LEAVES:
                names[e] = self.leaf(e)
            elif e.op == "const":
                names[e] = self.constant(e)
            else:
                text = self.apply(e, [names[a] for a in e.args])
                if uses[e] > 1 or self.is_named(e, text, e in chosen):
                    names[e] = f"t{len(lines)}"
                    lines.append(f"const {self.ctype(e)} {names[e]} = {text};")
                else:
                    names[e] = text
        return lines, [names[expr] for expr in exprs]

    def is_named(self, e: Expr, text: str, chosen: bool) -> bool:
        """Whether a value gets a name though it is used once. `chosen`: it is one side of a `where`."""
        return self._wraps(e)

    def _wraps(self, e: Expr) -> bool:
        # Narrow integers are computed in int by C's rules: naming the value makes it wrap around as PyTorch's does.
        return e.kind == "T" and not self.is_float and self.dtype not in ("int32", "int64") and e.op not in ("where",)

    # -- loading and storing

    def read(self, kind: str, text: str) -> str:
        if kind != "T":
            return text
        if self.dtype in ("float16", "bfloat16"):
            return f"fl_{self.suffix}_to_f32({text})"
        return text

    def write(self, out: str, text: str) -> str:
        if out in ("float16", "bfloat16"):
            return f"fl_f32_to_{TYPES[out][0]}({text})"
        if out == "bool":
            return f"(uint8_t)(({text}) != 0)"
        if out in ("uint8", "int8", "int16") and self.is_float:
            return f"({TYPES[out][1]})(int32_t)({text})"  # C leaves open what is out of range: compilers would differ
        return f"({TYPES[out][1]})({text})"


class LoopPrinter(CPrinter):
    """Prints formulas for loops that are to become SIMD code: without branches."""

    def is_named(self, e: Expr, text: str, chosen: bool) -> bool:
        # What is computed before it is chosen needs no branch. Not for integers: a division that is not wanted could trap.
        return self._wraps(e) or (chosen and self.is_float)

    def print_maximum(self, a, b):
        return self.call("maximum", a, b) if self.is_float else super().print_maximum(a, b)

    def print_minimum(self, a, b):
        return self.call("minimum", a, b) if self.is_float else super().print_minimum(a, b)

    def print_nextafter(self, a, b):
        return self.call("nextafter", a, b)


def inline(name: str, result: str, parameters: list[str], printer: CPrinter, formula: Expr) -> str:
    """A C function of the formula."""
    lines, value = printer.body(formula)
    body = "".join(f"    {line}\n" for line in lines)
    used = "".join(f"    (void){p.split()[-1]};\n" for p in parameters)
    return f"static inline {result} {name}({', '.join(parameters)}) {{\n{used}{body}    return {value};\n}}"


def _count(expr: Expr, uses: dict[Expr, int], order: list[Expr]) -> None:
    uses[expr] = uses.get(expr, 0) + 1
    if uses[expr] == 1:
        for a in expr.args:
            _count(a, uses, order)
        order.append(expr)


def storage_of(kind: str, dtype: str) -> str:
    """The C type in memory of an operand of this kind."""
    return TYPES[operand_dtype(kind, dtype)][1]


def operand_dtype(kind: str, dtype: str) -> str:
    """The dtype an operand of this kind has in the instance for `dtype`."""
    wide = "float64" if dtype == "float64" else "float32"
    return {"T": dtype, "wide": wide, "bool": "bool", "i64": "int64", "f32": "float32", "f64": "float64"}[kind]


def print_loop(function: str, expr: Expr, kinds: tuple[str, ...], n_param: int, dtype: str, out: str) -> str:
    """The C of one inner loop. `kinds` are the operands' ("f32": a number that is not rounded to `dtype`), `out` the dtype of the result."""
    p = LoopPrinter(dtype)
    inputs = [f"{p.ctype_of_kind(k)} x{i}" for i, k in enumerate(kinds)]
    params = [f"{p.compute} p{i}" for i in range(n_param)]
    numbers = [i for i, kind in enumerate(kinds) if kind == "f32"]
    forms = {"one": expr} | near_forms(p, expr)
    ones = ""
    for form, formula in forms.items():
        lines, value = p.body(formula)
        result = p.compute if formula.kind == "T" else "int"
        ones += f"static inline {result} {function}_{form}({', '.join(inputs + params)}) {{\n"
        ones += "".join(f"    {line}\n" for line in lines) + f"    return {value};\n}}\n"
    scalars: Sequence[tuple[int, ...]] = [(i,) for i in numbers]
    if dtype in ("float32", "float64") and not is_dear(expr):
        scalars = [(0,), (1,)] if len(kinds) == 2 else [(1, 2)] if len(kinds) == 3 else []
    elif dtype in ("float16", "bfloat16") and not numbers and not is_dear(expr):
        scalars = [(1,)] if len(kinds) == 2 else [(1, 2)] if len(kinds) == 3 else []
    if expr.op == "load" and (dtype, out) in CONVERSIONS:
        return _conversion(function, p.storage, TYPES[out][1], CONVERSIONS[dtype, out])
    return ones + "".join(_loops(p, function, kinds, n_param, out, scalars, "near" in forms))


def near_forms(p: CPrinter, expr: Expr) -> dict[str, Expr]:
    """The formula for usual arguments and the question whether they are such, if a function in it has a faster form for them.

    Not where finding that out means computing another function twice.
    """
    order: list[Expr] = []
    _count(expr, {}, order)
    found = [x for x in order if p.called(x.op) in NEAR]
    if not found or any(is_dear(a) for x in found for a in x.args):
        return {}
    are_near = [node(f"{x.op}_is_near", *x.args) for x in found]
    near = replace(expr, {x: node(f"{x.op}_near", *x.args) for x in found})
    return {"near": near, "is_near": functools.reduce(operator.and_, are_near)}


def loop_name(name: str, kinds: tuple[str, ...], dtype: str) -> str:
    """The name of the loop of a kernel for one dtype."""
    return f"{name}_{TYPES[dtype][0]}{'_number' if 'f32' in kinds else ''}"


def is_dear(expr: Expr) -> bool:
    """Whether a formula calls a mathematical function, which takes long to compute, and to compile."""
    order: list[Expr] = []
    _count(expr, {}, order)
    return any(e.args and e.op not in INFIX and not hasattr(CPrinter, f"print_{e.op}") for e in order)


def _loops(p: CPrinter, function: str, kinds: tuple[str, ...], n_param: int, out: str, scalars, near: bool) -> Iterator[str]:
    """The loop over contiguous operands, those where the operands of one of `scalars` are single numbers, and the way there for any strides."""
    types = [TYPES[out][1], *(storage_of(k, p.dtype) for k in kinds)]
    halves = [i for i, kind in enumerate(kinds) if kind == "T" and p.dtype == "float16"]
    blocks = bool(halves) or out == "float16"  # Note [float16 in blocks]
    yield CONVERT if blocks else ""
    yield f"void FL_NAME({function})(char *const *ptr, const int64_t *step, int64_t n, const double *param) {{\n"
    for i in range(n_param):
        yield f"    const {p.compute} p{i} = ({p.compute})param[{i}];\n"
    if not n_param:
        yield "    (void)param;\n"
    yield f"    {types[0]} *{'' if blocks else 'const '}o = ({types[0]} *)ptr[0];\n"
    for i, t in enumerate(types[1:]):
        yield f"    const {t} *{'' if blocks else 'const '}a{i} = (const {t} *)ptr[{i + 1}];\n"
    for single in ((), *scalars):
        steps = ["0" if i - 1 in single else f"sizeof({t})" for i, t in enumerate(types)]
        yield f"    if ({' && '.join(f'step[{i}] == {size}' for i, size in enumerate(steps))}) {{\n"
        for scalar in single:
            yield f"        const {p.ctype_of_kind(kinds[scalar])} x{scalar} = {p.read(kinds[scalar], f'*a{scalar}')};\n"
        wide = [i for i in halves if i not in single]
        args = [f"x{i}" if i in single else f"w{i}[i]" if i in wide else p.read(k, f"a{i}[i]") for i, k in enumerate(kinds)]
        arguments = ", ".join(args + [f"p{i}" for i in range(n_param)])
        ones = {form: f"{function}_{form}({arguments})" for form in ("one", "near")}
        loops = {form: f"w[i] = (float){one};" if out == "float16" else f"o[i] = {p.write(out, one)};" for form, one in ones.items()}
        if blocks:
            yield "        for (int64_t m; n > 0; n -= m) {\n            m = n < FL_BLOCK ? n : FL_BLOCK;\n"
            yield from (f"            FL_ALIGNED float w{i}[FL_BLOCK];\n            FL_NAME(fl_widen)(w{i}, a{i}, m);\n" for i in wide)
            yield "            FL_ALIGNED float w[FL_BLOCK];\n" if out == "float16" else ""
        n = "m" if blocks else "n"
        if near:
            yield BY_BLOCKS.format(is_near=f"{function}_is_near({arguments})", n=n, **loops)
        else:
            yield f"        FL_IVDEP for (int64_t i = 0; i < {n}; i++) {loops['one']}\n"
        if blocks:
            yield "            FL_NAME(fl_narrow)(o, w, m);\n" if out == "float16" else ""
            yield f"            o += m; {' '.join(f'a{i} += m;' for i in range(len(kinds)) if i not in single)}\n        }}\n"
        yield "        return;\n    }\n"
    yield _any_strides(function, types)


def _conversion(function: str, read: str, written: str, called: str) -> str:
    """The loop that does nothing but convert."""
    return f"""{CONVERT}void FL_NAME({function})(char *const *ptr, const int64_t *step, int64_t n, const double *param) {{
    (void)param;
    if (step[0] == sizeof({written}) && step[1] == sizeof({read})) {{
        FL_NAME({called})(({written} *)ptr[0], (const {read} *)ptr[1], n);
        return;
    }}
{_any_strides(function, [written, read])}"""


def _any_strides(function: str, types: list[str]) -> str:
    sizes = ", ".join(f"sizeof({t})" for t in types)
    return f"    FL_NAME(fl_in_blocks)(FL_NAME({function}), ptr, step, n, param, {len(types)}, (const uint8_t[]){{{sizes}}});\n}}\n"


# Note [float16 in blocks]
# Compilers do not find the instructions that convert whole vectors of float16 by themselves, and the formulas of vecmath/halves.py, which leave
# the same of a NaN, take longer than most work. So a block is widened to float32, worked on there, and narrowed.
CONVERSIONS = {("float32", "float16"): "fl_narrow", ("float16", "float32"): "fl_widen"}
CONVERT = """void FL_NAME(fl_widen)(float *, const uint16_t *, int64_t);
void FL_NAME(fl_narrow)(uint16_t *, const float *, int64_t);
"""

# The loop for usual arguments wherever a whole block of them is usual.
BY_BLOCKS = """        for (int64_t begin = 0, end; begin < {n}; begin = end) {{
            end = {n} - begin < 4 * FL_BLOCK ? {n} : begin + 4 * FL_BLOCK;
            int all_near = 1;
            for (int64_t i = begin; i < end; i++) all_near &= {is_near};
            if (all_near) FL_IVDEP for (int64_t i = begin; i < end; i++) {near}
            else FL_IVDEP for (int64_t i = begin; i < end; i++) {one}
        }}
"""

# Any strides: what is not contiguous goes through buffers, so that each loop is compiled once, and runs as SIMD code for all.
IN_BLOCKS = """
#ifdef __F16C__
#include <immintrin.h>
#endif
void FL_NAME(fl_widen)(float *o, const uint16_t *x, int64_t n) {
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(o + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(x + i))));
#endif
    FL_IVDEP for (; i < n; i++) o[i] = fl_f16_to_f32(x[i]);
}
void FL_NAME(fl_narrow)(uint16_t *o, const float *x, int64_t n) {
    int64_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= n; i += 8) _mm_storeu_si128((__m128i *)(o + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0));
#endif
    FL_IVDEP for (; i < n; i++) o[i] = fl_f32_to_f16(x[i]);
}
typedef struct { uint64_t re, im; } fl_pair;
#define COPY(T) do { \\
    T *const o = (T *)to; \\
    const T *const x = (const T *)from; \\
    const int64_t one = sizeof(T); \\
    if (to_step == one && from_step == -one) FL_IVDEP for (int64_t i = 0; i < n; i++) o[i] = x[-i]; \\
    else if (to_step == one && from_step == 2 * one) FL_IVDEP for (int64_t i = 0; i < n; i++) o[i] = x[2 * i]; \\
    else for (int64_t i = 0; i < n; i++) *(T *)(to + i * to_step) = *(const T *)(from + i * from_step); } while (0)
void FL_NAME(fl_copy)(int size, char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n) {
    if (size == 4) COPY(uint32_t);
    else if (size == 8) COPY(uint64_t);
    else if (size == 2) COPY(uint16_t);
    else if (size == 16) COPY(fl_pair);
    else COPY(uint8_t);
}
void FL_NAME(fl_in_blocks)(fl_loop loop, char *const *ptr, const int64_t *step, int64_t n, const double *param, int operands, const uint8_t *size) {
    uint64_t buffer[1 + FL_MAX_IN][FL_BLOCK];
    int64_t block = FL_BLOCK;
    for (int k = 0; k < operands; k++)
        if (size[k] > sizeof buffer[0][0]) block = FL_BLOCK / 2; /* complex128 */
    for (int64_t done = 0; done < n; done += block) {
        const int64_t m = n - done < block ? n - done : block;
        char *at[1 + FL_MAX_IN];
        int64_t dense[1 + FL_MAX_IN];
        for (int k = 0; k < operands; k++) {
            dense[k] = size[k];
            at[k] = step[k] == size[k] ? ptr[k] + done * size[k] : (char *)buffer[k];
            if (k && step[k] != size[k] && (step[k] || !done)) FL_NAME(fl_copy)(size[k], at[k], size[k], ptr[k] + done * step[k], step[k], m);
        }
        loop(at, dense, m, param);
        if (step[0] != size[0]) FL_NAME(fl_copy)(size[0], ptr[0] + done * step[0], step[0], at[0], size[0], m);
    }
}
"""
