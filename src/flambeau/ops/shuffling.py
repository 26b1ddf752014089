"""Elements moved between channels and places: pixel_shuffle, pixel_unshuffle, channel_shuffle."""

from __future__ import annotations

from flambeau.ops.copying import in_kind, row_major
from flambeau.ops.declare import composite
from flambeau.ops.formats import contiguous_format
from flambeau.ops.views import _unsafe_view


@composite(method=False, aliases=("nn.functional.pixel_shuffle",), grad_name="PixelShuffleBackward0")
def pixel_shuffle(input, upscale_factor):
    """Channels become places: (*, C r^2, H, W) -> (*, C, H r, W r), with r the upscale_factor."""
    r = upscale_factor
    _check_image("pixel_shuffle", input, "upscale_factor", r)
    *batch, channels, height, width = input.shape
    if channels % (r * r):
        raise RuntimeError(
            f"pixel_shuffle: a factor of {r} takes its pixels from {r * r} channels each, but {channels} are not divisible by that"
        )
    apart = row_major(input).reshape((*batch, channels // (r * r), r, r, height, width))
    n = len(batch)
    moved = apart.permute((*range(n + 1), n + 3, n + 1, n + 4, n + 2))  # (*, C, H, r, W, r)
    return _copied(moved, (*batch, channels // (r * r), height * r, width * r), input)


@composite(method=False, aliases=("nn.functional.pixel_unshuffle",), grad_name="PixelUnshuffleBackward0")
def pixel_unshuffle(input, downscale_factor):
    """The way back: (*, C, H r, W r) -> (*, C r^2, H, W), with r the downscale_factor."""
    r = downscale_factor
    _check_image("pixel_unshuffle", input, "downscale_factor", r)
    *batch, channels, height, width = input.shape
    for what, size, dim in (("height", height, -2), ("width", width, -1)):
        if size % r:
            raise RuntimeError(f"pixel_unshuffle expects {what} to be divisible by {r}, found {size} in dimension {dim}")
    apart = row_major(input).reshape((*batch, channels, height // r, r, width // r, r))
    n = len(batch)
    moved = apart.permute((*range(n + 1), n + 2, n + 4, n + 1, n + 3))  # (*, C, r, r, H, W)
    return _copied(moved, (*batch, channels * r * r, height // r, width // r), input)


def _copied(moved, shape: tuple[int, ...], input):
    """A copy, even where nothing moves: row-major, or with the channels last if the input has them so."""
    return in_kind(
        _unsafe_view(moved.clone(memory_format=contiguous_format), shape), input
    )  # nobody else has the copy: it need not be a view


def _check_image(name: str, input, what: str, factor: int) -> None:
    if input.dim() < 3:
        raise RuntimeError(f"{name} expects at least 3 dimensions, (*, C, H, W), found {input.dim()}")
    if factor <= 0:
        raise RuntimeError(f"{name} expects a positive {what}, but got {factor}")


@composite(method=False, aliases=("nn.functional.channel_shuffle", "native_channel_shuffle", "nn.functional.native_channel_shuffle"))
def channel_shuffle(input, groups):
    """The first channel of every group, then the second of every group, ... (N, C, *) -> the same shape."""
    if input.dim() <= 2:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, found {list(input.shape)}")
    samples, channels, *places = input.shape
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive, found {groups}")
    if channels % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups, found {channels} and {groups}")
    apart = row_major(input).reshape((samples, groups, channels // groups, *places))
    return _copied(apart.transpose(1, 2), tuple(input.shape), input)
