"""Names that can be imported and not used: what libraries mention in isinstance(), in annotations and in decorators' arguments.

A class made here can be imported, inherited from, put into annotations and asked by isinstance(), which is always False, truthfully: nothing
of that type exists. Making one, calling a function made here, or asking a class for anything raises NotImplementedError with the name and
the reason. Nothing here is false, empty or silent.

>>> Proxy, = classes("torch.fx", "Proxy", "Flambeau has no graph modules")
>>> isinstance(3, Proxy)
False
>>> Proxy()
Traceback (most recent call last):
NotImplementedError: torch.fx.Proxy can be imported, not used: Flambeau has no graph modules
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


class NothingThere(NotImplementedError, AttributeError):
    """What a class is asked for is missing: hasattr() says so, whoever goes on is told why."""


class ImportOnly(type):
    """The type of classes that exist by name alone."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(cls._refusal)  # type: ignore[attr-defined]

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):  # Python, pickle, typing and inspect ask classes for these
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise NothingThere(cls._refusal)  # type: ignore[attr-defined]

    def __getitem__(cls, item: Any) -> Any:  # in annotations
        return cls

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__qualname__}', import only>"


def fill(home: str, why: str, *, classes: str = "", functions: str = "", of: str = "") -> list[str]:
    """Put such classes and functions into the module `home`: its `__all__`, those without an underscore.

    of  the module of torch that has them, if it is not the one of the same name
    """
    made = of or home.replace("flambeau", "torch", 1)
    found = [*_classes(made, classes, why), *_functions(made, functions, why)]
    vars(sys.modules[home]).update({one.__name__: one for one in found})
    return sorted(one.__name__ for one in found if not one.__name__.startswith("_"))


def classes(module: str, names: str, why: str) -> list[Any]:
    """Classes of these names, in this order, for a module of torch."""
    return [ImportOnly(name, (), {"__module__": module, "_refusal": _refusal(module, name, why)}) for name in names.split()]


def functions(module: str, names: str, why: str) -> list[Callable[..., Any]]:
    """Functions of these names, in this order, for a module of torch."""
    return [_function(module, name, why) for name in names.split()]


_classes, _functions = classes, functions  # for `fill`, whose arguments have these names


def _function(module: str, name: str, why: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(_refusal(module, name, why))

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__module__, refuse.__doc__ = module, f"NotImplementedError: {why}."
    return refuse


def _refusal(module: str, name: str, why: str) -> str:
    return f"{module}.{name} can be imported, not used: {why}"
