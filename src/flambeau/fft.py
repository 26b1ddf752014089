"""flambeau.fft: Fourier transforms, declared in the `ops` room, and the frequencies that belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from flambeau import dtypes as _dtypes
from flambeau.eager import bind as _bind
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import factory as _factory
from flambeau.tensor.making.factories import made as _made
from flambeau.tensor.making.factories import tensor as _tensor

if _TYPE_CHECKING:
    from flambeau._surface.fft import *

globals().update(vars(_bind.namespace("fft")))


@_factory
def fftfreq(n, d=1.0, *, out=None, **options) -> Tensor:
    """The frequencies of the n bins of an FFT of samples at distance d: 0, 1, ..., -2, -1, over n d. -> (n,)"""
    return _frequencies("fftfreq", [*range((n + 1) // 2), *range(-(n // 2), 0)], n * d, out, options)


@_factory
def rfftfreq(n, d=1.0, *, out=None, **options) -> Tensor:
    """The frequencies of the bins of a real FFT of n samples at distance d: 0, 1, ..., n // 2, over n d. -> (n // 2 + 1,)"""
    return _frequencies("rfftfreq", list(range(n // 2 + 1)), n * d, out, options)


def _frequencies(name: str, numbers: list[int], span: float, out: Tensor | None, options: dict) -> Tensor:
    def make(dtype: _dtypes.dtype, where):
        if dtype.category < _dtypes.FLOAT:
            raise RuntimeError(f"{name} requires a floating point or complex dtype, as frequencies are fractions; found {dtype.name}")
        return (_tensor(numbers, dtype=dtype, device=where) * (1.0 / span))._array

    return _made(name, make, out, **options)


__all__ = ["fftfreq", "rfftfreq", *sorted(vars(_bind.namespace("fft")))]
