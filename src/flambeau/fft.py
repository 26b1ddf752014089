"""flambeau.fft: Fourier transforms, declared in the `ops` room, and the frequencies that belong to them."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from flambeau import dtypes as _dtypes
from flambeau.eager import bind as _bind
from flambeau.factories import dtype_of as _dtype_of
from flambeau.factories import factory as _factory
from flambeau.ranges import arange as _arange
from flambeau.tensor import Tensor

if _TYPE_CHECKING:
    from flambeau._surface.fft import *

globals().update(vars(_bind.namespace("fft")))


@_factory
def fftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """The frequencies of the n bins of an FFT of samples at distance d: 0, 1, ..., -2, -1, over n d. -> (n,)"""
    return _frequencies("fftfreq", list(range((n + 1) // 2)) + list(range(-(n // 2), 0)), n, d, out, dtype, layout, device, requires_grad)


@_factory
def rfftfreq(n, d=1.0, *, out=None, dtype=None, layout=None, device=None, requires_grad=False) -> Tensor:
    """The frequencies of the bins of a real FFT of n samples at distance d: 0, 1, ..., n // 2, over n d. -> (n // 2 + 1,)"""
    return _frequencies("rfftfreq", list(range(n // 2 + 1)), n, d, out, dtype, layout, device, requires_grad)


def _frequencies(name, numbers, n, d, out, dtype, layout, device, requires_grad) -> Tensor:
    dtype = _dtype_of(name, dtype) or (out.dtype if out is not None else _dtypes.get_default_dtype())
    if dtype.category < _dtypes.FLOAT:
        raise NotImplementedError(f"{name}: frequencies are fractions, dtype must be floating point or complex, found {dtype.name}")
    values = _arange(0, device=device, layout=layout).new_tensor(numbers, dtype=dtype) * (1.0 / (n * d))
    result = values if out is None else out.resize_(values.shape).copy_(values)
    return result.requires_grad_() if requires_grad else result


__all__ = ["fftfreq", "rfftfreq", *sorted(vars(_bind.namespace("fft")))]
