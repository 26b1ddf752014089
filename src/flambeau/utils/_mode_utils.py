"""torch.utils._mode_utils: what code around modes asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from flambeau.eager.overrides import on_memory
from flambeau.utils._python_dispatch import all_same_mode

__all__ = ["all_same_mode", "no_dispatch"]

T = TypeVar("T")
no_dispatch = on_memory  # within it no mode and no class carries operations out


def all_same_mode_scope(modes: Sequence[Any], cur_mode: Any) -> bool:
    """Whether all are one and the same mode, or that which is active."""
    return all(mode is cur_mode for mode in modes)
