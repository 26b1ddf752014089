"""Main memory with special properties: shared with child processes, or pinned for copies to a GPU."""

from __future__ import annotations

import mmap
import sys
from _thread import RLock
from sys import getrefcount
from typing import Any

import numpy as np

from flambeau import devices, forks
from flambeau.kernels import arrays
from flambeau.tensor.memory.anonymous_memory import Segment
from flambeau.tensor.storage import Storage
from flambeau.tensor.tensor import Tensor, wrap


def share_memory_(self: Tensor) -> Tensor:
    """Move the storage to memory that processes forked from now on share: what one writes, all see."""
    self._shared_storage()
    share_of(self)
    return self


def is_shared_(self: Tensor) -> bool:
    """Whether other processes see writes to this tensor. Memory on a GPU always can be shared."""
    return is_shared(self._shared_storage())


def share_of(tensor: Tensor) -> None:
    """`share` for the storage of a tensor. Where nothing else looks at it, which its reference count tells, nobody has to be looked for."""
    alone = _holders(tensor) == ALONE
    share(tensor._shared_storage(), [tensor] if alone else None)


def _holders(tensor: Tensor) -> int:
    return getrefcount(tensor._storage)


def _holders_of_a_lone_storage() -> int:
    tensor = wrap(np.zeros(1))
    tensor._shared_storage()
    return _holders(tensor)


ALONE = _holders_of_a_lone_storage()


def share(storage: Storage, users: list[Tensor] | None = None) -> None:
    """Put anonymous shared memory behind a storage and everything that looks at it: the users, or whoever can be found."""
    from flambeau.tensor.memory.untyped_storage import exchange

    with _moving:  # two threads may send one tensor, to worker processes that are started side by side
        if storage.place().type != "cpu" or is_shared(storage) or not storage.nbytes():
            return
        segment = shared_copy(storage)
        exchange(storage, segment.memory, users)
        storage.segment = segment


_moving = RLock()
forks.renewed(sys.modules[__name__], "_moving", RLock)


def shared_copy(storage: Storage) -> Segment:
    """The bytes of a storage in a new block of shared memory."""
    from flambeau.tensor.memory.untyped_storage import UntypedStorage

    segment = Segment.new(storage.nbytes())
    segment.memory[...] = UntypedStorage._of(storage)._values()
    return segment


def is_shared(storage: Storage) -> bool:
    """Whether the memory behind a storage is shared between processes."""
    if storage.place().type == "cuda":
        return True
    owner: Any = storage.array
    while owner is not None:
        if isinstance(owner, memoryview):
            owner = owner.obj
        if isinstance(owner, mmap.mmap):
            return True
        owner = getattr(owner, "base", None)
    return False


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in memory a GPU can read directly; itself if it is there."""
    need_accelerator("pin_memory()")
    if not self.is_cpu:
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    pinned = arrays.cuda().pinned_empty(self._array.shape, self._array.dtype)
    arrays.write(pinned, self._array)
    return self.new_tensor(()).set_(wrap(pinned))


def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether a GPU can read this memory directly."""
    return self.is_cpu and cuda_is_available() and arrays.cuda().is_pinned(self._shared_storage().array)


def need_accelerator(what: str) -> None:
    """RuntimeError on a machine without a GPU."""
    if not cuda_is_available():
        raise RuntimeError(f"{what} requires a CUDA device, and none is available. Leave it out on a CPU")


def cuda_is_available() -> bool:
    """Whether there is a GPU that can be used."""
    try:
        return arrays.cuda().is_available()
    except (AssertionError, ImportError, AttributeError):
        return False


def get_device(self: Tensor) -> int:
    """The index of the GPU the tensor is on, -1 on the CPU."""
    device: devices.device = self.device
    return device.index if device.type == "cuda" else -1


Tensor.is_shared = is_shared_
for _method in (share_memory_, pin_memory, is_pinned, get_device):
    setattr(Tensor, _method.__name__, _method)


def cuda_device_count() -> int:
    """How many GPUs there are that can be used."""
    return arrays.cuda().device_count() if cuda_is_available() else 0
