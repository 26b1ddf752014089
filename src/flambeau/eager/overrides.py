"""`__torch_function__`: subclasses of Tensor, and foreign classes, that want a say in every operation."""

from __future__ import annotations

from flambeau.autograd import modes
from flambeau.tensor import PLAIN, Tensor


def has_override(value) -> bool:
    """Whether this argument's class defines its own `__torch_function__`."""
    kind = type(value)
    if kind in PLAIN or kind in _WITHOUT:
        return False
    function = getattr(kind, "__torch_function__", None)
    return function is not None and function is not disabled_torch_function


_WITHOUT: set[type] = {int, float, bool, complex, str, tuple, list, dict, type(None), slice}


def needed(values) -> bool:
    """Whether a function mode is active or an argument overrides operations."""
    state = modes.state
    if modes.special:
        if state.function_modes:
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


def call(function, relevant, args, kwargs):
    """Ask the modes, then the arguments' classes (subclasses before their parents), for the result."""
    state = modes.state
    types, candidates = overloaded(relevant)
    if state.function_modes:
        mode = state.function_modes.pop()
        try:
            return mode.__torch_function__(function, types, args, kwargs)
        finally:
            state.function_modes.append(mode)
    for value in candidates:
        result = type(value).__torch_function__(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
    names = ", ".join(t.__name__ for t in types)
    raise TypeError(
        f"no implementation found for '{getattr(function, '__name__', function)}' on types that implement __torch_function__: [{names}]"
    )


def overloaded(relevant) -> tuple[tuple[type, ...], list]:
    """The overriding types and one argument of each, a subclass before the class it derives from."""
    found: list = []
    types: list[type] = []
    for value in relevant:
        for item in value if isinstance(value, (list, tuple)) else (value,):
            kind = type(item)
            if has_override(item) and kind not in types:
                at = next((i for i, other in enumerate(types) if issubclass(kind, other)), len(types))
                types.insert(at, kind)
                found.insert(at, item)
    return tuple(types), found


class DisableTorchFunctionSubclass:
    """Within it, `__torch_function__` of subclasses is not consulted."""

    def __enter__(self):
        self.before = modes.state.function_disabled
        modes.state.function_disabled = True
        modes.enter()

    def __exit__(self, *exc) -> None:
        modes.state.function_disabled = self.before
        modes.leave()


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
    if cls is Tensor or getattr(func, "__name__", "") in _KEEP_PLAIN:
        return result
    return convert(result, cls)


_KEEP_PLAIN = {"backward", "__get__"}


def convert(result, cls):
    """`result` with tensors in it turned into the subclass."""
    if isinstance(result, Tensor) and not isinstance(result, cls):
        return result.as_subclass(cls)
    if isinstance(result, (tuple, list)):
        items = [convert(r, cls) for r in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result


Tensor.__torch_function__ = classmethod(default_torch_function)
PLAIN.add(Tensor)
