"""Mixed precision: `autocast` regions and the `GradScaler`."""

# ruff: noqa: F401 - names are imported to be public
from flambeau.amp import autocast_mode, grad_scaler
from flambeau.amp.autocast_mode import _enter_autocast, _exit_autocast, autocast, custom_bwd, custom_fwd, is_autocast_available
from flambeau.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
