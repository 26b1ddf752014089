"""Operations on the bits of integers; on bools they are the logical ones."""

from __future__ import annotations

from functools import partial

from flambeau.kernels.language.pointwise import INTEGERS
from flambeau.ops.nodes import binary, unary

bits = partial(binary, inplace=True, dtypes="integer", complex=False, number_first=True)
shift = partial(bits, dtypes=INTEGERS)

bitwise_and = bits("bitwise_and", "The bits set in both.", "bitand")
bitwise_or = bits("bitwise_or", "The bits set in at least one.", "bitor")
bitwise_xor = bits("bitwise_xor", "The bits set in exactly one.", "bitxor")
flipped = "All bits flipped: -input - 1 for integers, the negation of bools."
bitwise_not = unary("bitwise_not", flipped, "bitnot", inplace=True, dtypes="integer", complex=False)
up = "The bits moved up by `other` places. Moving by more places than there are, or by a negative number, leaves 0."
bitwise_left_shift = shift("bitwise_left_shift", up, "shl")
bitwise_right_shift = shift("bitwise_right_shift", "The bits moved down by `other` places, the sign filling up from above.", "shr")
