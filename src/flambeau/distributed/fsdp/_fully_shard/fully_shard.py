"""fully_shard: divide the parameters of a module among ranks, in place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NoReturn

from flambeau import distributed as dist
from flambeau.devices import device as as_device
from flambeau.distributed.device_mesh import DeviceMesh, init_device_mesh
from flambeau.distributed.fsdp._fully_shard import traversal
from flambeau.distributed.fsdp._fully_shard.fsdp_module import FSDPModule
from flambeau.distributed.fsdp._fully_shard.meshes import Meshes, after_forward
from flambeau.distributed.fsdp._fully_shard.param_group import ParamGroup
from flambeau.distributed.fsdp._fully_shard.policies import DataParallelMeshDims, MixedPrecisionPolicy, OffloadPolicy, ShardPlacementResult
from flambeau.distributed.fsdp._fully_shard.state import State, state_of
from flambeau.distributed.tensor import Shard
from flambeau.distributed.utils import _get_root_modules
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter

Placement = Shard | ShardPlacementResult | None
CLASSES: dict[type, type] = {}  # Linear -> FSDPLinear


def fully_shard(
    module: Any, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Parameter], Placement] | None = None, mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None, ignored_params: Collection[Parameter] | None = None, dp_mesh_dims: DataParallelMeshDims | None = None,
) -> Any:  # fmt: skip
    """Divide the parameters of `module` among the ranks of a mesh, in place, and return it: each rank keeps its rows, as DTensors.

        for block in model.blocks:
            fully_shard(block)              # each call makes a group of the parameters that no call inside has taken
        fully_shard(model)

    Around forward and backward of a module its group is gathered in one collective, and freed. Gradients are averaged and divided in one collective, while
    backward goes on. So a rank keeps 1/n of parameters, gradients and optimizer state, and the whole parameters of a group or two.

    module     one, or a list of modules whose parameters are one group
    mesh       of one dimension: parameters are divided over it. Of two: over the second, and the ranks along the first have the same pieces
    reshard_after_forward   whether whole parameters are freed between forward and backward. A number: divided among so many ranks meanwhile. None: they
               are, but for the module that runs first, whose parameters are the first that backward needs
    shard_placement_fn      parameter -> Shard(dim), along which it is cut; None for Shard(0). With a ShardPlacementResult over other ranks, too
    mp_policy  dtypes of computation and communication: see MixedPrecisionPolicy
    offload_policy          CPUOffloadPolicy() keeps pieces, gradients and optimizer state in main memory
    ignored_params          parameters that stay as they are
    """
    given = [module] if isinstance(module, Module) else list(module)
    traversal.check_modules(given)
    if dp_mesh_dims is not None:
        raise NotImplementedError(
            "fully_shard(dp_mesh_dims=...): parameters that are DTensors on the whole mesh, data parallel dimensions included, are not divided here. "
            'Distribute them over the tensor parallel dimensions, parallelize_module(model, mesh["tp"], ...), and call fully_shard(model, mesh=mesh["dp"])'
        )
    mesh = mesh or _default_mesh()
    _check_mesh(mesh)
    mp_policy = mp_policy or MixedPrecisionPolicy()
    meshes, device = Meshes(mesh), _device_of(mesh)
    reshard: bool | int = True if reshard_after_forward is None else reshard_after_forward
    reshard_to = after_forward(reshard, meshes)
    modules = [module] if isinstance(module, Module) else _get_root_modules(given)
    managed = traversal.managed(modules)
    params = traversal.parameters(managed, ignored_params or ())
    traversal.move([*params, *[buffer for inner in managed for buffer in inner._buffers.values() if buffer is not None]], device)
    state = State(modules, device, mp_policy, auto_reshard=reshard_after_forward is None)
    for own, chosen, placement_of in _by_meshes(params, meshes, shard_placement_fn):
        to = reshard_to if own is meshes else after_forward(reshard, own)
        state.groups.append(
            ParamGroup(chosen, modules, own, device, to, placement_of=placement_of, mp_policy=mp_policy, offload_policy=offload_policy)
        )
    state.install()
    for inner in modules:
        inner.__class__ = _class_of(type(inner))
    return module


fully_shard.state = state_of  # type: ignore[attr-defined]


def _by_meshes(params: list[Parameter], meshes: Meshes, placement_fn: Callable[[Parameter], Placement] | None) -> list[tuple]:
    """(meshes, the parameters that are divided over them, how each is cut)."""
    if not params:
        return []
    if placement_fn is None:
        return [(meshes, params, None)]
    cuts: dict[int, Any] = {}
    found: dict[Any, tuple[Meshes, list[Parameter]]] = {}
    for param in params:
        said = placement_fn(param)
        if said is not None and not isinstance(said, (Shard, ShardPlacementResult)):
            raise ValueError(f"Invalid shard_placement_fn result: {said}. It returns Shard(dim), a ShardPlacementResult, or None")
        own = said.mesh_info if isinstance(said, ShardPlacementResult) else meshes
        cuts[id(param)] = said.placement if isinstance(said, ShardPlacementResult) else said
        known, chosen = found.setdefault(own.key(), (own, []))
        if known is not own:
            raise ValueError(f"Params sharing the same process group must use the same mesh_info object, but got two: {known} vs {own}")
        chosen.append(param)
    return [(own, chosen, lambda param: cuts[id(param)]) for own, chosen in found.values()]


def _class_of(cls: type) -> type:
    """Linear -> FSDPLinear, the same class for every Linear."""
    if cls not in CLASSES:
        CLASSES[cls] = type(f"FSDP{cls.__name__}", (FSDPModule, cls), {"__deepcopy__": _refuse_deepcopy})
    return CLASSES[cls]


def _refuse_deepcopy(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError(
        "FSDP does not support deepcopy. Please use state dict for serialization: copy the model before fully_shard, and load a state dict"
    )


def _default_mesh() -> DeviceMesh:
    """All ranks, on their GPUs if there are any."""
    from flambeau.cuda import is_available

    if not dist.is_initialized():
        dist.init_process_group()
    return init_device_mesh("cuda" if is_available() else "cpu", (dist.get_world_size(),))


def _check_mesh(mesh: DeviceMesh) -> None:
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}. Try a slice of it: mesh['dp']")
    if mesh.ndim == 2 and mesh.mesh_dim_names is None:
        raise AssertionError(
            'Please init the 2D mesh for HSDP with mesh_dim_names specified: init_device_mesh(..., mesh_dim_names=("replicate", "shard"))'
        )


def _device_of(mesh: DeviceMesh) -> Any:
    if mesh.device_type == "cpu":
        return as_device("cpu")
    from flambeau.cuda import current_device

    return as_device(mesh.device_type, current_device())
