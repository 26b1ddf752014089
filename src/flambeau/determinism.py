"""The same bits in every run: what `use_deterministic_algorithms` asks for, and who has to listen."""

from __future__ import annotations

import warnings
from typing import Any

from flambeau import changes, dtypes

_deterministic = False
_warn_only = False
fill_uninitialized_memory = True  # users know it as torch.utils.deterministic.fill_uninitialized_memory


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for the same bits in every run: functions of which PyTorch cannot promise that raise, or warn. On the CPU the bits are the same anyway.

    Memory nobody has written to gets values: `torch.empty` and `resize_` give NaN, and the largest number of an integer type.
    """
    global _deterministic, _warn_only
    for name, value in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(value, bool):
            raise TypeError(f"use_deterministic_algorithms(): argument '{name}' must be bool, not {type(value).__name__}")
    _deterministic, _warn_only = mode, warn_only
    changes.announce()


def fills_memory() -> bool:
    """Whether memory without values is to have some."""
    return _deterministic and fill_uninitialized_memory


def unlikely(dtype: dtypes.dtype) -> Any:
    """What memory that was never written to holds where programs are to be deterministic: a value that shows up in any result made of it."""
    return float("nan") if dtype.is_floating_point or dtype.is_complex else dtype is dtypes.bool or dtypes.iinfo(dtype).max


def alert(name: str) -> None:
    """RuntimeError, or a warning, if the same bits are asked for in every run and PyTorch does not promise them of the function `name`."""
    if not _deterministic:
        return
    how = "use_deterministic_algorithms(True, warn_only=True)" if _warn_only else "use_deterministic_algorithms(True)"
    words = f"{name} does not have a deterministic implementation, but you set 'torch.{how}'"
    if not _warn_only:
        raise RuntimeError(f"{words}. Turn it off for this call, or pass warn_only=True to be told only.")
    changes.each_time()
    warnings.warn(f"{words}: its results may differ from run to run.", stacklevel=3)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` is on."""
    return _deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it only warns."""
    return _warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0 or "default": off; 1 or "warn"; 2 or "error"."""
    levels = {"default": 0, "warn": 1, "error": 2}
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode is a str or an int, found {type(debug_mode)}")
    level = levels.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if level not in (0, 1, 2):
        raise RuntimeError(f"invalid value {debug_mode} for debug_mode: there are default (0), warn (1) and error (2)")
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """The level `set_deterministic_debug_mode` set."""
    return 0 if not _deterministic else 1 if _warn_only else 2
