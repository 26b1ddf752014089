"""`__torch_function__`: subclasses of Tensor, foreign classes and modes that want a say in every operation.

An operation asks `needed(arguments)`, which is False at once for plain tensors, and if it is not, leaves the rest to `call`: the modes are
asked first, then the classes of the arguments, subclasses before their parents. Methods and attributes that are no operations
(`register_hook`, `storage`) ask, too (`members_ask`), but for those that every step of a program uses (`QUICK`): a plain tensor should not
pay for them. Instead a subclass gets members of its own that do, when it is created (`give_members`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial, wraps
from types import FunctionType
from typing import Any

from flambeau import devices, dtypes, modes
from flambeau.ops import ABOVE
from flambeau.tensor import DISPATCHED, PLAIN, Tensor

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
        if asked(values):
            return True
        state.noted = state.inspected = state.passing = False  # whoever had to be asked has been, and lets this one operation through
        return False
    return asked(values)


def asked(values: Iterable) -> bool:
    """Whether a function mode or the class of an argument has a say, above autograd or below it."""
    return overridden(values) or dispatched(values)


def dispatched(values: Iterable) -> bool:
    """Whether a mode or the class of an argument carries operations out: see dispatch/."""
    if modes.special and not state.dispatching:
        return False
    if modes.special and state.dispatch_modes:
        return True
    return bool(DISPATCHED) and any(map(_is_dispatched, values))


def _is_dispatched(value: Any) -> bool:
    kind = type(value)
    return kind in DISPATCHED or (kind in (list, tuple, dict) and any(map(_is_dispatched, value.values() if kind is dict else value)))


def carry_out(function: Callable, args: tuple, kwargs: dict) -> Any:
    """Run a function of tensors as those who carry operations out want it: the room that knows how puts its own here when it is loaded."""
    raise NotImplementedError("dispatch/calls.py has not been loaded")


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
        if state.redispatched:  # this one has been asked about
            state.redispatched = False
            return False
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


class NobodyAnswered(TypeError):
    """All who were asked returned NotImplemented. An operator returns that, too: then it is the other operand's turn."""


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
        told_args, told_kwargs = named(function, args, kwargs)
        try:
            result = mode.__torch_function__(function, types, told_args, told_kwargs)
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
        if _sees_building_blocks(value):
            result = value.__torch_function__(itself, types, args, kwargs)
        else:
            result = value.__torch_function__(function, types, *named(function, args, kwargs))  # of the object: it may be no classmethod
        if result is not NotImplemented:
            return result
    if dispatched(relevant):
        return carry_out(itself, args, kwargs)
    name, found = getattr(function, "__name__", function), ", ".join(t.__name__ for t in types)
    what = "all __torch_function__ handlers returned NotImplemented: no implementation found for types"
    raise NobodyAnswered(f"Multiple dispatch failed for 'torch.{name}'; {what} [{found}]")


def overridable(function: Callable, home: str = "torch") -> Callable:
    """A function of tensors that is no operation, such as torch.numel, and that `__torch_function__` is asked about all the same.
    `home` is the public room it is found in."""

    @wraps(function)
    def asking(*args, **kwargs):
        relevant = (*args, *kwargs.values())
        return call(asking, relevant, args, kwargs) if knows_by_name(relevant) else function(*args, **kwargs)

    asking.__module__ = home
    asking.asks = asking  # type: ignore[attr-defined]
    return asking


# Functions of torch.nn.functional that PyTorch has compiled: who is asked sees them as they were called.
AS_CALLED = frozenset(
    """adaptive_avg_pool1d avg_pool1d avg_pool2d avg_pool3d bilinear channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d
    conv_transpose3d cosine_similarity gelu hardshrink linear logsigmoid native_channel_shuffle one_hot pairwise_distance pdist pixel_shuffle pixel_unshuffle
    prelu scaled_dot_product_attention softplus softshrink""".split()
)


def named(function: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a call as `__torch_function__` is told of them. The functions of torch.nn.functional are Python in PyTorch, and say everything
    that has a default by its name, wherever it came from: programs count on finding it there."""
    op = getattr(function, "op", None)
    if op is None or not op.name.startswith("nn.functional.") or op.short in AS_CALLED or function.__name__ != op.short:
        return args, kwargs
    if not hasattr(op, "spoken"):
        op.spoken = inspect.signature(op.forward)
    try:
        bound = op.spoken.bind(*args, **kwargs)
    except TypeError:
        return args, kwargs  # the function itself will say what is wrong
    bound.apply_defaults()
    parameters = op.spoken.parameters.values()
    first = [p.name for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return tuple([bound.arguments[name] for name in first]), {name: value for name, value in bound.arguments.items() if name not in first}


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


QUICK = frozenset(
    """size stride dim numel __len__ is_contiguous data_ptr is_floating_point is_complex requires_grad_ detach item __float__ __int__
    __bool__ __getitem__ __setitem__ __delitem__ __invert__ shape ndim dtype device is_cuda is_cpu is_meta requires_grad is_leaf
    grad_fn grad data layout T _version""".split()
)


GIVES_TENSORS = frozenset(
    "requires_grad_ detach __getitem__ __setitem__ __delitem__ __invert__ grad data T".split()
)  # Tensor's own answer wraps these


def _members() -> Iterable[tuple[str, Any]]:
    """The methods and attributes of Tensor that are no operations, and that are asked about."""
    for name, member in list(vars(Tensor).items()):
        public = not name.startswith("_") or name.startswith("__") or name in ("_version", "_is_view")
        is_member = isinstance(member, property) or (callable(member) and hasattr(member, "__get__"))
        if public and is_member and name not in _OWN_BUSINESS and not hasattr(member, "op") and not hasattr(member, "asks"):
            yield name, member


def members_ask() -> None:
    """Let the members of Tensor ask, and be known by the names they have there. Runs once, at import."""
    for name, member in _members():
        if isinstance(member, property):
            if name not in QUICK:
                setattr(Tensor, name, _property(member, name, asked=knows_by_name))
            elif member.fget.__name__ != name:
                setattr(Tensor, name, property(_called(name, member.fget), member.fset, member.fdel, member.__doc__))
        elif name not in QUICK:
            setattr(Tensor, name, _asking(member, name, asked=knows_by_name))
        elif member.__name__ != name:
            setattr(Tensor, name, _called(name, member))


def give_members(cls: type) -> None:
    """Give a new subclass of Tensor its own form of the members that do not ask."""
    if getattr(cls, "__torch_function__", None) is disabled_torch_function:
        return
    carries_out = getattr(cls, "_sees_building_blocks", False)
    usual = getattr(cls.__torch_function__, "__func__", None) is default_torch_function
    for name, member in _members():
        if (
            (name in QUICK or carries_out) and (not usual or name in GIVES_TENSORS) and _inherited(cls, name) is member
        ):  # else the class, or a parent of it, has its own
            told = partial(_itself, member)
            setattr(cls, name, _property(member, name, member) if isinstance(member, property) else _asking(member, name, told))


def _itself(value: Any) -> Any:
    return value


def _inherited(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _called(name: str, function: Any) -> FunctionType:
    """The function once more, under a name of its own."""
    same = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    same.__kwdefaults__, same.__doc__ = function.__kwdefaults__, function.__doc__
    return same


def _property(attribute: property, name: str, told: property | None = None, asked: Callable = overridden) -> property:
    """The attribute, after whoever overrides it, who is told of `told.__get__` and its like: of what Tensor has under this name."""

    def part(which: str, function: Callable | None) -> Callable | None:
        return function and _asking(getattr(attribute, which), name, lambda: getattr(told or own, which), asked)

    parts = ("__get__", attribute.fget), ("__set__", attribute.fset), ("__delete__", attribute.fdel)
    read, write, remove = [part(*p) for p in parts]
    own = property(read, write, remove, attribute.__doc__)
    return own


def _asking(function: Callable, name: str, told: Callable[[], Callable] | None = None, asked: Callable = overridden) -> Callable:
    """`function`, after whoever overrides it, who is told of `told()`: of what this gives, if it is not given."""

    def member(self, *args, **kwargs):
        if modes.special or args or kwargs or type(self) not in PLAIN:
            relevant = (self, *args, *kwargs.values())
            if asked(relevant):
                return call(told() if told else member, relevant, (self, *args), kwargs)
        return function(self, *args, **kwargs)

    member.__name__, member.__qualname__, member.__doc__ = name, f"Tensor.{name}", function.__doc__
    return member


def _init_subclass(cls, **options) -> None:
    super(Tensor, cls).__init_subclass__(**options)
    meet(cls)


def meet(cls: type[Tensor]) -> None:
    """See what a subclass wants a say in. Called when the class is made; or with its first tensor, if an `__init_subclass__` of the program's own
    stands in the way and does not call Tensor's."""
    if "_met" in vars(cls) or cls is Tensor:
        return
    cls._met = True  # type: ignore[attr-defined]
    if getattr(cls.__torch_dispatch__, "__func__", cls.__torch_dispatch__) is not plain_dispatch:
        members = ABOVE["dispatch"]()  # loaded now: such classes are rare
        DISPATCHED.add(cls)
        if getattr(cls.__torch_function__, "__func__", None) is default_torch_function:  # it works below, on what is asked for there
            cls.__torch_function__ = disabled_torch_function
        members.give_members(cls)
    give_members(cls)


def plain_dispatch(cls, func, types, args=(), kwargs=None):
    """Tensor's own `__torch_dispatch__`: run the operation on the memory that the tensors have."""
    with on_memory():
        return func(*_memories(args), **{name: _memories(value) for name, value in (kwargs or {}).items()})


def _memories(value: Any) -> Any:
    """Tensors over memory whose class is asked for the geometry, as plain ones (see dispatch/wrapper.py)."""
    if isinstance(value, Tensor):
        return value.__dict__.get("_memory", value)
    return type(value)(map(_memories, value)) if type(value) in (list, tuple) else value


class on_memory:
    """Within it no `__torch_dispatch__` is asked: operations run on the memory that tensors have."""

    def __enter__(self) -> None:
        self.before, state.dispatching = state.dispatching, False
        modes.enter()

    def __exit__(self, *exc) -> None:
        modes.leave()
        state.dispatching = self.before


Tensor.__init_subclass__ = classmethod(_init_subclass)  # type: ignore[method-assign, assignment]
Tensor.__torch_function__ = classmethod(default_torch_function)
Tensor.__torch_dispatch__ = classmethod(plain_dispatch)
PLAIN.add(Tensor)
