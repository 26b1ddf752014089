"""Discrete Fourier transforms: X_k = scale * sum_t x_t exp(-2 pi i k t / n), over one or several dimensions.

Three primitives do the work, and each is the adjoint of another, so that derivatives are transforms again:

    _c2c   complex to complex, forward (-i) or backward (+i)
    _r2c   real to the first half of its spectrum; the other half is the mirror image, conjugated
    _c2r   half a spectrum back to real numbers

`norm` decides the scale: forward transforms have 1, 1/sqrt(n), 1/n for norm = 'backward' (the default), 'ortho', 'forward'; backward
transforms have them in the opposite order, so that the two undo each other.
"""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.templates import fourier
from flambeau.ops import specs
from flambeau.ops.declare import composite, on_arrays
from flambeau.ops.matrix import conj
from flambeau.ops.padding import constant_pad_nd
from flambeau.ops.views import whole

# -- primitives ------------------------------------------------------------------------------------------------------------


@on_arrays(public=False, method=False, grad_name="FftC2CBackward0")
def _c2c(input, dims, scale, forward):
    """The transform over `dims`, with -i in the exponent if `forward`, else +i. Complex (or real) -> complex."""
    compiled = fourier.complex_to_complex(input, dims, scale, forward)
    if compiled is not None:
        return compiled
    fft = arrays.module_of(input).fft
    if len(dims) == 1:  # NumPy's general function takes 10 us longer
        found = fft.fft(input, axis=dims[0]) if forward else fft.ifft(input, axis=dims[0], norm="forward")
    else:
        found = fft.fftn(input, axes=dims) if forward else fft.ifftn(input, axes=dims, norm="forward")
    return _laid_out(_scaled(found, scale), dims, arrays.element_strides(input))


@on_arrays(public=False, method=False, grad_name="FftR2CBackward0")
def _r2c(input, dims, scale):
    """The transform of a real tensor over `dims`: of the last of them only the frequencies 0, ..., n // 2."""
    compiled = fourier.real_to_half(input, dims, scale)
    if compiled is not None:
        return compiled
    fft = arrays.module_of(input).fft
    found = fft.rfft(input, axis=dims[0]) if len(dims) == 1 else fft.rfftn(input, axes=dims)
    return _laid_out(_scaled(found, scale), dims, arrays.element_strides(input), True)


@on_arrays(public=False, method=False, grad_name="FftC2RBackward0")
def _c2r(input, dims, scale, n):
    """The backward transform to real numbers, n of them along the last of `dims`, of which `input` has the first half of the spectrum."""
    compiled = fourier.half_to_real(input, dims, scale, n)
    if compiled is not None:
        return compiled
    fft = arrays.module_of(input).fft
    if len(dims) == 1:
        found = fft.irfft(input, n, axis=dims[0], norm="forward")
    else:
        found = fft.irfftn(input, s=[input.shape[d] for d in dims[:-1]] + [n], axes=dims, norm="forward")
    return _laid_out(_scaled(found, scale), dims[-1:], _before_last(input, dims))


def _before_last(input, dims) -> tuple[int, ...]:
    """How the spectrum lies after the transforms along all of `dims` but the last."""
    strides = layout.preserve_format_strides(input.shape, arrays.element_strides(input))
    return strides if len(dims) == 1 else fourier.result_strides(input.shape, strides, tuple(dims[:-1]))


def _scaled(found, scale):
    if scale != 1:
        found *= scale
    return found


def _laid_out(found, dims, strides, last_stays=False):
    """What NumPy found, in the order in memory that the compiled transforms give it."""
    if type(found) is not np.ndarray:
        return found
    wanted = fourier.result_strides(found.shape, strides, tuple(dims), last_stays)
    if arrays.element_strides(found) == wanted:
        return found
    out = arrays.empty_strided(found.shape, wanted, found.dtype)
    arrays.write(out, found)
    return out


@on_arrays(public=False, method=False, meta=specs.like)
def _weigh_mirrored(input, dim, n, factor):
    """Half a spectrum of n samples, with the frequencies that stand for their mirror image too multiplied by a factor."""
    out = arrays.copy(input)
    at = [slice(None)] * input.ndim
    at[dim] = slice(1, (n + 1) // 2)
    out[tuple(at)] *= factor
    return out


_weigh_mirrored.derivative(input=lambda grad, dim, n, factor: _weigh_mirrored(grad, dim, n, factor))
_c2c.derivative(input=lambda grad, dims, scale, forward: _c2c(grad, dims, scale, not forward))
_r2c.derivative(
    input=lambda grad, dims, scale, input_shape: _c2r(
        _weigh_mirrored(grad, dims[-1], input_shape[dims[-1]], 0.5), dims, scale, input_shape[dims[-1]]
    )
)
_c2r.derivative(input=lambda grad, dims, scale, n: _weigh_mirrored(_r2c(grad, dims, scale), dims[-1], n, 2.0))


def _with_size(shape, dim: int, n: int) -> tuple[int, ...]:
    return (*shape[:dim], n, *shape[dim + 1 :])


@_c2c.meta
def _(input, dims, scale, forward):
    strides = fourier.result_strides(input.shape, arrays.element_strides(input), tuple(dims))
    return input.shape, dtypes.complex_of(dtypes.OF_NUMPY[input.dtype]).numpy, strides


@_r2c.meta
def _(input, dims, scale):
    shape = _with_size(tuple(input.shape), dims[-1], input.shape[dims[-1]] // 2 + 1)
    strides = fourier.result_strides(shape, arrays.element_strides(input), tuple(dims), True)
    return shape, dtypes.complex_of(dtypes.OF_NUMPY[input.dtype]).numpy, strides


@_c2r.meta
def _(input, dims, scale, n):
    shape, strides = _with_size(tuple(input.shape), dims[-1], n), _before_last(input, dims)
    return shape, dtypes.OF_NUMPY[input.dtype].to_real().numpy, fourier.result_strides(shape, strides, tuple(dims[-1:]))


# -- arguments -------------------------------------------------------------------------------------------------------------


def _scale(norm, sizes, forward: bool) -> float:
    """The factor of a transform over `sizes` samples."""
    n = prod(sizes)
    if norm not in (None, "backward", "ortho", "forward"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}". Try "backward", "ortho" or "forward"')
    if norm == "ortho":
        return 1 / sqrt(n)
    return 1 / n if (norm == "forward") == forward else 1.0


def _as_float(name: str, input):
    """Integers as the default float; half precision is refused: its transform has no library on the CPU."""
    if input.dtype.category < dtypes.FLOAT:
        return input.to(dtypes.get_default_dtype())
    if input.dtype in (dtypes.float16, dtypes.bfloat16):
        raise RuntimeError(f"Unsupported dtype {input.dtype.name} ({name}): Fourier transforms take float32, float64 and complex tensors")
    return input


def _several_dims(input, s, dim) -> tuple[tuple[int, ...], list]:
    """(dims, sizes), a size being None where none was asked for."""
    ndim = input.dim()
    s = [s] if isinstance(s, int) else s
    if dim is not None:
        given = [dim] if isinstance(dim, int) else dim
        dims = tuple([layout.wrap_dim(whole(d), ndim) for d in given])
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"FFT dims must be unique, found {tuple(given)}")
        if s is not None and len(s) != len(dims):
            raise RuntimeError(f"dim and shape must be of the same length, found {len(dims)} and {len(s)}")
    elif s is not None:
        if len(s) > ndim:
            raise RuntimeError(f"s has {len(s)} values, but the input tensor only has {ndim} dimensions")
        dims = tuple(range(ndim - len(s), ndim))
    else:
        dims = tuple(range(ndim))
    sizes = [None] * len(dims) if s is None else [None if n == -1 else whole(n) for n in s]
    return dims, sizes


def _sized(input, dims, sizes):
    """(input with these sizes along dims, the sizes); None leaves a size as it is."""
    sizes = [input.shape[d] if n is None else n for d, n in zip(dims, sizes, strict=True)]
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
    wanted = dict(zip(dims, sizes, strict=True))
    after = [wanted.get(d, size) - size for d, size in enumerate(input.shape)]  # what is to be added to, or cut off, each dimension
    pads = [n for more in reversed(after) for n in (0, more)]
    return (constant_pad_nd(input, pads) if any(after) else input), sizes


# -- the four kinds of transforms ------------------------------------------------------------------------------------------


def _complex(name: str, input, dims, sizes, norm, forward: bool):
    x, sizes = _sized(_as_float(name, input), dims, sizes)
    scale = _scale(norm, sizes, forward)
    return _c2c(x, dims, scale, forward) if dims else x.to(dtypes.complex_of(x.dtype), copy=True)


def _to_half(name: str, input, dims, sizes, norm, forward: bool):
    """Real to half a spectrum; backward is forward, conjugated."""
    _check_any(name, dims)
    if input.is_complex():
        wanted = "a real input tensor" if name in ("rfft", "ihfft") else "a real-valued input tensor"
        raise RuntimeError(f"{name.replace('2', 'n')} expects {wanted}, but got {input.dtype.name}. Try fft.fft, or x.real")
    x, sizes = _sized(_as_float(name, input), dims, sizes)
    scale = _scale(norm, sizes, forward)
    if forward:
        return _r2c(x, dims, scale)
    found = conj(_r2c(x, dims[-1:], scale))
    return _c2c(found, dims[:-1], 1.0, False) if dims[:-1] else found


def _from_half(name: str, input, dims, sizes, norm, forward: bool):
    """Half a spectrum to real numbers; forward is backward of the conjugate."""
    _check_any(name, dims)
    x = _as_float(name, input)
    n = 2 * (x.shape[dims[-1]] - 1) if sizes[-1] is None else sizes[-1]
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    x, sizes = _sized(x, dims, [*sizes[:-1], n // 2 + 1])
    return _c2r(conj(x) if forward else x, dims, _scale(norm, [*sizes[:-1], n], forward), n)


def _check_any(name: str, dims) -> None:
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")


# -- public names ----------------------------------------------------------------------------------------------------------

# name: (kind, whether the exponent has -i, what it does)
TRANSFORMS = {
    "fft": (_complex, True, "The Fourier transform: sum_t x_t exp(-2 pi i k t / n). Real or complex -> complex."),
    "ifft": (_complex, False, "The inverse of fft: sum_k X_k exp(2 pi i k t / n) / n. Complex -> complex."),
    "rfft": (_to_half, True, "The Fourier transform of a real signal: its first n // 2 + 1 frequencies. Real -> complex."),
    "irfft": (_from_half, False, "The inverse of rfft: n real samples, 2 (m - 1) for m frequencies if not given. Complex -> real."),
    "hfft": (_from_half, True, "The Fourier transform of a signal with a real spectrum, given by its first half. Complex -> real."),
    "ihfft": (_to_half, False, "The inverse of hfft. Real -> complex."),
}


def _declare(short: str, kind, forward: bool, doc: str) -> None:
    """One transform in its three public forms: of one dimension, of two, of several."""

    def one(input, n=None, dim=-1, norm=None):
        dims = (layout.wrap_dim(whole(dim), input.dim(), scalar_ok=False),)
        return kind(short, input, dims, [None if n is None else whole(n)], norm, forward)

    def two(input, s=None, dim=(-2, -1), norm=None):
        return kind(short + "2", input, *_several_dims(input, s, dim), norm, forward)

    def several(input, s=None, dim=None, norm=None):
        return kind(short + "n", input, *_several_dims(input, s, dim), norm, forward)

    for ending, function, over in (("", one, ""), ("2", two, " Over two dimensions."), ("n", several, " Over several dimensions.")):
        function.__doc__ = doc + over
        rows = ending or short != "ihfft"  # which alone lays out= out as it does a new result
        autocast = None if ending and short in ("hfft", "ihfft") else "cpu float32"
        composite(name=f"fft.{short}{ending}", method=False, out="cast rows" if rows else True, autocast=autocast)(function)


for _short, (_kind, _forward, _doc) in TRANSFORMS.items():
    _declare(_short, _kind, _forward, _doc)


@composite(name="fft.fftshift", method=False)
def fftshift(input, dim=None):
    """The zero frequency moved from the front to the middle, along `dim` or all dimensions."""
    return _shifted(input, dim, 0)


@composite(name="fft.ifftshift", method=False)
def ifftshift(input, dim=None):
    """The inverse of fftshift: the zero frequency moved from the middle to the front."""
    return _shifted(input, dim, 1)


def _shifted(input, dim, more: int):
    dims = list(range(input.dim())) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    dims = [layout.wrap_dim(whole(d), input.dim()) for d in dims]
    return input.roll([(input.shape[d] + more) // 2 for d in dims], dims) if dims else input.clone()
