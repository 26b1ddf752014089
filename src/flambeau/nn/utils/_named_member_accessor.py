"""torch.nn.utils._named_member_accessor: tensors of a module by their paths, to be read, exchanged and taken out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.parameter import Parameter


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


_MISSING: Any = _Missing()  # stands for a tensor that is not there


def set_tensor(module: Module, name: str, tensor: Tensor) -> None:
    """Put a tensor in the place of a parameter, a buffer or an attribute of this name."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_tensor(module: Module, name: str, tensor: Tensor, allow_missing: bool = False) -> Tensor:
    """Put a tensor in the place of another, and return that one. A buffer stays a buffer, a parameter's place stays a parameter's."""
    if not isinstance(module, Module):
        raise TypeError(f"{module} is not an instance of torch.nn.Module")
    if tensor is not _MISSING and tensor is not None and not isinstance(tensor, Tensor):
        raise TypeError(f"{tensor} is not an instance of torch.Tensor")
    if "." in name or not name:
        raise KeyError(f"tensor name can't be empty, and can't contain \".\", found {name!r}: a path is for a NamedMemberAccessor")
    home: dict[str, Any] = next((home for home in (module._parameters, module._buffers) if name in home), vars(module))
    before: Any = home.get(name, _MISSING)
    if home is vars(module):
        before = getattr(module, name, _MISSING)
        if before is _MISSING and not allow_missing:
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        if before is not _MISSING and before is not None and not isinstance(before, Tensor):
            raise TypeError(f"attribute `{name}`: {before} is not an instance of torch.Tensor")
    if tensor is _MISSING:
        home.pop(name, None)
    elif home is vars(module) and isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        home[name] = tensor
    return before


def swap_submodule(module: Module, name: str, submodule: Module) -> Module:
    """Put a module in the place of another, and return that one."""
    for given in (module, submodule):
        if not isinstance(given, Module):
            raise TypeError(f"{given} is not an instance of torch.nn.Module")
    before = module._modules.get(name)
    if before is None:
        raise KeyError(f"submodule {name!r} does not exist in {module._get_name()}")
    module._modules[name] = submodule
    return before


class NamedMemberAccessor:
    """The tensors of a module and of those in it, by path.

    >>> from flambeau import nn
    >>> NamedMemberAccessor(nn.Sequential(nn.Linear(2, 3))).get_tensor("0.bias").shape
    torch.Size([3])
    """

    def __init__(self, module: Module) -> None:
        self.module = module

    def get_submodule(self, name: str) -> Module:
        """The module of a path."""
        return self.module.get_submodule(name)

    def _place(self, path: str) -> tuple[Module, str]:
        home, _, name = path.rpartition(".")
        return self.get_submodule(home), name

    def swap_submodule(self, path: str, value: Module) -> Module:
        """Put a module in the place of another, and return that one."""
        return swap_submodule(*self._place(path), value)

    def get_tensor(self, name: str) -> Tensor:
        """The tensor of a path."""
        home, short = self._place(name)
        found = getattr(home, short)
        if found is not None and not isinstance(found, Tensor):
            raise TypeError(f"{found} is not an instance of torch.Tensor")
        return found

    def set_tensor(self, name: str, value: Tensor) -> None:
        """Put a tensor there."""
        set_tensor(*self._place(name), value)

    def del_tensor(self, name: str) -> None:
        """Take a tensor out."""
        swap_tensor(*self._place(name), _MISSING)

    def swap_tensor(self, name: str, value: Tensor, allow_missing: bool = False) -> Tensor:
        """Put a tensor there, and return what was there."""
        return swap_tensor(*self._place(name), value, allow_missing=allow_missing)

    def get_tensors(self, names: Iterable[str]) -> list[Tensor]:
        """The tensors of these paths."""
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names: Iterable[str], values: Iterable[Tensor]) -> None:
        """Put tensors there, one for each path."""
        self.set_tensors_dict(_pairs(names, values))

    def set_tensors_dict(self, named_tensors: dict[str, Tensor]) -> None:
        """Put tensors where their names say."""
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def del_tensors(self, names: Iterable[str]) -> None:
        """Take tensors out."""
        for name in names:
            self.del_tensor(name)

    def swap_tensors(self, names: Iterable[str], values: Iterable[Tensor], allow_missing: bool = False) -> list[Tensor]:
        """Put tensors there, and return what was there."""
        return [self.swap_tensor(name, value, allow_missing) for name, value in _pairs(names, values).items()]

    def swap_tensors_dict(self, named_tensors: dict[str, Tensor], allow_missing: bool = False) -> tuple[dict[str, Tensor], list[str]]:
        """Put tensors where their names say: (what was there, the names where nothing was). If one cannot be put, all are as before."""
        before: dict[str, Tensor] = {}
        try:
            for name, value in named_tensors.items():
                before[name] = self.swap_tensor(name, value, allow_missing=True)
            missing = [name for name, value in before.items() if value is _MISSING]
            if missing and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, missing))}.")
        except Exception:
            for name, value in before.items():
                self.swap_tensor(name, value, allow_missing=True)
            raise
        return before, missing

    def check_keys(self, keys: Iterable[str]) -> tuple[list[str], list[str]]:
        """(tensors of the module that are not among these names, names of which it has no tensor)."""
        given, own = set(keys), {name for name, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(own - given), sorted(given - own)

    def named_parameters(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        """The parameters with their paths."""
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        """The buffers with their paths."""
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Tensor]]:
        """Both."""
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True) -> Iterable[tuple[str, Module]]:
        """The modules with their paths."""
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)


def _pairs(names: Iterable[str], values: Iterable[Tensor]) -> dict[str, Tensor]:
    names, values = list(names), list(values)
    if len(names) != len(values):
        raise ValueError(f"names and values must have the same length, found {len(names)} and {len(values)}")
    return dict(zip(names, values, strict=True))
