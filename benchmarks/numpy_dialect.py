"""NumPy spelled as torch, as far as the cases need it: what the arithmetic costs with no framework around it.

Nothing is imitated that NumPy does not have. A case that asks for more fails, and the table says at what.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import arange, exp, matmul, tanh, where

__version__ = np.__version__
__all__ = ["arange", "exp", "matmul", "tanh", "where"]

bmm = matmul  # batched as it is
Array = np.ndarray[Any, Any]

_generator = np.random.default_rng(0)


def manual_seed(seed: int) -> None:
    """Start the stream that `randn` and `randint` draw from."""
    global _generator
    _generator = np.random.default_rng(seed)


def randn(*shape: int, device: str = "cpu", requires_grad: bool = False) -> Array:
    """Normal numbers in float32, torch's default dtype."""
    _refuse(device, requires_grad)
    return _generator.standard_normal(shape, dtype=np.float32)


def randint(low: int, high: int, shape: tuple[int, ...], device: str = "cpu") -> Array:
    """Integers in [low, high)."""
    _refuse(device)
    return _generator.integers(low, high, shape)


def zeros(*shape: int, device: str = "cpu", requires_grad: bool = False) -> Array:
    """Zeros in float32."""
    _refuse(device, requires_grad)
    return np.zeros(shape, dtype=np.float32)


def relu(x: Array) -> Array:
    """max(x, 0)."""
    return np.maximum(x, np.float32(0))


def sum(x: Array, dim: int | None = None) -> Any:
    """Over one dimension, or all."""
    return np.sum(x, axis=dim)


def mean(x: Array, dim: int | None = None) -> Any:
    """Over one dimension, or all."""
    return np.mean(x, axis=dim)


def var(x: Array, dim: int | None = None) -> Any:
    """Divided by n - 1, as torch does unless told otherwise."""
    return np.var(x, axis=dim, ddof=1)


def max(x: Array, dim: int | None = None) -> Any:
    """The largest value; along a dimension, also where it stands."""
    return np.max(x) if dim is None else (np.max(x, axis=dim), np.argmax(x, axis=dim))


def argmax(x: Array, dim: int | None = None) -> Any:
    """Where the largest value stands."""
    return np.argmax(x, axis=dim)


def cumsum(x: Array, dim: int) -> Array:
    """Running sum."""
    return np.cumsum(x, axis=dim)


def sort(x: Array, dim: int = -1) -> tuple[Array, Array]:
    """Sorted values, and the indices that sort them."""
    order = np.argsort(x, axis=dim)
    return np.take_along_axis(x, order, axis=dim), order


def addmm(bias: Array, a: Array, b: Array) -> Array:
    """bias + a @ b."""
    return np.add(bias, np.matmul(a, b))


def index_select(x: Array, dim: int, index: Array) -> Array:
    """The slices of `x` that `index` names."""
    return np.take(x, index, axis=dim)


def gather(x: Array, dim: int, index: Array) -> Array:
    """out[i, j] = x[i, index[i, j]] for dim 1."""
    return np.take_along_axis(x, index, axis=dim)


def _refuse(device: str, requires_grad: bool = False) -> None:
    if device != "cpu":
        raise NotImplementedError(f"NumPy has no device {device}")
    if requires_grad:
        raise NotImplementedError("NumPy keeps no gradients")
