"""What the groups of one model share: the order in which they run, and the reductions under way."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flambeau.distributed.fsdp._fully_shard.param_group import ParamGroup
    from flambeau.distributed.fsdp._fully_shard.reducing import Reduction


class Communication:
    """order       the groups, in the order in which their forward ended: backward meets them in the reverse order
    reductions  under way, the oldest first
    most        how many of these may hold whole gradients at a time
    """

    def __init__(self) -> None:
        self.order: list[ParamGroup] = []
        self.reductions: deque[Reduction] = deque()
        self.most = 1

    def make_room(self) -> None:
        """Let the oldest reductions come to where they hold no whole gradients any more."""
        while len(self.reductions) > 2 * self.most:
            self.reductions.popleft().finish()
        for reduction in list(self.reductions)[: len(self.reductions) - self.most + 1]:
            reduction.advance()

    def finish(self) -> None:
        """Wait for all reductions. The order of a pass has served its purpose."""
        while self.reductions:
            self.reductions.popleft().finish()
        self.order.clear()

    def discard(self) -> None:
        """Forget a pass that has failed."""
        while self.reductions:
            self.reductions.popleft().discard()
        self.order.clear()
