"""Layers that move elements and compute nothing, against PyTorch."""

from __future__ import annotations

import pytest
from layer_oracle import check_errors, check_function, check_layer


@pytest.mark.parametrize("shape", [(2, 8, 3, 4), (8, 3, 4), (2, 1, 4, 2, 2)])
def test_pixel_shuffle(shape):
    """Channels become places, and back, with second derivatives."""
    check_layer("PixelShuffle", 2, on=(shape,))
    check_function(lambda t, x: t.nn.functional.pixel_shuffle(x, 2), shape, second=True)
    back = (*shape[:-3], shape[-3], shape[-2] * 2, shape[-1] * 2)
    check_layer("PixelUnshuffle", 2, on=(back,))


def test_channel_shuffle():
    """Channels of the groups by turns."""
    for shape in ((2, 6, 3), (2, 6, 2, 2)):
        check_layer("ChannelShuffle", 3, on=(shape,))


def test_flatten():
    """Dimensions joined and parted."""
    check_layer("Flatten", on=((2, 3, 4),))
    check_layer("Flatten", 0, 1, on=((2, 3, 4),))
    check_layer("Unflatten", 1, (2, 3), on=((2, 6, 4),))
    check_layer("Unflatten", 1, [2, -1], on=((2, 6, 4),))


def test_refusals():
    """What PyTorch refuses is refused with its type of exception."""
    check_errors(lambda t, x: t.nn.PixelShuffle(2)(x), (2, 3, 2, 2))
    check_errors(lambda t, x: t.nn.PixelShuffle(0)(x), (2, 3, 2, 2))
    check_errors(lambda t, x: t.nn.PixelUnshuffle(2)(x), (2, 3, 2, 3))
    check_errors(lambda t, x: t.nn.PixelShuffle(2)(x), (2, 3))
    check_errors(lambda t, x: t.nn.ChannelShuffle(2)(x), (2, 3, 2, 3))
    check_errors(lambda t, x: t.nn.ChannelShuffle(2)(x), (2, 4))
    check_errors(lambda t: t.nn.Unflatten(1, 3))
    check_errors(lambda t: t.nn.Unflatten(1, (1.5, 2)))
