"""The same lines with PyTorch's torch.utils.data and with ours: what a function returns, raises and warns of must be the same."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")


def frameworks() -> list[SimpleNamespace]:
    """Each with `torch` (the package) and the names of its utils.data."""
    found = []
    for name in ("torch", "flambeau"):
        data = importlib.import_module(f"{name}.utils.data")
        found.append(SimpleNamespace(torch=importlib.import_module(name), name=name, **{n: getattr(data, n) for n in data.__all__}))
    return found


THEIRS, OURS = frameworks()


def plain(value: Any) -> Any:
    """A value without its framework: tensors as (dtype, shape, elements), containers with their type's name, objects by their class."""
    if hasattr(value, "untyped_storage"):
        return str(value.dtype), tuple(value.shape), value.stride(), value.detach().tolist()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return type(value).__name__, {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(v) for v in value]
    if isinstance(value, (int, float, str, bytes, bool, type(None), range, set)):
        return value
    return type(value).__name__


def outcome(function: Callable, framework: SimpleNamespace) -> tuple:
    """(result or type of the exception, categories of warnings), from a fixed seed."""
    framework.torch.manual_seed(7)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = plain(function(framework))
        except Exception as problem:
            result = type(problem).__name__
    return result, sorted(w.category.__name__ for w in seen if "fork" not in str(w.message))


def same(function: Callable) -> Any:
    """Assert that both frameworks do the same, and return what ours gave."""
    theirs, ours = outcome(function, THEIRS), outcome(function, OURS)
    assert ours == theirs
    return ours[0]
