"""The members of Tensor, and functions that are no operations, that ask `__torch_function__`; and `__torch_dispatch__` of new classes.

Operations ask by themselves. Methods and attributes that are no operations (`register_hook`, `storage`) ask, too (`members_ask`), but for those that
every step of a program uses (`QUICK`): a plain tensor should not pay for them. Instead a subclass gets members of its own that do, when it is
created (`give_members`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, wraps
from types import FunctionType
from typing import Any

from flambeau import modes
from flambeau.interpreters.by_name import call, default_torch_function, disabled_torch_function, knows_by_name, overridden
from flambeau.ops import ABOVE
from flambeau.tensor import DISPATCHED, PLAIN, Tensor

state = modes.state


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
