"""Tensors of random numbers: rand, randn, randint, randperm, normal, and their _like forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import devices, dtypes
from flambeau.eager import inplace
from flambeau.factories import check_options, device_of, dtype_of, factory, finish, into, memory_like, need_tuple, shape_of
from flambeau.kernels import arrays, sampling
from flambeau.ops import formats
from flambeau.ops.sampling import draw, fill, normal_around, source
from flambeau.tensor import Tensor

__all__ = ["normal", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm"]


def _sampled(name: str, kind: str, doc: str) -> Callable:
    """rand and randn."""

    def make(*sizes, size=None, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        shape = shape_of(name, sizes, size)
        dtype = dtype_of(name, dtype)
        if layout is not None or pin_memory:
            check_options(name, layout, pin_memory)
        if out is not None:
            return into(name, out, dtype, device, lambda d, where: draw(kind, generator, shape, d.numpy, where), requires_grad)
        return finish(draw(kind, generator, shape, (dtype or dtypes.get_default_dtype()).numpy, device_of(device)), requires_grad)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return factory(make)


rand = _sampled("rand", "uniform", "Uniform numbers in [0, 1).")
randn = _sampled("randn", "normal", "Normal numbers, mean 0, standard deviation 1.")


def _sampled_like(name: str, kind: str, doc: str) -> Callable:
    def make(
        input,
        *,
        dtype=None,
        layout=None,
        device=None,
        requires_grad=False,
        pin_memory=False,
        memory_format=formats.preserve_format,
        generator=None,
    ):
        array = memory_like(name, input, dtype, layout, device, pin_memory, memory_format)
        fill(kind, array, generator)
        return finish(array, requires_grad)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return factory(make)


rand_like = _sampled_like("rand_like", "uniform", "Uniform numbers in [0, 1), with the shape, dtype and device of `input`.")
randn_like = _sampled_like("randn_like", "normal", "Normal numbers, with the shape, dtype and device of `input`.")


@factory
def randint(*args, low=None, high=None, size=None, generator=None, out=None, dtype=None, layout=None, device=None, requires_grad=False,
            pin_memory=False) -> Tensor:  # fmt: skip
    """Whole numbers from low (0 if not given) to high - 1: randint(high, size), randint(low, high, size). int64 unless told otherwise."""
    low, high, size = _bounds("randint", args, low, high, size)
    shape = need_tuple("randint", size)
    dtype = dtype_of("randint", dtype)
    check_options("randint", layout, pin_memory)

    def make(d: dtypes.dtype, where: devices.device) -> Any:
        return draw("randint", generator, shape, d.numpy, where, low=low, high=high)

    if out is not None:
        return into("randint", out, dtype, device, make, requires_grad)
    return finish(make(dtype or dtypes.int64, device_of(device)), requires_grad)


def _bounds(name: str, args: tuple, low, high, size) -> tuple[int, int, Any]:
    """(low, high, size) from positional and named arguments."""
    given = list(args)
    if size is None:
        if not given:
            raise TypeError(f'{name}() missing 1 required positional arguments: "size"')
        size = given.pop()
    named = [v for v in (low, high) if v is not None]
    bounds = [*given, *named] if low is None else [low, *given, *([] if high is None else [high])]
    if len(bounds) not in (1, 2) or len(given) + len(named) != len(bounds):
        raise TypeError(f"{name}() takes high, or low and high, and a size; found {len(bounds)} bounds")
    return _integer(name, bounds[0] if len(bounds) == 2 else 0), _integer(name, bounds[-1]), size


def _integer(name: str, value) -> int:
    if isinstance(value, float) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}(): argument 'high' must be int, not {type(value).__name__}")
    return value.__index__()


@factory
def randint_like(input, *args, low=None, high=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False,
                 memory_format=formats.preserve_format, generator=None) -> Tensor:  # fmt: skip
    """Whole numbers from low (0 if not given) to high - 1, with the shape, dtype and device of `input`."""
    low, high, _ = _bounds("randint_like", args, low, high, ())
    array = memory_like("randint_like", input, dtype, layout, device, pin_memory, memory_format)
    fill("randint", array, generator, low=low, high=high)
    return finish(array, requires_grad)


@factory
def randperm(n, *, generator=None, out=None, dtype=dtypes.int64, layout=None, device=None, requires_grad=False, pin_memory=False) -> Tensor:
    """0 to n - 1 in random order."""
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise TypeError(f"randperm(): argument 'n' (position 1) must be int, not {type(n).__name__}")
    n = n.__index__()
    if n < 0:
        raise RuntimeError(f"randperm: n must be non-negative, found {n}")
    dtype = dtype_of("randperm", dtype) or dtypes.int64
    check_options("randperm", layout, pin_memory)

    def make(d: dtypes.dtype, where: devices.device) -> Any:
        if where.type == "meta":
            return arrays.empty((n,), d.numpy, where)
        if where.type == "cuda":
            return arrays.cuda().permutation(source(generator, where), n, d.numpy, where)
        return sampling.permutation(source(generator, where), n, d.numpy)

    if out is not None:
        return into("randperm", out, None, device, make, requires_grad)
    return finish(make(dtype, device_of(device)), requires_grad)


@factory
def normal(mean=0.0, std=1.0, size=None, *, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=False,
           requires_grad=False) -> Tensor:  # fmt: skip
    """Normal numbers around `mean` with standard deviation `std`: tensors that broadcast, or two numbers and a size."""
    check_options("normal", layout, pin_memory)
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        if size is not None:
            raise TypeError("normal() takes a size only with two numbers: the shape is that of the tensors")
        result = normal_around(mean if isinstance(mean, Tensor) else float(mean), std if isinstance(std, Tensor) else float(std), generator)
        return result if out is None else inplace.deliver(normal_around, result, [v for v in (mean, std) if isinstance(v, Tensor)], out)
    if size is None:
        raise TypeError("normal() of two numbers needs a size: normal(mean, std, size)")
    shape, dtype = need_tuple("normal", size), dtype_of("normal", dtype)

    def make(d: dtypes.dtype, where: devices.device) -> Any:
        return draw("normal", generator, shape, d.numpy, where, mean=float(mean), std=float(std))

    if out is not None:
        return into("normal", out, dtype, device, make, requires_grad)
    return finish(make(dtype or dtypes.get_default_dtype(), device_of(device)), requires_grad)
