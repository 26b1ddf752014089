"""Objects on the way between processes: anything that pickle takes, as bytes in tensors.

    objects = [None] * get_world_size()
    all_gather_object(objects, {"loss": 0.5})

# Note [whose pickles are loaded]
`pickle.loads` runs what its bytes say, so only bytes of this program are loaded: each object carries an authentication code (HMAC-SHA256)
under a key that the processes of a program share (`session_key.py`). What carries another code is not loaded, and raises RuntimeError.
Ranks of one program trust each other: an object of one of them can make the others run anything.
"""

from __future__ import annotations

import hmac
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from flambeau.devices import device as as_device
from flambeau.distributed.collectives.all_gather import all_gather
from flambeau.distributed.collectives.broadcast import broadcast
from flambeau.distributed.collectives.gather import _validate_output_list_for_rank, gather
from flambeau.distributed.collectives.point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from flambeau.distributed.collectives.ranks import _canonicalize_group_rank, _check_not_self_rank, get_global_rank
from flambeau.distributed.collectives.scatter import scatter
from flambeau.distributed.collectives.world import _get_object_coll_device, _group_or_default_group, stays_out
from flambeau.distributed.session_key import session_key
from flambeau.dtypes import int64, uint8
from flambeau.ops.joining import cat
from flambeau.tensor.making import factories

if TYPE_CHECKING:
    from flambeau.devices import device
    from flambeau.distributed.groups import ProcessGroup
    from flambeau.tensor import Tensor

__all__ = [
    "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list", "scatter_object_list", "send_object_list",
]  # fmt: skip

CODE = 32  # bytes of an authentication code, in front of each object's pickle


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Put the objects of all ranks into `object_list`, that of number n in the group at place n."""
    if stays_out(group, "all_gather_object"):
        return
    pg = _group_or_default_group(group)
    place = as_device(_get_object_coll_device(group))
    message, size = _object_to_tensor(obj, place, group)
    sizes = _gathered_sizes(size, pg, group)
    if len(object_list) < len(sizes):
        raise IndexError(
            f"all_gather_object: list assignment index out of range: object_list has {len(object_list)} places for {len(sizes)} objects"
        )
    rows = [factories.empty(max(sizes), dtype=uint8, device=place) for _ in sizes]
    all_gather(rows, _grown(message, max(sizes)), group=group)
    for rank, (row, length) in enumerate(zip(rows, sizes, strict=True)):
        object_list[rank] = _tensor_to_object(row, length, group)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
) -> None:
    """Put the objects of all ranks into `object_gather_list` of rank `dst` (0 unless given); the others pass no list."""
    pg = _group_or_default_group(group)
    root = _canonicalize_group_rank(pg, 0 if dst is None and group_dst is None else dst, group_dst)
    _validate_output_list_for_rank(pg.rank(), root, object_gather_list)
    place = as_device(_get_object_coll_device(group))
    message, size = _object_to_tensor(obj, place, group)
    sizes = _gathered_sizes(size, pg, group)
    collects = pg.rank() == root
    rows = [factories.empty(max(sizes), dtype=uint8, device=place) for _ in sizes] if collects else None
    gather(_grown(message, max(sizes)), rows, group=group, group_dst=root)
    if rows is None or object_gather_list is None:
        return
    for rank, (row, length) in enumerate(zip(rows, sizes, strict=True)):
        object_gather_list[rank] = _tensor_to_object(row, length, group)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: device | None = None,
    group_src: int | None = None,
) -> None:
    """Put the objects in the list of rank `src` (0 unless given) into the lists of all ranks, which are as long."""
    pg = _group_or_default_group(group)
    root = _canonicalize_group_rank(pg, 0 if src is None and group_src is None else src, group_src)
    if len(object_list) == 0:
        raise ValueError("broadcast_object_list: object_list is empty (not enough values), pass a list with a place for each object")
    place = as_device(device or _get_object_coll_device(group))
    sends = pg.rank() == root
    messages, sizes = _objects_to_tensors(object_list, place, group) if sends else ([], [])
    lengths = factories.tensor(sizes, dtype=int64, device=place) if sends else factories.empty(len(object_list), dtype=int64, device=place)
    broadcast(lengths, group=group, group_src=root)
    sizes = lengths.tolist()
    whole = _joined(messages) if sends else factories.empty(sum(sizes), dtype=uint8, device=place)
    broadcast(whole, group=group, group_src=root)
    if not sends:
        _fill(object_list, whole, sizes, group)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
) -> None:
    """Put object n of the input list of rank `src` (0 unless given) at place 0 of the output list of number n in the group."""
    pg = _group_or_default_group(group)
    root = _canonicalize_group_rank(pg, 0 if src is None and group_src is None else src, group_src)
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1: the object is put at its first place"
        )
    place = as_device(_get_object_coll_device(group))
    sends = pg.rank() == root
    messages: list[Tensor] = []
    sizes: list[int] = []
    if sends:
        if scatter_object_input_list is None:
            raise ValueError("source rank must provide non-None scatter_object_input_list")
        if len(scatter_object_input_list) != pg.size():
            raise RuntimeError(
                f"scatter_object_list: Incorrect input list size {len(scatter_object_input_list)}. Input list size should be {pg.size()}, "
                "same as size of the process group."
            )
        messages, sizes = _objects_to_tensors(scatter_object_input_list, place, group)
    longest = factories.tensor([max(sizes, default=0)], dtype=int64, device=place)
    broadcast(longest, group=group, group_src=root)
    room = int(longest.item())
    size = factories.empty(1, dtype=int64, device=place)
    own_sizes = [factories.tensor([length], dtype=int64, device=place) for length in sizes]
    scatter(size, own_sizes if sends else None, group=group, group_src=root)
    message = factories.empty(room, dtype=uint8, device=place)
    scatter(message, [_grown(one, room) for one in messages] if sends else None, group=group, group_src=root)
    scatter_object_output_list[0] = _tensor_to_object(message, int(size.item()), group)


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: ProcessGroup | None = None,
    device: device | None = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the objects of a list to rank `dst`, which calls recv_object_list with a list as long."""
    pg = _group_or_default_group(group)
    to = _canonicalize_group_rank(pg, dst, group_dst)
    _check_not_self_rank(pg, to, "destination")
    place = as_device(device or _get_object_coll_device(group))
    messages, sizes = _objects_to_tensors(object_list, place, group)
    for tensor in (factories.tensor(sizes, dtype=int64, device=place), _joined(messages)):
        if use_batch:
            batch_isend_irecv([P2POp(isend, tensor, group=pg, group_peer=to)])[0].wait()
        else:
            send(tensor, group=group, group_dst=to)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: device | None = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Put the objects that rank `src`, or without one whoever is first, sends into a list, and return who it was."""
    pg = _group_or_default_group(group)
    place = as_device(device or _get_object_coll_device(group))
    source = None if src is None and group_src is None else _canonicalize_group_rank(pg, src, group_src)
    if source is not None:
        _check_not_self_rank(pg, source, "source")
    sizes = factories.empty(len(object_list), dtype=int64, device=place)
    if use_batch and source is not None:
        batch_isend_irecv([P2POp(irecv, sizes, group=pg, group_peer=source)])[0].wait()
        sender = get_global_rank(pg, source)
    else:
        sender = recv(sizes, group=group, group_src=source)
    lengths = sizes.tolist()
    whole = factories.empty(sum(lengths), dtype=uint8, device=place)
    if use_batch:
        batch_isend_irecv([P2POp(irecv, whole, peer=sender, group=pg)])[0].wait()
    else:
        recv(whole, src=sender, group=group)
    _fill(object_list, whole, lengths, group)
    return sender


def _object_to_tensor(obj: Any, device: Any, group: ProcessGroup | None) -> tuple[Tensor, Tensor]:
    """An object as bytes, its authentication code before them, and how many there are."""
    content = pickle.dumps(obj)
    code = hmac.digest(session_key(), content, "sha256")
    message = factories.frombuffer(bytearray(code + content), dtype=uint8)
    return message.to(device), factories.tensor([message.numel()], dtype=int64, device=device)


def _tensor_to_object(tensor: Tensor, tensor_size: Any, group: ProcessGroup | None) -> Any:
    """The object of the first bytes of a tensor. RuntimeError if they do not come from this program."""
    content = np.ascontiguousarray(tensor.cpu()._array).data.cast("B")[: int(tensor_size)]
    code, content = bytes(content[:CODE]), content[CODE:]
    if not hmac.compare_digest(code, hmac.digest(session_key(), content, "sha256")):
        raise RuntimeError(
            "an object has arrived whose authentication code is wrong, and was not unpickled: it does not come from this program, or its bytes are not "
            "what was sent. Do all ranks call the same object collective?"
        )
    return pickle.loads(content)


def _objects_to_tensors(objects: list[Any], place: Any, group: ProcessGroup | None) -> tuple[list[Tensor], list[int]]:
    messages = [_object_to_tensor(obj, place, group)[0] for obj in objects]
    return messages, [message.numel() for message in messages]


def _gathered_sizes(size: Tensor, pg: ProcessGroup, group: ProcessGroup | None) -> list[int]:
    sizes = [factories.empty(1, dtype=int64, device=size.device) for _ in range(pg.size())]
    all_gather(sizes, size, group=group)
    return [int(one.item()) for one in sizes]


def _joined(messages: list[Tensor]) -> Tensor:
    return messages[0] if len(messages) == 1 else cat(messages)


def _grown(message: Tensor, room: int) -> Tensor:
    """The message, with as much behind it as makes it `room` long."""
    if message.numel() == room:
        return message
    whole = factories.zeros(room, dtype=uint8, device=message.device)
    whole[: message.numel()] = message
    return whole


def _fill(objects: list[Any], whole: Tensor, sizes: list[int], group: ProcessGroup | None) -> None:
    start = 0
    for place, size in enumerate(sizes):
        objects[place] = _tensor_to_object(whole[start : start + size], size, group)
        start += size
