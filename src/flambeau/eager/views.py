"""Running view operations: new geometry over the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy import ndarray

from flambeau import modes
from flambeau.eager.arguments import Arguments, not_a_tensor
from flambeau.eager.looks import look
from flambeau.eager.record import record_again, record_array, record_view, share
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
        if watching and retype is mirror is None:
            note(input, result, Remembered(op, (tuple(found[0]), tuple(found[1]), found[2]), values[1:]))
        return result

    return remembering(op, front)


class Remembered:
    """What a call came down to: one view operation with these arguments, which gave this geometry (a list of them, if it makes several views);
    and how its node is made and what it saves, once known."""

    __slots__ = ("geometry", "op", "recipe", "record", "saved", "values")

    def __init__(self, op, geometry: tuple | list, values: tuple):
        self.op, self.geometry, self.values, self.recipe = op, geometry, values, None


def remembering(op, front: Callable) -> Callable:
    """`front`, which runs `op` and makes a view of its first argument, with a short cut for what was asked before: programs ask the same few views of the
    same few geometries again and again."""
    known: dict[Any, Remembered | str] = {}  # geometry, dtype and arguments -> what they came down to

    def with_memory(*args, **kwargs):
        if modes.special:
            return front(*args, **kwargs)
        seen = look(args, kwargs)
        if seen is None or len(seen[1]) != 1:
            return front(*args, **kwargs)
        key, (input,), (array,), _ = seen
        view = strided_view if type(array) is ndarray else arrays.cuda_room.strided_view
        try:
            found = known[key]
        except KeyError:
            return watched(known, key, front, args, kwargs)
        if type(found) is str:
            return input if found is ITSELF else front(*args, **kwargs)
        geometry = found.geometry
        if type(geometry) is list:
            return several(found.op, input, geometry, (input, *found.values), found)
        # `over`, without the call
        shape, strides, offset = geometry
        storage, base = input._storage or input._shared_storage(), input._base
        recording = not modes.paused or state.grad
        mode = input._view_mode if recording else "inference" if state.inference else "no_grad"
        result = _wrap_view(
            view(array, shape, strides, offset), storage, input if base is None else base, storage.version, mode, input._inference
        )
        if recording and (input._needs or (base is not None and base._needs and input._is_float())):
            record_again(found, result, input)
        if watching:
            note(input, result, found)
        return result

    return with_memory


ITSELF, MORE = "itself", "more"  # what calls come down to that do not make one view: the input is returned, or there is more to do
watching = 0  # how many calls, over all threads, want to know which views are made


def watched(known: dict, key: Any, front: Callable, args: tuple, kwargs: dict):
    """Run `front`, and note in `known` what it came down to: one view of its first argument, that itself, or more."""
    global watching
    outer, state.views_made = state.views_made, []
    watching += 1  # see Note [counting without a lock] in modes.py
    try:
        result = front(*args, **kwargs)
        made = state.views_made
    finally:
        watching -= 1
        state.views_made = outer
    if len(known) > 1000:
        known.clear()
    input = args[0] if args else None
    one_view = len(made) == 1 and made[0][0] is input and made[0][1] is result
    known[key] = made[0][2] if one_view else ITSELF if result is input else MORE
    if outer is not None:
        outer += made
    return result


def note(input: Tensor, result: Tensor | tuple[Tensor, ...], found: Remembered) -> None:
    """Tell whoever wants to know that a view was made."""
    if state.views_made is not None:
        state.views_made.append((input, result, found))


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


def several(op, input: Tensor, geometries: list, values: tuple, known: Remembered | None = None) -> tuple[Tensor, ...]:
    """An operation with many views as its result, such as split."""
    array, storage = input._array, input._storage or input._shared_storage()
    view = strided_view if type(array) is ndarray else arrays.strided_view
    base = input if input._base is None else input._base
    mode = (input._view_mode or "multi") if not modes.paused or state.grad else "inference" if state.inference else "no_grad"
    results = tuple([_wrap_view(view(array, *one), storage, base, storage.version, mode, input._inference) for one in geometries])
    if results and input.requires_grad and input._is_float():
        if known is None or modes.special:
            record_array(op, results, values)
        elif not modes.paused or state.grad:
            record_again(known, results[0], input)
            share(results[0]._node, results)
    if watching:
        note(input, results, Remembered(op, geometries, values[1:]))
    return results
