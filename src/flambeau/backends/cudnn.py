"""cuDNN: whether it is there, and how convolution and attention on a GPU use it. Without it, or with `enabled = False`, our own kernels do its work.

    enabled         whether it is used at all
    benchmark       try several ways to convolve when shapes are new (`benchmark_limit` of them; 0: all), and keep to the quickest
    deterministic   take only ways that give the same bits in every run, as `torch.use_deterministic_algorithms` asks for, too
    allow_tf32      whether convolutions of float32 may shorten their factors to 10 bits behind the point; by default they may, as in PyTorch

>>> import flambeau.backends.cudnn as cudnn
>>> with cudnn.flags(enabled=True, deterministic=True):
...     cudnn.deterministic
True
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from flambeau import changes
from flambeau import cuda as _cuda
from flambeau.kernels import arrays, libraries
from flambeau.tensor import Tensor

_NAMES = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision", "depthwise_kernel")


class _Precision:
    """How exact convolutions of float32 are: "tf32" or "ieee"; "none" where `allow_tf32` says that they are exact."""

    def __init__(self) -> None:
        self._exact = "none"

    @property
    def fp32_precision(self) -> str:
        """The same as `allow_tf32`, as a word."""
        return "tf32" if libraries.convolutions_in_tf32 else self._exact

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        if precision not in ("none", "ieee", "tf32"):
            raise RuntimeError(f"Invalid precision {precision!r} for cuDNN: there are 'none', 'ieee' and 'tf32'")
        self._exact = "none" if precision == "tf32" else precision
        libraries.convolutions_in_tf32 = precision == "tf32"


def _switch(name: str) -> property:
    """A switch that the functions which call the library read; plans may have been made for how it stood."""

    def switch(module: ModuleType, value: Any) -> None:
        setattr(libraries, name, value)
        changes.announce()

    return property(lambda module: getattr(libraries, name), switch)


class _Module(ModuleType):
    """This module, with its switches."""

    enabled, benchmark, benchmark_limit = _switch("enabled"), _switch("benchmark"), _switch("benchmark_limit")
    deterministic, allow_tf32 = _switch("deterministic"), _switch("convolutions_in_tf32")
    conv, rnn = _Precision(), _Precision()
    depthwise_kernel = "auto"
    _word = "none"

    @property
    def fp32_precision(self) -> str:
        """What was said last of all that cuDNN does."""
        return self._word

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        self._word = precision
        if precision != "none":
            self.conv.fp32_precision = precision


sys.modules[__name__].__class__ = _Module


def _room() -> Any:
    """The door to cuDNN; None without a GPU."""
    return arrays.cuda().cudnn if _cuda.is_available() else None


def is_available() -> bool:
    """Whether it is installed: NVIDIA's packages nvidia-cudnn-frontend and nvidia-cudnn, and a GPU."""
    return version() is not None


def version() -> int | None:
    """The library's, such as 91900 for 9.19.0; None if it is not there."""
    room = _room()
    return None if room is None else room.version()


def is_acceptable(tensor: Tensor) -> bool:
    """Whether it may compute with this tensor."""
    return tensor.is_cuda and libraries.enabled and is_available() and tensor.dtype.name in ("float16", "bfloat16", "float32")


def set_flags(
    _enabled=None,
    _benchmark=None,
    _benchmark_limit=None,
    _deterministic=None,
    _allow_tf32=None,
    _fp32_precision="none",
    _depthwise_kernel=None,
) -> tuple:
    """Set what is not None; the values before."""
    module = sys.modules[__name__]
    before = tuple([getattr(module, name) for name in _NAMES])
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32, _fp32_precision, _depthwise_kernel)
    for name, value in zip(_NAMES, given, strict=True):
        if value is not None:
            setattr(module, name, value)
    return before


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
    depthwise_kernel: str = "auto",
) -> Iterator[None]:
    """The switches within a `with`."""
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision, depthwise_kernel)
    try:
        yield
    finally:
        for name, value in zip(_NAMES, before, strict=True):
            setattr(sys.modules[__name__], name, value)
