"""Sorting, order statistics, searching and counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reduction_oracle import INF, INTEGERS, LAYOUTS, NAN, REALS, assert_same, check, check_raises, numbers, ours, torch

import flambeau


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_sort(layout, descending):
    """Values and indices along any dimension, equal elements in the order they came in, gradients to where values came from."""
    x = LAYOUTS[layout](numbers(4, 5, 6, ties=True))
    for dim in (0, 1, -1):
        check("sort", x, dim, descending)
        check("sort", x, dim=dim, descending=descending, stable=True)
        check("argsort", x, dim, descending)
    check("msort", x)


def test_sort_keeps_memory_order():
    """The results of sorting lie in memory as the input does."""
    x = numbers(3, 4).t()
    assert ours(x).sort(0).values.stride() == x.sort(0).values.stride()


@pytest.mark.parametrize("dtype", REALS + INTEGERS)
def test_sort_dtypes(dtype):
    """Every dtype with an order sorts."""
    x = numbers(5, 7, dtype=dtype)
    check("sort", x, 1)
    check("sort", x, 0, True)


def test_nan_is_greatest():
    """NaN comes after infinity, first when descending, and is the maximum."""
    x = torch.tensor([[NAN, 1.0, INF, -INF], [2.0, NAN, NAN, 1.0]])
    for descending in (False, True):
        check("sort", x, 1, descending)
    for largest in (True, False):
        check("topk", x, 2, 1, largest)
    check("kthvalue", torch.tensor([2.0, NAN, 1.0]), 3)


@pytest.mark.parametrize("k", [0, 1, 2, 7])
@pytest.mark.parametrize("largest", [True, False])
def test_topk(k, largest):
    """The k largest or smallest along a dimension, in order."""
    x = numbers(3, 7, 2)
    check("topk", x, k, 1, largest)
    check("topk", LAYOUTS["transposed"](x), k, 1, largest, True)


def test_topk_of_many():
    """Selecting a few of many gives what sorting all of them gives."""
    x = torch.randperm(1000, generator=torch.Generator().manual_seed(0)).reshape(4, 250).double()
    for largest in (True, False):
        check("topk", x, 5, 1, largest)
        check("topk", x.float(), 1, 0, largest)
    check("topk", torch.tensor(2.0), 1)
    check_raises("topk", x, 251)
    check_raises("topk", x, -1)
    check_raises("topk", x > 3, 2)


def test_medians():
    """The lower of two middle elements; NaN if there is one, unless they are ignored."""
    distinct = torch.randperm(60, generator=torch.Generator().manual_seed(1)).reshape(3, 4, 5).double()
    for name in ("median", "nanmedian"):
        check(name, distinct)
        check(name, numbers(3, 3, ties=True))
        for dim in (0, 1, -1):
            check(name, distinct, dim)
            check(name, distinct, dim, True)
        x = distinct.clone()
        x[0, 1, 2] = x[1, 0, 0] = NAN
        check(name, x)
        check(name, x, 1)
        check(name, torch.tensor([NAN, NAN]))
        check(name, torch.tensor(3.0), 0)
        check(name, numbers(0))
        check_raises(name, numbers(2, 0), 1)
        check_raises(name, numbers(3, dtype=torch.bool))
    check("median", torch.tensor([5, 3, 4, 1]))


def test_kthvalue_and_mode():
    """The k-th smallest and the most frequent element, with the index they come from."""
    distinct = torch.randperm(30, generator=torch.Generator().manual_seed(2)).reshape(5, 6).double()
    for k in (1, 3, 5):
        check("kthvalue", distinct, k, 0)
        check("kthvalue", distinct, k, 1, True)
    check_raises("kthvalue", distinct, 0)
    check_raises("kthvalue", distinct, 7)
    x = torch.tensor([[1.0, 2.0, 2.0, 1.0, 3.0], [3.0, 3.0, 1.0, 1.0, 0.0], [4.0, 5.0, 6.0, 7.0, 8.0]])
    check("mode", x)
    check("mode", x, 0, True)
    check("mode", x.long(), 1)
    check("mode", torch.tensor(1.0))
    check_raises("mode", numbers(0))


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(interpolation):
    """Quantiles between two elements are interpolated as asked; the gradient goes to both."""
    x = numbers(4, 5, 6)
    qs = torch.tensor([0.0, 0.3, 0.5, 1.0], dtype=torch.float64)
    for name in ("quantile", "nanquantile"):
        for dim in (None, 0, 1, -1):
            check(name, x, 0.4, dim, interpolation=interpolation)
            check(name, x, 0.4, dim, True, interpolation=interpolation)
            theirs = getattr(torch, name)(x, qs, dim, interpolation=interpolation)
            assert_same(getattr(flambeau, name)(ours(x), ours(qs), dim, interpolation=interpolation), theirs, name)
        y = x.clone()
        y[1, 2, 3] = NAN
        check(name, y, 0.6, 2, interpolation=interpolation)
    check_raises("quantile", x, 1.5)
    check_raises("quantile", x.long(), 0.5)
    check_raises("quantile", numbers(0), 0.5)
    check_raises("quantile", x, 0.5, interpolation="cubic")


def test_unique():
    """Distinct elements and slices, their places and their counts."""
    x = numbers(4, 5, ties=True)
    rows = torch.tensor([[3, 1], [1, 2], [3, 1], [1, 1]])
    for dtype in (torch.float64, torch.int32, torch.bfloat16, torch.bool):
        found = flambeau.unique(ours(x.to(dtype)), True, True, True)
        assert_same(found, torch.unique(x.to(dtype), True, True, True), f"unique of {dtype}")
    nans = torch.tensor([NAN, 1.0, NAN])
    assert_same(flambeau.unique(ours(nans), True, True, True), torch.unique(nans, True, True, True), "unique of NaNs")
    check("unique", rows, dim=0, return_inverse=True, return_counts=True)
    check("unique", rows, dim=1, return_inverse=True, return_counts=True)
    check("unique", torch.tensor([1, 1, 2]), return_counts=True)
    check("unique_consecutive", torch.tensor([1, 1, 2, 2, 1]), True, True)
    check("unique_consecutive", torch.tensor([[1, 1], [1, 1], [2, 2]]), True, True, 0)
    check("unique", torch.tensor([2, 2]).reshape(2, 1).expand(2, 3), return_inverse=True)
    check("unique", torch.empty(0, dtype=torch.int64), return_inverse=True, return_counts=True)
    for rows in (
        [[NAN], [0.0], [0.0], [NAN], [NAN], [1.0]],
        [[NAN, 1.0], [NAN, 1.0], [1.0, 2.0]],
        [[1.0, NAN], [0.0, 5.0], [NAN, 0.0], [1.0, 3.0]],
    ):
        for dtype in (torch.float32, torch.bfloat16):  # NaN decides nothing about the order of slices
            found, wanted = (t.unique(t.tensor(rows).to(getattr(t, str(dtype)[6:])), True, True, True, dim=0) for t in (flambeau, torch))
            assert str([f.tolist() for f in found]) == str([w.tolist() for w in wanted])
    check_raises("unique", numbers(3, 0), dim=0)
    check_raises("unique", torch.tensor(1), dim=0)
    with pytest.raises(NotImplementedError):
        flambeau.unique(ours(x).requires_grad_()).sum().backward()


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32", "bfloat16", "float16"])
def test_runs_of_equal_elements(dtype):
    """unique_consecutive without places and counts, in every kind of dtype, with a NaN beside a NaN, and of nothing."""
    for values in ([1, 1, 0, 0, 0, 1, 1], [], *([[1.0, float("nan"), float("nan"), 2.0, 2.0]] if "float" in dtype else [])):
        want = torch.unique_consecutive(torch.tensor(values, dtype=getattr(torch, dtype)))
        got = flambeau.unique_consecutive(flambeau.tensor(values, dtype=getattr(flambeau, dtype)))
        assert str(got.tolist()) == str(want.tolist()) and str(got.dtype) == str(want.dtype)


def test_bincount():
    """How often each number occurs, or the weight of its occurrences."""
    x = torch.tensor([1, 3, 3, 0])
    check("bincount", x)
    check("bincount", x, minlength=6)
    check("bincount", torch.empty(0, dtype=torch.int64), minlength=2)
    for dtype in (torch.float32, torch.float64, torch.int64, torch.float16):
        weights = torch.tensor([1, 2, 4, 8]).to(dtype)
        assert_same(flambeau.bincount(ours(x), ours(weights)), torch.bincount(x, weights), "weighted bincount")
    for wrong in (torch.tensor([-1]), torch.tensor([1.0]), torch.ones(2, 2, dtype=torch.int64)):
        check_raises("bincount", wrong)


def test_hash_tensor():
    """One number for many elements: the exclusive or of their bits in 64 of them, by dtype, by dimension, of NaN, and of nothing refused."""
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.uint8, torch.bool):
        x = (torch.arange(30).reshape(2, 3, 5) * 37 % 13 - 5).to(dtype)
        for dims, keepdim in ((), False), ((0,), False), ((1, -1), True), ((0, 1, 2), True):
            got, want = flambeau.hash_tensor(ours(x), dims, keepdim=keepdim), torch.hash_tensor(x, dims, keepdim=keepdim)
            assert got.tolist() == want.tolist() and str(got.dtype) == str(want.dtype) == "torch.uint64"
    for x in (torch.tensor(3.0), torch.tensor([NAN, INF]), torch.tensor([-0.0]), torch.ones(7).t()):
        assert flambeau.hash_tensor(ours(x)).item() == torch.hash_tensor(x).item()
    assert tuple(flambeau.hash_tensor(ours(torch.ones(2, 3)).to("meta"), 0).shape) == (3,)
    for x, options in (
        (torch.empty(0), {}),
        (torch.empty(0, 3), {"dim": 0}),
        (torch.ones(2), {"mode": 1}),
        (torch.ones(2, dtype=torch.complex64), {}),
    ):
        check_raises("hash_tensor", x, **options)


def test_histograms():
    """histc, histogram and histogramdd count what lies in each interval, the last one closed."""
    x = numbers(50, dtype=torch.float32).detach()
    for bins, low, high in ((10, 0, 0), (4, -2, 2), (7, -1.5, 3)):
        assert_same(flambeau.histc(ours(x), bins, low, high), torch.histc(x, bins, low, high), "histc")
    edges = torch.tensor([-3.0, -1.0, 0.5, 2.0])
    weight = numbers(50, dtype=torch.float32, seed=1).abs()
    for options in ({"bins": 5}, {"bins": edges}, {"bins": 4, "range": (-2.0, 2.0)}, {"bins": 4, "weight": weight, "density": True}):
        mine = flambeau.histogram(ours(x), **{k: ours(v) if k != "range" else v for k, v in options.items()})
        assert_same(mine, torch.histogram(x, **options), f"histogram {options}")
    points = numbers(30, 2, dtype=torch.float32)
    mine = flambeau.histogramdd(ours(points), [3, 4])
    theirs = torch.histogramdd(points, [3, 4])
    assert_same(mine.hist, theirs.hist, "histogramdd")
    assert_same(list(mine.bin_edges), list(theirs.bin_edges), "histogramdd's edges")
    check_raises("histc", x.long())
    check_raises("histc", torch.tensor([1.0, INF]))
    check_raises("histogram", x, bins=0)
    check_raises("histogram", x, bins=3, range=(2.0, 1.0))


def test_histograms_of_nothing_and_of_the_largest_numbers():
    """Points without coordinates, no points, ranges that overflow, edges that bound no interval: counted, or refused, as in PyTorch."""
    for points, bins, options in (
        (torch.empty(3, 0), [], {}), (torch.empty(3, 0), [], {"density": True}), (torch.empty(0, 2), [2, 3], {}), (torch.empty(0, 1), [2], {"density": True}),
        (torch.tensor([[3e38], [-3e38], [0.0]]), [2], {}), (torch.tensor([[1e-40], [0.0]]), [3], {}), (torch.ones(2, 3, 2), [2, 2], {"range": [0.0, 3.0, 0.0, 4.0]}),
    ):  # fmt: skip
        mine, theirs = flambeau.histogramdd(ours(points), bins, **options), torch.histogramdd(points, bins, **options)
        assert str(mine.hist.tolist()) == str(theirs.hist.tolist())
        assert str([e.tolist() for e in mine.bin_edges]) == str([e.tolist() for e in theirs.bin_edges])
    for edges in ([], [1.0]):
        for t in (flambeau, torch):
            with pytest.raises(RuntimeError, match="bins"):
                t.histogramdd(t.ones(2, 1), [t.tensor(edges)])


def test_searching():
    """Where values belong in sorted sequences, one for all or one per row."""
    boundaries = torch.tensor([1.0, 3.0, 3.0, 7.0])
    values = torch.tensor([[0.0, 3.0], [7.0, 8.0]])
    for options in ({}, {"right": True}, {"side": "right"}, {"out_int32": True}):
        check("searchsorted", boundaries.detach(), values, **options)
        check("searchsorted", boundaries, 3.0, **options)
    check("searchsorted", torch.tensor([[1, 3, 5], [2, 4, 6]]), torch.tensor([[3, 6], [3, 7]]))
    check("searchsorted", torch.tensor([3.0, 1.0, 2.0]), torch.tensor([2.5]), sorter=torch.tensor([1, 2, 0]))
    check("bucketize", values, boundaries)
    check("bucketize", torch.tensor([3, 4]), boundaries, right=True)
    check_raises("searchsorted", boundaries, values, side="middle")
    check_raises("searchsorted", torch.ones(2, 3), torch.ones(3, 1))
    check_raises("bucketize", values, torch.ones(2, 2))


def test_isin():
    """Whether elements are among others, tensors or numbers."""
    x = torch.tensor([[1, 2], [3, 4]])
    check("isin", x, torch.tensor([2, 3]))
    check("isin", x, torch.tensor([2, 3]), invert=True, assume_unique=True)
    check("isin", x, 4)
    check("isin", 4, x)
    check("isin", x, torch.tensor([2.0]).long())
    check_raises("isin", 1, 2)
    check_raises("isin", x > 2, x > 2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, NAN, INF, -INF]), min_size=1, max_size=40), st.booleans())
def test_any_row_sorts_stably(row, descending):
    """Whatever the row, with ties, NaN and infinities: values and indices are PyTorch's."""
    x = torch.tensor(row)
    mine, theirs = ours(x).sort(0, descending), torch.sort(x, stable=True, descending=descending)
    np.testing.assert_array_equal(mine.indices.numpy(), theirs.indices.numpy())
    np.testing.assert_array_equal(mine.values.numpy(), theirs.values.numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8"])
@pytest.mark.parametrize("n", [1, 2, 7, 63, 64, 65, 100])
def test_kth_in_lines_of_any_length(n, dtype):
    """The kth smallest and the median of short and long lines, with ties and NaN, along rows and columns."""
    x = numbers(5, n, 3, ties=True).mul(10).round().to(getattr(torch, dtype))
    if "float" in dtype and n > 2:
        x[0, 1, 0] = x[1, :, 1] = NAN
    mine = ours(x)
    for view, dim in ((lambda t: t, 1), (lambda t: t.transpose(1, 2).contiguous(), 2)):
        for k in {1, (n + 1) // 2, n}:
            for name, options in (("kthvalue", (k, dim)), ("median", (dim,)), ("nanmedian", (dim,))):
                found, wanted = getattr(view(mine), name)(*options), getattr(view(x), name)(*options)
                np.testing.assert_array_equal(found.values.double().numpy(), wanted.values.double().numpy())
                picked = view(mine).gather(dim, found.indices.unsqueeze(dim)).squeeze(dim)
                np.testing.assert_array_equal(picked.double().numpy(), wanted.values.double().numpy())


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"])
def test_lines_of_any_length_are_sorted_in_order(name):
    """Short lines are sorted in another way than long ones; equal elements, zeros of both signs and NaN keep their order in both."""
    rng = np.random.default_rng(0)
    values = [0.0, -0.0, 1.0, -2.5, float("inf"), -float("inf"), float("nan")] if name.startswith("float") else [0, 1, 2, 100, 2]
    for n in (1, 2, 15, 16, 17, 64, 127, 128, 129):
        far = rng.standard_normal((3, n)) * 1e4 if name.startswith("float") else rng.integers(0, 2**31, (3, n))
        for array in (rng.choice(values, (3, n)).astype(name), far.astype(name)):
            for descending in (False, True):
                expected = torch.sort(torch.tensor(array), dim=1, descending=descending, stable=True)
                found = flambeau.sort(flambeau.tensor(array), dim=1, descending=descending, stable=True)
                assert found.indices.tolist() == expected.indices.tolist()
                np.testing.assert_array_equal(found.values.numpy(), expected.values.numpy())
                if name != "bool":
                    some = flambeau.topk(flambeau.tensor(array), (n + 1) // 2, 1, largest=descending)
                    assert some.indices.tolist() == expected.indices[:, : (n + 1) // 2].tolist()
