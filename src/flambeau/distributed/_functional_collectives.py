"""Collectives as functions: they return a new tensor and leave their input alone, and gradients flow through them.

    y = all_reduce(x, "sum", mesh)       # under way
    z = y + 1                            # waits for it

What is returned is an `AsyncCollectiveTensor`: it has a shape and a dtype at once, and waits when somebody wants its numbers. The group may be a process
group or its name, a DeviceMesh of one dimension, (mesh, dimension), or a list of ranks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import distributed as dist
from flambeau import modes
from flambeau.autograd.function import Function
from flambeau.compiler import is_dynamo_compiling as is_torchdynamo_compiling  # noqa: F401 - libraries ask it here
from flambeau.distributed.collectives.deprecations import old
from flambeau.distributed.collectives.registry import _resolve_process_group
from flambeau.distributed.collectives.world import _world
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.ops import OPS
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty, zeros_like

__all__ = [
    "AsyncCollectiveTensor", "all_gather_into_tensor_coalesced", "all_gather_single", "all_gather_single_autograd", "all_gather_single_coalesced",
    "all_gather_tensor", "all_gather_tensor_autograd", "all_gather_tensor_inplace", "all_reduce", "all_reduce_coalesced", "all_reduce_inplace",
    "all_to_all_inplace", "all_to_all_single", "all_to_all_single_autograd", "broadcast", "permute_tensor", "reduce_scatter_single",
    "reduce_scatter_single_autograd", "reduce_scatter_single_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced", "reduce_scatter_tensor_inplace", "wait_tensor",
]  # fmt: skip

OPERATIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")
REDUCE_OP_TO_STR = {getattr(ReduceOp, name.upper()): name for name in OPERATIONS}


# -- a result that may still be under way -----------------------------------------------------------------------------------


class AsyncCollectiveTensor(Tensor):
    """The result of a collective. `elem` is the tensor it will be; operations wait for it and work on that."""

    _sees_building_blocks = True  # operations made of others come here whole as well as in parts
    elem: Tensor
    _work: Any = None

    def __new__(cls, elem: Tensor, work: Any = None) -> AsyncCollectiveTensor:
        made = object.__new__(cls)
        for name in Tensor.__slots__:
            if name.startswith("_") and not name.startswith("__"):
                setattr(made, name, getattr(elem, name))
        made.elem, made._work = elem, work
        return made

    @property
    def completed(self) -> bool:
        """Whether somebody has waited for it."""
        return self._work is None

    def trigger_wait(self) -> Tensor:
        """The tensor, complete."""
        work, self._work = self._work, None
        if work is not None:
            for one in work if isinstance(work, list) else [work]:
                one.wait()
        return self.elem

    wait = trigger_wait

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return func(*_complete(args), **_complete(kwargs or {}))

    def _edge(self) -> Any:
        return self.elem._edge()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"AsyncCollectiveTensor({self.trigger_wait()!r})"

    def __format__(self, spec: str) -> str:
        return format(self.trigger_wait(), spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.trigger_wait().__reduce_ex__(protocol)


def _complete(value: Any) -> Any:
    """Results that are under way, in arguments of any depth, waited for."""
    if isinstance(value, AsyncCollectiveTensor):
        return value.trigger_wait()
    if isinstance(value, dict):
        return {name: _complete(v) for name, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_complete(v) for v in value)
    return value


def _known_at_once(name: str) -> property:
    return property(lambda self: getattr(self.elem, name), doc=getattr(Tensor, name).__doc__)


for _name in """shape size stride dim ndim ndimension numel nelement dtype device layout is_floating_point is_complex is_cpu is_cuda is_meta requires_grad
    is_leaf grad_fn element_size itemsize nbytes""".split():
    setattr(AsyncCollectiveTensor, _name, _known_at_once(_name))  # a method is found as the method of `elem`


def wait_tensor(tensor: Tensor) -> Tensor:
    """The tensor, complete: of a result that is under way, when it has arrived."""
    return tensor.trigger_wait() if isinstance(tensor, AsyncCollectiveTensor) else tensor


# -- groups and operations --------------------------------------------------------------------------------------------------


def _resolve_group(group: Any, tag: str = "") -> Any:
    """The process group that is meant."""
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise AssertionError(f"Only 1D mesh is supported, pass in (DeviceMesh, int) together if mesh > 1D: found {group}")
        return group.get_group()
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return group[0].get_group(group[1])
    if isinstance(group, str):
        return _resolve_process_group(group)
    if isinstance(group, (list, tuple)):
        words = "The combination of ranks + tag as process group identifier has been deprecated. Please switch to using ProcessGroup, DeviceMesh, or"
        warnings.warn(f"{words} group name instead.", FutureWarning, stacklevel=4)
        rank = dist.get_rank()
        if group and isinstance(group[0], (list, tuple)):
            group = next((ranks for ranks in group if rank in ranks), None)
            if group is None:
                raise ValueError(f"rank {rank} is in none of the groups")
        for known, ranks in _world.pg_group_ranks.items():
            if list(ranks) == list(group):
                return known
        return dist.new_group(list(group))
    if group is None or not hasattr(group, "allreduce"):
        raise ValueError(
            f"Invalid type for group, must be one of List, Processgroup, DeviceMesh or (DeviceMesh, int), found {type(group).__name__}"
        )
    return group


def _op(name: str) -> Any:
    name = name.lower()
    if name not in OPERATIONS:
        raise RuntimeError(f"Unrecognized reduce_op: {name}. There are {', '.join(OPERATIONS)}")
    return getattr(ReduceOp, name.upper())


def _under_way(result: Tensor, work: Any) -> Tensor:
    return AsyncCollectiveTensor(result, work) if work is not None else result


def _now(begun: tuple[Tensor, Any]) -> Tensor:
    """The result of a collective that has begun, when it is there."""
    result, work = begun
    if work is not None:
        work.wait()
    return result


def _plain(x: Tensor) -> Tensor:
    return wait_tensor(x).contiguous()


class _Differentiable(Function):
    """Runs `forward(input) -> (result, work)`, and `backward(grad) -> grad` when the gradient comes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, run: Callable, back: Callable, works: list) -> Tensor:
        ctx.back = back
        result, work = run(x)
        works.append(work)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return ctx.back(_plain(grad)), None, None, None


def _run(x: Tensor, run: Callable, back: Callable) -> Tensor:
    """run(x) -> (result, what to wait for), recorded if a gradient is wanted."""
    x = wait_tensor(x)
    if modes.state.grad and x.requires_grad:
        works: list[Any] = []
        result = _Differentiable.apply(x, run, back, works)
        return _under_way(result, works[0])
    return _under_way(*run(x))


# -- the collectives --------------------------------------------------------------------------------------------------------


def all_reduce(self: Tensor, reduceOp: str, group: Any, tag: str = "") -> Tensor:
    """What all ranks have, reduced by "sum", "avg", "product", "min", "max", "band", "bor" or "bxor". The gradient is reduced in the same way."""
    pg, op = _resolve_group(group, tag), _op(reduceOp)
    return _run(self, lambda x: _all_reduced(x, op, pg), lambda grad: _now(_all_reduced(grad, op, pg)))


def _all_reduced(x: Tensor, op: Any, pg: Any) -> tuple[Tensor, Any]:
    own = x.detach().clone().contiguous()
    return own, dist.all_reduce(own, op=op, group=pg, async_op=True)


def broadcast(self: Tensor, src: int, group: Any, tag: str = "") -> Tensor:
    """What rank `src` (of the program) has. The gradient is the sum of all ranks' on that rank, and zero on the others."""
    pg = _resolve_group(group, tag)

    def run(x: Tensor) -> tuple[Tensor, Any]:
        own = x.detach().clone().contiguous()
        return own, dist.broadcast(own, src, group=pg, async_op=True)

    def back(grad: Tensor) -> Tensor:
        total = _now(_all_reduced(grad, _op("sum"), pg))
        return total if dist.get_rank() == src else zeros_like(total)

    return _run(self, run, back)


def all_gather_single(self: Tensor, gather_dim: int, group: Any, tag: str = "") -> Tensor:
    """The tensors of all ranks, one behind the other along a dimension. The gradient is summed, and each rank gets its part."""
    pg = _resolve_group(group, tag)
    dim = gather_dim % max(self.dim(), 1)
    run = lambda x: _gathered(x, dim, pg)  # noqa: E731
    result = _run(self, run, lambda grad: _now(_scattered(grad, _op("sum"), dim, pg)))
    return result if dim == 0 else wait_tensor(result)


def _gathered(x: Tensor, dim: int, pg: Any) -> tuple[Tensor, Any]:
    own = x.detach().contiguous()
    if not own.dim():
        own = own.reshape(1)
    found = empty((pg.size() * own.shape[0], *own.shape[1:]), dtype=own.dtype, device=own.device)
    work = dist.all_gather_single(found, own, group=pg, async_op=True)
    if dim == 0:
        return found, work
    work.wait()
    return OPS["cat"](list(found.chunk(pg.size())), dim), None


def reduce_scatter_single(self: Tensor, reduceOp: str, scatter_dim: int, group: Any, tag: str = "") -> Tensor:
    """What all ranks have, reduced, of which this rank gets its part of a dimension. The gradient is gathered."""
    pg, op = _resolve_group(group, tag), _op(reduceOp)
    dim = scatter_dim % max(self.dim(), 1)
    if self.size(dim) % pg.size():
        raise AssertionError(f"input dimension {dim} ({self.size(dim)} must be a multiple of group_size {pg.size()})")
    name = reduceOp.lower()

    def back(grad: Tensor) -> Tensor:
        if name not in ("sum", "avg"):
            raise RuntimeError(f"reduce_scatter_tensor backward only supports 'sum' and 'avg' reduction, got '{name}'")
        result = _now(_gathered(grad, dim, pg))
        return result / pg.size() if name == "avg" else result

    return _run(self, lambda x: _scattered(x, op, dim, pg), back)


def _scattered(x: Tensor, op: Any, dim: int, pg: Any) -> tuple[Tensor, Any]:
    own = x.detach()
    if dim:
        own = OPS["cat"](list(own.chunk(pg.size(), dim)))
    own = own.contiguous()
    found = empty((own.shape[0] // pg.size(), *own.shape[1:]), dtype=own.dtype, device=own.device)
    return found, dist.reduce_scatter_single(found, own, op=op, group=pg, async_op=True)


def all_to_all_single(
    self: Tensor, output_split_sizes: list[int] | None, input_split_sizes: list[int] | None, group: Any, tag: str = ""
) -> Tensor:
    """Parts of dimension 0 exchanged: the part number r goes to rank r. The gradients go back the same way."""
    pg = _resolve_group(group, tag)
    if (output_split_sizes is None) != (input_split_sizes is None):
        raise AssertionError("output_split_sizes and input_split_sizes are given together, or both are None")
    run = lambda x: _exchanged(x, output_split_sizes, input_split_sizes, pg)  # noqa: E731

    return _run(self, run, lambda grad: _now(_exchanged(grad, input_split_sizes, output_split_sizes, pg)))


def _exchanged(x: Tensor, to: list[int] | None, given: list[int] | None, pg: Any) -> tuple[Tensor, Any]:
    own = x.detach().contiguous()
    rows = own.shape[0] if to is None else sum(to)
    found = empty((rows, *own.shape[1:]), dtype=own.dtype, device=own.device)
    return found, dist.all_to_all_single(found, own, to, given, group=pg, async_op=True)


def permute_tensor(self: Tensor, src_dst: list[int], group: Any, tag: str = "") -> Tensor:
    """Whole tensors exchanged: rank i of the group sends its tensor to rank src_dst[i]."""
    pg = _resolve_group(group, tag)
    rank, n = pg.rank(), pg.size()
    if sorted(src_dst) != list(range(n)):
        raise AssertionError(f"src_dst says for each of {n} ranks where it sends, each rank once: found {src_dst}")
    sent, received = ([0] * n for _ in range(2))
    sent[src_dst[rank]] = received[src_dst.index(rank)] = self.numel()
    return wait_tensor(all_to_all_single(self.reshape(-1), received, sent, pg)).view(self.shape)


# -- many at once -----------------------------------------------------------------------------------------------------------


def all_reduce_coalesced(self: Sequence[Tensor], reduceOp: str, group: Any, tag: str = "") -> list[Tensor]:
    """`all_reduce` of several tensors."""
    pg = _resolve_group(group, tag)
    return [all_reduce(x, reduceOp, pg) for x in self]


def all_gather_single_coalesced(self: Sequence[Tensor], group: Any, tag: str = "") -> list[Tensor]:
    """`all_gather_single` of several tensors, along dimension 0."""
    pg = _resolve_group(group, tag)
    return [all_gather_single(x, 0, pg) for x in self]


def reduce_scatter_single_coalesced(
    inputs: Sequence[Tensor], reduceOp: str, scatter_dim: list[int], group: Any, tag: str = ""
) -> list[Tensor]:
    """`reduce_scatter_single` of several tensors, each along its dimension."""
    pg = _resolve_group(group, tag)
    if len(scatter_dim) != len(inputs):
        raise AssertionError(f"there are {len(inputs)} tensors and {len(scatter_dim)} dimensions: give one for each")
    return [reduce_scatter_single(x, reduceOp, dim, pg) for x, dim in zip(inputs, scatter_dim, strict=True)]


# -- into tensors that are given --------------------------------------------------------------------------------------------


def _written(target: Tensor, result: Tensor, async_op: bool) -> Tensor:
    if async_op:
        raise AssertionError("functional collectives wait for themselves: async_op=True would return a Work, which they have not")
    return target.copy_(result)


def all_reduce_inplace(tensor: Tensor, op: str = "sum", group: Any = None, async_op: bool = False, tag: str = "") -> Tensor:
    """`all_reduce`, written over its input."""
    return _written(tensor, all_reduce(tensor, op, _or_world(group), tag), async_op)


def all_gather_tensor_inplace(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False, tag: str = "", gather_dim: int = 0
) -> Tensor:
    """`all_gather_single`, written to a tensor."""
    return _written(output_tensor, all_gather_single(input_tensor, gather_dim, _or_world(group), tag), async_op)


def reduce_scatter_tensor_inplace(
    output: Tensor, input: Tensor, op: str = "sum", group: Any = None, async_op: bool = False, scatter_dim: int = 0, tag: str = ""
) -> Tensor:
    """`reduce_scatter_single`, written to a tensor."""
    return _written(output, reduce_scatter_single(input, op, scatter_dim, _or_world(group), tag), async_op)


def all_to_all_inplace(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None, input_split_sizes: list[int] | None = None, group: Any = None,
    async_op: bool = False, tag: str = "",
) -> Tensor:  # fmt: skip
    """`all_to_all_single`, written to a tensor."""
    return _written(output, all_to_all_single(input, output_split_sizes, input_split_sizes, _or_world(group), tag), async_op)


def _or_world(group: Any) -> Any:
    return dist.group.WORLD if group is None else group


all_gather_single_autograd, reduce_scatter_single_autograd = all_gather_single, reduce_scatter_single  # gradients flow through all of them
all_to_all_single_autograd = all_to_all_single


def _older(name: str, function: Callable) -> Callable:
    room = "_functional_collectives"
    return old(f"torch.distributed.{room}.{name}", f"{room}.{function.__name__}")(function)


all_gather_tensor = _older("all_gather_tensor", all_gather_single)
all_gather_tensor_autograd = _older("all_gather_tensor_autograd", all_gather_single)
reduce_scatter_tensor = _older("reduce_scatter_tensor", reduce_scatter_single)
reduce_scatter_tensor_autograd = _older("reduce_scatter_tensor_autograd", reduce_scatter_single)
all_gather_into_tensor_coalesced = _older("all_gather_into_tensor_coalesced", all_gather_single_coalesced)
reduce_scatter_tensor_coalesced = _older("reduce_scatter_tensor_coalesced", reduce_scatter_single_coalesced)
