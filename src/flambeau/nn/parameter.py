"""Parameters and buffers: the tensors a module keeps, and those whose shape is not known before the first call."""

from __future__ import annotations

from typing import Any

from flambeau.dtypes import get_default_dtype
from flambeau.interpreters.by_name import disabled_torch_function
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty
from flambeau.tensor.making.parameter import Parameter, _ParameterMeta, _rebuild_parameter, _rebuild_parameter_with_state  # noqa: F401

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "UninitializedTensorMixin", "is_lazy"]


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    """A tensor marked as a buffer is an instance of Buffer."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Buffer:
            return isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)
        return super().__instancecheck__(instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that, assigned to an attribute of a Module, becomes one of its buffers: `self.mean = Buffer(zeros(3))`."""

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True):
        data = empty(0) if data is None else data
        marked: Any = data.detach().requires_grad_(data.requires_grad)
        marked.persistent, marked._is_buffer = persistent, True
        return marked

    __torch_function__ = disabled_torch_function


# What can be done to a tensor without a shape: moving it, and asking what is known of it.
_MOVES = frozenset("__get__ __set__ __delete__ __deepcopy__ __reduce_ex__ to cpu cuda float double half bfloat16 type is_floating_point is_complex".split()) | {
    "requires_grad_", "_is_view", "dim", "detach", "register_hook", "copy_", "size", "__hash__", "char", "short", "int", "long", "get_device", "_has_compatible_shallow_copy_type"
}  # fmt: skip


class UninitializedTensorMixin:
    """A tensor that knows its device and dtype, but not its shape: only `materialize`, and moving it, are allowed."""

    cls_to_become: type
    data: Tensor
    requires_grad: bool

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an ordinary, empty tensor of this shape."""
        self.data = empty(shape, device=device or self.data.device, dtype=dtype or self.data.dtype)
        self.__class__ = self.cls_to_become  # type: ignore[assignment]

    @property
    def shape(self) -> Any:
        """Not known yet."""
        raise RuntimeError(
            f"There is no shape of an uninitialized parameter: {_CURE}. When it was being loaded from a state_dict "
            "into a module that is not lazy, the module that was saved had not run yet."
        )

    def share_memory_(self) -> Any:
        """Not possible yet."""
        raise RuntimeError(f"Can't share memory on an uninitialized tensor: {_CURE}.")

    def __repr__(self, *, tensor_contents=None) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return type(self), (self.requires_grad, self.data.device, self.data.dtype)

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) not in memo:
            make, arguments = self.__reduce_ex__(4)
            memo[id(self)] = make(*arguments)
        return memo[id(self)]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = getattr(func, "__name__", str(func))
        if name not in _MOVES:
            raise ValueError(f"Attempted to use an uninitialized parameter in {name}: {_CURE}.")
        return disabled_torch_function(cls, func, types, args, kwargs)


_CURE = "its shape is found out by the first call of `forward`, or by materialize(shape)"


def is_lazy(param: Any) -> bool:
    """Whether the shape of a parameter or buffer is not known yet."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter whose shape is found out at the first call."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None):  # type: ignore[misc]
        return Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype or get_default_dtype()), requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):  # type: ignore[misc]
    """A buffer whose shape is found out at the first call."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True):
        made = Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype or get_default_dtype()), requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made
