"""Copies of tensors by Python's protocols: pickle, copy.copy and copy.deepcopy.

A tensor is pickled as a window on its storage, so that tensors that share memory still share it when they come back (within one pickle, or
one deepcopy), and views keep their strides. History is never pickled. The functions and their arguments are PyTorch's, because its
checkpoint files name them.
"""

from __future__ import annotations

import copy
import copyreg
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from math import prod
from typing import Any

from flambeau import dtypes, modes
from flambeau.devices import device
from flambeau.kernels.mirrored import turned
from flambeau.tensor.making.factories import empty_strided
from flambeau.tensor.memory.typed_storage import OLD_NAMES, TypedStorage, typed_storage
from flambeau.tensor.memory.untyped_storage import UntypedStorage, window
from flambeau.tensor.tensor import DISPATCHED, Tensor, wrap

# What a tensor keeps in its __dict__ for itself; everything else there was put by the user.
OWN = frozenset(n for n, v in vars(Tensor).items() if n.startswith("_") and not n.startswith("__") and not callable(v))


def attributes(tensor: Tensor) -> dict[str, Any]:
    """What the user attached to a tensor."""
    return {name: value for name, value in vars(tensor).items() if name not in OWN}


def slots(kind: type) -> list[str]:
    """Where a class of tensors keeps what the user attached, beside the __dict__."""
    return [name for name in copyreg._slotnames(kind) if name not in OWN]  # type: ignore[attr-defined]


def _in_slots(tensor: Tensor) -> dict[str, Any]:
    return {name: getattr(tensor, name) for name in slots(type(tensor)) if hasattr(tensor, name)}


def rebuild(storage: Any, storage_offset: int, size, stride, dtype: dtypes.dtype, metadata: dict | None = None) -> Tensor:
    """A tensor that is a window on a storage; `metadata` says whether it is read conjugated or negated."""
    untyped: UntypedStorage = storage._untyped_storage
    check_geometry(storage_offset, size, stride, dtype)
    conj, neg = (bool((metadata or {}).get(name)) for name in ("conj", "neg"))
    seen = turned(window(untyped._storage, dtype, storage_offset, tuple(size), tuple(stride)), conj and dtype.is_complex, neg)
    tensor = wrap(seen)
    tensor._storage = untyped._storage
    return tensor


def metadata(tensor: Tensor) -> dict[str, bool]:
    """What is to be known of a tensor beside its window on a storage."""
    return {name: True for name, is_so in (("conj", tensor.is_conj()), ("neg", tensor.is_neg())) if is_so}


def check_geometry(storage_offset: int, size, stride, dtype: dtypes.dtype) -> None:
    """RuntimeError unless a window has a meaning at all, and numbers that fit a machine word. (`window` looks whether it is inside.)"""
    if len(size) != len(stride) or storage_offset < 0 or any(n < 0 for n in (*size, *stride)):
        raise RuntimeError(f"a tensor cannot have sizes {list(size)}, strides {list(stride)} and storage offset {storage_offset}")
    if prod(n or 1 for n in size) * dtype.itemsize >= 1 << 63 or any(n * dtype.itemsize >= 1 << 63 for n in (storage_offset, *stride)):
        raise RuntimeError(f"a tensor of sizes {list(size)} and strides {list(stride)} has more elements than can be counted")


def _rebuild_tensor(storage: TypedStorage, storage_offset: int, size, stride) -> Tensor:
    return rebuild(storage, storage_offset, size, stride, storage.dtype)


def _rebuild_tensor_v2(storage: TypedStorage, storage_offset, size, stride, requires_grad, backward_hooks, metadata=None) -> Tensor:
    return _rebuild_tensor_v3(storage, storage_offset, size, stride, requires_grad, backward_hooks, storage.dtype, metadata)


def _rebuild_tensor_v3(storage: Any, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata=None) -> Tensor:
    tensor = rebuild(storage, storage_offset, size, stride, dtype, metadata)
    tensor._needs = bool(requires_grad)
    return tensor


def _rebuild_meta_tensor_no_storage(dtype: dtypes.dtype, size, stride, requires_grad: bool) -> Tensor:
    check_geometry(0, size, stride, dtype)
    return empty_strided(tuple(size), tuple(stride), dtype=dtype, device=device("meta"), requires_grad=bool(requires_grad))


elements_come_later: ContextVar[bool] = ContextVar("elements_come_later", default=False)
"""While the object of a file is made whose storages have their bytes only behind it: what depends on elements is not checked yet."""


def _rebuild_sparse_tensor(layout, data: tuple) -> Tensor:
    """A sparse tensor of its parts: (indices, values, size[, is_coalesced]), or (compressed indices, plain indices, values, size)."""
    from flambeau.sparse import making
    from flambeau.tensor import layouts

    checked = not elements_come_later.get()
    if layout is layouts.sparse_coo:
        indices, values, size, *rest = data
        return making.coo(indices, values, size, checked, *rest)
    starts, others, values, size = data
    return making.sparse_compressed_tensor(starts, others, values, size, layout=layout, check_invariants=checked)


def _rebuild_qtensor(storage: Any, storage_offset, size, stride, quantizer_params: tuple, requires_grad, backward_hooks) -> Tensor:
    """A quantized tensor: a window on a storage of integers, and their meaning."""
    from flambeau.tensor.quantized.quantized_tensor import Quantizer, of_integers

    if not isinstance(storage.dtype, dtypes.quantized):
        raise RuntimeError(f"a quantized tensor is made of a storage of torch.qint8, quint8 or qint32, found {storage.dtype}")
    integers = rebuild(storage, storage_offset, size, stride, dtypes.OF_NUMPY[storage.dtype.integers])
    return of_integers(integers, Quantizer(storage.dtype, *quantizer_params))


def _rebuild_wrapper_subclass(cls, dtype, size, stride, storage_offset, layout, device, requires_grad) -> Tensor:
    """A tensor whose class carries operations out; what it is made of comes with its attributes."""
    options: dict[str, Any] = {"dtype": dtype, "storage_offset": storage_offset, "layout": layout, "device": device}
    return Tensor._make_wrapper_subclass(cls, size, strides=stride, requires_grad=requires_grad, **options)


def _rebuild_from_type_v2(function, new_type: type, args: tuple, state) -> Tensor:
    """A tensor of a subclass, or with attributes."""
    tensor = function(*args)
    if type(tensor) is not new_type:
        tensor = tensor.as_subclass(new_type)
    if new_type.__setstate__ is not Tensor.__setstate__:
        tensor.__setstate__(state)
    elif state:
        own = slots(new_type)
        for part in state if isinstance(state, tuple) else (state,):
            for name, value in (part or {}).items():
                if name in own:
                    setattr(tensor, name, value)
                else:
                    vars(tensor)[name] = value
    return tensor


def _reduce_ex(self: Tensor, protocol: int):
    function, args = _rebuilding(self)
    state: Any = attributes(self)
    if type(self) is Tensor and not state:
        return function, args
    if kept := _in_slots(self):
        state = state, kept
    own = type(self).__getstate__
    if own is not getattr(object, "__getstate__", None) and own is not Tensor.__getstate__:
        state = self.__getstate__()
    return _rebuild_from_type_v2, (function, type(self), args, state or None)


def _rebuilding(self: Tensor) -> tuple[Callable, tuple]:
    """What makes this tensor again: a function and its arguments."""
    geometry = tuple(self.shape), tuple(self.stride())
    if type(self) in DISPATCHED and hasattr(self._array, "owner"):
        place = self.storage_offset(), self.layout, self.device, self.requires_grad
        return _rebuild_wrapper_subclass, (type(self), self.dtype, *geometry, *place)
    if self.is_meta:
        return _rebuild_meta_tensor_no_storage, (self.dtype, *geometry, self.requires_grad)
    rest: tuple = self.storage_offset(), *geometry, self.requires_grad, OrderedDict()
    last = (known,) if (known := metadata(self)) else ()
    if self.dtype in _WITH_OLD_STORAGES:
        return _rebuild_tensor_v2, (typed_storage(self), *rest, *last)
    return _rebuild_tensor_v3, (self.untyped_storage(), *rest, self.dtype, *last)


_WITH_OLD_STORAGES = frozenset(OLD_NAMES.values())  # there is a torch.FloatStorage, but no torch.UInt16Storage


def _setstate(self: Tensor, state: tuple) -> None:
    """PyTorch's old form of state: the window, and with it the gradient and hooks of a leaf."""
    if not self.is_leaf:
        raise RuntimeError("__setstate__: only a leaf can be given another state")
    if len(state) == 4:
        self.set_(*state)
        return
    if len(state) == 5:
        self.data, state = state[0], (state[3], state[4], state[2])
    self._needs = bool(state[0])


def _deepcopy(self: Tensor, memo: dict) -> Tensor:
    if not self.is_leaf:
        only = "deepcopy copies tensors that a user made (graph leaves), and this one was computed"
        raise RuntimeError(f"{only}, not results of operations (of weight_norm, in a module). Try x.detach().clone() for the values.")
    if id(self) in memo:
        return memo[id(self)]
    if type(self) in DISPATCHED:
        with modes.no_grad():
            result = self.clone()
        if type(result) is not type(self):
            raise RuntimeError(
                f"The default implementation of __deepcopy__() for wrapper subclasses only works for subclass types for which cloning returns "
                f"another instance of the same subclass, but clone() of a {type(self).__name__} gave a {type(result).__name__}. Implement clone "
                "or __deepcopy__"
            )
    elif metadata(self):
        result = self.detach().clone()  # the numbers that are meant, in memory of their own: PyTorch does so
    else:
        storage = self.untyped_storage().__deepcopy__(memo)
        result = rebuild(storage, self.storage_offset(), self.shape, self.stride(), self.dtype)
    if type(self) is not Tensor and type(self) not in DISPATCHED:
        result = result.as_subclass(type(self))
    memo[id(self)] = result
    result._needs = self._needs
    if self._grad is not None:
        result._grad = copy.deepcopy(self._grad, memo)
    for name, value in attributes(self).items():
        result.__dict__[name] = copy.deepcopy(value, memo)
    for name, value in _in_slots(self).items():
        setattr(result, name, copy.deepcopy(value, memo))
    return result


Tensor.__reduce_ex__ = _reduce_ex  # type: ignore[method-assign, assignment]
Tensor.__setstate__ = _setstate
Tensor.__deepcopy__ = _deepcopy
