"""What a call looks like: all of its arguments that decide which way it goes, as something that can be looked up.

Programs make the same few calls again and again: the same operation, of tensors of the same geometry and dtype, with the same options. What such a call
came down to is remembered by what it looks like (eager/settled.py). The values of tensors are no part of that; those of numbers, texts and sizes are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy import ndarray

from flambeau.dtypes import dtype
from flambeau.kernels import arrays
from flambeau.kernels.native import native
from flambeau.tensor import PLAIN, Size, Tensor

EXACT = frozenset({int, bool, str, Size, type(None), dtype})  # types of options that can be looked up, together with their type

# (key, the tensors, their arrays as the call has them, in lists where these are in lists; whether one of them wants a gradient)
Look = tuple[Any, list[Tensor], list, bool]


def _look(args: tuple, kwargs: dict) -> Look | None:
    """What a call looks like; None where an argument cannot be looked up. (Of tensors on a GPU it is always asked here: so it is written out.)"""
    key: list = []
    tensors: list[Tensor] = []
    given: list = []
    home: type | None = None
    needs = False
    for value in args if not kwargs else (*args, *kwargs.values()):
        kind = type(value)
        if kind in PLAIN:
            group: Any = (value,)
        elif kind in EXACT or (kind is float and value) or (kind is tuple and all([type(n) is int for n in value])):
            key += value, kind  # with its type: 1 == True, but they are not the same request; and 0.0 == -0.0
            continue
        elif (kind is list or kind is tuple) and value and all([type(t) in PLAIN for t in value]):
            group = value
            key.append(len(value))
        else:
            return None
        arrays_of_group = []
        for t in group:
            array = t._array
            if type(array) is not home:
                if home is not None or not (type(array) is ndarray or arrays.on_only_gpu(array)):
                    return None
                home = type(array)
                key.append(home)
            key += array.shape, array.strides, array.dtype
            arrays_of_group.append(array)
            if t._needs or (t._base is not None and t.requires_grad):
                needs = True
        tensors += group
        given.append(arrays_of_group if group is value else arrays_of_group[0])
    return (*key, *kwargs), tensors, given, needs


# -- writes ----------------------------------------------------------------------------------------------------------------


SIMPLE = frozenset({int, float, bool, complex, str, type(None)})


def _written(recording: bool, itself: bool, first: Any, *others: Any) -> tuple | None:
    """What a loop is given to write over the tensor `first`: arrays for tensors (and in lists of them), numbers, texts and None as they are. None
    where there is more to it: history, memory that is not NumPy's or that repeats, or that another operand looks at, too (`itself`: that
    operand may be `first`), or values of other types."""
    given: list[Any] = []
    for value in (first, *others):
        if type(value) is list and given:
            if not all([t is None or _is_apart(t, first, recording, itself) for t in value]):
                return None
            value = [t if t is None else t._array for t in value]
        elif isinstance(value, Tensor):
            if not _is_apart(value, first, recording, itself or not given):
                return None
            value = value._array
        elif not given or type(value) not in SIMPLE:
            return None
        given.append(value)
    return None if first._inference or 0 in given[0].strides else tuple(given)


def _is_apart(value: Any, first: Tensor, recording: bool, itself: bool) -> bool:
    """Whether a loop may read a tensor while it writes over another, and nothing is to be recorded."""
    if type(value) not in PLAIN or type(value._array) is not ndarray:
        return False
    if recording and (value._needs or (value._base is not None and value._base._needs)):
        return False
    return itself if value is first else first._storage is None or value._storage is not first._storage


# -- compiled, where they can be ---------------------------------------------------------------------------------------------


if native.lib is None:
    written: Callable = _written
    look: Callable[[tuple, dict], Look | None] = _look
else:
    written = native.lib.writer(Tensor, PLAIN, ("_array", "_needs", "_base", "_storage", "_inference"))
    look = native.lib.looker(Tensor, Size, dtype, PLAIN, _look, ("_array", "_needs", "_base"))
