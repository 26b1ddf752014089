"""breakpoint: pdb on one rank, while the others wait."""

from __future__ import annotations

import pdb
import sys
from datetime import timedelta
from typing import Any

from flambeau.distributed.collectives.barrier import barrier
from flambeau.distributed.collectives.ranks import get_rank
from flambeau.distributed.collectives.world import _set_pg_timeout, _world

__all__ = ["breakpoint"]

_reached: dict[tuple[str, int], int] = {}  # how often each line has been reached


class _OfRank(pdb.Pdb):
    """pdb that reads from the terminal, which launchers take away from the processes they start."""

    def interaction(self, *arguments: Any, **named: Any) -> Any:
        before = sys.stdin
        try:
            with open("/dev/stdin") as sys.stdin:
                return super().interaction(*arguments, **named)
        finally:
            sys.stdin = before


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: int = 3600) -> None:
    """Stop `rank` here, in pdb, and let the others wait until it goes on. All ranks call this. The first `skip` times it does nothing.

    Collectives may take `timeout_s` seconds from now on, so that none runs into its timeout while you look around.
    """
    caller = sys._getframe(1)
    place = (caller.f_code.co_filename, caller.f_lineno)
    _reached[place] = _reached.get(place, 0) + 1
    if _reached[place] <= skip:
        return
    for pg in list(_world.pg_map):
        _set_pg_timeout(timedelta(seconds=timeout_s), pg)
    if get_rank() == rank:
        debugger = _OfRank()
        debugger.message(f"\n!!! rank {rank} stops here; all others wait for it. `up` shows who called, `c` lets everyone go on.\n")
        debugger.set_trace(caller)
    barrier()
