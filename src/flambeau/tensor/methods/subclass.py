"""Tensors of other classes over the same memory: as_subclass, _make_subclass."""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.eager import overrides
from flambeau.interpreters.by_name import DisableTorchFunctionSubclass
from flambeau.kernels.meta import MetaArray
from flambeau.ops.views import _alias
from flambeau.tensor.tensor import DISPATCHED, Tensor, wrap


def make_wrapper_subclass(cls: type, *args, **kwargs) -> Tensor:
    """A tensor without memory that leaves every operation to `__torch_dispatch__` of its class: see dispatch/wrapper.py."""
    from flambeau.dispatch import wrapper

    return wrapper.make_wrapper_subclass(cls, *args, **kwargs)


def as_subclass(self: Tensor, cls: type) -> Tensor:
    """The same memory and history as an instance of a subclass of Tensor."""
    _refuse_wrapper(cls, self)
    with DisableTorchFunctionSubclass(), overrides.on_memory():
        result = _alias(self) if self.requires_grad and modes.state.grad else self.detach()
    return _turned(result, cls)


def make_subclass(
    cls: type, data: Tensor, require_grad=False, *, dispatch_sizes_strides_policy=None, dispatch_device=False, dispatch_layout=False
) -> Tensor:
    """An instance of `cls` over the memory of `data`, a leaf without its history."""
    _refuse_wrapper(cls, data)
    if dispatch_sizes_strides_policy is not None or dispatch_device or dispatch_layout:
        from flambeau.dispatch import wrapper

        policies = dispatch_sizes_strides_policy, dispatch_device, dispatch_layout
        return wrapper.over_memory(cls, data, require_grad, *policies)
    result = wrap(data._array)
    result._storage = data._shared_storage()
    result = _turned(result, cls)
    with DisableTorchFunctionSubclass():
        return result.requires_grad_() if require_grad else result


def _refuse_wrapper(cls: type, data: Tensor) -> None:
    """RuntimeError for a tensor that is nothing but its class: there is no memory that another class could show."""
    if type(data) in DISPATCHED and isinstance(data._array, MetaArray) and hasattr(data._array, "owner"):
        raise RuntimeError(
            f"Creating a new Tensor subclass {cls.__name__} but the raw Tensor object is already associated to a python object of type "
            f"{type(data).__name__}: it has no memory of its own"
        )


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
    overrides.meet(cls)


Tensor.as_subclass = as_subclass
Tensor._make_subclass = staticmethod(make_subclass)
Tensor._make_wrapper_subclass = staticmethod(make_wrapper_subclass)
