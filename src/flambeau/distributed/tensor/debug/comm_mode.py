"""CommDebugMode: counts the collectives that operations on DTensors make, by the names that PyTorch's operations have."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flambeau.distributed.functional_overloads import Packet, library
from flambeau.distributed.tensor import exchange

IN_PLACE = {"broadcast": "broadcast_", "scatter": "scatter_"}  # what PyTorch does with operations that write into tensors


class CommDebugMode:
    """Counts collectives.

    with CommDebugMode() as comm:
        y = layer(x)
    comm.get_comm_counts()[torch.ops.c10d_functional.all_gather_into_tensor]       1
    """

    def __init__(self) -> None:
        self.comm_counts: Counter[Packet] = Counter()

    def __enter__(self) -> CommDebugMode:
        self.comm_counts.clear()
        exchange.watchers.append(self._note)
        return self

    def __exit__(self, *exc: Any) -> None:
        exchange.watchers.remove(self._note)

    def _note(self, name: str) -> None:
        operation = getattr(library("c10d"), IN_PLACE[name]) if name in IN_PLACE else getattr(library("c10d_functional"), name)
        self.comm_counts[operation] += 1

    def get_total_counts(self) -> int:
        """How many there were."""
        return self.comm_counts.total()

    def get_comm_counts(self) -> Counter[Packet]:
        """How many of each operation there were; 0 of those that were not called."""
        return Counter(self.comm_counts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("generate_", "log_", "get_", "_get_")):
            raise NotImplementedError(f"CommDebugMode.{name} is not implemented: there are get_comm_counts() and get_total_counts()")
        raise AttributeError(f"'CommDebugMode' object has no attribute {name!r}")
