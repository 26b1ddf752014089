"""Locks and forks: another thread may hold a lock at the moment of a fork, and that thread does not exist in the child."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def renewed(owner: Any, name: str, make: Callable[[], Any]) -> None:
    """Give the attribute of this name, of a module or an object that lives as long as the program, a new value in every forked child."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: setattr(owner, name, make()))
