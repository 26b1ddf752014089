"""CommDebugMode: counts the collectives that operations on DTensors make."""

from __future__ import annotations

from collections import Counter
from typing import Any

from flambeau.distributed.tensor import exchange


class CommDebugMode:
    """Counts collectives, by name.

    with CommDebugMode() as comm:
        y = layer(x)
    comm.get_comm_counts()       {"all_gather_into_tensor": 1}
    """

    def __init__(self) -> None:
        self.comm_counts: Counter[str] = Counter()

    def __enter__(self) -> CommDebugMode:
        self.comm_counts.clear()
        exchange.watchers.append(self._note)
        return self

    def __exit__(self, *exc: Any) -> None:
        exchange.watchers.remove(self._note)

    def _note(self, name: str) -> None:
        self.comm_counts[name] += 1

    def get_total_counts(self) -> int:
        """How many there were."""
        return self.comm_counts.total()

    def get_comm_counts(self) -> dict[str, int]:
        """How many of each name there were."""
        return dict(self.comm_counts)

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("generate_", "log_", "get_", "_get_")):
            raise NotImplementedError(f"CommDebugMode.{name} is not implemented: there are get_comm_counts() and get_total_counts()")
        raise AttributeError(f"'CommDebugMode' object has no attribute {name!r}")
