"""Observers: they look at tensors, remember the range, and say which scale and zero point fit it.

symmetric   scale = 2 max(-min, max) / (greatest integer - least), zero point 0 (128 for quint8)
affine      scale = (max - min) / (greatest integer - least), zero point = least integer - round(min / scale), 0 being in the range
"""

from __future__ import annotations

from functools import partial
from typing import Any

from flambeau import dtypes, import_only
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import tensor
from flambeau.tensor.quantized.qschemes import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
)
from flambeau.tensor.quantized.quantized_tensor import Quantizer, of_integers, quantize_per_channel, quantize_per_tensor

EPS = dtypes.finfo(dtypes.float32).eps
BOUNDS: dict[dtypes.dtype, tuple[int, int]] = {dtypes.qint8: (-128, 127), dtypes.quint8: (0, 255), dtypes.qint32: (-(2**31), 2**31 - 1)}
BOUNDS |= {dtypes.int8: (-128, 127), dtypes.uint8: (0, 255), dtypes.int16: (-(2**15), 2**15 - 1), dtypes.int32: (-(2**31), 2**31 - 1)}


class _With:
    """A class of observers and arguments for it: what a QConfig holds."""

    def __init__(self, call: Any):
        self.p = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.p(*args, **kwargs)

    def __repr__(self) -> str:
        return f"{self.p!r}{{}}"

    def with_args(self, **kwargs: Any) -> _With:
        """The same with more arguments."""
        return _With(partial(self.p, **kwargs))

    def __eq__(self, other: object) -> bool:
        same = ("func", "args", "keywords")
        return isinstance(other, _With) and all(getattr(self.p, n, None) == getattr(other.p, n, None) for n in same)

    __hash__ = object.__hash__


class ObserverBase(Module):
    """A module that looks at what passes through it."""

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    @classmethod
    def with_args(cls, **kwargs: Any) -> _With:
        """This class with some arguments given: MinMaxObserver.with_args(dtype=torch.qint8)."""
        return _With(partial(cls, **kwargs))


class PlaceholderObserver(ObserverBase):
    """Looks at nothing: it only says which dtype is wanted."""

    def __init__(
        self, dtype: Any = dtypes.float32, custom_op_name: str = "", compute_dtype: Any = None, quant_min: int | None = None,
        quant_max: int | None = None, qscheme: Any = None, eps: float | None = None, is_dynamic: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        self.qscheme, self.quant_min, self.quant_max = qscheme or per_tensor_affine, quant_min, quant_max
        self.eps, self.custom_op = EPS if eps is None else eps, custom_op_name

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"

    def calculate_qparams(self) -> Any:
        """It has seen nothing."""
        raise Exception("calculate_qparams should not be called for PlaceholderObserver: it observes nothing")


class UniformQuantizationObserverBase(ObserverBase):
    """Remembers the least and the greatest value it has seen, `min_val` and `max_val`."""

    _version = 3
    schemes: tuple = ()
    min_val: Tensor
    max_val: Tensor
    eps: Tensor

    def __init__(
        self, dtype: Any = dtypes.quint8, qscheme: Any = per_tensor_affine, reduce_range: bool = False, quant_min: int | None = None,
        quant_max: int | None = None, factory_kwargs: Any = None, eps: float = EPS, is_dynamic: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        if qscheme not in self.schemes:
            raise NotImplementedError(f"{type(self).__name__}'s qscheme is one of {', '.join(map(str, self.schemes))}; found {qscheme}")
        if dtype not in BOUNDS:
            raise AssertionError(f"an observer works for {', '.join(map(str, BOUNDS))}; found {dtype}")
        self.qscheme, self.reduce_range = qscheme, reduce_range
        self.register_buffer("eps", tensor([eps]))
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        low, high = BOUNDS[dtype]
        if self.has_customized_qrange:
            if not quant_min <= 0 <= quant_max or quant_min >= quant_max:  # type: ignore[operator]
                raise AssertionError(f"the range of integers must include 0 and more, found {quant_min} to {quant_max}")
            low, high = quant_min, quant_max  # type: ignore[assignment]
        elif reduce_range:
            low, high = -(-low // 2), high // 2
        self.quant_min, self.quant_max = low, high

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scales, zero points), of one element each, or of one for each channel."""
        low, high = self.min_val, self.max_val
        if not low.numel() or (low.dim() == 0 and low.item() == float("inf") and high.item() == float("-inf")):
            return tensor([1.0]), tensor([0])
        if not bool((low <= high).all()):
            raise AssertionError(f"min is {low} and max {high}, in the wrong order: is there a NaN?")
        span = float(self.quant_max - self.quant_min)
        if self.qscheme is per_channel_affine_float_qparams:
            scale = (high - low) / span
            scale = scale.where(scale > self.eps, scale.new_ones(()))
            return scale.reshape(-1), (-low / scale).reshape(-1)
        low, high = low.clamp(max=0), high.clamp(min=0)
        if self.qscheme in (per_tensor_symmetric, per_channel_symmetric):
            scale = (-low).maximum(high) / (span / 2)
            middle = (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128
            zero = low.new_full(low.shape, middle if self.dtype in (dtypes.quint8, dtypes.uint8) else 0, dtype=dtypes.int64)
            return scale.maximum(self.eps).reshape(-1), zero.reshape(-1)
        scale = ((high - low) / span).maximum(self.eps)
        zero = (self.quant_min - (low / scale).round().to(dtypes.int32)).clamp(self.quant_min, self.quant_max)
        return scale.reshape(-1), zero.reshape(-1)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class MinMaxObserver(UniformQuantizationObserverBase):
    """One range for all elements."""

    schemes = (per_tensor_affine, per_tensor_symmetric)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("min_val", tensor(float("inf")))
        self.register_buffer("max_val", tensor(float("-inf")))

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            x = x_orig.detach().to(dtypes.float32)
            self.min_val.copy_(x.min().minimum(self.min_val))
            self.max_val.copy_(x.max().maximum(self.max_val))
        return x_orig

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))

    def extra_repr(self) -> str:
        return f"min_val={self.min_val.item()}, max_val={self.max_val.item()}"


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """A range for each index of one dimension."""

    schemes = (per_channel_affine, per_channel_symmetric, per_channel_affine_float_qparams)

    def __init__(self, ch_axis: int = 0, dtype: Any = dtypes.quint8, qscheme: Any = per_channel_affine, *args: Any, **kwargs: Any) -> None:
        super().__init__(dtype, qscheme, *args, **kwargs)
        self.ch_axis = ch_axis
        self.register_buffer("min_val", tensor([]))
        self.register_buffer("max_val", tensor([]))

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            x = x_orig.detach().to(dtypes.float32).transpose(0, self.ch_axis).flatten(1)
            low, high = x.amin(1), x.amax(1)
            seen = self.min_val.numel()
            self.min_val = low.minimum(self.min_val) if seen else low
            self.max_val = high.maximum(self.max_val) if seen else high
        return x_orig

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = tensor([]), tensor([])


STATIC = "it belongs to static quantization or to training for it, which are not available: try quantize_dynamic"
(
    HistogramObserver, MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver, NoopObserver, RecordingObserver,
) = import_only.classes(
    "torch.ao.quantization.observer",
    "HistogramObserver MovingAverageMinMaxObserver MovingAveragePerChannelMinMaxObserver NoopObserver RecordingObserver",
    STATIC,
)  # fmt: skip


# -- weights -----------------------------------------------------------------------------------------------------------

default_dynamic_quant_observer = PlaceholderObserver.with_args(dtype=dtypes.quint8, quant_min=0, quant_max=255, is_dynamic=True)
default_placeholder_observer = PlaceholderObserver
default_weight_observer = MinMaxObserver.with_args(dtype=dtypes.qint8, qscheme=per_tensor_symmetric)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(dtype=dtypes.qint8, qscheme=per_channel_symmetric)


def weight_observer(qconfig: Any) -> Any:
    """A fresh observer for a weight, as a qconfig wants it."""
    wanted = None if qconfig is None else qconfig.weight
    return default_weight_observer() if wanted is None else wanted()


def quantize_weight(weight: Tensor, observer: Any) -> Tensor:
    """A weight as the observer says: quantized to qint8, or float32 where float16 will be made of it."""
    weight = weight.detach().to(dtypes.float32)
    if observer.dtype is not dtypes.qint8:
        return weight
    observer(weight)
    scale, zero = observer.calculate_qparams()
    by_channel = observer.qscheme in PerChannelMinMaxObserver.schemes
    if by_channel:
        made = quantize_per_channel(weight, scale, zero, observer.ch_axis, dtypes.qint8)
    else:
        made = quantize_per_tensor(weight, float(scale), int(zero), dtypes.qint8)
    low, high = observer.quant_min, observer.quant_max
    if (low, high) == BOUNDS[dtypes.qint8]:
        return made
    meaning: Quantizer = made._quantizer
    return of_integers(made.int_repr().clamp(low, high), meaning)
