"""Fake quantization: numbers are rounded to what integers could say and stay floats, so that a model learns to live with the rounding."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes, import_only
from flambeau.ao.quantization.observer import BOUNDS, STATIC, MovingAverageMinMaxObserver, PerChannelMinMaxObserver, _With
from flambeau.eager.bind import functions
from flambeau.factories import tensor
from flambeau.nn.modules.module import Module
from flambeau.qschemes import per_channel_affine_float_qparams
from flambeau.tensor import Tensor


class FakeQuantizeBase(Module):
    """Two switches: whether to follow the range of what passes, and whether to round it."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", tensor([1], dtype=dtypes.uint8))
        self.register_buffer("observer_enabled", tensor([1], dtype=dtypes.uint8))

    def enable_fake_quant(self, enabled: bool = True) -> None:
        self.fake_quant_enabled[0] = int(enabled)

    def disable_fake_quant(self) -> None:
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        self.observer_enabled[0] = int(enabled)

    def disable_observer(self) -> None:
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Any) -> _With:
        """This class with some arguments given, for a QConfig."""
        return _With(cls).with_args(**kwargs)


class FakeQuantize(FakeQuantizeBase):
    """x -> (clamp(round(x / scale + zero_point), quant_min, quant_max) - zero_point) scale, as the observer says. Any shape -> same shape."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, observer: Any = MovingAverageMinMaxObserver, quant_min: int | None = None, quant_max: int | None = None,
        is_dynamic: bool = False, **observer_kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.activation_post_process = seen = observer(quant_min=quant_min, quant_max=quant_max, is_dynamic=is_dynamic, **observer_kwargs)
        if seen.quant_min < BOUNDS[seen.dtype][0] or seen.quant_max > BOUNDS[seen.dtype][1]:
            raise AssertionError(f"quant_min or quant_max out of bound: {seen.dtype} goes from {BOUNDS[seen.dtype]}")
        self.quant_min, self.quant_max, self.is_dynamic = seen.quant_min, seen.quant_max, seen.is_dynamic
        self.dtype, self.qscheme, self.ch_axis = seen.dtype, seen.qscheme, getattr(seen, "ch_axis", -1)
        self.is_per_channel = self.qscheme in PerChannelMinMaxObserver.schemes
        zero = dtypes.float32 if self.qscheme is per_channel_affine_float_qparams else dtypes.int32
        self.register_buffer("scale", tensor([1.0], dtype=dtypes.float32))
        self.register_buffer("zero_point", tensor([0], dtype=zero))

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scales, zero points) of the range seen so far."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        if self.observer_enabled[0] == 1:
            self.activation_post_process(X.detach())
            for kept, found in zip((self.scale, self.zero_point), self.calculate_qparams(), strict=True):
                kept.resize_(found.shape).copy_(found)
        if self.fake_quant_enabled[0] != 1:
            return X
        axis = (self.ch_axis,) if self.is_per_channel else ()
        round = functions[f"fake_quantize_per_{'channel' if axis else 'tensor'}_affine"]
        return round(X, self.scale, self.zero_point, *axis, self.activation_post_process.quant_min, self.activation_post_process.quant_max)

    def extra_repr(self) -> str:
        names = "fake_quant_enabled observer_enabled quant_min quant_max dtype qscheme ch_axis scale zero_point"
        return ", ".join(f"{name}={getattr(self, name)}" for name in names.split())

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any) -> None:
        for name in ("scale", "zero_point"):  # as many as there were channels in the model that was saved
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *args)


FixedQParamsFakeQuantize, FusedMovingAvgObsFakeQuantize = import_only.classes(
    "torch.ao.quantization.fake_quantize", "FixedQParamsFakeQuantize FusedMovingAvgObsFakeQuantize", STATIC
)
