"""Normalisation layers against PyTorch: what they compute, what they remember, what they load."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from layer_oracle import assert_near, assert_states, check_errors, check_function, check_layer, compare_calls, inputs, pair, torch

import flambeau

SHAPES = {1: (4, 3, 20), 2: (4, 3, 5, 6), 3: (2, 3, 2, 3, 4)}
OPTIONS = [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"bias": False}, {"eps": 0.1, "momentum": 0.4}]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("train", [True, False])
def test_batch_norm(dims, options, train):
    """Output, gradients and running averages over three batches."""
    check_layer(f"BatchNorm{dims}d", 3, on=(SHAPES[dims],), calls=3, train=train, **options)


@pytest.mark.parametrize("shape", [(8, 3), (2, 3), (5, 3, 1), (5, 3, 2, 2), (2, 3, 4, 5)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_batch_norm_shapes(shape, dtype):
    """Few samples, short lines, features without places; in every precision."""
    check_layer({2: "BatchNorm1d", 3: "BatchNorm1d", 4: "BatchNorm2d"}[len(shape)], 3, on=(shape,), dtype=dtype, calls=2)


@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 20), (2, 3, 3, 3)])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_second_derivative(shape, training):
    """The gradient of a gradient, by the input, the weight and the bias."""

    def call(t, x, w, b):
        mean, var = (t.tensor(v, dtype=x.dtype) for v in ([0.1, 0.2, -0.3], [1.0, 0.5, 2.0]))
        return t.nn.functional.batch_norm(x, mean, var, w, b, training=training)

    check_function(call, shape, (3,), (3,), second=True)


@pytest.mark.parametrize("shape", [(9, 16), (6, 70), (3, 600), (65, 130), (3, 20, 7), (2, 5, 4, 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_batch_norm_widths(shape, dtype):
    """Blocks of columns that are whole and that are not, one row more than goes four by four, lines shorter and longer than a vector."""
    check_layer("BatchNorm2d" if len(shape) == 4 else "BatchNorm1d", shape[1], on=(shape,), dtype=dtype, calls=2)


@pytest.mark.parametrize("first", [np.inf, -np.inf, np.nan, 1.0])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 17)])
def test_batch_norm_of_infinity(shape, first):
    """A channel with an infinity, or NaN, in the first place or elsewhere, is NaN, and so remembered as PyTorch does; the others are as ever."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x[0, 1], x[1, 2] = first, np.inf
    found = []
    for package in (flambeau, torch):
        layer = package.nn.BatchNorm1d(4)
        found.append((layer(package.tensor(x)), layer.running_mean, layer.running_var))
    for ours, theirs, what in zip(*found, ("output", "mean", "variance"), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-5, atol=1e-5, err_msg=what)


@pytest.mark.parametrize("shape", [(5, 6), (3, 6, 1), (2, 6, 3), (2, 6, 5, 7)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm_shapes(shape, groups):
    """Groups of one channel, of all, of some, with one place each, a few and many; with second derivatives where there is something to norm."""
    if groups < 6 or len(shape) > 3 or shape[2:] == (3,):
        check_function(lambda t, x, w, b: t.nn.functional.group_norm(x, groups, w, b), shape, (6,), (6,), second=True)


def test_batch_norm_far_from_zero():
    """A large mean costs no digits; a channel whose elements are equal has variance zero."""
    x = np.random.default_rng(0).standard_normal((4, 3, 40)) + np.array([0.0, 1e4, -300.0])[None, :, None]
    x[:, 2] = 1e5
    (ours,), (theirs,) = inputs(x.astype(np.float32), dtype="float32")
    exact = theirs.detach().double()
    exact = (exact - exact.mean((0, 2), keepdim=True)) / (exact.var((0, 2), unbiased=False, keepdim=True) + 1e-5).sqrt()
    assert_near(flambeau.nn.BatchNorm1d(3)(ours), exact.float(), "output", 1e-3)


def test_channels_last():
    """Images whose channels lie side by side stay so."""
    found = []
    for package, (x,) in zip((flambeau, torch), inputs((4, 3, 5, 5)), strict=True):
        x = x.detach().to(memory_format=package.channels_last).requires_grad_()
        y = package.nn.BatchNorm2d(3)(x)
        (y * y * y).sum().backward()
        found.append((y, x.grad))
    assert found[0][0].is_contiguous(memory_format=flambeau.channels_last)
    assert_near(found[0][0], found[1][0], "output")
    assert_near(found[0][1], found[1][1], "gradient")


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"affine": True}, {"affine": True, "track_running_stats": True}, {"track_running_stats": True}])
def test_instance_norm(dims, options):
    """Output, gradients and running averages, with and without a batch."""
    for shape in (SHAPES[dims], SHAPES[dims][1:]):
        check_layer(f"InstanceNorm{dims}d", 3, on=(shape,), calls=2, **options)
    check_layer(f"InstanceNorm{dims}d", 3, on=(SHAPES[dims],), train=False, **options)


@pytest.mark.parametrize(
    ("name", "args", "shape"),
    [
        ("LayerNorm", (5,), (4, 5)), ("LayerNorm", ((3, 5),), (2, 3, 5)), ("LayerNorm", (5, 1e-3, False), (4, 5)),
        ("LayerNorm", (5, 1e-5, True, False), (4, 5)), ("RMSNorm", (5,), (4, 5)), ("RMSNorm", ((3, 5), 1e-3, False), (2, 3, 5)),
        ("GroupNorm", (2, 4), (3, 4, 5)), ("GroupNorm", (4, 4, 1e-3, False), (3, 4, 2, 2)), ("LocalResponseNorm", (2,), (2, 5, 3)),
        ("LocalResponseNorm", (3, 1.0, 0.5, 2.0), (2, 5, 3, 3)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_within_samples(name, args, shape, dtype):
    """Norms within a sample: repr, state, output, gradients."""
    if name == "LocalResponseNorm" and dtype == "bfloat16" and len(shape) > 3:
        pytest.skip("PyTorch has none for images of bfloat16")
    check_layer(name, *args, on=(shape,), dtype=dtype)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 12])
def test_cross_map_lrn(size):
    """The windows are those of Torch 7, the first channel included."""
    ours, theirs = pair("CrossMapLRN2d", size, 1.0, 0.75, 1)
    (x,), (y,) = inputs((2, 9, 2, 3), grad=False)
    assert_near(ours(x), theirs(y), "output")


@pytest.mark.parametrize("kind", ["BatchNorm", "InstanceNorm"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_lazy(kind, dims):
    """Lazy norms find their size at the first call, and are ordinary ones from then on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = (getattr(p.nn, f"Lazy{kind}{dims}d")() for p in (flambeau, torch))
    assert repr(ours) == repr(theirs)
    compare_calls(ours, theirs, (SHAPES[dims],))
    assert type(ours) is getattr(flambeau.nn, f"{kind}{dims}d") and repr(ours) == repr(theirs)
    assert_states(ours, theirs)


def test_old_checkpoints():
    """A state dictionary of before num_batches_tracked loads; one that lacks it without a version does, too."""
    for package in (flambeau, torch):
        layer = package.nn.BatchNorm1d(3)
        state = layer.state_dict()
        assert state._metadata[""]["version"] == 2
        state.pop("num_batches_tracked")
        with pytest.raises(RuntimeError, match="num_batches_tracked"):
            layer.load_state_dict(state)
        state._metadata[""]["version"] = 1
        layer.load_state_dict(state)
        layer.load_state_dict(dict(state))


def test_convert_sync_batchnorm():
    """Every batch norm of a model becomes a SyncBatchNorm with the same parameters; alone, it computes the same."""
    made = []
    for package in (flambeau, torch):
        nn = package.nn
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm1d(3, affine=False)))
        made.append(nn.SyncBatchNorm.convert_sync_batchnorm(model))
        assert isinstance(made[-1][1], nn.SyncBatchNorm) and made[-1][1].weight is model[1].weight
    assert repr(made[0]) == repr(made[1])
    assert list(made[0].state_dict()) == list(made[1].state_dict())
    compare_calls(flambeau.nn.SyncBatchNorm(3), torch.nn.BatchNorm1d(3), ((4, 3, 5),))


def test_refusals():
    """What PyTorch refuses is refused with its type of exception."""
    check_errors(lambda t, x: t.nn.BatchNorm1d(3)(x), (3,))
    check_errors(lambda t, x: t.nn.BatchNorm2d(3)(x), (2, 3, 4))
    check_errors(lambda t, x: t.nn.BatchNorm1d(3)(x), (1, 3))
    check_errors(lambda t, x: t.nn.BatchNorm1d(4)(x), (2, 3))
    check_errors(lambda t, x: t.nn.InstanceNorm1d(4, affine=True)(x), (2, 3, 5))
    check_errors(lambda t, x: t.nn.InstanceNorm2d(3)(x), (2, 3))
    check_errors(lambda t: t.nn.GroupNorm(3, 4))
    check_errors(lambda t, x: t.nn.LayerNorm(4)(x), (2, 3))
    check_errors(lambda t, x: t.nn.LocalResponseNorm(2)(x), (2, 3))
    half, float64 = (lambda t: t.float16), (lambda t: t.float64)
    for of_numbers, of_input in ((half, float64), (float64, half), (float64, lambda t: t.float32)):
        check_errors(lambda t, f=of_numbers, g=of_input: t.nn.BatchNorm1d(3, dtype=f(t)).eval()(t.ones(2, 3, dtype=g(t))))


@pytest.mark.parametrize("train", [True, False])
def test_instance_norm_with_averages_of_another_dtype(train):
    """Running averages may be kept in another precision than the input has."""
    for stored in ("float32", "float64"):
        made = []
        for t in (flambeau, torch):
            layer = t.nn.InstanceNorm1d(2, track_running_stats=True).train(train)
            layer.running_mean, layer.running_var = (x.to(getattr(t, stored)) for x in (layer.running_mean, layer.running_var))
            made.append((layer(t.arange(12.0).reshape(2, 2, 3)).tolist(), layer.running_var.tolist(), str(layer.running_var.dtype)))
        np.testing.assert_allclose(made[0][0], made[1][0], atol=1e-6)
        np.testing.assert_allclose(made[0][1], made[1][1], atol=1e-6)
        assert made[0][2] == made[1][2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("length", [1, 5, 64, 300, 5000])
def test_layer_norm_of_which_nothing_is_recorded(dtype, length):
    """The loop that only normalises gives other numbers than the one that also keeps mean and deviation for a gradient."""
    x = flambeau.randn(7, length).to(getattr(flambeau, dtype))
    w, b = (flambeau.randn(length).to(x.dtype) for _ in range(2))
    for weight, bias in ((w, b), (None, None), (w, None)):
        for given in (x, x.T.contiguous().T, x[::2]):
            expected = flambeau.nn.functional.layer_norm(given.clone().requires_grad_(), (length,), weight, bias).detach()
            got = flambeau.nn.functional.layer_norm(given, (length,), weight, bias)
            assert got.dtype is x.dtype and not got.requires_grad
            wide = [t.double() for t in (got, expected)]
            room = {"float64": 1e-12, "float32": 2e-6}.get(dtype, 0.02)
            assert flambeau.allclose(*wide, rtol=room, atol=room)
