"""Whole numbers and fractions, the digits and neighbours of floating-point numbers."""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.language import expr as e
from flambeau.ops import specs
from flambeau.ops.conditional import _where
from flambeau.ops.declare import choice, on_arrays, pointwise
from flambeau.ops.nodes import unary
from flambeau.ops.promotion import is_tensor, promoted
from flambeau.ops.results import named_result

floor = unary("floor", "The largest whole number that is not above input.", inplace=True, dtypes="number", complex=False)
ceil = unary("ceil", "The smallest whole number that is not below input.", inplace=True, dtypes="number", complex=False)
trunc = unary("trunc", "Input without its fraction: rounded towards zero.", inplace=True, dtypes="number", complex=False, aliases=("fix",))


@pointwise(inplace=True, dtypes="float", complex=False)
def frac(input):
    """The fraction of input, with its sign: input - trunc(input)."""
    return input - e.trunc(input)


_round = unary("_round", "The nearest whole number, halves to even.", "rint", public=False, method=False, dtypes="number", complex=False)


@pointwise(public=False, method=False, shown="round", dtypes="float", complex=False, grad_name="RoundBackward1")
def _round_digits(input, scale=1.0):
    """The nearest multiple of 1 / scale."""
    return e.rint(input * scale) / scale


@pointwise(public=False, method=False, shown="round", dtypes="float", complex=False, grad_name="RoundBackward1")
def _round_tens(input, unit=1.0):
    """The nearest multiple of unit."""
    return e.rint(input / unit) * unit


@choice(inplace=True, aliases=("special.round",))
def round(input, *, decimals=0):
    """The nearest number with `decimals` digits behind the point (if negative: of tens, hundreds, ...), halves to even."""
    if decimals == 0:
        return _round, input
    return (_round_digits, input, 10.0**decimals) if decimals > 0 else (_round_tens, input, 10.0**-decimals)


# -- digits and neighbours -------------------------------------------------------------------------------------------


@pointwise(rule="float", inplace=True, numbers=False)
def ldexp(input, other):
    """input * 2 ** other."""
    return input * e.exp2(other)


@on_arrays(public=False, method=False, returns=named_result("frexp", "mantissa exponent"))
def _frexp(input):
    """NumPy's own, in float32 for the half precisions."""
    xp = arrays.module_of(input)
    wide = input if input.dtype.itemsize > 2 else arrays.cast(input, dtypes.float32.numpy)
    mantissa, exponent = xp.frexp(wide)
    return arrays.cast(xp.asarray(mantissa), input.dtype), xp.asarray(exponent).astype("int32")


_frexp.meta(lambda input: [(input.shape, input.dtype), (input.shape, dtypes.int32.numpy)])
_frexp.derivative(input=lambda grads, results: grads[0] / results[1].exp2())


@choice
def frexp(input):
    """(mantissa, exponent) with input = mantissa * 2 ** exponent, the mantissa being 0 or of size 0.5 to 1."""
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"torch.frexp() only supports floating-point dtypes, found {input.dtype}")
    return _frexp, input


@pointwise(public=False, method=False, shown="nextafter", dtypes=("float32", "float64"), complex=False, grad_name="NextafterBackward0")
def _nextafter(input, other):
    """The neighbour of input on the side of other."""
    return e.nextafter(input, other)


# A neighbour moves along with its number, unless there is no step to take.
_nextafter.derivative(input=lambda grad, input, other: e.where(e.ne(input, other), grad, 0), other=lambda: 0)


@on_arrays(public=False, method=False, shown="nextafter", promote=("input", "other"), grad_name="NextafterBackward0", meta=specs.pointwise)
def _nextafter_halves(input, other):
    """NumPy's own: the neighbour in half precision itself, which no computation in a wider one finds."""
    return arrays.module_of(input).nextafter(input, other)


_nextafter_halves.derivative(
    input=lambda grad, input, other: _where(input != other, grad, 0), other=lambda grad: grad.new_zeros(grad.shape)
)


@choice(inplace=True)
def nextafter(input, other):
    """The floating-point number next to input in the direction of other."""
    if not is_tensor(other):
        raise TypeError(f"nextafter(): argument 'other' (position 2) must be Tensor, not {type(other).__name__}")
    common = promoted(input, other)
    if not common.is_floating_point:
        raise NotImplementedError(f'"nextafter" not implemented for {common.name} tensors; it takes floating-point ones')
    layout.broadcast_shapes(input.shape, other.shape)  # raises where they do not broadcast
    return _nextafter_halves if common.itemsize == 2 else _nextafter, input, other
