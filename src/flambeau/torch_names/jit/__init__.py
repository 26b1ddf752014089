"""torch.jit: the marks that TorchScript left in programs. There is no TorchScript here: eager code runs as it is.

Decorators and questions are harmless and work. `script` and `trace` give back what they were given, as PyTorch does under PYTORCH_JIT=0, and say
so once; `load` and `save`, which need TorchScript's files, say that they are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, UnionType
from typing import Any, Final, Union, get_args, get_origin

from flambeau import errors, import_only
from flambeau.futures import Future, finished, wait_all
from flambeau.nn.modules.lazy import LazyModuleMixin
from flambeau.nn.modules.module import Module

__all__ = [
    "Attribute", "Error", "Final", "ScriptFunction", "ScriptModule", "annotate", "export", "fork", "freeze", "ignore", "interface", "is_scripting",
    "is_tracing", "isinstance", "load", "optimize_for_inference", "save", "script", "script_if_tracing", "script_method", "trace", "trace_module", "unused",
    "wait",
]  # fmt: skip


class Error(RuntimeError):
    """What TorchScript would raise."""


class TracerWarning(Warning):
    """What recording a program would warn of, for those who filter it."""


def is_scripting() -> bool:
    """Whether this code is being compiled by TorchScript: no."""
    return False


def is_tracing() -> bool:
    """Whether this code is being recorded: no."""
    return False


# -- marks -------------------------------------------------------------------------------------------------------------------------------


def export(fn: Callable) -> Callable:
    """Mark a method that TorchScript should compile; returned unchanged."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a function that stays Python; returned unchanged. With and without parentheses."""
    return drop if callable(drop) else lambda fn: fn


def _overload(fn: Callable) -> Callable:
    """Mark one of several signatures of a function or method, of which the last is the function; returned unchanged."""
    return fn


_overload_method = _overload


def unused(fn: Callable) -> Callable:
    """Mark a function that TorchScript need not understand; returned unchanged."""
    return fn


def interface(obj: type) -> type:
    """Mark a class that describes modules; returned unchanged."""
    return obj


def script_if_tracing(fn: Callable) -> Callable:
    """Mark a function to be compiled when it is recorded; it never is, so it is returned unchanged."""
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value; its type is for TorchScript."""
    return the_value


class Attribute(tuple):
    """A value of a module with its type, for TorchScript."""

    def __new__(cls, value: Any, type: Any) -> Attribute:
        return super().__new__(cls, (value, type))

    value = property(lambda self: self[0])
    type = property(lambda self: self[1])


_is = isinstance


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type such as list[int] or dict[str, Tensor], what is inside included."""
    kinds = target_type if _is(target_type, tuple) else (target_type,)
    return any(_matches(obj, kind) for kind in kinds)


def _matches(obj: Any, kind: Any) -> bool:
    origin, inside = get_origin(kind), get_args(kind)
    if origin is None:
        return obj is None if kind is None else _is(obj, kind)
    if origin in (Union, UnionType):
        return any(_matches(obj, option) for option in inside)
    if not _is(obj, origin):
        return False
    if origin is dict:
        return all(_matches(k, inside[0]) and _matches(v, inside[1]) for k, v in obj.items())
    if origin is tuple and Ellipsis not in inside:
        return len(obj) == len(inside) and all(map(_matches, obj, inside))
    return all(_matches(item, inside[0]) for item in obj)


# -- what runs as it is --------------------------------------------------------------------------------------------------------------------

_told = False


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """The function, class or module itself: Python runs it."""
    global _told
    if _is(obj, LazyModuleMixin) and obj.has_uninitialized_params():
        raise RuntimeError(f"{type(obj).__name__} has uninitialized parameters: run a forward pass before it is scripted or traced")
    if not _told:
        _told = True
        errors.warn(
            "torch.jit: there is no TorchScript in Flambeau, so what is scripted or traced runs as it is, in Python. Branches are decided at "
            "every call, where a trace would have kept those of its example"
        )
    if _is(obj, FunctionType):
        obj.save = _no_file  # modules say the same about it: see nn/modules/module.py
    return obj


def _no_file(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("there is no TorchScript in Flambeau, and so no file of it: keep the program, and torch.save() its weights")


def trace(func: Any, example_inputs: Any = None, *args: Any, example_kwarg_inputs: dict | None = None, **kwargs: Any) -> Any:
    """The function or module itself, run once on the examples, so that what cannot run fails here. Python decides at every call anew what a
    recording would have decided once."""
    if example_inputs is not None or example_kwarg_inputs is not None:
        given = () if example_inputs is None else example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
        func(*given, **(example_kwarg_inputs or {}))
    return script(func)


def trace_module(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """The module itself."""
    return script(mod)


def freeze(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """The module itself, which must be in evaluation mode, as in PyTorch."""
    if getattr(mod, "training", False):
        raise RuntimeError("freeze: a module that trains would be frozen. Call .eval() first: it must be in eval mode.")
    return script(mod)


def optimize_for_inference(mod: Any, *args: Any, **kwargs: Any) -> Any:
    """The module itself."""
    return script(mod)


def fork(func: Callable, *args: Any, **kwargs: Any) -> Future:
    """A future of func(*args, **kwargs), which has run when this returns, as in PyTorch outside of TorchScript."""
    return finished(func(*args, **kwargs))


def wait(future: Future) -> Any:
    """The result of a fork."""
    return wait_all([future])[0]


# -- what is missing ---------------------------------------------------------------------------------------------------------------------


def _missing(name: str, advice: str) -> Callable:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.jit.{name}: there is no TorchScript in Flambeau. {advice}")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"NotImplementedError: there is no TorchScript. {advice}"
    return function


load = _missing("load", "Save the state_dict() with torch.save instead, and load it into a module made by its class")
save = _missing("save", "Save the state_dict() with torch.save instead")
(_get_trace_graph,) = import_only.functions(
    "torch.jit", "_get_trace_graph", "there are no graphs of TorchScript in Flambeau. torch.utils.flop_counter counts what a model computes"
)


class ScriptModule(Module):
    """The type of compiled modules, for isinstance(). A class that inherits from it is a module like any other."""


class ScriptFunction:
    """The type of compiled functions, for isinstance(): nothing is of this type."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("torch.jit.ScriptFunction: there is no TorchScript in Flambeau. Use the function itself")


def script_method(fn: Callable) -> Callable:
    """Mark a method that TorchScript should compile; returned unchanged."""
    return fn
