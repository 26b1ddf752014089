"""Parameters and buffers: the tensors a module keeps, and those whose shape is not known before the first call."""

from __future__ import annotations

from typing import Any

from flambeau.dtypes import get_default_dtype
from flambeau.eager.overrides import disabled_torch_function
from flambeau.factories import empty
from flambeau.parameter import Parameter, _ParameterMeta, _rebuild_parameter, _rebuild_parameter_with_state  # noqa: F401
from flambeau.tensor import Tensor

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


_KNOWN_BEFORE = frozenset(
    """__class__ __dict__ __reduce_ex__ __deepcopy__ __repr__ __setattr__ __hash__ __torch_function__ _array _backward_hooks _base _grad _hooks
    _inference _is_param _needs _node _nr _stamp _storage _is_buffer cls_to_become cpu cuda data device double dtype float grad grad_fn half
    has_names is_cuda is_leaf is_meta is_floating_point materialize persistent requires_grad requires_grad_ share_memory_ to type _is_float
    _post_accumulate _accumulator_hooks detach _shared_storage _retains bfloat16 _kind""".split()
)


class UninitializedTensorMixin:
    """A tensor that knows its device and dtype, but not its shape: only `materialize`, and moving it, are allowed."""

    cls_to_become: type

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become an ordinary, empty tensor of this shape."""
        data = empty(tuple(shape), device=device or self.data.device, dtype=dtype or self.data.dtype)  # type: ignore[attr-defined]
        self.data = data
        self.__class__ = self.cls_to_become  # type: ignore[assignment]

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when "
            "trying to load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before "
            "accessing their attributes."
        )

    def share_memory_(self) -> Any:
        """Not possible yet."""
        raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters first.")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return type(self), (self.requires_grad, self.data.device, self.data.dtype)  # type: ignore[attr-defined]

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") or name in _KNOWN_BEFORE or name == "shape" or not hasattr(Tensor, name):
            return super().__getattribute__(name)
        cure = "Call `forward` to initialize the parameters before accessing their attributes"
        raise ValueError(f"Attempted to use an uninitialized parameter in {name}: it has no shape yet. {cure}.")


def is_lazy(param: Any) -> bool:
    """Whether the shape of a parameter or buffer is not known yet."""
    return isinstance(param, UninitializedTensorMixin)


def _refuse(cls, func, types, args=(), kwargs=None):
    name = getattr(func, "__name__", str(func))
    if name in _KNOWN_BEFORE or name in ("__get__", "__set__"):
        return disabled_torch_function(cls, func, types, args, kwargs)
    cure = "Call `forward` to initialize the parameters before using them"
    raise ValueError(f"Attempted to use an uninitialized parameter in {name}: it has no shape yet. {cure}.")


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape is found out at the first call."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None):  # type: ignore[misc]
        return Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype or get_default_dtype()), requires_grad)

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]

    __torch_function__ = classmethod(_refuse)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is found out at the first call."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True):
        made = Tensor._make_subclass(cls, empty(0, device=device, dtype=dtype or get_default_dtype()), requires_grad)
        made.persistent, made._is_buffer = persistent, True
        return made

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        return memo[id(self)]

    __torch_function__ = classmethod(_refuse)
