"""cuDNN's switches. Results do not depend on them: convolution on a GPU does not go through cuDNN, and runs the same way every time.

>>> import flambeau.backends.cudnn as cudnn
>>> with cudnn.flags(enabled=True, deterministic=True):
...     cudnn.deterministic
True
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from flambeau.backends import for_a_while
from flambeau.tensor import Tensor

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
allow_tf32 = True
fp32_precision = "none"
depthwise_kernel = "auto"
conv = SimpleNamespace(fp32_precision="none")
rnn = SimpleNamespace(fp32_precision="none")

_NAMES = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision", "depthwise_kernel")


def is_available() -> bool:
    """False: convolution on a GPU does not need it."""
    return False


def version() -> int | None:
    """None: it is not there."""
    return None


def is_acceptable(tensor: Tensor) -> bool:
    """Whether it would compute with this tensor: no."""
    return False


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
    before = tuple(globals()[name] for name in _NAMES)
    given = (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32, _fp32_precision, _depthwise_kernel)
    globals().update({name: value for name, value in zip(_NAMES, given, strict=True) if value is not None})
    return before


def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int | None = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
    depthwise_kernel: str = "auto",
) -> AbstractContextManager[Any]:
    """The switches within a `with`."""
    given = (enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision, depthwise_kernel)
    return for_a_while(globals(), dict(zip(_NAMES, given, strict=True)))
