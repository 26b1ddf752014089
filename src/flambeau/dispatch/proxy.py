"""What a tensor without memory of its own has in place of an array: the geometry that it shows."""

from __future__ import annotations

import weakref
from math import prod
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from flambeau import devices, modes
from flambeau.kernels.meta import MetaArray
from flambeau.tensor import Tensor, wrap


class Owner(weakref.ref):
    """A proxy's reference to its tensor, which is not a stranger's."""

    __slots__ = ()
    own = True


class Proxy(MetaArray):
    """Looks like an array as far as its geometry goes. Code that wants the numbers fails loudly; operations ask the tensor's class.

    owner  the tensor, which is not kept alive
    """

    __slots__ = ("__weakref__", "device", "layout", "owner")
    flags = SimpleNamespace(fnc=False, c_contiguous=False)
    base = np.zeros(0)  # never memory that a gradient could take over

    def __init__(self, owner: Tensor, shape, dtype: np.dtype, strides, offset: int, device: devices.device, layout: Any):
        super().__init__(shape, dtype, strides, offset)
        self.owner, self.device, self.layout = Owner(owner), device, layout

    def of_tensor(self, owner: Tensor) -> Proxy:
        """What another tensor shows that looks the same."""
        return Proxy(owner, self.shape, self.dtype, [s // self.itemsize for s in self.strides], self.offset, self.device, self.layout)

    def refuse_memory(self) -> NoReturn:
        """RuntimeError: whoever wants to see or change memory is told that there is none."""
        owner = self.owner()
        name = "a tensor subclass" if owner is None else type(owner).__name__
        raise RuntimeError(
            f"Attempted to reach the memory of {name}, on an invalid python storage: such a tensor has none. Ask the tensors that it is made of"
        )

    @property
    def data(self) -> NoReturn:
        """Refused: there is no memory."""
        self.refuse_memory()

    @property
    def value(self) -> Tensor:
        """A tensor on the same device, for those who need another one there."""
        return wrap(np.empty(0, self.dtype))

    def as_tensor(self) -> Tensor:
        """Another tensor that means the same, without history."""
        owner = self.owner()
        if owner is None:
            raise RuntimeError("the tensor that carried out operations for this one is gone")
        with modes.no_grad():
            return owner.detach()


class Asking(Proxy):
    """A proxy whose tensor's class is asked for the geometry, too: for its sizes, its strides as well, its device, its layout.

    What the class does not say (it returns None) is what the tensor was made with.
    """

    __slots__ = ("asked", "own_device", "own_layout", "own_shape", "own_strides")
    asked: tuple[str | None, bool, bool]

    @staticmethod
    def of(proxy: Proxy, asked: tuple[str | None, bool, bool]) -> Asking:
        """The same geometry, to be asked for."""
        made: Any = object.__new__(Asking)
        made.owner, made.dtype, made.itemsize, made.offset = proxy.owner, proxy.dtype, proxy.itemsize, proxy.offset
        made.own_shape, made.own_strides, made.own_device, made.own_layout = proxy.shape, proxy.strides, proxy.device, proxy.layout
        made.asked = asked
        return made

    def _answer(self, kernel: str, wanted: bool, otherwise: Any) -> Any:
        if not wanted or not modes.state.dispatching:
            return otherwise
        from flambeau.dispatch import members

        found = members.ask(kernel, self.owner())
        return otherwise if found is None else found

    @property
    def shape(self) -> tuple:  # type: ignore[override]
        """What the class says of the sizes."""
        return tuple(self._answer("sym_size", self.asked[0] is not None, self.own_shape))

    @property
    def ndim(self) -> int:  # type: ignore[override]
        """What the class says of the number of dimensions."""
        return self._answer("dim", self.asked[0] is not None, len(self.own_shape))

    @property
    def size(self) -> int:  # type: ignore[override]
        """What the class says of the number of elements."""
        return self._answer("numel", self.asked[0] is not None, prod(self.own_shape))

    @property
    def strides(self) -> tuple:  # type: ignore[override]
        """What the class says of the strides; here they are in bytes."""
        found = self._answer("sym_stride", self.asked[0] == "strides", None)
        return self.own_strides if found is None else tuple([n * self.itemsize for n in found])

    @property
    def device(self) -> devices.device:  # type: ignore[override]
        """What the class says of the device."""
        return self._answer("prim::device", self.asked[1], self.own_device)

    @property
    def layout(self) -> Any:  # type: ignore[override]
        """What the class says of the layout."""
        return self._answer("prim::layout", self.asked[2], self.own_layout)
