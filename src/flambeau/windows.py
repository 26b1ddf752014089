"""Window functions: curves that fade a piece of a signal in and out, so that its ends do not sound like jumps."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.factories import check_options, device_of, dtype_of, factory, finish
from flambeau.kernels import arrays
from flambeau.tensor import Tensor

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]


@factory
def hann_window(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False) -> Tensor:
    """(1 - cos x) / 2, with x from 0 to 2 pi: one hump that starts and ends at 0. -> (window_length,)"""
    return _window("hann_window", _cosines(0.5, 0.5), window_length, periodic, dtype, layout, device, pin_memory, requires_grad)


@factory
def hamming_window(
    window_length, periodic=True, alpha=0.54, beta=0.46, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
) -> Tensor:
    """alpha - beta cos x, with x from 0 to 2 pi: a hump that does not quite reach 0. -> (window_length,)"""
    return _window("hamming_window", _cosines(alpha, beta), window_length, periodic, dtype, layout, device, pin_memory, requires_grad)


@factory
def blackman_window(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False) -> Tensor:
    """0.42 - 0.5 cos x + 0.08 cos 2x, with x from 0 to 2 pi: narrower than Hann's, with fainter sidelobes. -> (window_length,)"""
    return _window("blackman_window", _cosines(0.42, 0.5, 0.08), window_length, periodic, dtype, layout, device, pin_memory, requires_grad)


@factory
def bartlett_window(window_length, periodic=True, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False) -> Tensor:
    """A triangle from 0 up to 1 and down to 0. -> (window_length,)"""
    return _window(
        "bartlett_window", lambda u: 1 - abs(2 * u - 1), window_length, periodic, dtype, layout, device, pin_memory, requires_grad
    )


@factory
def kaiser_window(
    window_length, periodic=True, beta=12.0, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
) -> Tensor:
    """I0(beta sqrt(1 - x^2)) / I0(beta), x from -1 to 1; beta trades the width of the hump against its sidelobes. -> (window_length,)"""

    def shape(u):
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * u - 1) ** 2, 0))) / np.i0(beta)

    return _window("kaiser_window", shape, window_length, periodic, dtype, layout, device, pin_memory, requires_grad)


def _cosines(*weights: float):
    """w0 - w1 cos x + w2 cos 2x - ..., as a function of u = x / 2 pi."""

    def shape(u):
        return sum((-1) ** k * w * np.cos(2 * np.pi * k * u) for k, w in enumerate(weights))

    return shape


def _window(name: str, shape: Any, n: int, periodic: bool, dtype, layout, device, pin_memory, requires_grad) -> Tensor:
    """Samples of shape(u) at u = 0, 1/m, 2/m, ... with m = n (a period, without its last point) or n - 1 (both ends included)."""
    dtype = dtype_of(name, dtype) or dtypes.get_default_dtype()
    check_options(name, layout, pin_memory)
    if not dtype.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype.name}")
    if n < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={n}")
    if n <= 1:
        return finish(arrays.to_device(np.ones(n, dtype.numpy), device_of(device)), requires_grad)
    values = shape(np.arange(n) / (n if periodic else n - 1))
    return finish(arrays.to_device(np.asarray(values, np.float64).astype(dtype.numpy), device_of(device)), requires_grad)
