"""Numbers at equal distances: arange, range, linspace, logspace.

Each is computed from the index, never by adding a step again and again, so that no error accumulates; in `linspace` the upper half is
computed from the end, which makes both ends exact.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.indexing import ranges as steps
from flambeau.kernels.native import memory_guard
from flambeau.tensor.arguments import dtype_of, whole
from flambeau.tensor.making.factories import factory, made, number
from flambeau.tensor.tensor import Tensor


@factory
def arange(start=None, end=None, step=1, *, out=None, **options) -> Tensor:
    """start, start + step, ... up to but without `end`. Integers give int64, a float among the arguments the default dtype.

    >>> arange(1, 2.5, 0.5)
    tensor([1.0000, 1.5000, 2.0000])
    """
    if end is None:
        if start is None:
            raise TypeError('arange() missing 1 required positional arguments: "end"')
        start, end = 0, start
    start, end, step = _numbers("arange", 0 if start is None else start, end, step)
    integers = all(isinstance(v, int) for v in (start, end, step))

    def make(d: dtypes.dtype, where) -> Any:
        return _arithmetic("arange", start, step, _steps_below(start, end, step, d), d, where)

    return made("arange", make, out, default=dtypes.int64 if integers else None, **options)


@factory
def range(start=0, end=None, step=1, *, out=None, **options) -> Tensor:
    """start, start + step, ... up to and including `end`; `arange`, which leaves the end out as Python's range does, is preferred."""
    warnings.warn("torch.range is deprecated because Python's range leaves the end out: use torch.arange, which does so too.", stacklevel=3)
    if end is None:
        raise TypeError('range() missing 1 required positional arguments: "end"')
    start, end, step = _numbers("range", start, end, step)
    n = math.floor((float(end) - float(start)) / float(step)) + 1
    return made("range", lambda d, where: _arithmetic("range", start, step, n, d, where), out, **options)


def _numbers(name: str, start, end, step) -> tuple:
    if type(start) is type(end) is type(step) is int and step > 0 and start <= end:
        return start, end, step
    start, end, step = (number(name, v, p) for v, p in ((start, "start"), (end, "end"), (step, "step")))
    if any(isinstance(v, complex) for v in (start, end, step)):
        raise RuntimeError(f"value cannot be converted to type double without overflow: {name} counts in real numbers")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if not (end >= start if step > 0 else end <= start):
        raise RuntimeError(f"upper bound and lower bound inconsistent with step sign: from {start} to {end} by {step}")
    return start, end, step


def _steps_below(start, end, step, dtype: dtypes.dtype) -> int:
    """How many steps fit below the end. int64 counts in integers, so that large ones are exact."""
    if dtype is dtypes.int64:
        start, end, step = int(start), int(end), int(step)
        if step == 0:
            raise ValueError("step must be nonzero: as an integer it is 0")
        return max(-((start - end) // step), 0)
    return math.ceil((float(end) - float(start)) / float(step))


def _arithmetic(name: str, start, step, n: int, dtype: dtypes.dtype, device) -> Any:
    """start + step * i for i below n."""
    _check_computed(name, dtype)
    if dtype is dtypes.bool or dtype.is_complex:
        raise NotImplementedError(f'"{name}" not implemented for {dtype.name}')
    if device.type == "meta":
        return arrays.empty((n,), dtype.numpy, device)
    if n < 4096 and dtype is dtypes.int64 and type(start) is type(step) is int and max(abs(start), abs(start + n * step)) < 2**63:
        return arrays.to_device(np.arange(start, start + n * step, step, dtype=np.int64), device)
    counts = float if dtype.is_floating_point else int
    found = steps.arithmetic(counts(start), counts(step), n, dtype.numpy, dtype.name)
    if found is not None:
        return arrays.to_device(found, device)
    if 8 * n >= memory_guard.LARGE:
        memory_guard.keep(8 * n, 0)  # NumPy, which makes it, does not ask
    with np.errstate(over="ignore"):
        if dtype.is_floating_point:
            values: Any = float(start) + float(step) * np.arange(n, dtype=np.float64)
            if dtype.itemsize == 2:  # PyTorch reaches half precision by way of float32
                values = values.astype(np.float32)
        else:
            wide = np.uint64 if dtype is dtypes.uint64 else np.int64
            values = np.arange(n, dtype=wide) * wide(int(step)) + wide(int(start))
        return arrays.to_device(values.astype(dtype.numpy, copy=False), device)


def _check_computed(name: str, dtype: dtypes.dtype | None) -> None:
    if isinstance(dtype, dtypes.float8):
        raise NotImplementedError(f'"{name}" not implemented for {dtype}, which nothing computes with. Try torch.{name}(...).to({dtype})')


# -- between two ends ----------------------------------------------------------------------------------------------


@factory
def linspace(start, end, steps=None, *, out=None, dtype=None, **options) -> Tensor:
    """`steps` numbers from start to end, both included, at equal distances."""
    start, end, n, dtype = _ends("linspace", start, end, steps, dtype)
    return made("linspace", lambda d, where: _between(_spread, (start, end), n, d, where), out, dtype=dtype, **options)


@factory
def logspace(start, end, steps=None, base=10.0, *, out=None, dtype=None, **options) -> Tensor:
    """base ** x for `steps` numbers x from start to end: equal ratios between neighbours."""
    start, end, n, dtype = _ends("logspace", start, end, steps, dtype)
    if isinstance(number("logspace", base, "base"), complex):
        raise TypeError("logspace(): argument 'base' must be float, not complex")
    return made("logspace", lambda d, where: _between(_powers, (float(base), start, end), n, d, where), out, dtype=dtype, **options)


def _between(values, ends: tuple, n: int, dtype: dtypes.dtype, where) -> Any:
    """What `values` computes, on a device; nothing is computed for one without data, nor can it be from ends that have none."""
    if where.type == "meta":
        return arrays.empty((n,), dtype.numpy, where)
    return arrays.to_device(values(*[number("linspace", end) for end in ends], n, dtype), where)


def _ends(name: str, start, end, steps, dtype) -> tuple[Any, Any, int, dtypes.dtype | None]:
    """The arguments as numbers, and the dtype: the complex form of the default one, if an end is complex and none was asked for."""
    shapes = [v.dim() if isinstance(v, Tensor) else 0 for v in (start, end)]
    if any(shapes):
        given = f"start with {shapes[0]} dimension(s) and end with {shapes[1]} dimension(s)"
        raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors, found {given}.")
    start, end = (_end(name, v, p) for v, p in ((start, "start"), (end, "end")))
    if whole(name, "steps", steps) < 0:
        raise RuntimeError(f"number of steps must be non-negative, found {steps}")
    dtype = dtype_of(name, dtype)
    _check_computed(name, dtype)
    if any([v.is_complex() if isinstance(v, Tensor) else isinstance(v, complex) for v in (start, end)]):
        found = dtypes.complex_of(dtypes.get_default_dtype())
        if dtype is not None and not dtype.is_complex:
            raise RuntimeError(
                f"torch.{name}(): inferred dtype {found.name} of the numbers cannot be safely cast to passed dtype {dtype.name}"
            )
        dtype = dtype or found
    return start, end, steps.__index__(), dtype


def _end(name: str, value, parameter: str):
    """A number, or a tensor without data as it is."""
    value = value.detach() if isinstance(value, Tensor) else value
    return value if isinstance(value, Tensor) and value.is_meta else number(name, value, parameter)


def _spread(start, end, n: int, dtype: dtypes.dtype) -> np.ndarray:
    """The lower half counted up from the start, the upper half down from the end. Integers are computed in float64 and cut off."""
    if dtype is dtypes.bool:
        raise NotImplementedError('"linspace" not implemented for bool')
    kind = dtype.numpy
    if n == 1:
        return np.array([start]).astype(kind)
    if dtype.category == dtypes.INTEGER:
        return steps.spread(int(start), int(end), n, np.dtype(np.float64), "float64").astype(kind)
    return steps.spread(start, end, n, kind, dtype.name)


def _powers(base: float, start, end, n: int, dtype: dtypes.dtype) -> np.ndarray:
    if dtype is dtypes.bool:
        raise NotImplementedError('"logspace" not implemented for bool')
    wide = {2: np.dtype(np.float32)}.get(dtype.itemsize, dtype.numpy) if dtype.category >= dtypes.FLOAT else np.dtype(np.float64)
    if dtype.category == dtypes.INTEGER:
        start, end = int(start), int(end)
    exponents = _spread(start, end, n, dtypes.OF_NUMPY[wide])
    with np.errstate(all="ignore"):
        return np.power(wide.type(base), exponents).astype(dtype.numpy)
