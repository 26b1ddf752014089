"""Batching rules: an operation on samples, said as an operation on values whose first dimension is the batch.

A rule takes the operation and its arguments by name, tensors as wrappers of one level of which at least one is batched, and returns results
with the batch in front; NotImplemented leaves the call to a loop over the samples. Most rules are one of a few kinds:

    moved      dimensions are named: those names are one further on            sum, softmax, sort, gather, transpose, ...
    leading    the operation takes any number of leading dimensions             inverse, cholesky, tril, ...
    broadcast  the operation broadcasts its operands                            the array operations that are pointwise by nature
    folded     samples of the batch and samples of the operation are the same   pooling, unfold, ...

`COMPOSED` holds operations that are replaced by a few others where there is a batch: fused loops whose formula is as good there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from flambeau.batching import fused
from flambeau.batching.batched import Batched, aligned, front, level_of, lift, wrapped
from flambeau.kernels import layout
from flambeau.ops import OPS
from flambeau.tensor import Tensor
from flambeau.tensor.making.ranges import arange

RULES: dict[str, Callable] = {}
COMPOSED: dict[str, Callable] = fused.COMPOSED


def rule(*names: str) -> Callable:
    """Register a rule for these operations."""

    def register(function: Callable) -> Callable:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def call(op, **arguments) -> Any:
    """op(**arguments), by position where the operation wants that."""
    given = list(arguments.values())
    return op.call(*given) if op.n_positional == len(given) else op.call(**arguments)


def further(dim: Any, rank: int) -> Any:
    """A dimension of the samples (or several) as one of the values."""
    if isinstance(dim, (tuple, list)):
        return tuple([further(d, rank) for d in dim])
    return layout.wrap_dim(int(dim), rank) + 1


# -- dimensions one further on ---------------------------------------------------------------------------------------------


def _moved(*names: str, grows: int = 0) -> Callable:
    """The rule of operations that name dimensions in the parameters `names`, of samples with `grows` more dimensions than the first has."""

    def run(op, **by_name):
        tensors = {k: v for k, v in by_name.items() if isinstance(v, Tensor)}
        first = next(iter(tensors.values()))
        lines = not grows and not first._array.ndim  # of single numbers: a line of one, to have a dimension
        given = {k: front(v, 1 if lines else None) if k in tensors else v for k, v in by_name.items()}
        for name in names:
            given[name] = further(by_name[name], first._array.ndim + grows) if not lines else 1 if isinstance(by_name[name], int) else (1,)
        found = call(op, **given)
        shaped = by_name[_SHAPED_BY[op.name]] if op.name in _SHAPED_BY else first
        return _without_line(found, first.level.size) if lines and not shaped._array.ndim else found

    return run


_SHAPED_BY = {"_gather": "index", "_take_along": "indices"}  # operations whose result has the shape of another argument than the first


def _without_line(found: Any, size: int) -> Any:
    if isinstance(found, (tuple, list)):
        return tuple([_without_line(f, size) for f in found])
    return found.reshape(size)


rule(
    *"_sum _nansum _mean _prod _all _any _count_nonzero _logsumexp _amax _amin _aminmax _var _std _var_mean _std_mean _vector_norm _hash".split()
)(_moved("dims"))
rule(*"_flip _c2c _r2c _c2r".split())(_moved("dims"))
rule(
    *"""softmax log_softmax _softmax_backward _log_softmax_backward cumsum cumprod logcumsumexp cummax cummin _sort topk kthvalue mode
    _median_dim _nanmedian_dim _max_dim _min_dim _gather _take_along _scatter _scatter_value _scatter_add _scatter_reduce _index_reduce
    _weigh_mirrored _bytes
    """.split()
)(_moved("dim"))
rule("_rot90")(_moved("dims"))
rule("_cat", "_stack")(lambda op, tensors, dim: op.call([front(t) for t in tensors], dim + 1))
rule("transpose")(
    lambda op, input, dim0, dim1: front(input).transpose(*further((dim0, dim1), input.dim())) if input.dim() else _same(input)
)
rule("_permute")(lambda op, input, dims: op.call(front(input), (0, *further(dims, input.dim()))))
rule("unsqueeze")(_moved("dim", grows=1))
rule("diag_embed")(_moved("dim1", "dim2", grows=1))
rule("diagonal")(_moved("dim1", "dim2"))
rule("unfold")(
    lambda op, input, dimension, size, step: (
        op.call(front(input), further(dimension, input.dim()), size, step) if input.dim() else front(input, 1)[:, :size]
    )
)
rule("_select", "_slice", "_split", "_split_with_sizes", "_unbind")(_moved("dim"))


@rule("_resampled")
def _(op, input, steps, backward):
    return op.call(front(input), tuple([(dim + 1, key) for dim, key in steps]), backward)


@rule("_picked", "_unpicked")  # along the last dimensions
def _(op, key, **tensor):
    return op.call(*map(front, tensor.values()), key)


@rule("_roll")
def _(op, input, shifts, dims):
    if dims:
        return op.call(front(input), shifts, further(dims, input.dim()))
    rows = front(input).reshape((input.level.size, -1))
    return op.call(rows, shifts, (1,)).reshape((input.level.size, *input.shape))


@rule("argmax", "argmin")
def _(op, input, dim, keepdim):
    x = front(input)
    if dim is not None and input.dim():
        return op.call(x, further(dim, input.dim()), keepdim)
    found = op.call(x.reshape((input.level.size, -1)), 1)
    return found.reshape((input.level.size, *(1,) * input.dim())) if keepdim else found


def _of_all(name: str) -> Callable:
    """A reduction of all elements is one over all dimensions but the batch."""

    def run(op, input, **options):
        rows = front(input).reshape((input.level.size, -1))
        return OPS[name].call(rows, (1,), False, *options.values())

    return run


for _name in ("sum", "mean", "prod"):
    rule(f"_{_name}_all")(_of_all(f"_{_name}"))
rule("_max_all")(_of_all("_amax"))
rule("_min_all")(_of_all("_amin"))
for _name in ("_median", "_nanmedian"):
    rule(f"{_name}_all")(lambda op, input, name=_name: OPS[f"{name}_dim"].call(front(input).reshape((input.level.size, -1)), 1, False)[0])


# -- other views -----------------------------------------------------------------------------------------------------------


def _same(input: Batched) -> Tensor:
    return OPS["_alias"].call(front(input))


rule("_alias", "_view_as_real", "_view_as_complex", "_conj", "_neg_view")(lambda op, input: op.call(front(input)))
rule("_t")(lambda op, input: front(input).transpose(1, 2) if input.dim() == 2 else _same(input))
rule("_squeeze1", "_squeeze2", "_squeeze4")(
    lambda op, input, dim: op.call(front(input), further(dim, input.dim())) if input.dim() else _same(input)
)
rule("_squeeze0")(lambda op, input, dim: OPS["_squeeze2"].call(front(input), tuple(i + 1 for i, n in enumerate(input.shape) if n == 1)))


@rule("_view", "_unsafe_view")
def _(op, input, size):
    size = layout.infer_size(size, input._array.size)  # -1 could not be told, where there are no samples
    x = front(input)
    return op.call(x, (input.level.size, *size)) if op.name == "_view" else x.reshape((input.level.size, *size))


@rule("_expand")
def _(op, input, size):
    known = [n if s == -1 else s for s, n in zip(size[len(size) - input.dim() :], input.shape, strict=True)] if input.dim() else []
    return op.call(front(input, len(size)), (input.level.size, *size[: len(size) - input.dim()], *known))


@rule("_window")
def _(op, input, size, stride, offset):
    x = front(input)
    return op.call(x, (x.shape[0], *size), (x.stride(0), *stride), offset)


@rule("placed")
def _(op, grad, shape, place):
    size, (inner, strides, offset) = grad.level.size, place
    return op.call(front(grad), (size, *shape), ((size, *inner), (prod(shape), *strides), offset))


@rule("_unfold_backward")
def _(op, grad, shape, dimension, size, step):
    if not shape:
        return NotImplemented
    return op.call(front(grad), (grad.level.size, *shape), further(dimension, len(shape)), size, step)


@rule("_repeat")
def _(op, input, times):
    return op.call(front(input, len(times)), (1, *times))


def _replaced(dims: Sequence[int]) -> Callable:
    def run(op, input, src, args):
        moved = tuple(further(a, input.dim()) if i in dims else a for i, a in enumerate(args))
        return op.call(front(input), front(src), moved)

    return run


rule("_select_scatter", "_slice_scatter")(_replaced((0,)))
rule("_diagonal_scatter")(_replaced((1, 2)))


# -- leading dimensions, broadcasting, folding -----------------------------------------------------------------------------


def _leading(op, **by_name):
    of_matrices = ("tol", "rtol", "atol", "rcond")  # one number for each matrix
    rank = max(v._array.ndim + 2 * (k in of_matrices) for k, v in by_name.items() if isinstance(v, Tensor))
    given = {k: front(v, rank - 2 if k in of_matrices else rank) if isinstance(v, Tensor) else v for k, v in by_name.items()}
    return call(op, **given)


rule(
    *"""tril triu linalg.inv linalg.inv_ex linalg_lu_info linalg_solve_triangular cholesky_solve cholesky_inverse linalg.pinv
    linalg_cholesky_ex linalg.qr linalg_svd linalg_svdvals linalg.eigh linalg_eigvalsh linalg.eig linalg_eigvals linalg.lu_factor_ex
    _permutation linalg.ldl_factor_ex linalg_lstsq geqrf linalg.det linalg.slogdet linalg.matrix_rank linalg.matrix_exp _cdist linalg_solve_ex
    stored_by_columns _turned_solution _vectors_of_solution""".split()
)(_leading)


def _broadcasting(op, **by_name):
    tensors = [v for v in by_name.values() if isinstance(v, Tensor)]
    found = iter(aligned(tensors))
    return call(op, **{k: next(found) if isinstance(v, Tensor) else v for k, v in by_name.items()})


rule(
    *"""_div_trunc_halves _complex _frexp _nextafter _counted_from_front _igamma _igammac special.zeta _polygamma constant_pad_nd _continued
    special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v special.chebyshev_polynomial_w
    special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
    special.shifted_chebyshev_polynomial_w special.hermite_polynomial_h special.hermite_polynomial_he special.laguerre_polynomial_l
    special.legendre_polynomial_p""".split()
)(_broadcasting)


@rule("_cross")
def _(op, input, other, dim):
    rank = max(input.dim(), other.dim())
    return op.call(front(input, rank), front(other, rank), dim)  # which counts from the end


def _folded(op, **by_name):
    """Samples beside samples: (B, N, *) -> (B N, *), and back."""
    size = next(v.level.size for v in by_name.values() if isinstance(v, Tensor))
    found = call(op, **{k: front(v).flatten(0, 1) if isinstance(v, Tensor) else v for k, v in by_name.items()})
    if not isinstance(found, (tuple, list)):
        return found.unflatten(0, (size, -1))
    return tuple([f.unflatten(0, (size, -1)) for f in found])


rule("_im2col", "_col2im", "_spread", "_taps", *[f"_{kind}_pool{n}d{form}" for n in (1, 2, 3) for kind, form in (
    ("max", ""), ("adaptive_max", ""), ("avg", ""), ("avg", "_adjoint"), ("adaptive_avg", "_planes"), ("adaptive_avg", "_adjoint"),
)])(_folded)  # fmt: skip


# -- copies ----------------------------------------------------------------------------------------------------------------


def _with_batch(strides: Any, x: Tensor) -> Any:
    """Strides for samples as strides for all of them, one after the other."""
    return None if strides is None else (max(layout.storage_extent(tuple(x.shape[1:]), tuple(strides)), 1), *strides)


@rule("_clone")
def _(op, input, strides):
    x = front(input)
    return op.call(x, _with_batch(strides, x))


@rule("_to_copy")
def _(op, input, dtype, device, strides, non_blocking):
    x = front(input)
    return op.call(x, dtype, device, _with_batch(strides, x), non_blocking)


@rule("copy")
def _(op, input, other, non_blocking):
    return op.call(front(input), front(other, input.dim()) if other.batched else other.value, non_blocking)


@rule("fill")
def _(op, input, value):
    if not isinstance(value, Tensor):
        return op.call(front(input), value)
    return front(value, input.dim()).to(input.dtype).expand(front(input).shape).clone()


@rule("_continued_backward")
def _(op, grad, sizes, widths, mode):
    x = front(grad)
    return op.call(x, (x.shape[0], *sizes), widths, mode)


rule("zero")(lambda op, input: op.call(front(input)))


@rule("nn.functional.one_hot")
def _(op, input, num_classes):
    if num_classes == -1:
        raise RuntimeError(
            "vmap: one_hot() without num_classes looks at the largest number, which differs from sample to sample. Say how many"
        )
    return op.call(front(input), num_classes)


@rule("_masked_select")
def _(op, input, mask):
    if mask.batched:
        return RULES["_nonzero"](op)
    places = mask.value
    if input.dim() < places.dim():
        return op.call(front(input, places.dim()), places).unflatten(0, (input.level.size, -1))
    while places.dim() < input.dim():
        places = places.unsqueeze(0)
    shape = layout.broadcast_shapes(tuple(input.shape), tuple(places.shape))
    at = places.expand(shape).reshape(-1).nonzero().reshape(-1)
    return front(input).expand((input.level.size, *shape)).reshape((input.level.size, -1)).index_select(1, at)


@rule("_nonzero", "_unique", "_runs", "_repeat_indices", "_bincount")
def _(op, **by_name):
    raise RuntimeError(
        "vmap: We do not support batching operators that can output dynamic shape: "
        f"{op.short} gives every sample a result of another shape. Try torch.where, which keeps the shape"
    )


# -- products --------------------------------------------------------------------------------------------------------------


rule("mm", "bmm", "_matmul")(lambda op, **by_name: _product(*by_name.values()))


def _product(a: Batched, b: Batched) -> Tensor:
    rank = max(a.dim(), b.dim())
    return OPS["matmul"].call(*[front(t, rank) if t.batched else t.value for t in (a, b)])


@rule("mv")
def _(op, input, vec):
    if not input.batched:
        return OPS["matmul"].call(vec.value, input.value.transpose(0, 1))
    return OPS["matmul"].call(input.value, front(vec).unsqueeze(-1)).squeeze(-1)


@rule("dot")
def _(op, input, tensor):
    if not (input.batched and tensor.batched):
        return OPS["matmul"].call(*((input.value, tensor.value) if input.batched else (tensor.value, input.value)))
    return OPS["matmul"].call(input.value.unsqueeze(-2), tensor.value.unsqueeze(-1)).flatten()


@rule("addmm", "baddbmm")
def _(op, input, *, beta, alpha, **factors):
    one, other = factors.values()
    product = _product(one, other)
    product = product if alpha == 1 else product * alpha
    addend = front(input, one.dim()) if input.batched else input.value
    if not beta:
        return product if one.batched or other.batched else product.expand((input.level.size, *product.shape)).clone()
    return product + (addend if beta == 1 else addend * beta)


@rule("nn.functional.linear")
def _(op, input, weight, bias):
    """One product for all samples where they share the weight; else a product for each."""
    if weight.dim() != 2:
        return NotImplemented
    if not weight.batched:
        shared = bias is None or not bias.batched
        out = op.call(input.value, weight.value, None if bias is None or not shared else bias.value)
        return out if shared else out + front(bias, input.dim())
    shape, size = input.shape, weight.level.size
    x = input.value.reshape((size, -1, shape[-1])) if input.batched else input.value.reshape((-1, shape[-1]))
    out = OPS["matmul"].call(x, weight.value.transpose(-2, -1))  # (B, rows, N)
    out = out.reshape((size, *shape[:-1], weight.shape[0]))
    return out if bias is None else out + (front(bias, out.dim() - 1) if bias.batched else bias.value)


# -- convolution -----------------------------------------------------------------------------------------------------------


def _joined(tensor: Batched, dim: int) -> Tensor:
    """The batch laid beside a dimension of the samples: (B, ..., n, ...) -> (..., B n, ...)."""
    return front(tensor).movedim(0, dim).flatten(dim, dim + 1)


def _parted(value: Tensor, dim: int, size: int) -> Tensor:
    """The way back."""
    return value.unflatten(dim, (size, -1)).movedim(dim, 0)


@rule("_convolution_of")
def _(op, input, weight, bias, sizes, stride, padding, dilation, transposed, groups):
    """The batch becomes more samples where all share the weight, and more groups where they do not: (N, B C, *) with groups of B."""
    size, rest = input.level.size, (sizes, stride, padding, dilation, transposed)
    if not weight.batched:
        found = op.call(_joined(input, 0), weight.value, None, *rest, groups)
        found = _parted(found, 0, size)
    else:
        found = _parted(op.call(_joined(input, 1), _joined(weight, 0), None, *rest, groups * size), 1, size)
    if bias is None:
        return found
    shift = front(bias) if bias.batched else bias.value.unsqueeze(0)
    return found + shift.reshape((*shift.shape[:1], 1, -1, *(1,) * len(sizes)))


@rule("_convolution_weight")
def _(op, x, y, kernel, stride, padding, dilation, groups):
    size = x.level.size
    found = op.call(_joined(x, 1), _joined(y, 1), kernel, stride, padding, dilation, groups * size)  # (B O, C / groups, *kernel)
    return _parted(found, 0, size)


# -- rows by number --------------------------------------------------------------------------------------------------------


@rule("_index_select")
def _(op, input, dim, index):
    if index.dim() != 1 or not input.dim():
        return NotImplemented
    dim = layout.wrap_dim(dim, input.dim())
    if not index.batched:
        return op.call(input.value, dim + 1, index.value)
    if not input.batched:
        return op.call(input.value, dim, index.value.flatten()).unflatten(dim, (index.level.size, -1)).movedim(dim, 0)
    places = front(index)[(slice(None), *(None,) * dim, slice(None), *(None,) * (input.dim() - dim - 1))]
    return input.value.gather(dim + 1, places.expand((*input.value.shape[: dim + 1], index.shape[0], *input.value.shape[dim + 2 :])).long())


def _rows(op, input, dim, index, **rest):
    if not input.dim():
        return NotImplemented
    if index.batched:
        return _rows_by_sample(op, input, layout.wrap_dim(dim, input.dim()), index, *rest.values())
    given = {k: front(v) if isinstance(v, Tensor) and v.dim() else _own(v) for k, v in rest.items()}
    return NotImplemented if any(g is NotImplemented for g in given.values()) else op.call(
        front(input), further(dim, input.dim()), index.value, *given.values()
    )  # fmt: skip


def _rows_by_sample(op, input: Batched, dim: int, index: Batched, source: Any, alpha: Any = 1) -> Any:
    """Rows whose numbers differ from sample to sample: an index for every element."""
    if index.dim() != 1 or (isinstance(source, Tensor) and source.dim() != input.dim()):
        return NotImplemented
    x = front(input)
    shape = (*x.shape[: dim + 1], index.shape[0], *x.shape[dim + 2 :])
    at = front(index)[(slice(None), *(None,) * dim, slice(None), *(None,) * (input.dim() - dim - 1))].long().expand(shape)
    if op.name == "_index_fill":
        return NotImplemented if isinstance(source, Tensor) else x.scatter(dim + 1, at, source)
    rows = front(source)
    return x.scatter_add(dim + 1, at, rows * alpha) if op.name == "_index_add" else x.scatter(dim + 1, at, rows)


def _own(value: Any) -> Any:
    if isinstance(value, Tensor):
        return NotImplemented if value.batched else value.value
    return value


rule("_index_add", "_index_copy", "_index_fill")(_rows)


@rule("embedding")
def _(op, weight, indices, padding_idx, scale_grad_by_freq, sparse):
    rest = (padding_idx, scale_grad_by_freq, sparse)
    if not weight.batched:
        return op.call(weight.value, indices.value, *rest)
    if padding_idx is not None and padding_idx >= 0:
        return NotImplemented
    rows = weight.shape[0]
    return op.call(weight.value.flatten(0, 1), _apart(indices, rows), *rest)


def _apart(indices: Batched, rows: int) -> Tensor:
    """Row numbers, those of the next sample counted on from those of this one."""
    x = front(indices)
    offset = arange(indices.level.size, device=indices.device, dtype=x.dtype) * rows
    return x + offset.reshape((-1, *(1,) * indices.dim()))


@rule("_embedding_backward")
def _(op, grad, indices, rows, padding_idx, by_frequency):
    size, g = grad.level.size, front(grad)
    if padding_idx is not None and padding_idx >= 0:
        g = g.masked_fill((front(indices) == padding_idx).unsqueeze(-1), 0)
    return op.call(g, _apart(indices, rows), size * rows, -1, by_frequency).unflatten(0, (size, rows))


@rule("_rows_product")
def _(op, values, dense, crow, col):
    if values.batched or crow.batched or col.batched:
        return NotImplemented
    size, inner, width = (x := front(dense)).shape
    found = op.call(values.value, x.transpose(0, 1).reshape(inner, size * width), crow.value, col.value)  # samples side by side
    return found.reshape(-1, size, width).transpose(0, 1)


@rule("_take")
def _(op, input, index):
    if not input.batched:
        return op.call(input.value, index.value)
    size, n = input.level.size, input._array.size
    at = front(index).reshape((size, -1))
    return front(input).reshape((size, -1)).gather(1, at.where(at >= 0, at + n)).reshape((size, *index.shape))


@rule("_search")
def _(op, boundaries, values, right, out_int32):
    if not boundaries.batched:
        return op.call(boundaries.value, values.value, right, out_int32)
    return op.call(front(boundaries), front(values), right, out_int32) if boundaries.dim() == values.dim() else NotImplemented


@rule("_isin")
def _(op, elements, test_elements, invert):
    return NotImplemented if test_elements.batched else op.call(elements.value, test_elements.value, invert)


# -- functions that make tensors like another -------------------------------------------------------------------------------


LIKE = ("zeros_like", "ones_like", "empty_like", "full_like")


def made(function: Callable, args: tuple, kwargs: dict) -> Any:
    """zeros_like(x), x.new_zeros(size) and their like: with a batch if x has one, so that it can be written to."""
    self = args[0] if args else kwargs.get("input", kwargs.get("self"))
    name = function.__name__
    level = level_of(t for t in (*args, *kwargs.values()) if isinstance(t, Tensor))
    if not isinstance(self, Tensor) or not (name.startswith("new_") or name in LIKE):
        raise NotImplementedError(f"vmap: {name}() of a tensor that is being mapped over has no batching rule")
    source = lift(self, level)
    rest = [_given(v, level) for v in args[1:]]
    named = {k: _given(v, level) for k, v in kwargs.items() if k not in ("input", "self")}
    if not source.batched or not name.startswith("new_"):
        return wrapped(function(source.value, *rest, **named), level, source.batched)
    if name == "new_tensor":
        return wrapped(function(source.value, *rest, **named), level, False)
    size = named.pop("size", None)
    if size is None:
        plain = len(rest) > 0 and isinstance(rest[0], (tuple, list))
        size, rest = (rest[0], rest[1:]) if plain or name in ("new_full", "new_empty_strided") else (rest, [])
    size = (level.size, *size)
    if name == "new_empty_strided":
        stride = rest[0] if rest else named.pop("stride")
        rest = [(max(layout.storage_extent(tuple(size[1:]), tuple(stride)), 1), *stride), *rest[1:]]
    return wrapped(function(source.value, size, *rest, **named), level, True)


def _given(value: Any, level) -> Any:
    if isinstance(value, Batched) and value.level is level:
        raise RuntimeError("vmap: a tensor that is being mapped over cannot be an option of a function that makes tensors")
    return value
