"""torch._utils: many tensors as one, as gradients are sent and master copies of weights kept (apex and its descendants import these);
exceptions on their way to another process; and the functions that pickles of PyTorch's name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

from flambeau.exception_wrapper import ExceptionWrapper  # noqa: F401
from flambeau.ops import OPS, contents
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty
from flambeau.tensor.making.parameter import _rebuild_parameter, _rebuild_parameter_with_state  # noqa: F401  (pickles name these and the next)
from flambeau.tensor.making.pickling import (  # noqa: F401
    _rebuild_meta_tensor_no_storage,
    _rebuild_qtensor,
    _rebuild_sparse_tensor,
    _rebuild_tensor,
    _rebuild_tensor_v2,
    _rebuild_tensor_v3,
    _rebuild_wrapper_subclass,
)


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """All elements of tensors of one dtype, one tensor after another. -> (sum of their sizes)"""
    for subject in contents.homes("cat"):
        contents.load(subject)
    return OPS["cat"]([t.contiguous().view(-1) for t in tensors]) if tensors else empty(0)


def _unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat` with the shapes of `tensors`, one after another."""
    found, start = [], 0
    for t in tensors:
        found.append(flat.narrow(0, start, t.numel()).view_as(t))
        start += t.numel()
    return tuple(found)


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Lists of tensors of one type, each of `size_limit` bytes or more where there are as many; what remains of each type comes last."""
    waiting: dict[str, tuple[list[Tensor], int]] = {}
    for t in tensors:
        group, size = waiting.get(t.type(), ([], 0))
        size_of_one = t.numel() * t.element_size()
        if group and size + size_of_one > size_limit:
            yield group
            group, size = [], 0
        group.append(t)
        waiting[t.type()] = group, size + size_of_one
    yield from (group for group, _ in waiting.values() if group)


def _element_size(dtype) -> int:
    """Bytes of one element."""
    return dtype.itemsize


def _get_available_device_type() -> str | None:
    """The kind of accelerator that there is; None where there is only the CPU."""
    return "cuda" if _get_device_module("cuda").is_available() else None


def _get_device_module(device_type: str) -> ModuleType:
    """torch.cuda for "cuda", and so on. RuntimeError for a kind of device that has no module."""
    try:
        return import_module(f"flambeau.{device_type}")
    except ModuleNotFoundError:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'. Try 'cuda' or 'cpu'"
        ) from None


def _set_obj_state(obj: Any, state: Any) -> Any:
    """Give an object the attributes, or (attributes, slots), of another."""
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    for name, value in [*(attributes or {}).items(), *(slots or {}).items()]:
        setattr(obj, name, value)
    return obj
