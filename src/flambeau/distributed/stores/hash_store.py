"""HashStore: a store within one process, for its threads and for tests."""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.distributed.stores.stepped_store import SteppedStore
from flambeau.distributed.stores.steps import Step
from flambeau.distributed.stores.table import Table


class HashStore(SteppedStore):
    """Keys and values that the threads of this process share."""

    def __init__(self) -> None:
        self._table = Table()

    def _run(self, step: Step, fields: Sequence[bytes], timeout: float) -> list[bytes]:
        return self._table.ask(step, fields, timeout)

    def clone(self) -> HashStore:
        return self
