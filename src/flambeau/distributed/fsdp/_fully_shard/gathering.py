"""All pieces -> whole parameters, in one collective.

    this rank's pieces, one after the other    a0 b0 c0
    what arrives, from all ranks               a0 b0 c0 | a1 b1 c1
    whole parameters, in memory of their own   a0 a1 | b0 b1 | c0 c1

Parameters of several dtypes take a collective for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.distributed.fsdp._fully_shard.copying import copied, flat
from flambeau.distributed.fsdp._fully_shard.meshes import Meshes
from flambeau.distributed.fsdp._fully_shard.policies import AllGather
from flambeau.distributed.fsdp._fully_shard.sharded_param import ShardedParam
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty


class Gathering:
    """An all-gather under way, of parameters that become whole in one dtype."""

    def __init__(self, params: Sequence[ShardedParam], meshes: Meshes, dtype: Any, device: Any, comm: AllGather, *, async_op: bool):
        self.params, self.ranks, self.dtype, self.device = params, meshes.shard_size, dtype, device
        self.sizes = [p.size_of_piece(self.ranks) for p in params]
        self.floating = dtype.is_floating_point  # what can be copied by a loop over floating-point numbers
        total = sum(self.sizes)
        self.own = comm.allocate((total,), dtype=dtype, device=device)  # kept until it has been sent
        copied(*self._own_pieces())
        self.work: Any = None
        self.all = self.own
        if self.ranks > 1:
            self.all = comm.allocate((self.ranks * total,), dtype=dtype, device=device)
            self.work = comm(self.all, self.own, meshes.shard_group, async_op)

    def wait(self) -> None:
        """Until all pieces are here."""
        if self.work is not None:
            self.work.wait()
            self.work = None

    def whole(self) -> Tensor:
        """The memory of the whole parameters, one after the other; they are put into it."""
        self.wait()
        in_order = self.ranks == 1 or (len(self.params) == 1 and self.params[0].dim == 0)
        found = self.all if in_order else empty(self.all.shape, dtype=self.dtype, device=self.device)
        if not in_order:
            self._join(found)
        for param, place in zip(self.params, found.split([self.ranks * size for size in self.sizes]), strict=True):
            param.hold_whole(place)
        return found

    def _own_pieces(self) -> tuple[list, list]:
        """Where this rank's pieces are sent from, and the pieces; those of another dtype, or from elsewhere, are there when this returns."""
        places, values, start = [], [], 0
        for param, size in zip(self.params, self.sizes, strict=True):
            piece = param.piece
            if self.floating and piece.dtype == self.dtype and piece.device == self.device:
                places.append(self.own._array[start : start + piece.numel()])
                values.append(flat(piece))
            else:
                self.own.narrow(0, start, piece.numel()).copy_(piece.reshape(-1))
            start += size
        return places, values

    def _join(self, found: Tensor) -> None:
        """Put the pieces of all ranks beside each other."""
        source, target = self.all._array, found._array
        places, values, total, start = [], [], sum(self.sizes), 0
        for param, size in zip(self.params, self.sizes, strict=True):
            if param.dim == 0 and self.floating:
                for rank in range(self.ranks):
                    values.append(source[rank * total + start : rank * total + start + size])
                    places.append(target[self.ranks * start + rank * size : self.ranks * start + (rank + 1) * size])
            else:
                pieces = self.all.view(self.ranks, total).narrow(1, start, size)
                param.join(pieces, found.narrow(0, self.ranks * start, self.ranks * size))
            start += size
        copied(places, values)
