"""oneDNN's switches. It is not used: convolutions and matrix products are compiled loops of Flambeau's own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import SimpleNamespace

from flambeau.backends import for_a_while

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2

enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"
matmul = SimpleNamespace(fp32_precision="none")
conv = SimpleNamespace(fp32_precision="none")
rnn = SimpleNamespace(fp32_precision="none")

_NAMES = ("enabled", "deterministic", "allow_tf32", "fp32_precision")


def is_available() -> bool:
    """False."""
    return False


def is_acl_available() -> bool:
    """False."""
    return False


def set_flags(_enabled=None, _deterministic=None, _allow_tf32=None, _fp32_precision="none") -> tuple:
    """Set what is not None; the values before."""
    before = tuple(globals()[name] for name in _NAMES)
    given = (_enabled, _deterministic, _allow_tf32, _fp32_precision)
    globals().update({name: value for name, value in zip(_NAMES, given, strict=True) if value is not None})
    return before


def flags(
    enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none"
) -> AbstractContextManager[None]:
    """The switches within a `with`."""
    return for_a_while(globals(), dict(zip(_NAMES, (enabled, deterministic, allow_tf32, fp32_precision), strict=True)))
