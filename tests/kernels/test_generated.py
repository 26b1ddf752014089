"""The generated C: every pointwise kernel against the NumPy evaluator, every fold against NumPy in double precision.

Kernels are tried in every dtype they have, on every CPU variant of this machine.

Loop and evaluator start from the same formula, so they may differ only by rounding. How much that is, the formula itself says: it is evaluated again a few
times with every step pushed by as many units in the last place as that primitive may err (`Shaken`), and what moves may differ as far as
it moved. A stable formula is thus held to a few ulp, an ill-conditioned one is not blamed for its conditioning, and NaN, infinity and zero
must be where they are. Integers agree bit for bit.
"""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from flambeau.kernels import generate
from flambeau.kernels.language import evaluate, print_complex
from flambeau.kernels.language.pointwise import Pointwise
from flambeau.kernels.native import native
from flambeau.kernels.reductions import folding
from flambeau.kernels.reductions.fold import FOLDS

pytestmark = pytest.mark.skipif(native.lib is None, reason="the extension is not compiled")

KERNELS: dict[str, Pointwise] = {} if native.lib is None else {kernel.name: kernel for kernel in generate.kernels()}
COUNT = 1000  # elements of each sample
SIZES = (0, 1, 7, 33, COUNT)
OPTIONS = {
    "alpha": 2, "value": -3, "nan": 1, "posinf": 5, "neginf": -5, "scale": 10, "unit": 10, "eps": 0.125, "min_val": -1, "max_val": 2,
    "negative_slope": 0.25, "threshold": 1, "input_scale": 0.5, "beta": 2, "lambd": 0.5,
}  # fmt: skip
# Generated loops divide integers without asking: the operations above them refuse a zero before they start (ops/arithmetic.py).
DIVISIONS = {"_div_floor", "_floor_divide", "_fmod", "_remainder", "_div_trunc_integers"}


def test_the_extension_holds_the_kernels_that_are_declared():
    """The compiled table and the declarations name the same kernels and dtypes: if not, the extension is older than the sources."""
    compiled = native.kernels()
    assert set(KERNELS) == set(compiled)
    for name, kernel in KERNELS.items():
        complex_too = set(print_complex.PARTS) if print_complex.is_compiled(kernel) else set()
        assert compiled[name] == {dtype for _, dtype, _ in generate.instances(kernel)} | complex_too, name


# -- samples -------------------------------------------------------------------------------------------------------------


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def sample(dtype: np.dtype, place: int, rng: np.random.Generator, zeros: bool = True) -> np.ndarray:
    """COUNT values for the operand at `place`: first every special value beside every other, then ordinary ones of all sizes."""
    if dtype.kind == "b":
        return rng.integers(0, 2, COUNT).astype(bool)
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        wide = rng.integers(low, high, COUNT, dtype=dtype, endpoint=True)
        values = np.where(rng.random(COUNT) < 0.5, rng.integers(max(-9, low), 9, COUNT).astype(dtype), wide)
        special = np.array([low, high, 0, 1, low + 1, 2, 3], dtype)
        return np.where(crossed(values, special, place) != 0, values, 5).astype(dtype) if not zeros else crossed(values, special, place)
    info = ml_dtypes.finfo(dtype)
    tiny, huge, small = float(info.smallest_subnormal), float(info.max), float(info.tiny)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, huge, -huge, small, 1, -1, 0.5, -0.5, 2, -2, 3.14159, -7.5])
    values = (rng.standard_normal(COUNT) * 10.0 ** rng.uniform(-2, 1.2, COUNT)).astype(dtype)
    values = crossed(values, special.astype(dtype), place)
    return rng.permutation(values) if place > 1 else values


def crossed(values: np.ndarray, special: np.ndarray, place: int) -> np.ndarray:
    n = len(special)
    values[: n * n] = np.tile(special, n) if place % 2 else np.repeat(special, n)
    return values


@dataclass
class Sample:
    """Operands of a kernel for one dtype, and what the evaluator makes of them."""

    kernel: Pointwise
    dtype: np.dtype
    out: np.dtype
    operands: list[np.ndarray]
    params: list[float]
    expected: Expectation

    def with_number(self, place: int, value) -> Sample:
        """The same with one operand a single number."""
        operands = [np.full_like(a, value) if i == place else a for i, a in enumerate(self.operands)]
        return Sample(
            self.kernel,
            self.dtype,
            self.out,
            operands,
            self.params,
            Expectation.of(self.kernel, self.dtype, self.out, operands, self.params),
        )


@functools.cache
def samples(name: str) -> list[Sample]:
    kernel = KERNELS[name]
    found = []
    for kinds, dtype, out in generate.instances(kernel):
        if kinds != kernel.kinds:
            continue  # the same loop for a number, which tests/ops/test_half_precision.py compares with PyTorch's
        rng = np.random.default_rng(5)
        kinds = {"T": numpy_dtype(dtype), "bool": np.dtype(bool), "i64": np.dtype(np.int64)}
        operands = [sample(kinds[kind], i, rng, zeros=name not in DIVISIONS or i == 0) for i, kind in enumerate(kernel.kinds)]
        params = [OPTIONS.get(option, 0.75) for option in kernel.options]
        expected = Expectation.of(kernel, numpy_dtype(dtype), numpy_dtype(out), operands, params)
        found.append(Sample(kernel, numpy_dtype(dtype), numpy_dtype(out), operands, params, expected))
    return found


# -- what may differ -----------------------------------------------------------------------------------------------------

EXACT = frozenset(
    "neg abs sgn floor ceil trunc rint conj where maximum minimum copysign nextafter as_T fmod remainder floordiv load const param".split()
)
ROUNDED = frozenset("add sub mul div sqrt reciprocal".split())  # off by half a unit, or by nothing if the compiler fuses it with the next
ABSOLUTE = frozenset({"lgamma", "digamma"})  # near their zeros only the absolute error is small


class Shaken(evaluate._Evaluation):
    """The evaluator, erring at every step by as much as the primitive may, upwards or downwards."""

    def __init__(self, operands, params, compute, rng: np.random.Generator):
        super().__init__(operands, params, compute)
        self.rng = rng

    def value(self, expr):
        exact = super().value(expr)
        if expr.kind != "T" or expr.op in EXACT:
            return exact
        ulps = 1 if expr.op in ROUNDED else 4
        unit = np.spacing(np.maximum(np.abs(exact), 4) if expr.op in ABSOLUTE else np.abs(exact))
        push = self.rng.choice([-ulps, ulps], exact.shape).astype(exact.dtype)
        return np.where(np.isfinite(unit), exact + push * unit, exact).astype(exact.dtype)


@dataclass
class Expectation:
    """The evaluator's value, the same with no step rounded (the compiler may fuse a * b + c), and how far a result may be from either."""

    value: np.ndarray
    unrounded: np.ndarray
    room: np.ndarray | None  # None: not at all
    stable: np.ndarray  # False where a hair, or an infinity on the way, decides between a number and none

    @classmethod
    def of(cls, kernel: Pointwise, dtype: np.dtype, out: np.dtype, operands, params) -> Expectation:
        with np.errstate(all="ignore"):
            value = np.broadcast_to(evaluate.evaluate(kernel.expr, operands, params, dtype), (COUNT,))
            stored = value.astype(out)
            if value.dtype.kind != "f" or out.kind in "biu" or kernel.name.startswith("to_"):
                return cls(stored, stored, None, np.ones(COUNT, bool))
            wide = np.dtype(np.float64 if value.dtype == np.float32 else np.longdouble)
            unrounded = np.broadcast_to(evaluate._Evaluation([_widened(a, wide) for a in operands], params, wide)(kernel.expr), (COUNT,))
            rng, room, stable = np.random.default_rng(7), np.zeros(COUNT), np.isfinite(unrounded.astype(out)) == np.isfinite(stored)
            for _ in range(8):
                shaken = np.broadcast_to(Shaken(operands, params, value.dtype, rng)(kernel.expr), (COUNT,))
                moved = np.abs(shaken.astype(np.float64) - value.astype(np.float64))
                room = np.fmax(room, np.where(np.isfinite(moved), moved, 0))
                stable &= same(shaken, value) | (np.isfinite(shaken) & np.isfinite(value))
            room = 2 * room + np.spacing(np.abs(value)).astype(np.float64)
            if out != value.dtype:  # a half is rounded from a float32 that may lie on the other side of a tie
                info = ml_dtypes.finfo(out)
                room += np.maximum(np.abs(value.astype(np.float64)) * float(info.eps), float(info.smallest_subnormal))
            return cls(stored, unrounded.astype(out), room, stable)

    def check(self, got: np.ndarray, n: int, where: str) -> None:
        """Compare the first n elements."""
        assert got is not NotImplemented, f"{where}: there is no loop"
        assert got.dtype == self.value.dtype and got.shape == (n,), where
        with np.errstate(all="ignore"):
            wrong = ~self._near(got, self.value[:n], n)
            if self.room is not None:
                wrong &= ~self._near(got, self.unrounded[:n], n) & self.stable[:n]
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            pytest.fail(f"{where}: {int(wrong.sum())} of {n} elements differ; element {i} is {got[i]!r}, expected {self.value[i]!r}")

    def _near(self, got: np.ndarray, value: np.ndarray, n: int) -> np.ndarray:
        if self.room is None:
            return same(got, value)
        apart = np.abs(got.astype(np.float64) - value.astype(np.float64))
        return same(got, value) | ((apart <= self.room[:n]) & ((got != 0) | (value != 0)))


def _widened(array: np.ndarray, wide: np.dtype) -> np.ndarray:
    return array if array.dtype.kind == "b" else array.astype(wide)


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same number, or both NaN; a zero has its sign."""
    if a.dtype.kind in "biu":
        return a == b
    a, b = (x.astype(np.float64) if x.dtype.itemsize <= 8 else x for x in (a, b))
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | ((a != a) & (b != b))


# -- layouts ---------------------------------------------------------------------------------------------------------------


def contiguous(a: np.ndarray) -> np.ndarray:
    return a.copy()


def every_other(a: np.ndarray) -> np.ndarray:
    room = np.zeros(2 * len(a), a.dtype)
    room[::2] = a
    return room[::2]


def backwards(a: np.ndarray) -> np.ndarray:
    return a[::-1].copy()[::-1]


def backwards_with_gaps(a: np.ndarray) -> np.ndarray:
    room = np.zeros(3 * len(a), a.dtype)
    room[::-3] = a
    return room[::-3]


LAYOUTS = (contiguous, every_other, backwards, backwards_with_gaps)

every_kernel = pytest.mark.parametrize("name", KERNELS)


@every_kernel
def test_a_loop_computes_what_the_evaluator_does(name):
    """The generated C differs from the NumPy evaluator of the same formula."""
    launch = native.kernel(name)
    for s in samples(name):
        for n in SIZES:
            operands = [a[:n].copy() for a in s.operands]
            s.expected.check(launch(*operands, *s.params), n, f"{name} {s.dtype} {n}")


@every_kernel
def test_a_loop_reads_and_writes_any_strides(name):
    """Operands or a result that are not contiguous give other values."""
    launch = native.kernel(name)
    for s in samples(name):
        for shift, n in enumerate(SIZES):
            # Each operand in another layout, and in the next round in yet another.
            operands = [LAYOUTS[(i + shift) % len(LAYOUTS)](a[:n]) for i, a in enumerate(s.operands)]
            s.expected.check(launch(*operands, *s.params), n, f"{name} {s.dtype} {n} strided")
            target = LAYOUTS[shift % len(LAYOUTS)](np.zeros(n, s.out))
            assert launch.into(target, *operands, *s.params) is target
            s.expected.check(target, n, f"{name} {s.dtype} {n} into strided")


@every_kernel
def test_a_loop_takes_numbers(name):
    """A single number in place of an operand (a Python number, a 0-d array, a stride of 0) gives other values."""
    launch = native.kernel(name)
    for s in samples(name):
        for place, operand in enumerate(s.operands):
            if len(s.operands) == 1:
                continue
            value = operand[-1]
            if not value and name in DIVISIONS and place:
                value = operand.dtype.type(3)
            one = s.with_number(place, value)
            number = float(value) if operand.dtype == ml_dtypes.bfloat16 else value.item()
            for form in (number, np.array(value), np.broadcast_to(value, (COUNT,))):
                operands = [form if i == place else a for i, a in enumerate(s.operands)]
                got = launch(*operands, *s.params)
                if got is NotImplemented and not _has_generic(s, operands):
                    continue  # a number alone where the dtype would be found: callers make an array of it
                one.expected.check(got, COUNT, f"{name} {s.dtype} operand {place} as {type(form).__name__}")


def _has_generic(s: Sample, operands) -> bool:
    return any(isinstance(a, np.ndarray) and kind == "T" for a, kind in zip(operands, s.kernel.kinds, strict=True))


@every_kernel
def test_a_loop_runs_in_place(name):
    """Written over one of its operands, a kernel gives other values."""
    launch = native.kernel(name)
    for s in samples(name):
        for place, operand in enumerate(s.operands):
            if operand.dtype == s.out:
                operands = [(every_other if i == place else contiguous)(a) for i, a in enumerate(s.operands)]
                launch.into(operands[place], *operands, *s.params)
                s.expected.check(operands[place], COUNT, f"{name} {s.dtype} over operand {place}")


# -- the other CPU variants ------------------------------------------------------------------------------------------------

CHILD = """
import pickle, sys
from flambeau.kernels.native import native
work = pickle.load(sys.stdin.buffer)
found = [[native.kernel(name)(*operands, *params) for operands in forms] for name, forms, params in work]
pickle.dump((native.lib.variant(), found), sys.stdout.buffer)
"""


@pytest.mark.parametrize("variant", ["baseline", "avx2"])
def test_every_cpu_variant_computes_the_same_formulas(variant):
    """The loops compiled for an older CPU give other values."""
    work, expected = [], []
    for name in KERNELS:
        for s in samples(name):
            forms = [[a[:n] for a in s.operands] for n in (7, COUNT)] + [[np.ascontiguousarray(every_other(a)) for a in s.operands]]
            work.append((name, forms, s.params))
            expected.append(s)
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=pickle.dumps(work),
        capture_output=True,
        env={**os.environ, "FLAMBEAU_CPU": variant},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    used, results = pickle.loads(done.stdout)
    if used != variant:
        pytest.skip(f"this machine has no {variant}")
    for s, (short, whole, strided) in zip(expected, results, strict=True):
        s.expected.check(short, 7, f"{s.kernel.name} {s.dtype} 7 on {variant}")
        for got in (whole, strided):
            s.expected.check(got, COUNT, f"{s.kernel.name} {s.dtype} on {variant}")


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_operands_that_lie_across_the_grain(dtype):
    """Elements of an operand that is turned tile by tile go astray, in some shape or order of dimensions."""
    rng, add, choose = np.random.default_rng(5), native.kernel("_add"), native.kernel("_where")
    for shape, order in [
        ((128, 130), (1, 0)), ((1000, 33), (1, 0)), ((67, 251), (1, 0)), ((9, 4096), (1, 0)), ((4096, 9), (1, 0)), ((5, 40, 96), (0, 2, 1)),
        ((5, 40, 96), (2, 1, 0)), ((5, 40, 96), (1, 2, 0)), ((3, 16, 20, 32), (0, 2, 3, 1)), ((3, 16, 20, 32), (3, 0, 2, 1)), ((2, 7, 1500), (2, 0, 1)),
    ]:  # fmt: skip
        a, b = (rng.integers(0, 100 if dtype != "bool" else 2, shape).astype(dtype) for _ in range(2))
        back = tuple(np.argsort(order))
        turned = np.ascontiguousarray(b.transpose(order)).transpose(back)
        flipped = np.ascontiguousarray(turned[..., ::-1].transpose(order)).transpose(back)[..., ::-1]
        for other in (turned, flipped):
            for got in (add(a, other), add(other, a), add(turned, turned)):
                assert got is not NotImplemented
            np.testing.assert_array_equal(add(a, other), a + b)
            np.testing.assert_array_equal(add(other, a), a + b)
            np.testing.assert_array_equal(choose(a > 3, other, a), np.where(a > 3, b, a))
            np.testing.assert_array_equal(choose(other > 3, other, a), np.where(b > 3, b, a))
            onto = a.copy()
            np.testing.assert_array_equal(add.into(onto, onto, other), a + b)


# -- folds: a reduction against NumPy's in double precision ------------------------------------------------------------------


REDUCTIONS = {
    "sum": lambda x, dims, shift, count: x.sum(dims, keepdims=True),
    "nansum": lambda x, dims, shift, count: np.nansum(x, dims, keepdims=True),
    "mean": lambda x, dims, shift, count: x.sum(dims, keepdims=True) / np.float64(count),
    "prod": lambda x, dims, shift, count: x.prod(dims, keepdims=True),
    "max": lambda x, dims, shift, count: x.max(dims, keepdims=True),
    "min": lambda x, dims, shift, count: x.min(dims, keepdims=True),
    "any": lambda x, dims, shift, count: (x != 0).any(dims, keepdims=True),
    "all": lambda x, dims, shift, count: (x != 0).all(dims, keepdims=True),
    "count_nonzero": lambda x, dims, shift, count: (x != 0).sum(dims, keepdims=True),
    "outside": lambda x, dims, shift, count: ((x < 0) | (x >= shift)).any(dims, keepdims=True),
    "norm1": lambda x, dims, shift, count: np.abs(x).sum(dims, keepdims=True),
    "norm2": lambda x, dims, shift, count: np.sqrt((x * x).sum(dims, keepdims=True)),
    "off": lambda x, dims, shift, count: (x - shift).sum(dims, keepdims=True) / np.float64(count),
    "var": lambda x, dims, shift, count: ((x - shift) ** 2).sum(dims, keepdims=True) / np.float64(count),
    "std": lambda x, dims, shift, count: np.sqrt(((x - shift) ** 2).sum(dims, keepdims=True) / np.float64(count)),
    "logsumexp": lambda x, dims, shift, count: np.log(np.exp(x - shift).sum(dims, keepdims=True)) + shift,
}
SHIFTED = {"off", "var", "std", "logsumexp"}
SHAPES = {
    (): [()], (1,): [(0,)], (7,): [(0,)], (33,): [(0,)], (0,): [(0,)], (3, 0): [(0,), (1,), (0, 1)],
    (5, 7): [(0,), (1,), (0, 1)], (4, 3, 6): [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)],
    (33, 1, 17): [(0,), (1,), (2,), (0, 2)], (130, 6): [(1,)], (30, 21): [(1,)], (9, 95): [(0,), (1,)], (7, 300): [(1,)], (3, 1100): [(1,)],
    (2, 70001): [(0,), (1,), (0, 1)], (40003, 3): [(0,), (1,)],
}  # fmt: skip
ORDERS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.copy(order="F"),
    "backwards": lambda a: a[..., ::-1].copy()[..., ::-1] if a.ndim else a,
    "every other": lambda a: np.repeat(a, 2, axis=0)[::2] if a.ndim else a,
    "expanded": lambda a: np.broadcast_to(a[:1], a.shape) if a.ndim and a.size else a,
}


def elements(shape, dtype: np.dtype, special: bool) -> np.ndarray:
    rng = np.random.default_rng(11)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.4)
    if dtype.kind in "iu":
        return np.asarray(rng.integers(0 if dtype.kind == "u" else -5, 6, shape)).astype(dtype)
    values = np.asarray(rng.standard_normal(shape))
    if special and values.size:
        values = np.where(rng.random(shape) < 0.1, rng.choice([np.nan, np.inf, -np.inf, 0.0, 1e18], shape), values)
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def near(got: np.ndarray, expected: np.ndarray, scale: np.ndarray, what: str) -> None:
    """Equal up to the rounding of the dtype and of a sum of that scale in double precision; integers and bools exactly."""
    assert got.shape == expected.shape, what
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected, err_msg=what)
        return
    info = ml_dtypes.finfo(got.dtype)
    with np.errstate(all="ignore"):
        room = 2 * float(info.eps) * np.abs(expected) + 1e-13 * scale + float(info.smallest_subnormal)
        beyond = np.abs(expected) > float(info.max) * (1 - float(info.eps))
        actual = got.astype(np.float64)
        fine = (
            (np.abs(actual - expected) <= room)
            | (actual == expected)
            | ((actual != actual) & (expected != expected))
            | (beyond & np.isinf(actual))
        )
    assert fine.all(), f"{what}: {actual[~fine][:3]}, expected {expected[~fine][:3]}"


@pytest.mark.parametrize("fold", FOLDS, ids=lambda fold: fold.name)
def test_a_fold_is_numpys_reduction(fold):
    """A compiled reduction differs from NumPy's over the same dimensions, in some shape, order of memory or dtype."""
    name = fold.name.removeprefix("i") if fold.name in ("isum", "iprod") else fold.name
    for dtype in map(numpy_dtype, fold.dtypes):
        out = dtype if fold.out == "T" else np.dtype(fold.out)
        for shape, choices in SHAPES.items():
            small = int(np.prod(shape)) < 1000
            for order in ORDERS if small else ("contiguous", "transposed"):
                array = ORDERS[order](elements(shape, dtype, special=small and order == "contiguous"))
                if name == "outside" and order == "transposed":
                    array = np.asarray(abs(array))
                for dims in choices:
                    if name in ("max", "min", "logsumexp") and 0 in [shape[d] for d in dims]:
                        continue
                    check_fold(name, array, dims, out, f"{name} {dtype} {shape} {dims} {order}")


def check_fold(name: str, array: np.ndarray, dims, out: np.dtype, what: str) -> None:
    wide = array.astype(np.int64 if array.dtype.kind in "biu" else np.float64)
    kept = tuple(1 if d in dims else n for d, n in enumerate(array.shape))
    count = float(np.prod([array.shape[d] for d in dims]))
    shift, extra = np.zeros(kept), ()
    with np.errstate(all="ignore"):
        if name in SHIFTED:
            centre = wide.max if name == "logsumexp" else wide.mean
            shift = centre(dims, keepdims=True).astype(array.dtype).astype(np.float64) if array.size else shift
            extra = (np.ascontiguousarray(shift), count)
        if name == "outside":  # of 0 ... 5, or of 0 ... 4
            shift = np.where(np.arange(np.prod(kept, dtype=int)) % 2, 5.0, 6.0).reshape(kept)
            extra = (shift, count)
        expected = np.asarray(REDUCTIONS[name](wide, dims, shift, count))
        scale = np.asarray(np.abs(np.where(np.isfinite(wide), wide, 0)).sum(dims, keepdims=True))
        if name in SHIFTED - {"off"} | {"norm2"}:  # distances and squares are taken in the dtype itself, float32 for the halves
            step = np.finfo(np.float64 if array.dtype == np.float64 else np.float32).eps
            scale = (1 + np.abs(shift) if name == "logsumexp" else np.abs(expected)) * max(1, 16 * step / 1e-13)
        if name in ("sum", "nansum", "mean") and array.dtype.kind not in "biu" and array.dtype != np.float64:
            scale = scale * (16 + 3) * 2.0**-24 / 1e-13  # so many float32 additions before the double ones
        if name == "prod":  # each factor rounds once
            scale = np.abs(expected) * count
    got = folding.fold(name, array, dims, True, out, *extra)
    assert got is not None, f"{what}: not compiled"
    assert got.dtype == out, what
    near(got, expected, scale, what)
    squeezed = folding.fold(name, array, dims, False, out, *extra)
    assert squeezed.shape == tuple(n for d, n in enumerate(array.shape) if d not in dims), what
    assert squeezed.tobytes() == got.tobytes(), what


@pytest.mark.parametrize("name", ["max", "min"])
def test_positions_are_those_of_the_first_extremum(name):
    """argmax or argmin is not the first place of the extremum, or of NaN where there is one."""
    for dtype in map(numpy_dtype, next(f for f in FOLDS if f.name == name).dtypes):
        for shape, choices in SHAPES.items():
            for order in ORDERS if int(np.prod(shape)) < 1000 else ("contiguous", "transposed"):
                array = ORDERS[order](elements(shape, dtype, special=True))
                for dims in choices:
                    if len(dims) == 1 and array.size:
                        wide = array.astype(np.float64)
                        values, places = folding.positions(name, array, dims, False)
                        what = f"{dtype} {shape} {dims} {order}"
                        np.testing.assert_array_equal(places, getattr(np, f"arg{name}")(wide, axis=dims[0]), err_msg=what)
                        np.testing.assert_array_equal(values.astype(np.float64), getattr(np, name)(wide, axis=dims[0]), err_msg=what)
