"""torch.overrides: asking about, and taking part in, `__torch_function__`.

A library function that wants to be overridable says so in two lines:

    def my_function(x):
        if has_torch_function_unary(x):
            return handle_torch_function(my_function, (x,), x)
        ...

A mode sees every operation and every factory while it is active, whatever its arguments are.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from flambeau import functional, modes
from flambeau.eager import bind, overrides
from flambeau.interpreters import by_name
from flambeau.interpreters.by_name import NOWRAP, overridden
from flambeau.tensor import Tensor

__all__ = [
    "enable_reentrant_dispatch", "get_ignored_functions", "get_overridable_functions", "get_testing_overrides", "handle_torch_function",
    "has_torch_function", "is_tensor_like", "is_tensor_method_or_property", "redispatch_function", "resolve_name", "wrap_torch_function",
]  # fmt: skip

state = modes.state


class TorchFunctionMode:
    """A context in which every operation is first offered to `__torch_function__` of this object.

    >>> class Counting(TorchFunctionMode):
    ...     calls = 0
    ...     def __torch_function__(self, func, types, args=(), kwargs=None):
    ...         self.calls += 1
    ...         return func(*args, **(kwargs or {}))
    >>> with Counting() as counting:
    ...     Tensor([1]) + Tensor([2]) * 3
    tensor([7.])
    >>> counting.calls
    2
    """

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError("a TorchFunctionMode defines __torch_function__(self, func, types, args, kwargs)")

    def __enter__(self):
        if isinstance(getattr(self.__torch_function__, "__self__", None), type):
            what = f"{type(self).__name__}.__torch_function__: as a classmethod is not supported, please make it a plain method"
            raise RuntimeError(f"{what} (def __torch_function__(self, ...)): a mode is an object, and its calls come to that object")
        by_name.push_mode(self)
        return self

    def __exit__(self, *exc) -> None:
        by_name.pop_mode()

    @classmethod
    def push(cls, *args, **kwargs):
        """The same as making one."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


# -- for functions that want to be overridable ---------------------------------------------------------------------


def has_torch_function(relevant_args: Iterable) -> bool:
    """Whether a mode is active or some of the arguments override operations."""
    if not isinstance(relevant_args, (list, tuple)):
        raise TypeError(f"has_torch_function: expected a sequence of arguments, found {type(relevant_args).__name__}")
    return overridden(relevant_args)


def has_torch_function_unary(argument: Any) -> bool:
    """`has_torch_function` of one argument."""
    return overridden((argument,))


def has_torch_function_variadic(*arguments: Any) -> bool:
    """`has_torch_function` of the arguments."""
    return overridden(arguments)


def handle_torch_function(public_api: Callable, relevant_args: Iterable, *args: Any, **kwargs: Any) -> Any:
    """Let the modes and the arguments' classes do what `public_api(*args, **kwargs)` asks for; TypeError if none of them can."""
    return by_name.call(public_api, tuple(relevant_args), args, kwargs)


def wrap_torch_function(dispatcher: Callable) -> Callable:
    """Decorates a function so that it can be overridden; `dispatcher`, called with its arguments, gives those that may override it."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            relevant = tuple(dispatcher(*args, **kwargs))
            if overridden(relevant):
                return by_name.call(wrapped, relevant, args, kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def redispatch_function(func: Callable, types: Iterable[type], args: tuple = (), kwargs: dict | None = None) -> Any:
    """Run a function without asking about it; one that is not ours asks about those that it calls, as ours, which are whole, do not."""
    if hasattr(func, "op") or (getattr(func, "__module__", None) or "torch").partition(".")[0] in ("torch", "flambeau"):
        with by_name.DisableTorchFunction():
            return func(*args, **(kwargs or {}))
    state.redispatched = True
    modes.enter()
    try:
        return func(*args, **(kwargs or {}))
    finally:
        modes.leave()
        state.redispatched = False


@contextlib.contextmanager
def enable_reentrant_dispatch():
    """Within it, subclasses are consulted again, even inside their own `__torch_function__`."""
    before = state.function_disabled, state.modes_disabled
    state.function_disabled = state.modes_disabled = False
    try:
        yield
    finally:
        state.function_disabled, state.modes_disabled = before


_enable_torch_function = enable_reentrant_dispatch


# -- questions -----------------------------------------------------------------------------------------------------


def is_tensor_like(inp: Any) -> bool:
    """Whether something is a tensor, or has a `__torch_function__` and so can stand for one."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def get_default_nowrap_functions() -> set[Callable]:
    """Functions whose results keep their type when Tensor's own `__torch_function__` runs them."""
    return NOWRAP


@functools.cache
def _by_namespace() -> dict[Any, list[Callable]]:
    bind.everything()
    flambeau = sys.modules["flambeau"]  # the door itself, which is above this room
    found: dict[Any, list[Callable]] = {flambeau: [], Tensor: []}
    for name, function in bind.functions.items():
        home = "functional" if name in functional.__all__ else name.rpartition(".")[0]
        namespace = import_module(f"flambeau.{home}") if home else flambeau
        found.setdefault(namespace, []).append(function)
    for room in (flambeau, flambeau.nn.init):
        members = [getattr(room, name) for name in dir(room)]
        found.setdefault(room, []).extend([f for f in members if f is not None and getattr(f, "asks", None) is f and not _hidden(f)])
    for name, member in vars(Tensor).items():
        if isinstance(member, property):
            found[Tensor].append(member.__get__)
        elif callable(member) and (not name.startswith("_") or name.startswith("__")) and name not in overrides._OWN_BUSINESS:
            found[Tensor].append(member)
    return found


def get_overridable_functions() -> dict[Any, list[Callable]]:
    """All functions that `__torch_function__` is asked about, by the namespace they are found in."""
    return {namespace: list(listed) for namespace, listed in _by_namespace().items()}


@functools.cache
def _names() -> dict[Callable, str]:
    bind.everything()
    found: dict[Callable, str] = {}
    for name, member in vars(Tensor).items():
        if isinstance(member, property):
            found[member.__get__] = f"torch.Tensor.{name}.__get__"
        elif callable(member) and (member not in found or name == getattr(member, "__name__", "")):  # __neg__ is neg
            found[member] = f"torch.Tensor.{name}"
    found |= {function: f"torch.{name}" for name, function in bind.functions.items()}
    found |= {bind.functions[name]: f"torch.functional.{name}" for name in functional.__all__ if name in bind.functions}
    return found


def _hidden(function: Callable) -> bool:
    """Whether a function of the package is for libraries that know of it, and in no list."""
    name = getattr(function, "__name__", "")
    return name.startswith("_") and not name.startswith("__") and getattr(function, "__module__", "") == "torch"


def resolve_name(f: Callable) -> str | None:
    """The full name of an overridable function, such as 'torch.add' or 'torch.Tensor.shape.__get__'."""
    return _names().get(f) or _found_by_name(f)


def _found_by_name(f: Callable) -> str | None:
    """The name under which a function that is no operation, such as one that makes tensors, stands in a public room."""
    name = getattr(f, "__name__", "")
    for home in ("", ".nn.functional", ".nn.init"):
        room = sys.modules.get(f"flambeau{home}")
        if not name.startswith("_") and name and getattr(room, name, None) is f:
            return f"torch{home}.{name}"
    return None


def is_tensor_method_or_property(func: Callable) -> bool:
    """Whether the function is reached through a tensor, as a method or as the getter of an attribute."""
    return func in set(_by_namespace()[Tensor]) or getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__")


def get_ignored_functions() -> set[Callable]:
    """Functions that `__torch_function__` is never asked about: they take no tensors, or make them out of other things."""
    flambeau = sys.modules["flambeau"]
    names = """is_tensor is_storage set_default_dtype get_default_dtype manual_seed seed initial_seed get_rng_state set_rng_state
    is_grad_enabled set_grad_enabled no_grad enable_grad inference_mode from_numpy from_dlpack set_printoptions can_cast promote_types
    tensor as_tensor asarray frombuffer from_file broadcast_shapes get_num_threads set_num_threads""".split()
    return {getattr(flambeau, name) for name in names if hasattr(flambeau, name)}


def get_testing_overrides() -> dict[Callable, Callable]:
    """For every overridable function one that takes the same arguments and returns -1."""
    return {function: _standing_in(function) for listed in _by_namespace().values() for function in listed}


def _standing_in(function: Callable) -> Callable:
    """-1, as a function with the parameters of another; an attribute is a function of the tensor."""
    override: Any = lambda *args, **kwargs: -1  # noqa: E731 - it has no name, as PyTorch's have none
    op = getattr(function, "op", None)
    if getattr(function, "__name__", "") == "__get__":
        names, defaults, most = ("self",), {}, 1
    elif op is not None and op.variadic is None:
        names, defaults, most = op.parameters, op.defaults, op.n_positional
    else:
        override.__signature__ = inspect.signature(function)
        return override
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    override.__signature__ = inspect.Signature(
        [inspect.Parameter(n, kinds[i >= most], default=defaults.get(n, inspect.Parameter.empty)) for i, n in enumerate(names)]
    )
    return override


def _get_overloaded_args(relevant_args: Iterable) -> list:
    """One argument of each overriding class, subclasses before their parents."""
    return by_name.overloaded(relevant_args)[1]


def _get_current_function_mode() -> TorchFunctionMode | None:
    return next(reversed(by_name.function_modes()), None)


def _get_current_function_mode_stack() -> list[TorchFunctionMode]:
    return by_name.function_modes()
