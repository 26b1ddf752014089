"""The same model on all ranks: is it, and making it so. Whoever differs is named.

A digest of names, shapes and dtypes is compared first; only where digests differ do the descriptions travel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from flambeau import modes
from flambeau.distributed import options
from flambeau.distributed.data_parallel.assignment import MEBIBYTE, assign_by_size
from flambeau.distributed.data_parallel.grad_bucket import views
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import zeros
from flambeau.tensor.making.interop import from_numpy

AT_ONCE = 250 * MEBIBYTE  # bytes that are broadcast together


def check(group: Any, tensors: Sequence[Tensor], names: Sequence[str] = ()) -> None:
    """RuntimeError on every rank, if the tensors are not as many, of the same shapes and dtypes and in the same order on all of them."""
    named = zip(names or [""] * len(tensors), tensors, strict=True)
    described = [[name, list(t.shape), str(t.dtype), bool(t.requires_grad)] for name, t in named]
    text = json.dumps(described).encode()
    digests = _all_gather(group, np.frombuffer(blake2b(text, digest_size=16).digest(), np.uint8).copy())
    if all((digest == digests[0]).all() for digest in digests):
        return
    lengths = [int(found[0]) for found in _all_gather(group, np.array([len(text)], np.int64))]
    padded = np.zeros(max(lengths), np.uint8)
    padded[: len(text)] = np.frombuffer(text, np.uint8)
    everyone = [json.loads(found[:length].tobytes()) for found, length in zip(_all_gather(group, padded), lengths, strict=True)]
    problem = difference(everyone, list(getattr(group, "ranks", None) or range(group.size())))
    if problem:
        raise RuntimeError(problem)


def difference(models: Sequence[Sequence[list]], ranks: Sequence[int]) -> str:
    """A sentence about the first thing in which the models of the ranks differ: each a list of [name, shape, dtype, requires_grad].

    >>> print(difference([[["w", [2, 3], "float32", True]], [["w", [2, 4], "float32", True]]], [0, 1]))
    DDP expects the same model on all ranks, and parameter 0 is not the same:
        rank 0   w   shape (2, 3)   float32
        rank 1   w   shape (2, 4)   float32
        try      every rank builds its model from the same numbers: none of its sizes may depend on the rank or on its share of the data
    """
    if len({len(model) for model in models}) > 1:
        lines = "\n".join(
            f"    rank {rank}   {len(model)} parameters{_extra(model, models)}" for rank, model in zip(ranks, models, strict=True)
        )
        return f"DDP expects same model across all ranks, and the numbers of parameters that require a gradient differ:\n{lines}"
    for place, found in enumerate(zip(*models, strict=True)):
        if any(one[1:3] != found[0][1:3] for one in found):
            lines = "\n".join(f"    rank {rank}   {_said(one)}" for rank, one in zip(ranks, found, strict=True))
            return (
                f"DDP expects the same model on all ranks, and parameter {place} is not the same:\n{lines}\n"
                "    try      every rank builds its model from the same numbers: none of its sizes may depend on the rank or on its share of the data"
            )
    return ""


def _said(one: list) -> str:
    name, shape, dtype, _ = one
    return f"{name or 'parameter'}   shape {tuple(shape)}   {dtype.removeprefix('torch.')}"


def _extra(model: Sequence[list], models: Sequence[Sequence[list]]) -> str:
    """Which of a rank's parameters not all ranks have."""
    everywhere = set.intersection(*({one[0] for one in other} for other in models))
    extra = [one[0] for one in model if one[0] not in everywhere]
    return f", among them {', '.join(extra[:5])}" if extra else ""


def _all_gather(group: Any, array: np.ndarray) -> list[np.ndarray]:
    own = from_numpy(array)
    found = [zeros(own.shape, dtype=own.dtype) for _ in range(group.size())]
    group.allgather([found], [own], options.AllgatherOptions(asyncOp=False)).wait()
    return [one.numpy() for one in found]


def broadcast(group: Any, tensors: Sequence[Tensor], src: int = 0, buffer_size: int = AT_ONCE) -> None:
    """Overwrite the tensors with those of rank `src` of the group; many small ones travel as one."""
    tensors = [tensor for tensor in tensors if tensor.numel()]
    if not tensors or group.size() == 1:
        return
    opts = options.BroadcastOptions(rootRank=src, asyncOp=False)
    own = group.rank() == src
    with modes.recording(False):
        for indices in assign_by_size(tensors, [buffer_size])[0]:
            chosen = [tensors[i].detach() for i in indices]
            flat = zeros(sum(t.numel() for t in chosen), dtype=chosen[0].dtype, device=chosen[0].device)
            pieces = views(flat, chosen)
            if own:
                for piece, t in zip(pieces, chosen, strict=True):
                    piece.copy_(t)
            group.broadcast([flat], opts).wait()
            if not own:
                for piece, t in zip(pieces, chosen, strict=True):
                    t.copy_(piece)
