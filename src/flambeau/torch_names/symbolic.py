"""Sizes that are not numbers yet, as PyTorch's tracer has them. Here sizes are always numbers, and these names say so.

Libraries ask `isinstance(n, torch.SymInt)` and call `torch.sym_max(a, b)` on sizes that may be symbolic: the answers are False and max.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from flambeau.eager.overrides import overridable


class _Symbolic:
    def __new__(cls, *args):
        raise NotImplementedError(f"{cls.__name__}: sizes are always numbers here, there is nothing symbolic to make")


class SymInt(_Symbolic):
    """An integer known only when a traced program runs. No size here is one."""


class SymFloat(_Symbolic):
    """A float known only when a traced program runs. No number here is one."""


class SymBool(_Symbolic):
    """A truth value known only when a traced program runs. None here is one."""


@overridable
def sym_max(a: Any, b: Any) -> Any:
    """The larger number; a float if one of them is."""
    return _common(max(a, b), a, b)


@overridable
def sym_min(a: Any, b: Any) -> Any:
    """The smaller number; a float if one of them is."""
    return _common(min(a, b), a, b)


def _common(value: Any, a: Any, b: Any) -> Any:
    return float(value) if isinstance(a, float) or isinstance(b, float) else value


@overridable
def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b, else f."""
    return t if b else f


def _named(name: str, function: Any) -> Any:
    def answer(a: Any) -> Any:
        return function(a)

    answer.__name__ = answer.__qualname__ = name
    answer.__doc__ = f"{function.__name__}(a), for a number that may not be known yet."
    return overridable(answer)


sym_int, sym_float, sym_sum = _named("sym_int", int), _named("sym_float", float), _named("sym_sum", sum)
sym_sqrt, sym_not = _named("sym_sqrt", math.sqrt), _named("sym_not", operator.not_)
