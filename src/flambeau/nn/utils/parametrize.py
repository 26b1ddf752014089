"""Parametrizations: a parameter that is computed from others whenever it is read.

`register_parametrization(layer, "weight", Symmetric())` moves the weight to `layer.parametrizations.weight.original` and makes
`layer.weight` a property: Symmetric()(original). The module gets a class of its own for that, ParametrizedLinear, because properties
belong to classes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau import modes
from flambeau.nn.modules.container import ModuleDict, ModuleList
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.making.parameter import Parameter

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip

_cache_enabled = 0
_cache: dict[tuple[int, str], Tensor | None] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Within it, every parametrized tensor is computed once: for models that read one several times in a forward."""
    global _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache.clear()


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Let a parameter or buffer be `parametrization` of what is stored; several are applied in the order they were registered.

    Assigning to it stores parametrization.right_inverse(value), if there is such a method. It may return several tensors, which are then
    the arguments of forward. unsafe: the parametrization may change shape and dtype, and nothing is checked.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        stored: Any = module.parametrizations[tensor_name]
        if not unsafe:
            _check_another(getattr(module, tensor_name), parametrization)
        stored.append(parametrization)
        stored.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        stored = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = stored
    else:
        known = "does not have a parameter, buffer, or something made of such, with name"
        raise ValueError(f"Module '{module}' {known} '{tensor_name}'")
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations, or one of this tensor."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make the tensor an ordinary one again: with its present value, or (leave_parametrized=False) with what was stored."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    stored: Any = module.parametrizations[tensor_name]
    if stored.is_tensor:
        original = stored.original
        if leave_parametrized:
            with modes.no_grad():
                original.data = getattr(module, tensor_name).detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        several = "Cannot leave unparametrized (`leave_parametrized=False`) a tensor made of several: none of them is its value"
        raise ValueError(f"{several}.")
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    _register_parameter_or_buffer(module, tensor_name, original)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class the module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Give one module the parametrizations of another, and the tensors they are stored in."""
    if not is_parametrized(from_module):
        return to_module
    for name in from_module.parametrizations if tensor_name is None else [tensor_name]:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach()))
        stored: Any = from_module.parametrizations[name]
        for parametrization in stored:
            register_parametrization(to_module, name, parametrization)
        copied: Any = to_module.parametrizations[name]
        for original in ["original"] if stored.is_tensor else [f"original{i}" for i in range(stored.ntensors)]:
            setattr(copied, original, getattr(stored, original))
    return to_module


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what it is stored in: `original`, or `original0`, `original1`, ..."""

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        stored: Any = self._invert(original, required=False)
        if not isinstance(stored, (Tensor, Sequence)):
            wanted = "'right_inverse' is to return a Tensor or a Sequence of tensors"
            raise ValueError(f"{wanted}. Got {type(stored).__name__}")
        self.is_tensor = isinstance(stored, Tensor)
        self.ntensors = 1 if self.is_tensor else len(stored)
        if isinstance(stored, Tensor):
            for quality, mine, other in (("dtype", stored.dtype, original.dtype), ("device", stored.device, original.device)):
                if mine != other:
                    raise ValueError(f"When `right_inverse` outputs one tensor, it may not change the {quality}: {other} became {mine}")
            _set(original, stored)
            _register_parameter_or_buffer(self, "original", original)
        else:
            for i, tensor in enumerate(stored):
                if not isinstance(tensor, Tensor):
                    wanted = "'right_inverse' is to return a Tensor or a Sequence of tensors"
                    raise ValueError(f"{wanted}. Got element {i} of the sequence with type {type(tensor).__name__}.")
                if isinstance(original, Parameter):
                    tensor = Parameter(tensor, original.requires_grad)
                tensor.requires_grad_(original.requires_grad)
                _register_parameter_or_buffer(self, f"original{i}", tensor)
        if not unsafe:
            _check_unchanged(self(), shape, dtype)

    def _originals(self) -> list[Tensor]:
        return [self.original] if self.is_tensor else [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def _invert(self, value: Any, required: bool) -> Any:
        """What has to be stored so that the tensor becomes `value`."""
        with modes.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        value = module.right_inverse(value)
                    except NotImplementedError:
                        if required:
                            raise
                elif required:
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
        return value

    def right_inverse(self, value: Tensor) -> None:
        """Store what makes the tensor `value`: called when it is assigned to."""
        stored = self._invert(value, required=True)
        if self.is_tensor:
            if not isinstance(stored, Tensor):
                raise ValueError(f"`right_inverse` should return a tensor. Got {type(stored).__name__}")
            stored = [stored]
        elif not isinstance(stored, Sequence):
            raise ValueError(f"'right_inverse' must return a sequence of tensors, found {type(stored)}.")
        elif len(stored) != self.ntensors:
            raise ValueError(f"'right_inverse' must return a sequence of tensors, {self.ntensors} as before, found {len(stored)}.")
        for i, (original, tensor) in enumerate(zip(self._originals(), stored, strict=True)):
            if not isinstance(tensor, Tensor):
                raise ValueError(f"`right_inverse` must return a sequence of tensors, and element {i} is of type {type(tensor).__name__}")
            if tensor.dtype != original.dtype:
                raise ValueError(f"The tensor returned by `right_inverse` has dtype {tensor.dtype}, the stored one {original.dtype}")
            _set(original, tensor)

    def forward(self) -> Tensor:
        result = self[0](*self._originals())
        for module in list(self)[1:]:
            result = module(result)
        return result


def _register_parameter_or_buffer(module: Module, name: str, X: Tensor) -> None:
    if isinstance(X, Parameter):
        module.register_parameter(name, X)
    else:
        module.register_buffer(name, X)


def _set(tensor: Tensor, value: Tensor) -> None:
    """Let a stored tensor be the same memory as `value`, staying the same object, which optimizers hold."""
    if tensor is not value:
        tensor.data = value.detach()


def _check_another(now: Tensor, parametrization: Any) -> None:
    """A further parametrization keeps dtype and shape, and so does its inverse."""
    result = parametrization(now)
    _check_unchanged(result, now.shape, now.dtype)
    if hasattr(parametrization, "right_inverse"):
        try:
            back = parametrization.right_inverse(result)
        except NotImplementedError:
            return
        if not isinstance(back, Tensor):
            raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
        for quality in ("dtype", "shape"):
            mine, other = getattr(back, quality), getattr(now, quality)
            if mine != other:
                raise ValueError(
                    f"What parametrization.right_inverse returns must have the same {quality} as the tensor: {mine} is not {other}"
                )


def _check_unchanged(found: Any, shape: Any, dtype: Any) -> None:
    if not isinstance(found, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(found).__name__}.")
    for quality, mine, other in (("dtype", found.dtype, dtype), ("shape", found.shape, shape)):
        if mine != other:
            raise ValueError(
                f"Registering a parametrization may not change the {quality} of the tensor, {other}, to {mine}: only with unsafe=True"
            )


def _inject_new_class(module: Module) -> None:
    """Give the module a class of its own, on which its properties can live."""
    cls = type(module)

    def deepcopy(self: Any, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        replica = memo[id(self)] = self.__new__(type(self))
        replica.__setstate__(copy.deepcopy(Module.__getstate__(self), memo))
        return replica

    def getstate(self: Any) -> Any:
        raise RuntimeError("Serialization of parametrized modules is only possible by their state_dict(): save and load that instead")

    members: dict[str, Any] = {"__getstate__": getstate}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Module, tensor_name: str) -> None:
    def get(self: Any) -> Tensor:
        stored = self.parametrizations[tensor_name]
        if not _cache_enabled:
            return stored()
        key = (id(self), tensor_name)
        if key not in _cache:
            _cache[key] = stored()
        return _cache[key]

    def put(self: Any, value: Tensor) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, put))
