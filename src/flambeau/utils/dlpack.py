"""torch.utils.dlpack: sharing memory with other libraries; also torch.from_dlpack."""

from __future__ import annotations

from flambeau.tensor.making.interop import DLDeviceType, from_dlpack, to_dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]
