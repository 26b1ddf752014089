"""Over which ranks a wrapper divides its parameters, and over which it only averages gradients: from a group, groups, or a mesh.

strategy                    mesh of the parameters
FULL_SHARD, SHARD_GRAD_OP   (n,)     each of n ranks has a part
NO_SHARD                    (n,)     each of n ranks has all
HYBRID_SHARD                (m, n)   m groups (machines) of n ranks; the parts are divided within a group
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from flambeau import distributed as dist
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.fsdp._fully_shard.meshes import Meshes
from flambeau.distributed.fsdp.api import ShardingStrategy
from flambeau.distributed.groups.process_group import ProcessGroup

HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
WHOLE_UNTIL_BACKWARD = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)


class Ranks(NamedTuple):
    """Who takes part."""

    group: ProcessGroup  # parts are divided among these
    replicas: ProcessGroup | None  # these have the same part as this rank; with hybrid strategies

    def meshes(self, strategy: ShardingStrategy, device_type: str) -> Meshes:
        """As the table above says."""
        if strategy is ShardingStrategy.NO_SHARD:
            return Meshes(DeviceMesh.from_group(self.group, device_type, mesh_dim_names=("replicate",)), None, 0)
        if self.replicas is None:
            return Meshes(DeviceMesh.from_group(self.group, device_type, mesh_dim_names=("shard",)))
        grid = _grid(self.replicas, dist.get_process_group_ranks(self.group))
        return Meshes(DeviceMesh.from_group([self.replicas, self.group], device_type, grid, mesh_dim_names=("replicate", "shard")))


_grids: WeakKeyDictionary[ProcessGroup, list[list[int]]] = WeakKeyDictionary()


def _grid(replicas: ProcessGroup, own: list[int]) -> list[list[int]]:
    """The ranks of all groups that divide parameters, in the order of the replicas; they are asked once, not by each wrapper."""
    if replicas not in _grids:
        grid: list[Any] = [None] * replicas.size()
        dist.all_gather_object(grid, own, group=replicas)
        _grids[replicas] = grid
    return _grids[replicas]


def find(process_group: Any, strategy: ShardingStrategy | None, policy: Any, mesh: DeviceMesh | None, per_machine: int) -> Ranks:
    """What the arguments of a wrapper mean. `per_machine`: ranks that share a machine, for hybrid strategies without groups."""
    if process_group is not None and mesh is not None:
        raise ValueError("Cannot pass both process_group and device_mesh at the same time. Please just pass only one of them.")
    if strategy not in HYBRID:
        if mesh is not None:
            return Ranks(mesh.get_group(0), None)
        return Ranks(dist.distributed_c10d._get_default_group() if process_group is None else process_group, None)
    if mesh is not None:
        if mesh.ndim != 2:
            raise ValueError(f"Expected device_mesh to have ndim=2 but got {mesh.ndim}")
        return Ranks(mesh.get_group(1), mesh.get_group(0))
    if process_group is None:
        if policy is None:
            raise ValueError(f"Manual wrapping with {strategy} requires explicit specification of process group or device_mesh.")
        return _of_machines(per_machine)
    if not (isinstance(process_group, tuple) and len(process_group) == 2 and all(isinstance(one, ProcessGroup) for one in process_group)):
        raise ValueError(
            f"Expected process_group to be passed in as either None or Tuple[dist.ProcessGroup, dist.ProcessGroup] but got {type(process_group)}"
        )
    return Ranks(*process_group)


def _of_machines(per_machine: int) -> Ranks:
    """Groups of `per_machine` neighbouring ranks, and across these the ranks of the same place."""
    inside, _ = dist.new_subgroups(per_machine)
    places = [list(range(place, dist.get_world_size(), per_machine)) for place in range(per_machine)]
    across, _ = dist.new_subgroups_by_enumeration(places)
    return Ranks(inside, across)
