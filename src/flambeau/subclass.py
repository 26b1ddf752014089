"""Tensors of other classes over the same memory: as_subclass, _make_subclass."""

from __future__ import annotations

from typing import Any

from flambeau.autograd import modes
from flambeau.eager.overrides import DisableTorchFunctionSubclass
from flambeau.ops.views import _alias
from flambeau.tensor import Tensor, wrap


def make_wrapper_subclass(cls: type, *args, **kwargs) -> Tensor:
    """A tensor without memory that leaves every operation to __torch_dispatch__ of its class."""
    raise NotImplementedError("Tensor._make_wrapper_subclass: Flambeau has no __torch_dispatch__. Try __torch_function__ and as_subclass()")


def as_subclass(self: Tensor, cls: type) -> Tensor:
    """The same memory and history as an instance of a subclass of Tensor."""
    if self.requires_grad and modes.state.grad:
        with DisableTorchFunctionSubclass():
            result = _alias(self)
    else:
        result = self.detach()
    return _turned(result, cls)


def make_subclass(cls: type, data: Tensor, require_grad=False, *, dispatch_sizes_strides_policy=None, dispatch_device=False) -> Tensor:
    """An instance of `cls` over the memory of `data`, a leaf without its history."""
    result = wrap(data._array)
    result._storage = data._shared_storage()
    result = _turned(result, cls)
    return result.requires_grad_() if require_grad else result


def _turned(tensor: Tensor, cls: type) -> Tensor:
    """A new tensor as an instance of `cls`: the same object, or another one in its place where the class has slots of its own."""
    _check(cls)
    try:
        tensor.__class__ = cls
        return tensor
    except TypeError:  # Python turns objects only into those of the same layout
        other: Any = object.__new__(cls)
    for name in Tensor.__slots__:
        if name.startswith("_") and not name.startswith("__"):
            setattr(other, name, getattr(tensor, name))
    other.__dict__.update(tensor.__dict__)
    return other


def _check(cls: type) -> None:
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"Creating a Tensor subclass from a class that does not inherit from Tensor: found {cls!r}")
    if hasattr(cls, "__torch_dispatch__"):  # it would never be called, and the class relies on it
        raise NotImplementedError(f"{cls.__name__}.__torch_dispatch__: operations of Flambeau are not dispatched. Try __torch_function__")


Tensor.as_subclass = as_subclass
Tensor._make_subclass = staticmethod(make_subclass)
Tensor._make_wrapper_subclass = staticmethod(make_wrapper_subclass)
