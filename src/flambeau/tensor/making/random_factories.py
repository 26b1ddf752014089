"""Tensors of random numbers: rand, randn, randint, randperm, normal, and their _like forms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import devices, dtypes
from flambeau.eager import inplace
from flambeau.kernels import arrays
from flambeau.kernels.native import native
from flambeau.kernels.random import sampling
from flambeau.kernels.random.drawing import draw, fill, source
from flambeau.ops.formats import preserve_format
from flambeau.ops.sampling import normal_around
from flambeau.tensor.arguments import need_tuple, shape_of, whole
from flambeau.tensor.making.factories import factory, like, made
from flambeau.tensor.tensor import Tensor


def _sampled(name: str, kind: str, meaning: str) -> Callable:
    """rand and randn."""

    def sample(*size, generator=None, out=None, **options):
        shape = shape_of(name, size)
        return made(name, lambda d, where: draw(kind, generator, shape, d.numpy, where), out, work=_drawing(kind, generator), **options)

    return factory(sample, name, meaning)


def _sampled_like(name: str, kind: str, meaning: str) -> Callable:
    def sample(input, *, generator=None, memory_format=preserve_format, **options):
        return like(name, input, lambda array: fill(kind, array, generator), memory_format, _drawing(kind, generator), **options)

    return factory(sample, name, f"{meaning}, with the shape, dtype and device of `input`.")


def _drawing(kind: str, generator: Any, **parameters: Any) -> Callable | None:
    """How such numbers of the default generator are made again: see `made`."""

    def work(like: Any) -> Callable | None:
        fill = sampling.filler(kind, like, **parameters)
        shape, dtype, empty = like.shape, like.dtype, native.empty
        return None if fill is None else lambda: fill(empty(shape, dtype))

    return work if generator is None else None


rand = _sampled("rand", "uniform", "Uniform numbers in [0, 1).")
randn = _sampled("randn", "normal", "Normal numbers, mean 0, standard deviation 1.")
rand_like = _sampled_like("rand_like", "uniform", "Uniform numbers in [0, 1)")
randn_like = _sampled_like("randn_like", "normal", "Normal numbers")


@factory
def randint(*args, low=None, high=None, size=None, generator=None, out=None, **options) -> Tensor:
    """Whole numbers from low (0 if not given) to high - 1: randint(high, size), randint(low, high, size). int64 unless told otherwise."""
    low, high, size = _bounds("randint", args, low, high, size)
    shape = need_tuple("randint", size)

    def make(d: dtypes.dtype, where: devices.device) -> Any:
        return draw("randint", generator, shape, d.numpy, where, low=low, high=high)

    return made("randint", make, out, default=dtypes.int64, work=_drawing("randint", generator, low=low, high=high), **options)


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
    place = f" (position {len(bounds)})"
    return whole(name, "low", bounds[0] if len(bounds) == 2 else 0, " (position 1)"), whole(name, "high", bounds[-1], place), size


@factory
def randint_like(input, *args, low=None, high=None, generator=None, memory_format=preserve_format, **options) -> Tensor:
    """Whole numbers from low (0 if not given) to high - 1, with the shape, dtype and device of `input`."""
    low, high, _ = _bounds("randint_like", args, low, high, ())
    work = _drawing("randint", generator, low=low, high=high)
    return like("randint_like", input, lambda array: fill("randint", array, generator, low=low, high=high), memory_format, work, **options)


@factory
def randperm(n, *, generator=None, out=None, **options) -> Tensor:
    """0 to n - 1 in random order."""
    n = whole("randperm", "n", n)
    if n < 0:
        raise RuntimeError(f"randperm: n must be non-negative, found {n}")

    def make(d: dtypes.dtype, where: devices.device) -> Any:
        if where.type == "meta":
            return arrays.empty((n,), d.numpy, where)
        if where.type == "cuda":
            return arrays.cuda().permutation(source(generator, where), n, d.numpy, where)
        return sampling.permutation(source(generator, where), n, d.numpy)

    return made("randperm", make, out, default=dtypes.int64, work=lambda like: sampling.permuter(n, like.dtype), **options)


@factory
def normal(mean=0.0, std=1.0, size=None, *, generator=None, out=None, **options) -> Tensor:
    """Normal numbers around `mean` with standard deviation `std`: tensors that broadcast, or two numbers and a size."""
    if size is not None:
        mean, std = (v.item() if isinstance(v, Tensor) and not v.dim() else v for v in (mean, std))
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        if size is not None:
            raise TypeError("normal() takes a size only with two numbers: the shape is that of the tensors")
        result = normal_around(mean if isinstance(mean, Tensor) else float(mean), std if isinstance(std, Tensor) else float(std), generator)
        return result if out is None else inplace.deliver(normal_around, result, [v for v in (mean, std) if isinstance(v, Tensor)], out)
    if size is None:
        raise TypeError("normal() of two numbers needs a size: normal(mean, std, size)")
    shape = need_tuple("normal", size)

    def make(d: dtypes.dtype, where: devices.device) -> Any:
        return draw("normal", generator, shape, d.numpy, where, mean=float(mean), std=float(std))

    return made("normal", make, out, work=_drawing("normal", generator, mean=float(mean), std=float(std)), **options)
