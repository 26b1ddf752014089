"""Instance normalisation: every channel of every sample to mean 0 and variance 1 (Ulyanov et al. 2016)."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau.nn import functional as F
from flambeau.nn.modules.batchnorm import _check_dims, _LazyNormBase, _NormBase
from flambeau.tensor import Tensor

__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
]  # fmt: skip


class _InstanceNorm(_NormBase):
    """What the instance norms of all dimensions compute; an input without batch dimension is a batch of one."""

    _places = 1  # dimensions after the channels

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _get_no_batch_dim(self) -> int:
        return self._places + 1

    def _check_input_dim(self, input: Tensor) -> None:
        _check_dims(input, self._places + 1, self._places + 2)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        channels = input.shape[input.dim() - self._places - 1]
        if channels != self.num_features:
            found = (
                f"expected input's size at dim={input.dim() - self._places - 1} to be num_features ({self.num_features}), found {channels}."
            )
            if self.affine:
                raise ValueError(found)
            warnings.warn(f"num_features is not the number of channels, which is not used because affine=False: {found}", stacklevel=2)
        if input.dim() == self._places + 1:
            return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)
        return self._apply_instance_norm(input)

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        by_input = self.training or not self.track_running_stats
        momentum = 0.0 if self.momentum is None else self.momentum
        return F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias, by_input, momentum, self.eps)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        if local_metadata.get("version", None) is None and not self.track_running_stats:
            # Running averages used to be kept by default; what they meant is not known any more.
            found = [name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            if found:
                why = "it does not track running stats (any more: they used to be the default)"
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {found} for {type(self).__name__}, which has track_running_stats=False: {why}"
                )
                for name in found:
                    state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of sequences. (N, C, L) or (C, L) -> the same."""


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of images. (N, C, H, W) or (C, H, W) -> the same."""

    _places = 2


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of volumes. (N, C, D, H, W) or (C, D, H, W) -> the same."""

    _places = 3


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm1d that takes num_features from its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm2d that takes num_features from its first input."""

    cls_to_become = InstanceNorm2d
    _places = 2


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An InstanceNorm3d that takes num_features from its first input."""

    cls_to_become = InstanceNorm3d
    _places = 3
