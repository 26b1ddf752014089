"""Running view operations: new geometry over the same memory."""

from __future__ import annotations

from collections.abc import Callable

from numpy import ndarray

from flambeau import modes
from flambeau.eager import plans
from flambeau.eager.arguments import Arguments, not_a_tensor
from flambeau.eager.record import record_array, record_view
from flambeau.interpreters import calls
from flambeau.interpreters.by_name import any_foreign
from flambeau.kernels import arrays
from flambeau.kernels.mirrored import turned
from flambeau.kernels.native.native import maker, strided_view
from flambeau.tensor import Tensor

state = modes.state


def bind(op) -> Callable:
    """The function that runs a view operation."""
    forward = op.forward
    arguments = Arguments(op)
    most = len(op.parameters) - 1
    retype, mirror = op.retype, op.mirror

    def front(input, *args, **kwargs):
        kwargs = kwargs and arguments.known(kwargs)
        if modes.special or any_foreign((input,)):
            return calls.run(op.call, body, (input, *args), kwargs)
        return body(input, *args, **kwargs)

    def body(input, *args, **kwargs):
        try:
            array = input._array
        except AttributeError:
            raise not_a_tensor(op, input) from None
        size = array.itemsize
        found = forward((array.shape, tuple([s // size for s in array.strides]), 0), *args, **kwargs)
        if type(found) is list:
            found = [(tuple(shape), tuple(strides), offset) for shape, strides, offset in found]
            return several(op, input, found, arguments.values((input, *args), kwargs))
        values = (input, *args) if len(args) == most and not kwargs else arguments.values((input, *args), kwargs)
        result = make(input, *found) if retype is None else make_retyped(input, retype(array.dtype), *found)
        if mirror is not None:
            result._array = turned(result._array, **{mirror: True})
        if (input._needs or result._base._needs) and state.grad and input._is_float():
            record_view(op, result, input, values)
        if modes.watching:
            plans.note(*((plans.VIEWS, op, values, (result,), result, [found]) if retype is mirror is None else ()))
        return result

    return front


def make(input: Tensor, shape, strides, offset: int) -> Tensor:
    """A tensor over part of the memory of `input`."""
    try:
        return over(input, arrays.strided_view(input._array, shape, strides, offset))
    except ValueError:
        if len(shape) > 64:
            raise RuntimeError(f"a tensor has at most 64 dimensions (as NumPy's arrays have), but this view has {len(shape)}") from None
        raise RuntimeError(f"numel: integer multiplication overflow: no tensor has shape {tuple(shape)}") from None


_wrap_view = maker(
    Tensor, ("_array", "_storage", "_base", "_stamp", "_view_mode", "_inference"), _needs=False, _node=None, _nr=0, _grad=None
)


def over(input: Tensor, array) -> Tensor:
    """A tensor over `array`, which is a view of the memory of `input`."""
    storage = input._storage or input._shared_storage()
    base = input._base
    mode = input._view_mode if not modes.paused or state.grad else "inference" if state.inference else "no_grad"
    return _wrap_view(array, storage, input if base is None else base, storage.version, mode, input._inference)


def make_retyped(input: Tensor, dtype, shape, strides, offset: int) -> Tensor:
    """A tensor over the memory of `input` that reads it as other elements, from the first one on."""
    result = make(input, input._array.shape, arrays.element_strides(input._array), offset)
    result._array = arrays.reinterpret(input._array, dtype, shape, strides)
    return result


def several(op, input: Tensor, geometries: list, values: tuple) -> tuple[Tensor, ...]:
    """An operation with many views as its result, such as split."""
    array, storage = input._array, input._storage or input._shared_storage()
    view = strided_view if type(array) is ndarray else arrays.strided_view
    base = input if input._base is None else input._base
    mode = (input._view_mode or "multi") if not modes.paused or state.grad else "inference" if state.inference else "no_grad"
    results = tuple([_wrap_view(view(array, *one), storage, base, storage.version, mode, input._inference) for one in geometries])
    if results and input.requires_grad and input._is_float():
        record_array(op, results, values)
    if modes.watching:
        plans.note(plans.VIEWS, op, values, results, results, geometries)
    return results
