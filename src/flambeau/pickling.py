"""Copies of tensors by Python's protocols: pickle, copy.copy and copy.deepcopy.

A tensor is pickled as a window on its storage, so that tensors that share memory still share it when they come back (within one pickle, or
one deepcopy), and views keep their strides. History is never pickled. The functions and their arguments are PyTorch's, because its
checkpoint files name them.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

from flambeau import dtypes
from flambeau.tensor import Tensor, wrap
from flambeau.untyped_storage import TypedStorage, UntypedStorage, typed_storage, window

# What a tensor keeps in its __dict__ for itself; everything else there was put by the user.
OWN = frozenset(n for n, v in vars(Tensor).items() if n.startswith("_") and not n.startswith("__") and not callable(v))


def attributes(tensor: Tensor) -> dict[str, Any]:
    """What the user attached to a tensor."""
    return {name: value for name, value in vars(tensor).items() if name not in OWN}


def rebuild(storage: Any, storage_offset: int, size, stride, dtype: dtypes.dtype) -> Tensor:
    """A tensor that is a window on a storage."""
    untyped: UntypedStorage = storage.untyped()
    tensor = wrap(window(untyped._storage, dtype, storage_offset, tuple(size), tuple(stride)))
    tensor._storage = untyped._storage
    return tensor


def _rebuild_tensor(storage: TypedStorage, storage_offset: int, size, stride) -> Tensor:
    return rebuild(storage, storage_offset, size, stride, storage.dtype)


def _rebuild_tensor_v2(storage: TypedStorage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None) -> Tensor:
    return _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, storage.dtype)


def _rebuild_tensor_v3(storage: Any, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None) -> Tensor:
    tensor = rebuild(storage, storage_offset, size, stride, dtype)
    tensor._needs = bool(requires_grad)
    return tensor


def _rebuild_from_type_v2(function, new_type: type, args: tuple, state) -> Tensor:
    """A tensor of a subclass, or with attributes."""
    tensor = function(*args)
    if type(tensor) is not new_type:
        tensor = tensor.as_subclass(new_type)
    if new_type.__setstate__ is not Tensor.__setstate__:
        tensor.__setstate__(state)
    elif state:
        vars(tensor).update(state if isinstance(state, dict) else {k: v for part in state if part for k, v in part.items()})
    return tensor


def _reduce_ex(self: Tensor, protocol: int):
    args: tuple = (typed_storage(self), self.storage_offset(), tuple(self.shape), self.stride(), self.requires_grad, OrderedDict())
    state: Any = attributes(self)
    if type(self) is Tensor and not state:
        return _rebuild_tensor_v2, args
    own = type(self).__getstate__
    if own is not getattr(object, "__getstate__", None) and own is not Tensor.__getstate__:
        state = self.__getstate__()
    return _rebuild_from_type_v2, (_rebuild_tensor_v2, type(self), args, state)


def _setstate(self: Tensor, state: tuple) -> None:
    """PyTorch's old form of state: the window, and with it the gradient and hooks of a leaf."""
    if not self.is_leaf:
        raise RuntimeError("__setstate__ can be only called on leaf Tensors")
    if len(state) == 4:
        self.set_(*state)
        return
    if len(state) == 5:
        self.data, state = state[0], (state[3], state[4], state[2])
    self._needs = bool(state[0])


def _deepcopy(self: Tensor, memo: dict) -> Tensor:
    if not self.is_leaf:
        only = "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol"
        raise RuntimeError(f"{only}, not results of operations (of weight_norm, in a module). Try x.detach().clone() for the values.")
    if id(self) in memo:
        return memo[id(self)]
    storage = self.untyped_storage().__deepcopy__(memo)
    result = rebuild(storage, self.storage_offset(), self.shape, self.stride(), self.dtype)
    if type(self) is not Tensor:
        result = result.as_subclass(type(self))
    memo[id(self)] = result
    result._needs = self._needs
    if self._grad is not None:
        result._grad = copy.deepcopy(self._grad, memo)
    for name, value in attributes(self).items():
        result.__dict__[name] = copy.deepcopy(value, memo)
    return result


Tensor.__reduce_ex__ = _reduce_ex  # type: ignore[method-assign, assignment]
Tensor.__setstate__ = _setstate
Tensor.__deepcopy__ = _deepcopy
