"""`torch.ops._c10d_functional`: the functional collectives by the names of PyTorch's operations, for those who list them (policies of selective
checkpoints) or call them.

    torch.ops._c10d_functional.all_reduce.default       can be compared, put into a set, and called
    torch.ops._c10d_functional.all_reduce(x, "sum", group.group_name)

What they return is what the functions of `_functional_collectives` return. Those that write into a tensor (`all_reduce_`, `..._out`) have written it when
they return.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from flambeau import import_only
from flambeau.distributed import _functional_collectives as functional
from flambeau.tensor import Tensor


class Overload:
    """The one overload that each of them has."""

    def __init__(self, packet: Packet):
        self.overloadpacket, self.namespace = packet, packet.namespace
        self._opname, self._overloadname = packet.__name__, "default"
        self.__name__ = f"{packet.__name__}.default"

    def name(self) -> str:
        """_c10d_functional::all_reduce"""
        return f"{self.namespace}::{self._opname}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overloadpacket(*args, **kwargs)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='default')>"


class Packet:
    """An operation, by its name."""

    def __init__(self, namespace: str, name: str, function: Callable):
        self.namespace, self.__name__, self._function = namespace, name, function
        self.default = Overload(self)

    def overloads(self) -> list[str]:
        """The one there is."""
        return ["default"]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


class Library:
    """torch.ops._c10d_functional, the two names that it has besides, or torch.ops.c10d."""

    def __init__(self, name: str):
        self.name, self._operations = name, IN_PLACE if name == "c10d" else OPERATIONS

    def __getattr__(self, name: str) -> Packet:
        if name not in self._operations:
            raise AttributeError(f"torch.ops.{self.name} has no {name!r}: there are {', '.join(self._operations)}")
        found = self.__dict__[name] = Packet(self.name, name, self._operations[name])
        return found

    def __dir__(self) -> list[str]:
        return list(self._operations)

    def __repr__(self) -> str:
        return f"<torch.ops.{self.name}>"


@cache
def library(name: str) -> Library:
    """Each is made once, so that `is` compares its operations."""
    return Library(name)


# -- the operations ---------------------------------------------------------------------------------------------------------


def _group(group_name: Any, group_size: int | None = None) -> Any:
    group = functional._resolve_group(group_name)
    if group_size is not None and group_size != group.size():
        raise RuntimeError(f"group_size is {group_size}, but the group {group_name!r} has {group.size()} ranks")
    return group


def all_reduce(input: Tensor, reduce_op: str, group_name: Any) -> Tensor:
    return functional.all_reduce(input, reduce_op, _group(group_name))


def all_gather_into_tensor(input: Tensor, group_size: int, group_name: Any) -> Tensor:
    return functional.all_gather_single(input, 0, _group(group_name, group_size))


def reduce_scatter_tensor(input: Tensor, reduce_op: str, group_size: int, group_name: Any) -> Tensor:
    return functional.reduce_scatter_single(input, reduce_op, 0, _group(group_name, group_size))


def all_to_all_single(input: Tensor, output_split_sizes: list[int], input_split_sizes: list[int], group_name: Any) -> Tensor:
    return functional.all_to_all_single(input, output_split_sizes, input_split_sizes, _group(group_name))


def broadcast(input: Tensor, src: int, group_name: Any) -> Tensor:
    return functional.broadcast(input, src, _group(group_name))


def wait_tensor(tensor: Tensor) -> Tensor:
    return functional.wait_tensor(tensor)


def _wrap_tensor_autograd(input: Tensor) -> Tensor:
    """A tensor that waits for its values when it is used, of one whose values are on their way: they are there when a collective returns."""
    return input


def _in_place(op: Callable) -> Callable:
    return lambda input, *args, **kwargs: input.copy_(op(input, *args, **kwargs))


def _out(op: Callable) -> Callable:
    return lambda input, *args, out, **kwargs: out.copy_(op(input, *args, **kwargs))


def _coalesced(op: Callable) -> Callable:
    return lambda inputs, *args, **kwargs: [op(x, *args, **kwargs) for x in inputs]


OPERATIONS: dict[str, Callable] = {
    "all_reduce": all_reduce,
    "all_reduce_": _in_place(all_reduce),
    "all_reduce_coalesced": _coalesced(all_reduce),
    "all_reduce_coalesced_": _coalesced(_in_place(all_reduce)),
    "all_gather_into_tensor": all_gather_into_tensor,
    "all_gather_into_tensor_out": _out(all_gather_into_tensor),
    "all_gather_into_tensor_coalesced": _coalesced(all_gather_into_tensor),
    "reduce_scatter_tensor": reduce_scatter_tensor,
    "reduce_scatter_tensor_out": _out(reduce_scatter_tensor),
    "reduce_scatter_tensor_coalesced": _coalesced(reduce_scatter_tensor),
    "all_to_all_single": all_to_all_single,
    "broadcast": broadcast,
    "broadcast_": _in_place(broadcast),
    "wait_tensor": wait_tensor,
    "_wrap_tensor_autograd": _wrap_tensor_autograd,
}
# torch.ops.c10d: what the functions of torch.distributed are made of in PyTorch. They are names for whoever counts or lists them.
IN_PLACE: dict[str, Callable] = {
    function.__name__: function
    for function in import_only.functions(
        "torch.ops.c10d",
        """_allgather_base_ _reduce_scatter_base_ allgather_ allgather_coalesced_ allgather_into_tensor_coalesced_ allreduce_ allreduce_coalesced_
        alltoall_ alltoall_base_ barrier broadcast_ gather_ recv_ recv_any_source_ reduce_ reduce_scatter_ reduce_scatter_tensor_coalesced_
        scatter_ send""",
        "the functions of torch.distributed, and the methods of a process group, are not made of operations here: call them",
    )
}
