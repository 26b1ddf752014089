"""`torch.cuda.amp.autocast` and its kin: the old spelling of `torch.amp.autocast("cuda")`."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from flambeau import dtypes
from flambeau.amp import autocast_mode

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(autocast_mode.autocast):
    """A region of mixed precision on GPUs: see `torch.amp.autocast`."""

    def __init__(self, enabled: bool = True, dtype: dtypes.dtype = dtypes.float16, cache_enabled: bool = True):
        words = "`torch.cuda.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cuda', args...)` instead."
        warnings.warn(words, FutureWarning, stacklevel=2)
        super().__init__("cuda", dtype, enabled, cache_enabled)


def custom_fwd(fwd: Callable | None = None, *, cast_inputs: dtypes.dtype | None = None) -> Callable:
    """torch.amp.custom_fwd for device_type "cuda"."""
    _deprecated("custom_fwd")
    return autocast_mode.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable) -> Callable:
    """torch.amp.custom_bwd for device_type "cuda"."""
    _deprecated("custom_bwd")
    return autocast_mode.custom_bwd(bwd, device_type="cuda")


def _deprecated(name: str) -> None:
    words = f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}(args..., device_type='cuda')` instead."
    warnings.warn(words, FutureWarning, stacklevel=3)
