"""Which rank each worker has: machines in the order of their numbers, workers in that of theirs; roles are counted apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flambeau.distributed.elastic.agent.server.api import Worker

__all__ = ["Machine", "number"]


class Machine(NamedTuple):
    """What the others must know of a machine."""

    role: str
    local_world_size: int


def number(machines: Sequence[Machine], here: int) -> list[Worker]:
    """The workers of machine `here`.

    >>> number([Machine("trainer", 2), Machine("reader", 1), Machine("trainer", 2)], 2)[1]
    Worker(local_rank=1, global_rank=4, role_rank=3, world_size=5)
    """
    own = machines[here]
    before = sum(machine.local_world_size for machine in machines[:here])
    role_before = sum(machine.local_world_size for machine in machines[:here] if machine.role == own.role)
    everyone = sum(machine.local_world_size for machine in machines)
    role = sum(machine.local_world_size for machine in machines if machine.role == own.role)
    return [Worker(local, before + local, role_before + local, everyone, role) for local in range(own.local_world_size)]
