"""torch.distributed.nn.functional: collectives with derivatives.

What a tensor adds to the losses of other ranks comes back to it: the derivative of a broadcast is a reduce, that of an all_gather a
reduce_scatter, that of an all_to_all an all_to_all the other way. So every rank must call backward, as every rank called forward. The derivatives of
reduce and reduce_scatter are those of SUM whatever the op, and that of all_reduce reduces with the same op, as in PyTorch: use SUM.

    broadcast    <->  reduce          all_reduce   <->  all_reduce
    gather       <->  scatter         all_gather   <->  reduce_scatter        all_to_all  <->  all_to_all
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import distributed as dist
from flambeau.autograd.function import Function
from flambeau.distributed.collectives.deprecations import old
from flambeau.distributed.collectives.ranks import _canonicalize_group_rank, get_rank, get_world_size
from flambeau.distributed.collectives.world import _group_or_default_group
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories

__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]


@old("torch.distributed.nn.functional.broadcast", "_functional_collectives.broadcast")
def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """The tensor of rank `src`, on all ranks; its gradient is the sum of theirs."""
    return _Broadcast.apply(src, group, tensor)


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks on rank `dst`; zeros elsewhere."""
    return _Gather.apply(dst, group, tensor)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """Tensor n of rank `src` on number n of the group. The others pass tensors of the same shapes, which only say so."""
    return _Scatter.apply(src, group, *tensors)


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum of the tensors of all ranks on rank `dst`; elsewhere the rank's own."""
    return _Reduce.apply(dst, op, group, tensor)


@old("torch.distributed.nn.functional.all_reduce", "_functional_collectives.all_reduce")
def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum of the tensors of all ranks; the gradient is the sum of theirs."""
    return _AllReduce.apply(op, group, tensor)


@old("torch.distributed.nn.functional.all_gather", "_functional_collectives.all_gather_single")
def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all ranks; the gradient is the sum of those that the ranks have for this one's."""
    return _AllGather.apply(group, tensor)


def _all_gather_base(output_tensor: Tensor, input_tensor: Tensor, group: Any = None) -> Tensor:
    """The tensors of all ranks one behind the other, written into `output_tensor`."""
    return _AllGatherBase.apply(output_tensor, input_tensor, group)


@old("torch.distributed.nn.functional.reduce_scatter", "_functional_collectives.reduce_scatter_single")
def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum of the tensors that all ranks have for this one, written into `output`."""
    return _ReduceScatter.apply(op, group, output, *input_list)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None) -> tuple[Tensor, ...]:
    """What the ranks have for this one, written into the tensors of `output_tensor_list`."""
    return _AllToAll.apply(group, list(output_tensor_list), *input_tensor_list)


@old("torch.distributed.nn.functional.all_to_all_single", "_functional_collectives.all_to_all_single")
def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
) -> Tensor:
    """What the ranks have for this one, one behind the other, written into `output`."""
    return _AllToAllSingle.apply(group, output, output_split_sizes, input_split_sizes, input)


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, tensor: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        result = tensor.clone()
        dist.broadcast(result, src, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        whole = _Reduce.apply(ctx.src, ReduceOp.SUM, ctx.group, grad)
        return None, None, whole if _is_me(ctx.src, ctx.group) else factories.zeros_like(grad)


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.dst, ctx.group = dst, group
        result = tensor.clone()
        dist.reduce(result, dst, op=op, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        return None, None, None, _Broadcast.apply(ctx.dst, ctx.group, grad)


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, tensor: Tensor) -> Tensor:
        ctx.op, ctx.group = op, group
        result = tensor.clone()
        dist.all_reduce(result, op=op, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        return None, None, _AllReduce.apply(ctx.op, ctx.group, grad)


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, dst: int, group: Any, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.dst, ctx.group = dst, group
        results = [factories.zeros_like(tensor) for _ in range(get_world_size(group))]
        dist.gather(tensor.contiguous(), results if _is_me(dst, group) else None, dst=dst, group=group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        return None, None, _Scatter.apply(ctx.dst, ctx.group, *grads)


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, src: int, group: Any, *tensors: Tensor) -> Tensor:
        ctx.src, ctx.group = src, group
        same = all(tensor.shape == tensors[0].shape for tensor in tensors)
        if not same:
            raise ValueError(f"scatter: the tensors must have one shape, they have {[tuple(tensor.shape) for tensor in tensors]}")
        result = factories.zeros_like(tensors[0])
        dist.scatter(result, list(tensors) if _is_me(src, group) else None, src=src, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        return None, None, *_Gather.apply(ctx.src, ctx.group, grad)


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, tensor: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        tensor = tensor.contiguous()
        results = [factories.empty_like(tensor) for _ in range(get_world_size(group))]
        dist.all_gather(results, tensor, group=group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        own = factories.empty_like(grads[get_rank(ctx.group)])
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, own, *grads)


class _AllGatherBase(Function):
    @staticmethod
    def forward(ctx: Any, output: Tensor, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        dist.all_gather_single(output, tensor.contiguous(), group=group)
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        parts = grad.chunk(get_world_size(ctx.group))
        own = factories.empty_like(parts[0])
        return None, _ReduceScatter.apply(ReduceOp.SUM, ctx.group, own, *(part.contiguous() for part in parts)), None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, op: Any, group: Any, output: Tensor, *tensors: Tensor) -> Tensor:
        ctx.group = group
        result = output.detach()
        dist.reduce_scatter(result, [tensor.contiguous() for tensor in tensors], op=op, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        return None, None, None, *_AllGather.apply(ctx.group, grad)


class _AllToAll(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, outputs: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.group = group
        ctx.shapes = [tensor.shape for tensor in tensors]
        results = [output.detach() for output in outputs]
        dist.all_to_all(results, [tensor.contiguous() for tensor in tensors], group=group)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple:
        back = [factories.empty(shape, dtype=grads[0].dtype, device=grads[0].device) for shape in ctx.shapes]
        return None, None, *_AllToAll.apply(ctx.group, back, *grads)


class _AllToAllSingle(Function):
    @staticmethod
    def forward(ctx: Any, group: Any, output: Tensor, output_splits: Any, input_splits: Any, tensor: Tensor) -> Tensor:
        ctx.group, ctx.input_shape, ctx.splits = group, tensor.shape, (input_splits, output_splits)
        result = output.detach()
        dist.all_to_all_single(result, tensor.contiguous(), output_splits, input_splits, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple:
        back = factories.empty(ctx.input_shape, dtype=grad.dtype, device=grad.device)
        return None, None, None, None, _AllToAllSingle.apply(ctx.group, back, *ctx.splits, grad.contiguous())


def _is_me(rank: int, group: Any) -> bool:
    """Whether a rank among all is this process."""
    pg = _group_or_default_group(group)
    return _canonicalize_group_rank(pg, rank) == pg.rank()
