"""Storages as users see them: the bytes behind tensors (`UntypedStorage`), and the same read as numbers (`TypedStorage`, for old programs).

A tensor is a window on a storage. This file has what moves windows and what replaces the memory behind them: `set_`, `resize_`,
`resize_as_`, `UntypedStorage.resize_`.
"""

from __future__ import annotations

import gc
import os
import pickle
import warnings
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from flambeau import devices, dtypes, settings
from flambeau.kernels import arrays, layout
from flambeau.kernels.meta import MetaArray
from flambeau.ops import formats
from flambeau.storage import Storage
from flambeau.tensor import Tensor, wrap


class _Memory:
    """What both kinds of storages do: elements of one `dtype` over the memory `_storage`. A subclass says how to put another `_over` it."""

    _storage: Storage
    dtype = dtypes.uint8
    is_sparse = is_sparse_csr = False

    def _values(self) -> Any:
        """The elements as a 1-D array over the same memory."""
        return flat_view(self._storage, self.dtype)

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return UntypedStorage._of(self._storage)

    def __sizeof__(self) -> int:
        """Of the object and its bytes, for sys.getsizeof."""
        return super().__sizeof__() + self.nbytes()

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._storage.nbytes()

    def size(self) -> int:
        """The number of elements."""
        return self.nbytes() // self.dtype.itemsize

    __len__ = _size = size

    def element_size(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self._storage.data_ptr()

    @property
    def device(self) -> devices.device:
        """Where the elements are."""
        return self._storage.device()

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a GPU."""
        return self.device.type == "cuda"

    def get_device(self) -> int:
        """The index of its GPU, -1 on the CPU."""
        return self.device.index if self.is_cuda else -1

    def is_shared(self) -> bool:
        """Whether other processes see writes to it."""
        from flambeau import host_memory

        return host_memory.is_shared(self._storage)

    def share_memory_(self) -> Any:
        """Move the elements to memory that child processes share."""
        from flambeau import host_memory

        host_memory.share(self._storage)
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Whether a GPU can copy from it directly: never on a machine without one."""
        return False

    def tolist(self) -> list:
        """The elements as a list."""
        return arrays.to_device(self._values(), devices.cpu).tolist()

    def __iter__(self) -> Iterator:
        return iter(self.tolist())

    def __setitem__(self, index, value) -> None:
        self._values()[index] = value
        self._storage.version += 1

    def fill_(self, value) -> Any:
        """Set every element."""
        self[...] = value
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> Any:
        """Overwrite the elements with those of another storage of the same size, converting them."""
        arrays.write(self._values(), arrays.to_device(source._values(), self.device))
        self._storage.version += 1
        return self

    def clone(self) -> Any:
        """A copy."""
        return self._over(Storage(arrays.copy(flat_view(self._storage, dtypes.uint8))))

    __copy__ = clone

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self._storage) not in memo:
            memo[id(self._storage)] = self.untyped().clone()
        return self._over(memo[id(self._storage)]._storage)

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        """The elements on another device: itself if they are there."""
        where = devices.device(device)
        moved = arrays.to_device(self._storage.array, where) if where != self.device else self._storage.array
        return self if moved is self._storage.array else self._over(Storage(moved))

    def cpu(self) -> Any:
        """The elements in main memory."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """The elements on a GPU."""
        return self.to(device=devices.device("cuda", arrays.cuda().current_device()) if device is None else device)

    def resize_(self, size: int) -> Any:
        """Change the number of elements. Those that remain keep their values, and every tensor on this storage goes along."""
        resize_storage(self._storage, size * self.dtype.itemsize)
        return self

    def __repr__(self) -> str:
        rows = "" if self.device.type == "meta" else "".join(f" {v}\n" for v in self.tolist())
        dtype = "" if isinstance(self, UntypedStorage) else f"dtype={self.dtype}, "
        return f"{rows}[torch.storage.{type(self).__name__}({dtype}device={self.device}) of size {len(self)}]"


class UntypedStorage(_Memory):
    """A row of bytes: UntypedStorage(8), UntypedStorage([1, 2, 3]), or `tensor.untyped_storage()`."""

    def __new__(cls, *args, device: Any = None):
        if len(args) > 1:
            raise TypeError(f"UntypedStorage() takes a number of bytes, or a sequence of them; found {len(args)} arguments")
        given: Any = args[0] if args else 0
        where = devices.cpu if device is None else devices.usable(devices.device(device))
        if hasattr(given, "__index__"):
            array = arrays.empty((given.__index__(),), np.dtype(np.uint8), where)
        else:
            array = arrays.to_device(np.array(list(given)).astype(np.uint8), where)
        return cls._of(Storage(array))

    @classmethod
    def _of(cls, storage: Storage) -> UntypedStorage:
        """The public face of a storage: one object for as long as somebody holds it, so that `is` and pickle's memo see what is shared."""
        self = None if storage.public is None else storage.public()
        if self is None:
            self = object.__new__(cls)
            self._storage, storage.public = storage, weakref.ref(self)  # weakly: a cycle would keep the memory until the collector comes
        return self

    _over = _of

    @property
    def _cdata(self) -> int:
        """What tells two storages apart."""
        return id(self._storage)

    def __eq__(self, other) -> bool:
        return isinstance(other, UntypedStorage) and self._storage is other._storage

    def __hash__(self) -> int:
        return id(self._storage)

    def __getitem__(self, index):
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise ValueError(f"Trying to slice with a step of {index.step}, but only a step of 1 is supported")
            return UntypedStorage._of(Storage(self._values()[index]))
        return int(self._values()[index])

    def copy_(self, source: UntypedStorage, non_blocking: bool | None = None) -> UntypedStorage:
        """Overwrite the bytes with those of another storage of the same size."""
        if source.nbytes() != self.nbytes():
            raise RuntimeError(f"size does not match, self was {self.nbytes()} bytes but src was {source.nbytes()} bytes")
        return super().copy_(source)

    @classmethod
    def from_file(cls, filename, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file. With shared=True writes reach the file, which is made long enough; else they stay private."""
        from flambeau.factories import from_file

        if not shared and (found := os.stat(filename).st_size) < nbytes:
            raise RuntimeError(f"file <{filename}> size <{found}> is smaller than the required mapping size <{nbytes}>")
        return from_file(filename, shared, nbytes, dtype=dtypes.uint8).untyped_storage()

    def new(self) -> UntypedStorage:
        """An empty storage on the same device."""
        return UntypedStorage(0, device=self.device)

    def __reduce_ex__(self, protocol):
        if self.device.type == "meta":
            return partial(UntypedStorage, device="meta"), (self.nbytes(),)
        raw: Any = np.ascontiguousarray(arrays.to_device(self._values(), devices.cpu))
        # From protocol 5 on bytes travel beside the pickle, uncopied, if the pickler wants that.
        return _storage_from_bytes, (pickle.PickleBuffer(raw) if protocol >= 5 else raw.tobytes(), str(self.device))


def _storage_from_bytes(raw, device: str) -> UntypedStorage:
    array = np.frombuffer(raw, np.uint8)
    if not array.flags.writeable:
        array = array.copy()
    return UntypedStorage._of(Storage(arrays.to_device(array, devices.device(device))))


# -- windows on a storage ------------------------------------------------------------------------------------------


def flat_view(storage: Storage, dtype: dtypes.dtype) -> Any:
    """All whole elements of a storage as a 1-D array of `dtype` over the same memory."""
    owner, nbytes, size = storage.array, storage.nbytes(), dtype.itemsize
    n = nbytes // size
    if type(owner) is MetaArray:
        return arrays.empty((n,), dtype.numpy, storage.device())
    own = arrays.strided_view(owner, (nbytes // owner.itemsize,), (1,))
    return own.view(np.uint8)[: n * size].view(dtype.numpy)


def window(storage: Storage, dtype: dtypes.dtype, offset: int, shape, strides) -> Any:
    """Any geometry over a storage; the offset in elements."""
    flat = flat_view(storage, dtype)
    if offset < 0 or any(s < 0 for s in strides) or any(n < 0 for n in shape):
        raise RuntimeError(f"sizes {list(shape)}, strides {list(strides)} and storage offset {offset}: negative numbers mean nothing here")
    extent = layout.storage_extent(tuple(shape), tuple(strides), offset)
    if extent > flat.size:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {offset}, and itemsize {dtype.itemsize} requiring a "
            f"storage size of {extent * dtype.itemsize} are out of bounds for storage of size {storage.nbytes()}"
        )
    return arrays.strided_view(flat, tuple(shape), tuple(strides), offset)


def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Make this tensor a window on another tensor's (or storage's) memory; without arguments, an empty one."""
    from flambeau.eager import inplace

    inplace.check_writable("set_", self)
    if source is None:
        storage, offset, size, stride = Storage(arrays.empty((0,), self._array.dtype, self.device)), 0, (0,), (1,)
    elif isinstance(source, Tensor):
        if source.dtype is not self.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.dtype.name} to a tensor of type {self.dtype.name}")
        storage = source._shared_storage()
        offset = source.storage_offset() if size is None else storage_offset
        size, stride = (source.shape, source.stride()) if size is None else (size, stride)
    else:
        storage, offset = untyped(source)._storage, storage_offset
        size = (storage.nbytes() // self.element_size(),) if size is None else size
    size = tuple(size) if not hasattr(size, "__index__") else (size,)
    stride = layout.contiguous_strides(size) if not stride and len(size) else tuple(stride or ())
    self._array = window(storage, self.dtype, offset, size, stride)
    self._storage = storage
    storage.version += 1
    return self


def untyped(storage: Any) -> UntypedStorage:
    """The bytes of either kind of storage."""
    if isinstance(storage, _Memory):
        return storage.untyped()
    raise TypeError(f"expected a Tensor or a storage, found {type(storage).__name__}")


def resize_(self: Tensor, *sizes, memory_format=formats.contiguous_format) -> Tensor:
    """Give this tensor another shape; memory is added where it is short, and new elements have no defined value."""
    from flambeau.factories import shape_of, unlikely

    if self.requires_grad:
        raise RuntimeError("cannot resize variables that require grad")
    shape = shape_of("resize_", sizes)
    if shape == tuple(self._array.shape) and memory_format is formats.contiguous_format:
        return self
    strides = formats.strides_for(memory_format, shape, ())
    offset, storage = self.storage_offset(), self._shared_storage()
    needed = layout.storage_extent(shape, strides, offset) * self.element_size()
    if needed > storage.nbytes():
        before = storage.nbytes() // self.element_size()
        resize_storage(storage, needed)
        if settings.fills_memory() and self.device.type != "meta":
            arrays.fill(flat_view(storage, self.dtype)[before:], unlikely(self.dtype))
    self._array = window(storage, self.dtype, offset, shape, strides)
    self._bump()
    return self


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format=formats.contiguous_format) -> Tensor:
    """`resize_` to the shape of another tensor."""
    if memory_format is formats.preserve_format:
        memory_format = formats.contiguous_format
    return resize_(self, tuple(the_template.shape), memory_format=memory_format)


def resize_storage(storage: Storage, nbytes: int) -> None:
    """Give a storage another size, keeping the bytes that fit."""
    if nbytes < 0:
        raise RuntimeError(f"a storage cannot have {nbytes} bytes")
    before = flat_view(storage, dtypes.uint8)
    after = arrays.empty((nbytes,), np.dtype(np.uint8), storage.device())
    kept = min(nbytes, before.size)
    if kept and type(after) is not MetaArray:
        after[:kept] = before[:kept]
    exchange(storage, after)


def exchange(storage: Storage, memory: Any, known: list[Tensor] | None = None) -> None:
    """Put other memory behind a storage, and behind every tensor that looks at it; `known` are these, if they are known.

    Arrays know their memory by address, so the tensors must be found; the garbage collector knows who refers to the storage. That takes
    milliseconds, and it is for the rare programs that resize a storage or move it to shared memory while tensors look at it.
    """
    users = [t for t in (_tensors_on(storage) if known is None else known) if t._array.size]
    geometry = [(t, t.dtype, t.storage_offset(), *arrays.view_of(t._array)) for t in users]
    replacement = Storage(memory)
    for _, dtype, offset, shape, strides in geometry:
        if layout.storage_extent(tuple(shape), strides, offset) * dtype.itemsize > replacement.nbytes():
            found = f"{replacement.nbytes()} bytes while a tensor of shape {tuple(shape)} needs more of it"
            raise NotImplementedError(f"a storage cannot shrink to {found}: delete the tensor, or resize_ it first")
    storage.array, storage.nbytes_, storage.segment = memory, None, None
    for t, dtype, offset, shape, strides in geometry:
        t._array = window(storage, dtype, offset, shape, strides)


def _tensors_on(storage: Storage) -> list[Tensor]:
    """All tensors whose storage this is."""
    found: dict[int, Tensor] = {}
    for holder in gc.get_referrers(storage):
        # An object's attributes lie in the object itself, or in a dict that the object refers to.
        for candidate in (holder,) if not isinstance(holder, dict) else gc.get_referrers(holder):
            if isinstance(candidate, Tensor) and candidate._storage is storage:
                found[id(candidate)] = candidate
    return list(found.values())


# -- storages with a dtype -----------------------------------------------------------------------------------------


class TypedStorage(_Memory):
    """A storage read as numbers of one dtype. PyTorch keeps it for old programs; `UntypedStorage` is what it recommends."""

    def __init__(
        self, *args, dtype: dtypes.dtype | None = None, device: Any = None, wrap_storage: UntypedStorage | None = None, _internal=False
    ):
        self.dtype: dtypes.dtype = dtype or dtypes.get_default_dtype()
        given: Any = args[0] if args else 0
        if wrap_storage is None and hasattr(given, "__index__"):
            wrap_storage = UntypedStorage(given.__index__() * self.dtype.itemsize, device=device)
        elif wrap_storage is None:
            from flambeau.factories import tensor

            wrap_storage = tensor(list(given), dtype=self.dtype, device=device).untyped_storage()
        self._storage = wrap_storage._storage

    def _over(self, storage: Storage) -> TypedStorage:
        return TypedStorage(wrap_storage=UntypedStorage._of(storage), dtype=self.dtype)

    def __getitem__(self, index):
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._values()[index].item()

    def type(self, dtype: Any = None) -> Any:
        """The name of its type, or a copy with another."""
        if dtype is None:
            return f"torch.{storage_name(self.dtype)}"
        return typed_storage(wrap(self._values()).to(dtype if isinstance(dtype, dtypes.dtype) else dtype.dtype))

    def pickle_storage_type(self) -> str:
        """The name PyTorch's files call it by."""
        return storage_name(self.dtype)

    def __eq__(self, other) -> bool:
        return isinstance(other, TypedStorage) and self._storage is other._storage and self.dtype is other.dtype

    def __hash__(self) -> int:
        return hash((id(self._storage), self.dtype.name))

    def __reduce__(self):
        return partial(TypedStorage, wrap_storage=self.untyped(), dtype=self.dtype), ()


for _kind in ("double", "float", "half", "long", "int", "short", "bool", "bfloat16", "char", "byte"):
    _dtype = {"char": dtypes.int8, "byte": dtypes.uint8}.get(_kind) or dtypes.BY_NAME[_kind]
    setattr(TypedStorage, _kind, lambda self, _d=_dtype: self.type(_d))


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
OLD_NAME_OF |= {d: name for name, d in _QUANTIZED.items()}


def storage_name(dtype: dtypes.dtype) -> str:
    """FloatStorage for float32, and so on."""
    return f"{OLD_NAME_OF[dtype]}Storage"


class _LegacyStorage(type):
    """torch.FloatStorage(3) makes a TypedStorage, and isinstance asks for the dtype."""

    dtype: dtypes.dtype

    def __call__(cls, *args, **kwargs):
        return TypedStorage(*args, dtype=cls.dtype, **kwargs)

    def from_file(cls, filename, shared: bool = False, size: int = 0) -> TypedStorage:
        """A storage over the first `size` elements of a file."""
        return TypedStorage(wrap_storage=UntypedStorage.from_file(filename, shared, size * cls.dtype.itemsize), dtype=cls.dtype)

    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype


def _legacy_storage(name: str, dtype: dtypes.dtype) -> type:
    return _LegacyStorage(name, (), {"dtype": dtype, "__module__": "torch", "__doc__": f"The old constructor of storages of {dtype}."})


LEGACY_STORAGES: dict[str, type] = {f"{name}Storage": _legacy_storage(f"{name}Storage", d) for name, d in (OLD_NAMES | _QUANTIZED).items()}


def storage(self: Tensor) -> TypedStorage:
    """The storage as numbers; `untyped_storage()` is preferred."""
    warnings.warn(
        "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. Use "
        "tensor.untyped_storage() instead of tensor.storage()",
        stacklevel=2,
    )
    return typed_storage(self)


def typed_storage(self: Tensor) -> TypedStorage:
    """The storage of a tensor as numbers of its dtype, without a warning."""
    return TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype)


def storage_type(self: Tensor) -> type:
    """The old class of the storage, such as torch.FloatStorage."""
    return LEGACY_STORAGES[storage_name(self.dtype)]


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, _Memory)


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether two tensors are the same window on the same storage."""
    same_memory = self._shared_storage() is tensor._shared_storage() and self.storage_offset() == tensor.storage_offset()
    return same_memory and arrays.view_of(self._array) == arrays.view_of(tensor._array)


for _method in (set_, resize_, resize_as_, storage, storage_type, is_set_to):
    setattr(Tensor, _method.__name__, _method)
Tensor._typed_storage = typed_storage
