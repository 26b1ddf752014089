"""Quantized tensors: integers of 8 or 32 bits that stand for floats, x = (q - zero_point) * scale.

They are made by `quantize_per_tensor`, `quantize_per_channel` and `quantize_per_tensor_dynamic`, and read by `dequantize`. What only moves
elements (views, copies, indexing) works on the integers; comparisons and printing on what they stand for. Arithmetic is for the layers of
`flambeau.ao.nn.quantized`, which multiply the integers; every other operation refuses, and says to dequantize first. A quantized tensor is a
subclass of Tensor, so that operations on dense tensors need not know of it.

    torch.quantize_per_tensor(torch.tensor([-1.0, 0.0, 2.5]), 0.1, 10, torch.quint8).int_repr()          tensor([ 0, 10, 35], dtype=torch.uint8)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from flambeau import determinism, dtypes
from flambeau.eager.overrides import overridable
from flambeau.interpreters.by_name import DisableTorchFunctionSubclass
from flambeau.kernels import arrays
from flambeau.kernels.templates import quantized
from flambeau.tensor import printing
from flambeau.tensor.making.factories import as_tensor
from flambeau.tensor.memory.typed_storage import typed_storage
from flambeau.tensor.memory.untyped_storage import resize_
from flambeau.tensor.quantized.qschemes import per_channel_affine, per_channel_affine_float_qparams, per_tensor_affine, qscheme
from flambeau.tensor.tensor import Tensor, wrap


class Quantizer(NamedTuple):
    """What the integers mean. Per channel, scale and zero_point are tensors (C,), float64 and int64, or both float32."""

    dtype: dtypes.quantized
    scheme: qscheme
    scale: Any
    zero_point: Any
    axis: int | None = None

    def along(self, ndim: int) -> tuple[np.ndarray, np.ndarray]:
        """Scale (float32) and zero point as arrays that broadcast with elements of so many dimensions."""
        scale, zero = (x._array if isinstance(x, Tensor) else np.asarray(x) for x in (self.scale, self.zero_point))
        shape = () if self.axis is None else tuple(-1 if d == self.axis else 1 for d in range(ndim))
        return scale.astype(np.float32).reshape(shape), zero.reshape(shape)


class QuantizedTensor(Tensor):
    """Integers in memory, floats in meaning."""

    _quantizer: Quantizer
    is_quantized = True

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = _name_of(func)
        kwargs = kwargs or {}
        if name in QUESTIONS:
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if name in HANDLED:
            return HANDLED[name](*args, **kwargs)
        if name in OWN:  # torch.int_repr(x) is x.int_repr()
            return getattr(args[0], name)(*args[1:], **kwargs)
        if name in MOVES:
            return _moved(name, func, args, kwargs)
        if name in COMPARISONS:
            return func(*[x.dequantize() if isinstance(x, QuantizedTensor) else x for x in args], **kwargs)
        raise NotImplementedError(
            f"Could not run '{name}' on a quantized tensor ({_first(args, kwargs).dtype}): it can be viewed, copied, indexed, compared and "
            "saved. Try x.dequantize() first, and quantize the result"
        )

    @property
    def dtype(self) -> dtypes.dtype:  # type: ignore[override]
        """torch.qint8, quint8 or qint32."""
        return self._quantizer.dtype

    def qscheme(self) -> qscheme:
        """torch.per_tensor_affine, or one of the schemes by channel."""
        return self._quantizer.scheme

    def q_scale(self) -> float:
        """The one scale of all elements."""
        return self._of_tensor("q_scale").scale

    def q_zero_point(self) -> int:
        """The integer that stands for 0."""
        return self._of_tensor("q_zero_point").zero_point

    def q_per_channel_scales(self) -> Tensor:
        """The scale of each channel (C,)."""
        return self._of_channels("q_per_channel_scales").scale

    def q_per_channel_zero_points(self) -> Tensor:
        """The zero point of each channel (C,)."""
        return self._of_channels("q_per_channel_zero_points").zero_point

    def q_per_channel_axis(self) -> int:
        """The dimension whose indices are channels."""
        return self._of_channels("q_per_channel_axis").axis  # type: ignore[return-value]

    def _of_tensor(self, name: str) -> Quantizer:
        if self._quantizer.axis is not None:
            raise RuntimeError(f"{name} is for {per_tensor_affine}, but this tensor has {self.qscheme()}: try q_per_channel_scales()")
        return self._quantizer

    def _of_channels(self, name: str) -> Quantizer:
        if self._quantizer.axis is None:
            raise RuntimeError(f"{name} is for {per_channel_affine}, but this tensor has {self.qscheme()}: try q_scale()")
        return self._quantizer

    def int_repr(self) -> Tensor:
        """A copy of the integers."""
        return wrap(self._array.copy())

    def dequantize(self) -> Tensor:
        """(q - zero_point) * scale, as float32."""
        scale, zero = self._quantizer.along(self._array.ndim)
        return wrap(np.asarray((self._array.astype(np.float32) - zero.astype(np.float32)) * scale))

    def item(self) -> float:
        """The one element, as a float."""
        return self.dequantize().item()

    __float__ = item

    def __bool__(self) -> bool:
        return bool(self.item())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        q = self._quantizer
        body = tensor_contents or printing.format_array(self.dequantize()._array, "float", indent=7)
        said = {"size": tuple(self._array.shape), "dtype": q.dtype, "quantization_scheme": q.scheme, "scale": q.scale}
        said |= {"zero_point": q.zero_point} | ({} if q.axis is None else {"axis": q.axis})
        return printing._append_suffixes("tensor(" + body, [f"{name}={value}" for name, value in said.items()], indent=7)

    def __format__(self, spec: str) -> str:
        return format(self.dequantize(), spec) if spec else repr(self)

    def __reduce_ex__(self, protocol):
        q = self._quantizer
        meaning = (q.scheme, q.scale, q.zero_point) if q.axis is None else (q.scheme, q.scale, q.zero_point, q.axis)
        window = typed_storage(self), self.storage_offset(), tuple(self.shape), tuple(self.stride())
        from flambeau.tensor.making.pickling import _rebuild_qtensor

        return _rebuild_qtensor, (*window, meaning, False, OrderedDict())

    def __deepcopy__(self, memo: dict) -> QuantizedTensor:
        if id(self) not in memo:
            memo[id(self)] = of_integers(wrap(self._array.copy()), self._quantizer)
        return memo[id(self)]


def of_integers(integers: Tensor, quantizer: Quantizer) -> QuantizedTensor:
    """The quantized tensor over the memory of a tensor of integers."""
    made: Any = wrap(integers._array)
    made._storage = integers._shared_storage()
    made.__class__ = QuantizedTensor
    made._quantizer = quantizer
    return made


# -- making them -------------------------------------------------------------------------------------------------------


@overridable
def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: dtypes.dtype) -> Any:
    """round(x / scale + zero_point) within the bounds of dtype. With a list of tensors, scales and zero points are tensors of as many."""
    if isinstance(input, Sequence):
        return tuple(quantize_per_tensor(x, s, z, dtype) for x, s, z in zip(input, scale, zero_point, strict=True))
    bounds = _checked("quantize_per_tensor", input, dtype)
    scale, zero_point = float(scale), int(zero_point)
    if not bounds.min <= zero_point <= bounds.max:
        where = "above upper" if zero_point > bounds.max else "below lower"
        raise RuntimeError(f"quantize_tensor_per_tensor_affine zero_point {zero_point} is {where} bound: {dtype} holds {_span(bounds)}")
    return _quantized(input, Quantizer(dtype, per_tensor_affine, scale, zero_point), bounds)  # type: ignore[arg-type]


@overridable
def quantize_per_channel(input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: dtypes.dtype) -> QuantizedTensor:
    """round(x / scale + zero_point) with a scale and a zero point for each index of one dimension."""
    bounds = _checked("quantize_per_channel", input, dtype)
    if not 0 <= axis < input.dim():
        raise RuntimeError(f"Channel axis out of range: there are {input.dim()} dimensions, found {axis}")
    if scales.numel() != zero_points.numel():
        raise RuntimeError(f"scales and zero_points must match in length, found {scales.numel()} and {zero_points.numel()}")
    if scales.numel() != input.shape[axis]:
        raise RuntimeError(f"scales needs one for each of {input.shape[axis]} channels, found {scales.numel()}")
    scheme, kinds = per_channel_affine, (dtypes.float64, dtypes.int64)
    if zero_points.is_floating_point():
        scheme, kinds = per_channel_affine_float_qparams, (dtypes.float32, dtypes.float32)
    scale, zero = (as_tensor(x).detach().to(kind) for x, kind in zip((scales, zero_points), kinds, strict=True))
    return _quantized(input, Quantizer(dtype, scheme, scale, zero, axis), bounds)  # type: ignore[arg-type]


@overridable
def quantize_per_tensor_dynamic(input: Tensor, dtype: dtypes.dtype, reduce_range: bool) -> Tensor:
    """`quantize_per_tensor` with the scale and zero point that fit the range of the elements; of 7 bits, if reduce_range."""
    if dtype is dtypes.float16:
        return input.to(dtype)
    bounds = _checked("quantize_per_tensor_dynamic", input, dtype)
    if dtype is dtypes.qint32:
        raise RuntimeError(f"dtype {dtype} not supported: choose torch.qint8 or torch.quint8")
    if not input.numel():
        raise RuntimeError("min(): an input without elements has no range to choose a scale for")
    by = 2 if reduce_range else 1
    scale, zero = quantized.choose(arrays.plain(input._array), bounds.max // by, bounds.min // by)
    if scale == np.inf:
        raise RuntimeError("cannot quantize: the input has an infinity, and no scale is large enough. Look for it with x.isinf()")
    return quantize_per_tensor(input, scale, zero, dtype)


def _checked(name: str, input: Tensor, dtype: Any) -> Any:
    """The bounds of the integers."""
    if not isinstance(dtype, dtypes.quantized):
        raise RuntimeError(f"{name}: {dtype} is not supported in new_qtensor: expected torch.qint8, torch.quint8 or torch.qint32")
    if input.dtype is not dtypes.float32:
        raise RuntimeError(f"Quantize only works on Float Tensor, got {input.dtype}. Try x.float()")
    return np.iinfo(dtype.integers)


def _span(bounds: Any) -> str:
    return f"{bounds.min} to {bounds.max}"


def _quantized(input: Tensor, quantizer: Quantizer, bounds: Any) -> QuantizedTensor:
    scale, zero = quantizer.along(input.dim())
    x = arrays.plain(input._array)
    with np.errstate(all="ignore"):
        inverse = np.float32(1) / scale
        x = np.where(np.isnan(x), np.inf, x)  # the greatest integer, as in PyTorch
        found = quantized.integers(x, inverse, zero, bounds.min, bounds.max)
        found = np.clip(found.astype(np.float64), bounds.min, bounds.max)  # 2^31 - 1 is no float32
    return of_integers(wrap(np.asarray(found).astype(quantizer.dtype.integers)), quantizer)


# -- what can be done with them ----------------------------------------------------------------------------------------

MOVES = frozenset(
    """as_strided chunk clone contiguous cpu detach expand expand_as flatten flip getitem index_select movedim narrow permute reshape reshape_as
    select split squeeze swapaxes t transpose unbind unflatten unsqueeze view view_as""".split()
)
OWN = frozenset("dequantize int_repr q_scale q_zero_point q_per_channel_scales q_per_channel_zero_points q_per_channel_axis".split())
COPIES = frozenset(("clone", "contiguous", "cpu", "detach"))  # of these a tensor with scales by channel is capable, too
COMPARISONS = frozenset("eq ne lt le gt ge isclose allclose".split())
QUESTIONS = frozenset(
    """_is_view _typed_storage _version const_data_ptr data_ptr device dim dim_order dlpack_device element_size get_device grad grad_fn is_complex is_conj
    is_contiguous is_cpu is_cuda is_distributed is_floating_point is_inference is_leaf is_meta is_neg is_same_size is_shared itemsize layout
    len name names nbytes ndim ndimension nelement numel output_nr requires_grad retains_grad shape size storage storage_offset stride
    untyped_storage""".split()
)


def _name_of(func: Any) -> str:
    """add for torch.add, Tensor.add and the operator; shape for the reading of that attribute."""
    owner = getattr(func, "__self__", None)
    if isinstance(owner, property):
        return owner.fget.__name__ if func.__name__ == "__get__" and owner.fget else func.__name__
    return func.__name__.removeprefix("__").removesuffix("__")


def _first(args: tuple, kwargs: dict) -> QuantizedTensor:
    given = [y for x in (*args, *kwargs.values()) for y in (x if isinstance(x, (list, tuple)) else (x,))]
    return next(x for x in given if isinstance(x, QuantizedTensor))


def _integers(x: Any) -> Any:
    """A plain tensor over the same memory."""
    if not isinstance(x, QuantizedTensor):
        return x
    plain = wrap(x._array)
    plain._storage = x._shared_storage()
    return plain


def _moved(name: str, func: Callable, args: tuple, kwargs: dict) -> Any:
    """The result of what only moves elements, with the meaning they have."""
    q = _first(args, kwargs)._quantizer
    if q.axis is not None and name not in COPIES:
        raise RuntimeError(f"{name}: only a tensor with one scale for all elements can be viewed or indexed, this one has {q.scheme}")
    found = func(*map(_integers, args), **{n: _integers(x) for n, x in kwargs.items()})
    return tuple(of_integers(x, q) for x in found) if isinstance(found, (tuple, list)) else of_integers(found, q)


def _equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape, integers and meaning."""
    if not isinstance(input, QuantizedTensor) or not isinstance(other, QuantizedTensor):
        return False
    a, b = input._quantizer, other._quantizer
    if a[:2] != b[:2] or a.axis != b.axis or input._array.shape != other._array.shape:
        return False
    meanings = zip(a.along(input.dim()), b.along(other.dim()), strict=True)
    return all(np.array_equal(x, y) for x, y in meanings) and bool((input._array == other._array).all())


def _copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    if not isinstance(self, QuantizedTensor):
        raise RuntimeError("a quantized tensor is not copied into one that is not: try src.dequantize()")
    if isinstance(src, QuantizedTensor):
        if src.dtype is not self.dtype or src.qscheme() is not self.qscheme():
            raise RuntimeError(f"copy_: quantized tensors must have one dtype and scheme, found {src.dtype} and {self.dtype}")
        if self._array.size * self._array.itemsize == self._shared_storage().nbytes():
            self._array[...] = src._array
            self._quantizer = src._quantizer  # the meaning comes along, as in PyTorch
        else:  # a part of another tensor, whose meaning stays
            src = src.dequantize()
    if not isinstance(src, QuantizedTensor):
        self._array[...] = _quantized(src, self._quantizer, _checked("copy_", src, self.dtype))._array
    self._bump()
    return self


def _setitem(self: QuantizedTensor, index: Any, value: Any) -> None:
    part = self[index]
    if part._shared_storage() is not self._shared_storage():
        raise NotImplementedError("a quantized tensor is written to through slices and numbers, not through masks or lists of indices")
    part.copy_(value if isinstance(value, Tensor) else as_tensor(value, dtype=dtypes.float32))


def _to(self: QuantizedTensor, *args: Any, **kwargs: Any) -> QuantizedTensor:
    wanted = [x for x in (*args, *kwargs.values()) if isinstance(x, dtypes.dtype)]
    if wanted and wanted[0] is not self.dtype:
        raise RuntimeError(f"to: a quantized tensor ({self.dtype}) cannot become {wanted[0]} this way. Try x.dequantize()")
    if any(str(x).startswith("cuda") for x in (*args, kwargs.get("device"))):
        raise NotImplementedError("to: quantized tensors live on the CPU. Try x.dequantize().to(device)")
    return self


def _type(self: QuantizedTensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    names = {dtypes.qint8: "QInt8", dtypes.quint8: "QUInt8", dtypes.qint32: "QInt32"}
    return f"torch.quantized.{names[self.dtype]}Tensor" if dtype is None else _to(self, dtype)  # type: ignore[index]


def _refuse_gradient(self: Tensor, requires_grad: bool = True) -> Tensor:
    if requires_grad:
        raise RuntimeError("only Tensors of floating point dtype can require gradients, and this one is quantized")
    return self


def _refuse_numpy(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    raise TypeError(f"a quantized tensor ({self.dtype}) is no NumPy array. Try x.dequantize().numpy() or x.int_repr().numpy()")


def _refuse_dlpack(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    raise BufferError(f"QUInt/QInt types are not supported by dlpack, found {self.dtype}. Try x.int_repr()")


def _resize_(self: QuantizedTensor, *sizes: Any, **options: Any) -> QuantizedTensor:
    """Another shape; memory is added where it is short, and stays without values."""
    determinism.alert("quantized_resize_cpu_")
    if self._quantizer.scheme is not per_tensor_affine:
        raise NotImplementedError("resize_: Can only resize tensors quantized as a whole: scales of channels belong to a shape")
    integers = wrap(self._array)
    integers._storage = self._shared_storage()
    resize_(integers, *sizes, **options)
    self._array = integers._array
    return self


HANDLED: dict[str, Callable] = {
    "resize_": _resize_,
    "copy_": _copy_, "setitem": _setitem, "equal": _equal, "to": _to, "type": _type, "requires_grad_": _refuse_gradient, "numpy": _refuse_numpy,
    "dlpack": _refuse_dlpack, "array": _refuse_numpy, "iter": lambda self: iter(self.unbind(0)), "is_signed": lambda self: self.dtype.is_signed,
    "data": lambda self: of_integers(wrap(self._array), self._quantizer), "T": lambda self: self.permute(*range(self.dim())[::-1]),
    "mT": lambda self: self.transpose(-1, -2),
    "float": lambda self: _to(self, dtypes.float32), "half": lambda self: _to(self, dtypes.float16),
}  # fmt: skip


# -- methods as functions ----------------------------------------------------------------------------------------------


@overridable
def dequantize(input: Any) -> Any:
    """The floats a tensor stands for; of several tensors, a tuple of them."""
    return tuple(x.dequantize() for x in input) if isinstance(input, (list, tuple)) else input.dequantize()


def _function(name: str) -> Callable:
    def ask(input: Tensor) -> Any:
        return getattr(input, name)()

    ask.__name__ = ask.__qualname__ = name
    ask.__doc__ = getattr(QuantizedTensor, name).__doc__
    return overridable(ask)


int_repr, q_scale, q_zero_point = map(_function, ("int_repr", "q_scale", "q_zero_point"))
q_per_channel_scales, q_per_channel_zero_points = map(_function, ("q_per_channel_scales", "q_per_channel_zero_points"))
q_per_channel_axis = _function("q_per_channel_axis")
