"""Counting, searching and whole-number products in compiled loops, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(7)


def both(function, *arrays_: np.ndarray, **options):
    """What ours and theirs answer, as arrays."""
    return [function(package, *map(package.tensor, arrays_), **options).numpy() for package in (flambeau, torch)]


def same(found: list[np.ndarray], what) -> None:
    ours, theirs = found
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape and np.array_equal(ours, theirs), what


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [1, 300, 33000, 100001])
def test_histograms_count_every_element_once(n, dtype):
    """An element is not counted in the interval PyTorch counts it in: edges, what lies outside, NaN."""
    x = RNG.standard_normal(n).astype(dtype)
    x[:: 7 if n > 1 else 2] = np.round(x[:: 7 if n > 1 else 2] * 4) / 4
    for bins, low, high in ((100, -2, 2), (8, -1, 1), (1, 0, 0.5), (40000, -3, 3), (10, 0, 0)):
        same(both(lambda p, t, bins=bins, low=low, high=high: p.histc(t, bins, low, high), x), (n, bins))
    x[0] = np.nan
    same(both(lambda p, t: p.histc(t, 9, -1, 1), x), (n, "nan"))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("n", [1, 33000, 100000])
def test_bincount_counts_whole_numbers(n, dtype):
    """bincount misses an element, or has too few places."""
    x = RNG.integers(0, 100, n).astype(dtype)
    for least in (0, 150, 50000):
        same(both(lambda p, t, least=least: p.bincount(t, minlength=least), x), (n, least))
    with pytest.raises(RuntimeError, match="non-negative"):
        flambeau.bincount(flambeau.tensor([1, -1]))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "int8"])
@pytest.mark.parametrize("size", [1, 2, 3, 6, 7, 8, 100, 1023, 1024])
def test_searches_end_where_pytorchs_do(size, dtype):
    """searchsorted has another answer than PyTorch: among equals, for NaN, or where the boundaries are not sorted."""
    strided = lambda p, x: x if p is flambeau else x.contiguous()  # noqa: E731  (theirs warns)
    for is_sorted in (True, False):
        edges = RNG.integers(-60, 60, (3, size)).astype(dtype)
        if is_sorted:
            edges.sort(axis=-1)
        values = RNG.integers(-70, 70, (3, 41)).astype(dtype)
        if dtype[0] == "f":
            edges[0, -1], values[:, 3], values[1, 4], values[2, 5] = np.nan, np.nan, np.inf, -np.inf
        for right in (False, True):
            same(both(lambda p, e, v, right=right: p.searchsorted(e, v, right=right), edges, values), (size, dtype, right))
            same(
                both(lambda p, e, v, right=right: p.searchsorted(e[0], strided(p, v[:, :3]), right=right, out_int32=True), edges, values),
                (size, dtype, right),
            )
            same(both(lambda p, e, v, right=right: p.bucketize(strided(p, v.t()), e[1], right=right), edges, values), (size, dtype, right))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (17, 33, 70), (40, 20, 129), (4, 0, 5), (0, 3, 2)])
def test_products_of_integers_wrap_around(shape, dtype):
    """A product of whole numbers is wrong where it overflows, at the edges of tiles, or for transposed factors."""
    rows, depth, cols = shape
    limits = np.iinfo(dtype)
    a, b = (RNG.integers(limits.min, limits.max, s, dtype, endpoint=True) for s in ((2, rows, depth), (2, depth, cols)))
    same(both(lambda p, x, y: x @ y, a, b), "batches")
    same(both(lambda p, x, y: x[1] @ y[0], a, b), "matrices")
    turned = a.transpose(0, 2, 1).copy(), b.transpose(0, 2, 1).copy()
    same(both(lambda p, x, y: x.mT @ y.mT, *turned), "transposed")


@pytest.mark.parametrize("n", [10, 32768, 32769, 200000])
def test_long_dot_products_keep_their_digits(n):
    """A dot product in pieces is further from the true value than float32 allows, or is not finite where PyTorch's is."""
    a, b = RNG.standard_normal((2, n))
    for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-14)):
        x, y = a.astype(dtype), b.astype(dtype)
        found = flambeau.dot(flambeau.tensor(x), flambeau.tensor(y))
        assert str(found.dtype).endswith(dtype) and found.shape == ()
        true = np.dot(x.astype(np.longdouble), y.astype(np.longdouble))
        assert abs(found.item() - true) <= tolerance * float(np.abs(x * y).sum())


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool"])
def test_the_mode_is_the_smallest_of_the_most_frequent(dtype):
    """mode finds another value than PyTorch along rows, columns or a middle dimension."""
    for shape in ((9,), (5, 1000), (300, 40), (4, 30, 20)):
        x = RNG.integers(0, 6, shape).astype(dtype)
        for dim in range(len(shape)):
            same(both(lambda p, t, dim=dim: t.mode(dim).values, x), (shape, dim))
