"""Copies: clone, copy_, conversion to another dtype, device or memory order."""

from __future__ import annotations

import numpy as np

from flambeau import devices, dtypes, float8
from flambeau.kernels import arrays, layout
from flambeau.kernels.native import copies, native
from flambeau.ops import specs
from flambeau.ops.asking import geometry
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.formats import contiguous_format, is_format, preserve_format, strides_for


@on_arrays
def _clone(input, strides):
    """A copy with the given strides."""
    out = arrays.empty_strided(input.shape, strides, input.dtype, arrays.device_of(input))
    arrays.write(out, input)
    return out


@_clone.work
def _(input, strides):
    shape, dtype, empty = input.shape, input.dtype, native.empty
    if not input.size or strides != layout.contiguous_strides(shape):
        return None

    def run(input):
        out = empty(shape, dtype)
        return out if copies.made(out, input) else NotImplemented

    return run


_clone.derivative(input=lambda grad: grad)


_clone.meta(lambda input, strides: (input.shape, input.dtype, strides))


@composite
def clone(input, *, memory_format=preserve_format):
    """A copy that shares no memory with `input`; gradients flow through it."""
    return _clone(input, strides_for(memory_format, *geometry(input)))


@composite(public=False)
def contiguous(input, memory_format=contiguous_format):
    """`input` itself if its elements lie in memory in order, else a copy for which that holds."""
    if input.is_contiguous(memory_format=memory_format):
        return input
    return _clone.call(input, strides_for(memory_format, *geometry(input)))


@on_arrays(public=False, method=False)
def _relaid(input, last, before):
    """A copy with its channels last, or row-major; its gradient comes as the input lies: channels last if `before`."""
    order, back = arrays.orders(input.ndim, last)
    return arrays.contiguous_copy(input.transpose(order)).transpose(back)


_relaid.derivative(input=lambda grad, last, before: _relaid(grad, before, last))


@_relaid.meta
def _(input, last, before):
    order, back = arrays.orders(input.ndim, last)
    shape = tuple([input.shape[d] for d in order])
    return input.shape, input.dtype, layout.permute(shape, layout.contiguous_strides(shape), back)[1]


def _has_channels_last(input) -> bool:
    return layout.looks_channels_last(*geometry(input))


def row_major(input):
    """`input` in order, for what works along rows; `in_kind` brings the result back into the memory format of the input."""
    return _relaid(input, False, True) if _has_channels_last(input) else input.contiguous()


def in_kind(result, input):
    """`result` with its channels last if `input` has them so."""
    return _relaid(result, True, False) if result.dim() == input.dim() and _has_channels_last(input) else result


@on_arrays
def _to_copy(input, dtype, device, strides, non_blocking=False):
    """A copy in another dtype, on another device, with other strides."""
    moved = arrays.to_device(input, device, non_blocking)
    if strides is None:
        made = arrays.cast(moved, dtype.numpy) if moved.dtype != dtype.numpy else arrays.copy(moved) if moved is input else moved
        strides = _own_strides(input)
        if strides is None:
            return made
        if all([n == 1 or s == own for n, s, own in zip(input.shape, arrays.element_strides(made), strides, strict=True)]):
            return arrays.strided_view(made, input.shape, strides, 0)
    out = arrays.empty_strided(input.shape, strides, dtype.numpy, device)
    arrays.write(out, moved)
    return out


@_to_copy.work
def _(input, dtype, device, strides, non_blocking):
    if strides is not None or device.type != "cpu" or input.dtype == dtype.numpy or _own_strides(input) is not None:
        return None
    return arrays.casting(dtype.numpy)


def _own_strides(input) -> tuple[int, ...] | None:
    """The strides of a copy where sizes of 1 have their own say in them."""
    if 1 not in input.shape:
        return None
    shape, strides = arrays.view_of(input)
    return None if strides == layout.contiguous_strides(shape) else layout.preserve_format_strides(shape, strides)


_to_copy.derivative(input=lambda grad, input_dtype, input_device: _to_copy(grad, input_dtype, input_device, None))
_to_copy.meta(lambda input, dtype, device, strides, **_: (input.shape, dtype.numpy, specs.like(input)[2] if strides is None else strides))


@composite(public=False)
def to(input, *args, **kwargs):
    """`input` with another dtype and/or device: to(dtype), to(device), to(device, dtype), to(other). Itself if nothing changes."""
    if len(args) == 1 and not kwargs and type(args[0]) is dtypes.dtype:  # nearly always
        return input if args[0] is input.dtype else _to_copy.call(input, args[0], input.device, None)
    if len(args) == 1 and not kwargs and type(args[0]) is str and args[0] == "cpu" and input.is_cpu:
        return input
    dtype, device, copy, memory_format, non_blocking = parse_to(*args, **kwargs)
    dtype = dtype or input.dtype
    device = _indexed(device, input) if device is not None else input.device
    strides, same_order = None, True
    if memory_format is not None and memory_format is not preserve_format:
        lies = geometry(input)
        strides = strides_for(memory_format, *lies)
        # PyTorch asks which of the two formats the strides look like, not whether they are dense in it: a transposed matrix counts as
        # row-major and is given back as it is, and the (C, 1, k, k) of a depthwise convolution gets strides that look like channels last.
        same_order = layout.looks_channels_last(*lies) is (memory_format is not contiguous_format)
    if not copy and dtype is input.dtype and device == input.device and same_order:
        return input
    return _to_copy(input, dtype, device, strides, non_blocking)


def _indexed(device, input):
    """'cuda' means the current GPU; a tensor that is on one already stays there."""
    device = devices.usable(devices.device(device))
    if device.type == "cuda" and device.index is None:
        return input.device if input.device.type == "cuda" else arrays.current_gpu()
    if device.type == "cpu" and device.index is not None:
        return devices.cpu
    return device


def parse_to(*args, dtype=None, device=None, copy=False, memory_format=None, other=None, non_blocking=False):
    """The forms of Tensor.to and Module.to: (dtype, device, copy, memory_format, whether the copy may be left to itself)."""
    rest, dtype = [dtypes.asked(a) for a in args], dtypes.asked(dtype)
    if rest and hasattr(rest[0], "_array"):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], dtypes.dtype):
        dtype = rest.pop(0)
    elif rest and (rest[0] is None or (isinstance(rest[0], (str, int, devices.device)) and not isinstance(rest[0], bool))):
        device, *rest = rest
        if rest:
            dtype, *rest = rest
    elif rest:
        raise TypeError(f"to() received {type(rest[0]).__name__}: expected a dtype (torch.float64), a device ('cuda:0') or a tensor")
    if other is not None:
        dtype, device = other.dtype, other.device
    if len(rest) > 2 or not all(isinstance(flag, bool) for flag in rest):
        raise TypeError(f"to() takes a device, a dtype, and True or False for non_blocking and for copy, in this order; found {args}")
    non_blocking = rest[0] if rest else non_blocking
    copy = rest[1] if len(rest) > 1 else copy
    if dtype is not None and not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"to(): argument 'dtype' must be torch.dtype, found {type(dtype).__name__}")
    if memory_format is not None and not is_format(memory_format):
        raise TypeError(f"to(): argument 'memory_format' must be torch.memory_format, not {type(memory_format).__name__}")
    return dtype, device, copy, memory_format, bool(non_blocking)


parse_to.__qualname__ = "to"  # what a user has called, for Python's own errors


@on_arrays(onto=arrays.empty_like, public=False, method=False, name="copy", inplace=True, grad_name="CopyBackwards")
def _copy(input, other, non_blocking=False):
    """`other` broadcast to the shape of `input`, in its dtype."""
    try:
        same = input.shape == other.shape
    except AttributeError:
        other, same = _number(other), False
    if not same and layout.broadcast_shapes(input.shape, other.shape) != tuple(input.shape):
        layout.expand(other.shape, arrays.element_strides(other), input.shape)  # raises, naming the dimension
    if arrays.wrote(input, other) or arrays.carried(input, other, non_blocking):
        return
    other = arrays.to_device(other, arrays.device_of(input), non_blocking)
    arrays.write(input, arrays.apart(input, other))


@_copy.work_in_place
def _(input, other, non_blocking):
    same = hasattr(other, "dtype") and other.dtype == input.dtype and other.shape == input.shape
    return arrays.CASTS[dtypes.of_array(input).name].launch_into if same and input.dtype.char not in float8.CHARS else None


def _number(src) -> np.ndarray:
    if not isinstance(src, (bool, int, float, complex)):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor or a number, not {type(src).__name__}")
    return np.asarray(src)


_copy.derivative(input=lambda grad: grad.new_zeros(grad.shape), other=lambda grad, other_device: grad.to(other_device))


def _conversion(name: str, dtype: dtypes.dtype) -> None:
    @composite(public=False, name=name, doc=f"`input` in dtype {dtype.name}: itself if it has that already.")
    def convert(input, memory_format=preserve_format):
        if memory_format is preserve_format:
            return input if input.dtype is dtype else _to_copy.call(input, dtype, input.device, None)
        return to(input, dtype, memory_format=memory_format)


for _name in ("float", "double", "half", "bfloat16", "int", "long", "short", "bool", "cfloat", "cdouble"):
    _conversion(_name, dtypes.BY_NAME[_name])
_conversion("char", dtypes.int8)
_conversion("byte", dtypes.uint8)


@composite(public=False)
def cpu(input, memory_format=preserve_format):
    """`input` in main memory."""
    if input.is_cpu and memory_format is preserve_format:
        return input
    return to(input, devices.cpu, memory_format=memory_format)


@composite(public=False)
def cuda(input, device=None, non_blocking=False, memory_format=preserve_format):
    """`input` on a GPU."""
    return to(input, "cuda" if device is None else devices.device(device), non_blocking=non_blocking, memory_format=memory_format)


@composite(public=False)
def type_as(input, other):
    """`input` in the dtype and on the device of `other`."""
    return to(input, other)
