"""Operations on the bits of integers; on bools they are the logical ones."""

from __future__ import annotations

from flambeau.kernels import expr as e
from flambeau.kernels.pointwise import INTEGERS
from flambeau.ops.declare import pointwise


@pointwise(inplace=True, dtypes="integer", complex=False, number_first=True)
def bitwise_and(input, other):
    """The bits set in both."""
    return e.bitand(input, other)


@pointwise(inplace=True, dtypes="integer", complex=False, number_first=True)
def bitwise_or(input, other):
    """The bits set in at least one."""
    return e.bitor(input, other)


@pointwise(inplace=True, dtypes="integer", complex=False, number_first=True)
def bitwise_xor(input, other):
    """The bits set in exactly one."""
    return e.bitxor(input, other)


@pointwise(inplace=True, dtypes="integer", complex=False)
def bitwise_not(input):
    """All bits flipped: -input - 1 for integers, the negation of bools."""
    return e.bitnot(input)


@pointwise(inplace=True, dtypes=INTEGERS, complex=False, number_first=True)
def bitwise_left_shift(input, other):
    """The bits moved up by `other` places. Moving by more places than there are, or by a negative number, leaves 0."""
    return e.shl(input, other)


@pointwise(inplace=True, dtypes=INTEGERS, complex=False, number_first=True)
def bitwise_right_shift(input, other):
    """The bits moved down by `other` places, the sign filling up from above."""
    return e.shr(input, other)
