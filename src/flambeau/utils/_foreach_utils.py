"""torch.utils._foreach_utils: tensors sorted by place and dtype, as optimizers that treat many at once want them."""

from __future__ import annotations

from typing import Any

from flambeau.devices import device as Device
from flambeau.tensor import Tensor


def _group_tensors_by_device_and_dtype(tensorlistlist: list[list], with_indices: bool = False) -> dict[tuple, tuple[list[list], list[int]]]:
    """(device, dtype) of the first list's tensors -> the rows of every list that belong to it, and their positions if wanted.

    The lists stand beside each other, parameters and gradients and states; an empty one stays empty.
    """
    first = tensorlistlist[0]
    groups: dict[tuple, list[int]] = {}
    for position, leader in enumerate(first):
        groups.setdefault((leader.device, leader.dtype), []).append(position)
    return {
        key: ([[row[i] for i in rows] if row else [] for row in tensorlistlist], list(rows) if with_indices else [])
        for key, rows in groups.items()
    }


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Where `foreach=True` is worth asking for."""
    return ["cuda", "xpu", "mtia", "privateuseone"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Where `fused=True` may be asked for."""
    return ["mps", "cuda", "xpu", "hpu", "cpu", "mtia", "privateuseone"]


def _device_has_foreach_support(device: Any) -> bool:
    """Whether `torch._foreach_...` runs there."""
    return Device(device).type in ("cpu", *_get_foreach_kernels_supported_devices())


def _has_foreach_support(tensors: list, device: Any) -> bool:
    """Whether these can be given to `torch._foreach_...`: plain tensors or none."""
    return _device_has_foreach_support(device) and all(t is None or isinstance(t, Tensor) for t in tensors)
