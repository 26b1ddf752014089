"""Loggers whose level LOGLEVEL sets."""

from __future__ import annotations

import logging
import os
import sys

from flambeau.distributed.elastic.utils.log_level import get_log_level

__all__ = ["get_logger"]


def get_logger(name: str | None = None) -> logging.Logger:
    """The logger of this name, or of the module that calls this."""
    found = logging.getLogger(name or _derive_module_name(depth=2))
    found.setLevel(os.environ.get("LOGLEVEL", get_log_level()))
    return found


def _derive_module_name(depth: int = 1) -> str | None:
    """The name of the module whose frame is so far up."""
    try:
        return sys._getframe(depth).f_globals.get("__name__")
    except ValueError:
        return None
