"""The hand-written launcher, driven with a small table of loops written here instead of the generated ones."""

from __future__ import annotations

import gc
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fuzz_launcher
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau.kernels import generate
from flambeau.kernels.native.native import empty_strided
from flambeau.kernels.templates import gemm as products

CSRC = Path(__file__).parents[2] / "src" / "flambeau" / "kernels" / "native" / "csrc"
BF16 = np.dtype(ml_dtypes.bfloat16)
HAS_AVX2 = platform.machine() == "x86_64" and " avx2 " in Path("/proc/cpuinfo").read_text()

# Loops as simple as loops can be: the launcher, not their speed, is on trial. `second` returns its second operand, which shows
# what became of a Python number; `which` tells the table it came from; `odd` has no generic operand.
TABLE = r"""
#include <math.h>
#include "loops.h"
#define IN(T, i) (*(const T *)(ptr[i] + step[i] * k))
#define LOOP(NAME, OUT, EXPR)                                                                          \
    static void NAME(char *const *ptr, const int64_t *step, int64_t n, const double *param) {         \
        (void)param;                                                                                   \
        for (int64_t k = 0; k < n; k++) *(OUT *)(ptr[0] + step[0] * k) = (OUT)(EXPR);                  \
    }
#define ARITHMETIC(T, s)                                     \
    LOOP(add_##s, T, IN(T, 1) + IN(T, 2))                    \
    LOOP(mul_##s, T, IN(T, 1) * IN(T, 2))                    \
    LOOP(lt_##s, uint8_t, IN(T, 1) < IN(T, 2))               \
    LOOP(where_##s, T, IN(uint8_t, 1) ? IN(T, 2) : IN(T, 3)) \
    LOOP(clamp_##s, T, fmin(fmax((double)IN(T, 1), param[0]), param[1]))
ARITHMETIC(float, f32)
ARITHMETIC(double, f64)
ARITHMETIC(int64_t, i64)
LOOP(add_b, uint8_t, IN(uint8_t, 1) | IN(uint8_t, 2))
LOOP(exp_f32, float, expf(IN(float, 1)))
LOOP(exp_f64, double, exp(IN(double, 1)))
typedef struct { char byte[8]; } eight;
typedef struct { char byte[16]; } sixteen;
LOOP(second_1, uint8_t, IN(uint8_t, 2))
LOOP(second_2, uint16_t, IN(uint16_t, 2))
LOOP(second_4, uint32_t, IN(uint32_t, 2))
LOOP(second_8, uint64_t, IN(uint64_t, 2))
static void second_16(char *const *ptr, const int64_t *step, int64_t n, const double *param) {
    (void)param;
    for (int64_t k = 0; k < n; k++) *(sixteen *)(ptr[0] + step[0] * k) = IN(sixteen, 2);
}
LOOP(one, float, IN(float, 1) * 0 + 1)
LOOP(two, float, IN(float, 1) * 0 + 2)
LOOP(one_f64, double, IN(double, 1) * 0 + 1)
LOOP(odd, uint8_t, IN(int64_t, 1) & 1)

#define BINARY(name, loop, T) {name, loop, T, 2, 0, 3, T, {T, T}}
#define ALL(T, s)                                                              \
    BINARY("add", add_##s, T), BINARY("mul", mul_##s, T),                      \
    {"lt", lt_##s, T, 2, 0, 3, FL_BOOL, {T, T}},                               \
    {"where", where_##s, T, 3, 0, 6, T, {FL_BOOL, T, T}},                      \
    {"clamp", clamp_##s, T, 1, 2, 1, T, {T}}
static const fl_pointwise baseline[] = {
    ALL(FL_F32, f32), ALL(FL_F64, f64), ALL(FL_I64, i64), BINARY("add", add_b, FL_BOOL),
    {"exp", exp_f32, FL_F32, 1, 0, 1, FL_F32, {FL_F32}}, {"exp", exp_f64, FL_F64, 1, 0, 1, FL_F64, {FL_F64}},
    BINARY("second", second_1, FL_BOOL), BINARY("second", second_1, FL_U8), BINARY("second", second_1, FL_I8),
    BINARY("second", second_2, FL_I16), BINARY("second", second_4, FL_I32), BINARY("second", second_8, FL_I64),
    BINARY("second", second_2, FL_F16), BINARY("second", second_2, FL_BF16), BINARY("second", second_4, FL_F32),
    BINARY("second", second_8, FL_F64), BINARY("second", second_8, FL_C64), BINARY("second", second_16, FL_C128),
    {"which", one, FL_F32, 1, 0, 1, FL_F32, {FL_F32}}, {"which", one_f64, FL_F64, 1, 0, 1, FL_F64, {FL_F64}},
    {"odd", odd, FL_I64, 1, 0, 0, FL_BOOL, {FL_I64}},
};
const fl_table fl_table_baseline = {"baseline", baseline, sizeof baseline / sizeof *baseline};
static const fl_pointwise avx2[] = {{"which", two, FL_F32, 1, 0, 1, FL_F32, {FL_F32}}};
const fl_table fl_table_avx2 = {"avx2", avx2, 1};
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    """The extension, built from csrc/*.c and the table above."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("launcher")
    (folder / "table.c").write_text(TABLE)
    generate.write_headers(folder)
    target = folder / "_native.so"
    includes = [f"-I{path}" for path in (CSRC, folder, sysconfig.get_path("include"), np.get_include())]
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", *(["-DFL_HAVE_AVX2"] if HAS_AVX2 else [])]
    sources = [str(path) for path in sorted(CSRC.glob("*.c"))] + [str(folder / "table.c")]
    subprocess.run([*compiler.split(), *flags, *includes, *sources, "-o", str(target), "-lm", "-lpthread", "-ldl"], check=True)
    return target


@pytest.fixture(scope="module")
def native(library):
    spec = importlib.util.spec_from_file_location("_native", library)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.setup(BF16)
    return module


@pytest.fixture(scope="module")
def kernels(native):
    return {name: native.Kernel(name) for name, _ in native.loops()}


# ---- drawing operands ------------------------------------------------------------------------------------------------------

SHAPES = st.lists(st.sampled_from([0, 1, 1, 2, 3, 4, 5, 17]), max_size=4).map(tuple)


def values(shape, dtype) -> np.ndarray:
    """Small numbers, all different where the dtype allows it."""
    return ((np.arange(np.prod(shape, dtype=int)) * 7) % 31 - 9).astype(dtype).reshape(shape)


@st.composite
def layouts(draw, shape, negative=True):
    """A function (dtype) -> array of this shape in a drawn memory layout: permuted, with gaps, backwards."""
    perm = draw(st.permutations(range(len(shape))))
    steps = draw(st.tuples(*(st.sampled_from([1, 1, 2, 3, -1, -2] if negative else [1, 1, 2, 3]) for _ in shape)))

    def make(dtype):
        outer = values([shape[d] * abs(steps[d]) for d in perm], dtype)
        return outer[(..., *(slice(None, None, steps[d]) for d in perm))].transpose(np.argsort(perm))

    return make


@st.composite
def operands(draw, count, negative=True):
    """`count` functions (dtype) -> array whose shapes broadcast to one drawn shape, and that shape."""
    shape = draw(SHAPES)
    makers = []
    for i in range(count):
        own = tuple(1 if draw(st.integers(0, 4)) == 0 else n for n in shape[draw(st.integers(0, len(shape))) if i else 0 :])
        kind = draw(st.sampled_from(["plain", "plain", "strided", "strided", "expanded"]))
        if kind == "plain":
            makers.append(lambda dtype, own=own: values(own, dtype))
        elif kind == "strided":
            makers.append(draw(layouts(own, negative)))
        else:
            makers.append(lambda dtype, own=own: np.broadcast_to(values(tuple(1 for _ in own), dtype), own))
    return makers


# ---- values ----------------------------------------------------------------------------------------------------------------


@given(makers=operands(2), dtype=st.sampled_from(["f4", "f8", "i8", "?"]))
@settings(max_examples=200, deadline=None)
def test_a_call_computes_what_numpy_computes(kernels, makers, dtype):
    """Any broadcastable shapes and strides give NumPy's values, shape and dtype."""
    a, b = (make(dtype) for make in makers)
    result = kernels["add"](a, b)
    assert type(result) is np.ndarray
    assert result.dtype == np.dtype(dtype)
    assert result.flags.writeable and result.flags.aligned
    np.testing.assert_array_equal(result, a + b)


@given(makers=operands(3), dtype=st.sampled_from(["f4", "f8", "i8"]))
@settings(max_examples=200, deadline=None)
def test_operands_of_fixed_kind_and_other_output_types(kernels, makers, dtype):
    """where(bool, T, T) -> T and lt(T, T) -> bool mix dtypes and itemsizes, in any layout."""
    condition, a, b = np.asarray(makers[0]("i4") > 3), makers[1](dtype), makers[2](dtype)
    np.testing.assert_array_equal(kernels["where"](condition, a, b), np.where(condition, a, b))
    less = kernels["lt"](a, b)
    assert less.dtype == bool
    np.testing.assert_array_equal(less, a < b)
    np.testing.assert_array_equal(kernels["where"](condition, a, 2), np.where(condition, a, np.array(2, dtype)))
    np.testing.assert_array_equal(kernels["where"](True, a, b), np.broadcast_to(a, np.broadcast_shapes(a.shape, b.shape)))


@given(makers=operands(1))
@settings(max_examples=100, deadline=None)
def test_parameters_follow_the_operands(kernels, makers):
    """clamp(x, low, high) gets its numbers as they are, whatever Python type they have."""
    x = makers[0]("f4")
    np.testing.assert_array_equal(kernels["clamp"](x, -2.5, 7), np.clip(x, np.float32(-2.5), np.float32(7)))
    np.testing.assert_array_equal(kernels["clamp"](x, False, np.float64(5)), np.clip(x, np.float32(0), np.float32(5)))
    np.testing.assert_allclose(kernels["exp"](x), np.exp(x), rtol=1e-5)


@given(makers=operands(2), out=st.data(), dtype=st.sampled_from(["f4", "f8", "i8"]))
@settings(max_examples=200, deadline=None)
def test_into_writes_the_output_and_nothing_else(kernels, makers, out, dtype):
    """k.into(out, ...) fills out in any layout, returns it, and leaves the memory between its elements alone."""
    a, b = (make(dtype) for make in makers)
    expected = a + b
    target = out.draw(layouts(expected.shape))(dtype)
    whole = target
    while whole.base is not None:
        whole = whole.base
    target[...] = 0
    before = whole.copy()
    assert kernels["add"].into(target, a, b) is target
    np.testing.assert_array_equal(target, expected)
    target[...] = 0
    np.testing.assert_array_equal(whole, before)


def test_0d_arrays_and_numbers_in_all_places(kernels):
    """0-d arrays are operands like others; a number may stand on either side."""
    add, zero_d, x = kernels["add"], np.array(3.0, "f4"), np.arange(6, dtype="f4").reshape(2, 3)
    result = add(zero_d, zero_d)
    assert type(result) is np.ndarray and result.shape == () and result == 6
    assert add(zero_d, 1).shape == ()
    for left, right in [(x, zero_d), (zero_d, x), (x, 3), (3.0, x), (x.T, zero_d), (True, x)]:
        np.testing.assert_array_equal(add(left, right), np.asarray(left, "f4") + np.asarray(right, "f4"))
    np.testing.assert_array_equal(kernels["odd"](np.arange(5)), [False, True, False, True, False])


@pytest.mark.parametrize("dtype", [np.longlong, np.int_, np.int64])
def test_both_64_bit_integers_of_numpy_are_int64(kernels, dtype):
    """long and long long go in, int64 comes out."""
    result = kernels["add"](np.arange(4, dtype=dtype), np.arange(4))
    assert result.dtype.num == np.dtype(np.int64).num
    np.testing.assert_array_equal(result, np.arange(4) * 2)


NUMBERS = [True, False, 0, 1, -1, 127, 128, -128, 255, 256, 2**15, 2**31, 2**24 + 1, 2**53 + 1, 2**63 - 1, -(2**63)]
NUMBERS += [0.1, -0.0, 65504.0, 65519.0, 65520.0, 1e-7, 6e-8, 2.9e-8, -1e-5, 1e30, 1e300, float("inf"), float("-inf"), float("nan")]
NUMBERS += [1.00048828125, 1.0009765625, 1.00390625, 3.3895313e38, 3.4e38, 1 + 2j, 1e300 - 1e-300j]


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "i2", "i4", "i8", "f2", BF16, "f4", "f8", "c8", "c16"], ids=str)
def test_a_number_becomes_an_element_as_in_torch(kernels, dtype):
    """A Python number takes the arrays' dtype with PyTorch's rounding; where PyTorch would promote or refuse, NotImplemented."""
    torch = pytest.importorskip("torch")
    dtype = np.dtype(dtype)
    kind = {"b": 0, "i": 1, "u": 1, "c": 3}.get(dtype.kind, 2)
    for number in NUMBERS:
        result = kernels["second"](np.zeros(1, dtype), number)
        category = [bool, int, float, complex].index(type(number))
        if category > kind or (kind == 1 and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max):
            assert result is NotImplemented, (dtype, number)
            continue
        wide = torch.int64 if category < 2 else torch.float64 if category == 2 else torch.complex128
        expected = torch.tensor([number], dtype=wide).to(getattr(torch, dtype.name))
        assert result.dtype == dtype
        seen = result.view("u2").view("i2") if dtype == BF16 else result
        wanted = expected.view(torch.int16) if dtype == BF16 else expected
        np.testing.assert_array_equal(seen, wanted.numpy(), err_msg=f"{dtype} {number}")
        if kind >= 2:
            assert np.signbit(result.real.astype("f8")[0]) == np.signbit(complex(number).real)


# ---- what is not for the fast path -----------------------------------------------------------------------------------------


class Sub(np.ndarray):
    pass


X = np.ones((2, 3), "f4")
MISALIGNED = np.zeros(25, "u1")[1:].view("f4")
REFUSED = {
    "a list": ([1.0], X),
    "None": (X, None),
    "a string": (X, "1"),
    "a NumPy scalar": (X, np.float32(1)),
    "a NumPy float64, though a float": (X, np.float64(1)),
    "a subclass": (X, X.view(Sub)),
    "an object array": (X, X.astype(object)),
    "an object array first": (X.astype(object), X),
    "strings": (X, X.astype("U4")),
    "records": (np.zeros(3, "f4,i4"), np.zeros(3, "f4,i4")),
    "dates": (X, np.zeros(3, "M8[s]")),
    "swapped bytes": (X, X.astype(X.dtype.newbyteorder())),
    "misaligned": (MISALIGNED, MISALIGNED),
    "two dtypes": (X, X.astype("f8")),
    "two dtypes, one 0-d": (X, np.array(1.0)),
    "a dtype without instance": (X.astype("f2"), X.astype("f2")),
    "an unsigned 64": (X.astype("u8"), X.astype("u8")),
    "long double": (X.astype("g"), X.astype("g")),
    "a float with integers": (np.ones(3, "i8"), 1.0),
    "an int with bool": (np.ones(3, "?"), 1),
    "complex with floats": (X, 1j),
    "an int beyond int64": (np.ones(3, "i8"), 2**63),
    "an int beyond int64 with floats": (X, 2**70),
    "shapes that do not fit": (X, np.ones((3, 2), "f4")),
    "shapes that do not fit, empty": (np.ones((2, 0), "f4"), np.ones((2, 3), "f4")),
    "only numbers": (1.0, 2.0),
    "33 dimensions": (np.ones((1,) * 32 + (2,), "f4"), np.ones((2,) * 1 + (1,) * 32, "f4")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_not_implemented_where_the_fast_case_does_not_hold(kernels, case):
    """Whatever is not the fast case is handed back, never raised."""
    assert kernels["add"](*REFUSED[case]) is NotImplemented
    assert kernels["add"].into(np.zeros((2, 3), "f4"), *REFUSED[case]) is NotImplemented


def test_not_implemented_for_fixed_operands_and_parameters(kernels):
    """A fixed operand of another dtype, a kernel asked without generic array, parameters that are no numbers."""
    mask = np.ones((2, 3), bool)
    assert kernels["where"](X, X, X) is NotImplemented
    assert kernels["where"](mask.astype("u1"), X, X) is NotImplemented
    assert kernels["where"](1, X, X) is NotImplemented
    assert kernels["where"](mask, 1.0, 2.0) is NotImplemented
    assert kernels["odd"](np.ones(3, "i4")) is NotImplemented
    for low in (None, "1", 1j, 10**400, X):
        assert kernels["clamp"](X, low, 1.0) is NotImplemented


def test_not_implemented_for_outputs_one_cannot_write(kernels):
    """into refuses other dtypes, other shapes, read-only and expanded outputs, and anything that is not an ndarray."""
    into = kernels["add"].into
    frozen = X.copy()
    frozen.flags.writeable = False
    expanded = np.lib.stride_tricks.as_strided(np.zeros(3, "f4"), (2, 3), (0, 4))
    outs = [np.zeros((2, 3)), np.zeros(6, "f4"), np.zeros((1, 2, 3), "f4"), np.zeros((2, 1), "f4"), np.zeros((), "f4"), frozen]
    outs += [expanded, np.zeros((0, 3), "f4"), [0.0] * 6, None, np.zeros((2, 3), "f4").view(Sub), np.zeros((2, 3), ">f4")]
    for out in outs:
        assert into(out, X, X) is NotImplemented
    assert into(np.zeros((2, 3), "f4"), X[:1], X[:1]) is NotImplemented, "the operands do not reach the shape of out"
    assert kernels["lt"].into(np.zeros((2, 3), "u1"), X, X) is NotImplemented


def test_wrong_calls_say_so(native, kernels):
    """A wrong number of arguments is a mistake in the caller, and a TypeError; an unknown name a KeyError."""
    for call in (kernels["add"], kernels["clamp"], lambda: kernels["add"].into(), lambda: kernels["add"].into(X)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(TypeError):
        kernels["add"](X, X, out=X)
    with pytest.raises(KeyError, match="nonsense"):
        native.Kernel("nonsense")
    with pytest.raises(TypeError):
        native.Kernel(3)
    with pytest.raises(TypeError):
        native.setup(3)
    with pytest.raises(TypeError):
        native.setup(np.dtype("f2"))


@given(st.lists(st.sampled_from([X, X.T, X[:0], np.ones(3, "f4"), np.ones((), "f4"), np.ones(3, object), np.ones(3, "S0"), 1, 1.0,
                                 True, 1j, None, "x", (), np.float32(1), X.view(Sub), np.ones((1,) * 40, "f4"), 10**400]),
                min_size=2, max_size=4))  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_no_input_crashes_a_kernel(kernels, args):
    """Junk gives an array, NotImplemented or TypeError."""
    for name in ("add", "clamp", "where", "second"):
        for call in (kernels[name], kernels[name].into):
            try:
                result = call(*args)
            except TypeError:
                continue
            assert result is NotImplemented or type(result) is np.ndarray


# ---- in place --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [5, 100_000])
def test_in_place_is_fine_and_partial_overlap_is_not(kernels, n):
    """out may be an input, element for element; out may not be a shifted or reversed piece of one."""
    add = kernels["add"]
    x = np.arange(n, dtype="f8")
    assert add.into(x, x, x) is x
    np.testing.assert_array_equal(x, np.arange(n) * 2.0)
    square = np.arange(n, dtype="f8").reshape(5, -1)
    assert add.into(square.T, square.T, 1.0) is not NotImplemented
    np.testing.assert_array_equal(square.ravel(), np.arange(n) + 1.0)
    assert add.into(x[1:], x[:-1], 1.0) is NotImplemented
    assert add.into(x, x[::-1], 1.0) is NotImplemented
    assert add.into(x, x[0, ...], 1.0) is NotImplemented
    assert add.into(x, x, x[:1]) is NotImplemented
    assert add.into(x[: n // 2], x[n // 2 : n // 2 * 2], 1.0) is not NotImplemented, "two halves do not overlap"
    y = np.arange(n * 2, dtype="f8")
    assert add.into(y[::2], y[::2], 1.0) is not NotImplemented
    assert kernels["second"].into(y[:n].view("i8"), y[n:].view("i8"), y[n:].view("i8")) is not NotImplemented


# ---- strides of results ----------------------------------------------------------------------------------------------------


def torch_of(torch, array):
    size = array.itemsize
    return torch.empty_strided(array.shape, [s // size for s in array.strides], dtype=getattr(torch, array.dtype.name))


@given(makers=operands(2, negative=False))
@settings(max_examples=250, deadline=None)
def test_results_have_the_strides_torch_gives_them(kernels, makers):
    """The order of dimensions in memory is the one PyTorch chooses, down to the strides of sizes 0 and 1."""
    torch = pytest.importorskip("torch")
    a, b = (make("f4") for make in makers)
    for left, right in [(a, b), (a, 2.0), (2.0, b), (a, a)]:
        expected = torch.add(*(torch_of(torch, x) if isinstance(x, np.ndarray) else torch.tensor(x) for x in (left, right)))
        result = kernels["add"](left, right)
        assert [s // 4 for s in result.strides] == list(expected.stride())
    less, expected = kernels["lt"](a, b), torch_of(torch, a) < torch_of(torch, b)
    assert list(less.strides) == list(expected.stride())
    expected = torch_of(torch, a).exp()
    assert [s // 4 for s in kernels["exp"](a).strides] == list(expected.stride())


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_strides_of_memory_formats_and_expanded_operands(kernels, data):
    """Arbitrary strides, zeros included, as `empty_strided` can make them, give PyTorch's strides."""
    torch = pytest.importorskip("torch")
    shape = data.draw(st.lists(st.integers(2, 4), max_size=4).map(tuple))
    pair = []
    for _ in range(2):
        strides = data.draw(st.tuples(*(st.sampled_from([0, 1, 2, 3, 4, 6, 12, 60]) for _ in shape)))
        pair.append(np.lib.stride_tricks.as_strided(np.zeros(1000, "f4"), shape, [4 * s for s in strides]))
    expected = torch_of(torch, pair[0]) + torch_of(torch, pair[1])
    assert [s // 4 for s in kernels["add"](*pair).strides] == list(expected.stride())


# ---- memory ----------------------------------------------------------------------------------------------------------------


def test_large_results_live_in_the_pool_and_go_back_to_it(native, kernels):
    """A large result is owned by a capsule, which returns its memory when the last view is gone."""
    x = np.ones(1000, "f8")
    gc.collect()
    live = native.pool_stats()["live"]
    result = kernels["add"](x, x)
    assert type(result.base).__name__ == "PyCapsule"
    assert result.ctypes.data % 64 == 0
    assert native.pool_stats()["live"] >= live + 8000
    view = native.strided_view(result, (10,), (100,), 5)[2:]
    assert native.strided_view(view, (2,), (1,), 0).base is result.base
    del result
    view[...] = 3
    assert native.pool_stats()["live"] > live
    del view
    assert native.pool_stats()["live"] == live
    assert kernels["add"](np.ones(4, "f4"), 1.0).base is None, "small results are NumPy's own"


def test_pool_statistics(native):
    """Peak, cached and trim tell and do what they say."""
    native.pool_stats(True)
    start = native.pool_stats()
    x = native.empty((1 << 18,), np.dtype("f4"))
    del x
    stats = native.pool_stats()
    assert stats["live"] == start["live"]
    assert stats["peak"] >= start["live"] + (1 << 20)
    assert stats["cached"] >= 1 << 20
    native.pool_trim()
    assert native.pool_stats()["cached"] == 0


def test_too_large_is_a_memory_error_that_gives_the_size(native, kernels):
    """Results nobody can hold raise MemoryError, also where the number of bytes overflows 64 bits."""
    one = np.ones(1, "f4")
    column, row = np.broadcast_to(one, (2**40, 1)), np.broadcast_to(one, (1, 2**40))
    with pytest.raises(MemoryError, match="bytes"):
        kernels["add"](column, row)
    with pytest.raises(MemoryError, match=str(2**57)):
        kernels["add"](np.broadcast_to(one, (2**55,)), 1.0)
    with pytest.raises(MemoryError, match="bytes"):
        kernels["add"](np.zeros((2**40, 1, 0), "f4"), np.zeros((1, 2**40, 0), "f4"))
    assert kernels["add"](np.zeros((2**40, 0), "f4"), np.zeros((1, 0), "f4")).shape == (2**40, 0)
    for shape in [(2**62,), (2**40, 2**40), (2**40, 2**40, 0)]:
        with pytest.raises(MemoryError):
            native.empty(shape, np.dtype("f8"))
    for strides in [(2**55, 1), (2**53, 2**53)]:
        with pytest.raises(MemoryError):
            empty_strided((100, 100), strides, np.dtype("f8"))


# ---- arrays and views ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i2", "u8", "f4", "c16", BF16], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (40, 50)])
def test_empty(native, shape, dtype):
    """empty(shape, dtype) is an array in C order that can be written."""
    x = native.empty(shape, np.dtype(dtype))
    assert type(x) is np.ndarray and x.shape == shape and x.dtype == np.dtype(dtype)
    assert x.flags.c_contiguous and x.flags.writeable and x.flags.aligned
    x[...] = 1
    assert (x == 1).all()


@pytest.mark.parametrize(
    "shape, strides", [((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2, 3), (10, 2)), ((4, 5), (0, 1)), ((), ()), ((0, 3), (9, 1))]
)
def test_empty_strided(shape, strides):
    """Strides are counted in elements and need not be dense; the memory reaches to the last element."""
    for dtype in ("f4", "c16", BF16):
        dtype = np.dtype(dtype)
        x = empty_strided(shape, strides, dtype)
        assert x.shape == shape and x.strides == tuple(s * dtype.itemsize for s in strides)
        x[...] = 1
        assert (x == 1).all()


def test_bad_shapes_and_dtypes_are_refused(native):
    """Negative sizes, missing strides, too many dimensions and dtypes that are no numbers raise, and nothing crashes."""
    f4 = np.dtype("f4")
    for shape in [(-1,), (2, -3), (1,) * 65]:
        with pytest.raises(ValueError):
            native.empty(shape, f4)
        with pytest.raises(ValueError):
            native.strided_view(X, shape, (1,) * len(shape), 0)
    for shape in [None, "ab", (1.5,), ("a",)]:
        with pytest.raises(TypeError):
            native.empty(shape, f4)
    for dtype in [np.dtype(object), np.dtype("S4"), np.dtype("f4,i4"), np.dtype("M8[s]"), "f4", None, np.float32]:
        with pytest.raises(TypeError):
            native.empty((2,), dtype)
    with pytest.raises(ValueError):
        empty_strided((2, 3), (3,), f4)
    with pytest.raises(ValueError):
        empty_strided((2, 3), (-3, 1), f4)
    with pytest.raises(TypeError):
        native.strided_view([1, 2], (2,), (1,), 0)
    with pytest.raises(TypeError):
        native.strided_view(X, (2,), (1,), "0")
    with pytest.raises((ValueError, OverflowError)):
        native.strided_view(X, (2,), (2**62,), 0)
    for function in (native.empty, native.strided_view):
        with pytest.raises(TypeError):
            function()


@pytest.mark.parametrize("dtype", ["f4", "i8", "c16", BF16], ids=str)
def test_strided_view_shares_memory(native, dtype):
    """A view sees and changes the array's memory: strides and offset in elements, relative to the first element."""
    x = np.arange(24).astype(dtype)
    view = native.strided_view(x[4:], (3, 2), (1, 6), -2)
    np.testing.assert_array_equal(view, np.arange(24)[2:].astype(dtype)[[[0, 6], [1, 7], [2, 8]]])
    view[0, 0] = 99
    assert x[2] == 99
    assert native.strided_view(x, [2], [0], 3).strides == (0,)
    assert native.strided_view(x, (), (), 5) == x[5]
    assert native.strided_view(x, (0, 2), (1, 1), 0).shape == (0, 2)
    assert native.strided_view(x, np.array([2]), (np.int64(2),), 0).shape == (2,)


def test_views_of_views_hold_the_owner(native):
    """The base of a view is the owner of the memory, never a chain of views; read-only stays read-only."""
    x = np.arange(6.0)
    first = native.strided_view(x, (3,), (2,), 0)
    assert first.base is x
    assert native.strided_view(first, (2,), (1,), 0).base is x
    foreign = np.frombuffer(bytearray(48))
    view = native.strided_view(foreign, (3,), (2,), 0)
    assert view.base is foreign
    assert native.strided_view(view, (2,), (1,), 0).base is foreign
    assert view.flags.writeable
    x.flags.writeable = False
    assert not native.strided_view(x, (3,), (2,), 0).flags.writeable
    count = sys.getrefcount(x)
    for _ in range(10):
        native.strided_view(x, (3,), (2,), 0)
    assert sys.getrefcount(x) == count


# ---- threads ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(300_001,), (7, 50_003), (50_003, 3), (20, 30, 40, 50)])
def test_results_do_not_depend_on_the_number_of_threads(native, kernels, shape):
    """Same bits with 1, 2 and 3 threads, in every layout, and the values are right."""
    a = np.random.default_rng(0).standard_normal(shape, "f4")
    b = np.random.default_rng(1).standard_normal(shape[-1:], "f4")
    c = np.asfortranarray(np.random.default_rng(2).standard_normal(shape, "f4"))
    calls = [lambda: kernels["exp"](a), lambda: kernels["add"](a, b), lambda: kernels["mul"](a, c), lambda: kernels["lt"](a, 0.5),
             lambda: kernels["add"].into(np.empty_like(c), a, b), lambda: kernels["exp"](a[::-1])]  # fmt: skip
    answers = [np.exp(a), a + b, a * c, a < np.float32(0.5), a + b, np.exp(a[::-1])]
    before = native.get_num_threads()
    try:
        for call, answer in zip(calls, answers, strict=True):
            results = []
            for threads in (1, 2, 3):
                native.set_num_threads(threads)
                assert native.get_num_threads() == threads
                results.append(call())
            np.testing.assert_allclose(results[0], answer, rtol=1e-5)
            assert all(np.array_equal(results[0], other) and results[0].strides == other.strides for other in results[1:])
    finally:
        native.set_num_threads(before)
    with pytest.raises(RuntimeError):
        native.set_num_threads(0)


def test_python_threads_may_launch_at_the_same_time(kernels):
    """Large work runs without the GIL: launches from several Python threads do not disturb each other."""
    inputs = [np.full((300, 400), i, "f4") for i in range(4)]

    def work(x):
        return all((kernels["add"](x, x.T.copy().T) == 2 * x[0, 0]).all() for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, inputs))


# ---- matrix products -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def blas(native):
    openblas = pytest.importorskip("scipy_openblas32")
    found = sorted(Path(openblas.get_lib_dir()).glob("libscipy_openblas*"))
    native.blas_bind(*products.functions(str(found[0])))
    return native


LAYOUTS = {
    "rows": lambda x: x,
    "columns": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "a piece": lambda x: np.pad(x, [(1, 2)] * x.ndim)[(slice(1, -2),) * x.ndim],
    "a piece in columns": lambda x: LAYOUTS["columns"](np.pad(x, [(1, 2)] * x.ndim))[(slice(1, -2),) * x.ndim],
}


def matrix(shape, dtype, seed):
    random = np.random.default_rng(seed)
    x = random.standard_normal(shape)
    return (x + 1j * random.standard_normal(shape)).astype(dtype) if np.dtype(dtype).kind == "c" else x.astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("batch", [(), (3,)])
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (2, 3, 4), (1, 7, 5), (5, 7, 1), (40, 50, 60), (3, 0, 2), (0, 3, 2)])
def test_gemm_and_matmul(blas, dtype, batch, m, k, n):
    """out = alpha a @ b + beta out for all layouts BLAS can read, the output's too."""
    tolerance = dict(rtol=1e-4, atol=1e-4) if dtype in ("f4", "c8") else dict(rtol=1e-10, atol=1e-10)
    a, b, c = matrix((*batch, m, k), dtype, 1), matrix((*batch, k, n), dtype, 2), matrix((*batch, m, n), dtype, 3)
    for layout in LAYOUTS.values():
        for out_layout in LAYOUTS.values():
            left, right, out = layout(a), LAYOUTS["columns"](b), out_layout(c.copy())
            assert blas.gemm(left, right, out, 2, -0.5, None) is out
            np.testing.assert_allclose(out, 2 * (a @ b) - c / 2, **tolerance)
            out = out_layout(np.full_like(c, np.nan))
            assert blas.gemm(left, layout(b), out, 1.0, 0.0, None) is out
            np.testing.assert_allclose(out, a @ b, **tolerance)
        product = blas.matmul(layout(a), layout(b))
        assert type(product) is np.ndarray and product.dtype == np.dtype(dtype) and product.flags.c_contiguous
        np.testing.assert_allclose(product, a @ b, **tolerance)


def test_gemm_repeats_a_matrix_over_the_batch(blas):
    """A batch stride of 0, or a negative one, is a stride like any other for the inputs; the output must not repeat."""
    a, b = matrix((4, 5, 6), "f4", 1), matrix((6, 7), "f4", 2)
    repeated = np.broadcast_to(b, (4, 6, 7))
    np.testing.assert_allclose(blas.matmul(a, repeated), a @ b, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(blas.matmul(a[::-1], repeated), a[::-1] @ b, rtol=1e-4, atol=1e-4)
    out = np.lib.stride_tricks.as_strided(np.zeros((5, 7), "f4"), (4, 5, 7), (0, 28, 4))
    assert blas.gemm(a, repeated, out, 1, 0, None) is NotImplemented


def test_products_that_are_not_for_blas(blas):
    """Other ranks, dtypes, shapes, strides and overlapping memory are handed back."""
    a, b, out = matrix((4, 4), "f4", 1), matrix((4, 4), "f4", 2), np.zeros((4, 4), "f4")
    frozen = out.copy()
    frozen.flags.writeable = False
    wide = np.zeros((8, 8), "f4")
    cases = [(a, b.astype("f8"), out), (a, b[:3], out), (a, b, out[:3]), (a[0], b, out), (a, b[0], out), (a, b, out[0])]
    cases += [(a[None], b, out), (a[None], b[None], out), (a, b, frozen), (a, b, a), (a, b, b.T), (wide[::2, ::2], b, out)]
    cases += [(a[::-1], b, out), (a, b, wide[::2, ::2]), (a, b, None), (None, b, out), (a, b.view(Sub), out)]
    cases += [(np.broadcast_to(a[0], (4, 4)), b, out), (a, b, np.zeros((4, 4), ">f4")), (a[None, None], b[None, None], out[None, None])]
    cases += [tuple(x.astype(dtype) for x in (a, b, out)) for dtype in ("f2", "i8", "?", object)]
    for case in cases:
        assert blas.gemm(*case, 1, 0, None) is NotImplemented
    for alpha in (None, "1", 1j, out):
        assert blas.gemm(a, b, out, alpha, 0, None) is NotImplemented
    for left, right in [(a, 1), (1, b), (a, b[:3]), (a[0], b), (a, b.astype("f8")), (a.astype("i8"), b.astype("i8")), (a[None], b)]:
        assert blas.matmul(left, right) is NotImplemented
    for wrong in (lambda: blas.gemm(a, b), lambda: blas.matmul(a), lambda: blas.blas_bind(1)):
        with pytest.raises(TypeError):
            wrong()


def test_products_do_not_depend_on_the_number_of_threads(blas):
    """Same bits with 1, 2 and 3 threads."""
    a, b = matrix((3, 130, 70), "f4", 1), matrix((3, 70, 200), "f4", 2)
    before, results = blas.get_num_threads(), []
    for threads in (1, 2, 3):
        blas.set_num_threads(threads)
        results.append(blas.matmul(a, b))
    blas.set_num_threads(before)
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


# ---- the tables ------------------------------------------------------------------------------------------------------------


def test_what_a_kernel_tells_about_itself(native, kernels):
    """Names and dtypes."""
    dtypes: dict[str, list[str]] = {}
    for name, dtype in native.loops():
        dtypes.setdefault(name, []).append(dtype)
    assert set(dtypes) == {"add", "mul", "lt", "where", "clamp", "exp", "second", "which", "odd"}
    assert dtypes["clamp"] == ["float32", "float64", "int64"]
    assert dtypes["second"] == ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
                           "complex64", "complex128"]  # fmt: skip


@pytest.mark.skipif(not HAS_AVX2, reason="needs a CPU with AVX2")
@pytest.mark.parametrize("wish, variant, which", [(None, "avx2", 2), ("baseline", "baseline", 1), ("avx2", "avx2", 2)])
def test_the_best_variant_is_chosen_and_lacks_nothing(library, wish, variant, which):
    """The better table wins where it has an entry, lower ones fill the gaps, FLAMBEAU_CPU lowers the choice."""
    program = (
        "import sys, numpy as np; sys.path.insert(0, sys.argv[1]); import _native as n; k = n.Kernel('which');"
        "print(n.variant(), k(np.zeros(1, 'f4'))[0], k(np.zeros(1))[0], len({name for name, _ in n.loops()}))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "FLAMBEAU_CPU"}
    environment |= {"FLAMBEAU_CPU": wish} if wish else {}
    told = subprocess.run([sys.executable, "-c", program, str(library.parent)], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.split("\n")[0] == f"{variant} {which}.0 1.0 9"


@pytest.mark.skipif(not fuzz_launcher.KERNELS or not hasattr(os, "fork"), reason="needs the compiled kernels, and fork")
def test_hostile_calls_do_not_crash():
    """A compiled kernel ended the process instead of raising. fuzz_launcher.py tries more, and says how to repeat one."""
    assert sum(fuzz_launcher.run(0, 3000).values()) == 3000
