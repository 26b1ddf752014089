"""ShardedGradScaler: a GradScaler for gradients of which every rank has a part. An infinity on one rank makes all of them skip the step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau import distributed as dist
from flambeau import dtypes
from flambeau.amp.grad_scaler import GradScaler
from flambeau.distributed.groups.process_group import ProcessGroup
from flambeau.optim import Optimizer
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """As GradScaler, with three differences: infinities are looked for on all ranks of `process_group`, losses keep their dtype when they are scaled, and
    gradients in float16, as mixed precision may leave them, are unscaled."""

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, backoff_factor: float = 0.5, growth_factor: float = 2.0,
        growth_interval: int = 2000, enabled: bool = True, process_group: ProcessGroup | None = None,
    ) -> None:  # fmt: skip
        super().__init__(device, init_scale, growth_factor, backoff_factor, growth_interval, enabled)
        if self._enabled:
            self.process_group = process_group

    def scale(self, outputs: Any) -> Any:
        """A tensor, or tensors in lists, tuples or other iterables, multiplied by the scale; in their own dtype."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return super().scale(outputs).to(outputs.dtype)
        if not isinstance(outputs, Iterable):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        return super().scale(outputs)  # asks this method for each of them

    def _unscale_grads_(self, optimizer: Optimizer, inv_scale: Tensor, found_inf: Tensor, allow_fp16: bool) -> dict:
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, True)
        # A rank whose part of the parameters is empty has no gradients, and takes part all the same: one flag for all devices, so that ranks send alike.
        anywhere = factories.zeros((1,), dtype=dtypes.float32, device=inv_scale.device)
        for flag in found.values():
            anywhere += flag.to(anywhere.device)
        dist.all_reduce(anywhere, group=self.process_group)
        return {inv_scale.device: anywhere}
