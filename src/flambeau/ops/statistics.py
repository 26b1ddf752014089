"""Statistics: variance and standard deviation, covariance and correlation.

`correction` is what is subtracted from the number of elements before dividing: 1 (unbiased, the default) or 0.
"""

from __future__ import annotations

from flambeau import dtypes, errors
from flambeau.kernels.reductions.reduce import count, variance, variance_ready
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import OPS, composite, on_arrays, one_of
from flambeau.ops.reductions import conj, dims_of, reduced_shape, spread, unreduced


def _declared(name: str, root: bool, both: bool, meaning: str):
    """Declare <name> and _<name>(input, dims, correction, keepdim): the variance, its root if `root`, and the mean beside it if `both`."""

    @on_arrays(name=f"_{name}")
    def moments(input, dims, correction, keepdim):
        found = variance(input, dims, keepdim, correction, root=root)
        return found if both else found[0]

    @moments.work
    def _(input, dims, correction, keepdim):
        found = variance_ready(input, dims, keepdim, correction, root)
        return found if both or found is None else one_of(found, 0)

    def shapes(input, dims, correction, keepdim):
        shape = reduced_shape(input.shape, dims, keepdim)
        found = [(shape, dtypes.OF_NUMPY[input.dtype].to_real().numpy), (shape, input.dtype)]
        return found if both else found[0]

    moments.meta(shapes)

    @composite(name=name, out=not both, method=not both, doc=f"{meaning} of all elements, or over dimensions.")
    def public(input, dim=None, unbiased=None, keepdim=False, *, correction=None):
        return moments(input, *_arguments(name, input, dim, unbiased, keepdim, correction))

    return moments


_var = _declared("var", False, False, "The variance, sum((x - mean)^2) / (n - correction),")
_std = _declared("std", True, False, "The standard deviation, the square root of the variance,")
_var_mean = _declared("var_mean", False, True, "(variance, mean)")
_std_mean = _declared("std_mean", True, True, "(standard deviation, mean)")
_var.derivative(input=lambda grad, input, dims, correction, keepdim: _from_var(grad, input, dims, correction, keepdim))
_std.derivative(
    input=lambda grad, input, result, dims, correction, keepdim: _from_var(_of_root(grad, result), input, dims, correction, keepdim)
)


_var_mean.joint(lambda grads, input, dims, correction, keepdim: {"input": _from_both(grads[0], grads[1], input, dims, correction, keepdim)})


@_std_mean.joint
def _(grads, results, input, dims, correction, keepdim):
    of_var = None if grads[0] is None else _of_root(grads[0], results[0])
    return {"input": _from_both(of_var, grads[1], input, dims, correction, keepdim)}


def _from_var(grad, input, dims, correction, keepdim):
    """The derivative of the variance, 2 (x - mean) / (n - correction), times the gradient."""
    shape = tuple(input.shape)
    off = input - input.mean(dims, keepdim=True) if shape else input - input
    grad = unreduced(grad, shape, dims, keepdim)
    divisor = count(shape, dims) - correction
    if divisor <= 0:  # the variance is infinite, or NaN where all elements are equal, and so is its derivative
        return grad * (off * conj(off)).div(0)
    return grad * (2 / divisor) * off


def _of_root(grad, root):
    """The gradient of the variance, given that of its square root: at 0 the slope is infinite, and PyTorch says 0."""
    return (grad / (root * 2)).masked_fill(root == 0, 0)


def _from_both(grad_var, grad_mean, input, dims, correction, keepdim):
    shape = tuple(input.shape)
    by_var = None if grad_var is None else _from_var(grad_var, input, dims, correction, keepdim)
    by_mean = None if grad_mean is None else spread(grad_mean / count(shape, dims), shape, dims, keepdim)
    return by_mean if by_var is None else by_var if by_mean is None else by_var + by_mean


def _arguments(name: str, input, dim, unbiased, keepdim, correction):
    """The three forms, (unbiased), (dim, unbiased, keepdim) and (dim, *, correction, keepdim), as what the array operations take."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}(): both unbiased={unbiased} and correction={correction} were given; unbiased=False means correction=0")
    if input.dtype.category < dtypes.FLOAT:
        raise RuntimeError(f"{name}: std and var only support floating point or complex numbers, found {input.dtype.name}. Try x.float()")
    if correction is None:
        correction = 0 if unbiased is False else 1
    dims = dims_of(dim, input.dim())
    if count(tuple(input.shape), dims) - correction <= 0 and input.numel():
        words = f"{count(tuple(input.shape), dims)} elements go into each result, correction is {correction}"
        errors.warn(f"{name}(): degrees of freedom is <= 0. {words}")
    return dims, correction, keepdim


# -- covariance ---------------------------------------------------------------------------------------------------------------


@composite
def cov(input, *, correction=1, fweights=None, aweights=None):
    """The covariance matrix of variables (rows) over observations (columns): (V, N) -> (V, V), (N,) -> ().

    fweights  how often each observation was made, integers;  aweights  how much each counts
    """
    if input.dim() > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions, found {input.dim()}")
    if input.dtype is dtypes.bool:
        raise RuntimeError("cov(): bool is not supported. Try x.float()")
    x = input if input.dim() == 2 else input.reshape(1, -1)
    n = x.shape[1]
    weights = _weights(x, fweights, aweights)
    if weights is None:
        total, mean = n, x.sum(1) / n if n else (x if x.dtype.category >= dtypes.FLOAT else x.to(dtypes.get_default_dtype())).mean(1)
        divisor = n - correction
    else:
        total = weights.sum()
        if weights.numel() and anywhere(total == 0):
            raise RuntimeError("cov(): the weights sum to zero, by which nothing can be divided")
        mean = (x * weights).sum(1) / total
        divisor = total - correction * (1 if aweights is None else (weights * aweights).sum() / total)
    if divisor <= 0 if weights is None else anywhere(divisor <= 0):
        errors.warn("cov(): degrees of freedom is <= 0, as correction is not less than the number of observations.")
        divisor = 0 if weights is None else divisor.clamp(min=0)
    off = x - mean.unsqueeze(1)
    weighted = off if weights is None else off * weights
    return (off @ conj(weighted).transpose(0, 1) / divisor).squeeze()


def _weights(x, fweights, aweights):
    """The weight of every observation, or None; RuntimeError for weights that are none."""
    for name, w in (("fweights", fweights), ("aweights", aweights)):
        if w is None:
            continue
        kind, floating = ("integral", False) if name == "fweights" else ("floating point", True)
        if w.dim() > 1:
            raise RuntimeError(f"cov(): {name} is a row of weights, found {w.dim()} dimensions")
        if w.is_floating_point() != floating or w.is_complex() or w.dtype is dtypes.bool:
            raise RuntimeError(f"cov(): expected {name} to have {kind} dtype but got {name} with {w.dtype.name} dtype")
        if w.numel() != x.shape[1]:
            raise RuntimeError(f"cov(): expected {name} to have one element for each observation but got {w.numel()} != {x.shape[1]}")
        if w.numel() and anywhere(w < 0):
            raise RuntimeError(f"cov(): {name} cannot be negative")
    if fweights is not None and aweights is not None:
        return fweights * aweights
    return fweights if fweights is not None else aweights


@composite
def corrcoef(input):
    """The correlation coefficients of variables (rows) over observations (columns): the covariance, each variable scaled to variance 1."""
    if input.dim() > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions, found {input.dim()}")
    c = cov(input)
    if not c.dim():
        return c / c
    scale = (c.real if c.is_complex() else c).diagonal().sqrt()
    c = c / scale.reshape(-1, 1) / scale.reshape(1, -1)
    # Rounding can leave the interval of correlations by a hair.
    if not c.is_complex():
        return c.clip(-1, 1)
    return OPS["complex"](c.real.clip(-1, 1), c.imag.clip(-1, 1))
