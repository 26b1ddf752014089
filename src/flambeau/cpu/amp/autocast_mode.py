"""`torch.cpu.amp.autocast`: the old spelling of `torch.amp.autocast("cpu")`."""

from __future__ import annotations

import warnings

from flambeau import dtypes
from flambeau.amp import autocast_mode

__all__ = ["autocast"]


class autocast(autocast_mode.autocast):
    """A region of mixed precision on the CPU: see `torch.amp.autocast`."""

    def __init__(self, enabled: bool = True, dtype: dtypes.dtype = dtypes.bfloat16, cache_enabled: bool = True):
        words = "`torch.cpu.amp.autocast(args...)` is deprecated. Please use `torch.amp.autocast('cpu', args...)` instead."
        warnings.warn(words, FutureWarning, stacklevel=2)
        super().__init__("cpu", dtype, enabled, cache_enabled)
