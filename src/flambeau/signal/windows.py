"""Windows as `torch.signal.windows` has them: symmetric by default, with more shapes than the old `torch.hann_window` family.

Each is a function of the sample number k = 0, 1, ..., M - 1. `sym=True` makes the last sample mirror the first; `sym=False` leaves it
out, so that the window repeats without a double point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from flambeau import dtypes, layouts
from flambeau.factories import device_of, dtype_of, factory, finish
from flambeau.kernels import arrays
from flambeau.tensor import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
]  # fmt: skip


@factory
def bartlett(M: int, *, sym: bool = True, dtype=None, layout=layouts.strided, device=None, requires_grad: bool = False) -> Tensor:
    """1 - |2k/n - 1|: a triangle from 0 up to 1 and down to 0. -> (M,)"""
    return _sampled("bartlett", M, sym, lambda k, n: 1 - abs(2 * k / n - 1), dtype, layout, device, requires_grad)


@factory
def cosine(M: int, *, sym: bool = True, dtype=None, layout=layouts.strided, device=None, requires_grad: bool = False) -> Tensor:
    """sin(pi (k + 1/2) / (n + 1)): half a period of a sine. -> (M,)"""
    return _sampled("cosine", M, sym, lambda k, n: np.sin(np.pi * (k + 0.5) / (n + 1)), dtype, layout, device, requires_grad)


@factory
def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype=None, layout=layouts.strided, device=None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """exp(-|k - center| / tau), centred unless a periodic one says otherwise. -> (M,)"""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    return _sampled(
        "exponential",
        M,
        sym,
        lambda k, n: np.exp(-abs(k - (n / 2 if center is None else center)) / tau),
        dtype,
        layout,
        device,
        requires_grad,
    )


@factory
def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype=None, layout=layouts.strided, device=None, requires_grad: bool = False
) -> Tensor:
    """exp(-((k - n/2) / std)^2 / 2): the bell curve. -> (M,)"""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _sampled("gaussian", M, sym, lambda k, n: np.exp(-0.5 * ((k - n / 2) / std) ** 2), dtype, layout, device, requires_grad)


@factory
def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype=None, layout=layouts.strided, device=None, requires_grad: bool = False
) -> Tensor:
    """I0(beta sqrt(1 - (2k/n - 1)^2)) / I0(beta): beta trades the width of the hump against its sidelobes. -> (M,)"""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")

    def curve(k, n):
        return np.i0(beta * np.sqrt(np.maximum(1 - (2 * k / n - 1) ** 2, 0))) / np.i0(beta)

    return _sampled("kaiser", M, sym, curve, dtype, layout, device, requires_grad)


@factory
def general_cosine(
    M: int, *, a: Iterable[float], sym: bool = True, dtype=None, layout=layouts.strided, device=None, requires_grad: bool = False
) -> Tensor:
    """a0 - a1 cos x + a2 cos 2x - ..., with x = 2 pi k / n. -> (M,)"""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights = list(a)
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    return _sampled("general_cosine", M, sym, lambda k, n: _cosines(weights, k, n), dtype, layout, device, requires_grad)


@factory
def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype=None, layout=layouts.strided, device=None, requires_grad: bool = False
) -> Tensor:
    """alpha - (1 - alpha) cos x, with x = 2 pi k / n. -> (M,)"""
    return _sampled("general_hamming", M, sym, lambda k, n: _cosines((alpha, 1 - alpha), k, n), dtype, layout, device, requires_grad)


def _of_cosines(name: str, weights: tuple[float, ...], doc: str) -> Callable:
    def window(M: int, *, sym: bool = True, dtype=None, layout=layouts.strided, device=None, requires_grad: bool = False) -> Tensor:
        return _sampled(name, M, sym, lambda k, n: _cosines(weights, k, n), dtype, layout, device, requires_grad)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = doc + " -> (M,)"
    return factory(window)


hann = _of_cosines("hann", (0.5, 0.5), "(1 - cos x) / 2, with x = 2 pi k / n.")
hamming = _of_cosines("hamming", (0.54, 0.46), "0.54 - 0.46 cos x, with x = 2 pi k / n: it does not quite reach 0.")
blackman = _of_cosines("blackman", (0.42, 0.5, 0.08), "0.42 - 0.5 cos x + 0.08 cos 2x, with x = 2 pi k / n.")
nuttall = _of_cosines("nuttall", (0.3635819, 0.4891775, 0.1365995, 0.0106411), "Nuttall's sum of four cosines of x = 2 pi k / n.")


def _cosines(weights, k, n):
    return sum((-1) ** i * w * np.cos(2 * np.pi * i * k / n) for i, w in enumerate(weights))


def _sampled(name: str, M: int, sym: bool, curve: Callable, dtype, layout, device, requires_grad: bool) -> Tensor:
    """curve(k, n) for k = 0, ..., M - 1; n is the number of the sample that mirrors the first."""
    dtype = dtype_of(name, dtype) or dtypes.get_default_dtype()
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if layout is not layouts.strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if dtype not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    values = np.ones(M) if M <= 1 else np.asarray(curve(np.arange(M, dtype=np.float64), M - 1 if sym else M), np.float64)
    return finish(arrays.to_device(values.astype(dtype.numpy), device_of(device)), requires_grad)
