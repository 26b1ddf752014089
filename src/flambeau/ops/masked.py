"""Reductions and normalizations of the elements a mask lets through: torch.masked.

`mask` is true where an element counts, and broadcasts to the shape of the input; without one all elements count. An element that does not
count is replaced by the identity of the operation (0 for a sum, -inf for a maximum), and then nothing special happens any more.
"""

from __future__ import annotations

from flambeau import dtypes
from flambeau.ops.declare import OPS, composite
from flambeau.ops.reductions import conj, dims_of
from flambeau.ops.views import whole


def _mask_for(input, mask):
    """The mask in the shape of the input, as bool."""
    if mask.dim() > input.dim():
        raise IndexError(f"expected broadcastable mask, but it has {mask.dim()} dimensions and the input {input.dim()}")
    return mask.to(dtypes.bool).expand(tuple(input.shape))


def _filled(input, mask, value):
    """The input with `value` where the mask is false."""
    return input if mask is None else input.masked_fill(_mask_for(input, mask).logical_not(), value)


def _outdone(name: str, input, mask, sign: int):
    """The input with what is larger (sign 1) or smaller (-1) than everything where the mask is false."""
    if mask is None:
        return input
    if input.dtype is dtypes.bool:
        raise NotImplementedError(f"identity of {name} on torch.bool input. Try x.int()")
    if input.dtype.category == dtypes.INTEGER:
        limits = dtypes.iinfo(input.dtype)
        return _filled(input, mask, limits.max if sign > 0 else limits.min)
    return _filled(input, mask, sign * float("inf"))


def _cast(x, dtype):
    return x if dtype is None else x.to(dtype)


# -- sums and products ----------------------------------------------------------------------------------------------------------


@composite(name="masked.sum", method=False)
def masked_sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The sum of the elements the mask lets through, over dimensions."""
    return _filled(input, mask, 0).sum(dims_of(dim, input.dim()), keepdim, dtype=dtype)


@composite(name="masked.prod", method=False)
def masked_prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The product of the elements the mask lets through, over dimensions."""
    x = _filled(input, mask, 1)
    dims = () if dim == [] and input.dim() else dims_of(dim, input.dim())  # PyTorch's: an empty list, unlike (), names no dimension
    if not dims:
        return x.prod(dtype=dtype) if not input.dim() else _cast(x, dtype)
    for d in sorted(dims, reverse=True):
        x = x.prod(d, keepdim, dtype=dtype)
    return x


def _cumulative(name: str, what: str, start: int) -> None:
    doc = f"The cumulative {what} along `dim` of the elements the mask lets through, in the input's own dtype."

    @composite(name=f"masked.{name}", method=False, doc=doc)
    def cumulative(input, dim, *, dtype=None, mask=None):
        return getattr(_filled(input, mask, start), name)(dim, dtype=dtype or input.dtype)


_cumulative("cumsum", "sum", 0)
_cumulative("cumprod", "product", 1)


# -- extrema --------------------------------------------------------------------------------------------------------------------


def _extremum(which: str, sign: int) -> None:
    """Declare masked.a<which> and masked.arg<which>."""

    what = f"the {which}imum of the elements the mask lets through"

    @composite(name=f"masked.a{which}", method=False, doc=f"{what.capitalize()}, over dimensions.")
    def value(input, dim=None, *, keepdim=False, dtype=None, mask=None):
        return getattr(_cast(_outdone(f"a{which}", input, mask, sign), dtype), f"a{which}")(dims_of(dim, input.dim()), keepdim)

    @composite(name=f"masked.arg{which}", method=False, doc=f"Where {what} is; in the dtype of the input, as PyTorch gives it.")
    def place(input, dim=None, *, keepdim=False, dtype=None, mask=None):
        return getattr(_outdone(f"arg{which}", input, mask, sign), f"arg{which}")(dim, bool(keepdim)).to(dtype or input.dtype)


_extremum("max", -1)
_extremum("min", 1)

# -- statistics -----------------------------------------------------------------------------------------------------------------


def _number_of(input, mask, dims, keepdim: bool):
    """How many elements go into each result."""
    mask = input.new_ones((), dtype=dtypes.bool).expand(tuple(input.shape)) if mask is None else _mask_for(input, mask)
    return mask.sum(dims, keepdim)


@composite(name="masked.mean", method=False)
def masked_mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The mean of the elements the mask lets through, over dimensions."""
    found = dtype or input.dtype
    if found.category < dtypes.FLOAT:
        raise ValueError(f"mean(): the output would be of {found}, which has no means. Give dtype=")
    dims = dims_of(dim, input.dim())
    return masked_sum(input, dim, keepdim=keepdim, dtype=found, mask=mask) / _number_of(input, mask, dims, keepdim)


@composite(name="masked.median", method=False)
def masked_median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    """The median along `dim` of the elements the mask lets through. NaN for a row without any."""
    at = (*dims_of(dim, input.dim()), 0)[0]
    floating = input.is_floating_point()
    if mask is not None and not floating and (_number_of(input, mask, (at,) if input.dim() else (), True) == 0).any().item():
        raise ValueError("masked median: a row without any element has no median but nan, which is floating point. Try input.float()")
    x = input if floating else input.to(dtypes.float64)
    return _filled(x, mask, float("nan")).nanmedian(at, bool(keepdim)).values.to(dtype or input.dtype)


@composite(name="masked.logsumexp", method=False)
def masked_logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    """log(sum(exp(x))) over dimensions of the elements the mask lets through."""
    x = _outdone("logsumexp", input, mask, -1)
    return _cast(x, dtype).logsumexp(dims_of(dim, input.dim()), bool(keepdim)).to(dtype or input.dtype)


@composite(name="masked.logaddexp", method=False)
def masked_logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    """log(exp(x) + exp(y)) for each pair, where what its mask does not let through counts as exp(-inf) = 0."""
    dtype = dtype or input.dtype
    if not (input.is_floating_point() and other.is_floating_point()):
        raise ValueError(f"logaddexp(): expected floating-point tensors, found {input.dtype} and {other.dtype}")
    a, b = (_filled(x.to(dtype), m, -float("inf")) for x, m in ((input, input_mask), (other, other_mask)))
    return OPS["logaddexp"](a, b)


@composite(name="masked.norm", method=False)
def masked_norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    """The norm of order `ord` over dimensions of the elements the mask lets through."""
    x = input if mask is None else _filled(input, mask, 0.0 if ord >= 0 else float("inf"))
    return OPS["linalg.vector_norm"](x, ord, dims_of(dim, input.dim()), bool(keepdim), dtype=dtype)


def _spread(name: str, what: str) -> None:
    """Declare masked.var or masked.std, its root."""

    @composite(name=f"masked.{name}", method=False, doc=f"The {what} over dimensions of the elements the mask lets through.")
    def spread(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
        found = _variance(name, input, dim, unbiased, correction, keepdim, dtype, mask)
        return found.sqrt() if name == "std" else found


_spread("var", "variance")
_spread("std", "standard deviation")


def _variance(name: str, input, dim, unbiased, correction, keepdim, dtype, mask):
    if unbiased is not None and correction is not None:
        raise RuntimeError(f"{name}: unbiased=False means correction=0, so give only one of them")
    correction = correction if correction is not None else 0 if unbiased is False else 1
    if input.dtype is dtypes.bool:
        raise RuntimeError(f"{name}: bool tensors are not supported. Try x.float()")
    dtype = dtype or (input.dtype if input.dtype.category >= dtypes.FLOAT else dtypes.get_default_dtype())
    x = input.to(dtype)
    dims = dims_of(dim, input.dim())
    number = _number_of(input, mask, dims, True)
    off = _filled(x - masked_sum(x, dim, keepdim=True, mask=mask) / number, mask, 0)
    total = (off * conj(off)).sum(dims, keepdim)
    return (total / (number.sum(dims, keepdim) - correction).clamp(min=0)).to(total.dtype)


# -- rows -----------------------------------------------------------------------------------------------------------------------


def _along_rows(name: str, others: str, sign: int) -> None:
    """Declare masked.<name>, which is nn.functional.<name> where what the mask does not let through is infinitely small (sign -1) or large."""

    @composite(
        name=f"masked.{name}", method=False, doc=f"{name} along `dim` over the elements the mask lets through; the others become {others}."
    )
    def rows(input, dim, *, dtype=None, mask=None):
        return OPS[f"nn.functional.{name}"](_outdone(name, input, mask, sign), whole(dim), dtype=dtype)


_along_rows("softmax", "0", -1)
_along_rows("log_softmax", "-inf", -1)
_along_rows("softmin", "0", 1)


@composite(name="masked.normalize", method=False)
def masked_normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    """The elements the mask lets through divided by their norm along `dim` (by `eps`, if that is larger); the others become 0."""
    size = masked_norm(input, ord, dim, keepdim=True, dtype=dtype, mask=mask)
    return _cast(_filled(input, mask, 0), dtype) / OPS["maximum"](size, size.new_tensor(eps))
