"""Convolution by cuDNN, where it is there and has a way: graphs of one operation, and of a bias behind it where that is a kernel with it.

Operands are packed in one order, row-major or channels last, which is that of the result; what lies otherwise is copied first. A convolution in one
dimension is one in two of which the first has size 1.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import cupy
from cupy.cuda import Device, get_current_stream, runtime

from flambeau.kernels import arrays, layout, libraries
from flambeau.kernels.cuda import cudnn
from flambeau.kernels.language.pointwise import Pointwise

Sizes = tuple[int, ...]
NUMBERED = {dtype.num: dtype for dtype in cudnn.NAMES}
MOST = 4096  # ways that are remembered
OUT, FIRST, SECOND, BIAS = 1, 2, 3, 4
SUM = Pointwise("conv_bias", lambda input, bias: input + bias, ("input", "bias"))


class Way(NamedTuple):
    """How operands of certain shapes and strides are convolved."""

    graph: cudnn.Graph
    last: bool  # whether channels come last in all that the graph sees
    as_they_are: bool  # whether the operands lie so
    fused: bool  # whether the bias is part of the graph
    strides: Sizes  # of the result, in bytes
    size: int  # of it


_ways: dict[tuple, Way | None] = {}  # by all that they depend on


def run(what: str, first, second, bias, shape: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes):
    """A convolution, whose result has this shape, and channels last if one of the operands has; None if it is not for cuDNN.

    what   "fprop": of an image and a weight; "dgrad": of a result and a weight, back to an image; "wgrad": of an image and a result, to a weight
    """
    if not cudnn.is_used():
        return None
    dtype, device = first.dtype, first.data.device_id
    if device != runtime.getDevice():
        with Device(device):
            return run(what, first, second, bias, shape, stride, padding, dilation)
    look = (
        what, dtype.num, first.shape, first.strides, second.shape, second.strides, shape, stride, padding, dilation, bias is None, device,
        libraries.convolutions_in_tf32, libraries.benchmark, cudnn.deterministic(),
    )  # fmt: skip
    if look in _ways:
        way = _ways[look]
    else:
        if len(_ways) >= MOST:
            _ways.clear()
        way = _ways[look] = _way(*look[:11], exact=not libraries.convolutions_in_tf32)
    if way is None:
        return None
    if not way.as_they_are or (first.data.ptr | second.data.ptr) % cudnn.ALIGNED:
        first, second = _packed(first, way.last), _packed(second, way.last)
    out = cupy.ndarray(shape, dtype, cupy.cuda.alloc(way.size), way.strides)
    addresses = {OUT: out.data.ptr, FIRST: first.data.ptr, SECOND: second.data.ptr}
    if way.fused:
        bias = bias if bias._c_contiguous and not bias.data.ptr % cudnn.ALIGNED else arrays.contiguous_copy(bias)
        addresses[BIAS] = bias.data.ptr
    if libraries.benchmark and way.graph.chosen < 0 and not get_current_stream().is_capturing():
        way.graph.tune(addresses)
    way.graph.run(addresses)
    if bias is not None and not way.fused:
        arrays.run(SUM, (out, bias.reshape(-1, *(1,) * (out.ndim - 2))), (), dtype, dtype, out=out)
    return out


def _way(
    what: str, dtype: int, first: Sizes, first_strides: Sizes, second: Sizes, second_strides: Sizes, shape: Sizes, stride: Sizes,
    padding: Sizes, dilation: Sizes, plain: bool, exact: bool,
) -> Way | None:  # fmt: skip
    if dtype not in NUMBERED or 0 in (*first, *second, *shape):
        return None
    size = NUMBERED[dtype].itemsize
    views = [(s, tuple([step // size for step in steps])) for s, steps in ((first, first_strides), (second, second_strides))]
    last = any([layout.looks_channels_last(*view) for view in views])
    packed = all([_is_packed(s, steps, last, size) for s, steps in ((first, first_strides), (second, second_strides))])
    options = tuple(stride), tuple(padding), tuple(dilation)
    # The bias comes with it where that was seen to cost nothing.
    for fused in (True, False) if not plain and last and size == 2 else (False,):
        graph = _planned(what, dtype, shape, first, second, last, fused, options, exact)
        if graph is not None:
            return Way(graph, last, packed, fused, _strides(shape, last, size), prod(shape) * size)
    return None


def _planned(
    what: str, dtype: int, out: Sizes, first: Sizes, second: Sizes, last: bool, biased: bool, options: tuple[Sizes, ...], exact: bool
) -> cudnn.Graph | None:
    """The graph for arrays of these shapes, planned; None if cuDNN has no way to carry it out."""
    graph = cudnn.Graph(NUMBERED[dtype])
    images = [_image(shape) for shape in (out, first, second)]
    views = [(shape, _strides(shape, last, 1)) for shape in images]
    stride, padding, dilation = (_image_options(numbers, missing) for numbers, missing in zip(options, (1, 0, 1), strict=True))
    one, other = graph.tensor(FIRST, *views[1]), graph.tensor(SECOND, *views[2])
    how = {"padding": padding, "stride": stride, "dilation": dilation}
    if what == "fprop":
        made = graph.nodes.conv_fprop(image=one, weight=other, **how)
    elif what == "dgrad":
        made = graph.nodes.conv_dgrad(loss=one, filter=other, **how)
    else:
        made = graph.nodes.conv_wgrad(image=one, loss=other, **how)
    if biased:
        if what == "dgrad":  # sizes of an image do not follow from those of the result
            made.set_dim(list(images[0]))
        shape = (1, images[0][1], *(1,) * (len(images[0]) - 2))
        made = graph.nodes.add(a=made, b=graph.tensor(BIAS, shape, _strides(shape, last, 1)))
    graph.result(made, OUT, *views[0])
    return graph.planned(exact and graph.dtype == cudnn.FLOAT32)


def _image(shape: Sizes) -> Sizes:
    """Two dimensions at least."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def _image_options(numbers: Sizes, missing: int) -> list[int]:
    return [missing, *numbers] if len(numbers) == 1 else list(numbers)


@lru_cache(4096)
def _strides(shape: Sizes, last: bool, size: int) -> Sizes:
    """Those of packed arrays, in bytes of elements of this size."""
    order = [0, *range(2, len(shape)), 1] if last else [*range(len(shape))]
    found, step = [0] * len(shape), size
    for axis in reversed(order):
        found[axis] = step
        step *= shape[axis]
    return tuple(found)


def _packed(x, last: bool):
    """The array itself, if it lies as is wanted, else a copy that does."""
    if not x.data.ptr % cudnn.ALIGNED and _is_packed(x.shape, x.strides, last, x.itemsize):
        return x
    if not last:
        return arrays.contiguous_copy(x)
    back = (0, x.ndim - 1, *range(1, x.ndim - 1))
    return arrays.contiguous_copy(x.transpose(0, *range(2, x.ndim), 1)).transpose(back)


@lru_cache(4096)
def _is_packed(shape: Sizes, strides: Sizes, last: bool, size: int) -> bool:
    wanted = _strides(shape, last, size)
    return all([n == 1 or found == step for n, found, step in zip(shape, strides, wanted, strict=True)])
