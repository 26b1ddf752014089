"""send and recv: one rank's tensor, on one other rank. isend and irecv do not wait. A list of both runs in batch_isend_irecv.

if rank == 0:
    send(tensor, 1)
if rank == 1:
    recv(tensor, 0)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.distributed.collectives.checks import _check_single_tensor
from flambeau.distributed.collectives.coalescing import _coalescing_manager
from flambeau.distributed.collectives.ranks import _canonicalize_group_rank, _check_not_self_rank, get_global_rank
from flambeau.distributed.collectives.world import GroupMember, _group_or_default_group, stays_out

if TYPE_CHECKING:
    from flambeau.distributed.groups import ProcessGroup, Work
    from flambeau.tensor import Tensor

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]


def send(tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to rank `dst`, and wait until it may be written to again. `tag` tells messages between the same two ranks apart."""
    pg = _group_or_default_group(group)
    to = _canonicalize_group_rank(pg, dst, group_dst)
    _check_not_self_rank(pg, to, "destination")
    _check_single_tensor(tensor, "tensor")
    _check_peer(pg, to, "send")
    pg.send([tensor], to, tag, **_at_once(pg)).wait()


def isend(
    tensor: Tensor, dst: int | None = None, group: ProcessGroup | None = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Begin to send a tensor to rank `dst`: it must not be written to before `wait()` of what this returns."""
    pg = group if group == GroupMember.NON_GROUP_MEMBER else _group_or_default_group(group)
    to = _canonicalize_group_rank(pg, dst, group_dst)
    _check_single_tensor(tensor, "tensor")
    if stays_out(group, "isend"):
        return None
    _check_peer(pg, to, "isend")
    return pg.send([tensor], to, tag)


def recv(tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0, group_src: int | None = None) -> int:
    """Write what rank `src`, or without one whoever comes first, sends into `tensor`, and return who it was; -1 outside of the group."""
    work = _receive(tensor, src, group, tag, group_src, wait=True)
    if work is None:
        return -1
    work.wait()
    if src is None and group_src is None:
        source = work._source_rank()
        return get_global_rank(_group_or_default_group(group), source)
    return _canonicalize_group_rank(_group_or_default_group(group), src, group_src, return_global=True)


def irecv(
    tensor: Tensor, src: int | None = None, group: ProcessGroup | None = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Begin to receive: the tensor is there after `wait()` of what this returns."""
    return _receive(tensor, src, group, tag, group_src, wait=False)


def _receive(tensor: Tensor, src: int | None, group: ProcessGroup | None, tag: int, group_src: int | None, wait: bool) -> Work | None:
    _check_single_tensor(tensor, "tensor")
    if stays_out(group, "irecv"):
        return None
    pg = _group_or_default_group(group)
    how = _at_once(pg) if wait else {}
    if src is None and group_src is None:
        return pg.recv_anysource([tensor], tag, **how)
    source = _canonicalize_group_rank(pg, src, group_src)
    _check_peer(pg, source, "irecv")
    return pg.recv([tensor], source, tag, **how)


def _at_once(pg: ProcessGroup) -> dict[str, bool]:
    """What tells a group of ours that the message is waited for, which spares it a thread. A program's own class knows no such option."""
    return {"wait": True} if type(pg).__module__.startswith("flambeau.") else {}


def _check_peer(pg: ProcessGroup, rank: int, function: str) -> None:
    """RuntimeError for a rank that the group does not have, or that is this one: it would wait for itself."""
    if not 0 <= rank < pg.size():
        raise RuntimeError(f"{function}: there is no rank {rank} in a group of {pg.size()}: its ranks are 0 to {pg.size() - 1}")
    if rank == pg.rank():
        raise RuntimeError(f"{function}: rank {rank} is this process itself. A process does not send to itself: copy the tensor instead")


class P2POp:
    """A message of batch_isend_irecv: `op` is isend or irecv, `peer` the other rank, or `group_peer` its number in the group."""

    op: Callable
    tensor: Tensor
    group: ProcessGroup
    group_peer: int
    peer: int
    tag: int

    def __init__(
        self,
        op: Callable,
        tensor: Tensor,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ):
        _check_op(op)
        _check_single_tensor(tensor, "tensor")
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = group if group == GroupMember.NON_GROUP_MEMBER else _group_or_default_group(group)
        self.peer = _canonicalize_group_rank(self.group, peer, group_peer, return_global=True)
        self.group_peer = _canonicalize_group_rank(self.group, self.peer)

    def __repr__(self) -> str:
        me, other = self.group.rank(), self.group_peer
        sending = self.op is isend
        source, destination = (me, other) if sending else (other, me)
        return (
            f"P2POp({self.op.__name__} pg={self.group.group_name}, group_src={source}, group_dst={destination},  "
            f"{self.tensor.shape}, {self.tensor.dtype})"
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin all of these messages, in any order that makes progress, and return what to wait for.

    Two ranks that each send and receive write the same list of both on either side, with no fear of a deadlock.
    """
    _check_p2p_op_list(p2p_op_list)
    if not p2p_op_list:
        raise IndexError("batch_isend_irecv: list index out of range: p2p_op_list is empty")
    pg, device = p2p_op_list[0].group, p2p_op_list[0].tensor.device
    ask = getattr(pg, "_get_backend", None)
    if ask is not None and getattr(ask(device), "supports_coalescing", False):
        with _coalescing_manager(pg, device, async_ops=True) as manager:
            for one in p2p_op_list:
                _begin(one)
        return manager.works
    works = [_begin(one) for one in p2p_op_list]
    return [work for work in works if work is not None]


def _begin(message: P2POp) -> Work | None:
    return message.op(message.tensor, group=message.group, tag=message.tag, **_peer_of(message))


def _peer_of(message: P2POp) -> dict[str, int]:
    return {"group_dst" if message.op is isend else "group_src": message.group_peer}


def _check_op(op: Any) -> None:
    """ValueError for what a batch cannot begin."""
    if op not in (isend, irecv):
        raise ValueError(
            f"Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``, not {op!r}."
        )


def _check_p2p_op_list(p2p_op_list: Any) -> None:
    """ValueError for what is no list of messages of one group."""
    if not isinstance(p2p_op_list, list) or not all(isinstance(one, P2POp) for one in p2p_op_list):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to be of type ``torch.distributed.P2POp``: [P2POp(isend, tensor, 1), ...]"
        )
    if any(one.group is not p2p_op_list[0].group for one in p2p_op_list):
        raise ValueError("All ops need to use the same group: make one batch_isend_irecv for each group")
