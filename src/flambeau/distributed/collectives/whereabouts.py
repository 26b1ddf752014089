"""report: where each rank of the program is, for the moment when it hangs, or is slower than it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.distributed.collectives.world import _get_default_group

if TYPE_CHECKING:
    from flambeau.distributed.watch.report import Report


def report() -> Report:
    """What each rank is doing, and in which line of the program: a list of records that prints as a table, of at most a second ago.

    Any thread of any one rank may call it; the others need not.
    """
    from flambeau.distributed.watch.report import report as look

    world = getattr(_get_default_group(), "_world", None)
    if world is None:
        raise NotImplementedError("report() of a group that the program made itself: only those of gloo, mpi and nccl are watched")
    return look(world.watcher)
