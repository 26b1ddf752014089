"""`torch.cpu.amp.GradScaler`: the old spelling of `torch.amp.GradScaler("cpu")`."""

from __future__ import annotations

from flambeau.amp.grad_scaler import OldSpelling

__all__ = ["GradScaler"]


class GradScaler(OldSpelling):
    """The scaler for the CPU: see `torch.amp.GradScaler`."""

    device = "cpu"
