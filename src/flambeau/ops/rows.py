"""Slices picked by a 1-d index: index_select and its family, and the embedding lookup.

    index_select                                        out[i, :] = x[index[i], :]
    index_copy, index_add, index_fill, index_reduce     x[index[i], :] <- source[i, :]

for dim = 0; the index counts along `dim`, all other dimensions are taken whole. A 0-d index is a list of one.
"""

from __future__ import annotations

from flambeau import dtypes, literals
from flambeau.kernels import arrays, layout
from flambeau.kernels.indexing import gather, index_errors
from flambeau.kernels.native import native
from flambeau.ops.asking import numbers_of, of_all_samples
from flambeau.ops.declare import choice, composite, on_arrays
from flambeau.ops.masking import check_tensor, filling
from flambeau.ops.scattering import INTEGERS, REDUCTIONS, _scatter_reduce, check_index, scattered
from flambeau.ops.views import whole

FEW = 4096  # elements that are added one by one before rows of them have been found


def _vector(name: str, index, integers=INTEGERS, error=RuntimeError, shape_error: type[Exception] = IndexError):
    """The index as a 1-d tensor, after checking that it is one."""
    check_index(name, index, integers, error)
    if index.dim() > 1:
        raise shape_error(f"{name}(): Index is supposed to be a vector, found shape {tuple(index.shape)}")
    return index if index.dim() else index.reshape(1)


def _line(array):
    """A 0-d array as a line of one."""
    return array if array.ndim else array.reshape(1)


# -- reading ---------------------------------------------------------------------------------------------------------------


@on_arrays(public=False, method=False, grad_name="IndexSelectBackward0")
def _index_select(input, dim, index):
    """The slices of `dim` at a 1-d index. (*, N, *), (K) -> (*, K, *)."""
    line = _line(input)
    found = gather.take_rows(line, dim, index, _beyond(input, dim), unseen=True)
    return found if input.ndim else found.reshape(())


def _beyond(input, dim: int) -> int:
    """Which error an index that is out of bounds is: PyTorch has one for lines and rows, and another for what lies otherwise."""
    return index_errors.ROW if input.ndim < 2 or (dim == 0 and input.size) else index_errors.ALONG


_index_select.work(lambda input, dim, index: gather.rows_ready(input, dim, index, _beyond(input, dim)) if input.ndim else None)
_index_select.derivative(
    input=lambda grad, input_shape, dim, index: _index_add.call_inplace(grad.new_zeros(input_shape), dim, index, grad, 1)
)


@_index_select.meta
def _(input, dim, index):
    return (*input.shape[:dim], index.shape[0], *input.shape[dim + 1 :]) if input.ndim else (), input.dtype


@composite(out="apart")
def index_select(input, dim, index):
    """The slices of `dim` at the places a 1-d index names, as a copy. (*, N, *), (K) -> (*, K, *).

    >>> torch.index_select(torch.tensor([10, 20, 30]), 0, torch.tensor([2, 0, 0]))
    tensor([30, 10, 10])
    """
    index = _vector("index_select", index)
    dim = layout.wrap_dim(whole(dim), input.dim())
    if not input.dim() and index.numel() != 1:
        raise RuntimeError(f"Index to scalar can have only 1 value, found {index.numel()} (index_select)")
    if not input.numel() and index.numel() and input.dim() and not input.is_meta:
        size, places = input.shape[dim], of_all_samples(index)
        if not size:
            raise RuntimeError(f"index_select: self indexing axis dim should be positive, and dimension {dim} of {tuple(input.shape)} is 0")
        if not 0 <= int(places.min()) <= int(places.max()) < size:
            raise RuntimeError(f"index_select(): INDICES element is out of DATA bounds, which has {size} slices in dimension {dim}")
    return _index_select(input, dim, index)


# -- adding ----------------------------------------------------------------------------------------------------------------


@on_arrays(onto=arrays.contiguous_copy, overlap="apart", public=False, method=False, grad_name="IndexAddBackward0")
def _index_add(input, dim, index, source, alpha):
    """alpha * source added to the slices of `dim` at the index."""
    line = _line(input)
    gather.check(index, line.shape[dim], dim, index_errors.ALONG)
    source = arrays.apart(input, source)
    if alpha != 1:
        source = source & bool(alpha) if source.dtype.kind == "b" else _scaled(source, alpha)
    gather.add_rows(line, dim, index, _line(source), index_errors.ALONG)


@_index_add.work_in_place
def _(input, dim, index, source, alpha):
    if alpha != 1 or not input.ndim or input.ndim != source.ndim or not 0 < source.size <= FEW or index.ndim != 1:
        return None
    places, size = gather.spread(index, dim, source.shape), input.shape[dim]
    write = gather.combine_ready("sum", input, dim, places, source)
    shape, steps = places.shape, arrays.element_strides(places)

    def run(input, index, source):
        if arrays.may_overlap(input, source):
            return NotImplemented
        gather.check(index, size, dim, index_errors.ALONG)
        return write(input, native.strided_view(index, shape, steps, 0), source)

    return None if write is None else run


def _scaled(source, alpha):
    """source * alpha in the dtype of source; half precision by way of float32."""
    if source.dtype.itemsize == 2 and source.dtype.kind in "fV":
        single = arrays.cast(source, dtypes.float32.numpy)
        return single * single.dtype.type(alpha)  # add_rows rounds the sum
    return source * source.dtype.type(alpha)


_index_add.derivative(
    input=lambda grad: grad,
    source=lambda grad, dim, index, alpha: _times(_index_select(grad, dim, index), alpha),
)


def _times(grad, alpha):
    return grad if alpha == 1 else grad * alpha


@choice(inplace=True)
def index_add(input, dim, index, source, *, alpha=1):
    """`input` with alpha * source added to the slices of `dim` that the index names, once for every time it names them."""
    index = _vector("index_add_", index)
    dim = _check_source("index_add_", input, dim, index, source)
    return _index_add, input, dim, index, source, literals.stored(alpha, input.dtype)


def _check_source(name: str, input, dim, index, source, error: type[Exception] = RuntimeError) -> int:
    """The dimension, after checking that source has a slice for every index and slices of the shape of the input's."""
    check_tensor(name, "source", source)
    dim = layout.wrap_dim(whole(dim), input.dim())
    if input.dtype is not source.dtype:
        raise RuntimeError(f"{name}(): self ({input.dtype}) and source ({source.dtype}) must have the same scalar type")
    own, found = list(input.shape), list(source.shape)
    slices = own[:dim] + own[dim + 1 :] == found[:dim] + found[dim + 1 :]
    if len(own) != len(found) or not slices:
        raise error(
            f"{name}(): source tensor shape must match self tensor shape, excluding the specified dimension {dim}. "
            f"Got self.shape = {own} source.shape = {found}"
        )
    count = found[dim] if found else 1
    if index.numel() != count:
        error = error if found else IndexError  # a tensor without dimensions has no slices to count
        raise error(f"{name}(): there are {index.numel()} indices for {count} slices of source (dim {dim})")
    return dim


# -- overwriting -------------------------------------------------------------------------------------------------------------


@on_arrays(onto=arrays.contiguous_copy, overlap="apart", public=False, method=False, grad_name="IndexCopyBackward0")
def _index_copy(input, dim, index, source):
    """The slices of `dim` at the index replaced by those of source."""
    line = _line(input)
    gather.check(index, line.shape[dim], dim)
    gather.put_rows(line, dim, index, _line(arrays.apart(input, source)))


_index_copy.derivative(
    input=lambda grad, dim, index: _index_fill(grad, dim, index, 0),
    source=lambda grad, dim, index, source_shape: _index_select(grad, dim, index).reshape(source_shape),
)


@choice(inplace=True, autocast="cpu widest")
def index_copy(input, dim, index, source):
    """`input` with the slices of `dim` that the index names replaced by the slices of source. Of two for one index, the last stays."""
    index = _vector("index_copy_", index, ("int64",))
    check_tensor("index_copy_", "source", source)
    if bool(input.dim()) != bool(source.dim()) and source.numel() == 1 and input.numel() == 1:
        source = source.reshape(tuple(input.shape))
    if input.dim() and source.dim() and input.dim() != source.dim():
        raise IndexError(f"index_copy_(): source and self must match in their number of dimensions, found {source.dim()} and {input.dim()}")
    dim = _check_source("index_copy_", input, dim, index, source, IndexError)
    return _index_copy, input, dim, index, source


@on_arrays(onto=arrays.copy, overlap="apart repeats warned", public=False, method=False, grad_name="IndexFillBackward0")
def _index_fill(input, dim, index, value):
    """One number in the slices of `dim` at the index."""
    line = _line(input)
    index = gather.wrapped(index, line.shape[dim], dim)
    value = arrays.cast(value, input.dtype) if hasattr(value, "shape") else arrays.number(value, input, input.dtype)
    gather.put_rows(line, dim, index, value)


_index_fill.derivative(
    input=lambda grad, dim, index: _index_fill(grad, dim, index, 0),
    value=lambda grad, dim, index: _filled_total(grad, dim, index),
)


def _filled_total(grad, dim, index):
    """The sum of the gradient over the slices that were filled; one the index names twice was filled once."""
    kept = _index_fill(grad.new_ones(grad.shape, dtype=dtypes.bool), dim, index, False)
    return grad.masked_fill(kept, 0).sum()


@choice(inplace=True)
def index_fill(input, dim, index, value):
    """`input` with a number (or 0-d tensor) in the slices of `dim` that the index names. Negative indices count from the end."""
    index = _vector("index_fill_", index, ("int64",), IndexError, RuntimeError)
    dim = layout.wrap_dim(whole(dim), input.dim())
    if value is None or isinstance(value, str):
        raise TypeError(f"index_fill(): argument 'value' must be Number or 0-d Tensor, not {type(value).__name__}")
    if hasattr(value, "_array") and value.dim():
        raise RuntimeError(f"index_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.dim()} dimension(s).")
    if (value.is_complex() if hasattr(value, "_array") else isinstance(value, complex)) and not input.is_complex():
        raise RuntimeError("index_fill_(): a complex Scalar cannot fill a real tensor: converting it is not supported")
    return _index_fill, input, dim, index, filling(input, value)


# -- combining ---------------------------------------------------------------------------------------------------------------


@choice(inplace=True)
def index_reduce(input, dim, index, source, reduce, *, include_self=True):
    """`input` with the slices of `dim` that the index names combined with those of source: by "prod", "mean", "amax" or "amin".

    A scatter_reduce in which every element of a slice has the same index.
    """
    if reduce not in REDUCTIONS or reduce == "sum":
        raise RuntimeError(f"index_reduce(): reduce is prod, mean, amax or amin, found {reduce}. For sums there is index_add")
    index = _vector("index_reduce_", index)
    dim = _check_source("index_reduce_", input, dim, index, source)
    if input.dtype.name == "bool":
        raise NotImplementedError('"index_reduce" not implemented for bool tensors')
    if not index.is_meta:
        gather.check(numbers_of(index), input.shape[dim] if input.dim() else 1, dim, index_errors.ROW)
    shape = tuple(source.shape)
    everywhere = index.reshape(tuple(-1 if d == dim else 1 for d in range(len(shape)))).expand(shape)
    return _index_reduce, input, dim, everywhere, source, reduce, bool(include_self)


@on_arrays(onto=arrays.contiguous_copy, overlap="apart", public=False, method=False, grad_name="IndexReduceBackward0")
def _index_reduce(input, dim, index, src, reduce, include_self):
    """`_scatter_reduce`, but that PyTorch rounds half precision after every slice here."""
    scattered(gather.scatter_reduce, input, dim, index, src, reduce, include_self, True)


_index_reduce.joint(_scatter_reduce.joint_derivative)


# -- embedding ---------------------------------------------------------------------------------------------------------------


@on_arrays(method=False, autocast="given")
def embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    """The rows of a table at the indices. (N, D), (*) -> (*, D).

    The gradient adds up in the rows that were read; the row `padding_idx` gets none, and `scale_grad_by_freq` divides each row's by how
    often it was read.
    """
    if indices.dtype not in (dtypes.int64.numpy, dtypes.int32.numpy):
        raise RuntimeError(
            f"Expected tensor for argument #1 'indices' to have scalar type Long or Int, found {indices.dtype}. Try indices.long()"
        )
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D: a row for every entry, found shape {tuple(weight.shape)}")
    return gather.take_rows(weight, 0, indices, index_errors.ROW, unseen=True)


@embedding.work
def _(weight, indices, padding_idx, scale_grad_by_freq, sparse):
    return gather.rows_ready(weight, 0, indices, index_errors.ROW)


embedding.derivative(
    weight=lambda grad, indices, weight_shape, padding_idx, scale_grad_by_freq, sparse: (
        _sparse_gradient(grad, indices, weight_shape, padding_idx, scale_grad_by_freq)
        if sparse
        else _embedding_backward(grad, indices, weight_shape[0], padding_idx, scale_grad_by_freq)
    )
)


@embedding.meta
def _(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return (*indices.shape, weight.shape[1]), weight.dtype


@on_arrays(public=False, method=False)
def _embedding_backward(grad, indices, rows, padding_idx, by_frequency):
    """The rows of the gradient added up where they were read from. (*, D), (*) -> (rows, D)."""
    xp = arrays.module_of(grad)
    width = grad.shape[-1]
    flat, lines = indices.reshape(-1), grad.reshape(indices.size, width)
    if by_frequency:
        count = xp.bincount(flat, minlength=rows)[flat]
        lines = lines / count[:, None].astype(lines.dtype)
    out = arrays.zeros((rows, width), grad.dtype, arrays.device_of(grad))
    gather.add_rows(out, 0, flat, lines, index_errors.ROW, padding_idx if padding_idx >= 0 else None)
    return out


_embedding_backward.meta(lambda grad, indices, rows, **_: ((rows, grad.shape[-1]), grad.dtype))


def _sparse_gradient(grad, indices, weight_shape, padding_idx, by_frequency):
    """The rows of the gradient as those of a sparse tensor, each where it was read from: nothing is added up yet."""
    if by_frequency:
        raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
    flat, lines = indices.reshape(-1).long(), grad.reshape(indices.numel(), grad.shape[-1])
    if padding_idx >= 0:
        used = flat != padding_idx
        flat, lines = flat[used], lines[used]
    return lines._at_places(flat.unsqueeze(0), weight_shape)


def _embedding_double_backward(grad, indices, padding_idx, by_frequency):
    if by_frequency:
        raise RuntimeError("double backward for embedding with scale_grad_by_freq is not implemented")
    found = embedding(grad, indices)
    if padding_idx < 0:
        return found
    return found.masked_fill((indices == padding_idx).unsqueeze(-1), 0)


_embedding_backward.derivative(grad=_embedding_double_backward)


@composite(name="nn.functional.embedding", method=False, autocast="given")
def _functional_embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """The rows of `weight` at the indices `input`. (*), (N, D) -> (*, D).

    padding_idx         a row that gets no gradient (negative: counted from the end)
    max_norm            rows that are read are first shortened, in place, to this `norm_type`-norm
    scale_grad_by_freq  divide a row's gradient by how often it was read
    """
    check_tensor("embedding", "input", input)
    check_tensor("embedding", "weight", weight)
    if padding_idx is None:
        padding_idx = -1
    else:
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise AssertionError(f"Padding_idx must be within num_embeddings: found {padding_idx} for {rows} rows")
        padding_idx %= rows
    if max_norm is not None:
        embedding_renorm_(weight, input, max_norm, norm_type)
    return embedding(weight, input, padding_idx, scale_grad_by_freq, sparse)


@composite(method=False)
def embedding_renorm_(input, indices, max_norm, norm_type):
    """Shorten, in place, the rows at the indices whose norm exceeds `max_norm`. Nothing is recorded."""
    weight, chosen = input.detach(), indices.reshape(-1)
    rows = weight.index_select(0, chosen)
    norms = rows.norm(norm_type, dim=-1, keepdim=True).double()  # PyTorch finds the factor in double precision
    shortened = (rows * (max_norm / (norms + 1e-7)).to(weight.dtype)).where(norms > max_norm, rows)
    weight.index_copy_(0, chosen.to(dtypes.int64), shortened.to(weight.dtype))
    return input
