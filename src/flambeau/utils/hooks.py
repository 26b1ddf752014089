"""torch.utils.hooks: handles that remove hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from flambeau.nn.modules.backward_hooks import BackwardHook
from flambeau.tensor import Tensor
from flambeau.tensor.node import RemovableHandle

__all__ = ["BackwardHook", "RemovableHandle", "unserializable_hook", "warn_if_has_hooks"]


def unserializable_hook(f: Callable) -> Callable:
    """Mark a hook that is not stored with its tensor, so that `warn_if_has_hooks` does not mention it."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Warn about the hooks of a tensor that would be lost if it were stored."""
    for hook in (getattr(tensor, "_backward_hooks", None) or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(
                f"the backward hook {hook!r} does not go into the file. Decorate it with @torch.utils.hooks.unserializable_hook",
                stacklevel=2,
            )
