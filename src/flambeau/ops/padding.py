"""Padding: a border around a tensor, made of a constant, of a mirror image, of the edge, or of the other side. And positions in a shape.

Widths are pairs (before, after), the last dimension first; a negative width cuts off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from flambeau import dtypes, literals
from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import borders, gather
from flambeau.ops import specs
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.views import whole

MODES = ("reflect", "replicate", "circular")  # besides "constant"


@on_arrays(method=False)
def constant_pad_nd(input, pad, value=0):
    """`input` with `value` put around it: pairs (before, after), the last dimension first. A negative pad cuts off.

    >>> torch.constant_pad_nd(torch.ones(2), (1, 2), 5.0)
    tensor([5., 1., 1., 5., 5.])
    """
    pairs = _pairs(input.shape, tuple([whole(p) for p in pad]))
    value = literals.stored(value, dtypes.OF_NUMPY[input.dtype])
    if not input.flags.c_contiguous and max((max(pair) for pair in pairs), default=0) <= 0:  # only cut off: a copy in the order it had
        return arrays.copy(input[tuple([slice(-before, n + after) for n, (before, after) in zip(input.shape, pairs, strict=True)])])
    return _bordered_as_it_lies(input, pairs, "constant", value)


@constant_pad_nd.work
def _(input, pad, value):
    return borders.ready(input, _pairs(input.shape, tuple(pad)), literals.stored(value, dtypes.OF_NUMPY[input.dtype]))


def _bordered_as_it_lies(input, pairs, mode, value=0):
    """The array with its borders: channels last if the input is, else row-major."""
    if input.flags.c_contiguous:
        return borders.bordered(input, pairs, mode, value)
    order, back = arrays.lying(input)
    return borders.bordered(input.transpose(order), tuple([pairs[d] for d in order]), mode, value).transpose(back)


constant_pad_nd.derivative(input=lambda grad, pad: constant_pad_nd(grad, tuple(-whole(p) for p in pad)))


@constant_pad_nd.meta
def _(input, pad, value=0):
    pairs = _pairs(input.shape, tuple([whole(p) for p in pad]))
    shape, dtype, strides = _bordered_spec(input, pairs)
    if not layout.is_contiguous(*arrays.view_of(input)) and max((max(pair) for pair in pairs), default=0) <= 0:
        strides = layout.preserve_format_strides(shape, arrays.element_strides(input))
    return shape, dtype, strides


def _bordered_spec(input, pairs):
    """What `_bordered_as_it_lies` gives."""
    shape = tuple([n + sum(pair) for n, pair in zip(input.shape, pairs, strict=True)])
    found = specs.in_kind(input, shape)
    return (shape, input.dtype, layout.contiguous_strides(shape)) if layout.is_contiguous(*arrays.view_of(input)) else found


@lru_cache(1024)
def _pairs(sizes, pad) -> tuple[tuple[int, int], ...]:
    """(before, after) of every dimension, in their order."""
    n = len(sizes)
    if len(pad) % 2:
        raise RuntimeError(f"pad: the length of pad must be even, a (before, after) pair for every dimension, found {len(pad)}")
    if len(pad) > 2 * n:
        raise RuntimeError(f"pad: {len(pad)} numbers are too many for {n} dimensions, which take two each")
    pairs = [(0, 0)] * (n - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    for d, (size, pair) in enumerate(zip(sizes, pairs, strict=True)):
        if size + sum(pair) < 0:
            raise RuntimeError(f"pad: size {size} of dim {d} with padding {pair} would be a negative output size")
    return tuple(pairs)


def _node_name(input, pad, mode="constant", value=None) -> str | None:
    kind = {"reflect": "Reflection", "replicate": "Replication"}.get(mode)
    return kind and f"{kind}Pad{len(pad) // 2}DBackward0"


def _autocast(device: str, given: dict) -> str | None:
    """The CPU's reflection and replication padding, but for the reflection of volumes."""
    mode, sides = given.get("mode", "constant"), len(given.get("pad", ())) // 2
    return "float32" if device == "cpu" and (mode == "replicate" or (mode == "reflect" and sides < 3)) else None


@composite(name="nn.functional.pad", method=False, grad_name=_node_name, autocast=_autocast)
def pad(input, pad, mode="constant", value=None):
    """`input` with a border: "constant" (a value), "reflect" (a mirror image), "replicate" (the edge) or "circular" (the other side).

    pad is (before, after) of the last dimension, then of the one before it, ... All but "constant" take 1 to 3 of the dimensions behind
    batch and channels.
    """
    widths = tuple([whole(p) for p in pad])
    if len(widths) % 2:
        raise RuntimeError(f"Padding length must be divisible by 2: a (before, after) pair for each dimension, found {widths}")
    if mode == "constant":
        return constant_pad_nd(input, widths, 0 if value is None else value)
    if mode not in MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}: try one of constant, {', '.join(MODES)}")
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    count = len(widths) // 2
    if count not in (1, 2, 3) or input.dim() not in (count + 1, count + 2):
        raise NotImplementedError(
            f"Padding size {len(widths)} is not supported for {input.dim()}D input tensor: mode {mode} takes a pair for each of the last 1, 2 or 3 "
            "dimensions, behind (N, C) or (C)"
        )
    _check_widths(input, widths, mode)
    return _continued(input, widths, mode)


@on_arrays(public=False, method=False)
def _continued(input, widths, mode):
    """`input` with a border of copies of its elements."""
    pairs = _pairs(input.shape, widths)
    return borders.bordered(input, pairs, mode) if mode == "circular" else _bordered_as_it_lies(input, pairs, mode)


@_continued.meta
def _(input, widths, mode):
    found = _bordered_spec(input, _pairs(input.shape, widths))
    return found[:2] if mode == "circular" else found


@on_arrays(public=False, method=False)
def _continued_backward(grad, sizes, widths, mode):
    """Every element of the border added to the one it is a copy of, one dimension after the other."""
    pairs = _pairs(sizes, widths)
    order, back = arrays.lying(grad) if mode != "circular" else (back := tuple(range(grad.ndim)), back)
    grad, pairs, sizes = grad.transpose(order), [pairs[d] for d in order], [sizes[d] for d in order]
    for d, (before, after) in enumerate(pairs):
        if not before and not after:
            continue
        only = tuple((-before, -after) if e == d else (0, 0) for e in range(len(pairs)))
        total = borders.bordered(grad, only, "constant")
        places, lead = borders.places(sizes[d], before, after, mode), (slice(None),) * d
        for side in (slice(0, max(before, 0)), slice(len(places) - max(after, 0), None)):
            if len(places[side]):
                gather.add_rows(total, d, arrays.module_of(grad).asarray(places[side]), grad[(*lead, side)])
        grad = total
    return grad.transpose(back)


_continued.derivative(input=lambda grad, input_shape, widths, mode: _continued_backward(grad, input_shape, widths, mode))
_continued.second_derivative = "zero"
_continued_backward.derivative(grad=lambda grad, widths, mode: _continued(grad, widths, mode))
_continued_backward.meta(lambda grad, sizes, widths, mode: (sizes, grad.dtype) if mode == "circular" else specs.in_kind(grad, sizes))


def _check_widths(input, widths, mode: str) -> None:
    for i, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        size = input.shape[-1 - i]
        if 0 in input.shape[-len(widths) // 2 - 1 :]:
            n = len(widths) // 2
            raise RuntimeError(
                f"Expected {n + 1}D or {n + 2}D input with something to pad, a batch alone may be empty; found {tuple(input.shape)}"
            )
        if mode == "reflect" and max(before, after) >= size:
            raise RuntimeError(
                f"Padding size should be less than the corresponding input dimension, found ({before}, {after}) for dimension "
                f"{input.dim() - 1 - i} of {list(input.shape)}"
            )
        if mode == "circular" and max(before, after) > size:
            raise RuntimeError(f"circular padding wraps around once at most, found ({before}, {after}) for a size of {size}")
        if size + before + after < (0 if mode == "circular" else 1):
            raise RuntimeError(
                f"padding ({before}, {after}) leaves nothing of dimension {input.dim() - 1 - i} of input {list(input.shape)}"
            )


@composite(method=False)
def unravel_index(indices, shape):
    """Positions counted over all elements of a tensor of `shape`, as one index tensor per dimension."""
    if not isinstance(shape, (int, Sequence)):
        raise TypeError(f"unravel_index: expected 'shape' to be int or sequence of ints, found {type(shape).__name__}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if not all(isinstance(n, int) for n in sizes):
        raise TypeError(f"unravel_index: expected 'shape' sequence to only contain ints, found {shape}")
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    if indices.is_floating_point() or indices.is_complex() or indices.dtype.name == "bool":
        raise TypeError(f"unravel_index: expected 'indices' to be integer, found {indices.dtype}")
    sizes, strides = [indices.new_tensor(numbers, dtype=dtypes.int64) for numbers in (sizes, layout.contiguous_strides(sizes))]
    return (indices.long().unsqueeze(-1).div(strides, rounding_mode="floor") % sizes).unbind(-1)
