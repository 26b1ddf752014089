"""Storages read as numbers of one dtype: what programs wrote before `UntypedStorage`, and what PyTorch's files still name.

`torch.storage` is this module: both kinds of storages, and the old classes, one for each dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from flambeau import dtypes, errors, literals
from flambeau.kernels import arrays
from flambeau.tensor.memory.untyped_storage import UntypedStorage, _Memory, _storage_device, is_storage
from flambeau.tensor.storage import Storage
from flambeau.tensor.tensor import Tensor, wrap

__all__ = ["TypedStorage", "UntypedStorage", "is_storage"]


class TypedStorage(_Memory):
    """A storage read as numbers of one dtype. PyTorch keeps it for old programs; `UntypedStorage` is what it recommends.

    What is public here warns once of that. The same under a name that begins with _ does not.
    """

    def __init__(
        self,
        *args,
        dtype: dtypes.dtype | None = None,
        device: Any = None,
        wrap_storage: UntypedStorage | None = None,
        _internal: bool = False,
    ):
        if not _internal:
            warn_typed_storage_removal()
        if len(args) > (wrap_storage is None):
            raise RuntimeError(_usage("Too many positional arguments" if wrap_storage is None else "No positional arguments are allowed"))
        if wrap_storage is not None:
            if dtype is None:
                raise RuntimeError(_usage("Argument 'dtype' must be specified"))
            if not isinstance(dtype, dtypes.dtype):
                raise TypeError(_usage(f"Argument 'dtype' must be torch.dtype, found {type(dtype)}"))
            if device is not None:
                raise RuntimeError(_usage("Argument 'device' should not be specified: 'wrap_storage' has one"))
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(_usage(f"Argument 'wrap_storage' must be UntypedStorage, found {type(wrap_storage)}"))
        self.dtype: dtypes.dtype = dtypes.get_default_dtype() if dtype is None else dtype
        if not isinstance(self.dtype, dtypes.dtype):
            raise RuntimeError(f"expected torch.dtype, but got {type(dtype)}")
        self._storage = (_made_of(args[0] if args else 0, self.dtype, device) if wrap_storage is None else wrap_storage)._storage

    def _over(self, storage: Storage) -> TypedStorage:
        return typed(UntypedStorage._of(storage), self.dtype)

    def __getitem__(self, index):
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._readable()[self._place(index, "get")].item()

    def type(self, dtype: Any = None) -> Any:
        """The name of its type, or a copy with another."""
        if dtype is None:
            name = OLD_NAME_OF.get(self.dtype)
            return f"torch.{name}Storage" if f"{name}Storage" in LEGACY_STORAGES else "torch.storage.TypedStorage"
        return converted(self, _dtype_meant(dtype))

    def pickle_storage_type(self) -> str:
        """The name PyTorch's files call it by."""
        return storage_name(self.dtype)

    @classmethod
    def from_buffer(cls, *args: Any, dtype: dtypes.dtype | None = None, **kwargs: Any) -> TypedStorage:
        """A copy of the numbers in an object with Python's buffer protocol: (buffer, byte_order, count, offset)."""
        warn_typed_storage_removal()
        if cls is not TypedStorage and dtype is not None:
            raise RuntimeError(f"from_buffer: {cls} has its dtype, and only the untyped and TypedStorage take one")
        dtype = (dtypes.get_default_dtype() if dtype is None else dtype) if cls is TypedStorage else cls._dtype  # type: ignore[attr-defined]
        return typed(UntypedStorage.from_buffer(*args, dtype=dtype, **kwargs), dtype)

    @classmethod
    def from_file(cls, filename, shared: bool = False, size: int = 0) -> TypedStorage:
        """A storage over the first `size` elements of a file."""
        warn_typed_storage_removal()
        if cls is TypedStorage:
            raise RuntimeError("from_file: the class must say the dtype, as torch.FloatStorage does")
        dtype = cls._dtype  # type: ignore[attr-defined]
        return typed(UntypedStorage.from_file(filename, shared, size * dtype.itemsize), dtype)

    def __eq__(self, other) -> bool:
        return isinstance(other, TypedStorage) and self._storage is other._storage and self.dtype is other.dtype

    def __hash__(self) -> int:
        return hash((id(self._storage), self.dtype.name))

    def __reduce__(self):
        return typed, (self._untyped_storage, self.dtype)


def converted(storage: _Memory, dtype: dtypes.dtype) -> TypedStorage:
    """A copy of the elements as numbers of another dtype."""
    return typed_storage(wrap(storage._values()).to(dtype, copy=True))


def _type_of_bytes(self: UntypedStorage, dtype: Any = None) -> Any:
    """The name of its type, or the bytes as numbers of another."""
    return "torch.storage.UntypedStorage" if dtype is None else converted(self, _dtype_meant(dtype))


def typed(storage: UntypedStorage, dtype: dtypes.dtype) -> TypedStorage:
    """The bytes as numbers of a dtype, without a warning."""
    return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def _made_of(given: Any, dtype: dtypes.dtype, device: Any) -> UntypedStorage:
    """A new storage of so many elements, or of these."""
    where = _storage_device(device)
    if hasattr(given, "__index__") and not isinstance(given, Tensor):
        return UntypedStorage(given.__index__() * dtype.itemsize, device=where)
    if isinstance(given, str):
        raise TypeError("new(): invalid data type 'str'")
    if not isinstance(given, Sequence | _Memory):
        raise TypeError(_usage(f"Argument type not recognized: {type(given)}"))
    stored = dtypes.OF_NUMPY[dtype.integers] if isinstance(dtype, dtypes.quantized) else dtype
    return wrap(arrays.to_device(literals.literal(list(given), stored), where)).untyped_storage()


def _usage(problem: str) -> str:
    return (
        f"{problem}. A storage is made of a size, of a sequence of numbers, or of nothing; or of wrap_storage=an UntypedStorage and dtype="
    )


def _dtype_meant(kind: Any) -> dtypes.dtype:
    """The dtype that a dtype, torch.FloatStorage or "torch.FloatStorage" stands for."""
    if isinstance(kind, str):
        kind = LEGACY_STORAGES.get(kind.rpartition(".")[2], kind)
    found = kind if isinstance(kind, dtypes.dtype) else getattr(kind, "_dtype", None)
    if found is None:
        raise TypeError(f"expected a dtype, or a class of storages such as torch.FloatStorage, found {kind!r}")
    return found


_warned = _always_warn = False


def warn_typed_storage_removal(stacklevel: int = 2) -> None:
    """Say once that typed storages are on their way out, at the line that uses one."""
    global _warned
    if _warned and not _always_warn:
        return
    _warned = True
    errors.warn(
        "TypedStorage is deprecated. It goes (will be removed in the future) and UntypedStorage stays: tensor.untyped_storage() gives one, where "
        "tensor.storage() gave this"
    )


_warn_typed_storage_removal = warn_typed_storage_removal


def _reset_warn_typed_storage_removal() -> None:
    global _warned
    _warned = False


def _get_always_warn_typed_storage_removal() -> bool:
    return _always_warn


def _set_always_warn_typed_storage_removal(always_warn: bool) -> None:
    global _always_warn
    _always_warn = always_warn


def _announced(function: Callable) -> Callable:
    @wraps(function)
    def announce(self, *args, **kwargs):
        warn_typed_storage_removal()
        return function(self, *args, **kwargs)

    return announce


def _announce_public_names() -> None:
    quiet = "__init__ __new__ __eq__ __hash__ __reduce__ __sizeof__ __deepcopy__ __module__ __doc__ __annotations__ __dict__ __weakref__".split()
    for name, member in [*vars(_Memory).items(), *vars(TypedStorage).items()]:
        is_special = name.startswith("__")
        if name in quiet or (name.startswith("_") and not is_special) or isinstance(member, classmethod):
            continue
        if isinstance(member, property) and member.fget is not None:
            setattr(TypedStorage, name, property(_announced(member.fget), doc=member.__doc__))
        elif callable(member):
            silent = f"_{name.strip('_') if is_special else name}"
            if not hasattr(TypedStorage, silent):
                setattr(TypedStorage, silent, member)
            setattr(TypedStorage, name, _announced(member))
    TypedStorage._deepcopy = TypedStorage.__deepcopy__  # type: ignore[attr-defined]


# PyTorch's old names of dtypes: torch.FloatStorage, torch.LongTensor.
OLD_NAMES: dict[str, dtypes.dtype] = {
    "Double": dtypes.float64, "Float": dtypes.float32, "Half": dtypes.float16, "BFloat16": dtypes.bfloat16, "Long": dtypes.int64,
    "Int": dtypes.int32, "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8, "Bool": dtypes.bool,
    "ComplexFloat": dtypes.complex64, "ComplexDouble": dtypes.complex128,
}  # fmt: skip
OLD_NAME_OF: dict[dtypes.dtype, str] = {d: name for name, d in OLD_NAMES.items()} | {
    d: d.name.replace("uint", "UInt") for d in (dtypes.uint16, dtypes.uint32, dtypes.uint64)
}
_QUANTIZED = {"QInt8": dtypes.qint8, "QUInt8": dtypes.quint8, "QInt32": dtypes.qint32}
OLD_NAME_OF |= {d: d.name.replace("f", "F", 1) for d in dtypes.FLOAT8} | {d: name for name, d in _QUANTIZED.items()}


def storage_name(dtype: dtypes.dtype) -> str:
    """FloatStorage for float32, and so on."""
    return f"{OLD_NAME_OF[dtype]}Storage"


class _LegacyStorageMeta(type):
    """torch.FloatStorage(3) makes a TypedStorage, and isinstance asks for the dtype and the device."""

    _dtype: dtypes.dtype
    _device: str

    def __call__(cls, *args, wrap_storage: Any = None, _internal: bool = False, **kwargs):
        if not _internal:
            warn_typed_storage_removal()
        if cls is _LegacyStorage:
            raise RuntimeError("Only child classes of _LegacyStorage can be instantiated: torch.FloatStorage, for example")
        for name in kwargs:
            if name in ("device", "dtype"):
                raise RuntimeError(_usage(f"{cls.__name__}: keyword argument '{name}' cannot be specified"))
            raise TypeError(f"{cls.__name__}() got an unexpected keyword argument '{name}'")
        if wrap_storage is None:
            return TypedStorage(*args, dtype=cls._dtype, device=cls._device, _internal=True)
        if isinstance(wrap_storage, UntypedStorage) and wrap_storage.device.type != cls._device:
            raise RuntimeError(_usage(f"Device of 'wrap_storage' must be {cls._device}, found {wrap_storage.device.type}"))
        return TypedStorage(*args, dtype=cls._dtype, wrap_storage=wrap_storage, _internal=True)

    @property
    def dtype(cls) -> dtypes.dtype:
        """The dtype of the elements."""
        warn_typed_storage_removal()
        return cls._dtype

    @dtype.setter
    def dtype(cls, value: Any) -> None:
        raise AttributeError(f"the dtype of {cls.__name__} cannot be set")

    def __instancecheck__(cls, instance) -> bool:
        return type(instance) is TypedStorage and instance.dtype is cls._dtype and instance._storage.place().type == cls._device


class _LegacyStorage(TypedStorage, metaclass=_LegacyStorageMeta):
    """What torch.FloatStorage and its like have in common."""

    _dtype: Any = None
    _device = "cpu"


class _CudaLegacyStorage(_LegacyStorage):
    """The same on a GPU."""

    _device = "cuda"

    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> TypedStorage:
        """Not available: a buffer is in main memory."""
        raise RuntimeError("from_buffer: Not available for CUDA storage")


def _legacy_storage(name: str, dtype: dtypes.dtype, base: type = _LegacyStorage) -> type:
    module = "torch" if base is _LegacyStorage else "torch.cuda"
    return type(base)(name, (base,), {"_dtype": dtype, "__module__": module, "__doc__": f"The old constructor of storages of {dtype}."})


LEGACY_STORAGES: dict[str, type] = {f"{name}Storage": _legacy_storage(f"{name}Storage", d) for name, d in (OLD_NAMES | _QUANTIZED).items()}
CUDA_STORAGES: dict[str, type] = {
    f"{name}Storage": _legacy_storage(f"{name}Storage", d, _CudaLegacyStorage) for name, d in OLD_NAMES.items()
}
_IN_WORDS = {"ComplexFloat": "complex_float", "ComplexDouble": "complex_double"}
for _name, _dtype in OLD_NAMES.items():
    _word = _IN_WORDS.get(_name, _name.lower())
    for _kind in (UntypedStorage, TypedStorage):
        setattr(_kind, _word, lambda self, _d=_dtype: converted(self, _d))
UntypedStorage.type = _type_of_bytes  # type: ignore[attr-defined]
_announce_public_names()


def _dtype_to_storage_type_map() -> dict[dtypes.dtype, str]:
    return {kind._dtype: name for name, kind in LEGACY_STORAGES.items()}


def storage(self: Tensor) -> TypedStorage:
    """The storage as numbers; `untyped_storage()` is preferred."""
    warn_typed_storage_removal()
    return typed_storage(self)


def typed_storage(self: Tensor) -> TypedStorage:
    """The storage of a tensor as numbers of its dtype, without a warning."""
    return typed(self.untyped_storage(), self.dtype)


def storage_type(self: Tensor) -> type | None:
    """The old class of the storage, such as torch.FloatStorage."""
    return LEGACY_STORAGES.get(storage_name(self.dtype))


for _method in (storage, storage_type):
    setattr(Tensor, _method.__name__, _method)
Tensor._typed_storage = typed_storage
