"""Mixed precision under its old names: `torch.amp` has them for all devices."""

from flambeau.cuda.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from flambeau.cuda.amp.common import amp_definitely_not_available
from flambeau.cuda.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]
