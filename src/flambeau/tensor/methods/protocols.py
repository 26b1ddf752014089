"""Python's own protocols on tensors: numbers, truth, iteration, membership, indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from flambeau import changes, devices, dtypes, errors, modes
from flambeau.interpreters import calls
from flambeau.kernels import arrays
from flambeau.tensor.tensor import PLAIN, Tensor


def item(self: Tensor) -> Any:
    """The value of a tensor with one element, as a Python number."""
    if modes.special or type(self) not in PLAIN:
        return calls.run_function(item, _item, (self,), {}, (self,), named=False)
    return _item(self)


item.event = "item"  # type: ignore[attr-defined]


def _item(self: Tensor) -> Any:
    array = self._array
    if modes.watching:
        changes.each_time()  # what comes next may depend on the value
    if self.is_meta:
        raise RuntimeError("item() cannot be called on meta tensors: they have a shape but no data")
    if array.size != 1:
        found = f"{array.size} elements cannot be converted to Scalar: shape {tuple(array.shape)}"
        raise RuntimeError(f"a Tensor with {found}. Try .tolist(), or reduce it first with .sum() or .mean()")
    return array.item() if type(array) is np.ndarray else arrays.item(array)


def tolist(self: Tensor) -> Any:
    """The elements as nested Python lists; a 0-d tensor as a number."""
    return host_array(self).tolist()


def host_array(self: Tensor) -> np.ndarray:
    """The elements in main memory: the tensor's own array if it is there."""
    array = self._array
    if modes.watching:
        changes.each_time()
    if type(array) is np.ndarray:
        return array
    if self.is_meta:
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    return arrays.to_device(arrays.plain(array), devices.cpu)


def _one(self: Tensor, target: str) -> Any:
    """The single element, for float(), int() and complex()."""
    if self._array.size != 1:
        found = f"{target}() found shape {tuple(self.shape)}"
        raise ValueError(f"a Python scalar has one element: {found}. Try .tolist()")
    if self.requires_grad:
        lost = "may lead to unexpected behavior. Its history is lost: consider using tensor.detach() first."
        errors.warn(f"Converting a tensor with requires_grad=True to a scalar {lost}")
    return item(self)


def _real(self: Tensor, target: str, c_type: str) -> Any:
    """The single element, which must not have an imaginary part."""
    value = _one(self, target)
    if isinstance(value, complex):
        if value.imag:
            raise RuntimeError(f"value cannot be converted to type {c_type} without overflow: {value} is complex. Try .real or .abs()")
        value = value.real
    return value


def _float(self: Tensor) -> float:
    return float(_real(self, "float", "double"))


def _int(self: Tensor) -> int:
    return int(_real(self, "int", "int64_t"))


def _complex(self: Tensor) -> complex:
    return complex(_one(self, "complex"))


def _index(self: Tensor) -> int:
    if self._array.size != 1 or self.dtype.category > dtypes.INTEGER:
        found = f"{self.dtype} of shape {tuple(self.shape)}"
        raise TypeError(f"only integer tensors with one element can be an index: found {found}")
    return int(item(self))


def _bool(self: Tensor) -> bool:
    """Whether the one element of a tensor is not zero."""
    if self._array.size != 1:
        count = "more than one value" if self._array.size else "no values"
        raise RuntimeError(f"Boolean value of Tensor with {count} is ambiguous: shape {tuple(self.shape)}. Try .any() or .all()")
    return bool(item(self))


def _iter(self: Tensor) -> Iterator[Tensor]:
    if not self.dim():
        raise TypeError("iteration over a 0-d tensor: it has one value, t.item()")
    return iter(self.unbind(0))


def _reversed(self: Tensor) -> Tensor:
    return self.flip(0) if self._array.ndim else self


def _contains(self: Tensor, element: Any) -> bool:
    if not isinstance(element, (Tensor, int, float, complex, np.generic)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element).any().item())


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replace every element x by callable(x), one at a time in Python: slow, for the CPU only."""
    return _by_element("apply_", callable, self)


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replace every element x by callable(x, y), y being the element of `tensor` at that place."""
    return _by_element("map_", callable, self, tensor)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replace every element s by callable(s, x, y), x and y being the elements of two other tensors at that place."""
    return _by_element("map2_", callable, self, x, y)


def _by_element(name: str, function: Callable, self: Tensor, *others: Tensor) -> Tensor:
    """Write function(elements of self and of the others) over self, one place after the other."""
    for t in (self, *others):
        if not t.is_cpu:
            raise TypeError(f"{name} is only implemented on CPU tensors: it calls Python for every element, found one on {t.device}")
        if t.requires_grad:
            raise RuntimeError(f"Can't call {name}() on Variable that requires grad: x.detach().{name}() leaves the history behind.")
    columns = [host_array(t.expand(self.shape)).reshape(-1).tolist() for t in (self, *others)]
    values = [function(*row) for row in zip(*columns, strict=True)]
    for value in values:
        if not isinstance(value, (int, float, complex, np.number, np.bool_)):
            raise TypeError(f"{name}: the function must return numbers, found {type(value).__name__}")
    arrays.write(self._array, np.array(values).astype(self._array.dtype).reshape(self._array.shape))
    self._bump()
    return self


for _name, _function in {
    "item": item, "tolist": tolist, "apply_": apply_, "map_": map_, "map2_": map2_, "is_nonzero": _bool,
    "__float__": _float, "__int__": _int, "__long__": _int, "__complex__": _complex, "__index__": _index, "__bool__": _bool,
    "__nonzero__": _bool, "__iter__": _iter, "__reversed__": _reversed, "__contains__": _contains,
}.items():  # fmt: skip
    if _name.startswith("__") and not _function.__name__.startswith("__"):
        _function.__name__ = _function.__qualname__ = _name  # of several the first: programs that override functions look at names
    setattr(Tensor, _name, _function)
