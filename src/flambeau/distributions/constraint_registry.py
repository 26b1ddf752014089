"""Which transform leads from all real numbers to a constraint: `biject_to(constraint)` one to one, `transform_to(constraint)` in any cheap way.

>>> transform_to(constraints.unit_interval)
SigmoidTransform()
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from flambeau.distributions import constraints as c
from flambeau.distributions import transforms as t

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Make = Callable[[Any], t.Transform]


class ConstraintRegistry:
    """A table: kind of constraint -> function that makes the transform from a constraint of that kind."""

    def __init__(self) -> None:
        self._makers: dict[type, Make] = {}

    def register(self, constraint: Any, factory: Make | None = None) -> Any:
        """Add a kind of constraint, named by its class or by an example. Without a factory: a decorator for one."""
        kind = constraint if isinstance(constraint, type) else type(constraint)
        if not issubclass(kind, c.Constraint):
            raise TypeError(f"register: a kind of Constraint is needed, as a class or by an example of it, but found {constraint!r}")
        if factory is None:
            return partial(self.register, kind)
        self._makers[kind] = factory
        return factory

    def __call__(self, constraint: c.Constraint) -> t.Transform:
        kind = type(constraint)
        if kind in self._makers:
            return self._makers[kind](constraint)
        raise NotImplementedError(f"Cannot transform {kind.__name__} constraints: register(constraint, factory) says how")


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _beyond(bound: Any, direction: int) -> t.Transform:
    """To the numbers on one side of a bound."""
    return t.ComposeTransform([t.ExpTransform(), t.AffineTransform(bound, direction)])


def _between(low: Any, high: Any) -> t.Transform:
    """To the numbers between two bounds."""
    if all(isinstance(bound, (int, float)) for bound in (low, high)) and (low, high) == (0, 1):
        return t.SigmoidTransform()
    return t.ComposeTransform([t.SigmoidTransform(), t.AffineTransform(low, high - low)])


# kinds, the transform one to one, the transform in any way: functions of the table, which is asked for the parts, and the constraint.
SAME, NONE = "same", None
WAYS: list[tuple] = [
    ([c.real], lambda ask, x: t.identity_transform, SAME),
    ([c.greater_than, c.greater_than_eq], lambda ask, x: _beyond(x.lower_bound, 1), SAME),
    ([c.less_than], lambda ask, x: _beyond(x.upper_bound, -1), SAME),
    ([c.interval, c.half_open_interval], lambda ask, x: _between(x.lower_bound, x.upper_bound), SAME),
    ([c.simplex], lambda ask, x: t.StickBreakingTransform(), lambda ask, x: t.SoftmaxTransform()),
    ([c.corr_cholesky], lambda ask, x: t.CorrCholeskyTransform(), SAME),
    ([c.lower_cholesky], NONE, lambda ask, x: t.LowerCholeskyTransform()),
    ([c.positive_definite, c.positive_semidefinite], NONE, lambda ask, x: t.PositiveDefiniteTransform()),
    ([c.independent], lambda ask, x: t.IndependentTransform(ask(x.base_constraint), x.reinterpreted_batch_ndims), SAME),
    ([c.cat], lambda ask, x: t.CatTransform(map(ask, x.cseq), x.dim, x.lengths), SAME),
    ([c.stack], lambda ask, x: t.StackTransform(map(ask, x.cseq), x.dim), SAME),
]
for _kinds, _one_to_one, _any in WAYS:
    for _table, _way in ((biject_to, _one_to_one), (transform_to, _one_to_one if _any is SAME else _any)):
        for _kind in _kinds if _way else ():
            _table.register(_kind, partial(_way, _table))
