"""Pooling: each window of the input becomes one number, its greatest or its average.

    max_pool avg_pool lp_pool             windows that slide evenly
    adaptive_max_pool adaptive_avg_pool   as many windows as asked for, as equal as the input's size allows
    fractional_max_pool                   windows at random distances
    max_unpool                            numbers back to where the greatest were

In 1, 2 or 3 dimensions: (N, C, *S) or (C, *S) -> (N, C, *P). The derivative of a maximum goes to where it was found, by `_spread`, whose own
derivative is `_picked`, and the other way round; averages and their adjoints are each other's derivatives likewise.
"""

from __future__ import annotations

import math
from functools import lru_cache

from flambeau import determinism, dtypes
from flambeau.kernels.templates import pooling as kernels
from flambeau.ops import specs
from flambeau.ops.asking import geometry, of_all_samples
from flambeau.ops.copying import in_kind
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.formats import channels_last_3d
from flambeau.ops.views import _unsafe_view, whole

DIMENSIONS = (1, 2, 3)


# -- array operations ------------------------------------------------------------------------------------------------------


def _max_pool_op(n: int):
    last = "SqueezeBackward1" if n == 1 else f"MaxPool{n}DWithIndicesBackward0"  # PyTorch pools in 2 dimensions then

    @on_arrays(name=f"_max_pool{n}d", public=False, method=False, returns="values indices", grad_name=last)
    def op(input, sizes, kernel, stride, padding, dilation):
        """(the greatest of each window, where it was in the flattened plane)."""
        return kernels.greatest_sliding(input, sizes, kernel, stride, padding, dilation)

    op.derivative(
        input=lambda grads, indices, input_shape, kernel, stride, padding, dilation: _spread(
            grads[0], indices, tuple(input_shape[-n:]), kernels.Windows(kernel, stride, padding, dilation)
        )
    )
    op.meta(lambda input, sizes, **_: _both(input, sizes, n))
    op.second_derivative = "zero"
    op.work(lambda input, sizes, *given: kernels.greatest_ready(input, sizes, kernels.Windows(*given)))
    op.first_alone = kernels.greatest_alone
    op.find_first_alone = lambda input, sizes, *given: kernels.greatest_alone_ready(input, sizes, kernels.Windows(*given))
    return op


def _adaptive_max_op(n: int):
    last = "SqueezeBackward1" if n == 1 else f"AdaptiveMaxPool{n}DBackward0"

    @on_arrays(name=f"_adaptive_max_pool{n}d", public=False, method=False, returns="values indices", grad_name=last)
    def op(input, sizes):
        """(the greatest of each adaptive window, where it was)."""
        return kernels.greatest_adaptive(input, sizes)

    op.derivative(
        input=lambda grads, indices, input_shape: _spread(_windowed(grads[0], "max", n), indices, tuple(input_shape[-n:]), kernels.ADAPTIVE)
    )
    op.work(lambda input, sizes: kernels.greatest_ready(input, sizes, kernels.ADAPTIVE))
    op.meta(lambda input, sizes: [spec if n == 2 else spec[:2] for spec in _both(input, sizes, n)])
    op.second_derivative = "zero"
    return op


def _fractional_op(n: int):
    @on_arrays(
        name=f"_fractional_max_pool{n}d", public=False, method=False, returns="values indices", grad_name=f"FractionalMaxPool{n}DBackward0"
    )
    def op(input, samples, sizes, kernel):
        """(the greatest of each window, where it was); samples (N, C, n): a random number per plane and dimension."""
        x = kernels.planes(input, n)
        drawn = samples.reshape(math.prod(samples.shape[:-1]), n)[: len(x)]
        drawn = drawn.get() if hasattr(drawn, "get") else drawn
        order = (1, 0) if n == 2 else (0, 1, 2)  # PyTorch draws the width first, but in volumes the depth
        starts = [kernels.fractional_starts(drawn[:, order[d]], x.shape[d + 1], sizes[d], kernel[d]) for d in range(n)]
        tables = [s[:, :, None] + kernels.np.arange(k) for s, k in zip(starts, kernel, strict=True)]
        shape = (*input.shape[: input.ndim - n], *sizes)
        return tuple(a.reshape(shape) for a in kernels.greatest(x, tables))

    op.derivative(input=lambda grads, indices, input_shape: _spread(grads[0], indices, tuple(input_shape[-n:]), None))
    op.meta(lambda input, samples, sizes, kernel: [spec[:2] for spec in _both(input, sizes, n)])
    op.second_derivative = "zero"
    return op


def _avg_pool_op(n: int, back: bool):
    name = f"_avg_pool{n}d_adjoint" if back else f"_avg_pool{n}d"

    @on_arrays(name=name, public=False, method=False, grad_name=f"AvgPool{n}D{'Backward' * back}Backward0")
    def op(input, small, large, kernel, stride, padding, with_padding, divisor):
        """The average of each window, (*, *large) -> (*, *small); the adjoint the other way."""
        return kernels.averaged(input, small, large, windows(kernel, stride, padding, with_padding, divisor), back)

    def windows(kernel, stride, padding, with_padding, divisor):
        return kernels.Windows(kernel, stride, padding, (1,) * n, with_padding, divisor or 0)

    op.work(lambda input, small, large, *given: kernels.averaged_ready(input, small, large, windows(*given), back))
    op.meta(lambda input, small, large, **_: _averages(input, large if back else small, n))
    op.derivative(
        input=lambda grad, small, large, kernel, stride, padding, with_padding, divisor: AVG_POOL[n, not back](
            grad, small, large, kernel, stride, padding, with_padding, divisor
        )
    )
    op.second_derivative = None if back else "zero"
    return op


def _adaptive_avg_op(n: int, back: bool):
    name = f"_adaptive_avg_pool{n}d_adjoint" if back else f"_adaptive_avg_pool{n}d_planes"

    last = "SqueezeBackward1" if n == 1 and not back else f"AdaptiveAvgPool{n}D{'Backward' * back}Backward0"

    @on_arrays(name=name, public=False, method=False, grad_name=last)
    def op(input, small, large):
        """The average of each adaptive window, (*, *large) -> (*, *small); the adjoint the other way."""
        return kernels.averaged(input, small, large, kernels.ADAPTIVE, back)

    op.work(lambda input, small, large: kernels.averaged_ready(input, small, large, kernels.ADAPTIVE, back))
    op.meta(lambda input, small, large: _averages(input, large if back else small, n))
    op.derivative(input=lambda grad, small, large: ADAPTIVE_AVG[n, not back](grad if back else _windowed(grad, "avg", n), small, large))
    op.second_derivative = None if back else "zero"
    return op


def _windowed(grad, kind: str, n: int):
    """The gradient, which PyTorch refuses where there are no windows: asking for them was a mistake more likely than not."""
    if 0 in grad.shape[-n:]:
        found = f"non-batch dimensions, found {list(grad.shape)}: output_size=0 leaves nothing to differentiate"
        raise RuntimeError(f"adaptive_{kind}_pool{n}d: Expected grad_output to have non-zero size for {found}")
    return grad


def _pooled(input, sizes, n: int, like=None):
    """What is left of planes: channels last if `like` (the input, if not given) is."""
    shape = (*input.shape[: input.ndim - n], *sizes)
    return specs.in_kind(like or input, shape, input.dtype) if n > 1 and input.ndim == n + 2 else (shape, input.dtype)


def _averages(input, sizes, n: int):
    return _pooled(input, sizes, n)[: 3 if n == 2 else 2]  # of volumes they are row-major


def _both(input, sizes, n: int):
    shape, dtype, *strides = _pooled(input, sizes, n)
    return [(shape, dtype, *strides), (shape, dtypes.int64.numpy, *strides)]


MAX_POOL = {n: _max_pool_op(n) for n in DIMENSIONS}
ADAPTIVE_MAX = {n: _adaptive_max_op(n) for n in DIMENSIONS}
FRACTIONAL = {n: _fractional_op(n) for n in (2, 3)}
AVG_POOL = {(n, back): _avg_pool_op(n, back) for n in DIMENSIONS for back in (False, True)}
ADAPTIVE_AVG = {(n, back): _adaptive_avg_op(n, back) for n in DIMENSIONS for back in (False, True)}


@on_arrays(name="_spread", public=False, method=False, grad_name="MaxPoolBackwardBackward0")
def _spread(values, indices, sizes, windows):
    """A plane of zeros with each value added at its index: (*, *P), (*, *P) -> (*, *sizes). `windows`, if known: where the indices come from."""
    return kernels.spread(values, indices, sizes, windows)


_spread.meta(lambda values, indices, sizes, windows: _pooled(values, sizes, len(sizes), indices))
_spread.derivative(values=lambda grad, indices, sizes: _picked(grad, indices, len(sizes)))


def _picked(x, indices, n: int):
    """The numbers at these places of a plane: (*, *S), (*, *P) -> (*, *P)."""
    lead = tuple(indices.shape[: indices.dim() - n])
    return x.reshape(*lead, -1).gather(-1, indices.reshape(*lead, -1)).reshape(tuple(indices.shape))


# -- windows that slide ----------------------------------------------------------------------------------------------------


def _numbers(name: str, what: str, value, n: int) -> tuple[int, ...]:
    given = value if isinstance(value, (tuple, list)) else (value,)
    if len(given) not in (1, n):
        raise RuntimeError(f"{name}: {what} is one int, or a tuple of {n}; found {tuple(given)}")
    return tuple([v if type(v) is int else whole(v) for v in given]) * (1 if len(given) == n else n)


def _geometry(name: str, n: int, input, kernel_size, stride, padding, dilation, ceil_mode: bool):
    """(output sizes, kernel, stride, padding, dilation), checked."""
    given = [tuple(v) if isinstance(v, list) else v for v in (kernel_size, stride, padding, dilation)]
    return _geometry_of(name, n, tuple(input.shape), *given, ceil_mode)


@lru_cache(maxsize=256)
def _geometry_of(name: str, n: int, shape: tuple[int, ...], kernel_size, stride, padding, dilation, ceil_mode: bool):
    kernel = _numbers(name, "kernel_size", kernel_size, n)
    stride = kernel if stride is None or (isinstance(stride, (tuple, list)) and not stride) else _numbers(name, "stride", stride, n)
    padding, dilation = _numbers(name, "padding", padding, n), _numbers(name, "dilation", dilation, n)
    for what, least, numbers in (("kernel_size", 1, kernel), ("stride", 1, stride), ("dilation", 1, dilation)):
        if max(numbers) >= 1 << 31:
            raise RuntimeError(f"{name}: integer out of range: {what} {numbers}")
        if min(numbers) < least:
            said = f"{what} must be" if n == 1 or what == "stride" else f"{what.replace('_', ' ')} should be"
            raise RuntimeError(f"{name}: {said} greater than zero, but got {numbers if n > 1 else numbers[0]}")
    if min(padding) < 0:
        raise RuntimeError(f"{name}: pad must be non-negative, found {padding}")
    for p, k in zip(padding, kernel, strict=True):
        if p > k // 2:  # of the kernel as given: dilation makes no window wider here, as in PyTorch
            raise RuntimeError(
                f"{name}: pad should be at most half of effective kernel size, which is at most half of kernel size as given: found padding={p} "
                f"and kernel_size={k}"
            )
    _check_input(name, n, shape)
    every = zip(shape[-n:], kernel, stride, padding, dilation, strict=True)
    sizes = tuple([_windows(size, k, s, p, d, ceil_mode) for size, k, s, p, d in every])
    if min(sizes) < 1:
        raise RuntimeError(
            f"{name}: Given input size: {list(shape[-n - 1 :])}. Calculated output size: {[shape[-n - 1], *sizes]}. "
            f"Output size is too small (Invalid computed output size: {min(sizes)})"
        )
    return sizes, kernel, stride, padding, dilation


def _check_input(name: str, n: int, shape: tuple[int, ...]) -> None:
    ok = len(shape) in (n + 1, n + 2) and 0 not in shape[1 if len(shape) == n + 2 else 0 :]
    if not ok:
        raise RuntimeError(
            f"{name}: non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input. Expected {n + 1}D or {n + 2}D (batch mode) tensor with "
            f"optional 0 dim batch size; Expected input's non-batch dimensions to have positive length; found {list(shape)}"
        )


def _windows(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """How many windows there are. With `ceil_mode` one may stick out at the end, if it begins inside or in the padding before."""
    count = (size + 2 * padding - dilation * (kernel - 1) - 1 + (stride - 1 if ceil_mode else 0)) // stride + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def _check_dtype(name: str, input, integers: tuple[str, ...] = ()) -> None:
    if not input.is_floating_point() and input.dtype.name not in integers:
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype}. Try x.float()')


INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


def _max_pool(name: str, n: int, input, kernel_size, stride, padding, dilation, ceil_mode):
    geometry = _geometry(name, n, input, kernel_size, stride, padding, dilation, ceil_mode)
    _check_dtype(name, input, INTEGERS if n > 1 else ())
    if n == 1 and _has_channels_last(input):
        sizes, kernel, stride, padding, dilation = geometry
        flat = MAX_POOL[2](input.unsqueeze(-2), (1, *sizes), (1, *kernel), (1, *stride), (0, *padding), (1, *dilation))
        return tuple([t.squeeze(-2) for t in flat])
    if (
        n == 3
        and input.dim() == 4
        and not input.is_contiguous()
        and kernels.layout.is_channels_last((1, *input.shape), (0, *input.stride()))
    ):
        return tuple([t.squeeze(0) for t in MAX_POOL[3](input.unsqueeze(0).clone(memory_format=channels_last_3d), *geometry)])
    return MAX_POOL[n](input, *geometry)


def _has_channels_last(input) -> bool:
    """Whether sequences (N, C, L) lie as (N, L, C), a transposed batch of tokens: what is pooled of them then lies so too, as if they were
    images of one row."""
    if input.dim() != 3 or input.is_contiguous():
        return False
    (count, channels, length), (by_sample, by_channel, by_place) = input.shape, input.stride()
    strides = by_sample, by_channel, length * by_place, by_place
    return kernels.layout.looks_channels_last((count, channels, 1, length), strides)


def _declare_max_pool(n: int) -> None:
    name, doc = (
        f"max_pool{n}d",
        f"The greatest number of every window, in {n} dimension{'s' * (n > 1)}; with `return_indices` also where it was.",
    )

    def functional(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        values, indices = _max_pool(name, n, input, kernel_size, stride, padding, dilation, ceil_mode)
        return (values, indices) if return_indices else values

    def plain(input, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        return _max_pool(name, n, input, kernel_size, stride, padding, dilation, ceil_mode)[0]

    def with_indices(input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False):
        return tuple(_max_pool(name, n, input, kernel_size, stride, padding, dilation, ceil_mode))

    composite(name=f"nn.functional.{name}", method=False, doc=doc, autocast="cpu float32" if n == 3 else None)(functional)
    composite(name=name, method=False, doc=doc, autocast="cpu float32" if n == 3 else None)(plain)
    composite(name=f"nn.functional.{name}_with_indices", method=False, doc=doc, aliases=(f"{name}_with_indices",) * (n == 1))(with_indices)


def _avg_pool(name: str, n: int, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override):
    if divisor_override == 0:
        raise RuntimeError(f"{name}: divisor must be not zero")
    sizes, kernel, stride, padding, _ = _geometry(name, n, input, kernel_size, stride, padding, 1, ceil_mode)
    _check_dtype(name, input, ("int64",))
    if n == 3 and input.dtype.itemsize == 2:
        raise NotImplementedError(f'"{name}" not implemented for {input.dtype}. Try x.float()')
    counts = bool(count_include_pad)
    if n == 1 and _has_channels_last(input):
        flat, around = input.unsqueeze(-2), tuple(input.shape[-1:])
        return AVG_POOL[2, False](
            flat, (1, *sizes), (1, *around), (1, *kernel), (1, *stride), (0, *padding), counts, divisor_override
        ).squeeze(-2)
    return AVG_POOL[n, False](input, sizes, tuple(input.shape[-n:]), kernel, stride, padding, counts, divisor_override)


@composite(method=False, aliases=("nn.functional.avg_pool1d",), grad_name="SqueezeBackward1")
def avg_pool1d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
    """The average of every window along the last dimension; zeros of the padding count if `count_include_pad`."""
    return _avg_pool("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@composite(name="nn.functional.avg_pool2d", method=False, out="same")
def avg_pool2d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    """The average of every window of the last two dimensions; or its sum, divided by `divisor_override`."""
    return _avg_pool("avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@composite(name="nn.functional.avg_pool3d", method=False, out="same", autocast="cpu float32")
def avg_pool3d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    """The average of every window of the last three dimensions; or its sum, divided by `divisor_override`."""
    return _avg_pool("avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def _declare_lp_pool(n: int) -> None:
    averages = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}

    def lp_pool(input, norm_type, kernel_size, stride=None, ceil_mode=False):
        """(sum of x^p over every window)^(1/p): the average for p = 1, but for a factor, and the maximum for p = infinity."""
        kernel = _numbers(f"lp_pool{n}d", "kernel_size", kernel_size, n)
        mean = averages[n](input.pow(norm_type), kernel, stride, 0, ceil_mode)
        return (mean.sign() * mean.abs().relu()).mul(math.prod(kernel)).pow(1.0 / norm_type)

    composite(name=f"nn.functional.lp_pool{n}d", method=False)(lp_pool)


# -- adaptive windows ------------------------------------------------------------------------------------------------------


def _adaptive_sizes(name: str, n: int, input, output_size) -> tuple[int, ...]:
    if input.dim() not in (n + 1, n + 2):
        kind = ValueError if n > 1 and input.dim() <= n and isinstance(output_size, (tuple, list)) else RuntimeError
        raise kind(f"{name}: Input dimension should be at least {n + 1}: Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}")
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * n
    if len(given) != n:
        raise RuntimeError(
            f"{name}: output_size must be {n} numbers ('output_size' should contain one int for each dimension), found {tuple(given)}"
        )
    sizes = tuple([size if s is None else whole(s) for s, size in zip(given, input.shape[-n:], strict=True)])
    if min(sizes) < 0:
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0, but got {sizes}: negative dimension")
    return sizes


def _check_filled(name: str, input) -> None:
    """The first dimension alone may be empty, be it the batch or, without one, the channels."""
    if 0 in input.shape[1:]:
        raise RuntimeError(f"{name}: Expected input to have elements in each dimension but the batch, found {list(input.shape)}")


def _adaptive_avg(name: str, n: int, input, output_size):
    sizes = _adaptive_sizes(name, n, input, output_size)
    _check_dtype(name, input)
    if set(sizes) == {1} and (n > 1 or 0 in input.shape):
        return _averaged(input, n)
    _check_filled(name, input)
    if n == 1 and _has_channels_last(input):
        return ADAPTIVE_AVG[2, False](input.unsqueeze(-2), (1, *sizes), (1, *input.shape[-1:])).squeeze(-2)
    return ADAPTIVE_AVG[n, False](input, sizes, tuple(input.shape[-n:]))


def _averaged(input, n: int):
    """One window for all: the mean. Channels last stays so, though sizes of 1 hardly tell."""
    out = input.mean(tuple(range(-n, 0)), keepdim=True)
    if input.dim() == n + 2 and kernels.layout.looks_channels_last(*geometry(input)):
        channels = input.shape[1]
        return out.as_strided(tuple(out.shape), (channels, 1, *(channels,) * n))
    return out


def _declare_adaptive(n: int) -> None:
    average, greatest = f"adaptive_avg_pool{n}d", f"adaptive_max_pool{n}d"

    def adaptive_avg_pool(input, output_size):
        """The averages of as many windows as asked for, as equal as the sizes allow; None keeps a size."""
        return _adaptive_avg(average, n, input, output_size)

    def found(input, output_size):
        sizes = _adaptive_sizes(greatest, n, input, output_size)
        _check_dtype(greatest, input)
        _check_filled(greatest, input)
        if n == 1 and _has_channels_last(input):
            return tuple([t.squeeze(-2) for t in ADAPTIVE_MAX[2](input.unsqueeze(-2), (1, *sizes))])
        return tuple(ADAPTIVE_MAX[n](input, sizes))

    def adaptive_max_pool(input, output_size, return_indices=False):
        """The greatest numbers of as many windows as asked for, as equal as the sizes allow; and where they were."""
        values, indices = found(input, output_size)
        return (values, indices) if return_indices else values

    def with_indices(input, output_size, return_indices=False):
        """`adaptive_max_pool` with where the greatest were."""
        return found(input, output_size)

    composite(
        name=f"nn.functional.{average}",
        method=False,
        aliases=(average,) * (n == 1),
        autocast="cpu float32" if n == 3 else None,
    )(adaptive_avg_pool)
    composite(name=f"nn.functional.{greatest}", method=False, autocast="cpu float32" if n == 3 else None)(adaptive_max_pool)
    composite(name=f"nn.functional.{greatest}_with_indices", method=False, aliases=(greatest,) * (n == 1))(with_indices)


# -- random windows, and the way back --------------------------------------------------------------------------------------


def _declare_fractional(n: int) -> None:
    name = f"fractional_max_pool{n}d"

    def found(input, kernel_size, output_size, output_ratio, samples):
        if output_size is None and output_ratio is None:
            raise ValueError(f"{name}: either output_size or output_ratio must be given")
        for what, given in (("kernel_size", kernel_size), ("output_size", output_size)):
            if isinstance(given, (tuple, list)) and len(given) != n:
                raise RuntimeError(f"{name}: {what} must either be one number or {n} of them, found {tuple(given)}")
        kernel = _numbers(name, "kernel_size", kernel_size, n)
        if output_size is None:
            ratios = output_ratio if isinstance(output_ratio, (tuple, list)) else (output_ratio,) * n
            output_size = [int(size * r) for size, r in zip(input.shape[-n:], ratios, strict=True)]
        sizes = _numbers(name, "output_size", output_size, n)
        _check_input(name, n, (1, *input.shape[-n:]) if input.dim() == n + 1 else tuple(input.shape))  # channels alone may be none
        _check_dtype(name, input)
        if min(kernel) < 1 or min(sizes) < 0:
            raise RuntimeError(f"{name}(): kernel_size must be at least 1 and output_size at least 0, found {kernel} and {sizes}")
        for axis, size, count, k in zip(("time", "height", "width")[-n:], input.shape[-n:], sizes, kernel, strict=True):
            if count + k - (1 if n == 2 else 0) > size:  # PyTorch keeps one place more free in three dimensions
                raise RuntimeError(
                    f"{name}(): pool {axis} {k} too large relative to input {axis} {size}: there is no room for {count} windows"
                )
        wanted = (input.shape[0] if input.dim() == n + 2 else 1, input.shape[-n - 1], n)
        if samples is None:
            samples = input.new_empty(wanted).uniform_()
        if samples.dim() != 3 or samples.shape[0] < wanted[0] or tuple(samples.shape[1:]) != wanted[1:]:
            raise RuntimeError(
                f"{name}: Expect _random_samples of shape {wanted}, a number for each plane and dimension; found {tuple(samples.shape)}"
            )
        return tuple(FRACTIONAL[n](input, samples, sizes, kernel))

    def fractional_max_pool(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        """The greatest numbers of windows at random distances (Graham, Fractional Max-Pooling, 2014); and where they were."""
        values, indices = found(input, kernel_size, output_size, output_ratio, _random_samples)
        return (values, indices) if return_indices else values

    def with_indices(input, kernel_size, output_size=None, output_ratio=None, return_indices=False, _random_samples=None):
        """`fractional_max_pool` with where the greatest were."""
        return found(input, kernel_size, output_size, output_ratio, _random_samples)

    composite(name=f"nn.functional.{name}", method=False, autocast="cpu float32")(fractional_max_pool)
    composite(name=f"nn.functional.{name}_with_indices", method=False)(with_indices)


def _unpooled_sizes(n: int, input, kernel, stride, padding, output_size) -> tuple[int, ...]:
    usual = [(size - 1) * s + k - 2 * p for size, k, s, p in zip(input.shape[-n:], kernel, stride, padding, strict=True)]
    if output_size is None:
        return tuple(usual)
    given = [whole(s) for s in output_size]
    given = given[-n:] if len(given) == n + 2 else given
    if len(given) != n:
        raise ValueError(f"max_unpool: output_size has {n} numbers, or {n + 2} with batch and channels, found {len(given)}")
    for d, (size, middle, s) in enumerate(zip(given, usual, stride, strict=True)):
        if not middle - s < size < middle + s:
            raise ValueError(f'invalid output_size "{tuple(given)}": dim {d} was between {middle - s} and {middle + s}')
    return tuple(given)


def _declare_unpool(n: int) -> None:
    name = f"max_unpool{n}d"

    def max_unpool(input, indices, kernel_size, stride=None, padding=0, output_size=None):
        """Zeros, with every number where `max_pool` found it: (N, C, *P), indices (N, C, *P) -> (N, C, *S)."""
        if isinstance(kernel_size, (tuple, list)) and len(kernel_size) not in (1, n):
            raise RuntimeError(f"{name}: There should be exactly {n} elements in kernel_size, or one number; found {tuple(kernel_size)}")
        kernel = _numbers(name, "kernel_size", kernel_size, n)
        stride = kernel if stride is None else _numbers(name, "stride", stride, n)
        padding = _numbers(name, "padding", padding, n)
        sizes = _unpooled_sizes(n, input, kernel, stride, padding, output_size)
        if indices.dtype.name != "int64":
            raise RuntimeError(f"{name}: indices must be of int64, as max_pool gives them, found {indices.dtype}")
        if tuple(indices.shape) != tuple(input.shape):
            raise RuntimeError(
                f"{name}: Expected shape of indices to be that of the input, {list(input.shape)}, found {list(indices.shape)}"
            )
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(f"{name}: Input to {name} should be a {n + 1}d or {n + 2}d Tensor, but got {list(input.shape)}")
        _check_dtype(name, input)
        determinism.alert(f"max_unpooling{max(n, 2)}d_forward_out")
        _check_filled(name, input)
        lead, room, count = tuple(input.shape[:-n]), math.prod(sizes), math.prod(input.shape[-n:])
        flat = indices.reshape(*lead, count)
        places = of_all_samples(flat)
        if places.numel() and not places.is_meta and not 0 <= int(places.min()) <= int(places.max()) < room:
            wrong = next(int(i) for i in (places.min(), places.max()) if not 0 <= int(i) < room)
            raise RuntimeError(f"Found an invalid max index: {wrong} (output volumes are of size {'x'.join(map(str, sizes))})")
        found = _unsafe_view(input.new_zeros((*lead, room)).scatter(-1, flat, input.reshape(*lead, count)), (*lead, *sizes))
        return in_kind(found, input) if n == 2 else found

    composite(name=f"nn.functional.{name}", method=False, autocast="cpu float32")(max_unpool)


for _n in DIMENSIONS:
    _declare_max_pool(_n)
    _declare_lp_pool(_n)
    _declare_adaptive(_n)
    _declare_unpool(_n)
    if _n > 1:
        _declare_fractional(_n)
