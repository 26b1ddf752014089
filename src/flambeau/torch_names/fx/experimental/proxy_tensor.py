"""Whether the program is being recorded."""

from __future__ import annotations

from flambeau import import_only
from flambeau.fx import WHY

__all__ = ["get_proxy_mode", "make_fx"]

(make_fx,) = import_only.functions("torch.fx.experimental.proxy_tensor", "make_fx", WHY)


def get_proxy_mode() -> None:
    """The recording that is going on: None."""
    return None
