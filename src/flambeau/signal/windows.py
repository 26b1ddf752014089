"""Windows as `torch.signal.windows` has them: symmetric by default, with more shapes than the old `torch.hann_window` family.

Each is a function of the sample number k = 0, 1, ..., M - 1. `sym=True` makes the last sample mirror the first; `sym=False` leaves it
out, so that the window repeats without a double point. In the formulas n is the number of the sample that mirrors the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from flambeau import dtypes
from flambeau.tensor import Tensor, layouts
from flambeau.tensor.making.factories import factory, made
from flambeau.tensor.making.windows import cosines, hump, sampled, triangle

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
]  # fmt: skip


@factory
def exponential(M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options) -> Tensor:
    """exp(-|k - center| / tau), centred unless a periodic one says otherwise. -> (M,)"""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    return _window("exponential", M, sym, lambda k, n: np.exp(-abs(k - (n / 2 if center is None else center)) / tau), **options)


@factory
def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options) -> Tensor:
    """exp(-((k - n/2) / std)^2 / 2): the bell curve. -> (M,)"""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _window("gaussian", M, sym, lambda k, n: np.exp(-0.5 * ((k - n / 2) / std) ** 2), **options)


@factory
def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options) -> Tensor:
    """I0(beta sqrt(1 - (2k/n - 1)^2)) / I0(beta): beta trades the width of the hump against its sidelobes. -> (M,)"""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", M, sym, hump(beta), **options)


@factory
def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options) -> Tensor:
    """a0 - a1 cos x + a2 cos 2x - ..., with x = 2 pi k / n. -> (M,)"""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    weights = list(a)
    if not weights:
        raise ValueError("Coefficients cannot be empty")
    return _window("general_cosine", M, sym, cosines(*weights), **options)


@factory
def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options) -> Tensor:
    """alpha - (1 - alpha) cos x, with x = 2 pi k / n. -> (M,)"""
    return _window("general_hamming", M, sym, cosines(alpha, 1 - alpha), **options)


def _fixed(name: str, curve: Callable, meaning: str) -> Callable:
    """A window without parameters."""
    return factory(lambda M, *, sym=True, **options: _window(name, M, sym, curve, **options), name, f"{meaning} -> (M,)")


bartlett = _fixed("bartlett", triangle, "1 - |2k/n - 1|: a triangle from 0 up to 1 and down to 0.")
cosine = _fixed("cosine", lambda k, n: np.sin(np.pi * (k + 0.5) / (n + 1)), "sin(pi (k + 1/2) / (n + 1)): half a period of a sine.")
hann = _fixed("hann", cosines(0.5, 0.5), "(1 - cos x) / 2, with x = 2 pi k / n.")
hamming = _fixed("hamming", cosines(0.54, 0.46), "0.54 - 0.46 cos x, with x = 2 pi k / n: it does not quite reach 0.")
blackman = _fixed("blackman", cosines(0.42, 0.5, 0.08), "0.42 - 0.5 cos x + 0.08 cos 2x, with x = 2 pi k / n.")
nuttall = _fixed("nuttall", cosines(0.3635819, 0.4891775, 0.1365995, 0.0106411), "Nuttall's sum of four cosines of x = 2 pi k / n.")


def _window(name: str, M: int, sym: bool, curve: Callable, *, layout=layouts.strided, **options) -> Tensor:
    if layout is not layouts.strided:
        raise ValueError(f"{name} makes strided tensors, found layout {layout}")

    def make(dtype: dtypes.dtype, where):
        if M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        if dtype not in (dtypes.float32, dtypes.float64):
            raise ValueError(f"{name} expects float32 or float64, found {dtype}")
        return sampled(curve, M, M - 1 if sym else M, dtype, where)

    return made(name, make, **options)
