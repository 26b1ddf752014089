"""torch.utils._foreach_utils: lists of tensors by device and dtype, where optimizers and clipping copied from PyTorch look for it."""

from flambeau.optim.own_rules import (  # noqa: F401
    _device_has_foreach_support,
    _foreach_supported_types,
    _get_foreach_kernels_supported_devices,
    _get_fused_kernels_supported_devices,
    _group_tensors_by_device_and_dtype,
    _has_foreach_support,
)
