"""Std: which of a worker's two streams; one value for all workers, or one for each local rank."""

from __future__ import annotations

import re
from enum import IntFlag

__all__ = ["Std", "to_map"]

FOR_ALL = "^[0123]$"
FOR_EACH = "^(\\d:[0123],)*(\\d:[0123])$"


class Std(IntFlag):
    """The standard output, the standard error, both or none of them."""

    NONE = 0
    OUT = 1
    ERR = 2
    ALL = OUT | ERR

    @classmethod
    def from_str(cls, vm: str) -> Std | dict[int, Std]:
        """What `--tee` and `--redirects` mean: "3" for all workers, "0:1,1:3" for each local rank.

        >>> Std.from_str("0:1,1:3")
        {0: <Std.OUT: 1>, 1: <Std.ALL: 3>}
        """
        if re.match(FOR_ALL, vm):
            return Std(int(vm))
        if not re.match(FOR_EACH, vm):
            raise ValueError(f"{vm} is neither 0, 1 (stdout), 2 (stderr) or 3 (both), nor such a number for local ranks, as in 0:1,1:3")
        pairs = (pair.split(":") for pair in vm.split(","))
        return {int(rank): Std(int(value)) for rank, value in pairs}


def to_map(val_or_map: Std | dict[int, Std], local_world_size: int) -> dict[int, Std]:
    """The same as a dictionary of every local rank."""
    if isinstance(val_or_map, Std):
        return dict.fromkeys(range(local_world_size), val_or_map)
    return {rank: val_or_map.get(rank, Std.NONE) for rank in range(local_world_size)}
