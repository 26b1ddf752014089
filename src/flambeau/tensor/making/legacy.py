"""PyTorch's oldest ways to make tensors: torch.Tensor(2, 3), torch.FloatTensor([1, 2]), tensor.new(...), and tensor.type().

They mean one thing for numbers (sizes, elements without values) and another for sequences (the elements), which is why `torch.empty` and
`torch.tensor` were invented. Old programs still use them.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from flambeau import devices, dtypes
from flambeau.errors import refusal
from flambeau.kernels import arrays
from flambeau.tensor.making.factories import empty, tensor
from flambeau.tensor.memory.host_memory import cuda_is_available
from flambeau.tensor.memory.typed_storage import OLD_NAME_OF, OLD_NAMES, TypedStorage
from flambeau.tensor.memory.untyped_storage import UntypedStorage, storage_for
from flambeau.tensor.methods.subclass import _turned, as_subclass
from flambeau.tensor.tensor import Size, Tensor


def construct(args: tuple, dtype: dtypes.dtype, device: devices.device, any_dtype: bool = False) -> Tensor:
    """The old constructor: sizes, a sequence of numbers, a tensor or a storage. `any_dtype` lets a tensor keep its own."""
    if not args:
        return empty(0, dtype=dtype, device=device)
    first = args[0]
    if len(args) == 1:
        if isinstance(first, Tensor):
            if not any_dtype and (first.dtype is not dtype or first.device != device):
                raise TypeError(f"expected a tensor of {dtype} on {device} (got one of {first.dtype} on {first.device}): try .to(...)")
            return as_subclass(first, Tensor)
        if isinstance(first, (UntypedStorage, TypedStorage)):
            return empty(0, dtype=dtype, device=device).set_(storage_for(first, dtype))
        if not isinstance(first, Size) and not _is_size(first):
            return _from_sequence(first, dtype, device)
    sizes = first if isinstance(first, Size) else args
    for position, n in enumerate(sizes, 1):
        if not _is_size(n):
            found = f"size {position} is no int, found {type(n).__name__}"
            raise TypeError(f"new() received an invalid combination of arguments: {found}")
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(map(int, sizes))}")
    return empty(tuple(n.__index__() for n in sizes), dtype=dtype, device=device)


def _is_size(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.dim()
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _from_sequence(data: Any, dtype: dtypes.dtype, device: devices.device) -> Tensor:
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if not hasattr(data, "__len__"):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
    return tensor(data, dtype=dtype, device=device)


def constructor(cls: type, *args, device: Any = None) -> Tensor:
    """torch.Tensor(...), and the same for its subclasses."""
    _check_device(device, "cpu", args)
    made = construct(args, dtypes.get_default_dtype(), devices.cpu, any_dtype=True)
    return made if cls is Tensor else _turned(made, cls)


def new(self: Tensor, *args, size: Any = None, device: Any = None) -> Tensor:
    """The old constructor with the dtype and device of this tensor."""
    _check_device(device, self.device.type, args)
    args = args if size is None else (*args, Size(size))
    return construct(args, self.dtype, self.device)


def _check_device(device: Any, expected: str, args: tuple = ()) -> None:
    if device is not None and args and isinstance(args[0], Tensor):
        raise RuntimeError(
            "Legacy tensor constructor of the form torch.Tensor(tensor, device=device) is not supported: try tensor.to(device)"
        )
    if device is not None and devices.device(device).type != expected:
        raise RuntimeError(f"legacy constructor expects device type: {expected} but device type: {devices.device(device).type} was passed")


# -- a class for every dtype ---------------------------------------------------------------------------------------


class TensorType(type):
    """torch.FloatTensor and its like: calling it makes a tensor, isinstance asks for dtype and device."""

    dtype: dtypes.dtype
    device_type: str

    def __new__(mcs, name: str, bases: tuple, members: dict):
        if bases:
            raise TypeError(f"type 'torch.{bases[0].__name__}' is not an acceptable base type: derive from torch.Tensor")
        return super().__new__(mcs, name, bases, members)

    def __call__(cls, *args, device: Any = None):
        if cls.device_type == "cuda" and not cuda_is_available():
            raise TypeError(f"type {cls.__module__}.{cls.__name__} is not available here. Torch not compiled with CUDA enabled.")
        where = devices.device("cuda", arrays.cuda().current_device()) if cls.device_type == "cuda" else devices.cpu
        _check_device(device, where.type, args)
        return construct(args, cls.dtype, where)

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.device.type == cls.device_type


def tensor_type(name: str, dtype: dtypes.dtype, device_type: str = "cpu") -> TensorType:
    """The class torch.<name>Tensor, or torch.cuda.<name>Tensor."""
    module = "torch" if device_type == "cpu" else f"torch.{device_type}"
    meaning = f"{name}Tensor(*sizes) or {name}Tensor(sequence): the old constructor of tensors of {dtype}."
    return TensorType(f"{name}Tensor", (), {"dtype": dtype, "device_type": device_type, "__module__": module, "__doc__": meaning})


TENSOR_TYPES: dict[str, TensorType] = {f"{name}Tensor": tensor_type(name, d) for name, d in OLD_NAMES.items() if not d.is_complex}


def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs) -> Any:
    """Without arguments the old name of the tensor's type, 'torch.FloatTensor'; with one, the tensor converted to it."""
    if dtype is None:
        return f"torch.{'' if self.device.type == 'cpu' else self.device.type + '.'}{OLD_NAME_OF[self.dtype]}Tensor"
    if isinstance(dtype, dtypes.dtype):
        return self.to(dtype)
    target, device_type = _parse(dtype)
    device = self.device if device_type == self.device.type else devices.device(device_type)
    return self.to(device=device, dtype=target)


def _parse(kind: Any) -> tuple[dtypes.dtype, str]:
    """The dtype and device of an old type, given as a class or by name."""
    if isinstance(kind, TensorType):
        return kind.dtype, kind.device_type
    if kind is Tensor or kind == "torch.Tensor":
        return dtypes.get_default_dtype(), "cpu"
    if isinstance(kind, str):
        module, _, name = kind.rpartition(".")
        found = OLD_NAMES.get(name.removesuffix("Tensor")) if name.endswith("Tensor") else None
        if found is not None and module in ("torch", "torch.cuda"):
            return found, "cuda" if module == "torch.cuda" else "cpu"
    raise ValueError(f"invalid type: '{getattr(kind, '__name__', kind)}': expected something like 'torch.FloatTensor'")


def set_default_tensor_type(t: Any, /) -> None:
    """Make an old type's dtype (and device) the default; `set_default_dtype` and `set_default_device` are preferred."""
    warnings.warn(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() and set_default_device().",
        stacklevel=2,
    )
    try:
        dtype, device_type = _parse(t)
    except ValueError as problem:
        raise TypeError(str(problem)) from None
    if device_type == "cuda" and not cuda_is_available():
        raise TypeError(f"type {t} is not available here: Torch not compiled with CUDA enabled.")
    dtypes.set_default_dtype(dtype)
    devices.set_default_device(device_type)


def typename(obj: Any, /) -> str:
    """A name for the type of an object: 'torch.FloatTensor' for tensors, 'module.Class' for others."""
    if isinstance(obj, Tensor):
        return obj.type()
    module = getattr(obj, "__module__", None) or ""
    if not hasattr(obj, "__qualname__"):
        module, obj = type(obj).__module__, type(obj)
    name = obj.__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"


# -- what PyTorch has taken away -----------------------------------------------------------------------------------


GONE = "This function was deprecated since version 1.9 and is now removed"
REMOVED = {
    name: refusal(name, RuntimeError, f"is no more. {GONE}: use torch.linalg.{instead} instead")
    for name, instead in {"eig": "eig", "solve": "solve", "lstsq": "lstsq", "matrix_rank": "matrix_rank", "symeig": "eigh"}.items()
}
Tensor._constructed = classmethod(constructor)
Tensor.new = new
type_.__name__ = type_.__qualname__ = "type"  # as a __torch_function__ knows it
Tensor.type = type_
for _name in ("eig", "symeig", "solve", "lstsq"):
    setattr(Tensor, _name, REMOVED[_name])
