"""skip_init: a module whose parameters are left as they come from memory, for those who fill them at once."""

from __future__ import annotations

import inspect
from typing import Any

from flambeau.nn.modules.module import Module


def skip_init(module_cls: type, *args: Any, **kwargs: Any) -> Module:
    """module_cls(*args, **kwargs) without drawing any starting values."""
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg, to be made on the device meta first")
    device = kwargs.pop("device", "cpu")
    return module_cls(*args, device="meta", **kwargs).to_empty(device=device)
