"""What the methods of a process group refuse: lists of the wrong length, ranks that are not there. RuntimeError, as in PyTorch.

The functions of `torch.distributed` check what they are given before, so these are for programs that call the methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from flambeau.tensor import Tensor


def single(tensors: Sequence[Tensor], name: str, which: str = "tensor list") -> None:
    """One tensor: PyTorch's methods take several, one for each GPU of a process, which is not done here."""
    if not len(tensors):
        raise RuntimeError(f"ProcessGroup.{name}: requires non-empty {which}")
    if len(tensors) > 1:
        raise NotImplementedError(
            f"ProcessGroup.{name}: a process has one tensor in a collective, and {which} has {len(tensors)}. Call it for each"
        )


def alone(tensors: Sequence[Any], name: str, which: str) -> None:
    """One, in PyTorch, too."""
    if len(tensors) != 1:
        raise RuntimeError(f"ProcessGroup.{name}: requires a single-element {which}, found {len(tensors)} elements")


def root(opts: Any, size: int, name: str) -> None:
    """A root that is one of the group's ranks."""
    if not 0 <= opts.rootRank < size:
        raise RuntimeError(f"ProcessGroup.{name}: invalid root rank: {opts.rootRank}. The group has ranks 0 to {size - 1}")
    if getattr(opts, "rootTensor", 0) != 0:
        raise RuntimeError(f"ProcessGroup.{name}: invalid root tensor: {opts.rootTensor}. A process has one tensor, number 0")


def for_all(lists: Sequence[Any], here: bool, size: int, name: str, which: str) -> None:
    """[a tensor for each rank] on the root, and nothing elsewhere."""
    if not here:
        if len(lists):
            raise RuntimeError(f"ProcessGroup.{name}: requires empty {which} on non-root, found {len(lists)} elements")
        return
    alone(lists, name, f"{which} list")
    if len(lists[0]) != size:
        raise RuntimeError(
            f"ProcessGroup.{name}: Incorrect {which} list size {len(lists[0])}. {which.capitalize()} list size should be {size}, same as size of the process group."
        )


def gathered(outputs: Sequence[Any], tensors: Sequence[Tensor], size: int) -> None:
    """allgather: for the tensor of this rank a list of one for each rank."""
    single(tensors, "allgather", "input tensor list")
    if len(outputs) != len(tensors):
        raise RuntimeError(
            f"ProcessGroup.allgather: requires input/output tensor lists to have the same length, found {len(tensors)} and {len(outputs)}"
        )
    if len(outputs[0]) != size:
        raise RuntimeError(f"ProcessGroup.allgather: invalid output tensor list at index 0 (expected length {size}, got {len(outputs[0])})")


def exchanged(outputs: Sequence[Tensor], inputs: Sequence[Tensor], size: int) -> None:
    """alltoall: a tensor for each rank, and a place for one of each."""
    for which, tensors in (("input", inputs), ("output", outputs)):
        if len(tensors) != size:
            raise RuntimeError(f"ProcessGroup.alltoall: {which} tensor list size ({len(tensors)}) does not match world size ({size})")


def coalesced(tensors: Sequence[Tensor], name: str) -> None:
    """Tensors that travel as one."""
    if not len(tensors):
        raise RuntimeError(f"ProcessGroup.{name}: requires non-empty tensor list")
    for i, tensor in enumerate(tensors):
        if tensor.dtype != tensors[0].dtype:
            _unlike(name, f"tensors must all have the same type: {tensor.dtype} at index {i}, {tensors[0].dtype} at index 0")
        if tensor.layout != tensors[0].layout:
            _unlike(name, f"invalid tensor layout at index {i}: expected {tensors[0].layout}, got {tensor.layout}")


def _unlike(name: str, what: str) -> NoReturn:
    raise RuntimeError(f"ProcessGroup.{name}: {what}")
