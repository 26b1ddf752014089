"""The name under which PyTorch has the gradient modes: see modes.py."""

from flambeau.autograd.modes import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)

__all__ = ["enable_grad", "enforce_grad_layout_policy", "inference_mode", "no_grad", "set_grad_enabled", "set_multithreading_enabled"]
