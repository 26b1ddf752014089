"""torch._C._functorch: what a transform has made of a tensor, for libraries that ask. Only vmap wraps tensors here; those of grad are like any others."""

from __future__ import annotations

from flambeau.batching import vmap
from flambeau.batching.batched import Batched, Level, wrapped
from flambeau.modes import state
from flambeau.tensor import Tensor

__all__ = [
    "current_level", "get_unwrapped", "is_batchedtensor", "is_functionaltensor", "is_functorch_wrapped_tensor", "is_gradtrackingtensor", "maybe_current_level",
    "maybe_get_bdim", "maybe_get_level",
]  # fmt: skip


def is_batchedtensor(tensor: Tensor) -> bool:
    """Whether a tensor stands for the samples of a vmap."""
    return isinstance(tensor, Batched)


is_functorch_wrapped_tensor = is_batchedtensor


def is_gradtrackingtensor(tensor: Tensor) -> bool:
    """Whether a tensor is the wrapper of a grad: no, gradients need none here."""
    return False


def is_functionaltensor(tensor: Tensor) -> bool:
    """Whether a tensor is the wrapper of functionalize: no, writes need none here."""
    return False


def get_unwrapped(tensor: Tensor) -> Tensor:
    """The tensor with all samples, one level further out."""
    return tensor.value if isinstance(tensor, Batched) else tensor


def maybe_get_level(tensor: Tensor) -> int:
    """The level of the vmap whose samples a tensor stands for, counted from 1; -1 of any other tensor."""
    return tensor.level.depth + 1 if isinstance(tensor, Batched) else -1


def maybe_get_bdim(tensor: Tensor) -> int:
    """Which dimension of `get_unwrapped(tensor)` holds the samples: the first; -1 of a tensor that has none."""
    return 0 if isinstance(tensor, Batched) and tensor.batched else -1


def maybe_current_level() -> int | None:
    """The level of the innermost vmap that is running; None outside."""
    return len(state.levels) or None


def current_level() -> int:
    """The level of the innermost vmap that is running. RuntimeError outside."""
    if not state.levels:
        raise RuntimeError("torch._C._functorch.current_level() is asked inside of a vmap; none is running")
    return len(state.levels)


def _level(number: int) -> Level:
    if not 1 <= number <= len(state.levels):
        raise RuntimeError(f"there is no vmap of level {number} running; {len(state.levels)} are")
    return state.levels[number - 1]


def _add_batch_dim(tensor: Tensor, batch_dim: int, level: int) -> Tensor:
    """A tensor whose dimension `batch_dim` holds samples, as one sample of the vmap of this level."""
    return wrapped(tensor.movedim(batch_dim, 0) if batch_dim else tensor, _level(level))


def _remove_batch_dim(tensor: Tensor, level: int, batch_size: int, out_dim: int) -> Tensor:
    """A sample as the tensor of all samples, which lie in dimension `out_dim`."""
    found = _level(level)
    if batch_size != found.size:
        raise RuntimeError(f"the vmap of level {level} has {found.size} samples, not {batch_size}")
    return vmap.left("?", tensor, out_dim, found)


def _unwrap_batched(tensor: Tensor, level: int) -> tuple[Tensor, int | None]:
    """(the tensor of all samples, the dimension they lie in), or (the tensor, None) of one that is not of this level."""
    if isinstance(tensor, Batched) and tensor.level is _level(level):
        return tensor.value, 0 if tensor.batched else None
    return tensor, None
