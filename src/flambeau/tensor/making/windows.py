"""Window functions: curves that fade a piece of a signal in and out, so that its ends do not sound like jumps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.tensor.making.factories import factory, made
from flambeau.tensor.tensor import Tensor


@factory
def hann_window(window_length, periodic=True, **options) -> Tensor:
    """(1 - cos x) / 2, with x from 0 to 2 pi: one hump that starts and ends at 0. -> (window_length,)"""
    return _window("hann_window", window_length, periodic, cosines(0.5, 0.5), options)


@factory
def hamming_window(window_length, periodic=True, alpha=0.54, beta=0.46, **options) -> Tensor:
    """alpha - beta cos x, with x from 0 to 2 pi: a hump that does not quite reach 0. -> (window_length,)"""
    return _window("hamming_window", window_length, periodic, cosines(alpha, beta), options)


@factory
def blackman_window(window_length, periodic=True, **options) -> Tensor:
    """0.42 - 0.5 cos x + 0.08 cos 2x, with x from 0 to 2 pi: narrower than Hann's, with fainter sidelobes. -> (window_length,)"""
    return _window("blackman_window", window_length, periodic, cosines(0.42, 0.5, 0.08), options)


@factory
def bartlett_window(window_length, periodic=True, **options) -> Tensor:
    """A triangle from 0 up to 1 and down to 0. -> (window_length,)"""
    return _window("bartlett_window", window_length, periodic, triangle, options)


@factory
def kaiser_window(window_length, periodic=True, beta=12.0, **options) -> Tensor:
    """I0(beta sqrt(1 - x^2)) / I0(beta), x from -1 to 1; beta trades the width of the hump against its sidelobes. -> (window_length,)"""
    return _window("kaiser_window", window_length, periodic, hump(beta), options)


def _window(name: str, n: int, periodic: bool, curve: Callable, options: dict) -> Tensor:
    """Samples of curve(k, m) for k = 0, ..., n - 1, with m = n (a period, without its last point) or n - 1 (both ends included)."""

    def make(dtype: dtypes.dtype, where):
        if not dtype.is_floating_point:
            raise RuntimeError(f"{name} expects floating point dtypes, got: {dtype.name}")
        if n < 0:
            raise RuntimeError(f"{name} requires non-negative window_length, got window_length={n}")
        return sampled(curve, n, n if periodic else n - 1, dtype, where)

    return made(name, make, **options)


def sampled(curve: Callable, n: int, m: int, dtype: dtypes.dtype, device):
    """curve(k, m) for k = 0, ..., n - 1, as an array of this dtype; a window of one sample is 1."""
    values = np.ones(n) if n <= 1 else np.asarray(curve(np.arange(n, dtype=np.float64), m), np.float64)
    return arrays.to_device(values.astype(dtype.numpy), device)


# -- curves, as functions of the sample k and the sample m that repeats the first ----------------------------------------


def cosines(*weights: float) -> Callable:
    """w0 - w1 cos x + w2 cos 2x - ..., with x = 2 pi k / m."""
    return lambda k, m: sum((-1) ** i * w * np.cos(2 * np.pi * i * k / m) for i, w in enumerate(weights))


def triangle(k, m):
    """1 - |2k/m - 1|: from 0 up to 1 and down to 0."""
    return 1 - abs(2 * k / m - 1)


def hump(beta: float) -> Callable:
    """I0(beta sqrt(1 - (2k/m - 1)^2)) / I0(beta)."""
    return lambda k, m: np.i0(beta * np.sqrt(np.maximum(1 - (2 * k / m - 1) ** 2, 0))) / np.i0(beta)
