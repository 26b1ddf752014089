"""Sizes and signs."""

from __future__ import annotations

from flambeau.kernels.language import expr as e
from flambeau.ops.declare import choice, composite, pointwise
from flambeau.ops.nodes import binary, unary
from flambeau.ops.promotion import is_tensor


@pointwise(rule="real", inplace=True, dtypes="number", aliases=("absolute",))
def abs(input):
    """The absolute value. Its derivative at 0 is taken to be 0."""
    return e.node("abs", input)


sign = unary("sign", "-1, 0 or 1, as the element is negative, zero or positive.", "sgn", inplace=True, complex=False)
sgn = unary("sgn", "The sign; of a complex number z / |z|, or 0.", inplace=True)


# For a complex z = r u, a step dz turns u by the part of dz across u, over r; for real numbers nothing is left of this.
def _across(grad, input, result):
    size = e.node("abs", input)
    along = (grad * e.conj(result) + e.conj(grad) * result) / 2  # the real part of conj(u) * grad
    return e.where(size > 0, (grad - along * result) / size, 0)


sgn.derivative(input=_across)


@composite
def positive(input):
    """+input: the tensor itself."""
    if input.dtype.name == "bool":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported. Try input.int()")
    return input


signed = "The size of input with the sign of other, -0.0 counting as negative."
copysign = binary("copysign", signed, inplace=True, rule="float", complex=False)


@pointwise(public=False, method=False, complex="heaviside is not yet implemented for complex tensors.", numbers=False)
def _heaviside(input, values):
    """0 below zero, 1 above, `values` at zero."""
    return e.where(e.eq(input, 0), values, e.as_T(input > 0))


_heaviside.derivative(input=None, values=None)


@choice(inplace=True)
def heaviside(input, values):
    """The step function: 0 for negative elements, 1 for positive ones, `values` for zeros."""
    if is_tensor(values) and values.dtype is not input.dtype and not (input.is_complex() or values.is_complex()):
        raise RuntimeError(f"heaviside is not yet implemented for tensors with different dtypes: {input.dtype} and {values.dtype}")
    return _heaviside, input, values
