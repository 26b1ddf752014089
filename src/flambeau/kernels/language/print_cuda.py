"""Formulas as CUDA C++: one kernel per formula, dtype and shape of work, readable and named after its operation.

The printer is the C printer with a few entries changed: functions have CUDA's names, and complex numbers exist (those of CuPy's header).
A kernel comes in two forms:

    packed    every operand is contiguous along the innermost dimension, or one number there: a thread moves 16 bytes at once
    strided   any strides: a thread finds its element by dividing its number by the sizes of the dimensions

In both an operand may be an array, a single element of memory ("one"), or a number handed over with the launch ("number").
Half precision is read into float32, computed there and rounded once when stored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from flambeau.kernels.language import print_c
from flambeau.kernels.language.expr import Expr

# dtype name -> (suffix, storage type, compute type)
TYPES = print_c.TYPES | {
    "uint16": ("u16", "uint16_t", "uint16_t"),
    "uint32": ("u32", "uint32_t", "uint32_t"),
    "uint64": ("u64", "uint64_t", "uint64_t"),
    "complex64": ("c64", "complex<float>", "complex<float>"),
    "complex128": ("c128", "complex<double>", "complex<double>"),
}
HALVES = {"float16": "f16", "bfloat16": "bf16"}
COMPLEX = {"complex64": "float", "complex128": "double"}
NARROW = ("int8", "uint8", "int16", "uint16")  # a float is converted to these through int64, so that it wraps around

MAX_DIMS = 10  # of the loops left after collapsing; where there are more, the launcher goes piece by piece
THREADS = 256
ARRAY, ONE, NUMBER = "array", "one", "number"

# Functions of CUDA's math library: with an f behind their name they take floats.
LIBRARY = frozenset("""exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv
lgamma floor ceil trunc rint atan2 hypot rsqrt""".split())  # fmt: skip


@dataclass(frozen=True)
class Instance:
    """One kernel to print: what is read as what, and how the work is laid out.

    modes   per operand: array, one or number
    flat    packed form only: whether each operand is an array along the innermost dimension (else one number there)
    pack    elements per thread; 0 for the strided form
    wide    whether positions need 64 bits
    """

    name: str
    expr: Expr
    kinds: tuple[str, ...]
    n_param: int
    dtype: str
    out: str
    modes: tuple[str, ...]
    flat: tuple[bool, ...] = ()
    pack: int = 0
    wide: bool = False

    @property
    def function(self) -> str:
        return f"fl_{self.name}_{TYPES[self.dtype][0]}"


class CudaPrinter(print_c.CPrinter):
    """Prints formulas over real numbers, integers and truth values."""

    def __init__(self, dtype: str):
        self.dtype = dtype
        self.suffix, self.storage, self.compute = TYPES[dtype]
        self.is_float = dtype in print_c.FLOATS

    def call(self, name: str, *args: str) -> str:
        listed = ", ".join(args)
        if self.is_float and name in LIBRARY:
            return f"{name}{'f' if self.compute == 'float' else ''}({listed})"
        return f"fl_{name}<{self.compute}>({listed})"

    def print_rsqrt(self, x):
        return self.call("rsqrt", x)

    def print_copysign(self, a, b):
        return super().print_copysign(a, b) if self.is_float else f"copysign((double){a}, (double){b})"

    def number(self, name: str) -> str:
        """A number handed over with the launch, in the type of the computation."""
        return f"({self.compute}){name}"

    def stored(self, out: str, text: str, kind: str) -> str:
        """A computed value of some kind as the dtype of the result."""
        if out in COMPLEX:
            return f"{TYPES[out][1]}(({COMPLEX[out]})({text}))"
        if out in NARROW and self.is_float and kind == "T":
            return f"({TYPES[out][1]})(int64_t)({text})"
        if out in HALVES:
            return f"fl_f32_to_{HALVES[out]}((float)({text}))"
        if out == "bool":
            return f"(uint8_t)(({text}) != 0)"
        return f"({TYPES[out][1]})({text})"


class ComplexPrinter(CudaPrinter):
    """Prints formulas over complex numbers. Comparisons look at the real part first, then at the imaginary one, as NumPy's do."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.real = COMPLEX[dtype]

    def literal(self, value) -> str:
        if isinstance(value, bool):
            return str(int(value))
        parts = [_real_literal(p, self.real) for p in (complex(value).real, complex(value).imag)]
        return f"{self.compute}({', '.join(parts)})"

    def call(self, name: str, *args: str) -> str:
        # The namespace is written out: for a float argument the overload for real numbers would be found instead.
        return f"{'fl_c' if name in OWN_COMPLEX else ''}{name}({', '.join(args)})"

    def apply(self, expr: Expr, args: list[str]) -> str:
        own = COMPLEX_FORMS.get(expr.op)
        return super().apply(expr, args) if own is None else own.format(*args, T=self.compute, real=self.real)

    def _wraps(self, e: Expr) -> bool:
        return False

    def number(self, name: str) -> str:
        return f"{self.compute}(({self.real}){name}, ({self.real}){name}_imag)"

    def stored(self, out: str, text: str, kind: str) -> str:
        if kind != "T":
            return CudaPrinter("float64").stored(out, text, kind)
        if out in COMPLEX:
            return f"{TYPES[out][1]}({text})"
        if out == "bool":
            return f"(uint8_t)(({text}) != {self.compute}(0))"
        return CudaPrinter("float32" if self.real == "float" else "float64").stored(out, f"({text}).real()", kind)


OWN_COMPLEX = frozenset({"exp2", "expm1", "log1p", "log2", "sigmoid"})
COMPLEX_FORMS = {
    "lt": "fl_clt({0}, {1})", "le": "fl_cle({0}, {1})", "gt": "fl_clt({1}, {0})", "ge": "fl_cle({1}, {0})", "isnan": "fl_cisnan({0})",
    "isinf": "fl_cisinf({0})", "sgn": "fl_csgn({0})", "abs": "{T}(abs({0}))", "as_T": "{T}(({real}){0})", "as_bool": "({0} != {T}(0))",
    "conj": "conj({0})", "sqrt": "sqrt({0})", "rsqrt": "({T}(1) / sqrt({0}))", "reciprocal": "({T}(1) / {0})",
}  # fmt: skip


def _real_literal(value: float, real: str) -> str:
    if math.isnan(value):
        return f"({real})NAN"
    if math.isinf(value):
        return f"({real})INFINITY" if value > 0 else f"-({real})INFINITY"
    return repr(value) + ("f" if real == "float" else "")


def printer(dtype: str) -> CudaPrinter:
    """The printer for formulas computed in this dtype."""
    return ComplexPrinter(dtype) if dtype in COMPLEX else CudaPrinter(dtype)


# -- whole kernels -----------------------------------------------------------------------------------------------------


def print_kernel(instance: Instance) -> str:
    """The CUDA C++ of one kernel: the formula as a function of one element, and the kernel that applies it."""
    p = printer(instance.dtype)
    lines, value = p.body(instance.expr)
    inputs = [f"{p.ctype_of_kind(k)} x{i}" for i, k in enumerate(instance.kinds)]
    inputs += [f"{p.compute} p{i}" for i in range(instance.n_param)]
    result = p.ctype(instance.expr)
    body = "".join(f"    {line}\n" for line in lines)
    one = f"__device__ inline {result} formula({', '.join(inputs)}) {{\n{body}    return {value};\n}}\n"
    header = '#include "cupy/complex.cuh"\n' + PREAMBLE + COMPLEX_PREAMBLE if uses_complex(instance) else PREAMBLE
    return header + one + (_packed(instance, p) if instance.pack else _strided(instance, p))


def uses_complex(instance: Instance) -> bool:
    """Whether a kernel reads, computes or stores complex numbers, and so needs CuPy's header."""
    return instance.dtype in COMPLEX or instance.out in COMPLEX


def storage_of(instance: Instance, operand: int) -> str:
    """The C type in memory of an operand."""
    return TYPES[print_c.operand_dtype(instance.kinds[operand], instance.dtype)][1]


def _parameters(instance: Instance) -> list[str]:
    """The kernel's parameters, in the order the launcher hands them over: result, operands, options."""
    number = "long long" if not (instance.dtype in print_c.FLOATS or instance.dtype in COMPLEX) else "double"
    found = [f"{TYPES[instance.out][1]} *out"]
    for i, mode in enumerate(instance.modes):
        kind = instance.kinds[i]
        if mode != NUMBER:
            found.append(f"const {storage_of(instance, i)} *a{i}")
        elif kind == "T" and instance.dtype in COMPLEX:
            found += [f"double s{i}", f"double s{i}_imag"]
        else:
            found.append(f"{number if kind == 'T' else 'long long'} s{i}")
    for i in range(instance.n_param):
        found += [f"double q{i}", f"double q{i}_imag"] if instance.dtype in COMPLEX else [f"double q{i}"]
    return found


def _constants(instance: Instance, p: CudaPrinter) -> str:
    """What is the same for all elements: options, numbers, single elements of memory."""
    text = ""
    for i, mode in enumerate(instance.modes):
        kind = instance.kinds[i]
        if mode == NUMBER:
            value = p.number(f"s{i}") if kind == "T" else f"({p.ctype_of_kind(kind)})s{i}"
            if kind == "T" and p.dtype in HALVES and not _keeps_numbers(instance.expr):
                value = p.read(kind, p.write(p.dtype, value))
        elif mode == ONE:
            value = p.read(kind, f"*a{i}")
        else:
            continue
        text += f"    const {p.ctype_of_kind(kind)} x{i} = {value};\n"
    for i in range(instance.n_param):
        text += f"    const {p.compute} p{i} = {p.number(f'q{i}')};\n"
    return text


def _keeps_numbers(expr: Expr) -> bool:
    """Whether half precision computes with a Python number as it is. PyTorch does in sums, products and quotients; elsewhere it rounds."""
    return (expr.args[0] if expr.op == "trunc" else expr).op in ("add", "sub", "mul", "div", "floordiv")


def _call(instance: Instance, p: CudaPrinter, elements: dict[int, str]) -> str:
    """The stored result of the formula; `elements` are the texts that read the array operands."""
    args = [p.read(instance.kinds[i], elements[i]) if i in elements else f"x{i}" for i in range(len(instance.kinds))]
    args += [f"p{i}" for i in range(instance.n_param)]
    return p.stored(instance.out, f"formula({', '.join(args)})", instance.expr.kind)


def _packed(instance: Instance, p: CudaPrinter) -> str:
    """A thread computes `pack` neighbours. In one dimension the last few elements are computed one by one."""
    n, out_type = instance.pack, TYPES[instance.out][1]
    loaded = {i: instance.flat[i] for i, mode in enumerate(instance.modes) if mode == ARRAY}
    reads, elements, tail = "", {}, {}
    for i, flat in loaded.items():
        t = storage_of(instance, i)
        if flat:
            reads += f"    const Pack<{t}, {n}> v{i} = *(const Pack<{t}, {n}> *)(a{i} + at[{i + 1}]);\n"
            elements[i], tail[i] = f"v{i}.item[k]", f"a{i}[last]"
        else:
            reads += f"    const {t} v{i} = a{i}[at[{i + 1}]];\n"
            elements[i], tail[i] = f"v{i}", f"a{i}[0]"
    count = len(instance.modes) + 1
    # A position counts packs; along the innermost dimension a pack is `pack` elements, which the steps take into account.
    return f"""
extern "C" __global__ void __launch_bounds__({THREADS})
{instance.function}({", ".join(_parameters(instance))}, long long n, const __grid_constant__ Geometry<{count}, {_index(instance)}> g) {{
    const long long me = (long long)blockIdx.x * {THREADS} + threadIdx.x, whole = n / {n}, last = whole * {n} + (me - whole);
{_constants(instance, p)}    if (me >= whole) {{
        if (last < n) out[last] = {_call(instance, p, tail)};
        return;
    }}
    {_offset(instance)} at[{count}];
    locate(g, ({_index(instance)})me, at);
{reads}    Pack<{out_type}, {n}> r;
    #pragma unroll
    for (int k = 0; k < {n}; k++) r.item[k] = {_call(instance, p, elements)};
    *(Pack<{out_type}, {n}> *)(out + at[0]) = r;
}}
"""


def _strided(instance: Instance, p: CudaPrinter) -> str:
    """A thread computes one element."""
    count = len(instance.modes) + 1
    elements = {i: f"a{i}[at[{i + 1}]]" for i, mode in enumerate(instance.modes) if mode == ARRAY}
    return f"""
extern "C" __global__ void __launch_bounds__({THREADS})
{instance.function}({", ".join(_parameters(instance))}, long long n, const __grid_constant__ Geometry<{count}, {_index(instance)}> g) {{
    const long long me = (long long)blockIdx.x * {THREADS} + threadIdx.x;
    if (me >= n) return;
{_constants(instance, p)}    {_offset(instance)} at[{count}];
    locate(g, ({_index(instance)})me, at);
    out[at[0]] = {_call(instance, p, elements)};
}}
"""


def _index(instance: Instance) -> str:
    return "uint64_t" if instance.wide else "uint32_t"


def _offset(instance: Instance) -> str:
    return "int64_t" if instance.wide else "int32_t"


# What all kernels share. FL_HOST is defined where the text is compiled for the CPU, by tests.
PREAMBLE = (
    r"""
#ifndef FL_HOST
typedef signed char int8_t; typedef short int16_t; typedef int int32_t; typedef long long int64_t;
typedef unsigned char uint8_t; typedef unsigned short uint16_t; typedef unsigned int uint32_t; typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define INT64_MIN (-9223372036854775807LL - 1)
__device__ inline float fl_f16_to_f32(uint16_t h) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h)); return f; }
__device__ inline uint16_t fl_f32_to_f16(float f) { uint16_t h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h; }
__device__ inline float fl_bf16_to_f32(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }
__device__ inline uint16_t fl_f32_to_bf16(float f) {
#if __CUDA_ARCH__ >= 800
    uint16_t h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(f)); return h;
#else
    const uint32_t u = __float_as_uint(f);
    return f != f ? 0x7fff : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
#endif
}
#endif

template <class T, int N> struct alignas(sizeof(T) * N) Pack { T item[N]; };

/* The loops, innermost last: sizes, how to divide by them, and every operand's step. */
template <int N, class Index> struct Geometry;
template <int N> struct Geometry<N, uint32_t> { int ndim; uint32_t size[DIMS], magic[DIMS], shift[DIMS]; int32_t step[N][DIMS]; };
template <int N> struct Geometry<N, uint64_t> { int ndim; uint64_t size[DIMS]; int64_t step[N][DIMS]; };

/* a / size by a multiplication: exact for a < 2^31 (Granlund and Montgomery, 1994; the launcher computes magic and shift). */
template <int N> __device__ inline uint32_t quotient(const Geometry<N, uint32_t> &g, int d, uint32_t a) {
    return (uint32_t)((((uint64_t)a * g.magic[d] >> 32) + a) >> g.shift[d]);
}
template <int N> __device__ inline uint64_t quotient(const Geometry<N, uint64_t> &g, int d, uint64_t a) { return a / g.size[d]; }

/* The offsets of element number `me` in all operands. */
template <int N, class Index, class Offset> __device__ inline void locate(const Geometry<N, Index> &g, Index me, Offset *at) {
    for (int o = 0; o < N; o++) at[o] = 0;
    for (int d = g.ndim - 1; d > 0; d--) {
        const Index q = quotient(g, d, me), here = me - q * g.size[d];
        for (int o = 0; o < N; o++) at[o] += (Offset)here * g.step[o][d];
        me = q;
    }
    for (int o = 0; o < N; o++) at[o] += (Offset)me * g.step[o][0];
}

template <class T> __device__ inline T fl_sigmoid(T x) { return 1 / (1 + exp(-x)); }
template <class T> __device__ inline T fl_pow(T a, T b) {
    if (b < 0) return a == 1 ? 1 : a == (T)-1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t r = 1, x = (uint64_t)a;
    for (uint64_t n = (uint64_t)b; n; n >>= 1, x *= x) r = n & 1 ? r * x : r;
    return (T)r;
}
template <> __device__ inline float fl_pow<float>(float a, float b) { return powf(a, b); }
template <> __device__ inline double fl_pow<double>(double a, double b) { return pow(a, b); }
template <class T> __device__ inline T fl_fmod(T a, T b) { return (T)-1 < 0 && b == (T)-1 ? 0 : (T)(a % b); }
template <> __device__ inline float fl_fmod<float>(float a, float b) { return fmodf(a, b); }
template <> __device__ inline double fl_fmod<double>(double a, double b) { return fmod(a, b); }
template <class T> __device__ inline T fl_remainder(T a, T b) {
    const T r = fl_fmod<T>(a, b);
    return r != 0 && (r < 0) != (b < 0) ? (T)(r + b) : r;
}
template <class T> __device__ inline T fl_floordiv(T a, T b) {
    if ((T)-1 < 0 && b == (T)-1) return (T)(0 - a);
    const T q = (T)(a / b);
    return (T)(q - (a % b != 0 && (a < 0) != (b < 0)));
}
template <class T> __device__ inline T fl_floordiv_real(T a, T b) {
    if (b == 0) return a / b;
    const T r = fl_fmod<T>(a, b);
    T q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;
    if (q == 0) return copysign((T)0, a / b);
    const T f = floor(q);
    return q - f > (T)0.5 ? f + 1 : f;
}
template <> __device__ inline float fl_floordiv<float>(float a, float b) { return fl_floordiv_real<float>(a, b); }
template <> __device__ inline double fl_floordiv<double>(double a, double b) { return fl_floordiv_real<double>(a, b); }
template <class T> __device__ inline T fl_gcd(T a, T b) {
    for (T r; b != 0; a = b, b = r) r = fl_fmod<T>(a, b);
    return a < 0 ? (T)(0 - a) : a;
}
template <class T> __device__ inline T fl_shl(T a, T b) { return b < 0 || b >= (T)(8 * sizeof(T)) ? 0 : (T)((uint64_t)a << b); }
template <class T> __device__ inline T fl_shr(T a, T b) { return b < 0 || b >= (T)(8 * sizeof(T)) ? (T)(a < 0 ? -1 : 0) : (T)(a >> b); }
/* The logarithmic derivative of gamma: reflection below zero, recurrence up to 10, then Stirling's series. */
template <class T> __device__ inline T fl_digamma(T given) {
    double x = given, rest = 0;
    if (x == 0) return copysign((T)INFINITY, -given);
    if (x < 0) {
        if (x == floor(x)) return NAN;
        rest = -3.141592653589793 / tan(3.141592653589793 * (x - rint(x)));
        x = 1 - x;
    }
    for (; x < 10; x += 1) rest -= 1 / x;
    const double z = 1 / (x * x), far = 1.0 / 132 - z * (691.0 / 32760 - z / 12);
    return (T)(rest + log(x) - 0.5 / x - z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * far)))));
}
"""
).replace("DIMS", str(MAX_DIMS))

# How a kernel says that an index is out of bounds, where `cuda/error_notes.py` reads it. Of several threads the first to come writes; nobody else does until the note has been read.
NOTE = r"""
__device__ inline void fl_note(int64_t *note, int64_t kind, int64_t index, int64_t size, int64_t at, int64_t other) {
    if (atomicCAS((unsigned long long *)note, 0ULL, 1ULL) != 0ULL) return;
    volatile int64_t *const page = note;
    page[1] = kind, page[2] = index, page[3] = size, page[4] = at, page[5] = other;
    __threadfence_system();
}
"""

COMPLEX_PREAMBLE = r"""
template <class T> __device__ inline bool fl_clt(complex<T> a, complex<T> b) {
    return a.real() < b.real() || (a.real() == b.real() && a.imag() < b.imag());
}
template <class T> __device__ inline bool fl_cle(complex<T> a, complex<T> b) {
    return a.real() < b.real() || (a.real() == b.real() && a.imag() <= b.imag());
}
template <class T> __device__ inline bool fl_cisnan(complex<T> x) { return x.real() != x.real() || x.imag() != x.imag(); }
template <class T> __device__ inline bool fl_cisinf(complex<T> x) { return fabs(x.real()) == INFINITY || fabs(x.imag()) == INFINITY; }
template <class T> __device__ inline complex<T> fl_csgn(complex<T> x) {
    const T size = abs(x);
    return size == 0 ? complex<T>(0) : x / size;
}
template <class T> __device__ inline complex<T> fl_csigmoid(complex<T> x) { return complex<T>(1) / (complex<T>(1) + exp(-x)); }
template <class T> __device__ inline complex<T> fl_cexp2(complex<T> x) { return exp(x * (T)0.6931471805599453); }
template <class T> __device__ inline complex<T> fl_clog2(complex<T> x) { return log(x) * (T)1.4426950408889634; }
/* e^x - 1 = (expm1(a) cos b + (cos b - 1)) + i e^a sin b, where cos b - 1 = -2 sin(b/2)^2 keeps its digits. */
template <class T> __device__ inline complex<T> fl_cexpm1(complex<T> x) {
    const T a = x.real(), b = x.imag(), half = sin(b / 2);
    return complex<T>(expm1(a) * cos(b) - 2 * half * half, exp(a) * sin(b));
}
/* log(1 + x): the size by log1p of |1 + x|^2 - 1 = a (2 + a) + b^2 near 1, which keeps its digits there. */
template <class T> __device__ inline complex<T> fl_clog1p(complex<T> x) {
    const T a = x.real(), b = x.imag();
    if (fabs(a) < (T)0.5 && fabs(b) < (T)0.5) return complex<T>(log1p(a * (2 + a) + b * b) / 2, atan2(b, 1 + a));
    return log(complex<T>(1 + a, b));
}
"""
