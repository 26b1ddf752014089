"""Staging: a copy of the state, made before `async_save` returns, that is written while training goes on and changes the original."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from flambeau import devices
from flambeau.distributed.checkpoint.metadata import STATE_DICT_TYPE
from flambeau.distributed.checkpoint.resharding import is_dtensor, local_tensor
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty_like

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]


@runtime_checkable
class AsyncStager(Protocol):
    """Makes the copy. A storage writer can be one itself; `async_save` asks it, then."""

    _synchronize_after_execute: bool = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Whether async_save calls `synchronize_staging` before it returns."""
        return self._synchronize_after_execute

    def stage(self, state_dict: STATE_DICT_TYPE) -> Future[STATE_DICT_TYPE] | STATE_DICT_TYPE:
        """A copy that nothing changes any more, or a promise of one."""
        raise NotImplementedError(f"{type(self).__name__} must implement stage method: it returns a copy of the state")

    def synchronize_staging(self) -> None:
        """Return when the copy is complete, if `stage` has returned earlier."""

    def close(self) -> None:
        """Let go of threads and memory."""
        raise NotImplementedError(f"{type(self).__name__} must implement close method")


@dataclass
class StagingOptions:
    """How `DefaultStager` copies.

    use_pinned_memory       to pinned memory, which a GPU can write to by itself
    use_shared_memory       to memory that other processes can see
    use_async_staging       in a thread: `stage` returns a Future
    use_non_blocking_copy   have the GPU copy while Python goes on
    """

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class DefaultStager(AsyncStager):
    """Copies to main memory, which is kept for the next time; `close()` gives it back."""

    def __init__(
        self,
        config: StagingOptions = StagingOptions(  # noqa: B008 - PyTorch's default, and nobody changes it
            use_pinned_memory=True, use_shared_memory=True, use_async_staging=True, use_non_blocking_copy=True
        ),
    ):
        self._config = config
        self._executor = ThreadPoolExecutor(1, "flambeau.checkpoint.stage") if config.use_async_staging else None
        self._kept: dict[tuple, Tensor] | None = {}
        self._staging: Future[STATE_DICT_TYPE] | None = None

    def stage(self, state_dict: STATE_DICT_TYPE, **kwargs: Any) -> STATE_DICT_TYPE | Future[STATE_DICT_TYPE]:
        """The copy, or the promise of one. A second call uses the memory of the first: the save must have ended before."""
        if self._executor is None:
            return self._stage(state_dict, **kwargs)
        self._staging = self._executor.submit(self._stage, state_dict, **kwargs)
        return self._staging

    def _stage(self, state_dict: STATE_DICT_TYPE, **kwargs: Any) -> STATE_DICT_TYPE:
        if self._kept is None:
            raise RuntimeError("this DefaultStager is closed: make another one")
        return copied(state_dict, self._kept, pinned=self._config.use_pinned_memory, shared=self._config.use_shared_memory)

    def close(self) -> None:
        """End the thread and give the memory back."""
        if self._executor is not None:
            self._executor.shutdown(wait=True)
        self._kept = None

    def synchronize_staging(self) -> None:
        """Return when the copy is complete."""
        if self._staging is not None:
            self._staging.result()


class BlockingAsyncStager(AsyncStager):
    """Copies before `stage` returns; with `cache_staged_state_dict`, to the same memory every time."""

    _synchronize_after_execute: bool = False

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False):
        self.cache_staged_state_dict = cache_staged_state_dict
        self.type_check = type_check
        self.state_dict_cache: dict[tuple, Tensor] | None = None

    def stage(self, state_dict: STATE_DICT_TYPE) -> STATE_DICT_TYPE:
        """The copy."""
        if not self.cache_staged_state_dict:
            return copied(state_dict, None, type_check=self.type_check)
        if self.state_dict_cache is None:
            self.state_dict_cache = {}
        return copied(state_dict, self.state_dict_cache, type_check=self.type_check)

    def synchronize_staging(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Give the memory back."""
        self.state_dict_cache = None


# -- copying -------------------------------------------------------------------------------------------------------


def copied(state: Any, kept: dict[tuple, Tensor] | None, *, pinned: bool = False, shared: bool = False, type_check: bool = False) -> Any:
    """The state with its tensors in main memory, in memory from `kept` if there is such with the same path, shape and dtype. Dictionaries, lists and tuples
    are made anew; other objects are copied with copy.deepcopy, so that nobody can change them."""

    def copy_tensor(path: tuple, tensor: Tensor) -> Tensor:
        if is_dtensor(tensor):
            return _dtensor_like(tensor, copy_tensor(path, local_tensor(tensor)))
        found = None if kept is None else kept.get(path)
        if found is None or found.shape != tensor.shape or found.dtype is not tensor.dtype:
            found = _memory_like(tensor, pinned, shared)
            if kept is not None:
                kept[path] = found
        return found.copy_(tensor.detach())

    return _rebuilt(state, (), copy_tensor, type_check)


def _memory_like(tensor: Tensor, pinned: bool, shared: bool) -> Tensor:
    memory = empty_like(tensor.detach(), device=devices.cpu)
    if shared and memory.numel():
        return memory.share_memory_()
    return memory.pin_memory() if pinned and tensor.device.type == "cuda" else memory


def _dtensor_like(tensor: Any, local: Tensor) -> Any:
    """A DTensor of the same meaning over other local memory."""
    return type(tensor).from_local(
        local, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.size(), stride=tensor.stride()
    )


def _rebuilt(value: Any, path: tuple, copy_tensor: Callable[[tuple, Tensor], Tensor], type_check: bool) -> Any:
    from copy import deepcopy

    if isinstance(value, Tensor):
        return copy_tensor(path, value)
    if type(value) in (list, tuple):
        return type(value)(_rebuilt(inside, (*path, number), copy_tensor, type_check) for number, inside in enumerate(value))
    if isinstance(value, dict):
        made = {key: _rebuilt(inside, (*path, key), copy_tensor, type_check) for key, inside in value.items()}
        return made if type(value) is dict else _like(value, made)
    if type_check and not isinstance(value, (str, int, float, bool, bytes, type(None))):
        raise ValueError(
            f"Unexpected value type {type(value)} at {'.'.join(map(str, path))}: with type_check, a state is tensors, numbers and text"
        )
    return deepcopy(value)


def _like(given: dict, made: dict) -> dict:
    """The entries in a dictionary of the same class, if that can be made of them."""
    try:
        return type(given)(made)
    except TypeError:
        return made
