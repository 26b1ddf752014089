"""TorchDispatchMode: a context in which every operation is offered to an object, below autograd."""

from __future__ import annotations

from typing import Any

from flambeau import modes
from flambeau.dispatch import calls, stack

state = modes.state


class TorchDispatchMode:
    """Within it, `__torch_dispatch__(func, types, args, kwargs)` of this object carries out every operation; func is `torch.ops.aten.add.Tensor` and so on.

    >>> class Names(TorchDispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func)
    ...         return func(*args, **(kwargs or {}))
    >>> import flambeau as torch
    >>> with Names():
    ...     x = torch.ones(2) * 3
    aten.ones.default
    aten.mul.Tensor
    """

    supports_higher_order_operators = False

    def __init__(self, _dispatch_key: Any = None) -> None:
        pass

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError("a TorchDispatchMode defines __torch_dispatch__(self, func, types, args, kwargs)")

    def __enter__(self):
        if isinstance(getattr(self.__torch_dispatch__, "__self__", None), type):
            what = f"{type(self).__name__}.__torch_dispatch__: as a classmethod is not supported, please make it a plain method"
            raise RuntimeError(f"{what} (def __torch_dispatch__(self, ...)): a mode is an object, and its calls come to that object")
        stack.push(self)
        return self

    def __exit__(self, *exc) -> None:
        stack.pop()

    @classmethod
    def push(cls, *args, **kwargs):
        """The same as making one."""
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether it belongs to a system (a tracer, a functionalizer) and not to a program."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether a compiler may ignore it."""
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


assert calls
