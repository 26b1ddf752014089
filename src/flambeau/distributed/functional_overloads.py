"""`torch.ops._c10d_functional`: the functional collectives by the names of PyTorch's operations, for those who list them (policies of selective
checkpoints) or call them.

    torch.ops._c10d_functional.all_reduce.default       can be compared, put into a set, and called
    torch.ops._c10d_functional.all_reduce(x, "sum", group.group_name)

What they return is what the functions of `_functional_collectives` return. Those that write into a tensor (`all_reduce_`, `..._out`) have written it when
they return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

    def __init__(self, namespace: str, function: Callable):
        self.namespace, self.__name__, self._function = namespace, function.__name__, function
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
        found = self.__dict__[name] = Packet(self.name, self._operations[name])
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


def all_reduce_(input: Tensor, reduce_op: str, group_name: Any) -> Tensor:
    return input.copy_(all_reduce(input, reduce_op, group_name))


def all_reduce_coalesced(inputs: Sequence[Tensor], reduce_op: str, group_name: Any) -> list[Tensor]:
    return [all_reduce(x, reduce_op, group_name) for x in inputs]


def all_reduce_coalesced_(inputs: Sequence[Tensor], reduce_op: str, group_name: Any) -> list[Tensor]:
    return [x.copy_(found) for x, found in zip(inputs, all_reduce_coalesced(inputs, reduce_op, group_name), strict=True)]


def all_gather_into_tensor(input: Tensor, group_size: int, group_name: Any) -> Tensor:
    return functional.all_gather_single(input, 0, _group(group_name, group_size))


def all_gather_into_tensor_out(input: Tensor, group_size: int, group_name: Any, *, out: Tensor) -> Tensor:
    return out.copy_(all_gather_into_tensor(input, group_size, group_name))


def all_gather_into_tensor_coalesced(inputs: Sequence[Tensor], group_size: int, group_name: Any) -> list[Tensor]:
    return [all_gather_into_tensor(x, group_size, group_name) for x in inputs]


def reduce_scatter_tensor(input: Tensor, reduce_op: str, group_size: int, group_name: Any) -> Tensor:
    return functional.reduce_scatter_single(input, reduce_op, 0, _group(group_name, group_size))


def reduce_scatter_tensor_out(input: Tensor, reduce_op: str, group_size: int, group_name: Any, *, out: Tensor) -> Tensor:
    return out.copy_(reduce_scatter_tensor(input, reduce_op, group_size, group_name))


def reduce_scatter_tensor_coalesced(inputs: Sequence[Tensor], reduce_op: str, group_size: int, group_name: Any) -> list[Tensor]:
    return [reduce_scatter_tensor(x, reduce_op, group_size, group_name) for x in inputs]


def all_to_all_single(input: Tensor, output_split_sizes: list[int], input_split_sizes: list[int], group_name: Any) -> Tensor:
    return functional.all_to_all_single(input, output_split_sizes, input_split_sizes, _group(group_name))


def broadcast(input: Tensor, src: int, group_name: Any) -> Tensor:
    return functional.broadcast(input, src, _group(group_name))


def broadcast_(input: Tensor, src: int, group_name: Any) -> Tensor:
    return input.copy_(broadcast(input, src, group_name))


def wait_tensor(tensor: Tensor) -> Tensor:
    return functional.wait_tensor(tensor)


def _wrap_tensor_autograd(input: Tensor) -> Tensor:
    """A tensor that waits for its values when it is used, of one whose values are on their way: they are there when a collective returns."""
    return input


OPERATIONS: dict[str, Callable] = {
    function.__name__: function
    for function in (
        *(all_reduce, all_reduce_, all_reduce_coalesced, all_reduce_coalesced_, all_gather_into_tensor, all_gather_into_tensor_out),
        *(all_gather_into_tensor_coalesced, reduce_scatter_tensor, reduce_scatter_tensor_out, reduce_scatter_tensor_coalesced),
        *(all_to_all_single, broadcast, broadcast_, wait_tensor, _wrap_tensor_autograd),
    )
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
