"""torch.utils._python_dispatch: tensors made of tensors, and modes below autograd."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from flambeau.dispatch import aliasing, stack
from flambeau.dispatch.mode import BaseTorchDispatchMode, TorchDispatchMode
from flambeau.interpreters import stack as interpreters
from flambeau.tensor import Tensor

__all__ = [
    "BaseTorchDispatchMode", "TorchDispatchMode", "all_same_mode", "is_in_torch_dispatch_mode", "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type", "return_and_correct_aliasing", "transform_subclass",
]  # fmt: skip

return_and_correct_aliasing = aliasing.return_and_correct_aliasing


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    """Whether a mode is active; without `include_infra_modes`, one of a program's own."""
    return any(include_infra_modes or not mode.is_infra_mode() for mode in stack.current_modes())


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    """Whether a mode is active that wants to see what a compiler does."""
    return any(not mode.ignore_compile_internals() for mode in stack.current_modes())


def _get_current_dispatch_mode() -> TorchDispatchMode | None:
    return next(reversed(stack.current_modes()), None)


def _get_current_dispatch_mode_stack() -> list[TorchDispatchMode]:
    return stack.current_modes()


def _len_torch_dispatch_stack() -> int:
    return len(stack.current_modes())


def _push_mode(mode: TorchDispatchMode) -> None:
    stack.push(mode)


def _pop_mode(k: Any = None) -> TorchDispatchMode:
    return stack.pop()


@contextlib.contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[TorchDispatchMode]:
    with stack.without_mode() as mode:
        yield mode


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[TorchDispatchMode]]:
    active = stack.current_modes()
    with interpreters.kept(lambda entry: entry.level != interpreters.DISPATCH):
        yield active


def all_same_mode(modes: Sequence[Any]) -> bool:
    """Whether all are one and the same mode."""
    return all(mode is modes[0] for mode in modes)


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor says, by __tensor_flatten__ and __tensor_unflatten__, of which tensors it is made."""
    return (isinstance(t, Tensor) or type(t) is type) and is_traceable_wrapper_subclass_type(t if isinstance(t, type) else type(t))


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    """Whether tensors of this type say of which tensors they are made."""
    return issubclass(t, Tensor) and t is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def transform_subclass(t: Tensor, callback: Any, outer_size: Any = None, outer_stride: Any = None) -> Tensor:
    """The tensor anew, made of callback(name, part) of each of its parts."""
    size, stride = t.size() if outer_size is None else outer_size, t.stride() if outer_stride is None else outer_stride
    names, meta = t.__tensor_flatten__()  # type: ignore[attr-defined]
    parts = {name: callback(name, getattr(t, name)) for name in names}
    made = type(t).__tensor_unflatten__(parts, meta, size, stride)  # type: ignore[attr-defined]
    if tuple(made.shape) != tuple(size) or tuple(made.stride()) != tuple(stride):
        raise RuntimeError(
            f"{type(t).__name__}.__tensor_unflatten__ made a tensor of size {tuple(made.shape)} and stride {tuple(made.stride())}, "
            f"expected {tuple(size)} and {tuple(stride)}"
        )
    return made
