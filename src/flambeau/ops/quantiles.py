"""Order statistics: what stands at a given place when the elements are sorted. Median, k-th value, mode, quantiles.

Along a dimension they return the element and its index, and the gradient goes to that element; the median of all elements shares it
evenly among equals.
"""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.kernels import arrays, layout
from flambeau.kernels.templates import sorting
from flambeau.ops.asking import anywhere
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.extrema import ALL, check_not_empty, check_ordered, evenly, picked_shapes, scattered
from flambeau.ops.reductions import reduced_shape
from flambeau.ops.results import named_result
from flambeau.ops.sorting import row_form
from flambeau.ops.views import whole


def _picked(name: str, input, dim, keepdim: bool, find) -> tuple:
    """(values, indices) of the element `find(rows, dim)` gives the index of."""
    rows, dim = row_form(input, dim)
    if rows.size or not rows.shape[dim]:
        check_not_empty(name, rows, (dim,), named=True)
    shape = reduced_shape(input.shape, (dim,), keepdim) if input.ndim else ()
    xp = arrays.module_of(input)
    if not rows.size:
        return arrays.empty_beside(input, shape, input.dtype), xp.zeros(shape, dtypes.int64.numpy)
    indices = xp.ascontiguousarray(find(rows, dim))
    return sorting.take(rows, indices, dim).reshape(shape), indices.reshape(shape)


@on_arrays(returns="values indices", out="apart")
def kthvalue(input, k, dim=-1, keepdim=False):
    """(values, indices) of the `k`-th smallest element along `dim`, counted from 1."""
    _check_ordered("kthvalue", input)
    k = whole(k)
    n = row_form(input, dim)[0].shape[layout.wrap_dim(whole(dim), input.ndim)]
    if n and not 1 <= k <= n:
        raise RuntimeError(f"selected number k out of range for dimension {dim}: it has {n} elements, found k={k} (kthvalue)")
    return _picked("kthvalue", input, dim, keepdim, lambda rows, dim: sorting.kth_smallest(rows, k - 1, dim))


@on_arrays(returns="values indices", out="same")
def mode(input, dim=-1, keepdim=False):
    """(values, indices) of the most frequent element along `dim`: the smallest, if several are; the index is its last place."""
    check_ordered("mode", input)
    return _picked("mode", input, dim, keepdim, sorting.mode)


for _op in (kthvalue, mode):
    _op.derivative(input=scattered)
    _op.meta(picked_shapes)


# -- medians -------------------------------------------------------------------------------------------------------------------


def _declare_median(name: str, nans: str, ignore_nan: bool) -> None:
    """Declare median or nanmedian with their building blocks: along a dimension, and of all elements."""

    @on_arrays(
        public=False, method=False, name=f"_{name}_dim", returns=named_result(name, "values indices"), grad_name=f"{name.title()}Backward1"
    )
    def along(input, dim, keepdim):
        return _picked("median", input, dim, keepdim, lambda rows, dim: sorting.median(rows, dim, ignore_nan=ignore_nan))

    @on_arrays(name=f"_{name}_all", grad_name=f"{name.title()}Backward0")
    def of_all(input):
        if input.size:
            rows = input.reshape(-1)
            return rows[sorting.median(rows, 0, ignore_nan)].reshape(())
        # Of nothing the median is NaN, and in an integer dtype what PyTorch's cast makes of NaN.
        of_nothing = float("nan") if input.dtype.kind not in "iu" else np.iinfo(input.dtype).min if input.itemsize >= 4 else 0
        return arrays.number(of_nothing, input, input.dtype)

    along.derivative(input=scattered)
    along.meta(picked_shapes)
    of_all.derivative(input=evenly)
    of_all.meta(lambda input: ((), input.dtype))

    doc = f"The middle of all elements in order (the lower one of two), or (values, indices) along a dimension. {nans}."

    @composite(out="same", name=name, doc=doc)
    def middle(input, dim=ALL, keepdim=False):
        _check_ordered(name, input)
        return of_all(input) if dim is ALL else along(input, whole(dim), keepdim)


_declare_median("median", "A NaN is the answer", ignore_nan=False)
_declare_median("nanmedian", "NaNs are left out", ignore_nan=True)


def _check_ordered(name: str, array) -> None:
    check_ordered(name, array)
    if dtypes.of_array(array) is dtypes.bool:
        raise NotImplementedError(f'"{name}" not implemented for bool. Try x.int()')


# -- quantiles ----------------------------------------------------------------------------------------------------------------

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@composite(out="cast rows", autocast="cpu float32")
def quantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """The value below which a fraction `q` of the elements lies, overall or along `dim`; q (Q,) gives a first dimension of size Q.

    With N elements it stands at place q (N - 1) of the sorted ones; between two places `interpolation` decides. NaN if there is a NaN.
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation, ignore_nan=False)


@composite(out="cast rows", autocast="cpu float32")
def nanquantile(input, q, dim=None, keepdim=False, *, interpolation="linear"):
    """As `quantile`, leaving NaNs out; NaN where all elements are."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, ignore_nan=True)


def _quantile(name: str, input, q, dim, keepdim, interpolation, ignore_nan):
    q = _fractions(name, input, q)
    if interpolation not in INTERPOLATIONS:
        raise RuntimeError(f"{name}(): interpolation is one of {', '.join(INTERPOLATIONS)}, found {interpolation}")
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty, found shape {tuple(input.shape)}")
    at = 0 if dim is None else layout.wrap_dim(whole(dim), input.dim())
    rows = input.reshape(-1) if dim is None or not input.dim() else input.movedim(at, -1)
    values = _at_fractions(rows.sort(-1).values, q.reshape(-1), interpolation, ignore_nan).movedim(-1, 0)  # (Q, *rows without the last)
    if keepdim:
        values = values.reshape((-1, *(1,) * input.dim())) if dim is None or not input.dim() else values.unsqueeze(at + 1)
    return values if q.dim() else values.squeeze(0)


def _fractions(name: str, input, q):
    """`q` as a tensor of the input's dtype, between 0 and 1."""
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype, found {input.dtype.name}")
    if not hasattr(q, "_array"):
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}")
        return input.new_tensor(float(q))
    if q.dim() > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor, found shape {tuple(q.shape)}")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor, found {q.dtype.name} and {input.dtype.name}")
    if q.device != input.device:
        raise RuntimeError(f"{name}() q tensor must be on the same device as the input tensor, found {q.device} and {input.device}")
    if anywhere(((q >= 0).logical_and(q <= 1)).logical_not()):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return q


def _at_fractions(ordered, q, interpolation: str, ignore_nan: bool):
    """The values of sorted rows (*, N) at fractions q (Q,) of their length: (*, Q)."""
    nan = ordered.isnan()
    last = ordered.shape[-1] - 1
    if ignore_nan:
        rank = q * (last - nan.sum(-1, keepdim=True))
        rank = rank.masked_fill(rank < 0, 0)
    else:
        rank = (q * last).expand((*ordered.shape[:-1], q.numel()))
        rank = rank.masked_fill(nan.any(-1, keepdim=True), last)  # NaNs stand at the end
    if interpolation == "nearest":
        return ordered.gather(-1, rank.round().to(dtypes.int64))
    below = rank.floor() if interpolation != "higher" else rank.ceil()
    lower = ordered.gather(-1, below.to(dtypes.int64))
    if interpolation in ("lower", "higher"):
        return lower
    upper = ordered.gather(-1, rank.ceil().to(dtypes.int64))
    weight = 0.5 if interpolation == "midpoint" else rank - below
    return OPS["lerp"](lower, upper, weight)
