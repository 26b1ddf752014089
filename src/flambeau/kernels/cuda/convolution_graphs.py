"""Convolution by cuDNN, where it is there and has a way: graphs of one operation, and of a bias behind it where that is a kernel with it.

Operands are packed in one order, row-major or channels last, which is that of the result; what lies otherwise is copied first. A convolution in one
dimension is one in two of which the first has size 1.
"""

from __future__ import annotations

from functools import lru_cache

import cupy
from cupy.cuda import get_current_stream, runtime

from flambeau.kernels import arrays, layout, libraries
from flambeau.kernels.cuda import cudnn
from flambeau.kernels.language.pointwise import Pointwise

Sizes = tuple[int, ...]
NUMBERED = {dtype.num: dtype for dtype in cudnn.NAMES}
OUT, FIRST, SECOND, BIAS = 1, 2, 3, 4
SUM = Pointwise("conv_bias", lambda input, bias: input + bias, ("input", "bias"))


def run(what: str, out, first, second, bias, stride: Sizes, padding: Sizes, dilation: Sizes) -> bool:
    """Write a convolution into `out`, which is packed; False if it is not for cuDNN.

    what   "fprop": of an image and a weight; "dgrad": of a result and a weight, back to an image; "wgrad": of an image and a result, to a weight
    """
    if out.dtype.num not in NUMBERED or not cudnn.is_used() or not (out.size and first.size and second.size):
        return False
    last = layout.looks_channels_last(*arrays.view_of(out))
    first, second = _packed(first, last), _packed(second, last)
    # The bias comes with it where that was seen to cost nothing.
    fused = bias is not None and last and out.itemsize == 2 and not bias.data.ptr % cudnn.ALIGNED
    graph = _graph(what, out, first, second, fused, last, stride, padding, dilation)
    if graph is None and fused:
        fused, graph = False, _graph(what, out, first, second, False, last, stride, padding, dilation)
    if graph is None:
        return False
    addresses = {OUT: out.data.ptr, FIRST: first.data.ptr, SECOND: second.data.ptr}
    if fused:
        addresses[BIAS] = bias.data.ptr
    if libraries.benchmark and graph.chosen < 0 and not get_current_stream().is_capturing():
        graph.tune(addresses)
    graph.run(addresses)
    if bias is not None and not fused:
        arrays.run(SUM, (out, bias.reshape(-1, *(1,) * (out.ndim - 2))), (), out.dtype, out.dtype, out=out)
    return True


def weight_gradient(x, y, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int):
    """The derivative by the weight of a convolution from x to y, channels last if one of them is; None if it is not for cuDNN."""
    if x.dtype.num not in NUMBERED or not cudnn.is_used():
        return None
    shape = (y.shape[1], x.shape[1] // groups, *kernel)
    last = any([layout.looks_channels_last(*arrays.view_of(a)) for a in (x, y)])
    out = cupy.ndarray(shape, x.dtype, None, _strides(shape, last, x.itemsize))
    return out if run("wgrad", out, x, y, None, stride, padding, dilation) else None


def _graph(what: str, out, first, second, biased: bool, last: bool, stride: Sizes, padding: Sizes, dilation: Sizes) -> cudnn.Graph | None:
    exact = not libraries.convolutions_in_tf32 and out.itemsize == 4
    options = tuple(stride), tuple(padding), tuple(dilation)
    return _planned(
        what, out.dtype.num, out.shape, first.shape, second.shape, last, biased, options, exact, cudnn.deterministic(), libraries.benchmark,
        runtime.getDevice(),
    )  # fmt: skip


@lru_cache(1024)
def _planned(
    what: str, dtype: int, out: Sizes, first: Sizes, second: Sizes, last: bool, biased: bool, options: tuple[Sizes, ...], exact: bool,
    deterministic: bool, benchmark: bool, device: int,
) -> cudnn.Graph | None:  # fmt: skip
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
    return graph.planned(exact)


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
    if _is_packed(x.shape, x.strides, last, x.itemsize) and not x.data.ptr % cudnn.ALIGNED:
        return x
    if not last:
        return arrays.contiguous_copy(x)
    back = (0, x.ndim - 1, *range(1, x.ndim - 1))
    return arrays.contiguous_copy(x.transpose(0, *range(2, x.ndim), 1)).transpose(back)


@lru_cache(4096)
def _is_packed(shape: Sizes, strides: Sizes, last: bool, size: int) -> bool:
    wanted = _strides(shape, last, size)
    return all([n == 1 or found == step for n, found, step in zip(shape, strides, wanted, strict=True)])
