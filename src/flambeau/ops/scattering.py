"""Gathering and scattering along a dimension: an index for every element.

    gather    out[i, j] = x[index[i, j], j]        scatter    out[index[i, j], j] = src[i, j]

The derivative of reading is adding, and that of adding is reading. Its relatives: `rows.py` has an index for every slice (index_select,
index_add, ...), `selection.py` an index into all elements (take, put), `masking.py` a true or false for every element. The loops of all
are in `kernels/indexing/gather.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flambeau import dtypes, literals
from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import gather as kernel
from flambeau.kernels.indexing import index_errors
from flambeau.ops import specs
from flambeau.ops.asking import anywhere, is_batched
from flambeau.ops.declare import choice, composite, on_arrays
from flambeau.ops.views import whole

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")
INTEGERS = ("int64", "int32")
_INDIFFERENT = ("gather", "scatter", "scatter_add", "scatter_reduce")  # to the dtype of an index without elements


# -- what an index must be -----------------------------------------------------------------------------------------------


def check_index(name: str, index, accepted=INTEGERS, error=RuntimeError) -> None:
    """TypeError unless `index` is a tensor, `error` unless its dtype is one of `accepted`."""
    check_tensor(name, "index", index)
    if index.dtype.name not in accepted and not (name in _INDIFFERENT and not index.numel()):
        raise error(f"{name}(): Expected dtype {'/'.join(accepted[::-1])} for index, found {index.dtype}. Try index.long()")


def check_tensor(name: str, argument: str, value) -> None:
    """TypeError unless `value` is a tensor."""
    if not hasattr(value, "_array"):
        raise TypeError(f"{name}(): argument '{argument}' must be Tensor, not {type(value).__name__}")


def check_same_dtype(name: str, input, source) -> None:
    """RuntimeError unless what is written has the dtype of what it is written into."""
    if input.dtype is not source.dtype:
        raise RuntimeError(f"Expected self.dtype to be equal to src.dtype, found {input.dtype} and {source.dtype} ({name})")


def _lines(input, index) -> tuple:
    """A 0-d array or index as a line of one, so that there is a dimension to work along."""
    return input if input.ndim else input.reshape(1), index if index.ndim else index.reshape(1)


# -- gather: an index for every element ----------------------------------------------------------------------------------


@on_arrays
def _gather(input, dim, index):
    """out[..., j, ...] = input[..., index[..., j, ...], ...]."""
    if not index.size:
        return arrays.empty_beside(input, index.shape, input.dtype)
    line, at = _lines(input, index)
    return kernel.gather(line, dim, at).reshape(index.shape)


_gather.work(lambda input, dim, index: kernel.gather_ready(input, dim, index))
_gather.derivative(input=lambda grad, input_shape, dim, index: _scatter_add.call_inplace(grad.new_zeros(input_shape), dim, index, grad))
_gather.meta(lambda input, dim, index: (index.shape, input.dtype))


@on_arrays(public=False, method=False, grad_name="GatherBackward0")
def _gather_sparsely(input, dim, index):
    """`_gather`, the gradient of which is a sparse tensor: an element for every place of the index."""
    return _gather.forward(input, dim, index)


def _sparse_gradient(grad, input_shape, dim, index):
    if not input_shape:
        return grad.sum().reshape(1)._at_places(index.new_zeros((0, 1)), input_shape)
    index = index.reshape(index.shape or (1,))
    places = (index >= 0).nonzero().t().contiguous()  # of every element, in order
    places[dim] = index.reshape(-1).long()
    return grad.reshape(-1)._at_places(places, input_shape)


_gather_sparsely.derivative(input=_sparse_gradient)
_gather_sparsely.meta(_gather.shape_rule)


@composite(out="apart")
def gather(input, dim, index, *, sparse_grad=False):
    """Elements picked along `dim`, each place of the index saying from where: out[i, j] = input[index[i, j], j] for dim = 0.

    The index has as many dimensions as the input and is no longer than it except in `dim`; the result has its shape.

    >>> torch.gather(torch.tensor([[1, 2], [3, 4]]), 1, torch.tensor([[0, 0], [1, 0]]))
    tensor([[1, 1],
            [4, 3]])
    """
    check_index("gather", index)
    dim = layout.wrap_dim(whole(dim), input.dim())
    if index.numel():
        _check_reach("gather", input, dim, index)
    return (_gather_sparsely if sparse_grad else _gather)(input, dim, index)


def _check_reach(name: str, input, dim: int, index) -> None:
    """RuntimeError unless the index has as many dimensions as the input, and is no longer than it except in `dim`."""
    own, found = tuple(input.shape) or (1,), tuple(index.shape) or (1,)
    if own == found:
        return
    if len(own) != len(found):
        raise RuntimeError(f"Index tensor must have the same number of dimensions as input: {name} found {found} and {own}")
    for d, (n, most) in enumerate(zip(found, own, strict=True)):
        if d != dim and n > most:
            raise RuntimeError(f"Size does not match at dimension {d}: the index, {found}, is longer there than self, {own}")


@composite(out="apart")
def take_along_dim(input, indices, dim=None):
    """`gather` with broadcasting and with negative indices: the elements that argsort, argmax and their like point at.

    Without `dim`, both are flattened.
    """
    check_tensor("take_along_dim", "indices", indices)
    if dim is not None and indices.dtype.name != "int64":
        raise RuntimeError(f"take_along_dim(): dtype of indices should be Long, found {indices.dtype}. Try indices.long()")
    if dim is None:
        check_index("gather", indices)
        input, indices, dim = input.reshape(-1), indices.reshape(-1), 0
    if input.dim() != indices.dim():
        raise RuntimeError(
            f"torch.take_along_dim(): input and indices should have the same number of dimensions, found {input.dim()} and {indices.dim()}"
        )
    dim = layout.wrap_dim(whole(dim), input.dim())
    size = input.shape[dim] if input.dim() else 1
    sizes = [(1, 1) if d == dim else (a, b) for d, (a, b) in enumerate(zip(input.shape, indices.shape, strict=True))]
    common = layout.broadcast_shapes(tuple(a for a, _ in sizes), tuple(b for _, b in sizes))
    spread = lambda t: t.expand(tuple(t.shape[d] if d == dim else n for d, n in enumerate(common)))  # noqa: E731
    return _take_along(spread(input), dim, spread(indices), size)


@on_arrays(grad_name="GatherBackward0")
def _take_along(input, dim, indices, size):
    """`gather`, negative indices counting from the end."""
    if not indices.size:
        return arrays.empty_beside(input, indices.shape, input.dtype)
    line, at = _lines(input, indices)
    return kernel.gather(line, dim, at, wrap=True).reshape(indices.shape)


_take_along.derivative(
    input=lambda grad, input_shape, dim, indices, size: _scatter_add.call_inplace(
        grad.new_zeros(input_shape), dim, _counted_from_front(indices, size), grad
    )
)
_take_along.meta(lambda input, dim, indices, size: (indices.shape, input.dtype))


@on_arrays
def _counted_from_front(indices, size):
    """Negative indices counted from the end; what is beyond is left for gather to find."""
    xp = arrays.module_of(indices)
    return xp.where(indices < 0, indices + indices.dtype.type(size), indices)


_counted_from_front.meta(lambda indices, size: specs.like(indices))


# -- scatter: the way back ------------------------------------------------------------------------------------------------


def _prepared(name: str, input, dim, index, src):
    """(dim, src cut to the shape of the index), after the checks all forms of scatter share."""
    check_index(name, index)
    own, wanted = tuple(input.shape), tuple(index.shape)
    dim = layout.wrap_dim(whole(dim), len(own))
    if src is not None:
        check_tensor(name, "src", src)
        check_same_dtype("scatter", input, src)
    if 0 in wanted:
        return dim, None if src is None else src.reshape(-1)[:0].reshape(wanted)
    _check_reach(name, input, dim, index)
    if src is None or src.shape == wanted:
        return dim, src
    return dim, _covered(name, input, dim, index, src)


def _covered(name: str, input, dim: int, index, src):
    """The part of src that the index covers; RuntimeError if it is smaller than the index."""
    wanted, found = tuple(index.shape) or (1,), tuple(src.shape) or (1,)
    if len(wanted) != len(found):
        raise RuntimeError(f"Index tensor must have the same number of dimensions as src tensor: {name} found {wanted} and {found}")
    if any(n > m for n, m in zip(wanted, found, strict=True)):
        own = tuple(input.shape)
        raise RuntimeError(f"Expected index {wanted} to fit into src {found} and, but for dimension {dim}, into self {own}")
    return src.reshape(found)[tuple(slice(n) for n in wanted)].reshape(tuple(index.shape))


def scattered(write, input, dim, index, src, *options) -> None:
    """Run a kernel on arrays of at least one dimension. RuntimeError if an index is out of bounds, which the loop may notice late."""
    if not index.size:
        return
    line, at = _lines(input, index)
    src = arrays.apart(input, src)
    write(line, dim, at, src if index.ndim else src.reshape(1), *options)


@on_arrays(onto=arrays.contiguous_copy, overlap="apart")
def _scatter(input, dim, index, src):
    """src written to the places of input along `dim` that the index names."""
    scattered(kernel.scatter, input, dim, index, src)


_scatter.derivative(
    input=lambda grad, dim, index: _scatter_value(grad, dim, index, 0),
    src=lambda grad, dim, index: _gather(grad, dim, index),
)


@on_arrays(onto=arrays.contiguous_copy, overlap="apart", grad_name="ScatterBackward1")
def _scatter_value(input, dim, index, value):
    """One number written to the places of input along `dim` that the index names."""
    scattered(kernel.scatter, input, dim, index, arrays.number(value, input, input.dtype))


_scatter_value.derivative(input=lambda grad, dim, index: _scatter_value(grad, dim, index, 0))


@choice(inplace=True)
def scatter(input, dim, index, src=None, value=None, *, reduce=None):
    """`input` with src (a tensor or a number) written to the places along `dim` that the index names: out[index[i, j], j] = src[i, j].

    The reverse of gather. Where an index occurs twice, the last value stays. `reduce="add"` or "multiply" combines them instead.

    >>> torch.zeros(1, 4).scatter(1, torch.tensor([[3, 1]]), 5.0)
    tensor([[0., 5., 0., 5.]])
    """
    src = value if src is None else src
    if reduce is not None and reduce not in ("add", "multiply"):
        raise RuntimeError(f"scatter: reduce is add or multiply, found {reduce!r}. scatter_reduce knows more")
    if not hasattr(src, "_array"):
        if not isinstance(src, (*arrays.NUMBERS, np.generic)):
            raise TypeError(f"scatter(): argument 'src' must be Tensor or Number, not {type(src).__name__}")
        dim, _ = _prepared("scatter", input, dim, index, None)
        number = literals.stored(src, input.dtype)
        if reduce is None:
            return _scatter_value, input, dim, index, number
        src = input.new_full(tuple(index.shape), number)
    dim, src = _prepared("scatter", input, dim, index, src)
    if reduce is None:
        return _scatter, input, dim, index, src
    return _scatter_reduce, input, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce], True


@on_arrays(onto=arrays.contiguous_copy, overlap="apart")
def _scatter_add(input, dim, index, src):
    """src added at the places of input along `dim` that the index names."""
    scattered(kernel.scatter_reduce, input, dim, index, src, "sum")


_scatter_add.derivative(input=lambda grad: grad, src=lambda grad, dim, index: _gather(grad, dim, index))


@choice(inplace=True, autocast="cuda widest")
def scatter_add(input, dim, index, src):
    """`input` with src added at the places along `dim` that the index names: out[index[i, j], j] += src[i, j]."""
    dim, src = _prepared("scatter_add", input, dim, index, src)
    return _scatter_add, input, dim, index, src


# -- scatter_reduce -------------------------------------------------------------------------------------------------------


@on_arrays(onto=arrays.contiguous_copy, overlap="apart")
def _scatter_reduce(input, dim, index, src, reduce, include_self):
    """input combined with src at the places along `dim` that the index names."""
    kind = input.dtype.kind
    if (reduce == "mean" and kind == "b") or (reduce in ("amax", "amin") and kind == "c"):
        raise NotImplementedError(f'"scatter_reduce_{reduce}" not implemented for {input.dtype} tensors')
    scattered(kernel.scatter_reduce, input, dim, index, src, reduce, include_self)


def _all_or_nothing(write):
    """An in-place form that looks at the whole index first: one that is out of bounds leaves the tensor as it was."""

    def checked(input, dim, index, *args, **rest):
        if index.size:
            line, at = _lines(input, index)
            kernel.check(at, line.shape[dim], dim, index_errors.ALONG)
        write(input, dim, index, *args, **rest)

    return checked


def _prepare(how: str) -> Callable:
    """What _scatter or _scatter_add does with certain arrays."""

    def prepare(input, dim, index, src):
        write = kernel.combine_ready(how, input, dim, index, src) if input.size and input.flags.c_contiguous else None
        if write is None:
            return None

        def run(input, index, src):
            out = arrays.copied(input)
            return out if out is NotImplemented else write(out, index, src)

        return run

    return prepare


def _prepare_write(how: str) -> Callable:
    """The same in place."""

    def prepare(input, dim, index, src):
        write, size = kernel.combine_ready(how, input, dim, index, src), input.shape[dim] if input.ndim else 1
        if write is None:
            return None

        def run(input, index, src):
            if arrays.may_overlap(input, src):
                return NotImplemented
            kernel.check(index, size, dim, index_errors.ALONG)
            return write(input, index, src)

        return run

    return prepare


@_scatter_value.work_in_place
def _(input, dim, index, value):
    number, size = arrays.number(value, input, input.dtype), input.shape[dim] if input.ndim else 1
    write = kernel.combine_ready("put", input, dim, index, number)
    if write is None:
        return None

    def run(input, index):
        kernel.check(index, size, dim, index_errors.ALONG)
        return write(input, index, number)

    return run


for _op, _how in ((_scatter, "put"), (_scatter_add, "sum")):
    _op.work(_prepare(_how))
    _op.work_in_place(_prepare_write(_how))

for _op in (_scatter, _scatter_value, _scatter_add, _scatter_reduce):
    _op.writes(_all_or_nothing(_op.write))


@_scatter_reduce.joint
def _(grad, input, dim, index, src, reduce, include_self, result, needs, again):
    to_input, to_src = _GRADIENTS[reduce](grad, input, dim, index, src, reduce, include_self, result)
    if again and reduce == "prod" and not is_batched(src):
        zeros = _scatter_add(index.new_zeros(grad.shape), dim, index, (src == 0).long())
        if anywhere(zeros > 1):
            to_src = _with_one_derivative(to_src)
    if not include_self:
        to_input = _scatter_value(to_input, dim, index, 0)  # what was replaced had no part in the result
    return {"input": to_input if needs["input"] else None, "src": to_src if needs["src"] else None}


@on_arrays(public=False, method=False)
def _with_one_derivative(input):
    """The gradient by several zeros of one product: which of them is a factor of the others' gradients it does not know."""
    return arrays.contiguous_copy(input)


_with_one_derivative.meta(specs.contiguous)


@_with_one_derivative.joint
def _(grad, needs):
    raise RuntimeError("Double backward is unsupported for src where several zeros are multiplied in one place: try a loop of products")


def _of_sum(grad, input, dim, index, src, reduce, include_self, result):
    return grad, _gather(grad, dim, index)


def _of_mean(grad, input, dim, index, src, reduce, include_self, result):
    """Every term gets an equal share."""
    start = grad.new_ones(grad.shape) if include_self else grad.new_zeros(grad.shape)
    count = _scatter_add(start, dim, index, grad.new_ones(index.shape))
    share = grad / count.masked_fill(count == 0, 1)
    return share, _gather(share, dim, index)


def _of_product(grad, input, dim, index, src, reduce, include_self, result):
    """The derivative by one factor is the product of the others: result / factor, except where the factor is zero.

    Then the others' product is found by putting 1 in its place; if two factors are zero, every derivative but none is zero too.
    """
    own = input.masked_fill(input == 0, 1)
    to_input = grad * (_scatter_reduce(own, dim, index, src, "prod", include_self) / own).conj()
    is_zero = src == 0
    zeros = _gather(_scatter_add(is_zero.new_zeros(grad.shape, dtype=dtypes.int64), dim, index, is_zero.long()), dim, index)
    factor = src.masked_fill(is_zero, 1)
    others = _scatter_reduce(input, dim, index, factor, "prod", include_self)
    alone = _gather(grad * others.conj(), dim, index)
    shared = _gather(grad * result.conj(), dim, index) / factor.conj()
    return to_input, alone.where(is_zero & (zeros == 1), shared)


def _of_extremum(grad, input, dim, index, src, reduce, include_self, result):
    """All that equal the result share its gradient evenly."""
    own = (input == result).to(grad.dtype)
    theirs = (src == _gather(result, dim, index)).to(grad.dtype)
    share = grad / _scatter_add(own, dim, index, theirs)
    return own * share, theirs * _gather(share, dim, index)


_GRADIENTS = {"sum": _of_sum, "mean": _of_mean, "prod": _of_product, "amax": _of_extremum, "amin": _of_extremum}


@choice(inplace=True)
def scatter_reduce(input, dim, index, src, reduce, *, include_self=True):
    """`input` combined with src at the places along `dim` that the index names: by "sum", "prod", "mean", "amax" or "amin".

    `include_self=False` leaves out of it what stood there; places the index does not name keep their value.
    """
    if reduce not in REDUCTIONS:
        raise RuntimeError(f"reduce is sum, prod, mean, amax or amin, found {reduce}")
    dim, src = _prepared("scatter_reduce", input, dim, index, src)
    return _scatter_reduce, input, dim, index, src, reduce, bool(include_self)
