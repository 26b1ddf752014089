"""Complex numbers: their parts, their conjugates, and making them.

The real and imaginary parts are views: a complex tensor is a real one with a last dimension of size 2 (`view_as_real`),
and a write to a part is a write to the number. The conjugate is a view as well, of the same memory in a mirror
(`kernels/mirrored.py`), and its imaginary part is that of the number, negated: a view once more.
"""

from __future__ import annotations

import math

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.language import expr as e
from flambeau.ops import specs
from flambeau.ops.declare import choice, composite, on_arrays, pointwise, view
from flambeau.ops.nodes import unary

REAL_OF = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(np.float64)}
COMPLEX_OF = {real: complex for complex, real in REAL_OF.items()}

# -- parts -----------------------------------------------------------------------------------------------------------


@view(public=False, method=False, retype=REAL_OF.__getitem__)
def _view_as_real(input):
    """(*shape) of complex numbers as (*shape, 2) of real ones."""
    shape, strides, offset = input
    return (*shape, 2), (*(2 * s for s in strides), 1), offset


@view(public=False, method=False, retype=COMPLEX_OF.__getitem__)
def _view_as_complex(input):
    """(*shape, 2) of real numbers as (*shape) of complex ones."""
    shape, strides, offset = input
    return shape[:-1], tuple(s // 2 for s in strides[:-1]), offset


_view_as_real.derivative(lambda grad: _view_as_complex(grad.contiguous()))
_view_as_complex.derivative(lambda grad: _view_as_real(grad.resolve_conj()))


@composite(method=False)
def view_as_real(input):
    """The same memory as pairs of real numbers. (*) complex -> (*, 2) real."""
    if not input.is_complex():
        raise RuntimeError(f"view_as_real is only supported for complex tensors, found {input.dtype}")
    if input.is_conj():
        raise RuntimeError(
            "view_as_real: of a conjugate no pair of numbers in memory is what it means. x.resolve_conj() makes a copy where "
            "they are; x.real and x.imag are views"
        )
    return _view_as_real(input)


@composite(method=False, autocast="cpu float32")
def view_as_complex(input):
    """The same memory as complex numbers, the last dimension being their parts. (*, 2) real -> (*) complex."""
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"view_as_complex is only supported for float32 and float64 tensors, but got {input.dtype}")
    shape, strides = tuple(input.shape), input.stride()
    if not shape:
        raise RuntimeError("Input tensor must have one or more dimensions: the last one holds the two parts of each number")
    if shape[-1] != 2:
        raise RuntimeError(f"Tensor must have a last dimension of size 2, the two parts of a number; found {tuple(shape)}")
    if strides[-1] != 1 and input.numel():
        raise RuntimeError("Tensor must have a last dimension with stride 1: both parts side by side. Try .contiguous()")
    if any(s % 2 for n, s in zip(shape[:-1], strides, strict=False) if n > 1):
        raise RuntimeError(f"Tensor must have a stride divisible by 2 for all but last dimension, found {strides}. Try .contiguous()")
    if input.storage_offset() % 2:
        raise RuntimeError(
            f"view_as_complex: pairs need a storage_offset divisible by 2, found {input.storage_offset()}. Try .contiguous()"
        )
    return _view_as_complex(input)


@composite(attribute="writable")
def real(input):
    """The real part, as a view; a real tensor is its own."""
    return _view_as_real(_conj(input) if input.is_conj() else input).select(-1, 0) if input.is_complex() else input


@composite(attribute="writable")
def imag(input):
    """The imaginary part, as a view."""
    if not input.is_complex():
        raise RuntimeError(f"imag is not implemented for {input.dtype}, which is real: try torch.zeros_like")
    return (_neg_view(_view_as_real(_conj(input))) if input.is_conj() else _view_as_real(input)).select(-1, 1)


@pointwise(public=False, method=False, shown="angle", rule="float", complex=False)
def _angle_of_real(input):
    """pi for negative numbers, else 0."""
    return e.where(e.isnan(input), input, e.where(input < 0, math.pi, 0))


_angle_of_real.derivative(input=lambda grad: 0)


@composite(public=False, method=False, out=True)
def _angle_of_complex(input):
    return input.imag.atan2(input.real)


@choice
def angle(input):
    """The angle of a complex number in the plane, between -pi and pi; of a real number pi if it is negative, else 0."""
    return (_angle_of_complex if input.is_complex() else _angle_of_real), input


# -- conjugates ------------------------------------------------------------------------------------------------------


_conj_physical = unary("_conj_physical", "real - i imaginary.", "conj", public=False, method=False)


@composite(out=True)
def conj_physical(input):
    """The complex conjugate, computed; a real tensor is its own."""
    return _conj_physical(input) if input.is_complex() else input


@composite(public=False, name="conj_physical_")
def conj_physical_(input):
    """The complex conjugate, written over the tensor."""
    return _conj_physical.call_inplace(input) if input.is_complex() else input


@view(public=False, method=False, mirror="conj")
def _conj(input):
    """The same memory, to be read conjugated."""
    return input


@view(public=True, method=True, mirror="neg", grad_name="NegViewBackward0")
def _neg_view(input):
    """The same memory, to be read negated."""
    return input


_conj.derivative(lambda grad: _conj(grad))
_neg_view.derivative(lambda grad: -grad)


@composite
def conj(input):
    """The complex conjugate, as a view; a real tensor is its own."""
    return _conj(input) if input.is_complex() else input


@composite
def resolve_conj(input):
    """`input` itself, unless it is a view that is read conjugated: then a copy with the conjugates in memory."""
    return input.clone() if input.is_conj() else input


@composite
def resolve_neg(input):
    """`input` itself, unless it is a view that is read negated: then a copy with the negatives in memory."""
    return input.clone() if input.is_neg() else input


# -- making complex numbers ------------------------------------------------------------------------------------------


@on_arrays(public=False, method=False, out="same")
def _complex(real, imag):
    """real + i imag in fresh memory."""
    out = arrays.empty_pointwise((real, imag), COMPLEX_OF[real.dtype])
    out.real, out.imag = real, imag
    return out


@_complex.meta
def _(real, imag):
    shape, dtype, strides = specs.pointwise(real=real, imag=imag)
    return shape, COMPLEX_OF[dtype], strides


_complex.derivative(real=lambda grad: grad.real, imag=lambda grad: grad.imag)


@choice(method=False)
def complex(real, imag):
    """Complex numbers from their real and imaginary parts, which are float32 or float64 alike."""
    check_parts("complex", real, imag)
    return _complex, real, imag


@composite(method=False, out="same", grad_name="PolarBackward0", autocast="cpu float32")
def polar(abs, angle):
    """Complex numbers from their sizes and angles: abs * (cos(angle) + i sin(angle))."""
    check_parts("polar", abs, angle)
    return _complex(abs * angle.cos(), abs * angle.sin())


def check_parts(name: str, first, second) -> None:
    """RuntimeError unless both are float32, or both float64."""
    if first.dtype is second.dtype is dtypes.float16:
        raise NotImplementedError(f"{name}: complex numbers of half precision (complex32) are not supported. Try .float()")
    if any(t.dtype not in (dtypes.float32, dtypes.float64) for t in (first, second)):
        found = " and ".join(dtypes.in_messages(t.dtype) for t in (first, second))
        raise RuntimeError(f"{name}: Expected both inputs to be Half, Float or Double tensors but got {found}")
    if first.dtype is not second.dtype:
        wanted, found = (dtypes.in_messages(t.dtype) for t in (first, second))
        raise RuntimeError(f"{name}: Expected object of scalar type {wanted} but got scalar type {found} for second argument")
