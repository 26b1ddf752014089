"""PyTorch as the oracle: carry a tensor from one framework to the other, run a call in both, compare what came out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

# How far results may be apart, by PyTorch's dtype: a few units in the last place for one operation.
TOLERANCE = {
    torch.float64: 1e-12,
    torch.float32: 2e-6,
    torch.bfloat16: 1.6e-2,
    torch.float16: 2e-3,
    torch.complex64: 2e-6,
    torch.complex128: 1e-12,
}


def dtype_of(name: str) -> tuple[Any, Any]:
    """(Flambeau's dtype, PyTorch's dtype) of a name."""
    return getattr(flambeau, name), getattr(torch, name)


def carried(theirs: torch.Tensor) -> flambeau.Tensor:
    """PyTorch's tensor in Flambeau: the same values in memory of its own, with the same strides and offset."""
    ours, _ = dtype_of(str(theirs.dtype).removeprefix("torch."))
    raw = torch.empty(0, dtype=torch.uint8).set_(theirs.untyped_storage()).numpy().copy()
    memory = flambeau.from_numpy(raw).view(ours) if raw.size else flambeau.empty(0, dtype=ours)
    return memory.as_strided(tuple(theirs.shape), theirs.stride(), theirs.storage_offset())


def values(tensor: Any) -> np.ndarray:
    """A tensor of either framework as NumPy's array; half precision as float32."""
    half = str(tensor.dtype) == "torch.bfloat16"
    return (tensor.float() if half else tensor).detach().cpu().resolve_conj().numpy()


def assert_same(ours: Any, theirs: Any, strides: bool = True, tolerance: float | None = None) -> None:
    """Value, dtype, shape and strides are PyTorch's; sequences element by element, numbers and other things by equality."""
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, flambeau.Tensor), f"found {type(ours).__name__}"
        assert str(ours.dtype) == str(theirs.dtype), f"found {ours.dtype}, expected {theirs.dtype}"
        assert tuple(ours.shape) == tuple(theirs.shape), f"found shape {tuple(ours.shape)}, expected {tuple(theirs.shape)}"
        if strides and theirs.numel():
            # Strides of a dimension of size 1, and of a tensor without elements, lead nowhere.
            steps = [(mine, other) for mine, other, n in zip(ours.stride(), theirs.stride(), theirs.shape, strict=True) if n > 1]
            assert all(mine == other for mine, other in steps), f"found strides {ours.stride()}, expected {theirs.stride()}"
        room = TOLERANCE.get(theirs.dtype, 0) if tolerance is None else tolerance
        np.testing.assert_allclose(values(ours), values(theirs), rtol=room, atol=room, equal_nan=True)
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other, strides, tolerance)
    else:
        assert ours == theirs or (ours != ours and theirs != theirs)


def outcome(call: Callable[[], Any]) -> tuple[Any, Exception | None]:
    """(result, None) or (None, exception)."""
    try:
        return call(), None
    except Exception as problem:
        return None, problem


def assert_same_outcome(ours: Callable[[], Any], theirs: Callable[[], Any], strides: bool = True, empty: bool = False) -> tuple[Any, Any]:
    """Both give the same result, or raise the same type of exception. Returns the two results.

    With `empty`, where no element is at stake and PyTorch often looks neither at dtypes nor at dimensions, we may refuse alone.
    """
    expected, refused = outcome(theirs)
    found, problem = outcome(ours)
    if empty and refused is None and problem is not None:
        return None, None
    assert_same_problem(problem, refused)
    if refused is None:
        assert_same(found, expected, strides)
    return found, expected


def assert_same_problem(ours: Exception | None, theirs: Exception | None) -> None:
    """Both None, or both of one type."""
    assert type(ours) is type(theirs), f"found {ours!r}, expected {theirs!r}"
