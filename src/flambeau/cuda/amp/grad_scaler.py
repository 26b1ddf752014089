"""`torch.cuda.amp.GradScaler`: the old spelling of `torch.amp.GradScaler("cuda")`."""

from __future__ import annotations

from flambeau.amp.grad_scaler import OldSpelling, OptState

__all__ = ["GradScaler", "OptState"]


class GradScaler(OldSpelling):
    """The scaler for GPUs: see `torch.amp.GradScaler`."""

    device = "cuda"
