"""`torch.cuda.amp.GradScaler`: the old spelling of `torch.amp.GradScaler("cuda")`."""

from __future__ import annotations

from flambeau.amp.grad_scaler import OldSpelling

__all__ = ["GradScaler"]


class GradScaler(OldSpelling):
    """The scaler for GPUs: see `torch.amp.GradScaler`."""

    device = "cuda"
