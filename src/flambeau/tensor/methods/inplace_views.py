"""View operations that change the tensor itself: transpose_, t_, squeeze_, unsqueeze_, swapaxes_, swapdims_, as_strided_.

No element moves; the tensor's own shape and strides are exchanged for those of the view, and its history goes through the view.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau.eager import inplace
from flambeau.interpreters import calls
from flambeau.tensor.tensor import Tensor

NAMES = ("transpose", "t", "squeeze", "unsqueeze", "swapaxes", "swapdims", "as_strided")


BECOMING: dict[Callable, str] = {}  # method -> the view that the tensor becomes


def _becoming(name: str) -> Callable:
    def method(self: Tensor, *args, **kwargs) -> Tensor:
        inplace.check_changeable(f"{name}_", self)
        if calls.dispatched((self,)):
            return calls.carry_out(method, (self, *args), kwargs)
        view = getattr(_stand_in(self), name)(*args, **kwargs)
        self._array = view._array
        if view._needs:  # not under no_grad, where a parameter that is turned stays a parameter
            self._node, self._nr, self._needs = view._node, view._nr, True
        self._bump()
        return self

    BECOMING[method] = name
    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`{name}` of this tensor, as the tensor itself."
    return method


def _stand_in(self: Tensor) -> Tensor:
    """What the tensor was: same memory, same history, another object."""
    before = self.detach()
    before._node, before._nr, before._needs = self.grad_fn, self._nr, self._needs
    return before


for _name in NAMES:
    setattr(Tensor, f"{_name}_", _becoming(_name))
