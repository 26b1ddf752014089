"""Sizes that are not numbers yet, as PyTorch's tracer has them. Here sizes are always numbers, and these names say so.

Libraries ask `isinstance(n, torch.SymInt)` and call `torch.sym_max(a, b)` on sizes that may be symbolic: the answers are False and max.
"""

from __future__ import annotations

import math
import operator
from typing import Any


class _Symbolic:
    def __new__(cls, *args):
        raise NotImplementedError(f"{cls.__name__}: sizes are always numbers here, there is nothing symbolic to make")


class SymInt(_Symbolic):
    """An integer known only when a traced program runs. No size here is one."""


class SymFloat(_Symbolic):
    """A float known only when a traced program runs. No number here is one."""


class SymBool(_Symbolic):
    """A truth value known only when a traced program runs. None here is one."""


sym_int, sym_float, sym_sum, sym_sqrt, sym_not = int, float, sum, math.sqrt, operator.not_


def sym_max(a: Any, b: Any) -> Any:
    """The larger number; a float if one of them is."""
    return _common(max(a, b), a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; a float if one of them is."""
    return _common(min(a, b), a, b)


def _common(value: Any, a: Any, b: Any) -> Any:
    return float(value) if isinstance(a, float) or isinstance(b, float) else value


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b, else f."""
    return t if b else f
