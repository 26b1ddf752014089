"""Storages as users see them: the bytes behind tensors. (typed_storage.py reads them as numbers, for old programs.)

A tensor is a window on a storage. This file has what moves windows and what replaces the memory behind them: `set_`, `resize_`,
`resize_as_`, `UntypedStorage.resize_`.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from flambeau import determinism, devices, dtypes
from flambeau.eager import inplace
from flambeau.interpreters import calls
from flambeau.kernels import arrays, layout
from flambeau.kernels.meta import MetaArray
from flambeau.kernels.mirrored import signs, turned_as
from flambeau.ops import formats
from flambeau.tensor.arguments import shape_of
from flambeau.tensor.storage import Storage
from flambeau.tensor.tensor import Tensor, wrap


class _Memory:
    """What both kinds of storages do: elements of one `dtype` over the memory `_storage`. A subclass says how to put another `_over` it."""

    _storage: Storage
    dtype = dtypes.uint8
    is_sparse = is_sparse_csr = is_hpu = False

    def _values(self) -> Any:
        """The elements as a 1-D array over the same memory."""
        return flat_view(self._storage, self.dtype)

    def _readable(self) -> Any:
        """The elements, if there are any to read."""
        if self._storage.place().type == "meta":
            raise NotImplementedError("Not available for 'meta' device type: such a storage has a size and no elements")
        return self._values()

    @property
    def _untyped_storage(self) -> UntypedStorage:
        """The bytes, without the warning of a TypedStorage."""
        return UntypedStorage._of(self._storage)

    def untyped(self) -> UntypedStorage:
        """The bytes."""
        return self._untyped_storage

    @property
    def _cdata(self) -> int:
        """What tells two storages apart."""
        return id(self._storage)

    def __sizeof__(self) -> int:
        """Of the object and its bytes, for sys.getsizeof."""
        return super().__sizeof__() + self._storage.nbytes()

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._storage.nbytes()

    def _size(self) -> int:
        """The number of elements."""
        return self._storage.nbytes() // self.dtype.itemsize

    def size(self) -> int:
        """The number of elements."""
        return self._size()

    def __len__(self) -> int:
        return self._size()

    def element_size(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self._storage.data_ptr()

    @property
    def device(self) -> devices.device:
        """Where the elements are."""
        return self._storage.place()

    @property
    def is_cuda(self) -> bool:
        """Whether the elements are on a GPU."""
        return self._storage.place().type == "cuda"

    @property
    def filename(self) -> str | None:
        """The file that writes to it reach, if there is one."""
        return self._storage.filename

    def get_device(self) -> int | None:
        """The index of its GPU, None on the CPU."""
        return self._storage.place().index

    def resizable(self) -> bool:
        """Whether its memory is its own: not NumPy's, and not lent to NumPy."""
        return self._storage.owned

    def is_shared(self) -> bool:
        """Whether other processes see writes to it."""
        from flambeau.tensor.memory import host_memory

        return host_memory.is_shared(self._storage)

    def share_memory_(self) -> Any:
        """Move the elements to memory that child processes share."""
        from flambeau.tensor.memory import host_memory

        if self._storage.place().type == "meta":
            raise RuntimeError("share_memory_: only available on CPU and CUDA, found a storage on 'meta'")
        host_memory.share(self._storage)
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Whether a GPU can copy from it directly: never on a machine without one."""
        return wrap(self._values()).is_pinned()

    def pin_memory(self, device: Any = None) -> Any:
        """A copy that a GPU can copy from directly; itself if it is one."""
        pinned = wrap(flat_view(self._storage, dtypes.uint8)).pin_memory()
        return self._over(pinned._shared_storage())

    def tolist(self) -> list:
        """The elements as a list."""
        return arrays.to_device(self._readable(), devices.cpu).tolist()

    def __iter__(self) -> Iterator:
        return iter(arrays.to_device(self._readable(), devices.cpu).tolist())

    def _place(self, index: Any, name: str) -> int:
        """An index from 0 on."""
        if not hasattr(index, "__index__"):
            raise (TypeError if name == "get" and self.dtype is dtypes.uint8 else RuntimeError)(
                f"can't index a {type(self)} with {type(index)}: expected a number{'' if name == 'get' else ' or a slice'}"
            )
        size = self._size()
        if not -size <= index < size:
            raise IndexError(f"index {index} out of range: the storage has size {size}")
        return index.__index__() % size

    def __setitem__(self, index, value) -> None:
        if isinstance(value, _Memory):
            raise RuntimeError(f"cannot set item with value type {type(value)}: copy_ copies a storage")
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(f"a storage is sliced with step 1, found {index.step}")
        elif index is not ...:
            index = self._place(index, "set")
        wrap(self._readable())[index] = value
        self._storage.version += 1

    def fill_(self, value) -> Any:
        """Set every element."""
        _Memory.__setitem__(self, ..., value)
        return self

    def copy_(self, source: Any, non_blocking: bool | None = None) -> Any:
        """Overwrite the bytes with those of another storage of as many bytes."""
        here, there = self._storage, source._storage
        if there.nbytes() != here.nbytes():
            raise RuntimeError(f"size does not match, self was {here.nbytes()} bytes but src was {there.nbytes()} bytes")
        arrays.write(flat_view(here, dtypes.uint8), arrays.to_device(flat_view(there, dtypes.uint8), here.place()))
        here.version += 1
        return self

    def clone(self) -> Any:
        """A copy."""
        return self._over(Storage(arrays.copy(flat_view(self._storage, dtypes.uint8))))

    def __copy__(self) -> Any:
        return _Memory.clone(self)

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self._storage) not in memo:
            memo[id(self._storage)] = self._untyped_storage.clone()
        return self._over(memo[id(self._storage)]._storage)

    def to(self, *, device: Any, non_blocking: bool = False) -> Any:
        """The elements on another device: itself if they are there."""
        where = devices.device(device)
        owner = self._storage.array
        moved = arrays.to_device(owner, where) if where != self._storage.place() else owner
        return self if moved is owner else self._over(Storage(moved))

    def cpu(self) -> Any:
        """The elements in main memory."""
        return _Memory.to(self, device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Any:
        """The elements on a GPU."""
        return _Memory.to(self, device=devices.device("cuda", arrays.cuda().current_device()) if device is None else device)

    def resize_(self, size: int) -> Any:
        """Change the number of elements. Those that remain keep their values, and every tensor on this storage goes along."""
        if not hasattr(size, "__index__"):
            raise RuntimeError(f"resize_ expects an int, but got {type(size).__name__}")
        resize_storage(self._storage, size * self.dtype.itemsize)
        return self

    def __repr__(self) -> str:
        here = self._storage.place()
        rows = "" if here.type == "meta" else "".join(f" {v}\n" for v in _Memory.tolist(self))
        dtype = "" if isinstance(self, UntypedStorage) else f"dtype={self.dtype}, "
        return f"{rows}[torch.storage.{type(self).__name__}({dtype}device={here}) of size {self._size()}]"


class UntypedStorage(Storage, _Memory):
    """A row of bytes: UntypedStorage(8), UntypedStorage([1, 2, 3]), or `tensor.untyped_storage()`.

    It is the storage itself, which becomes one when a user first asks for it: so `is` and pickle's memo see what is shared, and what a
    user writes on it stays for as long as the memory.
    """

    def __new__(cls, *args, device: Any = None):
        if len(args) > 1:
            raise TypeError(f"UntypedStorage() takes a number of bytes, or a sequence of them; found {len(args)} arguments")
        given: Any = args[0] if args else 0
        where = _storage_device(device)
        if hasattr(given, "__index__"):
            if given < 0:
                raise RuntimeError(f"a storage cannot have {given} bytes, a negative number")
            array = arrays.empty((given.__index__(),), np.dtype(np.uint8), where)
        else:
            if not hasattr(given, "__len__") or not hasattr(given, "__getitem__"):
                raise RuntimeError(f"torch.UntypedStorage(): Expected a sequence type, but got {type(given).__name__}")
            for item in given:
                if not hasattr(item, "__index__"):
                    wrong = f"one of the items was of type {type(item).__name__} instead of int"
                    raise RuntimeError(f"torch.UntypedStorage(): of a sequence, {wrong}")
            array = arrays.to_device(np.array([item.__index__() & 0xFF for item in given], np.uint8), where)
        return cls._of(Storage(array))

    @classmethod
    def _of(cls, storage: Storage) -> UntypedStorage:
        """A storage as users see it; a new one, where the class is a user's own."""
        if cls is not UntypedStorage and type(storage) is Storage:
            own = object.__new__(cls)
            Storage.__init__(own, storage.array)
            return own
        if type(storage) is Storage:
            storage.__class__ = cls
        return storage  # type: ignore[return-value]

    def __init__(self, *args, device: Any = None):
        """Nothing is left to do."""

    _over = _of
    _storage = property(lambda self: self)
    device = _Memory.device
    resizable = _Memory.resizable

    def __getitem__(self, index):
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(f"a storage is sliced with step 1, found {index.step}")
            return UntypedStorage._of(Storage(self._readable()[index]))
        return int(self._readable()[self._place(index, "get")])

    def __setitem__(self, index, value) -> None:
        if not hasattr(value, "__index__") and not isinstance(value, Tensor):
            raise RuntimeError(f"a storage is made of bytes, set by ints, found {type(value).__name__}")
        super().__setitem__(index, value)

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte."""
        if not hasattr(value, "__index__"):
            raise RuntimeError(f"fill_ expects int, but got {type(value).__name__}")
        return super().fill_(value)

    def byteswap(self, dtype: dtypes.dtype) -> None:
        """Turn the bytes of every number of this dtype around; the two parts of a complex number each."""
        size = dtype.to_real().itemsize
        numbers = self._readable()
        numbers[: numbers.size // size * size].view(f"u{size}").byteswap(inplace=True)

    @classmethod
    def from_file(cls, filename, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """The first bytes of a file. With shared=True writes reach the file, which is made long enough; else they stay private."""
        if not shared and (found := os.stat(filename).st_size) < nbytes:
            raise RuntimeError(f"file <{filename}> size <{found}> is smaller than the required mapping size <{nbytes}>")
        storage = Storage(mapped(filename, shared, nbytes))
        storage.filename = os.fspath(filename) if shared else None
        return cls._of(storage)

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, *, dtype: dtypes.dtype | None = None
    ) -> UntypedStorage:
        """A copy of the numbers in an object with Python's buffer protocol, whose bytes have the order "little", "big" or "native"."""
        if dtype is None:
            raise RuntimeError("from_buffer: argument 'dtype' cannot be None")
        if byte_order is None:
            if dtype.itemsize > 1:
                raise RuntimeError("from_buffer: function missing required argument 'byte_order' (pos 2)")
            byte_order = "native"
        if byte_order not in ("little", "big", "native"):
            raise ValueError(f"invalid byte_order '{byte_order}': there are 'big', 'little' and 'native'")
        view = memoryview(buffer).cast("B")
        size, length = dtype.itemsize, len(view)
        if not 0 <= offset <= length:
            raise ValueError(f"offset must be non-negative and within the buffer of {length} bytes, found {offset}")
        if count < 0:
            if (length - offset) % size:
                raise ValueError(f"the {length - offset} bytes of the buffer are no multiple of the element's {size}")
            count = (length - offset) // size
        if offset + count * size > length:
            raise ValueError(f"after offset {offset}, the buffer has {(length - offset) // size} elements, fewer than {count}")
        array = np.frombuffer(view[offset : offset + count * size], np.uint8).copy()
        made = cls._of(Storage(array != 0 if dtype is dtypes.bool else array))
        if byte_order not in ("native", sys.byteorder):
            made.byteswap(dtype)
        return made

    def new(self) -> UntypedStorage:
        """An empty storage on the same device."""
        return UntypedStorage(0, device=self.device)

    def __reduce_ex__(self, protocol):
        if self.device.type == "meta":
            return partial(UntypedStorage, device="meta"), (self.nbytes(),)
        raw: Any = np.ascontiguousarray(arrays.to_device(self._values(), devices.cpu))
        # From protocol 5 on bytes travel beside the pickle, uncopied, if the pickler wants that.
        return _storage_from_bytes, (pickle.PickleBuffer(raw) if protocol >= 5 else raw.tobytes(), str(self.device))


def _storage_device(device: Any) -> devices.device:
    where = devices.cpu if device is None else devices.device(device)
    if where.type not in devices.HERE:
        raise RuntimeError(f"torch.UntypedStorage(): Storage device not recognized: {where.type}")
    return devices.usable(where)


def _storage_from_bytes(raw, device: str) -> UntypedStorage:
    array = np.frombuffer(raw, np.uint8)
    if not array.flags.writeable:
        array = array.copy()
    return UntypedStorage._of(Storage(arrays.to_device(array, devices.device(device))))


# -- windows on a storage ------------------------------------------------------------------------------------------


def flat_view(storage: Storage, dtype: dtypes.dtype) -> Any:
    """All whole elements of a storage as a 1-D array of `dtype` over the same memory."""
    owner, nbytes, size = storage.array, storage.nbytes(), dtype.itemsize
    if hasattr(owner, "owner"):
        owner.refuse_memory()
    n = nbytes // size
    elements = dtype.integers if isinstance(dtype, dtypes.quantized) else dtype.numpy
    if type(owner) is MetaArray:
        return arrays.empty((n,), elements, storage.place())
    own = arrays.strided_view(owner, (nbytes // owner.itemsize,), (1,))
    return own.view(np.uint8)[: n * size].view(elements)


def window(storage: Storage, dtype: dtypes.dtype, offset: int, shape, strides) -> Any:
    """Any geometry over a storage; the offset in elements."""
    flat = flat_view(storage, dtype)
    if offset < 0 or any(s < 0 for s in strides) or any(n < 0 for n in shape):
        raise RuntimeError(f"sizes {list(shape)}, strides {list(strides)} and storage offset {offset}: negative numbers mean nothing here")
    extent = layout.storage_extent(tuple(shape), tuple(strides), offset)
    if extent > flat.size:
        raise RuntimeError(
            f"set_: sizes {list(shape)}, strides {list(strides)}, offset {offset} and itemsize {dtype.itemsize} requiring a storage size of "
            f"{extent * dtype.itemsize} are out of bounds for storage of size {storage.nbytes()}"
        )
    return arrays.strided_view(flat, tuple(shape), tuple(strides), offset)


def mapped(filename: Any, shared: bool | None, nbytes: int) -> np.ndarray:
    """The first bytes of a file as memory: shared, writes reach the file, which is made long enough; else they stay private."""
    if shared:
        with open(filename, "ab") as file:
            file.truncate(max(file.tell(), nbytes))
    elif not nbytes:
        return np.empty(0, np.uint8)
    return np.memmap(filename, np.uint8, "r+" if shared else "c", shape=nbytes).view(np.ndarray)


def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Make this tensor a window on another tensor's (or storage's) memory; without arguments, an empty one."""
    if calls.dispatched((self,)):
        return calls.carry_out(set_, (self, source, storage_offset, size, stride), {})
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
        storage, offset = storage_for(source, self.dtype)._storage, storage_offset
        size = (storage.nbytes() // self.element_size(),) if size is None else size
    size = tuple(size) if not hasattr(size, "__index__") else (size,)
    stride = layout.contiguous_strides(size) if not stride and len(size) else tuple(stride or ())
    needed = (
        layout.storage_extent(size, stride, offset) * self.element_size() if offset >= 0 and min((*size, *stride), default=0) >= 0 else 0
    )
    if needed > storage.nbytes() and (size, stride) != arrays.view_of(self._array):  # as PyTorch does: another shape makes room for itself
        resize_storage(storage, needed)
    self._array = turned_as(window(storage, self.dtype, offset, size, stride), self._array)
    self._storage = storage
    storage.version += 1
    return self


def storage_for(storage: Any, dtype: dtypes.dtype) -> UntypedStorage:
    """The bytes of either kind of storage, for a tensor of this dtype."""
    if not isinstance(storage, _Memory):
        raise TypeError(f"expected a Tensor or a storage, found {type(storage).__name__}")
    if not isinstance(storage, UntypedStorage) and storage.dtype is not dtype:
        raise RuntimeError(f"Expected a Storage of type {dtype} or an UntypedStorage, but got one of {storage.dtype}")
    return storage._untyped_storage


def resize_(self: Tensor, *sizes, memory_format=formats.contiguous_format) -> Tensor:
    """Give this tensor another shape; memory is added where it is short, and new elements have no defined value."""
    if calls.dispatched((self,)):
        return calls.carry_out(resize_, (self, *sizes), {"memory_format": memory_format})
    if self.requires_grad and not self._inference:
        raise RuntimeError("cannot resize variables that require grad")
    shape = shape_of("resize_", sizes)
    if shape == tuple(self._array.shape) and memory_format is formats.contiguous_format:
        return self
    strides = formats.strides_for(memory_format, shape, ())
    if max(strides, default=0) >= 1 << 63:
        raise RuntimeError(f"Stride calculation overflowed: no machine word holds the strides of a tensor of shape {shape}")
    offset, storage = self.storage_offset(), self._shared_storage()
    needed = layout.check_bytes(layout.storage_extent(shape, strides, offset), self.element_size())
    if needed > storage.nbytes():
        before = storage.nbytes() // self.element_size()
        resize_storage(storage, needed)
        if determinism.fills_memory() and self.device.type != "meta":
            arrays.fill(flat_view(storage, self.dtype)[before:], determinism.unlikely(self.dtype))
    self._array = turned_as(window(storage, self.dtype, offset, shape, strides), self._array)
    self._bump()
    return self


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format=formats.contiguous_format) -> Tensor:
    """`resize_` to the shape of another tensor."""
    if memory_format is formats.preserve_format:
        shape, strides = arrays.view_of(the_template._array)
        in_kind = formats.channels_last if len(shape) == 4 else formats.channels_last_3d
        memory_format = in_kind if layout.looks_channels_last(shape, strides) else formats.contiguous_format
    return resize_(self, tuple(the_template.shape), memory_format=memory_format)


def resize_storage(storage: Storage, nbytes: int) -> None:
    """Give a storage another size, keeping the bytes that fit."""
    if nbytes < 0:
        raise RuntimeError(f"a storage cannot have {nbytes} bytes, a negative number")
    if not storage.owned:
        raise RuntimeError("Trying to resize storage that is not its own: the memory is NumPy's, or lent to NumPy (not resizable)")
    before = flat_view(storage, dtypes.uint8)
    after = arrays.empty((nbytes,), np.dtype(np.uint8), storage.place())
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
    nbytes = Storage(memory).nbytes()
    needed = [layout.storage_extent(tuple(shape), strides, offset) * dtype.itemsize for _, dtype, offset, shape, strides in geometry]
    if max(needed, default=0) > nbytes:
        memory = _lengthened(memory, nbytes, max(needed))
    storage.array, storage.nbytes_, storage.segment = memory, None, None
    for t, dtype, offset, shape, strides in geometry:
        t._array = turned_as(window(storage, dtype, offset, shape, strides), t._array)
    storage.nbytes_ = nbytes


def _lengthened(memory: Any, nbytes: int, needed: int) -> Any:
    """Memory for tensors that look beyond the end of a storage that shrank, until it grows again (PyTorch lets them crash the process).

    What lies beyond are zeros. The system gives pages of zeros away for nothing until they are written to, so the memory is free.
    """
    if type(memory) is not np.ndarray:
        raise NotImplementedError(f"a storage on a GPU cannot shrink to {nbytes} bytes while a tensor looks at {needed}: delete it first")
    longer = np.zeros(needed, np.uint8)
    longer[:nbytes] = memory.reshape(-1).view(np.uint8)
    return longer


def _tensors_on(storage: Storage) -> list[Tensor]:
    """All tensors whose storage this is."""
    found: dict[int, Tensor] = {}
    for holder in gc.get_referrers(storage):
        # An object's attributes lie in the object itself, or in a dict that the object refers to.
        for candidate in (holder,) if not isinstance(holder, dict) else gc.get_referrers(holder):
            if isinstance(candidate, Tensor) and candidate._storage is storage:
                found[id(candidate)] = candidate
    return list(found.values())


StorageBase = UntypedStorage  # torch.StorageBase: what has bytes of its own


# -- questions ---------------------------------------------------------------------------------------------------------


def is_storage(obj: Any) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, _Memory)


def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether two tensors are the same window on the same storage."""
    same_memory = self._shared_storage() is tensor._shared_storage() and self.storage_offset() == tensor.storage_offset()
    mine, others = self._array, tensor._array
    return same_memory and arrays.view_of(mine) == arrays.view_of(others) and signs(mine) == signs(others)


def untyped_storage(self: Tensor) -> UntypedStorage:
    """The bytes behind the tensor and its views."""
    return UntypedStorage._of(self._shared_storage())


for _method in (set_, resize_, resize_as_, is_set_to, untyped_storage):
    setattr(Tensor, _method.__name__, _method)
