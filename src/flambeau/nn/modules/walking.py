"""The tree of modules: who is in it, under which name, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from flambeau.tensor import Tensor
from flambeau.tensor.making.parameter import Parameter

if TYPE_CHECKING:
    from flambeau.nn.modules.module import Module


class Walks:
    """The part of Module that lists what is in a tree of modules, and finds it by its path."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]  # of modules, or None; read at run time by typing.get_type_hints, which knows no Module here

    def named_modules(self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(path, module) of this module and all inside it, outer before inner; each once, unless `remove_duplicate` is off."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self  # type: ignore[misc]
        # A stack instead of generators within generators, which would hand every module up through all levels above it. The dictionaries
        # are read as late as a recursion would, because callers replace modules while they walk.
        stack = [(prefix, iter(self._modules.items()))]
        while stack:
            path, rest = stack[-1]
            for name, module in rest:
                if module is None or module in memo:
                    continue
                inner = f"{path}.{name}" if path else name
                if type(module).named_modules is not Walks.named_modules:
                    yield from module.named_modules(memo, inner, remove_duplicate)
                    continue
                if remove_duplicate:
                    memo.add(module)
                yield inner, module
                stack.append((inner, iter(module._modules.items())))
                break
            else:
                stack.pop()

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all inside it."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules registered here, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules registered here."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, get_members_fn: Callable, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        """(path, member) of what `get_members_fn(module)` lists, over all modules."""
        seen = set()
        owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in owners:
            for name, member in get_members_fn(module):
                if member is None or member in seen:
                    continue
                if remove_duplicate:
                    seen.add(member)
                yield f"{path}.{name}" if path else name, member

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter) of everything that is to be learned; a shared parameter once, unless `remove_duplicate` is off."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Everything that is to be learned: what an optimizer is given."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(path, buffer) of the tensors that belong to the modules but are not learned."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The tensors that belong to the modules but are not learned."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def _left_out(self) -> Iterator[tuple[str, str]]:
        """(path of an attribute, what is in it) where modules or parameters lie in a plain list, tuple or dictionary.

        Nobody registers those: they are not in parameters(), do not move with the model and are not saved.
        """
        known = {id(p) for p in self.parameters()}
        for path, module in self.named_modules():
            for name, value in vars(module).items():
                if type(value) not in (list, tuple, dict) or name in ("_parameters", "_buffers", "_modules"):
                    continue
                for item in value.values() if type(value) is dict else value:
                    inside = item.parameters() if isinstance(item, Walks) else [item] if isinstance(item, Parameter) else ()
                    if any(p.requires_grad and id(p) not in known for p in inside):
                        yield f"{path}.{name}" if path else name, f"{type(item).__name__} in a {type(value).__name__}"
                        break

    # -- by path

    def get_submodule(self, target: str) -> Module:
        """The module at a path such as "encoder.layers.3"; the module itself at ""."""
        module: Any = self
        for name in target.split(".") if target else ():
            found = getattr(module, name, None)
            if found is None and not hasattr(module, name):
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`{_known(module)}")
            if not isinstance(found, Walks):
                raise AttributeError(f"`{name}` is not an nn.Module: found {type(found).__name__} in {module._get_name()}")
            module = found
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a path; `strict` allows replacing only what is there already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a name: try 'block.linear'")
        path, _, name = target.rpartition(".")
        parent: Any = self.get_submodule(path)
        if not isinstance(module, Walks):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`{_known(parent)}")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Walks):
            raise AttributeError(f"`{name}` is not an nn.Module: found {type(getattr(parent, name)).__name__}")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as "encoder.fc.weight"."""
        found = self._get_member(target)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{target.rpartition('.')[2]}` is not an nn.Parameter: found {type(found).__name__}")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path such as "encoder.norm.running_mean"."""
        found = self._get_member(target)
        path, _, name = target.rpartition(".")
        if name not in self.get_submodule(path)._buffers:
            raise AttributeError(f"`{name}` is not a buffer: found {type(found).__name__}")
        return found

    def _get_member(self, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`{_known(module)}")
        return getattr(module, name)


def _known(module: Any) -> str:
    """What a module has registered, for an error about something it has not."""
    names = [*module._modules, *module._parameters, *module._buffers]
    return f". It has: {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}" if names else ", and nothing is registered in it"
