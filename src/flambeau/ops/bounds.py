"""The larger, the smaller, and what lies between bounds."""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels.language import expr as e
from flambeau.ops.complex import view_as_complex, view_as_real
from flambeau.ops.declare import choice, composite, pointwise
from flambeau.ops.promotion import is_tensor, promoted


def _extreme(formula):
    return pointwise(complex=f"{formula.__name__} not implemented for complex tensors.", numbers=False)(formula)


@_extreme
def maximum(input, other):
    """The larger of two elements; NaN if one of them is NaN. Equal elements share the gradient."""
    return e.maximum(input, other)


@_extreme
def minimum(input, other):
    """The smaller of two elements; NaN if one of them is NaN. Equal elements share the gradient."""
    return e.minimum(input, other)


@_extreme
def fmax(input, other):
    """The larger of two elements; a NaN yields to a number."""
    return e.where(e.isnan(other), input, e.where(input >= other, input, other))


@_extreme
def fmin(input, other):
    """The smaller of two elements; a NaN yields to a number."""
    return e.where(e.isnan(other), input, e.where(input <= other, input, other))


# -- bounds ----------------------------------------------------------------------------------------------------------


@pointwise(public=False, method=False, complex=False, grad_name="ClampBackward1")
def _clamp(input, min, max):
    """min(max(input, min), max)."""
    # Each question once: of the composed ones, which both ask for NaN, compilers make three times as many steps.
    low = e.where(input > min, input, min)
    return e.where(e.isnan(input), input, e.where(e.isnan(min), min, e.where(low < max, low, max)))


# The gradient passes at the bounds themselves. Where min > max the result is max, whatever the input.
_clamp.derivative(
    input=lambda grad, input, min, max: e.where((input >= min) & (input <= max), grad, 0),
    min=lambda grad, input, min, max: e.where((input < min) & (min < max), grad, 0),
    max=lambda grad, input, min, max: e.where((input > max) | (max < min), grad, 0),
)


@pointwise(public=False, method=False, complex=False)
def _clamp_min(input, min):
    """max(input, min)."""
    return e.maximum(input, min)


_clamp_min.derivative(
    input=lambda grad, input, min: e.where(input >= min, grad, 0), min=lambda grad, input, min: e.where(input < min, grad, 0)
)


@pointwise(public=False, method=False, complex=False)
def _clamp_max(input, max):
    """min(input, max)."""
    return e.minimum(input, max)


_clamp_max.derivative(
    input=lambda grad, input, max: e.where(input <= max, grad, 0), max=lambda grad, input, max: e.where(input > max, grad, 0)
)


def _shown_as(op, name: str, shown: str, node: str):
    """The same formula where PyTorch's node has another name."""
    return pointwise(name=name, kernel=op.kernel, shown=shown, grad_name=node, public=False, method=False, complex=False)(op.forward)


# clamp is one node for numbers and one for tensors, whichever bound is given; clamp_min and clamp_max are others.
_clamp_between = _shown_as(_clamp, "_clamp_between", "clamp", "ClampBackward0")  # tensors
_clamp_low = _shown_as(_clamp_min, "_clamp_low", "clamp", "ClampBackward1")
_clamp_above = _shown_as(_clamp_min, "_clamp_above", "clamp", "ClampBackward0")  # a tensor
_clamp_high = _shown_as(_clamp_max, "_clamp_high", "clamp", "ClampBackward1")
_clamp_below = _shown_as(_clamp_max, "_clamp_below", "clamp", "ClampBackward0")  # a tensor
_clamp_min_of = _shown_as(_clamp_min, "_clamp_min_of", "clamp_min", "ClampMinBackward1")  # a tensor
_clamp_max_of = _shown_as(_clamp_max, "_clamp_max_of", "clamp_max", "ClampMaxBackward1")  # a tensor


@choice(inplace=True, aliases=("clip",))
def clamp(input, min=None, max=None):
    """Every element moved to the nearest number between `min` and `max` (numbers or tensors); None leaves a side open."""
    low, high = is_tensor(min), is_tensor(max)
    if low != high and min is not None and max is not None:
        raise TypeError("clamp(): min and max must be both tensors or both numbers. Try torch.full_like(...), or two calls")
    check_bounds(input, min, max)
    if max is None:
        return _clamp_above if low else _clamp_low, input, min
    if min is None:
        return _clamp_below if high else _clamp_high, input, max
    return _clamp_between if low else _clamp, input, min, max


@choice(inplace=True)
def clamp_min(input, min):
    """Every element, but at least `min`."""
    check_bounds(input, min, None)
    return _clamp_min_of if is_tensor(min) else _clamp_min, input, min


@choice(inplace=True)
def clamp_max(input, max):
    """Every element, but at most `max`."""
    check_bounds(input, None, max)
    return _clamp_max_of if is_tensor(max) else _clamp_max, input, max


def check_bounds(input, min, max) -> None:
    """Raise if there is no bound, or one that the dtype of the result cannot hold."""
    if min is None and max is None:
        raise RuntimeError("clamp: At least one of 'min' or 'max' must not be None")
    if input.is_floating_point():
        return
    given = [b for b in (min, max) if b is not None]
    common = promoted(input, *given)
    if common.category != dtypes.INTEGER:
        return
    limits = dtypes.iinfo(common)
    for bound in given:
        lowest = limits.min or -limits.max  # of an unsigned dtype -1 is the largest value, as in C
        if not is_tensor(bound) and not lowest <= bound <= limits.max:
            fits = f"{common.name} without overflow: it holds {limits.min} ... {limits.max}"
            raise RuntimeError(f"value cannot be converted to type {fits}, not {bound}. Leave it out, or cast the tensor first.")


# -- NaN and infinity replaced ----------------------------------------------------------------------------------------


@pointwise(public=False, method=False, dtypes="float", complex=False)
def _nan_to_num(input, nan=0.0, posinf=0.0, neginf=0.0):
    """The numbers given for NaN, inf and -inf, every other element as it is."""
    finite_or_infinite = e.where(e.isinf(input), e.where(input > 0, posinf, neginf), input)
    return e.where(e.isnan(input), nan, finite_or_infinite)


@composite(out=True)
def nan_to_num(input, nan=None, posinf=None, neginf=None):
    """NaN replaced by `nan` (0), inf and -inf by `posinf` and `neginf` (the largest and smallest number of the dtype)."""
    if input.is_complex():
        return view_as_complex(_nan_to_num(*_replacements(view_as_real(input.resolve_conj()), nan, posinf, neginf)))
    return _nan_to_num(*_replacements(input, nan, posinf, neginf)) if input.is_floating_point() else input.clone()


@composite(public=False, name="nan_to_num_")
def nan_to_num_(input, nan=None, posinf=None, neginf=None):
    """nan_to_num written over the tensor."""
    if input.dtype.category >= dtypes.FLOAT:
        for part in (input.real, input.imag) if input.is_complex() else (input,):
            _nan_to_num.call_inplace(*_replacements(part, nan, posinf, neginf))
    return input


def _replacements(input, nan, posinf, neginf) -> tuple:
    limits = dtypes.finfo(input.dtype)
    return input, nan or 0.0, limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
