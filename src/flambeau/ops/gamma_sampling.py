"""Gamma and Dirichlet numbers, and how they move with their parameters.

A sample x of a distribution with the cumulative function F(x; a) moves, if a changes while its rank F stays, by

    dx/da = - (dF/da) / (dF/dx)

(M. Figurnov, S. Mohamed, A. Mnih, "Implicit reparameterization gradients", 2018). dF/dx is the density; dF/da has no formula, and is a difference
of F at four places, whose error is of the fourth order, in float64.
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.random import rejection
from flambeau.kernels.random.drawing import room, source
from flambeau.ops import specs
from flambeau.ops.declare import OPS, composite, no_derivative, on_arrays

STEPS = (-2, -1, 1, 2)
WEIGHTS = (1 / 12, -8 / 12, 8 / 12, -1 / 12)  # of a first derivative by differences
LEAST = 1e-30  # stands for zero in a continued fraction


@on_arrays(name="_standard_gamma", public=True, method=False, grad_name="StandardGammaBackward0", meta=specs.contiguous)
def standard_gamma(input, generator=None):
    """A gamma number of scale 1 for each shape parameter. -> the same shape and dtype"""
    found = _drawn(input, generator)
    return arrays.cast(arrays.module_of(input).fmax(found, _tiny(input)), input.dtype)  # of NaN, too, as in PyTorch


def _drawn(shape, generator):
    return room(shape, rejection).gamma(source(generator, arrays.device_of(shape)), shape)


def _tiny(array) -> float:
    return dtypes.finfo(dtypes.of_array(array)).tiny


standard_gamma.derivative(input=lambda grad, input, result: grad * standard_gamma_grad(input, result))


@on_arrays(name="_sample_dirichlet", public=True, method=False, grad_name="SampleDirichletBackward0", meta=specs.contiguous)
def sample_dirichlet(input, generator=None):
    """Positive numbers that sum to one along the last dimension, from the concentrations in `input`."""
    drawn = _drawn(arrays.cast(input, dtypes.float64.numpy), generator)
    xp = arrays.module_of(drawn)
    drawn = xp.maximum(drawn, _tiny(drawn))  # concentrations near 0 draw numbers below any float64: then all are alike, and none is 0 / 0
    limits = dtypes.finfo(dtypes.of_array(input))
    return arrays.cast(xp.clip(drawn / drawn.sum(-1, keepdims=True), limits.tiny, 1 - limits.eps / 2), input.dtype)


@sample_dirichlet.joint
def _(grads, input, result, needs):
    grad = grads[0]
    total = input.sum(-1, keepdim=True).expand_as(input)
    slope = dirichlet_grad(result, input, total)
    return {"input": slope * (grad - (result * grad).sum(-1, keepdim=True))}


@composite(name="_standard_gamma_grad", public=True, method=False)
def standard_gamma_grad(input, output):
    """How a gamma number moves with its shape parameter."""
    a, x = input.detach().double(), output.detach().double()
    where, lower, upper = OPS["_where"], OPS["igamma"], OPS["igammac"]
    log_density = (a - 1) * x.log() - x - a.lgamma()
    h = 1e-3 * a.minimum(a.sqrt())
    below = x < a  # the smaller of F and 1 - F has the digits
    slope = _slope(lambda a: where(below, lower(a, x.expand_as(a)), -upper(a, x.expand_as(a))), a, h)
    return _once((-slope * (-log_density).exp()).nan_to_num(0.0, 0.0, 0.0).to(input.dtype), input)


@composite(name="_dirichlet_grad", public=True, method=False)
def dirichlet_grad(x, alpha, total):
    """How one of several Dirichlet numbers moves with its own concentration, divided by 1 - x: it is a beta number by itself."""
    where = OPS["_where"]
    x64, a, b = x.detach().double(), alpha.detach().double(), (total - alpha).detach().double()
    h = 1e-3 * a.minimum(a.sqrt())
    below = x64 < (a + 1) / (a + b + 2)  # where the fraction converges fast; beyond, that of 1 - F does
    y, sign = where(below, x64, 1 - x64), where(below, x64.new_ones(()), -x64.new_ones(()))

    def cumulative(a):
        return sign * _incomplete_beta(where(below, a, b), where(below, b, a), y)

    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    log_density = (a - 1) * x64.log() + (b - 1) * (-x64).log1p() - log_beta
    found = -_slope(cumulative, a, h) * (-log_density).exp() / (1 - x64)
    return _once(found.nan_to_num(0.0, 0.0, 0.0).to(x.dtype), alpha)


@on_arrays(name="_once", public=False, method=False)
def _once(slope, parameter):
    """The slope, which depends on the parameter in a way that nobody has differentiated."""
    return arrays.copy(slope)


_once.meta(lambda slope, parameter: specs.like(slope))
_once.derivative(parameter=lambda grad: no_derivative("the slope of gamma and Dirichlet numbers", "their parameters"))


def _slope(function, a, h):
    """The derivative of a function by differences."""
    shape = (4, *(1,) * a.dim())
    steps, weights = (a.new_tensor(v).reshape(shape) for v in (STEPS, WEIGHTS))
    return (function(a + steps * h) * weights).sum(0) / h


def _incomplete_beta(a, b, x):
    """The regularized incomplete beta function, by its continued fraction (Lentz's algorithm), for x up to about (a + 1) / (a + b + 2)."""
    front = (a * x.log() + b * (-x).log1p() - (a.lgamma() + b.lgamma() - (a + b).lgamma())).exp() / a
    c = a.new_ones(()).expand_as(a)
    d = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 500):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            factor = c * d
            found = found * factor
        if m % 8 == 0 and bool(((factor - 1).abs() < 1e-15).all()):
            break
    return front * found


def _not_zero(x):
    return OPS["_where"](x.abs() < LEAST, x.new_tensor(LEAST), x)
