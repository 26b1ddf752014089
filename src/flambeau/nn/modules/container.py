"""Containers: modules and parameters in sequence or by name, registered because they are inside."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Self

from flambeau.nn.modules.module import Module, _addindent
from flambeau.tensor import Tensor
from flambeau.tensor.making.legacy import typename
from flambeau.tensor.making.parameter import Parameter

__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Container(Module):
    """Kept for old programs: a module that only holds others."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        warnings.warn("nn.Container is deprecated. All of it's functionality is now implemented in nn.Module.", FutureWarning, stacklevel=2)
        for name, module in kwargs.items():
            self.add_module(name, module)


def _position(index: int, length: int) -> int:
    """A place counted from the front."""
    place = operator.index(index)
    if not -length <= place < length:
        raise IndexError(f"index {place} is out of range: there are {length} modules")
    return place % length


def _renumber(container: Any, modules: Iterable[Module]) -> None:
    """Make `modules` all that is in the container, under the names 0, 1, 2, ..."""
    container._modules = {str(i): module for i, module in enumerate(modules)}


def _visible(container: Any) -> list[str]:
    """What dir() shows: numbers are no attribute names."""
    return [name for name in Module.__dir__(container) if not name.isdigit()]


class _InOrder(Module):
    """What sequences of modules share. These are called 0, 1, 2, ..."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __dir__(self) -> list[str]:
        return _visible(self)

    def append(self, module: Module) -> Self:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self: Any, key: int | slice) -> Any:
        """Take out and return one module, or several as a container of this kind."""
        taken = self[key]
        del self[key]
        return taken


class Sequential(_InOrder):
    """Modules one after another: each is called with what the one before returned.

    >>> from flambeau.nn import Identity
    >>> Sequential(Identity(), Identity())
    Sequential(
      (0): Identity()
      (1): Identity()
    )
    """

    def __init__(self, *args: Any):
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], OrderedDict) else ((str(i), m) for i, m in enumerate(args))
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, idx: slice | int) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return next(islice(self._modules.values(), _position(idx, len(self)), None))

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, list(self._modules)[_position(idx, len(self))], module)

    def __delitem__(self, idx: slice | int) -> None:
        names = list(self._modules)
        for name in names[idx] if isinstance(idx, slice) else [names[_position(idx, len(self))]]:
            delattr(self, name)
        _renumber(self, list(self._modules.values()))

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of class Sequential: found {type(other)}, which append takes.")
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Self:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of class Sequential: found {type(other)}, which append takes.")
        return self.extend(list(other))

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*self).__imul__(other)

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Self:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")
        return self.extend(list(self) * (other - 1))

    def insert(self, index: int, module: Module) -> Self:
        """Put a module before the one at `index`."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}, found {type(module)}")
        length = len(self)
        if not -length <= index <= length:
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index, module)
        _renumber(self, modules)
        return self

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Add several modules at the end."""
        for module in sequential:
            self.append(module)
        return self


class ModuleList(_InOrder):
    """A list of modules. It has no forward: its owner calls the modules as it likes."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _get_abs_string_index(self, idx: Any) -> str:
        return str(_position(idx, len(self)))

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self._modules.values())[idx])
        return self._modules[self._get_abs_string_index(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._get_abs_string_index(idx), module)

    def __delitem__(self, idx: int | slice) -> None:
        modules = list(self)
        del modules[idx if isinstance(idx, slice) else _position(idx, len(self))]
        _renumber(self, modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList((*self, *other))

    def __repr__(self) -> str:
        """As a Module's, with equal neighbours shown once: (0-11): 12 x Block(...)"""
        shown = [repr(module) for module in self]
        if not shown:
            return f"{self._get_name()}()"
        lines, start = [], 0
        for i in range(1, len(shown) + 1):
            if i == len(shown) or shown[i] != shown[start]:
                same = i - start
                line = f"({start}): {shown[start]}" if same == 1 else f"({start}-{i - 1}): {same} x {shown[start]}"
                lines.append(_addindent(line, 2))
                start = i
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    def insert(self, index: int, module: Module) -> None:
        """Put a module before the one at `index`."""
        modules = list(self)
        modules.insert(index, module)
        _renumber(self, modules)

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add several modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with several modules: found {type(modules).__name__}")
        for number, module in enumerate(list(modules), start=len(self)):
            self.add_module(str(number), module)
        return self

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)


class ModuleDict(Module):
    """Modules by name, in the order they were put in."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take everything out."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Take out and return one module."""
        taken = self[key]
        del self[key]
        return taken

    def keys(self) -> Any:
        """The names."""
        return self._modules.keys()

    def items(self) -> Any:
        """Pairs of name and module."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add the modules of a mapping or of pairs, replacing those of the same name."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleDict.update should be called with a dictionary or pairs (name, module), found {type(modules).__name__}")
        for name, module in _pairs("ModuleDict", modules):
            self[name] = module


def _pairs(whose: str, entries: Any) -> Iterator[tuple]:
    """The items of a mapping, or of a sequence of pairs."""
    if isinstance(entries, (Mapping, ModuleDict, ParameterDict)):
        yield from entries.items()
        return
    for place, entry in enumerate(entries):
        if not isinstance(entry, Iterable):
            raise TypeError(f"{whose} update sequence element #{place} should be Iterable; is {type(entry).__name__}")
        entry = tuple(entry)
        if len(entry) != 2:
            raise ValueError(f"{whose} update sequence element #{place} has length {len(entry)}: it is to be a pair of name and value")
        yield entry


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _described(name: Any, value: Any, kind_of: Any) -> str:
    """A line of a list of parameters, whose type is shown as `kind_of(value)`."""
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    size = "x".join(map(str, value.size()))
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    place = f" ({value.device})" if value.device.type not in ("cpu", "meta") else ""
    return f"  ({name}): {kind} containing: [{kind_of(value)} of size {size}{place}]"


class ParameterList(Module):
    """A list of parameters; tensors become parameters when they are put in, other values stay what they are."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _get_abs_string_index(self, idx: Any) -> str:
        place = operator.index(idx)
        if not -len(self) <= place < len(self):
            raise IndexError(f"index {place} is out of range")
        return str(place % len(self))

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)([self[i] for i in range(*idx.indices(len(self)))])
        return getattr(self, self._get_abs_string_index(idx))

    def __setitem__(self, idx: int, param: Any) -> None:
        setattr(self, self._get_abs_string_index(idx), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(len(self))])

    def __iadd__(self, parameters: Iterable[Any]) -> Self:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return _visible(self)

    def append(self, value: Any) -> Self:
        """Add a value at the end."""
        self._size += 1
        self[len(self) - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add several values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with several parameters: found {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_described(i, value, lambda v: v.dtype) for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """Parameters by name, in the order they were put in; tensors become parameters, other values stay what they are."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _key_to_attr(self, key: str) -> str:
        if not isinstance(key, str):
            wanted = "Index given to ParameterDict cannot be used: parameters have names, that are strings"
            raise TypeError(f"{wanted} (found '{type(key).__name__}'). Try str(key).")
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key: str, value: Any) -> None:
        attribute = self._key_to_attr(key)
        self._keys[key] = None
        setattr(self, attribute, _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """Another dictionary of the same parameters."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is set to `default` if it is not there."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take everything out."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take out and return one value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take out and return the last (key, value)."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or `default`."""
        return self[key] if key in self else default  # noqa: SIM401  this is what get means

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dictionary with the same value for all keys."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> Any:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of key and value."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """The values."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Add the entries of a mapping or of pairs, replacing those of the same key."""
        if not isinstance(parameters, Iterable):
            wanted = "ParametersDict.update should be called with a dictionary or pairs (name, parameter)"
            raise TypeError(f"{wanted}, but got {type(parameters).__name__}")
        for key, value in _sorted_pairs(parameters):
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_described(key, value, typename) for key, value in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: ParameterDict) -> ParameterDict:
        combined = self.copy()
        combined.update(other)
        return combined

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        combined = other.copy()
        combined.update(self)
        return combined

    def __ior__(self, other: ParameterDict) -> Self:
        self.update(other)
        return self


def _sorted_pairs(parameters: Any) -> Iterator[tuple]:
    """Pairs in the order they have, except those of plain mappings, which PyTorch sorts."""
    pairs = list(_pairs("ParameterDict", parameters))
    plain = isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict)
    yield from sorted(pairs) if plain else pairs
