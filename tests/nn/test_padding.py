"""Padding: F.pad and the layers against PyTorch."""

from __future__ import annotations

import pytest
from layer_oracle import check_errors, check_function, check_layer

KINDS = {"Constant": (1.5,), "Zero": (), "Reflection": (), "Replication": (), "Circular": ()}
SHAPES = {1: (2, 3, 6), 2: (2, 3, 5, 6), 3: (1, 2, 4, 5, 6)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_layer(kind, dims):
    """One width for all sides, or one for each; with and without a batch; output and gradients."""
    for padding in (2, tuple(i % 4 for i in range(2 * dims)), [1, 0] * dims):
        check_layer(f"{kind}Pad{dims}d", padding, *KINDS[kind], on=(SHAPES[dims],))
        check_layer(f"{kind}Pad{dims}d", padding, *KINDS[kind], on=(SHAPES[dims][1:],), dtype="bfloat16")


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("pad", [(1, 2), (-1, 2), (0, -2), (-1, -1), (0, 0), (2, 1, 1, 3), (-1, 1, -2, 1), (3, -2, 0, 2)])
def test_modes(mode, pad):
    """Every mode, negative widths included, with second derivatives."""
    check_function(lambda t, x: t.nn.functional.pad(x, pad, mode=mode), (2, 3, 4, 5)[: 2 + len(pad) // 2], second=True)


def test_constant():
    """A value of any kind, in any number of dimensions."""
    for pad in ((1, 1, 0, 2, 3, 0), (), (0, 1, 2, -1)):
        check_function(lambda t, x: t.nn.functional.pad(x, pad, value=2), (2, 3, 4))  # noqa: B023
    check_function(lambda t, x: t.nn.functional.pad((x > 0), (1, 1), value=True), (2, 3))
    check_function(lambda t, x: t.nn.functional.pad((x * 10).long(), (1, 1), value=-7), (2, 3))


def test_refusals():
    """What PyTorch refuses is refused with its type of exception."""
    for mode, pad, shape in [
        ("constant", (1,), (2, 3)), ("constant", (1, 1, 1, 1), (3,)), ("constant", (-2, -2), (3,)), ("reflect", (3, 0), (2, 3, 3)),
        ("circular", (4, 0), (2, 3, 3)), ("reflect", (1, 1), (2, 3, 3, 3, 3)), ("replicate", (1, 1, 1), (2, 3, 3)), ("odd", (1, 1), (2, 3, 3)),
        ("replicate", (-2, -2), (2, 3, 3)),
    ]:  # fmt: skip
        check_errors(lambda t, x: t.nn.functional.pad(x, pad, mode=mode), shape)  # noqa: B023
    check_errors(lambda t, x: t.nn.CircularPad2d(1)(x), (2, 3))


def test_fewer_widths():
    """As in PyTorch, a tuple of widths is taken as it is: with two of them only the last dimension grows."""
    check_layer("ZeroPad2d", (1, 2), on=(SHAPES[2],))
    check_errors(lambda t, x: t.nn.ReflectionPad2d((1, 2))(x), SHAPES[2])


def test_nothing_left():
    """A border around what was cut to nothing: empty, and backward gives zeros."""
    for pad in ((3, 1, -1, -1, 1, 0), (-2, 0, 1, 1), (0, 0, -2, 0)):
        check_function(lambda t, x: t.nn.functional.pad(x, pad), (2, 3, 2, 2))  # noqa: B023
