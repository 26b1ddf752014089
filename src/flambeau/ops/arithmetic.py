"""Sums, differences, products, quotients and remainders."""

from __future__ import annotations

import functools

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.language import expr as e
from flambeau.kernels.language.pointwise import INTEGERS
from flambeau.kernels.reductions import folding
from flambeau.ops import specs
from flambeau.ops.asking import numbers_of
from flambeau.ops.declare import OPS, choice, on_arrays, pointwise
from flambeau.ops.nodes import binary
from flambeau.ops.promotion import is_tensor, promoted

block = functools.partial(pointwise, public=False, method=False)
hidden = functools.partial(binary, public=False, method=False)

# -- sums ------------------------------------------------------------------------------------------------------------


@block()
def _add(input, other):
    """input + other."""
    return input + other


@block(shown="add")
def _add_scaled(input, other, alpha=1):
    """input + alpha * other."""
    return input + alpha * other


def _with_alpha(name: str, plain, scaled, meaning: str, **options):
    """Declare the public form of a sum or difference: `plain`, unless there is an alpha."""

    def choose(input, other, *, alpha=1):
        if type(alpha) is int and alpha == 1:
            return plain, input, other
        return scaled, input, other, checked_alpha(input, other, alpha)

    choose.__doc__ = meaning
    return choice(name=name, **options)(choose)


HALVES = (dtypes.float16, dtypes.bfloat16)


def checked_alpha(input, other, alpha):
    """The factor `alpha`, rounded as PyTorch does it: to the dtype of the result, on the CPU.

    RuntimeError unless it is of the same category as the result, or of a lower one.
    """
    if type(alpha) is int and abs(alpha) <= 256:
        return alpha  # every dtype has it
    if type(alpha) is float and is_tensor(input) and input.dtype in (dtypes.float32, dtypes.float64):
        return alpha  # of the result's category in any case
    common = promoted(input, other)
    if isinstance(alpha, bool) and common is not dtypes.bool:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if isinstance(alpha, float) and common.category < dtypes.FLOAT:
        raise RuntimeError(f"For integral input tensors, argument alpha must not be a floating point number, found {alpha}")
    if isinstance(alpha, complex) and not common.is_complex:
        raise RuntimeError(f"For non-complex input tensors, argument alpha must not be a complex number, found {alpha}")
    rounds = common in HALVES and isinstance(alpha, (int, float)) and (input if is_tensor(input) else other).is_cpu
    return float(common.numpy.type(alpha)) if rounds else alpha


NO_BOOL_SUB = "Subtraction, the `-` operator, with a bool tensor is not supported. Try `~` or `logical_not()`, `^` or `logical_xor()`."


@block(dtypes="number", refuse_bool=NO_BOOL_SUB)
def _sub(input, other):
    """input - other."""
    return input - other


@block(shown="sub", dtypes="number", refuse_bool=NO_BOOL_SUB)
def _sub_scaled(input, other, alpha=1):
    """input - alpha * other."""
    return input - alpha * other


@block(grad_name="RsubBackward1", dtypes="number", refuse_bool=NO_BOOL_SUB)
def _rsub(input, other):
    """other - input."""
    return other - input


@block(shown="rsub", grad_name="RsubBackward1", dtypes="number", refuse_bool=NO_BOOL_SUB)
def _rsub_scaled(input, other, alpha=1):
    """other - alpha * input."""
    return other - alpha * input


_sum = functools.partial(_with_alpha, inplace=True, number_first=True)
add = _sum("add", _add, _add_scaled, "input + alpha * other, elementwise. Shapes broadcast.")
sub = _sum("sub", _sub, _sub_scaled, "input - alpha * other, elementwise. Shapes broadcast.", aliases=("subtract",))
rsub = _with_alpha("rsub", _rsub, _rsub_scaled, "other - alpha * input: subtraction the other way round.", method=False)

NO_BOOL_NEG = "Negation, the `-` operator, on a bool tensor is not supported. To invert a mask, use `~` or `logical_not()` instead."


@pointwise(inplace=True, aliases=("negative",), dtypes="number", refuse_bool=NO_BOOL_NEG)
def neg(input):
    """-input."""
    return -input


# -- products --------------------------------------------------------------------------------------------------------


@pointwise(inplace=True, number_first=True, aliases=("multiply",), unrounded="other")
def mul(input, other):
    """input * other, elementwise. Shapes broadcast."""
    return input * other


@pointwise(inplace=True, dtypes="number", numbers=False, autocast="cuda widest")
def addcmul(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 * tensor2."""
    return input + value * tensor1 * tensor2


@block(dtypes="float", numbers=False)
def _addcdiv(input, tensor1, tensor2, value=1):
    """input + value * tensor1 / tensor2."""
    return input + value * (tensor1 / tensor2)


@choice(inplace=True, autocast="cuda widest")
def addcdiv(input, tensor1, tensor2, *, value=1):
    """input + value * tensor1 / tensor2, for floating-point tensors."""
    if all(is_tensor(t) and t.dtype.category < dtypes.FLOAT for t in (tensor1, tensor2)):
        instead = "input + value * torch.div(tensor1, tensor2, rounding_mode='trunc')"
        raise RuntimeError(
            f"Integer division is no longer supported, by addcdiv either: try {instead}, or make one of the tensors floating point"
        )
    return _addcdiv, input, tensor1, tensor2, value


@block(dtypes="float", grad_name="LerpBackward1")
def _lerp(input, end, weight):
    """input + weight * (end - input), from the nearer end, so that the weights 0 and 1 are exact."""
    step = end - input
    return e.where(abs(weight) < 0.5, input + weight * step, end - step * (1 - weight))


@block(dtypes="float", shown="lerp")
def _lerp_by_number(input, end, weight=0.5):
    """The same with one weight for all, which half precision does not round."""
    return _lerp.forward(input, end, weight)


# The derivative of the formula itself would be a choice between two equal numbers.
for _op in (_lerp, _lerp_by_number):
    _op.derivative(input=lambda grad, weight: grad * e.conj(1 - weight), end=lambda grad, weight: grad * e.conj(weight))
_lerp.derivative(weight=lambda grad, input, end: grad * e.conj(end - input))


@choice(inplace=True)
def lerp(input, end, weight):
    """The point a fraction `weight` of the way from input to end: input + weight * (end - input)."""
    for name, other in (("end", end), ("weight", weight)):
        if is_tensor(other) and other.dtype is not input.dtype:
            if name == "weight" and not other.dim() and input.dim():  # a 0-d weight is a number, as elsewhere
                weight = other.to(input.dtype)
                continue
            raise RuntimeError(f"expected dtype {input.dtype} for `{name}` but got dtype {other.dtype}. Try {name}.to(input.dtype)")
    return (_lerp if is_tensor(weight) else _lerp_by_number), input, end, weight


# -- quotients -------------------------------------------------------------------------------------------------------


@block(rule="float", unrounded="other")
def _div(input, other):
    """input / other."""
    return input / other


@block(shown="div", grad_name="MulBackward0", rule="float", autocast="cuda float32")
def _rdiv(input, other):
    """other / input, for an `other` that is no tensor: the reciprocal times it, as in PyTorch, which may differ in the last digit."""
    return (1 / input) * other


floor_division = functools.partial(
    hidden, meaning="The quotient rounded down.", node="floordiv", dtypes="number", complex=False, unrounded="other"
)
_div_floor = floor_division("_div_floor", shown="div", grad_name="DivBackward2")


@block(shown="div", grad_name="DivBackward2", dtypes="float", complex=False, unrounded="other")
def _div_trunc(input, other):
    """The quotient rounded towards zero."""
    return e.trunc(input / other)


@on_arrays(public=False, method=False, shown="div", grad_name="DivBackward2", promote=("input", "other"), meta=specs.pointwise)
def _div_trunc_halves(input, other):
    """The same for two tensors of half precision. As in PyTorch the quotient is rounded to the dtype first, and 17.99 may be 18."""
    dtype = (input if hasattr(input, "dtype") else other).dtype
    quotient = arrays.run(_div.kernel, (input, other), (), dtype, dtype)
    return arrays.run(OPS["trunc"].kernel, (quotient,), (), dtype, dtype)


_div_trunc_halves.derivative(input=lambda grad: grad.new_zeros(grad.shape), other=lambda grad: grad.new_zeros(grad.shape))


@block(shown="div", dtypes=INTEGERS)
def _div_trunc_integers(input, other):
    """The quotient of integers rounded towards zero: one more than the floor where that is below an inexact quotient."""
    floor = e.floordiv(input, other)
    return e.where((floor < 0) & e.ne(e.fmod(input, other), 0), floor + 1, floor)


@choice(inplace=True, number_first=True, aliases=("divide",))
def div(input, other, *, rounding_mode=None):
    """input / other, elementwise; with rounding_mode "floor" or "trunc", the quotient rounded down or towards zero."""
    if rounding_mode is None:
        return _div, input, other
    if rounding_mode == "floor":
        refuse_zero(input, other)
        return _div_floor, input, other
    if rounding_mode == "trunc":
        if refuse_zero(input, other):
            return _div_trunc_integers, input, other
        halves = is_tensor(other) and promoted(input, other) in HALVES
        return _div_trunc_halves if halves else _div_trunc, input, other
    raise RuntimeError(f"div expected rounding_mode to be one of 'trunc', 'floor' and None, found {rounding_mode!r}")


@choice(inplace=True, number_first=True)
def true_divide(input, other):
    """input / other, elementwise."""
    return _div, input, other


_floor_divide = floor_division("_floor_divide")
_floor_divide.derivative(input=None, other=None)


@choice(inplace=True, number_first=True)
def floor_divide(input, other):
    """input / other rounded down, as Python's // does."""
    refuse_zero(input, other)
    return _floor_divide, input, other


def refuse_zero(input, other) -> bool:
    """Whether this is a division of integers; RuntimeError if one of the divisors is zero, for which no integer is the answer.

    Generated loops divide without asking (a zero would end the process), so every integer division comes through here.
    """
    common = promoted(input, other)
    if common.category >= dtypes.FLOAT:
        return False
    # Asked in the dtype that is divided in: 256 is a zero for uint8.
    if is_tensor(other):
        zero = other.is_cpu and _has_zero(arrays.cast(numbers_of(other), common.numpy))
    else:
        zero = int(other) % 2 ** (8 * common.itemsize) == 0
    if zero and not (is_tensor(input) and (0 in input.shape or not input.is_cpu)):
        raise RuntimeError("ZeroDivisionError: an integer divided by zero. Floating-point tensors would give inf or nan.")
    return True


def _has_zero(array) -> bool:
    all_others = folding.fold("all", array, tuple(range(array.ndim)), False, dtypes.bool.numpy)
    return not (array.all() if all_others is None else all_others)


remaining = functools.partial(hidden, dtypes="number", complex=False)
_fmod = remaining("_fmod", "The remainder of the quotient rounded towards zero.", "fmod", grad_name="FmodBackward1")
_fmod_by_number = remaining("_fmod_by_number", _fmod.__doc__, "fmod", shown="fmod", grad_name="FmodBackward0", kernel=_fmod.kernel)


@choice(inplace=True)
def fmod(input, other):
    """input - other * trunc(input / other): the remainder with the sign of input, as C's fmod."""
    refuse_zero(input, other)
    return _fmod if is_tensor(other) else _fmod_by_number, input, other


_remainder = remaining("_remainder", "The remainder of the quotient rounded down.", "remainder", grad_name="RemainderBackward1")
_remainder_by_number = remaining(
    "_remainder_by_number", _remainder.__doc__, "remainder", shown="remainder", grad_name="RemainderBackward0", kernel=_remainder.kernel
)


@choice(inplace=True, number_first=True)
def remainder(input, other):
    """input - other * floor(input / other): the remainder with the sign of other, as Python's %."""
    refuse_zero(input, other)
    return _remainder if is_tensor(other) else _remainder_by_number, input, other


# -- divisors --------------------------------------------------------------------------------------------------------


gcd = binary("gcd", "The greatest common divisor of integers.", inplace=True, dtypes=INTEGERS, complex=False, numbers=False)


@pointwise(inplace=True, dtypes=INTEGERS, complex=False, numbers=False)
def lcm(input, other):
    """The least common multiple of integers, 0 if one of them is 0."""
    divisor = e.gcd(input, other)
    whole = e.floordiv(input, e.where(e.eq(divisor, 0), 1, divisor))
    return abs(whole * other)
