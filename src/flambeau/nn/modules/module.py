"""Module: a part of a network, with the parameters it learns, the buffers it remembers and the modules it is made of.

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = nn.Linear(784, 128)      # assigned, and so registered
            self.out = nn.Linear(128, 10)

        def forward(self, x):
            return self.out(self.hidden(x).relu())

This file has what every call and every assignment runs through. Listing a tree of modules is in `walking`, saving and loading in `state`,
devices and dtypes in `moving`, hooks in `hooks`; how `self.weight` finds the parameter is in `registry`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from flambeau import errors
from flambeau.nn.modules import error_context, hooks, registry, watched  # noqa: F401  modules are on time lines because of the last
from flambeau.nn.modules.hooks import (  # noqa: F401  where PyTorch's programs look for them
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_hooks_always_called,
    _global_forward_pre_hooks,
    _global_parameter_registration_hooks,
    _has_any_global_hook,
    _WrappedHook,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from flambeau.nn.modules.moving import Moves
from flambeau.nn.modules.registry import Registry
from flambeau.nn.modules.state import _EXTRA_STATE_KEY_SUFFIX, State, _IncompatibleKeys  # noqa: F401
from flambeau.nn.modules.walking import Walks
from flambeau.nn.parameter import Buffer
from flambeau.tensor import Tensor
from flambeau.tensor.making.legacy import typename
from flambeau.tensor.making.parameter import Parameter

__all__ = [
    "Module", "register_module_backward_hook", "register_module_buffer_registration_hook", "register_module_forward_hook",
    "register_module_forward_pre_hook", "register_module_full_backward_hook", "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook", "register_module_parameter_registration_hook",
]  # fmt: skip

_ORDINARY = frozenset({bool, int, float, str, type(None), tuple, list, dict, set})  # what is certainly no tensor and no module
hooks.shared = globals()
_everywhere = hooks.everywhere  # as a global: this is read by every call of every module
# What TorchScript would have added to a module that was scripted or traced.
SCRIPTED = ": a module that torch.jit gave back is the module itself, without TorchScript. Save its state_dict() with torch.save"
_EARLY = "before Module.__init__() call"
# The dictionaries of hooks every module has; those that PyTorch added later are missing in modules pickled before.
_HOOKS = (
    "_backward_pre_hooks", "_backward_hooks", "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)  # fmt: skip


def _forward_unimplemented(self, *input: Any) -> None:
    """What the module computes: every subclass says it here."""
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Module(Walks, State, Moves, hooks.Hooks):
    """Base of everything a network is made of: write `__init__` and `forward`, and call the module as a function."""

    dump_patches = False
    call_super_init = False
    _compiled_call_impl: Any = None
    training: bool
    _non_persistent_buffers_set: set[str]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{next(iter(kwargs))}'")
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        attributes = self.__dict__
        attributes["training"] = True
        for name in registry.NAMES:
            registry.install(self, name, Registry())
        attributes["_non_persistent_buffers_set"] = set()
        attributes["_is_full_backward_hook"] = None
        for name in _HOOKS:
            attributes[name] = OrderedDict()
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    forward: Callable[..., Any] = _forward_unimplemented

    # -- calling

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        attributes = self.__dict__
        try:
            if (
                _everywhere
                or attributes["_forward_hooks"]
                or attributes["_forward_pre_hooks"]
                or attributes["_backward_hooks"]
                or attributes["_backward_pre_hooks"]
            ):
                return self._call_with_hooks(args, kwargs)
            return self.forward(*args, **kwargs) if kwargs else self.forward(*args)
        except Exception as problem:
            if "_forward_hooks" not in attributes:
                missing = "has no attribute '_forward_hooks': call super().__init__() in its __init__, before anything else"
                raise AttributeError(f"'{type(self).__name__}' object {missing}") from None
            error_context.leave(self, problem, args, kwargs)
            raise

    _call_impl = _wrapped_call_impl = __call__

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this module's forward in place. There is no compiler yet: the module runs as it is, and the program is told."""
        errors.warn(
            "Module.compile(): Flambeau has no compiler yet, so the module runs as it is: the results are the same, nothing is fused"
        )

    # -- registering

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under a name; None keeps the place of one that is switched off, such as a missing bias."""
        self._check_name("parameter", name, "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                wanted = "(torch.nn.Parameter or None required). Try torch.nn.Parameter(t)"
                raise TypeError(f"cannot assign '{typename(param)}' object to parameter '{name}' {wanted}")
            if param.grad_fn is not None:
                cure = "Model parameters must be created explicitly: compute what depends on others in forward()"
                raise ValueError(f"Cannot assign non-leaf Tensor to parameter '{name}'. {cure}.")
        for hook in hooks._global_parameter_registration_hooks.values():
            answer = hook(self, name, param) if param is not None else None
            param = param if answer is None else answer
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that moves with the module but is not learned; if it is persistent it is in the state_dict, too."""
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{typename(tensor)}' object to buffer '{name}' (a torch Tensor or None is expected)")
        for hook in hooks._global_buffer_registration_hooks.values():
            answer = hook(self, name, tensor)
            tensor = tensor if answer is None else answer
        self._buffers[name] = tensor
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a module under a name."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{typename(module)} is not a Module subclass")
        self._check_name("module", name, "_modules")
        self._register_child(name, module)

    def register_module(self, name: str, module: Module | None) -> None:
        """The same as add_module."""
        self.add_module(name, module)

    def _register_child(self, name: str, module: Module | None) -> None:
        for hook in hooks._global_module_registration_hooks.values():
            answer = hook(self, name, module)
            module = module if answer is None else answer
        self._modules[name] = module

    def _check_name(self, what: str, name: Any, home: str) -> None:
        entries = self.__dict__.get(home)
        if entries is None:
            raise AttributeError(f"cannot assign {what} {_EARLY}")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {typename(name)}")
        if name not in entries and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')

    # -- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        attributes = self.__dict__
        if type(value) not in _ORDINARY and self._register_by_type(attributes, name, value):
            return
        for home, wanted in (
            ("_parameters", "parameter '{}' (torch.nn.Parameter or None expected). To make it one: torch.nn.Parameter(tensor)"),
            ("_modules", "child module '{}' (a torch.nn.Module or None is expected)"),
            ("_buffers", "buffer '{}' (a torch.nn.Buffer, torch.Tensor or None is expected)"),
        ):
            entries = attributes.get(home)
            if entries is not None and name in entries:
                if value is not None:
                    raise TypeError(f"cannot assign '{typename(value)}' as {wanted.format(name)}")
                if home == "_modules":
                    self._register_child(name, None)
                else:
                    entries[name] = None
                return
        if name in registry.NAMES and isinstance(value, dict):
            registry.install(self, name, value)
            return
        object.__setattr__(self, name, value)
        if name == "__class__":
            registry.mirror_anew(self)

    def _register_by_type(self, attributes: dict, name: str, value: Any) -> bool:
        """Register a parameter, a module or a buffer; False if the value is none of these."""
        if isinstance(value, Module):
            if name in attributes.get("_parameters", ()):
                return False
            self._make_room("module", attributes, name, "_modules")
            self._register_child(name, value)
        elif not isinstance(value, Tensor):
            return False
        elif isinstance(value, Parameter):
            self._make_room("parameters", attributes, name, "_parameters")
            self.register_parameter(name, value)
        elif name in attributes.get("_parameters", ()) or name in attributes.get("_modules", ()):
            return False
        elif isinstance(value, Buffer):
            self._make_room("buffer", attributes, name, "_buffers")
            options: tuple = () if value.persistent else (False,)  # a register_buffer of one's own may know of no `persistent`
            self.register_buffer(name, value, *options)
        elif name in attributes.get("_buffers", ()):
            options = (False,) if name in self._non_persistent_buffers_set else ()
            self.register_buffer(name, value, *options)
        else:
            return False
        return True

    def _make_room(self, what: str, attributes: dict, name: str, home: str) -> None:
        """Forget whatever else has this name."""
        if attributes.get(home) is None:
            raise AttributeError(f"cannot assign {what} {_EARLY}")
        for other in registry.NAMES:
            if other != home:
                attributes[other].pop(name, None)
        if name not in attributes[home]:
            attributes.pop(name, None)
        if home != "_buffers":
            self._non_persistent_buffers_set.discard(name)

    def __getattr__(self, name: str) -> Any:
        # Reached only by what is no attribute: a name that does not exist, a module whose __dict__ was replaced by hand, or a subclass's __getattr__.
        attributes = self.__dict__
        for home in registry.NAMES:
            entries = attributes.get(home)
            if entries and name in entries:
                return entries[name]
        hint = SCRIPTED if name in ("save", "graph", "code") else ""
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}", name=name, obj=self)

    __getattr__.reads_registries = True  # type: ignore[attr-defined]

    def __delattr__(self, name: str) -> None:
        for home in registry.NAMES:
            entries = self.__dict__.get(home)
            if entries and name in entries:
                del entries[name]
                if home == "_buffers":
                    self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        keys = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted({key for key in keys if not key[:1].isdigit()})

    # -- copying

    def __getstate__(self) -> dict:
        state = registry.plain(self.__dict__)
        state.pop("_compiled_call_impl", None)
        return state

    def __setstate__(self, state: dict) -> None:
        attributes = self.__dict__
        attributes.update({name: value for name, value in state.items() if name not in registry.NAMES})
        for name in _HOOKS:
            attributes.setdefault(name, OrderedDict())
        attributes.setdefault("_non_persistent_buffers_set", set())
        attributes.setdefault("_is_full_backward_hook", None)
        for name in registry.NAMES:
            registry.install(self, name, state.get(name, {}))

    def __copy__(self) -> Module:
        # A shallow copy shares the dictionaries, registries included.
        copy = type(self).__new__(type(self))
        for name, value in self.__getstate__().items():
            if name not in registry.NAMES:
                copy.__dict__[name] = value
        for name in registry.NAMES:
            registry.install(copy, name, self.__dict__[name])
        return copy

    def _replicate_for_data_parallel(self) -> Module:
        replica = self.__new__(type(self))
        replica.__dict__.update(registry.plain(self.__dict__))
        for name, entries in (("_parameters", {}), ("_buffers", dict(self._buffers)), ("_modules", dict(self._modules))):
            registry.install(replica, name, Registry(entries))
        replica.__dict__["_is_replica"] = True
        return replica

    # -- showing

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands between the brackets of the repr, besides the modules inside."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        own = extra.split("\n") if extra else []
        inside = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        if len(own) == 1 and not inside:
            return f"{self._get_name()}({own[0]})"
        lines = own + inside
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n" if lines else "") + ")"


def _addindent(text: str, spaces: int) -> str:
    """`text` with every line but the first moved to the right."""
    return text.replace("\n", "\n" + " " * spaces)
