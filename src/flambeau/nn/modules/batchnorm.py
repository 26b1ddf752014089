"""Batch normalisation: every channel to mean 0 and variance 1 over the batch, then a learned scale and shift.

In training the statistics are the batch's, and running averages of them are kept for evaluation (Ioffe and Szegedy 2015).
"""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import UninitializedBuffer, UninitializedParameter
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty, ones, tensor, zeros
from flambeau.tensor.making.parameter import Parameter

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "SyncBatchNorm"]


class _NormBase(Module):
    """The parameters and running averages that batch norm and instance norm have in common.

    weight (num_features,), starts at one; bias at zero. running_mean starts at zero, running_var at one; num_batches_tracked counts the
    calls in training, for the averages of momentum=None.
    """

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]
    num_features: int
    eps: float
    momentum: float | None
    affine: bool
    track_running_stats: bool

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, Parameter(empty(num_features, device=device, dtype=dtype)) if wanted else None)
        for name, make in (("running_mean", zeros), ("running_var", ones)):
            self.register_buffer(name, make(num_features, device=device, dtype=dtype) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", tensor(0, dtype=dtypes.int64, device=device) if track_running_stats else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget all batches."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, and no batch seen."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say which inputs it takes: use one of its subclasses")

    def extra_repr(self) -> str:
        learned = f"affine={self.affine}, bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, {learned}"

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest) -> None:
        version = local_metadata.get("version", None)
        if (version is None or version < 2) and self.track_running_stats:  # checkpoints of before the counter was there
            known = self.num_batches_tracked
            fresh = known if known is not None and not known.is_meta else tensor(0, dtype=dtypes.int64)
            state_dict.setdefault(prefix + "num_batches_tracked", fresh)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class _BatchNorm(_NormBase):
    """What the batch norms of all dimensions compute."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        training, tracks = self.training, self.track_running_stats
        factor = 0.0 if self.momentum is None else self.momentum
        if training and tracks and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the average over all batches so far
                factor = 1.0 / float(self.num_batches_tracked)
        mean, var = self.running_mean, self.running_var
        by_batch = training or (mean is None and var is None)
        if training and not tracks:
            mean = var = None
        return F.batch_norm(input, mean, var, self.weight, self.bias, by_batch, factor, self.eps)


def _check_dims(input: Tensor, *wanted: int) -> None:
    if input.dim() not in wanted:
        raise ValueError(f"expected {' or '.join(f'{n}D' for n in wanted)} input (got {input.dim()}D input)")


class BatchNorm1d(_BatchNorm):
    """Batch norm of features or sequences. (N, C) or (N, C, L) -> the same.

    >>> BatchNorm1d(3)
    BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    def _check_input_dim(self, input: Tensor) -> None:
        _check_dims(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of images. (N, C, H, W) -> the same."""

    def _check_input_dim(self, input: Tensor) -> None:
        _check_dims(input, 4)


class BatchNorm3d(_BatchNorm):
    """Batch norm of volumes. (N, C, D, H, W) -> the same."""

    def _check_input_dim(self, input: Tensor) -> None:
        _check_dims(input, 5)


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """A norm that takes num_features from its first input."""

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = tensor(0, dtype=dtypes.int64, device=device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            for found in (self.weight, self.bias, self.running_mean, self.running_var):
                if found is not None:
                    found.materialize((self.num_features,))
            self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, _BatchNorm):
    """A BatchNorm1d that takes num_features from its first input."""

    cls_to_become = BatchNorm1d
    _check_input_dim = BatchNorm1d._check_input_dim


class LazyBatchNorm2d(_LazyNormBase, _BatchNorm):
    """A BatchNorm2d that takes num_features from its first input."""

    cls_to_become = BatchNorm2d
    _check_input_dim = BatchNorm2d._check_input_dim


class LazyBatchNorm3d(_LazyNormBase, _BatchNorm):
    """A BatchNorm3d that takes num_features from its first input."""

    cls_to_become = BatchNorm3d
    _check_input_dim = BatchNorm3d._check_input_dim


class SyncBatchNorm(_BatchNorm):
    """A batch norm whose statistics are those of all processes' batches together. (N, C, *) -> the same.

    process_group  the processes; None for all. In evaluation, and where there is one process, it is an ordinary batch norm.

    It runs on every device, PyTorch's on GPUs alone.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        process_group: Any = None, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input, (batch, channels, ...), and found {input.dim()}D")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm: the number of input channels should be positive, and is 0")
        group = self._group() if self.training else None
        if group is None or group.size() == 1:
            return super().forward(input)
        from flambeau.nn.modules import _functions

        mean, var, factor = None, None, 0.0 if self.momentum is None else self.momentum
        if self.track_running_stats:
            mean, var = self.running_mean, self.running_var
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
                if self.momentum is None:  # the average over all batches so far
                    factor = 1.0 / self.num_batches_tracked.item()
        return _functions.SyncBatchNorm.apply(input, self.weight, self.bias, mean, var, self.eps, factor, group, group.size())

    def _group(self) -> Any:
        """The processes whose batches are one; None where there is but this process."""
        if self.process_group is not None:
            return self.process_group
        from flambeau import distributed

        return distributed.group.WORLD if distributed.is_initialized() else None

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with every batch norm inside it replaced by a SyncBatchNorm with the same parameters and averages."""
        converted = module
        if isinstance(module, _BatchNorm):
            converted = SyncBatchNorm(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group,
                bias=module.bias is not None,
            )  # fmt: skip
            if module.affine:
                converted.weight, converted.bias = module.weight, module.bias
            converted.running_mean, converted.running_var = module.running_mean, module.running_var
            converted.num_batches_tracked = module.num_batches_tracked
            converted.training = module.training
            if hasattr(module, "qconfig"):
                converted.qconfig = module.qconfig
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted
