"""Which observers a layer gets: one for what passes through it, one for its weight."""

from __future__ import annotations

from collections import namedtuple
from functools import partial
from typing import Any

from flambeau import dtypes
from flambeau.ao.quantization.observer import (
    HistogramObserver,
    PlaceholderObserver,
    _With,
    default_dynamic_quant_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
)
from flambeau.nn.modules.module import Module


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """Classes of observers, or functions that make them; not observers themselves, for each layer has its own."""

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        if isinstance(activation, Module) or isinstance(weight, Module):
            found = "QConfig takes classes of observers, which it makes anew for every layer, found an instance"
            raise ValueError(f"{found}: MinMaxObserver, or MinMaxObserver.with_args(dtype=torch.qint8)")
        return super().__new__(cls, activation, weight)


default_dynamic_qconfig = QConfig(activation=default_dynamic_quant_observer, weight=default_weight_observer)
per_channel_dynamic_qconfig = QConfig(activation=default_dynamic_quant_observer, weight=default_per_channel_weight_observer)
float16_dynamic_qconfig = QConfig(
    activation=PlaceholderObserver.with_args(dtype=dtypes.float16, is_dynamic=True),
    weight=PlaceholderObserver.with_args(dtype=dtypes.float16),
)


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """What a layer gets whose inputs are quantized, too. Its weight can be observed here, what passes through it cannot (HistogramObserver)."""
    if backend not in ("fbgemm", "x86", "qnnpack", "onednn"):
        raise AssertionError(f"backend: {backend} not supported, backend must be one of fbgemm, x86, qnnpack and onednn")
    if version != 0:
        raise AssertionError(f"Version number: {version} in get_default_qconfig is not supported: there is 0")
    activation = _With(partial(HistogramObserver, reduce_range=backend in ("fbgemm", "x86")))
    return QConfig(activation, default_weight_observer if backend == "qnnpack" else default_per_channel_weight_observer)
