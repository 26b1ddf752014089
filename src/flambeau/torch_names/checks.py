"""torch._assert and torch._check…: a condition, and the error to raise where it does not hold. Libraries check their arguments by these.

>>> _check_value(3 < 2, lambda: "3 is not below 2")
Traceback (most recent call last):
ValueError: 3 is not below 2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import dtypes
from flambeau.tensor import Tensor

Message = Callable[[], Any] | None


def _assert(condition: Any, message: str) -> None:
    """`assert condition, message`, as a function, also of a tensor with one element."""
    if not condition:
        raise AssertionError(message)


def _assert_async(input: Tensor, assert_msg: str | None = None) -> None:
    """RuntimeError unless the one element of a tensor is true. (PyTorch does not wait for it on a GPU; here it is read at once.)"""
    if input.numel() != 1:
        raise RuntimeError(f"Boolean value of Tensor with {'no values' if not input.numel() else 'more than one value'} is ambiguous")
    if not input:
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _check_with(error_type: type[Exception], cond: bool, message: Message) -> None:
    """Raise `error_type` with what `message()` says, unless `cond` is True."""
    if isinstance(cond, Tensor):
        raise TypeError("cond must be a bool, found a tensor. torch._check_tensor_all(cond) asks all its elements")
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, found {type(cond)}")
    if cond:
        return
    if message is not None and not callable(message):
        raise TypeError("message must be a callable: it is called only where the condition does not hold")
    raise error_type("Expected cond to be True, but got False." if message is None else str(message()))


def _check(cond: bool, message: Message = None) -> None:
    """RuntimeError unless `cond`."""
    _check_with(RuntimeError, cond, message)


def _check_value(cond: bool, message: Message = None) -> None:
    """ValueError unless `cond`."""
    _check_with(ValueError, cond, message)


def _check_index(cond: bool, message: Message = None) -> None:
    """IndexError unless `cond`."""
    _check_with(IndexError, cond, message)


def _check_type(cond: bool, message: Message = None) -> None:
    """TypeError unless `cond`."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: bool, message: Message = None) -> None:
    """NotImplementedError unless `cond`."""
    _check_with(NotImplementedError, cond, message)


def _check_tensor_all(cond: Tensor, message: Message = None) -> None:
    """RuntimeError unless all elements of a tensor of truth values are True."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, found {type(cond)}")
    if cond.dtype is not dtypes.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, found {cond.dtype}")
    _check_with(RuntimeError, bool(cond.all()), message)


def _check_is_size(i: int, message: Message = None, *, max: int | None = None) -> None:
    """RuntimeError unless `i` can be a size: not negative, and at most `max`."""
    _check(bool(i >= 0 and (max is None or i <= max)), message)
