"""Arithmetic of sparse tensors, element by element.

A function that keeps zero works on the stored values alone. What is linear in the tensor need not have it coalesced first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from math import prod
from typing import Any

from flambeau import devices, modes
from flambeau.eager.inplace import check_cast
from flambeau.kernels import layout
from flambeau.ops import OPS
from flambeau.ops.promotion import promoted
from flambeau.sparse import history
from flambeau.sparse.conversion import (
    coalesce,
    coalesced_if_coo,
    coordinates,
    flat,
    in_layout_of,
    merged,
    same_places,
    to_dense,
    to_sparse_coo,
    unflat,
    values_at,
)  # fmt: skip
from flambeau.sparse.dispatch import refusal, rule
from flambeau.sparse.parts import Compressed, Coo, Parts, SparseTensor, wrapped
from flambeau.tensor import Tensor, layouts
from flambeau.tensor.making.ranges import arange

INDICES = ("indices", "starts", "others")  # what parts may have beside values

# -- functions of one tensor -------------------------------------------------------------------------------------------

KEEPS_ZERO = """sqrt abs sign sgn isnan isinf isposinf isneginf signbit expm1 log1p sin tan asin atan deg2rad rad2deg sinh tanh asinh atanh
    floor ceil trunc frac _round erf erfinv relu _square _cube nan_to_num _nan_to_num _root angle""".split()


def _on_values(op: Any, x: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
    """An operation on the stored values."""
    x = coalesced_if_coo(x)
    name = "".join(part.title() for part in op.short.split("_")) + "Backward0"
    return history.build(x._array, op.call(history.values(x), *args, **kwargs), name)


def _keeps_zero(name: str) -> None:
    @rule(name)
    def run(input: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        return _on_values(OPS[name], input, *args, **kwargs)

    @rule(f"{name}_")
    def run_in_place(input: SparseTensor, *args: Any, **kwargs: Any) -> SparseTensor:
        if input.is_sparse and not input._array.coalesced:
            raise RuntimeError(f"{name.lstrip('_')}_ requires coalesced input. Try x = x.coalesce() first, or the out-of-place form")
        return become(input, run(input, *args, **kwargs))


for _name in KEEPS_ZERO:
    _keeps_zero(_name)


def become(self: SparseTensor, result: SparseTensor) -> SparseTensor:
    """`self` with the elements and the history of `result`: what in-place forms do."""
    if not isinstance(self, SparseTensor) or result.layout is not self.layout:
        raise RuntimeError(f"an in-place operation cannot change the layout of a tensor from {self.layout} to {result.layout}")
    if modes.state.grad and self.requires_grad and self.is_leaf:
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation. Try torch.no_grad(), or x.clone().")
    check_cast(result.dtype, self.dtype)
    result = result.to(self.dtype)
    self._array = result._array
    self._bump()
    if modes.state.grad:
        self._node, self._nr, self._needs = result._node, result._nr, result._needs
    return self


def _linear(x: SparseTensor, function: Callable, name: str) -> SparseTensor:
    """A linear function of the stored values, which is that of the gradient, too."""
    with modes.no_grad():
        result = wrapped(x._array.with_values(function(x._array.values)))
    return history.recorded(result, name, (x,), (function,))


@rule("neg", "negative")
def neg(input: SparseTensor) -> SparseTensor:
    return _linear(input, lambda t: -t, "NegBackward0")


@rule("view_as_real")
def view_as_real(input: SparseTensor) -> SparseTensor:
    return _reread(input, "view_as_real")


@rule("view_as_complex")
def view_as_complex(input: SparseTensor) -> SparseTensor:
    if not input.dense_dim() or input.shape[-1] != 2:
        words = "view_as_complex_sparse is only supported for sparse tensors with the last dim == 2 and dense_dim > 0."
        raise RuntimeError(f"{words} Found {list(input.shape)}, of which {input.dense_dim()} are dense")
    return _reread(input, "view_as_complex")


def _reread(x: SparseTensor, name: str) -> SparseTensor:
    """Complex numbers as pairs of real ones, or the other way round; the places stay."""
    x = coalesced_if_coo(x) if x.requires_grad and modes.state.grad else x
    return history.build(
        x._array, OPS[name](history.values(x)), "ViewAsRealBackward0" if name == "view_as_real" else "ViewAsComplexBackward0"
    )


@rule("real")
def real(input: SparseTensor) -> SparseTensor:
    return _on_values(OPS["real"], input) if input.is_complex() else input


@rule("imag")
def imag(input: SparseTensor) -> SparseTensor:
    return _on_values(OPS["imag"], input)


@rule("positive")
def positive(input: SparseTensor) -> SparseTensor:
    return input


@rule("conj", "_conj_physical", "conj_physical", "resolve_conj", "resolve_neg")
def conj(input: SparseTensor) -> SparseTensor:
    return _linear(input, lambda t: t.conj_physical(), "ConjBackward0") if input.is_complex() else input


@rule("neg_")
def neg_(input: SparseTensor) -> SparseTensor:
    return become(input, neg(input))


@rule("nn.functional.dropout", "dropout")
def dropout(input: SparseTensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> SparseTensor:
    if training and p:
        raise refusal("dropout", (input,))
    return input


@rule("clone")
def clone(input: SparseTensor, *, memory_format: Any = None) -> SparseTensor:
    parts = input._array
    with modes.no_grad():
        values = parts.values.clone().contiguous()
        copy = parts.with_values(values)
        for name in INDICES:
            if hasattr(copy, name):
                setattr(copy, name, getattr(copy, name).clone())
    return history.recorded(wrapped(copy), "CloneBackward0", (input,), (lambda grad: grad,))


@rule("to")
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    if not isinstance(input, SparseTensor):  # x.to(sparse): its dtype and device are meant
        return input.to(args[0].device, args[0].dtype)
    from flambeau.ops.copying import parse_to

    dtype, device, copy, _, non_blocking = parse_to(*args, **kwargs)
    return _to_copy(input, dtype or input.dtype, device or input.device, None, non_blocking, copy)


@rule("_to_copy")
def _to_copy(
    input: SparseTensor, dtype: Any, device: Any, strides: Any = None, non_blocking: bool = False, copy: bool = False
) -> SparseTensor:
    parts = input._array
    if devices.device(device).type == "meta" and not input.is_meta:  # how many elements are stored is a question about data, too
        return zeros_like(input, dtype=dtype, device=device)  # type: ignore[return-value]
    with modes.no_grad():
        values = parts.values.to(device=device, dtype=dtype, non_blocking=non_blocking, copy=copy)
        if values is parts.values:
            return input
        moved = parts.with_values(values)
        for name in INDICES:
            if hasattr(moved, name):
                setattr(moved, name, getattr(moved, name).to(device=device, non_blocking=non_blocking))
    before = input.dtype, input.device
    return history.recorded(wrapped(moved), "ToCopyBackward0", (input,), (lambda grad: grad.to(before[1], before[0]),))


# -- sums --------------------------------------------------------------------------------------------------------------


@rule("add", "_add", "_add_scaled")
def add(input: Any, other: Any, alpha: Any = 1) -> Tensor:
    if not isinstance(input, Tensor) or not isinstance(other, Tensor):
        raise RuntimeError("add(sparse, dense) is not supported. A sum with a number has no zeros: add it to .to_dense(), or to .values()")
    if not isinstance(input, SparseTensor):
        return _added_to_dense(input, other, alpha)
    if not isinstance(other, SparseTensor):
        if input.is_sparse:
            raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
        return _added_to_dense(other if alpha == 1 else other.to(promoted(input, other)) * alpha, input, 1)
    with modes.no_grad():
        result = _sum(input.detach(), other.detach(), alpha)
    first, second = input._array, other._array
    derivatives = (lambda grad: _as(grad, first), lambda grad: _as(grad if alpha == 1 else grad * alpha, second))
    return history.recorded(result, "AddBackward0", (input, other), derivatives)


def _as(grad: Tensor, parts: Parts | None) -> Tensor:
    """A gradient of another sparse layout in that of its tensor; a dense one stays dense."""
    return in_layout_of(grad, parts) if isinstance(grad, SparseTensor) and parts is not None else grad


def _added_to_dense(dense: Tensor, sparse: SparseTensor, alpha: Any) -> Tensor:
    if tuple(dense.shape) != tuple(sparse.shape):
        found = f"{list(dense.shape)} and {list(sparse.shape)}: sums of dense and sparse tensors do not broadcast"
        raise RuntimeError(f"add: expected 'self' and 'other' to have same size, found {found}")
    common = promoted(dense, sparse)
    with modes.no_grad():
        result = dense.detach().to(common, copy=True)
        _put_onto(result, sparse.detach(), alpha)
    derivatives = (lambda grad: grad, lambda grad: grad if alpha == 1 else grad * alpha)
    return history.recorded(result, "AddBackward0", (dense, sparse), derivatives)


def _put_onto(dense: Tensor, sparse: SparseTensor, alpha: Any) -> None:
    """dense += alpha * sparse, in place."""
    parts = sparse._array
    if parts.value.numel():
        values = parts.line(history.values(sparse) if sparse.requires_grad else parts.values)
        values = values.to(dense.dtype)  # first, for -1 times an unsigned number is none
        values = values if alpha == 1 else values * alpha
        dense.index_put_(tuple(coordinates(parts).unbind(0)), values, accumulate=True)


@rule("add_", "_add_", "_add_scaled_")
def add_(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    if isinstance(self, SparseTensor):
        if not isinstance(other, SparseTensor):
            raise RuntimeError("add(sparse, dense) is not supported in place. Use add(dense, sparse) instead.")
        return become(self, add(self, other, alpha))
    check_cast(promoted(self, other), self.dtype)
    _put_onto(self, coalesce(other) if other.requires_grad and other.is_sparse else other, alpha)
    return self


@rule("sub", "_sub", "_sub_scaled", "subtract")
def sub(input: Any, other: Any, alpha: Any = 1) -> Tensor:
    return history.renamed(add(input, other, -alpha), "SubBackward0")


@rule("sub_", "_sub_", "_sub_scaled_", "subtract_")
def sub_(self: Tensor, other: Any, alpha: Any = 1) -> Tensor:
    return add_(self, other, -alpha)


def _sum(a: SparseTensor, b: SparseTensor, alpha: Any) -> SparseTensor:
    if tuple(a.shape) != tuple(b.shape):
        raise RuntimeError(f"add: expected sizes of 'self' and 'other' that agree, found {list(a.shape)} and {list(b.shape)}")
    common = promoted(a, b)
    first, second = a._array, b._array
    if not a.is_sparse and same_places(first, second):
        return wrapped(first.with_values(_plus(first.values.to(common), second.values.to(common), alpha)))
    if not a.is_sparse or not b.is_sparse:
        return in_layout_of(_sum(to_sparse_coo(a), to_sparse_coo(b), alpha), first)
    if first.sparse_dim != second.sparse_dim:
        if not first.nnz or not second.nnz:  # nothing is added, so it does not matter which dimensions nothing has
            return (a if first.nnz else b * alpha).to(common)  # type: ignore[return-value]
        found = f"'self' has {first.sparse_dim} sparse dimensions while 'other' has {second.sparse_dim}"
        raise RuntimeError(f"add: expected 'self' and 'other' to have same density, but {found}")
    left, right = first.values.to(common), second.values.to(common)
    if first.nnz == second.nnz and (first.indices is second.indices or bool((first.indices == second.indices).all())):
        return wrapped(Coo(first.indices, _plus(left, right, alpha), first.shape, first.coalesced and second.coalesced))
    cat, right = OPS["cat"], right if alpha == 1 else right * alpha
    indices, values = cat([first.indices, second.indices], 1), cat([left, right])
    if not (first.coalesced and second.coalesced):
        return wrapped(Coo(indices, values, first.shape, False))
    shape = first.shape[: first.sparse_dim]
    keys, values = merged(flat(indices, shape), values)
    return wrapped(Coo(unflat(keys, shape), values, first.shape, True))


def _plus(a: Tensor, b: Tensor, alpha: Any) -> Tensor:
    return a.add(b, alpha=alpha)


# -- products ----------------------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return not isinstance(value, Tensor) or (not isinstance(value, SparseTensor) and not value.dim())


@rule("mul", "multiply")
def mul(input: Any, other: Any) -> Tensor:
    if _is_number(input):
        input, other = other, input
    if isinstance(input, SparseTensor) and isinstance(other, SparseTensor) and not (input.dim() and other.dim()):
        input, other = sorted((input, other), key=lambda t: (t.dim(), t._nnz()), reverse=True)
        other = to_dense(other)  # a number, too
    if _is_number(other):
        return _scaled(input, lambda t: t * other, other, "MulBackward0")
    with modes.no_grad():
        result = _product(input.detach(), other.detach())
    first, second = (t._array if isinstance(t, SparseTensor) else None for t in (input, other))
    derivatives = (
        lambda grad, a, b: _as(_times(grad, b, a), first),
        lambda grad, a, b: _as(_times(grad, a, b), second),
    )
    return history.recorded(result, "MulBackward0", (input, other), derivatives, (input, other))


def _times(grad: Tensor, other: Tensor, like: Tensor) -> Tensor:
    """grad * conj(other), summed over what was repeated of `like`."""
    found = grad * (other.conj() if other.is_complex() else other)
    return found if tuple(found.shape) == tuple(like.shape) else to_dense(found).sum_to_size(like.shape)


def _scaled(x: SparseTensor, function: Callable, number: Any, name: str) -> SparseTensor:
    if isinstance(number, Tensor) and number.requires_grad:
        x = coalesced_if_coo(x)
        return history.build(x._array, function(history.values(x)), name)
    return _linear(x, function, name)


def _product(a: Tensor, b: Tensor) -> SparseTensor:
    """Of two tensors of which at least one is sparse: where that one has elements."""
    if not isinstance(a, SparseTensor):
        a, b = b, a
    assert isinstance(a, SparseTensor)
    if isinstance(b, SparseTensor):
        return _product_of_sparse(a, b)
    a = _repeated(a, layout.broadcast_shapes(tuple(a.shape), tuple(b.shape)))
    parts = a._array
    return wrapped(parts.with_values(parts.values * values_at(b.expand(a.shape), parts)))


def _repeated(x: SparseTensor, shape: tuple) -> SparseTensor:
    """A tensor of coordinates with its elements repeated along new dimensions in front, and along those of size one."""
    if tuple(x.shape) == shape:
        return x
    if not x.is_sparse:
        raise NotImplementedError(
            f"a tensor of layout {x.layout} and shape {list(x.shape)} cannot be repeated to {list(shape)}. Try to_sparse()"
        )
    parts = x._array
    new = len(shape) - parts.ndim
    sparse = shape[: new + parts.sparse_dim]
    along = [d for d, n in enumerate(sparse) if d < new or (n != 1 and parts.shape[d - new] == 1)]
    times = prod(shape[d] for d in along)
    number = arange(times, device=parts.indices.device)
    copies = unflat(number, tuple(shape[d] for d in along)) if along else number.reshape(0, times)
    rows = [
        copies[along.index(d)].repeat_interleave(parts.nnz) if d in along else parts.indices[d - new].repeat(times)
        for d in range(len(sparse))
    ]
    values = parts.values.expand(parts.nnz, *shape[len(sparse) :])
    in_order = parts.coalesced and along == list(range(len(along)))
    return wrapped(Coo(OPS["stack"](rows), values.repeat(times, *[1] * (values.dim() - 1)), shape, in_order))


def _product_of_sparse(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    sparse = a._array.sparse_dim if a.is_sparse else a.dim()
    if a.dim() != b.dim() or tuple(a.shape[:sparse]) != tuple(b.shape[:sparse]):
        raise RuntimeError(f"mul: expected sizes of 'self' and 'other' that agree, found {list(a.shape)} and {list(b.shape)}")
    if not a.is_sparse and same_places(a._array, b._array):
        return wrapped(a._array.with_values(a._array.values * b._array.values))
    if not a.is_sparse or not b.is_sparse:
        return in_layout_of(_product_of_sparse(to_sparse_coo(a), to_sparse_coo(b)), (b if a.is_sparse else a)._array)
    a, b = coalesce(a), coalesce(b)
    parts, other = a._array, b._array
    shape = parts.shape[: parts.sparse_dim]
    if parts.nnz == other.nnz and (parts.indices is other.indices or bool((parts.indices == other.indices).all())):
        return wrapped(parts.with_values(parts.values * other.values))
    both = OPS["isin"](flat(parts.indices, shape), flat(other.indices, shape))
    indices = parts.indices[:, both]
    meeting = Coo(indices, parts.values[both], parts.shape, True)
    return wrapped(meeting.with_values(meeting.values * values_at(b, meeting)))


@rule("mul_", "multiply_")
def mul_(self: Tensor, other: Any) -> Tensor:
    if not isinstance(self, SparseTensor):
        return self.mul_(to_dense(other))
    if isinstance(self, SparseTensor) and _is_number(other) and not (modes.state.grad and self.requires_grad):
        self._array.values.mul_(other)
        self._bump()
        return self
    return become(self, mul(self, other))


@rule("div", "_div", "true_divide", "divide")
def div(input: Any, other: Any, rounding_mode: str | None = None) -> Tensor:
    if not isinstance(input, SparseTensor) or not _is_number(other):
        found = list(other.shape) if isinstance(other, Tensor) else type(other).__name__
        raise RuntimeError(
            f"Sparse division requires a sparse tensor and a scalar or zero-dim dense tensor divisor (got shape {found} for divisor)"
        )
    if rounding_mode is not None:
        x = coalesced_if_coo(input)
        return history.build(x._array, history.values(x).div(other, rounding_mode=rounding_mode), "DivBackward1")
    return _scaled(input, lambda t: t / other, other, "DivBackward0")


@rule("div_", "_div_", "true_divide_", "divide_")
def div_(self: Tensor, other: Any, rounding_mode: str | None = None) -> Tensor:
    if isinstance(self, SparseTensor) and _is_number(other) and rounding_mode is None and not (modes.state.grad and self.requires_grad):
        self._array.values.div_(other)
        self._bump()
        return self
    return become(self, div(self, other, rounding_mode))


@rule("floor_divide")
def floor_divide(input: Any, other: Any) -> Tensor:
    if not isinstance(input, SparseTensor) or not _is_number(other):
        raise RuntimeError("Sparse floor division requires a sparse tensor and a scalar or zero-dim dense tensor divisor")
    return div(input, other, "floor")


@rule("floor_divide_")
def floor_divide_(self: Any, other: Any) -> Tensor:
    return become(self, floor_divide(self, other))


@rule("pow", "_power_to_number", "_pow")
def power(input: Any, exponent: Any) -> Tensor:
    if not isinstance(input, SparseTensor) or isinstance(exponent, Tensor):
        raise refusal("pow with a tensor for its exponent", (input, exponent))
    if exponent == 0:
        raise RuntimeError("pow: x ** 0 is 1 everywhere, and no sparse tensor")
    x = coalesced_if_coo(input)
    return history.build(x._array, history.values(x) ** exponent, "PowBackward0")


@rule("square")
def square(input: SparseTensor) -> Tensor:
    return power(input, 2)


# -- filling -----------------------------------------------------------------------------------------------------------


@rule("zero_")
def zero_(self: SparseTensor) -> SparseTensor:
    return become(self, zeros_like(self))


@rule("zeros_like")
def zeros_like(
    input: SparseTensor, *, memory_format: Any = None, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor without elements, of the same layout if no other is asked for."""
    from flambeau.sparse import making

    _check_format(input, layout, memory_format)
    options = {"dtype": dtype or input.dtype, "device": device or input.device}
    if layout is layouts.strided:
        result = input._array.values.new_zeros(input.shape, **options)
    else:
        result = making.empty_like(input._array, layout or input.layout, **options)
    return result.requires_grad_() if requires_grad else result


def _check_format(input: SparseTensor, layout: Any, memory_format: Any) -> None:
    """RuntimeError where an order of elements is asked of a tensor that has none."""
    if memory_format is not None and layout is not layouts.strided:
        found = layout or input.layout
        raise RuntimeError(f"memory format option is only supported by strided tensors, found {memory_format} for one of layout {found}")


def _values_like(name: str, home: str, input: SparseTensor, *bounds: Any, layout: Any = None, **options: Any) -> Tensor:
    """empty_like, randn_like and their like: a compressed tensor keeps its places and gets other elements."""
    _check_format(input, layout, options.get("memory_format"))
    make, parts = getattr(import_module(f"flambeau.tensor.making.{home}"), name), input._array
    if layout is layouts.strided:
        return make(zeros_like(input, layout=layout), *bounds, **options)
    if input.is_sparse or layout not in (None, input.layout):
        if name != "empty_like":
            raise refusal(name, (input,))
        if not input.is_sparse:
            raise RuntimeError(f"empty_like with different sparse layout is not supported, found {input.layout} and {layout}")
        return zeros_like(input, layout=layout, **options)
    wanted = options.pop("requires_grad", False)
    result = wrapped(parts.with_values(make(parts.values, *bounds, **options)))
    return result.requires_grad_() if wanted else result


for _name, _home in (
    ("empty_like", "factories"), ("randn_like", "random_factories"), ("rand_like", "random_factories"), ("randint_like", "random_factories"),
):  # fmt: skip
    rule(_name)(partial(_values_like, _name, _home))


@rule("new_zeros", "new_empty")
def new_zeros(
    self: SparseTensor, *size: Any, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, **rest: Any
):
    """A tensor without elements, of any shape and of the same layout if no other is asked for."""
    return self._array.values.new_zeros(
        *size, dtype=dtype or self.dtype, layout=layout or self.layout, device=device or self.device, requires_grad=requires_grad
    )


@rule("new_tensor")
def new_tensor(self: SparseTensor, data: Any, **options: Any) -> Tensor:
    """The data as a dense tensor, with the dtype and device of this one."""
    return self._array.values.new_tensor(data, **options)


@rule("copy_", tensors=2)
def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    if not isinstance(self, SparseTensor) or not isinstance(src, SparseTensor) or self.layout is not src.layout:
        compressed = any(isinstance(t, SparseTensor) and not t.is_sparse for t in (self, src))
        words = "copy of sparse compressed tensors having different layouts is not supported." if compressed else "copy_() needs one layout"
        raise RuntimeError(f"{words} Found {self.layout} and {src.layout}: convert one first")
    if isinstance(self._array, Compressed):
        _check_copy(self._array, src._array)
    if tuple(self.shape) != tuple(src.shape):
        raise RuntimeError(f"copy_(): expected size {list(self.shape)}, found {list(src.shape)}")
    return become(self, clone(src).to(self.device, self.dtype))


def _check_copy(own: Compressed, other: Compressed) -> None:
    """RuntimeError unless the memory of one has room for the parts of the other."""
    if own.nnz != other.nnz:
        words = "only sparse compressed tensors with the same number of specified elements are supported."
        raise RuntimeError(f"copy_(): {words} Found {own.nnz} and {other.nnz}")
    line = 0 if own.by_rows else 1
    at, behind = own.batch_dim + line, other.batch_dim + line
    if own.shape[at] != other.shape[behind]:
        raise RuntimeError(f"copy_(): expected shapes of self and src to match along dimension {line}, found {own.shape} and {other.shape}")
    if own.block != other.block:
        words = "copy of sparse compressed tensors having different block sizes is not supported"
        raise RuntimeError(f"{words}, found {own.block} and {other.block}")
