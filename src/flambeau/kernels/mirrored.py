"""Arrays seen in a mirror: the memory is another array's, and every number in it is to be read conjugated, negated or both.

`x.conj()` costs nothing and shares the memory of x; so does `x.conj().imag`, whose numbers are those in the memory with another sign.

Note [what looks into a mirror]: a `Mirrored` has the geometry of an array and none of its numbers. NumPy refuses it, compiled loops and
launchers know it as little as any array that is not theirs, and it has no attribute that leads to elements. So whoever has not heard of
mirrors fails loudly, and never computes with what lies in the memory. Those who have: `arrays.plain`, which makes the numbers that are meant,
and what is written with it (reading: `run`, `cast`, `copy`; writing: `write`, `fill`); views, which are views of the memory in the same mirror;
and operations, whose general way asks for `plain` arrays before it computes (eager/pointwise.py, eager/array_ops.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau.kernels.language.pointwise import Pointwise


def _of_memory(name: str) -> Any:
    return property(lambda self: getattr(self.memory, name))


class Mirrored:
    """`memory`, to be read conjugated if `conj`, and negated if `neg`."""

    __slots__ = ("conj", "memory", "neg")
    __array_ufunc__ = None  # NumPy's functions raise TypeError
    base = np.zeros(0)  # always somebody else's: never memory that a gradient could take over

    def __init__(self, memory: Any, conj: bool, neg: bool):
        self.memory, self.conj, self.neg = memory, conj, neg

    shape, strides, dtype, itemsize = map(_of_memory, ("shape", "strides", "dtype", "itemsize"))
    ndim, size, nbytes, flags = map(_of_memory, ("ndim", "size", "nbytes", "flags"))

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("what lies in the memory of this array is not what it means: `arrays.plain` gives the numbers")

    __array__ = __array_function__ = __eq__ = __ne__ = __bool__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def turned(array: Any, conj: bool = False, neg: bool = False) -> Any:
    """The array in one more mirror. Two of a kind cancel: conj of conj is the memory itself."""
    if type(array) is Mirrored:
        array, conj, neg = array.memory, conj != array.conj, neg != array.neg
    return Mirrored(array, conj, neg) if conj or neg else array


def turned_as(array: Any, other: Any) -> Any:
    """The array in the mirror, if there is one, in which the other is seen."""
    return turned(array, other.conj, other.neg) if type(other) is Mirrored else array


def signs(array: Any) -> tuple[bool, bool]:
    """(whether it is to be conjugated, whether it is to be negated)."""
    return (array.conj, array.neg) if type(array) is Mirrored else (False, False)


def _formula(name: str):
    def formula(input):
        from flambeau.kernels.language import expr as e

        return e.node(name, input)

    return formula


# The loops of the operations of these names, which are declared further up.
CONJ = Pointwise("_conj_physical", _formula("conj"), ("input",), dtypes=())
NEG = Pointwise("neg", _formula("neg"), ("input",), dtypes=())


def turns(array: Mirrored) -> list[Pointwise]:
    """What is to be done to the numbers in the memory, and, as each undoes itself, to numbers that are to be written there."""
    if array.neg and array.dtype.kind == "b":
        raise NotImplementedError('"neg" not implemented for bool tensors: this one is the negative of a mask. To invert a mask, use ~')
    return [CONJ] * array.conj + [NEG] * array.neg


def turned_number(value: Any, array: Mirrored) -> Any:
    """The number that stands in the memory where the array shows this one."""
    value = value.conjugate() if array.conj and isinstance(value, complex) else value
    return -value if array.neg else value
