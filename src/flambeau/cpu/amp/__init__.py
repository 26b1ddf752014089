"""Mixed precision under its old names: `torch.amp` has them for all devices."""

from flambeau.cpu.amp.autocast_mode import autocast
from flambeau.cpu.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
