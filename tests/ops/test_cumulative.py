"""Cumulative operations, differences and integrals."""

from __future__ import annotations

import numpy as np
import pytest
from reduction_oracle import INF, INTEGERS, LAYOUTS, NAN, REALS, check, check_raises, numbers, ours, torch

import flambeau

SCANS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dimensions_and_layouts(name, layout):
    """Along any dimension of any layout, forward and backward."""
    x = LAYOUTS[layout](numbers(3, 4, 5))
    for dim in (0, 1, 2, -1):
        check(name, x, dim)


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dtype", REALS + INTEGERS)
def test_dtypes(name, dtype):
    """Integers are summed and multiplied in int64, extrema keep their dtype, half precision is rounded once."""
    x = numbers(3, 9, dtype=dtype)
    if name == "logcumsumexp" and not dtype.is_floating_point:
        check_raises(name, x, 1)
    else:
        check(name, x, 1)
    if name in ("cumsum", "cumprod"):
        check(name, x, 0, dtype=torch.float64)


@pytest.mark.parametrize("name", SCANS)
def test_small_shapes_and_errors(name):
    """0-d and empty tensors have cumulative sums; dimensions that do not exist do not."""
    check(name, torch.tensor(2.0), 0)
    check(name, numbers(0), 0)
    check(name, numbers(2, 0, 3), 1)
    check(name, numbers(1, 1), -1)
    check_raises(name, numbers(3, 4), 2)
    check_raises(name, numbers(3), 1.5)


SPECIAL = [[1.0, NAN, 2.0, 0.0], [INF, 1.0, -INF, 2.0], [-INF, -INF, 1.0, 2.0], [0.0, -0.0, 0.0, 1.0], [2.0, 2.0, 1.0, 2.0]]


@pytest.mark.parametrize("values", SPECIAL)
def test_nan_and_infinity(values):
    """NaN stays once it has come; of equal extrema the latest counts."""
    for name in ("cumsum", "cummax", "cummin", "logcumsumexp"):
        check(name, torch.tensor(values, dtype=torch.float64), 0)


@pytest.mark.parametrize("zeros", [(), (2,), (0, 3), (1, 2, 7), range(8)])
def test_cumprod_is_differentiated_through_zeros(zeros):
    """The derivative of a cumulative product is exact where elements are zero, and so is its second derivative."""
    x = numbers(2, 4)
    for i in zeros:
        x.view(-1)[i] = 0
    for dim in (0, 1):
        check("cumprod", x, dim, second=True)


@pytest.mark.parametrize("name", ["cumsum", "logcumsumexp", "cummax"])
def test_second_derivatives(name):
    """Derivatives can be differentiated again."""
    check(name, numbers(3, 4), 1, second=True)


def test_logcumsumexp_does_not_overflow():
    """Large arguments stay finite, and their gradients too."""
    check("logcumsumexp", numbers(4, 5) * 300, 1)
    check("logcumsumexp", numbers(4, 5, dtype=torch.float32) * 80, 0)


def test_in_place():
    """cumsum_ and cumprod_ write over their tensor, keeping its dtype."""
    for name in ("cumsum_", "cumprod_"):
        for dtype in (torch.float32, torch.int32):
            x = numbers(3, 4, dtype=dtype)
            mine = ours(x.clone())
            assert getattr(mine, name)(1) is mine
            np.testing.assert_allclose(mine.numpy(), getattr(x.clone(), name)(1).numpy(), rtol=1e-5)
    x = numbers(3, 4).requires_grad_()
    mine = ours(x).requires_grad_()
    (x * 2).cumprod_(1).sum().backward()
    (mine * 2).cumprod_(1).sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), x.grad.numpy())


def test_float32_cumulative_sums_keep_their_digits():
    """The running sum is carried in double precision."""
    x = torch.full((100_000,), 0.1)
    assert abs(ours(x).cumsum(0).numpy()[-1] / 1e4 - 1) < 1e-6


def test_diff():
    """Differences of any order, with elements put at the ends."""
    x = numbers(4, 5)
    for n in (0, 1, 2, 5, 9):
        check("diff", x, n)
        check("diff", x, n, 0)
    check("diff", x, 1, 1, numbers(4, 2, seed=1), numbers(4, 1, seed=2))
    check("diff", x > 0)
    check("diff", numbers(6, dtype=torch.int64))
    check_raises("diff", torch.tensor(1.0))
    check_raises("diff", x, -1)
    check_raises("diff", x, prepend=numbers(2))


def test_gradient():
    """Slopes of samples, evenly spaced or not, with first- and second-order edges."""
    x = numbers(4, 5)
    places = [torch.tensor([0.0, 1.0, 3.0, 4.0], dtype=torch.float64), torch.tensor([0.0, 1.0, 1.5, 4.0, 5.0], dtype=torch.float64)]
    for edge_order in (1, 2):
        check("gradient", x, edge_order=edge_order)
        check("gradient", x, spacing=2.0, edge_order=edge_order)
        check("gradient", x, spacing=[2.0, 0.5], dim=(0, 1), edge_order=edge_order)
        check("gradient", x, spacing=places, edge_order=edge_order)
        check("gradient", x, dim=1, edge_order=edge_order)
    check_raises("gradient", x, edge_order=3)
    check_raises("gradient", numbers(1))


def test_trapezoids():
    """Integrals by the trapezoid rule, of even steps, given coordinates, or one set of coordinates per row."""
    y = numbers(3, 5)
    x = numbers(5, seed=1).cumsum(0)
    for name in ("trapezoid", "trapz", "cumulative_trapezoid"):
        for dim in (0, 1):
            check(name, y, dim=dim)
        check(name, y, dx=0.5)
        check(name, y, x)
        check(name, y, numbers(3, 5, seed=2))
        check(name, y.long())
        check_raises(name, y, numbers(4))
        check_raises(name, y > 0)
    check("trapezoid", numbers(2, 0), dim=1)


def test_results_require_grad_only_where_they_can():
    """Indices never require a gradient; values do."""
    values, indices = ours(numbers(3)).requires_grad_().cummax(0)
    assert values.requires_grad and not indices.requires_grad
    assert isinstance(flambeau.cumsum(ours(numbers(3)).requires_grad_(), 0).grad_fn.name(), str)
