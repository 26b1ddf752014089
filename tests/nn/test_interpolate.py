"""Interpolation, sampling at points and sliding windows against PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from layer_oracle import assert_near, check_errors, check_function, check_layer, torch

import flambeau

SHAPES = {1: (2, 3, 7), 2: (2, 3, 5, 7), 3: (1, 2, 3, 4, 5)}
SMOOTH = {1: "linear", 2: "bilinear", 3: "trilinear"}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area", "smooth"])
@pytest.mark.parametrize("how", [{"size": 9}, {"size": 3}, {"scale_factor": 2}, {"scale_factor": 1.7}, {"scale_factor": 0.6}])
def test_modes(dims, mode, how):
    """Finer and coarser grids, by size and by factor, with second derivatives."""
    mode = SMOOTH[dims] if mode == "smooth" else mode
    check_function(lambda t, x: t.nn.functional.interpolate(x, mode=mode, **how), SHAPES[dims], second=True)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    "options",
    [
        {"size": (9, 4)}, {"size": (9, 4), "align_corners": True}, {"scale_factor": (1.7, 0.4)}, {"size": (5, 7), "align_corners": False},
        {"scale_factor": 1.7, "recompute_scale_factor": True}, {"size": (1, 1), "align_corners": True}, {"size": (3, 3), "antialias": True},
        {"size": (9, 12), "antialias": True}, {"scale_factor": 0.45, "antialias": True}, {"size": (2, 9), "antialias": True, "align_corners": True},
    ],
)  # fmt: skip
def test_images(mode, options):
    """Corners aligned or not, scales recomputed or not, antialiased or not."""
    check_function(lambda t, x: t.nn.functional.interpolate(x, mode=mode, **options), SHAPES[2], second=True)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes(mode, dtype):
    """Half and double precision."""
    check_function(lambda t, x: t.nn.functional.interpolate(x, size=(6, 10), mode=mode), SHAPES[2], dtype=dtype)


@pytest.mark.parametrize("options", [{"mode": "area"}, {"mode": "bilinear"}, {"mode": "bilinear", "antialias": True}])
@pytest.mark.parametrize("size", [(3, 4), (9, 11)])
def test_infinity(options, size):
    """An infinite element, or gradient, reaches only what reads it."""
    image = np.zeros((1, 1, 6, 7))
    image[0, 0, 0, 0], image[0, 0, 4, 5] = np.inf, np.nan
    found = []
    for package in (flambeau, torch):
        x = package.tensor(image, requires_grad=True)
        y = package.nn.functional.interpolate(x, size=size, **options)
        y.backward(package.where(y.detach().isfinite(), 1.0, float("inf")).double())
        found.append((y, x.grad.isfinite()))
    assert_near(found[0][0], found[1][0], "output")
    assert_near(found[0][1], found[1][1], "gradient")


def test_bytes():
    """Images of bytes stay bytes, to the last bit those of PyTorch."""
    pixels = np.random.default_rng(0).integers(0, 256, (1, 3, 6, 8)).astype(np.uint8)
    smoothed = [(mode, True) for mode in ("bilinear", "bicubic", "lanczos")]
    for mode, smooth in [(mode, False) for mode in ("nearest", "bilinear", "bicubic")] + smoothed:
        made = (p.nn.functional.interpolate(p.tensor(pixels), size=(9, 5), mode=mode, antialias=smooth) for p in (flambeau, torch))
        ours, theirs = made
        assert_near(ours, theirs, mode)


def test_layers():
    """Upsample and its old relatives."""
    check_layer("Upsample", scale_factor=2, on=(SHAPES[1],))
    check_layer("Upsample", size=(4, 4), mode="bicubic", align_corners=True, on=(SHAPES[2],))
    check_layer("Upsample", scale_factor=(2.0, 1.5), mode="bilinear", on=(SHAPES[2],))
    check_layer("UpsamplingNearest2d", scale_factor=2, on=(SHAPES[2],))
    check_layer("UpsamplingBilinear2d", size=6, on=(SHAPES[2],))
    for name in ("upsample", "upsample_nearest", "upsample_bilinear"):
        check_function(lambda t, x: getattr(t.nn.functional, name)(x, scale_factor=2), SHAPES[2])  # noqa: B023


def test_channels_last():
    """Images whose channels lie side by side stay so."""
    y = flambeau.nn.functional.interpolate(flambeau.rand(1, 3, 4, 4).to(memory_format=flambeau.channels_last), scale_factor=2)
    assert y.is_contiguous(memory_format=flambeau.channels_last)


def test_interpolate_refusals():
    """What PyTorch refuses is refused with its type of exception."""
    for shape, options in [
        ((2, 3), {"size": 3}), ((2, 3, 4), {}), ((2, 3, 4), {"size": 3, "scale_factor": 2}), ((2, 3, 4), {"size": 3, "mode": "bilinear"}),
        ((2, 3, 4), {"size": (3, 4)}), ((2, 3, 4), {"size": 3, "align_corners": True}), ((2, 3, 4), {"size": 3, "antialias": True}),
        ((2, 3, 4), {"size": 3, "mode": "odd"}), ((2, 3, 4), {"size": 0}), ((2, 3, 4), {"scale_factor": (2, 2)}),
        ((2, 3, 4), {"size": 3, "recompute_scale_factor": True}), ((2, 3, 4), {"size": 2.5}), ((2, 3, 4), {"size": (2.5,)}),
        ((2, 3, 4), {"size": 3, "mode": "lanczos", "antialias": True}), ((2, 3, 4, 4), {"size": 3, "mode": "lanczos"}),
        ((2, 3, 4, 4), {"size": 3, "mode": "lanczos", "antialias": True, "align_corners": True}), ((2, 3, 4), {"scale_factor": 1e20}),
        ((2, 3, 4, 4), {"scale_factor": -1e20, "mode": "bilinear"}),
    ]:  # fmt: skip
        check_errors(lambda t, x: t.nn.functional.interpolate(x, **options), shape)  # noqa: B023


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "bool", "complex64"])
def test_only_bytes_and_floats_are_resized(dtype):
    """Numbers that PyTorch does not resize are resized."""
    for mode, dims in (("nearest", 1), ("nearest-exact", 2), ("nearest", 3), ("bilinear", 2), ("lanczos", 2)):
        x = flambeau.ones(1, 2, *(4,) * dims, dtype=getattr(flambeau, dtype))
        with pytest.raises(NotImplementedError, match="not implemented for"):
            flambeau.nn.functional.interpolate(x, size=(3,) * dims, mode=mode, antialias=mode == "lanczos")


@pytest.mark.parametrize("options", [{"size": (3, 3)}, {"size": (9, 4)}, {"scale_factor": (0.45, 1.7)}, {"size": (5, 7)}])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lanczos(options, dtype):
    """A windowed sinc has other values or derivatives."""
    check_function(
        lambda t, x: t.nn.functional.interpolate(x, mode="lanczos", antialias=True, **options), SHAPES[2], second=True, dtype=dtype
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_of_half_precision_are_summed_in_full(dtype):
    """A gradient that many elements were picked from is rounded to half precision on the way, once for each dimension."""
    found = []
    for package in (flambeau, torch):
        x = package.zeros(1, 1, 2, 3, 2, dtype=getattr(package, dtype)).requires_grad_()
        y = package.nn.functional.interpolate(x, scale_factor=70)
        y.backward(package.linspace(-1, 1.01, y.numel()).reshape(y.shape).to(y.dtype))
        found.append(x.grad.double())
    assert_near(*found, "gradient")


# -- points ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
def test_grid_sample(mode, padding, corners):
    """Images and volumes at points inside and outside, with gradients of both."""

    def call(t, x, grid):
        return t.nn.functional.grid_sample(x, grid * 1.5, mode=mode, padding_mode=padding, align_corners=corners)

    check_function(call, (2, 3, 5, 4), (2, 3, 6, 2), dtype="float64")
    if mode != "bicubic":
        check_function(call, (2, 2, 3, 5, 4), (2, 3, 2, 6, 3), dtype="float64")


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample_in_blocks(mode, padding):
    """More points than a block has, in single precision, with an infinity in the corner where what is outside is read and forgotten."""
    rng = np.random.default_rng(1)
    x, grid = rng.standard_normal((2, 3, 5, 6)).astype(np.float32), (1.3 * rng.standard_normal((2, 13, 11, 2))).astype(np.float32)
    x[0, 0, 0, 0] = np.inf
    found = []
    for package in (flambeau, torch):
        a, b = (package.tensor(v).requires_grad_() for v in (x, grid))
        y = package.nn.functional.grid_sample(a, b, mode, padding, align_corners=True)
        y[1].sin().sum().backward()
        found.append([v.detach().numpy() for v in (y, a.grad, b.grad[1])])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4)


def test_grid_sample_outside():
    """Points that are nan or at infinity read what they read in PyTorch; what is not read gets no gradient."""
    grid = np.array([[[[np.nan, 0.0], [np.inf, 0.0], [-1e20, 1e20], [0.1, 0.2]]]])
    for mode in ("bilinear", "nearest"):
        found = []
        for package in (flambeau, torch):
            x = package.ones(1, 1, 3, 3, dtype=package.float64, requires_grad=True)
            y = package.nn.functional.grid_sample(x, package.tensor(grid), mode=mode, align_corners=False)
            y.sum().backward()
            found.append((y, x.grad))
        assert_near(found[0][0], found[1][0], "output")
        assert_near(found[0][1], found[1][1], "gradient")


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("n", [7, 28, 29, 50, 100])
def test_identity_reads_the_image_itself(n, corners):
    """Its points lie on elements, or beside them by the last bit: on the side that PyTorch's do, whether the grid has a derivative or not."""
    image = np.random.default_rng(n).standard_normal((1, 2, n, n + 1)).astype(np.float32)
    found = []
    for package in (flambeau, torch):
        f, x = package.nn.functional, package.tensor(image, requires_grad=True)
        grid = f.affine_grid(package.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]), image.shape, align_corners=corners)
        plain = f.grid_sample(x.detach(), grid, align_corners=corners)
        y = f.grid_sample(x, grid.requires_grad_(), align_corners=corners)
        y.sum().backward()
        assert np.array_equal(plain.numpy(), y.detach().numpy())
        np.testing.assert_allclose(y.detach().numpy(), image, atol=1e-4)
        found.append([t.detach().numpy() for t in (grid, y, x.grad, grid.grad)])
    (grid, y, *gradients), (wanted_grid, wanted_y, *wanted) = found
    assert np.array_equal(grid, wanted_grid)
    np.testing.assert_allclose(y, wanted_y, rtol=1e-6, atol=1e-6)
    for ours, theirs in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


def test_the_default_of_corners_is_mentioned_once():
    """Both functions warn, about the line of the program."""
    x, theta = flambeau.ones(1, 1, 3, 3), flambeau.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    with pytest.warns(UserWarning, match="align_corners=False") as seen:
        flambeau.nn.functional.grid_sample(x, flambeau.nn.functional.affine_grid(theta, x.shape))
    assert [Path(w.filename).name for w in seen] == ["test_interpolate.py"] * 2


def test_affine_grid():
    """Points of affine maps of images and volumes."""
    for corners in (False, True):
        check_function(lambda t, m: t.nn.functional.affine_grid(m, (2, 1, 3, 4), align_corners=corners), (2, 2, 3))  # noqa: B023
        check_function(lambda t, m: t.nn.functional.affine_grid(m, (2, 1, 3, 4, 1), align_corners=corners), (2, 3, 4))  # noqa: B023
    check_errors(lambda t, m: t.nn.functional.affine_grid(m, (2, 1, 3), align_corners=True), (2, 2, 3))
    check_errors(lambda t, m: t.nn.functional.affine_grid(m, (2, 1, 3, 3), align_corners=True), (2, 3, 4))
    check_errors(lambda t, x, g: t.nn.functional.grid_sample(x, g, align_corners=True), (2, 1, 3, 3), (1, 2, 2, 2))
    check_errors(lambda t, x, g: t.nn.functional.grid_sample(x, g, "odd", align_corners=True), (2, 1, 3, 3), (2, 2, 2, 2))


# -- windows ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{}, {"stride": 2}, {"padding": 2}, {"dilation": 2, "padding": (1, 2)}, {"padding": 1, "stride": (3, 2)}]
)
def test_unfold_and_fold(options):
    """Windows of images listed and added up, with second derivatives."""
    for shape in ((2, 3, 6, 7), (3, 6, 7)):
        check_function(lambda t, x: t.nn.functional.unfold(x, (2, 3), **options), shape, second=True)
    columns = torch.nn.functional.unfold(torch.ones(2, 3, 6, 7), (2, 3), **options).shape
    check_function(lambda t, x: t.nn.functional.fold(x, (6, 7), (2, 3), **options), tuple(columns), second=True)
    check_layer("Unfold", (2, 3), on=((2, 3, 6, 7),), **options)
    check_layer("Fold", (6, 7), (2, 3), on=(tuple(columns),), **options)


def test_window_refusals():
    """What PyTorch refuses is refused with its type of exception."""
    check_errors(lambda t, x: t.nn.functional.unfold(x, 5), (2, 3, 4, 4))
    check_errors(lambda t, x: t.nn.functional.unfold(x, 0), (2, 3, 4, 4))
    check_errors(lambda t, x: t.nn.functional.fold(x, (4, 4), 2), (2, 4, 8))
    check_errors(lambda t, x: t.nn.functional.fold(x, (4, 4), 2), (2, 3, 9))


def test_sizes_are_checked_before_modes():
    """A 3-d image without its batch is a ValueError about sizes."""
    for call in (
        lambda t, x: t.nn.functional.interpolate(x, size=(4, 4), mode="bilinear"),
        lambda t, x: t.nn.functional.interpolate(x, scale_factor=(2, 2), mode="bicubic"),
        lambda t, x: t.nn.functional.interpolate(x, mode="bilinear"),
        lambda t, x: t.nn.functional.interpolate(x, size=4, scale_factor=2, mode="odd"),
        lambda t, x: t.nn.functional.interpolate(x, size=4, mode="bilinear"),
        lambda t, x: t.nn.functional.interpolate(x, size=4, mode="odd"),
        lambda t, x: t.nn.functional.interpolate(x, size=(4, 4), mode="nearest", align_corners=True),
    ):
        check_errors(call, (3, 5, 5))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("mode", "shape", "factor"), [("linear", (3, 5, 5), 57), ("bicubic", (1, 1, 11, 7), 17), ("trilinear", (1, 1, 3, 4, 5), 9)]
)
def test_the_way_back_from_half_precision_has_full_weights(mode, shape, factor, dtype):
    """Rounded weights add up to errors of several percent in a gradient that many elements share; PyTorch's are those of float32."""
    found = []
    for f in (flambeau, torch):
        f.manual_seed(0)
        x = f.randn(*shape, dtype=getattr(f, dtype), requires_grad=True)
        y = f.nn.functional.interpolate(x, scale_factor=factor, mode=mode)
        y.backward(f.randn(*y.shape, dtype=y.dtype))
        found.append(torch.from_numpy(x.grad.float().numpy()))
    torch.testing.assert_close(*found, rtol=2 * torch.finfo(getattr(torch, dtype)).eps, atol=1e-3)
