"""Operations whose whole formula is one node of the expression language: declared in a line each, by name and meaning.

>>> sin = unary("sin", "The sine.", rule="float")
"""

from __future__ import annotations

import sys

from flambeau.kernels.language import expr as e
from flambeau.ops.declare import PointwiseOp, pointwise


def unary(name: str, meaning: str, node: str | None = None, **options) -> PointwiseOp:
    """Declare node(input); the node is called as the operation is, unless named."""

    def formula(input):
        return e.node(node or name, input)

    return _declared(formula, name, meaning, options, sys._getframe(1))


def binary(name: str, meaning: str, node: str | None = None, **options) -> PointwiseOp:
    """Declare node(input, other)."""

    def formula(input, other):
        return e.node(node or name, input, other)

    return _declared(formula, name, meaning, options, sys._getframe(1))


def _declared(formula, name: str, meaning: str, options: dict, caller) -> PointwiseOp:
    formula.__name__, formula.__doc__, formula.__module__ = name, meaning, caller.f_globals["__name__"]  # the file that declares it
    return pointwise(**options)(formula)
