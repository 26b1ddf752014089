"""torch._jit_internal: names of types and marks for TorchScript, which code copied from PyTorch's imports from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Dict, Final, Generic, List, Optional, Tuple, TypeVar, Union  # noqa: F401, UP035 - names for others

from flambeau.jit import export, ignore, is_scripting, unused  # noqa: F401 - names for others

T = TypeVar("T")


class _Broadcasting:
    """BroadcastingList2[int]: two numbers, or one for both; only a name."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1, BroadcastingList2, BroadcastingList3 = _Broadcasting(), _Broadcasting(), _Broadcasting()


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Callable, if_false: Callable, module_name: str, func_name: str
) -> Callable:
    """A function that is one of two, by the value of a flag it is called with."""

    def chosen(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if flag else if_false)(*args, **kwargs)

    chosen.__doc__, chosen.__name__, chosen.__module__ = if_true.__doc__ or if_false.__doc__, func_name, module_name
    return chosen


def _overload(func: Callable) -> Callable:
    """Mark one of several signatures; returned unchanged."""
    return func


_overload_method = weak_module = weak_script_method = weak_script = _overload
