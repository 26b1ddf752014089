"""flambeau.nn: modules, what they are made of, and functions on the same subjects.

    functional   operations without parameters        init    starting values of parameters
    modules      one file per subject (linear, ...)   utils   clipping, packing, normalising and pruning parameters

`modules/__init__.py` has the table of layers; they are imported when first asked for.
"""

# ruff: noqa: F401  names are imported to be public

from __future__ import annotations

from importlib import import_module as _import_module

from flambeau.nn import functional, init, modules, parameter
from flambeau.nn.modules import HOMES as _HOMES
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Buffer, Parameter, UninitializedBuffer, UninitializedParameter

__all__ = sorted(
    [*_HOMES, "Buffer", "Module", "Parameter", "UninitializedBuffer", "UninitializedParameter", "factory_kwargs", "functional", "init"]
)
__all__ += ["DataParallel", "modules", "parallel", "parameter", "utils"]
_ROOMS = frozenset({"_reduction", "attention", "common_types", "grad", "parallel", "quantized", "utils"})


def factory_kwargs(kwargs: dict | None) -> dict:
    """The part of a layer's arguments that makes its tensors: device, dtype and memory_format, from `kwargs` or its "factory_kwargs"."""
    given = dict(kwargs or {})
    found = dict(given.pop("factory_kwargs", {}))
    unknown = given.keys() - {"device", "dtype", "memory_format"}
    if unknown:
        raise TypeError(f"unexpected kwargs {sorted(unknown)}: expected device, dtype or memory_format")
    repeated = found.keys() & given.keys()
    if repeated:
        raise TypeError(f"{sorted(repeated)} specified twice, in **kwargs and in factory_kwargs")
    return found | given


def __getattr__(name: str):
    """A layer, or a room of this one, when it is first asked for."""
    if name in _HOMES:
        found = getattr(modules, name)
    elif name == "DataParallel":
        found = _import_module("flambeau.nn.parallel").DataParallel
    elif name in _ROOMS:
        try:
            found = _import_module(f"flambeau.nn.{name}")
        except ModuleNotFoundError as problem:
            if problem.name != f"flambeau.nn.{name}":
                raise
            raise AttributeError(f"module 'flambeau.nn' has no attribute {name!r}: it is not built yet") from None
    else:
        raise AttributeError(f"module 'flambeau.nn' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
