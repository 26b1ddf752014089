"""Scans, extrema with places, sorting and selecting: the compiled loops along a dimension against NumPy's answers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import flambeau
from flambeau.kernels.native import native
from flambeau.kernels.reductions.along_dim import COLUMNS, first_of_all, lines
from flambeau.kernels.reductions.fold import ALL
from flambeau.kernels.templates import sorting

pytestmark = pytest.mark.skipif(native.lib is None, reason="nothing is compiled here")
NAMES = {"bfloat16": ml_dtypes.bfloat16}
# (shape, dim): rows, columns that fill blocks and that do not, both sides of every threshold (48, 64, 256, 2^14 elements)
CASES = [
    ((7,), 0), ((1, 1), 0), ((5, 49), 1), ((3, 700), 1), ((64, 3, 5), 0), ((2, 70, 17), 1), ((30, COLUMNS + 3), 0), ((2, 20001), 1), ((17000, 2), 0),
]  # fmt: skip
ORDERS = {
    "contiguous": lambda a: a,
    "transposed": lambda a: a.copy(order="F"),
    "every other": lambda a: np.repeat(a, 2, axis=0)[::2],
    "expanded": lambda a: np.broadcast_to(a[:1], a.shape),
    "read only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
}


def elements(shape, dtype: str, few: bool = False) -> np.ndarray:
    """Numbers with ties, and in floating point NaN, both infinities and both zeros."""
    rng = np.random.default_rng(5)
    if dtype not in ("float16", "bfloat16", "float32", "float64"):
        bits = {"bool": 1, "uint8": 8}.get(dtype) or np.dtype(dtype).itemsize * 8 - 1
        low = 0 if dtype in ("bool", "uint8") else -(2**bits)
        return rng.integers(low, 2**bits - 1, shape, endpoint=True).astype(dtype) if not few else rng.integers(0, 2, shape).astype(dtype)
    values = rng.integers(-3, 4, shape) * 0.5 if few else rng.standard_normal(shape) * 10
    flat = values.reshape(-1)
    for i, special in enumerate((np.inf, -np.inf, 0.0, -0.0, np.nan, np.nan)):
        flat[i * 2 + 1 :: 13 * (i + 3)] = special
    return values.astype(NAMES.get(dtype, dtype))


def samples(dtype: str):
    """(array, dim, what it is) for every case."""
    for shape, dim in CASES:
        for few in (False, True):
            for name, arrange in ORDERS.items() if np.prod(shape) < 4000 else [("contiguous", ORDERS["contiguous"])]:
                yield arrange(elements(shape, dtype, few)), dim, f"{dtype} {shape} dim {dim} {name}"


def same_bits(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape, what
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes(), what


@pytest.mark.parametrize("dtype", ALL)
def test_sorting_is_stable_and_nan_is_the_greatest(dtype):
    """A sort, argsort or topk is not the stable one, or a value is not the element at its index, bit by bit."""
    for array, dim, what in samples(dtype):
        wide = array.astype(np.float64) if dtype in ("float16", "bfloat16") else array
        up = np.argsort(wide, axis=dim, kind="stable")
        n = array.shape[dim]
        down = n - 1 - np.flip(np.argsort(np.flip(wide, dim), axis=dim, kind="stable"), dim)
        for descending, expected in ((False, up), (True, down)):
            values, indices = sorting.sort(array, dim, descending)
            same_bits(indices, expected, what)
            same_bits(values, np.take_along_axis(array, expected, dim), what)
            for k in {1, min(5, n), min(64, n), min(65, n), n}:
                first = np.take(expected, range(k), dim)
                values, indices = sorting.topk(array, k, dim, descending)
                same_bits(indices, first, f"{what} k={k}")
                same_bits(values, np.take_along_axis(array, first, dim), f"{what} k={k}")


@pytest.mark.parametrize("dtype", [d for d in ALL if d != "bool"])
def test_the_kth_is_what_sorting_finds(dtype):
    """The kth smallest, the median or the median without NaNs is not the element that stands there after sorting."""
    for array, dim, what in samples(dtype):
        wide = array.astype(np.float64) if dtype in ("float16", "bfloat16") else array
        n, ordered = array.shape[dim], np.sort(wide, axis=dim)
        nans = (wide != wide).sum(axis=dim, keepdims=True)
        places = [(sorting.kth_smallest(array, k, dim), np.full(nans.shape, k)) for k in {0, n // 3, n - 1}]
        places.append((sorting.median(array, dim, False), np.where(nans > 0, n - 1, (n - 1) // 2)))
        places.append((sorting.median(array, dim, True), np.maximum(n - nans - 1, 0) // 2))
        for found, place in places:
            got = np.take_along_axis(wide, found, dim)
            np.testing.assert_array_equal(got, np.take_along_axis(ordered, place, dim), err_msg=what)


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("name", ["max", "min"])
def test_extrema_and_their_places(name, dtype):
    """An extremum of a line is not the first, or a running one not the latest, or NaN does not prevail."""
    for array, dim, what in samples(dtype):
        wide = array.astype(np.float64) if dtype in ("float16", "bfloat16") else array
        places = getattr(np, f"arg{name}")(wide, axis=dim, keepdims=True)
        values, indices = lines(name, array, dim, 1)
        same_bits(indices, places, what)
        same_bits(values, np.take_along_axis(array, places, dim), what)
        assert first_of_all(name, array)[1] == getattr(np, f"arg{name}")(wide), what
        best = getattr(np, f"{name}imum").accumulate(wide, axis=dim)
        here = (wide == best) | (wide != wide)
        at = np.arange(array.shape[dim]).reshape([-1 if d == dim else 1 for d in range(array.ndim)])
        places = np.maximum.accumulate(np.where(here, at, 0), axis=dim)
        values, indices = lines(f"cum{name}", array, dim)
        same_bits(indices, places, what)
        same_bits(values, np.take_along_axis(array, places, dim), what)


def test_the_place_among_many():
    """argmax of a long array is not the first place of the maximum, wherever that is."""
    for n in (1 << 15, (1 << 16) + 5, 200_003):
        for place in (0, 3, n // 2, n - 1):
            array = np.zeros(n, np.float32)
            array[place] = array[min(place + 40_000, n - 1)] = 1
            assert first_of_all("max", array)[1] == place


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int64"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_scans_round_once(name, dtype):
    """A running sum, product or log-sum is not the one carried in double (integers: in int64) and rounded at the end."""
    if (name, dtype) == ("logcumsumexp", "int64"):
        return
    combine = {"cumsum": np.add, "cumprod": np.multiply, "logcumsumexp": np.logaddexp}[name]
    for array, dim, what in samples(dtype):
        wide = array.astype(np.int64 if dtype == "int64" else np.float64)
        with np.errstate(all="ignore"):
            expected = combine.accumulate(wide, axis=dim)
            (found,) = lines(name, array, dim, indices=False)
            step = 0 if dtype == "int64" else float(ml_dtypes.finfo(array.dtype).eps)
            np.testing.assert_allclose(
                found.astype(wide.dtype), expected.astype(array.dtype).astype(wide.dtype), max(step, 1e-12), 1e-9, err_msg=what
            )


def test_logcumsumexp_of_far_apart_numbers():
    """A stretch whose first exponentials vanish beside its largest loses them."""
    rows = np.concatenate([np.linspace(-5000, 5000, 1000), np.linspace(5000, -5000, 1000), np.full(600, -np.inf)]).reshape(1, -1)
    for array in (rows, rows[:, ::-1], rows[:, 700:]):
        (found,) = lines("logcumsumexp", np.ascontiguousarray(array), 1, indices=False)
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(found, np.logaddexp.accumulate(array, axis=1), rtol=1e-12)


def test_the_number_of_threads_changes_nothing():
    """A result depends on how many threads found it."""
    array = elements((300, 1100), "float32")
    before = flambeau.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            flambeau.set_num_threads(threads)
            results = [
                f
                for dim in (0, 1)
                for name in ("sort", "max", "cummax")
                for f in lines(name, array, dim, None if name != "max" else 1, *[0] * (name == "sort"), width=16)
            ]
            results += [lines(name, array, dim, indices=False)[0] for dim in (0, 1) for name in ("cumsum", "logcumsumexp")]
            found.append([r.tobytes() for r in results])
    finally:
        flambeau.set_num_threads(before)
    assert found[0] == found[1] == found[2]
