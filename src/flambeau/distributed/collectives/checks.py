"""Checks of what a collective is given, before anything is sent: a mistake that only one rank makes is told on that rank, at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.distributed.reduce_op import ReduceOp
from flambeau.tensor import Tensor
from flambeau.tensor.layouts import strided

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup

UNORDERED = (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def check_op(op: Any, function: str) -> None:
    """TypeError for what is no reduction."""
    if not isinstance(op, ReduceOp):
        raise TypeError(f"{function}: op takes a member of ReduceOp, such as ReduceOp.SUM, not {op!r}")
    if op is ReduceOp.PREMUL_SUM:
        raise TypeError(f"{function}: ReduceOp.PREMUL_SUM needs its factor: ReduceOp.PREMUL_SUM(0.5)")


def supports_complex(reduceOp: Any) -> bool:
    """Whether complex numbers can be reduced like this: they can be added, and have no order.

    >>> supports_complex(ReduceOp.SUM), supports_complex(ReduceOp.MAX)
    (True, False)
    """
    return not any(reduceOp is denied for denied in UNORDERED)


def refuse_complex(tensor: Tensor, op: Any, function: str, error: type[Exception] = ValueError) -> None:
    """An error for complex tensors with a reduction that has no meaning for them."""
    if tensor.is_complex() and getattr(op, "op", op) in UNORDERED:
        raise error(
            f"{function} does not support {op} on complex tensors: SUM and AVG work. Send torch.view_as_real(tensor) to reduce the parts"
        )


def _check_single_tensor(param: Any, param_name: str) -> None:
    """TypeError for an argument that is no tensor."""
    if not isinstance(param, Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{param_name}` of type torch.Tensor but got {type(param).__name__} instead."
        )


def _check_tensor_list(param: Any, param_name: str) -> None:
    """TypeError for an argument that is no list of tensors."""
    if not isinstance(param, list):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{param_name}` of type List[torch.Tensor] but got {type(param).__name__} instead."
        )
    for place, one in enumerate(param):
        if not isinstance(one, Tensor):
            raise TypeError(
                f"Invalid function argument. Expected parameter `{param_name}` of type List[torch.Tensor], but element {place} is a {type(one).__name__}."
            )


def _ensure_all_tensors_same_dtype(*tensors: Any) -> None:
    """ValueError for tensors, or lists of them, of several dtypes."""
    first = None
    for tensor in _flat(tensors):
        if first is None:
            first = tensor.dtype
        elif tensor.dtype != first:
            raise ValueError(
                f"Invalid usage of tensors with different dtypes: found {first} and {tensor.dtype}. Convert with tensor.to(dtype) first"
            )


def _flat(tensors: Any) -> Any:
    for one in tensors:
        if isinstance(one, Tensor):
            yield one
        else:
            yield from _flat(one)


def check_root(pg: ProcessGroup, rank: int, function: str) -> None:
    """RuntimeError for a rank that the group does not have."""
    if type(rank) is not int:
        if not hasattr(rank, "__index__"):
            raise TypeError(f"{function}: a rank is an int, not {rank!r}")
        rank = rank.__index__()
    if not 0 <= rank < pg.size():
        raise RuntimeError(f"{function}: invalid root rank: {rank}. The group has ranks 0 to {pg.size() - 1}")


def check_count(tensors: Sequence[Any], pg: ProcessGroup, function: str, argument: str) -> None:
    """RuntimeError for a list that is not as long as the group is large."""
    if len(tensors) != pg.size():
        raise RuntimeError(
            f"{function}: {argument} takes one tensor for each rank of the group (expected length {pg.size()}, got {len(tensors)})"
        )


def check_alike(tensors: Sequence[Tensor], like: Tensor, function: str, argument: str) -> None:
    """RuntimeError for a tensor in a list that has another shape."""
    shape = like.shape
    for place, tensor in enumerate(tensors):
        if tensor.shape != shape:
            raise RuntimeError(
                f"{function}: invalid tensor size at index {place} of {argument} (expected {tuple(shape)}, got {tuple(tensor.shape)})"
            )


def check_dense(tensor: Tensor, function: str) -> None:
    """NotImplementedError for tensors that are not strided: they have several parts, and their lengths differ between ranks."""
    if tensor.layout is not strided:
        raise NotImplementedError(
            f"{function} of a tensor of layout {tensor.layout}: send tensor.indices() and tensor.values(), or tensor.to_dense()"
        )
