"""`__torch_function__`: subclasses of Tensor, foreign classes and modes that want a say in every operation.

An operation asks `needed(arguments)`, which is False at once for plain tensors, and if it is not, leaves the rest to `call`: the modes are
asked first, then the classes of the arguments, subclasses before their parents. Methods and attributes that are no operations (`size`,
`shape`, `backward`) do not ask: a plain tensor should not pay for them. Instead a subclass gets members of its own that do, when it is
created (`give_members`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flambeau import devices, dtypes
from flambeau.autograd import modes
from flambeau.tensor import PLAIN, Tensor

state = modes.state
_WITHOUT: set[type] = {int, float, bool, complex, str, tuple, list, dict, type(None), slice, dtypes.dtype, devices.device}


def has_override(value: Any) -> bool:
    """Whether this argument's class defines its own `__torch_function__`."""
    kind = type(value)
    if kind in PLAIN or kind in _WITHOUT:
        return False
    function = getattr(kind, "__torch_function__", None)
    return function is not None and function is not disabled_torch_function


def needed(values: Iterable) -> bool:
    """Whether an operation has to ask somebody before it runs: the profiler, autocast, a function mode, or the class of an argument."""
    if modes.special:
        if state.recorder is not None and not state.noted:
            return True
        if state.anomaly and not state.inspected:
            return True
        if state.autocast is not None and not state.passing:
            return True
        if overridden(values):
            return True
        state.noted = state.inspected = state.passing = False  # whoever had to be asked has been, and lets this one operation through
        return False
    return overridden(values)


def noting(values: tuple) -> Any:
    """The recorder, where it is all there is to ask before an operation without parts: the short way, because profiles are to be cheap."""
    recorder = state.recorder
    if recorder is not None:
        for value in values:  # `any_foreign`, without the call
            kind = type(value)
            if kind not in PLAIN and kind not in _OPTIONS and (kind is not tuple or (value and type(value[0]) is not int)):
                return None
    return recorder


def noted(op: Any, front: Callable, args: tuple, kwargs: dict) -> Any:
    """What short cuts do while a mode is active: if it is only the profiler, the operation runs on its short cut, and is noted; else `front` runs."""
    if modes.special == 1 and not kwargs:
        recorder = noting(args)
        if recorder is not None and recorder.is_whole(op):
            return recorder.run_whole(op.call, op.call, args, kwargs)
    return front(*args, **kwargs)


def overridden(values: Iterable) -> bool:
    """Whether a function mode is active or an argument overrides operations."""
    if modes.special:
        if state.function_modes and not state.modes_disabled:
            return True
        if state.function_disabled:
            return False
    for value in values:
        if type(value) not in PLAIN:
            if isinstance(value, (list, tuple)):
                if any(has_override(v) for v in value):
                    return True
            elif has_override(value):
                return True
    return False


def knows_by_name(values: tuple) -> bool:
    """Whether somebody who looks at names is to be asked: a function mode or a class, but none that carries operations out."""
    if not overridden(values):
        return False
    return bool(state.function_modes and not state.modes_disabled) or not all(map(_sees_building_blocks, overloaded(values)[1]))


def any_foreign(values: Iterable) -> bool:
    """A cheap question before `needed`: whether something among the arguments is neither a plain tensor nor a plain option."""
    for value in values:
        kind = type(value)
        if kind not in PLAIN and kind not in _OPTIONS and (kind is not tuple or (value and type(value[0]) is not int)):
            return True
    return False


_OPTIONS: set[type] = {int, float, bool, complex, str, type(None), dtypes.dtype, devices.device}


def call(function: Callable, relevant: Iterable, args: tuple, kwargs: dict):
    """Ask the modes, then the arguments' classes (subclasses before their parents), for the result. Autocast comes after them, but before
    classes that see building blocks: those carry operations out."""
    if (
        state.recorder is not None
        and not state.noted
        and not state.function_modes
        and hasattr(function, "op")
        and not any_foreign(relevant)
    ):
        return state.recorder.run(function, function.op, args, kwargs)
    if state.autocast is not None and not state.passing and hasattr(function, "op") and not overridden(relevant):
        return state.autocast.run(function, function.op, args, kwargs)  # the usual case, without detours
    itself, function = function, getattr(function, "shown", function)
    types, candidates = overloaded(relevant)
    if state.function_modes and not state.modes_disabled:
        mode = state.function_modes.pop()
        try:
            result = mode.__torch_function__(function, types, args, kwargs)
        finally:
            state.function_modes.append(mode)
        if result is not NotImplemented:
            return result
    if hasattr(itself, "op") and all(map(_sees_building_blocks, candidates)):
        if state.recorder is not None and not state.noted:
            return state.recorder.run(itself, itself.op, args, kwargs)
        if state.anomaly and not state.inspected:
            return _inspected(itself, args, kwargs)
    state.noted = state.inspected = False
    if state.autocast is not None and hasattr(itself, "op"):
        if not state.passing and not any(not _sees_building_blocks(v) for v in candidates):
            return state.autocast.run(itself, itself.op, args, kwargs)
        state.passing = False
    for value in candidates:
        told = itself if _sees_building_blocks(value) else function
        result = value.__torch_function__(told, types, args, kwargs)  # of the object: it may be no classmethod
        if result is not NotImplemented:
            return result
    name, found = getattr(function, "__name__", function), ", ".join(t.__name__ for t in types)
    what = "all __torch_function__ handlers returned NotImplemented: no implementation found for types"
    raise TypeError(f"Multiple dispatch failed for 'torch.{name}'; {what} [{found}]")


def _inspected(function: Callable, args: tuple, kwargs: dict):
    """Anomaly mode: run an operation, and look at its result."""
    from flambeau.autograd import anomaly_forward

    known = anomaly_forward.found.number
    state.inspected = True
    try:
        result = function(*args, **kwargs)
    finally:
        state.inspected = False
    if anomaly_forward.found.number == known:  # else a part of it has been reported, which says more
        anomaly_forward.look(function.op, args, kwargs, result)
    return result


def _sees_building_blocks(value: Any) -> bool:
    return getattr(type(value), "_sees_building_blocks", False)


def overloaded(relevant: Iterable) -> tuple[tuple[type, ...], list]:
    """The overriding types and one argument of each, a subclass before the class it derives from."""
    found: list = []
    types: list[type] = []
    if state.function_disabled:
        return (), []
    for value in relevant:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            kind = type(item)
            if has_override(item) and kind not in types:
                at = next((i for i, other in enumerate(types) if issubclass(kind, other)), len(types))
                types.insert(at, kind)
                found.insert(at, item)
    return tuple(types), found


# -- the default ---------------------------------------------------------------------------------------------------


class DisableTorchFunctionSubclass:
    """Within it, `__torch_function__` of subclasses is not consulted; modes still are."""

    modes_too = False

    def __enter__(self) -> None:
        self.before = state.function_disabled, state.modes_disabled
        state.function_disabled, state.modes_disabled = True, state.modes_disabled or self.modes_too
        modes.enter()

    def __exit__(self, *exc) -> None:
        state.function_disabled, state.modes_disabled = self.before
        modes.leave()


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Within it, neither subclasses nor modes are consulted."""

    modes_too = True


def disabled_torch_function(cls, func, types, args=(), kwargs=None):
    """A `__torch_function__` for classes that want none: results are plain tensors."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


def default_torch_function(cls, func, types, args=(), kwargs=None):
    """Tensor's own: run the operation and give results the subclass's type."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
        return result if func in NOWRAP else convert(result, cls)


NOWRAP: set[Callable] = {Tensor.grad.__get__}  # what belongs to a tensor without being made by it


def convert(result: Any, cls: type) -> Any:
    """`result` with tensors in it turned into the subclass."""
    if cls is Tensor:
        return result
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return result.as_subclass(cls)
    if isinstance(result, (tuple, list)):
        items = [convert(r, cls) for r in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


# -- members of subclasses -----------------------------------------------------------------------------------------

_OWN_BUSINESS = frozenset(
    """__new__ __init__ __init_subclass__ __class__ __dict__ __doc__ __module__ __weakref__ __torch_function__ __getattribute__ __setattr__
    __setstate__ __array_priority__ __hash__ __iter__ as_subclass""".split()
)  # __iter__: PyTorch asks about the unbind in it, whose results then are of the class, and not about the iterator


def give_members(cls: type) -> None:
    """Give a new subclass of Tensor its own form of all methods and attributes that are no operations: they ask `__torch_function__`."""
    if getattr(cls, "__torch_function__", None) is disabled_torch_function:
        return
    for name, member in list(vars(Tensor).items()):
        private = name.startswith("_") and not name.startswith("__")
        if (private and name not in ("_version", "_is_view")) or name in _OWN_BUSINESS or hasattr(member, "op"):
            continue
        if _inherited(cls, name) is not member:
            continue  # the class, or a parent of it, has its own
        if isinstance(member, property):
            setattr(cls, name, _property(member))
        elif callable(member) and hasattr(member, "__get__"):
            setattr(cls, name, _method(member, name))


def _inherited(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _method(function: Callable, name: str) -> Callable:
    if name.startswith("__") and not function.__name__.startswith("__"):
        function.__name__ = function.__qualname__ = name  # so that a __torch_function__ that looks at names finds the one it knows

    member = _asking(function)
    member.__name__ = member.__qualname__ = name
    member.__doc__ = function.__doc__
    return member


def _property(attribute: property) -> property:
    put = _asking(attribute.__set__) if attribute.fset else None
    remove = _asking(attribute.__delete__) if attribute.fdel else None
    return property(_asking(attribute.__get__), put, remove, attribute.__doc__)


def _asking(function: Callable) -> Callable:
    """`function`, after whoever overrides it."""

    def member(self, *args, **kwargs):
        relevant = (self, *args, *kwargs.values())
        if overridden(relevant):
            return call(function, relevant, (self, *args), kwargs)
        return function(self, *args, **kwargs)

    return member


def _init_subclass(cls, **options) -> None:
    super(Tensor, cls).__init_subclass__(**options)
    give_members(cls)


Tensor.__init_subclass__ = classmethod(_init_subclass)  # type: ignore[method-assign, assignment]
Tensor.__torch_function__ = classmethod(default_torch_function)
PLAIN.add(Tensor)
