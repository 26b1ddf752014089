"""One of two, by a condition."""

from __future__ import annotations

from flambeau.kernels.language import expr as e
from flambeau.ops.declare import composite, pointwise


@pointwise(kinds=("bool", "T", "T"), method=False, public=False)
def _where(condition, input, other):
    """input where condition holds, else other."""
    return e.where(condition, input, other)


@composite(method=False, out="same whole")
def where(condition, input=None, other=None):
    """input where condition holds, else other; shapes broadcast.

    where(condition) alone gives the indices of the elements that hold, one tensor for each dimension.
    Gradients reach only what was chosen: a NaN in the other place stays out of them.
    """
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    return _where.call(condition, input, other)


@composite(public=False, name="Tensor.where")
def where_of(input, condition, other):
    """The tensor where condition holds, else other."""
    return _where(condition, input, other)
