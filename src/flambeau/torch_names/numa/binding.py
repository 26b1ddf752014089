"""What a launcher can be asked about processors and memory: libraries build these options. A launcher that is given them says that it does not bind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["AffinityMode", "NumaOptions"]


class AffinityMode(str, Enum):  # noqa: UP042 - its str() is that of an Enum, as in PyTorch
    """The processors of a worker: all those near its GPU, those of the whole socket, a share of its own, or one group around a cache."""

    NODE = "node"
    SOCKET = "socket"
    EXCLUSIVE = "exclusive"
    CORE_COMPLEX = "core-complex"


@dataclass(frozen=True)
class NumaOptions:
    """How to bind workers, and whether to go on where that fails."""

    affinity_mode: AffinityMode
    should_fall_back_if_binding_fails: bool = False
