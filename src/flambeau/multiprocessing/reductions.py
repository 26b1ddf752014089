"""How tensors cross to another process: not as bytes, but as a descriptor of the shared memory they lie in.

Sending moves a storage to shared memory, where it stays, so that sender and receiver look at the same numbers. A storage that comes back
to a process that has it is the same storage again. The sender must live until the receiver has the tensor: the descriptor is handed over
by Python's `multiprocessing.resource_sharer`.
"""

from __future__ import annotations

import os
import weakref
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

from flambeau import dtypes
from flambeau.tensor import Tensor
from flambeau.tensor.making import pickling
from flambeau.tensor.making.parameter import Parameter
from flambeau.tensor.memory import host_memory
from flambeau.tensor.memory.anonymous_memory import Segment
from flambeau.tensor.memory.untyped_storage import UntypedStorage
from flambeau.tensor.storage import Storage

# (device, inode) of a block of shared memory -> the storage over it in this process
_known: weakref.WeakValueDictionary[tuple[int, int], Storage] = weakref.WeakValueDictionary()


def init_reductions() -> None:
    """Tell Python's multiprocessing how tensors, parameters and storages are sent."""
    for kind, reduce in ((Tensor, reduce_tensor), (Parameter, reduce_tensor), (UntypedStorage, reduce_storage)):
        ForkingPickler.register(kind, reduce)


def reduce_tensor(tensor: Tensor) -> tuple:
    """A window on a storage; the storage is reduced by itself, so that tensors that share it still do."""
    refuse_history(tensor)
    if tensor.device.type == "cpu":
        tensor._shared_storage()
        host_memory.share_of(tensor)
    window = tensor.untyped_storage(), tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype
    return rebuild_tensor, (type(tensor), *window, tensor.requires_grad, pickling.attributes(tensor), pickling.metadata(tensor))


def refuse_history(tensor: Tensor) -> None:
    """RuntimeError for the result of an operation whose gradient is wanted: its history cannot go along."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "a non-leaf tensor which requires_grad is not sent: its history stays in this process, and backward() in another "
            "would silently stop here. Send tensor.detach() if the numbers are enough"
        )


def rebuild_tensor(
    kind: type, storage: UntypedStorage, offset: int, shape, stride, dtype: dtypes.dtype, needs: bool, state: dict, metadata: dict
) -> Any:
    """The window again, in the receiver."""
    tensor: Any = pickling.rebuild(storage, offset, shape, stride, dtype, metadata)
    tensor = Parameter(tensor, needs) if issubclass(kind, Parameter) else tensor.requires_grad_(needs)
    vars(tensor).update(state)
    return tensor


def reduce_storage(public: UntypedStorage) -> tuple:
    """The descriptor of the memory, which is moved to where others can map it. On other devices, and if there is none, as pickle does."""
    storage = public._storage
    if storage.place().type != "cpu" or not storage.nbytes():
        return public.__reduce_ex__(4)
    host_memory.share(storage)
    # A file mapped by from_file(shared=True) is shared with others already and stays where it is: the receiver gets a copy.
    segment = storage.segment or host_memory.shared_copy(storage)
    if storage.segment is not None:
        _known[_identity(segment.descriptor)] = storage
    return rebuild_storage, (DupFd(segment.descriptor), storage.nbytes())


def rebuild_storage(sent: Any, nbytes: int) -> UntypedStorage:
    """The same memory, in the receiver."""
    try:
        descriptor = sent.detach()
    except (ConnectionError, FileNotFoundError, EOFError) as problem:
        raise RuntimeError(
            "this tensor is gone: the process that sent it has ended. It must live until the tensor was received"
        ) from problem
    storage = _known.get(_identity(descriptor))
    if storage is not None:
        os.close(descriptor)
    else:
        segment = Segment(descriptor, nbytes)
        storage = Storage(segment.memory)
        storage.segment = segment
        _known[_identity(descriptor)] = storage
    return UntypedStorage._of(storage)


class StorageWeakRef:
    """A weak reference to the memory behind a tensor: StorageWeakRef(t.untyped_storage()). Two are equal that refer to the same memory."""

    __slots__ = ("_reference", "cdata")

    def __init__(self, storage: UntypedStorage) -> None:
        self._reference, self.cdata = weakref.ref(storage._storage), id(storage._storage)

    def expired(self) -> bool:
        """Whether the memory is gone."""
        return self._reference() is None

    def __hash__(self) -> int:
        return self.cdata

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, StorageWeakRef) and self.cdata == other.cdata)


def _identity(descriptor: int) -> tuple[int, int]:
    """What tells blocks of shared memory apart, whatever descriptor stands for them."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino
