"""Running view operations: new geometry over the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy import ndarray

from flambeau.autograd import modes
from flambeau.eager import overrides
from flambeau.eager.arguments import Arguments
from flambeau.eager.record import record_array, record_view
from flambeau.kernels import arrays
from flambeau.kernels.native import strided_view
from flambeau.tensor import PLAIN, Tensor

_new = object.__new__
state = modes.state


def bind(op) -> Callable:
    """The function that runs a view operation."""
    forward = op.forward
    arguments = Arguments(op)
    most = len(op.parameters) - 1
    retype = op.retype
    known: dict[tuple, Any] = {}  # geometries that were asked for before: programs ask the same few again and again

    def front(input, *args, **kwargs):
        if kwargs and not arguments.knows(kwargs):
            kwargs = arguments.rename(kwargs)
        if (modes.special or type(input) not in PLAIN) and overrides.needed((input,)):
            return overrides.call(op.call, (input,), (input, *args), kwargs)
        try:
            array = input._array
        except AttributeError:
            raise arguments.not_a_tensor(input) from None
        size = array.itemsize
        key = None if kwargs or not _EXACT.issuperset(map(type, args)) else (array.shape, array.strides, size, args)
        found = known.get(key)
        seen_before = found is not None
        if not seen_before:
            found = forward((array.shape, tuple([s // size for s in array.strides]), 0), *args, **kwargs)
            if type(found) is not list:
                found = tuple(found[0]), tuple(found[1]), found[2]
            if key is not None:
                if len(known) > 1000:
                    known.clear()
                known[key] = found
        if type(found) is list:
            return several(op, input, found, args, kwargs, arguments)
        if seen_before and type(array) is ndarray and retype is None:
            result = over(input, strided_view(array, *found))
        else:
            result = make(input, *found) if retype is None else make_retyped(input, retype(array.dtype), *found)
        if (input._needs or result._base._needs) and state.grad and input._is_float():
            record_view(op, result, input, (input, *args) if len(args) == most else arguments.values((input, *args), kwargs))
        return result

    return front


_EXACT = frozenset({int, tuple})  # types of arguments that can be looked up: 1 == 1.0 == True, but they are not the same request


def make(input: Tensor, shape, strides, offset: int) -> Tensor:
    """A tensor over part of the memory of `input`."""
    try:
        return over(input, arrays.strided_view(input._array, shape, strides, offset))
    except ValueError:
        raise RuntimeError(f"numel: integer multiplication overflow: no tensor has shape {tuple(shape)}") from None


def over(input: Tensor, array) -> Tensor:
    """A tensor over `array`, which is a view of the memory of `input`."""
    result = _new(Tensor)
    result._array = array
    storage = input._storage
    result._storage = storage if storage is not None else input._shared_storage()
    base = input._base
    if base is None:
        base = input
    elif input._view_mode is not None:
        result._view_mode = input._view_mode
    result._base = base
    result._stamp = result._storage.version
    if not state.grad:
        result._view_mode = "inference" if state.inference else "no_grad"
    if input._inference:
        result._inference = True
    return result


def make_retyped(input: Tensor, dtype, shape, strides, offset: int) -> Tensor:
    """A tensor over the memory of `input` that reads it as other elements, from the first one on."""
    result = make(input, input._array.shape, arrays.element_strides(input._array), offset)
    result._array = arrays.reinterpret(input._array, dtype, shape, strides)
    return result


def several(op, input: Tensor, found: list, args, kwargs, arguments) -> tuple[Tensor, ...]:
    """An operation with many views as its result, such as split."""
    results = tuple([make(input, *geometry) for geometry in found])
    if results and input.requires_grad and input._is_float():
        record_array(op, results, arguments.values((input, *args), kwargs))
    for r in results:
        r._view_mode = r._view_mode or "multi"
    return results
