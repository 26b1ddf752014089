"""Members of tensors that are no operations here, and are in PyTorch: detach(), item(), and the geometry where a class wants to be asked for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from flambeau import modes
from flambeau.dispatch import names, stack
from flambeau.dispatch.proxy import Asking, Proxy
from flambeau.eager import overrides
from flambeau.interpreters import calls
from flambeau.ops import formats
from flambeau.tensor import Tensor, printing

state = modes.state


def ask(name: str, *args: Any, **kwargs: Any) -> Any:
    """Ask for an attribute of a tensor as for an operation; without history."""
    namespace, _, name = name.rpartition("::")
    packet = names.packet_of(name) if not namespace else names.prim(name)
    return stack.ask(*names.resolved(packet, args, kwargs))


def _detached(self: Tensor) -> Tensor | None:
    """What detach() gives where somebody is asked; None where nobody is."""
    if not calls.dispatched((self,)):
        return None
    found = ask("detach", self)
    if not isinstance(found, Tensor):
        raise RuntimeError(f"Unable to cast {found!r} to Tensor: __torch_dispatch__ of detach must return a tensor")
    if found is self:
        raise RuntimeError("detach() must return another tensor: __torch_dispatch__ has given back the one it was called with")
    if isinstance(found._array, Proxy) and found._storage is None:
        found._storage = self._shared_storage()  # writes to either count as writes to both
    return found


Tensor._asked_to_detach = _detached  # type: ignore[attr-defined]


def item(self: Tensor) -> Any:
    """The element of a tensor that has one, as a Python number."""
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    return ask("_local_scalar_dense", self)


def give_members(cls: type) -> None:
    """Give a class that carries operations out members that do not look for memory."""
    for name, member in MEMBERS.items():
        if overrides._inherited(cls, name) is not None and name not in vars(cls) and not _own(cls, name):
            setattr(cls, name, member)


def _own(cls: type, name: str) -> bool:
    """Whether a class of the program's own, between this one and Tensor, defines a member."""
    return any(name in vars(base) for base in cls.__mro__[: cls.__mro__.index(Tensor)])


def _refusing(name: str) -> Callable:
    def refuse(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self._array, Proxy):
            return getattr(Tensor, name)(self, *args, **kwargs)
        raise RuntimeError(f".{name}() is not supported for tensor subclasses. Ask the tensors that it is made of")

    refuse.__name__ = name
    return refuse


def _is_contiguous(self: Tensor, memory_format: Any = None) -> bool:
    """Whether the elements lie in memory in the order of their indices (or in channels-last order, if asked)."""
    if type(self._array) is Asking and self._array.asked[0] == "strides" and state.dispatching:
        usual = memory_format is None or memory_format is formats.contiguous_format
        found = ask("is_contiguous", self) if usual else ask("is_contiguous", self, memory_format=memory_format)
        return False if found is None else found
    return Tensor.is_contiguous(self, memory_format)


def geometry(overload: Any, args: tuple, kwargs: dict) -> Any:
    """What a class says of how its tensor lies in memory, if it wants to be asked and says something; else NotImplemented."""
    array = args[0]._array if args else None
    if type(array) is not Asking or array.asked[0] != "strides":
        return NotImplemented
    found = stack.ask(overload, args, kwargs)
    return NotImplemented if found is None else found


def _storage_offset(self: Tensor) -> int:
    """Where in its storage the first element would lie, in elements."""
    return self._array.offset if isinstance(self._array, Proxy) else Tensor.storage_offset(self)


def _data_ptr(self: Tensor) -> int:
    """The address of the first element: 0, there is none."""
    return Tensor.data_ptr(self) if not isinstance(self._array, Proxy) else 0 * self._array.size


def _data() -> property:
    def read(self: Tensor) -> Tensor:
        with modes.no_grad():
            found = self.detach()
        if isinstance(found._array, Proxy):
            found._storage = None
        return found

    return property(read, Tensor.data.fset, Tensor.data.fdel)


def _repr(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """The elements are asked for one by one, those that are shown."""
    if tensor_contents is None and isinstance(self._array, Proxy) and self.device.type != "meta":
        tensor_contents = printing.format_array(_shown(self), printing._kind(self.dtype), indent=len(type(self).__name__) + 1)
    return Tensor.__repr__(self, tensor_contents=tensor_contents)  # type: ignore[call-arg]


def _shown(self: Tensor) -> np.ndarray:
    """The numbers of a tensor, as far as a text of it shows them."""
    options, shape = printing.get_printoptions(), tuple(self.shape)
    edge = options["edgeitems"] if self.numel() > options["threshold"] else max(shape, default=0)
    found = np.zeros(shape, self._array.dtype)
    with modes.no_grad():
        for index in itertools.product(*[[i for i in range(n) if i < edge or i >= n - edge] for n in shape]):
            found[index] = (self[index] if shape else self).item()
    return found


def _is_cpu(self: Tensor) -> bool:
    return self.device.type == "cpu"


MEMBERS: dict[str, Any] = {
    **{name: _refusing(name) for name in ("numpy", "tolist", "__array__", "__dlpack__")},
    "__repr__": _repr, "data": _data(), "data_ptr": _data_ptr, "is_contiguous": _is_contiguous, "is_cpu": property(_is_cpu), "storage_offset": _storage_offset,
}  # fmt: skip
