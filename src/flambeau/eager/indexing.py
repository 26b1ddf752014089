"""Running x[index] and x[index] = value.

Ints, slices, None and `...` make a view, and most indices are nothing else: `getitem` asks for the window and makes it. What holds tensors,
lists, arrays or bools takes the long way round through a plan: a view first, then a gather or a scatter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau import dtypes, literals, modes
from flambeau.eager import inplace, plans
from flambeau.eager.record import record_view
from flambeau.eager.views import make, over
from flambeau.interpreters import by_name, calls
from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import gather
from flambeau.kernels.indexing.index_plan import FLAG, Plan, basic_view, plan
from flambeau.kernels.native.native import strided_view
from flambeau.ops.indexing import VIEWS, _index, _index_put, as_index, check_dtypes, lone_mask
from flambeau.ops.masking import _masked_fill, filling
from flambeau.tensor import PLAIN, Tensor, wrap

ORDINARY = PLAIN | {int, float, bool}  # types of values that have no say in how they are written


def _getitem(self: Tensor, index: Any) -> Tensor:
    """x[index]: a view for ints, slices, None and `...`; a copy where the index holds tensors, lists or bools."""
    if modes.special or type(self) not in PLAIN:
        return calls.run_function(getitem, _read, (self, index), {}, (self, index))
    return _read(self, index)


def _read(self: Tensor, index: Any) -> Tensor:
    array = self._array
    if type(array) is np.ndarray:
        if type(index) is list:
            index = _listed(index)
        if type(index) is Tensor and _is_plain_index(index._array, array):
            return _index(self, [index])
        seen = _seen(array, index)
        if seen is not None:
            return _recorded(self, over(self, seen), index, (self, index, None))
        plain = _plain_indices(index, array)
        if plain is not None:
            return _index(self, plain)
    if not modes.special and has_say(_items(index)):
        return calls.run_function(getitem, _read, (self, index), {}, (self, *_items(index)))
    geometry = basic_view(index, array.shape, arrays.element_strides(array), 0)
    if geometry is not None:
        return _window(self, geometry, index)
    wanted = _plan(index, *arrays.view_of(array))
    view = _view(self, wanted, index)
    return _index(view, _indices(self, wanted)) if wanted.indices else view


def _recorded(self: Tensor, result: Tensor, index: Any, values: tuple | None) -> Tensor:
    """The view of an index, with its history."""
    op = VIEWS["select" if type(index) is int else _kind(index)]
    wanted = (self._needs or (result._base._needs and self._is_float())) and (not modes.paused or modes.state.grad)
    if wanted or modes.watching:
        values = values or (self, None, _place(self, index))
    if wanted:
        record_view(op, result, self, values)
    if modes.watching:
        offset = (
            (arrays.data_pointer(result._array) - arrays.data_pointer(self._array)) // self._array.itemsize if result._array.size else 0
        )
        plans.note(plans.VIEWS, op, values, (result,), result, [(*arrays.view_of(result._array), offset)])
    return result


def _place(self: Tensor, index: Any) -> tuple:
    """Which part of a row-major tensor of this shape an index means."""
    shape = self._array.shape
    place = basic_view(index, shape, layout.contiguous_strides(shape), 0)
    if place is None:
        wanted = _plan(index, shape, layout.contiguous_strides(shape))
        place = (wanted.shape, wanted.strides, wanted.offset)
    return place


def _setitem(self: Tensor, index: Any, value: Any) -> None:
    """x[index] = value: a number, or a tensor that broadcasts to x[index]. Leading dimensions of size 1 of the value do not count."""
    if modes.special or type(self) not in PLAIN or type(value) not in ORDINARY:
        calls.run_function(setitem, _write, (self, index, value), {}, (self, index, value))
    else:
        _write(self, index, value)


def _event(self: Tensor, index: Any, value: Any) -> str:
    return "index_put_" if _shown(index) == "index" else "copy_" if isinstance(value, Tensor) else "fill_"


def _write(self: Tensor, index: Any, value: Any) -> None:
    is_tensor = isinstance(value, Tensor)
    if not is_tensor and not isinstance(value, (int, float, complex, np.integer)):
        raise TypeError(f"can't assign a {type(value).__name__} to a torch.Tensor of dtype {self.dtype}. Try torch.as_tensor(value)")
    if index is False:
        return  # PyTorch does not even look whether the value would fit
    if index is True:
        index = None  # a dimension of size 1 in front: x[True] = y copies, and so converts the dtype, where x[mask] = y refuses
    recorded = modes.state.grad and (self.requires_grad or (is_tensor and value.requires_grad))
    array = self._array
    target = _seen(array, index) if type(array) is np.ndarray and not recorded else None
    if target is not None:
        _store(self, target, _fitting(value, target.shape) if is_tensor else value, is_tensor)
        return
    if type(index) is list:
        index = _listed(index)
    if type(index) is Tensor and type(array) is np.ndarray and _is_plain_index(index._array, array):
        _put(self, [index], _fitting(value) if is_tensor else value)
        return
    plain = _plain_indices(index, array)
    if plain is not None:
        _put(self, plain, _fitting(value) if is_tensor else value)
        return
    if not modes.special and has_say(_items(index)):
        calls.run_function(setitem, _write, (self, index, value), {}, (self, *_items(index)))
        return
    geometry = basic_view(index, array.shape, arrays.element_strides(array), 0)
    if geometry is None:
        wanted = _plan(index, *arrays.view_of(array))
        if wanted.indices:
            put = _fitting(value) if is_tensor else value
            _put(_view(self, wanted, index), _indices(self, wanted), put)
            return
        geometry = (wanted.shape, wanted.strides, wanted.offset)
    if is_tensor:
        value = _fitting(value, tuple(geometry[0]))
    if recorded:
        before = plans.mark()
        view = _window(self, geometry, index)
        if 0 in view._array.strides:
            inplace.check_writable("__setitem__", view)
        view.copy_(value) if is_tensor else view.fill_(literals.filling(value, view.dtype))
        again = inplace.rewriting(self) if modes.watching else None
        if again is not None:
            plans.note_whole(before, *_note(self, view._array, value, again))
    else:
        _store(self, arrays.strided_view(array, *geometry), value, is_tensor)


def delitem(self: Tensor, index: Any) -> None:
    """del x[index]: TypeError, elements cannot go."""
    raise TypeError("Tensor does not support deleting items")


getitem: Any = plans.front(_index, _getitem, "plans_of_brackets")
setitem: Any = plans.front(_index_put, _setitem, "plans_of_bracket_writes")
setitem.event = _event
getitem.event = lambda self, index: _shown(index)
for _name, _function in {"__getitem__": getitem, "__setitem__": setitem, "__delitem__": delitem}.items():
    _function.__name__ = _function.__qualname__ = _name
    setattr(Tensor, _name, _function)


# -- the view ----------------------------------------------------------------------------------------------------------


def has_say(values: tuple) -> bool:
    """Whether the class of one of these is to be asked."""
    return by_name.overridden(values) or calls.dispatched(values)


def _items(index: Any) -> tuple:
    """What an index is made of, among which somebody may override indexing."""
    return index if type(index) is tuple else (index,)


def _seen(array: np.ndarray, index: Any) -> np.ndarray | None:
    """array[index] by NumPy, where that is a view with the strides PyTorch gives it: ints, slices without a step and `...`.

    None for everything else: steps, new dimensions (to which NumPy gives stride 0), errors.
    """
    kind = type(index)
    if kind is tuple:
        for item in index:
            kind = type(item)
            if kind is not int and (kind is not slice or item.step is not None) and item is not ...:
                return None
    elif kind is not int and (kind is not slice or index.step is not None):
        return None
    try:
        found = array[index]
        if type(found) is not np.ndarray:  # one element: a view of it, not its value
            found = array[(*index, ...)] if type(index) is tuple else array[index, ...]
    except IndexError:
        return None
    return found


def _window(self: Tensor, geometry: tuple, index: Any) -> Tensor:
    """The part of `self` with this geometry."""
    return _recorded(self, make(self, *geometry), index, None)


def _kind(index: Any) -> str:
    """The name of the view, by the last item that changes anything."""
    if type(index) is int:
        return "select"
    if isinstance(index, slice):
        return "slice"
    for item in reversed(index if isinstance(index, tuple) else (index,)):
        if item is None:
            return "unsqueeze"
        if isinstance(item, slice):
            if item.start is not None or item.stop is not None or item.step is not None:
                return "slice"
        elif item is not ...:
            return "select"
    return "alias"


def _shown(index: Any) -> str:
    """What a profiler calls x[index]."""
    items = index if isinstance(index, tuple) else (index,)
    return _kind(index) if all(i is None or i is ... or isinstance(i, (int, slice)) for i in items) else "index"


def _view(self: Tensor, wanted: Plan, index: Any) -> Tensor:
    """The view of a plan, from which it gathers: `self` if that is all of it, unless the view is the result."""
    shape, strides = arrays.view_of(self._array)
    if wanted.indices and not wanted.offset and (wanted.shape, wanted.strides) == (shape, strides):
        return self
    return _window(self, (wanted.shape, wanted.strides, wanted.offset), index)


# -- index tensors -----------------------------------------------------------------------------------------------------


def _is_plain_index(index, array: np.ndarray) -> bool:
    """Whether x[index] needs no plan: the index is of the two most common kinds, int64 or a mask of the shape of x."""
    if type(index) is not np.ndarray or not index.ndim or not array.ndim:
        return False
    return index.dtype == np.int64 or (index.dtype == np.bool_ and index.shape == array.shape)


def _listed(index: list) -> Any:
    """A list of numbers as an index tensor; any other list as it is."""
    if not index or not all([type(i) is int for i in index]):
        return index
    try:
        return wrap(np.array(index, np.int64))
    except OverflowError:
        raise ValueError(f"Overflow: an index must fit in 64 bits, found {index}") from None


def _plain_indices(index: Any, array) -> list[Tensor | None] | None:
    """The index tensors of x[:, i] or x[i, j], None where a dimension is kept, if the index is of `:` and int64 tensors only."""
    if type(index) is not tuple or type(array) is not np.ndarray or not array.size or len(index) > array.ndim:
        return None
    found: list[Tensor | None] = []
    last = 0
    for item in index:
        if type(item) is slice:
            if item.start is not None or item.stop is not None or item.step is not None:
                return None
            found.append(None)
        elif type(item) is Tensor and type(item._array) is np.ndarray and item._array.dtype == np.int64 and item._array.ndim:
            found.append(item)
            last = len(found)
        else:
            return None
    return found[:last] or None


class _Described:
    """What a plan needs to know of an index tensor."""

    __slots__ = ("dtype_kind", "item", "itemsize", "shape")

    def __init__(self, tensor: Tensor):
        array = tensor._array
        self.shape, self.itemsize, self.item, self.dtype_kind = array.shape, array.itemsize, tensor.item, array.dtype.kind


def _as_tensor(data: Any) -> Tensor:
    """A list, range or array as an index: bool and uint8 stay, all else becomes int64."""
    array = literals.literal(data)
    return wrap(array if array.dtype in (np.bool_, np.uint8) else array.astype(np.int64))


def _plan(index: Any, shape, strides) -> Plan:
    described = lambda item: _Described(item) if isinstance(item, Tensor) else None  # noqa: E731
    return plan(index, tuple(shape), tuple(strides), 0, described, _as_tensor)


def _indices(self: Tensor, wanted: Plan) -> list[Tensor | None]:
    """The index tensors of a plan, on the device of `self`; True and False as the positions [0] and []."""
    found: list[Tensor | None] = []
    for index, kind in zip(wanted.indices, wanted.kinds, strict=True):
        if index is None:
            found.append(None)
            continue
        tensor: Any = wrap(np.arange(int(index))) if kind == FLAG else as_index(index)
        found.append(tensor if type(tensor._array) is type(self._array) else tensor.to(self.device).resolve_neg())
    return found


# -- writing -----------------------------------------------------------------------------------------------------------


def _fitting(value: Tensor, wanted: tuple | None = None) -> Tensor:
    """The value without leading dimensions of size 1, unless it has the shape wanted: x[1:] *= 2 writes a view over itself."""
    shape = value._array.shape
    if not shape or shape[0] != 1 or shape == wanted:
        return value
    skip = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return value.reshape(shape[skip:])


def _store(self: Tensor, target, value: Any, is_tensor: bool) -> None:
    """Write into `target`, an array over part of the memory of `self`, without recording anything."""
    if self._inference or 0 in target.strides:
        inplace.check_writable("__setitem__", over(self, target))
    if not is_tensor:
        arrays.fill(target, literals.filling(value, dtypes.OF_NUMPY[target.dtype]))
    else:
        source = value._array
        if type(source) is not type(target):
            source = arrays.to_device(source, self.device)
        if source.shape != target.shape:
            layout.expand(source.shape, arrays.element_strides(source), target.shape)  # raises, naming the dimension
            source = arrays.copy(source)  # a repeated value may be one of those it is written to
        arrays.write(target, arrays.apart(target, source))
    self._bump()
    if modes.watching and (not is_tensor or type(value._array) is type(target)):
        plans.note(*_note(self, target, value))


def _note(self: Tensor, target, value: Any, recorded: Any = False) -> tuple:
    """For whoever watches: that a number or a tensor was written into `target`, an array over part of the memory of `self`."""
    offset = (arrays.data_pointer(target) - arrays.data_pointer(self._array)) // target.itemsize if target.size else 0
    shape, strides = arrays.view_of(target)
    view, copy, is_tensor = (
        strided_view if type(target) is np.ndarray else arrays.strided_view,
        plans.copying(target),
        isinstance(value, Tensor),
    )
    number = None if is_tensor else literals.filling(value, dtypes.OF_NUMPY[target.dtype])

    def run(out, *source):
        part = view(out, shape, strides, offset)
        copy(part, *source) if is_tensor else arrays.fill(part, number)

    given = (self, value) if is_tensor else (self,)
    return plans.WRITES, plans.Assignment("[]=", run), given, (), self, plans.Write(run, given, recorded=recorded)


def _put(view: Tensor, indices: list, value: Any) -> None:
    """Write a number or tensor to view[indices]."""
    mask = lone_mask(indices)
    is_tensor = isinstance(value, Tensor)
    if mask is not None and not (is_tensor and value.dim()):
        missing = view._array.ndim - mask._array.ndim
        spread = mask.reshape(tuple(mask.shape) + (1,) * missing) if missing else mask
        _masked_fill.call_inplace(view, spread, filling(view, value if is_tensor else literals.filling(value, view.dtype)))
        return
    store = None
    if not is_tensor:
        array = arrays.number(literals.filling(value, view.dtype), view._array, view._array.dtype)
        value = wrap(array)
        if modes.watching and type(array) is np.ndarray:
            simple = len(indices) == 1 and not (modes.state.grad and view.requires_grad)
            store = gather.storing(view._array, indices[0]._array, array.copy()) if simple else None
            if store is None:
                plans.note_made("number", array.copy().copy, value)
    check_dtypes(view, value, indices)
    if modes.state.grad and (view.requires_grad or value.requires_grad):
        _index_put.call_inplace(view, indices, value, False)
        return
    inplace.check_writable(_index_put, view, (view, *indices, value))
    seen = arrays.plain(view._array)
    _index_put.write(seen, [None if i is None else arrays.plain(i._array) for i in indices], arrays.plain(value._array), False)
    if seen is not view._array:
        arrays.write(view._array, seen)
    view._bump()
    if modes.watching and store is not None:
        given = (view, *indices)
        plans.note(plans.WRITES, plans.Assignment("[]=", store), given, (), view, plans.Write(store, given))
    elif modes.watching and seen is view._array:
        plans.note(
            plans.WRITES, _index_put, (view, indices, value, False), (), view, plans.Write(_index_put.write, (view, indices, value, False))
        )
