"""Whole gradients -> pieces of their average, in one collective; with replicas in a second one, over the ranks that have the same pieces.

gradients, cut into pieces     a0 b0 c0 | a1 b1 c1     the same on all ranks: pieces for rank 0, then for rank 1
what arrives                   a0 b0 c0                sums, of the pieces of this rank
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau import dtypes
from flambeau.distributed.collectives.all_reduce import all_reduce
from flambeau.distributed.fsdp._fully_shard.copying import copied, flat
from flambeau.distributed.fsdp._fully_shard.meshes import Meshes
from flambeau.distributed.fsdp._fully_shard.policies import ReduceScatter
from flambeau.distributed.fsdp._fully_shard.sharded_param import ShardedParam
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.tensor import Tensor

ROBUST = (dtypes.float32, dtypes.bfloat16, dtypes.float64)  # sums over ranks do not overflow


@dataclass
class How:
    """How gradients are reduced.

    divisor     what sums are divided by
    replicates  whether sums are added up over replicas, too; if not, they are set aside
    aside       sums that were set aside by earlier passes
    hook        called with what becomes gradients of this rank's pieces: averages, or sums that are yet to be divided
    hook_sees_sums  which of the two
    """

    comm: ReduceScatter
    divisor: float
    replicates: bool = True
    aside: Tensor | None = None
    hook: Callable[[Tensor], Any] | None = None
    hook_sees_sums: bool = False


class Reduction:
    """Gradients under way.

    sums  of this rank's pieces, when `scattered` has been waited for
    """

    def __init__(self, params: Sequence[ShardedParam], meshes: Meshes, dtype: Any, device: Any, how: How):
        self.params, self.meshes, self.how = params, meshes, how
        self.sizes = [p.size_of_piece(meshes.shard_size) for p in params]
        before, self.after = _divisors(dtype, how.divisor)
        ranks, total = meshes.shard_size, sum(self.sizes)
        self.whole = how.comm.allocate((ranks * total,), dtype=dtype, device=device)  # kept until it has been sent
        self._cut(ranks, total)
        if before != 1:
            self.whole.div_(before)
        self.sums, self.scattered = self.whole, None
        if ranks > 1:
            self.sums = how.comm.allocate((total,), dtype=dtype, device=device)
            self.scattered = how.comm(self.sums, self.whole, meshes.reduce_group, ReduceOp.SUM, True)
        self.replicated: Any = None
        self.advanced = False

    def _cut(self, ranks: int, total: int) -> None:
        """Cut the gradients into pieces. What is no row of a parameter is zero."""
        if any(param.padded != param.shape[param.dim] for param in self.params):
            self.whole.zero_()
        target, places, values, start = self.whole._array, [], [], 0
        for param, size in zip(self.params, self.sizes, strict=True):
            grad, param.accumulated = param.accumulated, None
            assert grad is not None
            if param.dim == 0:
                elements = flat(grad)
                for rank in range(ranks):
                    part = elements[rank * size : (rank + 1) * size]
                    values.append(part)
                    places.append(target[rank * total + start : rank * total + start + len(part)])
            else:
                param.cut(grad, self.whole.view(ranks, total).narrow(1, start, size))
            start += size
        copied(places, values)

    def advance(self) -> None:
        """Wait for the first collective, and begin the second, if there is one."""
        if self.advanced:
            return
        self.advanced = True
        if self.scattered is not None:
            self.scattered.wait()
        self.scattered = self.whole = None
        if self.how.aside is not None:
            self.sums.add_(self.how.aside)
        if self.how.replicates and self.meshes.replicate_size > 1:
            self.replicated = all_reduce(self.sums, group=self.meshes.replicate_group, async_op=True)

    def finish(self) -> None:
        """Wait for everything, and let the pieces be gradients."""
        self.advance()
        if not self.how.replicates:
            return
        if self.replicated is not None:
            self.replicated.wait()
        hook, sees_sums = self.how.hook, self.how.hook_sees_sums or self.sums.dtype not in ROBUST
        if hook is not None and sees_sums:
            hook(self.sums)
        if self.after != 1:
            self.sums.div_(self.after)
        if hook is not None and not sees_sums:
            hook(self.sums)
        sums = self.sums if self.sums.dtype == (kind := self.params[0].sharded.dtype) else self.sums.to(kind)
        for param, piece in zip(self.params, sums.split(self.sizes), strict=True):
            param.give_gradient(piece)

    def discard(self) -> None:
        """Wait for what is under way, and forget it."""
        for work in (self.scattered, self.replicated):
            if work is not None:
                work.wait()


def _divisors(dtype: Any, divisor: float) -> tuple[float, float]:
    """What gradients are divided by before they are added up, and what their sum is divided by. Half of each for float16, where either end is near."""
    if dtype in ROBUST:
        return 1, divisor
    before = 1.0
    while divisor % before == 0 and divisor / before > before:
        before *= 2
    return before, divisor / before
