"""Pooling: values, indices and derivatives of random windows, layouts, dtypes, NaN, errors, and the layers."""

from __future__ import annotations

import itertools
import random

import pytest
from differences import check, sample
from oracle import assert_same, carried, torch

import flambeau

nn, F, T = flambeau.nn, flambeau.nn.functional, torch.nn.functional


def drawn(seed: int) -> tuple[int, tuple, dict]:
    """(dimensions, shape, options) of a random max pooling."""
    rng = random.Random(seed)
    n = rng.choice((1, 2, 2, 3))
    kernel = tuple(rng.randint(1, 4) for _ in range(n))
    dilation = tuple(rng.choice((1, 1, 2)) for _ in range(n))
    options = {
        "kernel_size": kernel,
        "stride": tuple(rng.choice((1, 2, 2, 3)) for _ in range(n)),
        "padding": tuple(rng.randint(0, k // 2) for k in kernel),
        "dilation": dilation,
        "ceil_mode": rng.random() < 0.5,
    }
    sizes = tuple(d * (k - 1) + 1 + rng.randint(0, (60, 40, 6)[n - 1]) for d, k in zip(dilation, kernel, strict=True))
    return n, (*rng.choice(((2, 3), (3,))), *sizes), options


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_random_max_pools_are_torchs(seed, dtype):
    """Greatest numbers, where they were, and gradients."""
    n, shape, options = drawn(seed)
    x = sample(*shape, dtype=dtype)
    if n > 1:
        x[x > 1.5] = float("nan")
        x[x < -1.5] = -float("inf")
    name = f"max_pool{n}d"
    assert_same(getattr(F, name)(carried(x), **options, return_indices=True), getattr(T, name)(x, **options, return_indices=True))
    second = dtype is torch.float64 and seed % 3 == 0
    check(lambda framework, x: getattr(framework.nn.functional, name)(x, **options), sample(*shape, dtype=dtype), second=second)


@pytest.mark.parametrize("seed", range(30))
def test_random_average_pools_are_torchs(seed):
    """Averages, with the padding counted or not, or with a divisor of one's own."""
    n, shape, options = drawn(seed)
    del options["dilation"]
    options["count_include_pad"] = seed % 2 == 0
    if n > 1 and seed % 3 == 0:
        options["divisor_override"] = 7
    name = f"avg_pool{n}d"
    check(lambda framework, x: getattr(framework.nn.functional, name)(x, **options), sample(*shape), second=seed % 5 == 0)
    if n < 3:
        check(lambda framework, x: getattr(framework.nn.functional, name)(x, **options), sample(*shape, dtype=torch.bfloat16))


@pytest.mark.parametrize("sizes", [1, 2, 3, 7, (4, None), (8, 3)], ids=str)
def test_adaptive_pools_are_torchs(sizes):
    """As many windows as asked for, also more than there are numbers."""
    x = sample(2, 3, 8, 6)
    check(lambda framework, x: framework.nn.functional.adaptive_avg_pool2d(x, sizes), x, second=True, strides=False)
    check(lambda framework, x: framework.nn.functional.adaptive_max_pool2d(x, sizes), x, second=True)
    assert_same(F.adaptive_max_pool2d(carried(x), sizes, True), T.adaptive_max_pool2d(x, sizes, True))
    if isinstance(sizes, int):
        for kind in ("avg", "max"):
            check(lambda framework, x, k=kind: getattr(framework.nn.functional, f"adaptive_{k}_pool1d")(x, sizes), x[0])
            check(lambda framework, x, k=kind: getattr(framework.nn.functional, f"adaptive_{k}_pool3d")(x, sizes), x, strides=False)


def test_channels_last_stays_so():
    """Images with their channels side by side give such images."""
    x = sample(2, 20, 9, 9, dtype=torch.float32).to(memory_format=torch.channels_last)
    assert_same(F.max_pool2d(carried(x), 3, 2, 1, return_indices=True), T.max_pool2d(x, 3, 2, 1, return_indices=True))
    for run in (
        lambda f, x: f.max_pool2d(x, 2),
        lambda f, x: f.avg_pool2d(x, 2),
        lambda f, x: f.adaptive_avg_pool2d(x, 4),
        lambda f, x: f.adaptive_max_pool2d(x, 4),
    ):
        check(lambda framework, x, run=run: run(framework.nn.functional, x), x)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("channels", [3, 9, 40])
def test_random_pools_of_channels_last_images_are_torchs(seed, channels):
    """Fewer channels than a vector has, more, and many; greatest ones with NaN and infinities among the numbers."""
    rng = random.Random(seed)
    kernel, stride = (rng.randint(1, 4), rng.randint(1, 4)), (rng.choice((1, 2, 3)), rng.choice((1, 2, 3)))
    options = {
        "kernel_size": kernel,
        "stride": stride,
        "padding": tuple(rng.randint(0, k // 2) for k in kernel),
        "ceil_mode": rng.random() < 0.5,
    }
    x = sample(2, channels, rng.randint(4, 20), rng.randint(4, 20), dtype=torch.float32).to(memory_format=torch.channels_last)
    counted = {"count_include_pad": seed % 2 == 0, "divisor_override": 5 if seed % 3 == 0 else None}
    check(lambda framework, x: framework.nn.functional.avg_pool2d(x, **options, **counted), x)
    check(lambda framework, x: framework.nn.functional.max_pool2d(x, **options), x)
    x[x > 1.5], x[x < -1.5] = float("nan"), -float("inf")
    assert_same(F.max_pool2d(carried(x), **options, return_indices=True), T.max_pool2d(x, **options, return_indices=True))
    volume = sample(2, channels, 5, 8, 7, dtype=torch.float32).to(memory_format=torch.channels_last_3d)
    options |= {"kernel_size": (2, *kernel), "stride": (1 + seed % 3, *stride), "padding": (seed % 2, *options["padding"])}
    assert_same(F.max_pool3d(carried(volume), **options, return_indices=True), T.max_pool3d(volume, **options, return_indices=True))
    check(lambda framework, x: framework.nn.functional.max_pool3d(x, **options), volume, strides=False)


@pytest.mark.parametrize("sizes", [(5, 23), (13, 3), (30, 41)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("last", [False, True])
def test_uneven_windows(sizes, dtype, last):
    """Adaptive windows of different widths in one vector, planar and channels last; of equal numbers the first counts, of NaN the last."""
    x = sample(2, 18, 24, 37, dtype=dtype)
    x = x.to(memory_format=torch.channels_last) if last else x
    check(lambda framework, x: framework.nn.functional.adaptive_avg_pool2d(x, sizes), x, strides=False)
    check(lambda framework, x: framework.nn.functional.adaptive_max_pool2d(x, sizes), x)
    x = x.clone().mul_(2).round_()
    x[x > 3], x[x < -3] = float("nan"), -float("inf")
    assert_same(F.adaptive_max_pool2d(carried(x), sizes, True), T.adaptive_max_pool2d(x, sizes, True))


def test_wide_rows_and_long_windows():
    """Rows longer than the loop keeps at a time, and windows that do not fit into it."""
    check(lambda framework, x: framework.nn.functional.max_pool2d(x, 3, 2, 1), sample(1, 2, 5, 3001, dtype=torch.float32))
    check(lambda framework, x: framework.nn.functional.max_pool1d(x, 1500, 1000, 20), sample(2, 5000, dtype=torch.float32))
    check(lambda framework, x: framework.nn.functional.max_pool1d(x, 2, 700), sample(2, 5000, dtype=torch.float32))


def test_integers():
    """Greatest integers; averages of integers are cut off toward zero."""
    x = (sample(2, 3, 8, 8) * 100).long()
    for run in (
        lambda f, x: f.max_pool2d(x, 3, 2, 1),
        lambda f, x: f.avg_pool2d(x, 3, 2, 1),
        lambda f, x: f.avg_pool2d(x, 2, divisor_override=-3),
    ):
        assert_same(run(F, carried(x)), run(T, x))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_lp_pool_and_the_way_back(n):
    """Norms of windows; and numbers returned to where they were the greatest."""
    x = sample(2, 3, *(8,) * n).abs()
    check(lambda framework, x: getattr(framework.nn.functional, f"lp_pool{n}d")(x, 3, 2, ceil_mode=True), x)
    values, indices = getattr(T, f"max_pool{n}d")(x, 2, return_indices=True)
    check(
        lambda framework, v: getattr(framework.nn.functional, f"max_unpool{n}d")(v, indices if framework is torch else carried(indices), 2),
        values,
        second=True,
    )
    unpool = getattr(F, f"max_unpool{n}d")
    assert unpool(carried(values), carried(indices), 2, output_size=(9,) * n).shape[-1] == 9
    with pytest.raises(RuntimeError, match="invalid max index"):
        unpool(carried(values), carried(indices) + 999999, 2)
    with pytest.raises(ValueError, match="between"):
        unpool(carried(values), carried(indices), 2, output_size=(20,) * n)


@pytest.mark.parametrize("n", [2, 3])
def test_fractional_pools_are_torchs(n):
    """The same random numbers, the same windows; and the same random numbers from one seed."""
    x = sample(2, 3, *(9, 8, 10)[:n])
    samples = torch.rand(2, 3, n, dtype=torch.float64)
    name = f"fractional_max_pool{n}d"
    options = {"kernel_size": 2, "output_size": (4, 3, 5)[:n]}
    assert_same(
        getattr(F, name)(carried(x), **options, _random_samples=carried(samples), return_indices=True),
        getattr(T, name)(x, **options, _random_samples=samples, return_indices=True),
    )
    check(
        lambda framework, x: getattr(framework.nn.functional, name)(
            x, **options, _random_samples=samples if framework is torch else carried(samples)
        ),
        x,
    )
    torch.manual_seed(3), flambeau.manual_seed(3)
    assert_same(getattr(F, name)(carried(x), 2, output_ratio=(0.5,) * n), getattr(T, name)(x, 2, output_ratio=(0.5,) * n))


ERRORS = [
    ("max_pool2d", (4, 4), {"kernel_size": 2}),
    ("max_pool2d", (1, 4, 4), {"kernel_size": (2, 2, 2)}),
    ("max_pool2d", (1, 4, 4), {"kernel_size": 2, "padding": 2}),
    ("max_pool2d", (1, 4, 4), {"kernel_size": 2, "stride": 0}),
    ("max_pool2d", (1, 4, 4), {"kernel_size": 5}),
    ("max_pool2d", (1, 0, 4), {"kernel_size": 1}),
    ("avg_pool2d", (1, 4, 4), {"kernel_size": 2, "divisor_override": 0}),
    ("avg_pool1d", (1, 4), {"kernel_size": 2, "padding": -1}),
    ("adaptive_avg_pool2d", (4, 4), {"output_size": 2}),
    ("adaptive_avg_pool2d", (4, 4), {"output_size": (2, 2)}),
    ("adaptive_avg_pool2d", (1, 4, 4), {"output_size": (2,)}),
    ("adaptive_max_pool2d", (1, 4, 4), {"output_size": -1}),
    ("fractional_max_pool2d", (1, 4, 4), {"kernel_size": 2}),
    ("fractional_max_pool2d", (1, 4, 4), {"kernel_size": 2, "output_size": 4}),
]


@pytest.mark.parametrize(("name", "shape", "options"), ERRORS)
def test_errors(name, shape, options):
    """What makes no sense raises what PyTorch raises."""
    with pytest.raises(Exception) as theirs:
        getattr(T, name)(torch.zeros(shape), **options)
    with pytest.raises(theirs.type):
        getattr(F, name)(flambeau.zeros(shape), **options)


LAYERS = [
    ("MaxPool1d", (2,), {}), ("MaxPool2d", (3,), {"stride": 2, "padding": 1, "ceil_mode": True}), ("MaxPool3d", ((2, 2, 1),), {"dilation": 1}),
    ("AvgPool1d", (2,), {}), ("AvgPool2d", (2,), {"count_include_pad": False, "padding": 1}), ("AvgPool3d", (2,), {"stride": 1}),
    ("LPPool1d", (2, 3), {}), ("LPPool2d", (2, (3, 2)), {"stride": 1}), ("LPPool3d", (3, 2), {}),
    ("AdaptiveAvgPool1d", (3,), {}), ("AdaptiveAvgPool2d", ((3, None),), {}), ("AdaptiveAvgPool3d", (2,), {}),
    ("AdaptiveMaxPool1d", (3,), {}), ("AdaptiveMaxPool2d", (3,), {}), ("AdaptiveMaxPool3d", (2,), {}),
    ("FractionalMaxPool2d", (2,), {"output_size": 3}), ("FractionalMaxPool3d", (2,), {"output_ratio": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "options"), LAYERS, ids=[layer[0] for layer in LAYERS])
def test_layers_are_torchs(name, arguments, options):
    """Representation and result."""
    torch.manual_seed(5), flambeau.manual_seed(5)
    theirs, mine = getattr(torch.nn, name)(*arguments, **options), getattr(nn, name)(*arguments, **options)
    assert repr(mine) == repr(theirs)
    x = sample(2, 3, *(8,) * int(name[-2]), dtype=torch.float32).abs()
    assert_same(mine(carried(x)), theirs(x), strides=False, tolerance=1e-5)


def test_unpooling_layers():
    """A layer that returns indices, and the one that takes them."""
    x = sample(1, 2, 6, 6)
    theirs, mine = (m.MaxUnpool2d(2, stride=2)(*m.MaxPool2d(2, return_indices=True)(v)) for m, v in ((torch.nn, x), (nn, carried(x))))
    assert_same(mine, theirs)
    assert repr(nn.MaxUnpool2d(2)) == repr(torch.nn.MaxUnpool2d(2))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_padding_is_at_most_half_of_the_kernel_as_given(n):
    """Dilation does not make room for more padding."""
    for f in (torch, flambeau):
        with pytest.raises(RuntimeError, match=r"at most half of kernel size|smaller than or equal to half of kernel size"):
            getattr(f.nn.functional, f"max_pool{n}d")(f.ones(1, 1, *(9,) * n), 3, 1, 2, 2)


def test_fractional_windows_keep_their_room():
    """Three dimensions need one place more than two."""
    for f in (torch, flambeau):
        f.nn.functional.fractional_max_pool2d(f.ones(1, 1, 5, 5), 3, output_size=3)
        with pytest.raises(RuntimeError, match="too large relative to input"):
            f.nn.functional.fractional_max_pool3d(f.ones(1, 1, 5, 5, 5), 3, output_size=3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_greatest_without_their_places(dtype):
    """Max pooling that nobody asks for places or gradients gives other values than the one with them, in some window."""
    geometries = list(itertools.product((1, 2, 3, 4, 5), (1, 2, 3, 4), (0, 1), (1, 2)))
    for (kernel, stride, padding, dilation), length in itertools.product(geometries, (6, 23, 70)):
        if padding > kernel // 2 or dilation * (kernel - 1) >= length:
            continue
        for n, shape in ((1, (2, 3, length)), (2, (2, 2, 7, length)), (3, (1, 2, 5, 4, length))):
            if dilation * (kernel - 1) >= min(shape[2:]):
                continue
            x = flambeau.randn(*shape)
            x[..., length // 2] = float("nan")
            x = x.to(getattr(flambeau, dtype))
            pool = getattr(flambeau.nn.functional, f"max_pool{n}d")
            for ceil_mode in (False, True):
                expected, _ = pool(x, kernel, stride, padding, dilation, ceil_mode, True)
                for _ in range(2):  # the second call is a remembered one
                    got = pool(x, kernel, stride, padding, dilation, ceil_mode)
                assert got.stride() == expected.stride()
                assert flambeau.equal(got.nan_to_num(99.0), expected.nan_to_num(99.0)), (shape, kernel, stride, padding, dilation)


@pytest.mark.parametrize("name", [f"adaptive_{kind}_pool{n}d" for kind in ("avg", "max") for n in (1, 2, 3)])
def test_nothing_is_differentiated_without_windows(name):
    """An output of no windows can be asked for; its gradient is refused, as PyTorch does."""
    for functions, t in ((F, flambeau), (T, torch)):
        x = t.ones(2, 3, *(4,) * int(name[-2]), requires_grad=True)
        out = getattr(functions, name)(x, 0)
        assert tuple(out.shape) == (2, 3, *(0,) * int(name[-2]))
        with pytest.raises(RuntimeError, match="Expected grad_output to have non-zero size for non-batch dimensions"):
            out.sum().backward()
