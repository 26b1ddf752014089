"""What a module has registered: `_parameters`, `_buffers` and `_modules` are Registries.

A Registry is a dictionary that also writes what it holds into the `__dict__` of its module, so that `self.weight` is an ordinary
attribute (30 ns) and not a search through three dictionaries after Python has found nothing (250 ns; a Linear asks twice per call). The
dictionaries stay the truth: whoever writes `module._parameters["weight"] = w`, as many libraries do, is seen by `module.weight`.

A class with a `__getattr__` of its own wants to be asked for every parameter, as PyTorch asks it (Pyro's modules note who uses which): its
modules have no such attributes.
"""

from __future__ import annotations

import weakref
from typing import Any

NAMES = ("_parameters", "_buffers", "_modules")


class Registry(dict):
    """A dictionary mirrored in the attributes of its owners: one module, or several after copy.copy, which shares dictionaries."""

    __slots__ = ("owners",)

    def __init__(self, entries: Any = ()):
        super().__init__(entries)
        self.owners: tuple[weakref.ref, ...] = ()

    def adopt(self, module: Any) -> None:
        """Mirror what is here in the attributes of `module`, too; weakly, so that a module dies with its last user."""
        self.owners = (*[ref for ref in self.owners if ref() is not None], weakref.ref(module))
        for name, value in self.items():
            _mirror(module, name, value)

    def leave(self, module: Any) -> None:
        """Stop doing so."""
        self.owners = tuple(ref for ref in self.owners if ref() is not module)
        attributes = vars(module)
        for name in self:
            attributes.pop(name, None)

    def __setitem__(self, name: str, value: Any) -> None:
        dict.__setitem__(self, name, value)
        for ref in self.owners:
            owner = ref()
            if owner is not None:
                _mirror(owner, name, value)

    def __delitem__(self, name: str) -> None:
        dict.__delitem__(self, name)
        for ref in self.owners:
            owner = ref()
            if owner is not None:
                owner.__dict__.pop(name, None)

    _MISSING = object()

    def pop(self, name: str, default: Any = _MISSING) -> Any:
        if name not in self and default is not Registry._MISSING:
            return default
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self), None)
        if name is None:
            raise KeyError("popitem(): dictionary is empty")
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]

    def update(self, *entries: Any, **more: Any) -> None:
        for name, value in dict(*entries, **more).items():
            self[name] = value

    def __ior__(self, entries: Any) -> Registry:  # type: ignore[override, misc]
        self.update(entries)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    # Copies and pickles are plain dictionaries: a module that gets one makes it its own Registry.
    def __reduce_ex__(self, protocol: Any) -> tuple:
        return dict, (), None, None, iter(self.items())

    def copy(self) -> dict:
        return dict(self)

    __copy__ = copy


def _mirror(module: Any, name: str, value: Any) -> None:
    kind = type(module)
    # A name that the class has too (a method, a property) means that, as it does for PyTorch.
    if not hasattr(kind, name) and getattr(kind.__getattr__, "reads_registries", False):
        module.__dict__[name] = value


def mirror_anew(module: Any) -> None:
    """Its class has changed, and with it what may be mirrored."""
    for name in NAMES:
        registry = module.__dict__.get(name)
        if type(registry) is Registry:
            registry.leave(module)
            registry.adopt(module)


def install(module: Any, name: str, entries: dict | None) -> None:
    """Make `entries` the module's `_parameters`, `_buffers` or `_modules`."""
    attributes = module.__dict__
    before = attributes.get(name)
    if before is entries and entries is not None:
        return
    if type(before) is Registry:
        before.leave(module)
    if entries is None:
        attributes[name] = None
        return
    registry = entries if type(entries) is Registry else Registry(entries)
    attributes[name] = registry
    registry.adopt(module)


def plain(attributes: dict) -> dict:
    """A module's attributes as PyTorch would keep them: registries as plain dictionaries, what they mirror left out."""
    state = dict(attributes)
    for name in NAMES:
        registry = attributes.get(name)
        if isinstance(registry, dict):
            for entry, value in registry.items():
                if state.get(entry) is value:
                    state.pop(entry, None)
    for name in NAMES:
        if type(state.get(name)) is Registry:
            state[name] = dict(state[name])
    return state
