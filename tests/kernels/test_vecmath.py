"""vecmath.h, as generated, against long double libm, mpmath and NumPy, for every instruction set this machine can run.

The header is compiled into a small library, one loop per function, and each result is measured in ulps: units in the
last place of the exact value. Infinities, NaN and the sign of zero must agree exactly.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from flambeau.kernels.language import vecmath
from flambeau.kernels.language.expr import NEAR

FLAGS = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fPIC", "-shared", "-Wall", "-Wextra"]
TARGETS = {
    "baseline": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma", "-mprefer-vector-width=512"],
}
NEEDS = {"baseline": set(), "avx2": {"avx2", "fma", "f16c"}, "avx512": {"avx512f", "avx512vl", "avx512bw", "avx512dq"}}

# name: (ulps allowed in f32, in f64, the long double expression that is right)
UNARY = {
    "exp": (1, 1, "expl(x)"),
    "exp2": (1.2, 1.2, "exp2l(x)"),
    "expm1": (1.3, 1.4, "expm1l(x)"),
    "log": (1, 1, "logl(x)"),
    "log2": (1, 1, "log2l(x)"),
    "log10": (1, 1, "log10l(x)"),
    "log1p": (1.5, 1.5, "log1pl(x)"),
    "sin": (2, 1, "sinl(x)"),
    "cos": (2, 1, "cosl(x)"),
    "tan": (4, 3, "tanl(x)"),
    "sinh": (0.51, 2.5, "sinhl(x)"),
    "cosh": (1.6, 1.6, "coshl(x)"),
    "tanh": (2.6, 3, "tanhl(x)"),
    "asin": (2, 2.5, "asinl(x)"),
    "acos": (1.5, 1.5, "acosl(x)"),
    "atan": (2, 2, "atanl(x)"),
    "asinh": (0.51, 2, "asinhl(x)"),
    "acosh": (0.51, 3, "acoshl(x)"),
    "atanh": (0.51, 2.5, "atanhl(x)"),
    "erf": (5, 2.5, "erfl(x)"),
    "erfc": (0.51, 4, "erfcl(x)"),
    "sigmoid": (2, 2, "x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x))"),
    "lgamma": (0.6, 10, "lgammal(x)"),  # libm's, which loses digits at the zeros left of -2
    "rsqrt": (1.6, 1.6, "1 / sqrtl(x)"),
    "rint": (0, 0, "rintl(x)"),
    "floor": (0, 0, "floorl(x)"),
    "ceil": (0, 0, "ceill(x)"),
    "trunc": (0, 0, "truncl(x)"),
}
BINARY = {
    "atan2": (2, 2, "atan2l(x, y)"),
    "pow": (1.2, 1.2, "powl(x, y)"),
    "hypot": (1.5, 1.5, "hypotl(x, y)"),
    "fmod": (0, 0, "fmodl(x, y)"),
}
BY_MPMATH = {"digamma": (1, 20), "erfinv": (1, 4)}  # no libm has them; digamma counts ulps of max(1, |psi|)
CONVERSIONS = ["bf16_to_f32", "f32_to_bf16", "f16_to_f32", "f32_to_f16"]
SCALAR = {"lgamma", "fmod"}  # calls into libm, which no compiler vectorises
DTYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
DIVISIONS = {"fmod", "remainder", "floordiv"}


# ---- the libraries ----


def loop(name: str, function: str, arguments: str, source: str, result: str) -> str:
    """One exported function on one line, so that a compiler's remark about the line is about the function."""
    parameters = "".join(f"const {source} *restrict {a}, " for a in arguments)
    call = ", ".join(f"{a}[i]" for a in arguments)
    return f"void {name}(long n, {parameters}{result} *restrict out) {{ for (long i = 0; i < n; i++) out[i] = {function}({call}); }}"


def kernel_source() -> list[str]:
    """The header and a loop for every function in it, a line each."""
    lines = ['#include "vecmath.h"']
    for suffix, ctype in (("f32", "float"), ("f64", "double")):
        for name in [*UNARY, *BY_MPMATH]:
            lines.append(loop(f"{name}_{suffix}", f"fl_{name}_{suffix}", "a", ctype, ctype))
        for name in BINARY:
            lines.append(loop(f"{name}_{suffix}", f"fl_{name}_{suffix}", "ab", ctype, ctype))
    for name in sorted(NEAR):
        function, suffix = name.split("_")
        ctype = {"f32": "float", "f64": "double", "i64": "int64_t"}[suffix]
        count = "ab" if function in DIVISIONS else "a"
        lines.append(loop(f"near_{name}", f"fl_{function}_near_{suffix}", count, ctype, ctype))
        lines.append(loop(f"whole_{name}", f"fl_{name}", count, ctype, ctype))
        lines.append(loop(f"is_near_{name}", f"fl_{function}_is_near_{suffix}", count, ctype, "int"))
    for name in CONVERSIONS:
        types = ("float", "uint16_t") if name.startswith("f32") else ("uint16_t", "float")
        lines.append(loop(name, f"fl_{name}", "a", *types))
    return lines


def reference_source() -> list[str]:
    """The same functions in long double, from doubles."""
    lines = ["#include <math.h>"]
    for table, arguments in ((UNARY, "a"), (BINARY, "ab")):
        for name, (_, _, expression) in table.items():
            parameters = ", ".join(f"long double {v}" for v in "xy"[: len(arguments)])
            lines.append(f"static long double exact_{name}({parameters}) {{ return {expression}; }}")
            lines.append(loop(f"loop_{name}", f"exact_{name}", arguments, "double", "long double"))
    return lines


def compile_library(lines: list[str], flags: list[str], path: Path) -> tuple[ctypes.CDLL, str]:
    """The loaded library and what the compiler had to say."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    source = path.with_suffix(".c")
    source.write_text("\n".join(lines) + "\n")
    source.with_name("vecmath.h").write_text(vecmath.header())
    command = [compiler, *flags, str(source), "-o", str(path), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(path)), done.stderr


def cpu_features() -> set[str]:
    info = Path("/proc/cpuinfo")
    flags = re.search(r"^flags\s*:(.*)$", info.read_text(), re.M) if info.exists() else None
    return set(flags.group(1).split()) if flags else set()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """Function name and double arrays -> long double array, remembered from one instruction set to the next."""
    path = tmp_path_factory.mktemp("c") / "reference.so"
    library, _ = compile_library(reference_source(), ["-O2", "-fPIC", "-shared"], path)

    @functools.cache
    def exact(name: str, suffix: str) -> np.ndarray:
        inputs = [np.asarray(x, np.float64) for x in arguments(name, suffix)]
        return run(library, f"loop_{name}", inputs, np.dtype(np.longdouble))

    return exact


@pytest.fixture(scope="module", params=TARGETS)
def kernels(request, tmp_path_factory):
    """The compiled header for one instruction set, and the compiler's remarks on it."""
    if request.param != "baseline" and not NEEDS[request.param] <= cpu_features():
        pytest.skip(f"this processor has no {request.param}")
    remarks = ["-fopt-info-vec"] if is_gcc() else []
    flags = FLAGS + remarks + TARGETS[request.param]
    return compile_library(kernel_source(), flags, tmp_path_factory.mktemp("c") / f"{request.param}.so")


def gcc_version() -> int:
    """Its major number."""
    told = subprocess.run([shutil.which("cc") or "cc", "-dumpversion"], capture_output=True, text=True, check=True).stdout
    return int(told.split(".")[0])


@functools.cache
def is_gcc() -> bool:
    compiler = shutil.which("cc") or "cc"
    return "Free Software Foundation" in subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout


def run(library: ctypes.CDLL, name: str, inputs: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    inputs = [np.ascontiguousarray(x) for x in inputs]
    out = np.empty(len(inputs[0]), dtype)
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in [*inputs, out]]
    getattr(library, name)(ctypes.c_long(len(out)), *pointers)
    return out


# ---- arguments ----


def special_values(dtype: np.dtype) -> np.ndarray:
    """Zeros, infinities, NaN, subnormals, and the numbers where something overflows, underflows or changes branch."""
    info = np.finfo(dtype)
    points = [0, 0.5, 1, 2, np.inf, info.max, info.tiny, info.tiny * 1.5, info.smallest_subnormal, info.tiny / 3]
    points += [1 - info.epsneg, 1 + info.eps, 0.41421356, 2.4142135, 0.6, 0.9, 0.49999, 0.52, 3.95, 9.02, 20, 40, 1e5]
    points += [87.4, 88.72, 88.73, 89.5, 103.9, 104.1, 126, 127.99, 128, 149, 151, 10.05, 10.06, 16777216, 8388607.5]
    points += [708.4, 709.7, 709.79, 710.47, 710.48, 745.1, 745.2, 1023.9, 1024, 1074, 1077, 26.5, 27.2, 27.3]
    points += [1.9e8, 2.1e8, 1e18, 3e18, 2.0**52 + 0.5, 2.0**53, 2.5, 3.5, 16367173 * 2.0**72, 1e22]
    values = np.array(points).astype(dtype)
    return np.concatenate([values, -values, np.array([np.nan], dtype)])


@functools.cache
def numbers(suffix: str, count: int, seed: int) -> np.ndarray:
    """All exponents alike, everyday sizes, the neighbourhood of one, multiples of pi/2, and the special values."""
    dtype, rng = DTYPES[suffix], np.random.default_rng(seed)
    bits = rng.integers(0, 2**64, count, dtype=np.uint64)
    parts = [
        (bits >> np.uint64(32)).astype(np.uint32).view(np.float32) if suffix == "f32" else bits.view(np.float64),
        rng.standard_normal(count) * rng.choice([0.1, 1, 10, 100, 1000], count),
        rng.uniform(-2, 2, count),
        1 + rng.standard_normal(count) * 10.0 ** rng.uniform(-8, 0, count),
        10.0 ** rng.uniform(-12, 8, count) * rng.choice([-1, 1], count),
        np.round(2.0 ** rng.uniform(0, 26.9, count // 4)) * (np.pi / 2),
    ]
    values = np.concatenate([p.astype(dtype) for p in parts] + [special_values(dtype)])
    values[np.isnan(values)] = np.nan  # the signalling ones among the random bits would make NumPy warn
    return values


@functools.cache
def arguments(name: str, suffix: str) -> tuple[np.ndarray, ...]:
    if name in UNARY:
        return (numbers(suffix, 3000, 1),)
    dtype, rng = DTYPES[suffix], np.random.default_rng(2)
    corners = np.array([0, 1, 2, 3, 0.5, 1.5, 0.999, 1.001, 1e30, 1e-40, 8388609, 2.0**24, 2.0**53 - 1, np.inf])
    corners = np.concatenate([corners, -corners, [np.nan]]).astype(dtype)
    a, b = (grid.ravel() for grid in np.meshgrid(corners, corners))
    x, y = numbers(suffix, 1200, 3), rng.permutation(numbers(suffix, 1200, 4))
    with np.errstate(all="ignore"):
        near = (x * np.exp(rng.standard_normal(len(x)))).astype(dtype)  # of like size, for atan2 and hypot
        wanted = rng.uniform(-1, 1, len(x)) * (105 if suffix == "f32" else 750)  # finite powers, for pow
        power = (wanted / np.log(np.abs(x.astype(np.float64)))).astype(dtype)
    whole = rng.integers(-40, 40, len(x)).astype(dtype)
    return np.concatenate([a, x, x, np.abs(x), x]), np.concatenate([b, y, near, power, whole])


# ---- the measure ----


def ulps(got: np.ndarray, exact: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """|got - exact| in units in the last place of exact; inf where a NaN, an infinity or the sign of zero is wrong."""
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        rounded = exact.astype(got.dtype)
        _, exponent = np.frexp(np.maximum(np.abs(exact), np.longdouble(floor)))
        unit = np.ldexp(np.longdouble(1), np.maximum(exponent - info.nmant - 1, info.minexp - info.nmant))
        # Next to the largest number an overflow is an error of one ulp, not an infinite one.
        largest = np.longdouble(info.max) + np.ldexp(np.longdouble(1), info.maxexp - info.nmant - 1)
        finite = np.where(np.isinf(got) & (np.abs(exact) >= info.max), np.copysign(largest, got), got)
        error = np.abs(finite.astype(np.longdouble) - exact) / unit
        same = np.where(np.isnan(exact), np.isnan(got), (got == rounded) & (np.signbit(got) == np.signbit(exact)))
        overflow = np.isinf(rounded) & (np.abs(exact) > largest)
        decided = np.isnan(exact) | np.isnan(got) | overflow | (exact == 0) & (got == 0)
        return np.where(decided, np.where(same, 0, np.inf), error).astype(np.float64)


def assert_within(got: np.ndarray, exact: np.ndarray, limit: float, inputs: tuple[np.ndarray, ...], floor: float = 0.0):
    if np.finfo(np.longdouble).nmant < 60:
        limit += 0.5  # here long double is double, and the oracle is rounded too
    error = ulps(got, exact, floor)
    worst = int(np.argmax(error))
    where = ", ".join(repr(x[worst]) for x in inputs)
    assert error[worst] <= limit, f"{error[worst]:.3g} ulp at ({where}): got {got[worst]!r}, exact {exact[worst]!r}"


# ---- the tests ----


@pytest.mark.parametrize("suffix", DTYPES)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_error_stays_within_its_bound(kernels, reference, name, suffix):
    """Every function is right to its stated number of ulps, over all exponents and at the special values."""
    inputs = arguments(name, suffix)
    limits = {**UNARY, **BINARY}[name]
    got = run(kernels[0], f"{name}_{suffix}", list(inputs), DTYPES[suffix])
    assert_within(got, reference(name, suffix), limits[0] if suffix == "f32" else limits[1], inputs)


@functools.cache
def by_mpmath(name: str, suffix: str) -> tuple[np.ndarray, np.ndarray]:
    """Arguments of digamma or erfinv, and the exact values."""
    mp = pytest.importorskip("mpmath")
    rng, dtype = np.random.default_rng(5), DTYPES[suffix]
    if name == "erfinv":
        ends = 1 - 10.0 ** rng.uniform(-16, 0, 60)
        x = np.concatenate([rng.uniform(-1, 1, 60), ends, -ends, 10.0 ** rng.uniform(-30, 0, 30), [0.52, 0.5199, 0.5]])
    else:
        x = np.concatenate([rng.uniform(-20, 20, 100), 10.0 ** rng.uniform(-30, 30, 60), rng.uniform(0, 3, 80)])
    x = x.astype(dtype)
    x = x[(np.abs(x) < 1) | (name != "erfinv")]
    with mp.workdps(30):
        exact = [mp.nstr(getattr(mp, name)(mp.mpf(float(v))), 25) for v in x]
    return x, np.array([np.longdouble(v) for v in exact])


@pytest.mark.parametrize("suffix", DTYPES)
@pytest.mark.parametrize("name", BY_MPMATH)
def test_functions_that_libm_lacks(kernels, name, suffix):
    """digamma and erfinv agree with mpmath."""
    x, exact = by_mpmath(name, suffix)
    got = run(kernels[0], f"{name}_{suffix}", [x], DTYPES[suffix])
    floor = 1.0 if name == "digamma" else 0.0  # near its zeros digamma keeps an absolute error
    assert_within(got, exact, BY_MPMATH[name][suffix == "f64"], (x,), floor)


@pytest.mark.parametrize("suffix", DTYPES)
def test_special_values_of_digamma_and_erfinv(kernels, suffix):
    """Poles, ends of the domain and signed zeros give what PyTorch gives."""
    inf, nan = np.inf, np.nan
    for name, x, want in [
        ("digamma", [0.0, -0.0, -1.0, -7.0, inf, -inf, nan], [-inf, inf, nan, nan, inf, nan, nan]),
        ("erfinv", [0.0, -0.0, 1.0, -1.0, 1.5, -inf, nan], [0.0, -0.0, inf, -inf, nan, nan, nan]),
    ]:
        got = run(kernels[0], f"{name}_{suffix}", [np.array(x, DTYPES[suffix])], DTYPES[suffix])
        np.testing.assert_array_equal(got, want)
        assert np.array_equal(np.signbit(got[:2]), np.signbit(want[:2]))


def test_sixteen_bits_to_float_is_exact(kernels):
    """All 65536 bfloat16 and float16 patterns widen to the float they stand for."""
    halves = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        want = halves.view(np.float16).astype(np.float32)
    got = run(kernels[0], "f16_to_f32", [halves], np.dtype(np.float32))
    np.testing.assert_array_equal(got.view(np.uint32)[~np.isnan(want)], want.view(np.uint32)[~np.isnan(want)])
    assert np.isnan(got[np.isnan(want)]).all()
    got = run(kernels[0], "bf16_to_f32", [halves], np.dtype(np.float32))
    np.testing.assert_array_equal(got.view(np.uint32), halves.astype(np.uint32) << np.uint32(16))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_float_to_sixteen_bits_rounds_to_even(kernels, kind):
    """Floats narrow to the nearest 16-bit number, ties to even, overflow to infinity, NaN to a quiet NaN."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype, quiet = (np.float16, 0x0200) if kind == "f16" else (ml_dtypes.bfloat16, 0x0040)
    steps = np.arange(0, 0x7C00 if kind == "f16" else 0x7F80, dtype=np.uint16).view(dtype).astype(np.float64)
    ties = ((steps[1:] + steps[:-1]) / 2).astype(np.float32)
    beside = [np.nextafter(ties, np.float32(0)), np.nextafter(ties, np.float32(np.inf))]
    rng = np.random.default_rng(6)
    small = rng.uniform(-1e-4, 1e-4, 20000).astype(np.float32)
    edges = np.array([65504, 65519.996, 65520, 65536, 2.0**-24, 2.0**-25, 3.4e38, 3.3961e38], np.float32)
    signalling = np.array([0x7F800001, 0xFF800001, 0x7F80FFFF], np.uint32).view(np.float32)
    x = np.concatenate([numbers("f32", 20000, 7), small, ties, -ties, *beside, edges, signalling])
    with np.errstate(all="ignore"):
        want = x.astype(dtype).view(np.uint16)
    got = run(kernels[0], f"f32_to_{kind}", [x], np.dtype(np.uint16))
    nan = np.isnan(x)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    assert np.isnan(got[nan].view(dtype)).all() and (got[nan] & quiet).all()


def test_an_element_does_not_depend_on_its_place(kernels):
    """The vectors of a loop and its scalar tail give the same bits, so that any split over threads does too."""
    for suffix, dtype in DTYPES.items():
        for name in [*UNARY, *BINARY, *BY_MPMATH]:
            inputs = [numbers(suffix, 60, 8 + i) for i in range(2 if name in BINARY else 1)]
            call = functools.partial(run, kernels[0], f"{name}_{suffix}", dtype=dtype)
            whole = call(inputs)
            alone = np.concatenate([call([x[i : i + 1] for x in inputs]) for i in range(len(whole))])
            bits = np.dtype(f"u{dtype.itemsize}")
            differs = (alone.view(bits) != whole.view(bits)) & ~np.isnan(whole)
            assert not differs.any(), f"{name}_{suffix} at {[x[differs][0] for x in inputs]}"


@pytest.mark.parametrize("name", sorted(NEAR))
def test_the_form_for_usual_arguments_gives_the_same_bits(kernels, name):
    """A block of usual arguments takes a faster form, and no result depends on which arguments stand beside it."""
    function, suffix = name.split("_")
    if suffix == "i64":
        rng = np.random.default_rng(9)
        a, b = (rng.integers(-(2**51), 2**51, 5000) >> rng.integers(0, 50, 5000) for _ in range(2))
        edges = np.array([0, 1, -1, 2, -2, 7, -7, 2**51 - 1, -(2**51), 2**51, -(2**51) - 1, 2**62, -(2**63)])
        pairs = [np.concatenate([x, y.ravel()]) for x, y in zip((a, b), np.meshgrid(edges, edges), strict=True)]
        inputs = [x[pairs[1] != 0] for x in pairs]
    else:
        inputs = list(arguments("fmod", suffix)) if function in DIVISIONS else [numbers(suffix, 3000, 1)]
    dtype = inputs[0].dtype
    is_near = run(kernels[0], f"is_near_{name}", inputs, np.dtype(np.int32)).astype(bool)
    assert is_near.sum() > 1000
    inputs = [x[is_near] for x in inputs]
    near, whole = (run(kernels[0], f"{form}_{name}", inputs, dtype).view(f"u{dtype.itemsize}") for form in ("near", "whole"))
    differs = near != whole
    assert not differs.any(), [x[differs][:3] for x in inputs]


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="measured on x86-64 only")
def test_loops_are_vectorised(kernels, request):
    """GCC turns the loop of every function into vector code, except the two that call libm, and those for usual arguments too."""
    if not is_gcc():
        pytest.skip("the remarks are GCC's")
    remarks = {int(n) for n in re.findall(r"\.c:(\d+):\d+: optimized: loop vectorized", kernels[1])}
    names = [re.search(r"^void (\w+)\(", line) for line in kernel_source()]
    scalar = {m.group(1) for number, m in enumerate(names, 1) if m and number not in remarks}
    scalar = {name for name in scalar if not name.startswith(("whole_", "is_near_"))}
    expected = {f"{name}_{suffix}" for name in SCALAR for suffix in DTYPES}
    if request.node.callspec.params["kernels"] == "baseline":
        expected.add("hypot_f64")  # SSE2 cannot compare the bits of doubles
    if gcc_version() >= 13:  # seen with GCC 13.3
        scalar -= {"atan2_f32", "atan2_f64", "hypot_f64"}
        expected.discard("hypot_f64")
    assert scalar == expected


def test_the_header_compiles_without_warnings(kernels):
    """-Wall -Wextra have nothing to say."""
    assert "warning" not in kernels[1]
