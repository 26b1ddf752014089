"""A device mesh: ranks arranged in a grid, whose dimensions have names and process groups of their own.

    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))        dp
    mesh["tp"]                the 4 ranks of my row, as a mesh                  |   0 1 2 3
    mesh.get_group("dp")      the 2 ranks of my column, as a group              v   4 5 6 7   --> tp
    mesh._flatten("all")      all 8 of them in one dimension

Meshes that come from another (by slicing, flattening, unflattening) know it as their root, and share its groups.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau import distributed as dist
from flambeau.distributed._mesh_layout import Layout
from flambeau.dtypes import int32
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import as_tensor, tensor

if TYPE_CHECKING:
    from flambeau.distributed import ProcessGroup

__all__ = ["DeviceMesh", "init_device_mesh"]

Override = tuple[Any, Any]  # the backend of a dimension's groups, and its options; None: as the default group has them


class DeviceMesh:
    """Ranks in a grid.

    device_type     "cpu" or "cuda": where the tensors are that live on the mesh
    mesh            the ranks, as nested lists or a tensor; every process that is in it makes the mesh with the same arguments
    mesh_dim_names  a name for each dimension, by which the mesh can be sliced
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
        backend_override: tuple[Override, ...] | None = None,
        _init_backend: bool = True,
        _rank: int | None = None,
        _layout: Layout | None = None,
        _rank_map: Tensor | None = None,
        _root_mesh: DeviceMesh | None = None,
    ):
        if mesh is not None:
            if _layout is not None or _rank_map is not None:
                raise TypeError("Cannot provide _layout and/or _rank_map if passing explicit mesh")
            mesh = mesh.detach().to(device="cpu", dtype=int32) if isinstance(mesh, Tensor) else as_tensor(mesh, dtype=int32, device="cpu")
            if mesh.is_meta:
                raise ValueError("`mesh` must be a CPU tensor of ranks, found one on the meta device")
            _layout, _rank_map = Layout.row_major(mesh.shape), mesh.reshape(-1).contiguous()
        elif _layout is None or _rank_map is None:
            raise TypeError("The mesh argument is required except for PRIVATE USAGE ONLY!")
        self._device_type, self._layout, self._rank_map, self._root_mesh = device_type, _layout, _rank_map, _root_mesh
        self._mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names else None
        self._ranks: list[int] = _rank_map.tolist()
        self._flatten_mapping: dict[str, DeviceMesh] = {}
        self._groups: list[Any] = []
        if _init_backend and _root_mesh is None:
            self._join(backend_override or ((None, None),) * self.ndim)
        self._rank = _rank if _rank is not None else _default_rank()
        _living.add(self)

    # -- what it looks like

    @property
    def device_type(self) -> str:
        """Where its tensors are."""
        return self._device_type

    @property
    def mesh(self) -> Tensor:
        """The ranks of the mesh this process is in."""
        return tensor([self._ranks[place] for place in self._places()], dtype=int32).view(self.shape)

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of the dimensions."""
        return self._mesh_dim_names

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of every dimension."""
        return self._layout.shape

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self._layout.dims)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks there are, or how many along one dimension."""
        if mesh_dim is None:
            return self._layout.numel
        return self.shape[mesh_dim]

    # -- where this process is in it

    def get_rank(self) -> int:
        """The global rank of this process."""
        return self._rank

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where in the mesh this process is, an index per dimension; None if it is not in it."""
        if self._rank not in self._ranks:
            return None
        at = self._places().index(self._ranks.index(self._rank))
        found: list[int] = []
        for size in reversed(self.shape):
            found.append(at % size)
            at //= size
        return tuple(reversed(found))

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The index of this process along one dimension, its rank in that dimension's group."""
        if mesh_dim is None:
            if self.ndim > 1:
                raise self._asks_for_dim("get_local_rank")
            mesh_dim = 0
        coordinate = self.get_coordinate()
        if coordinate is None:
            raise RuntimeError(f"rank {self._rank} is not in {self!r}, whose ranks are {sorted(self._ranks)}")
        return coordinate[self._dim(mesh_dim)]

    def _places(self) -> list[int]:
        place = self._ranks.index(self._rank) if self._rank in self._ranks else 0
        return self._layout.places(self._layout.start(place))

    # -- groups

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The process group of this process along one dimension."""
        if mesh_dim is None:
            if self.ndim > 1:
                raise self._asks_for_dim("get_group")
            mesh_dim = 0
        if isinstance(mesh_dim, str) and mesh_dim in self._get_root_mesh()._flatten_mapping and mesh_dim not in (self.mesh_dim_names or ()):
            return self._get_root_mesh()._flatten_mapping[mesh_dim].get_group()
        if not self._groups:
            raise RuntimeError("DeviceMesh process groups not initialized! It was made with _init_backend=False")
        group = self._groups[self._dim(mesh_dim)]
        if group is None:
            raise RuntimeError(f"rank {self._rank} is in no group of dimension {mesh_dim!r} of {self!r}")
        return group

    def get_all_groups(self) -> list[ProcessGroup]:
        """The process groups of this process, one per dimension."""
        return [self.get_group(i) for i in range(self.ndim)]

    def _asks_for_dim(self, what: str) -> RuntimeError:
        return RuntimeError(
            f"{what}: Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be specified when "
            f"device_mesh.ndim > 1: one of {self.mesh_dim_names or tuple(range(self.ndim))}. get_all_groups() lists the groups of all"
        )

    def _dim(self, mesh_dim: int | str) -> int:
        return self._get_mesh_dim_by_name(mesh_dim) if isinstance(mesh_dim, str) else range(self.ndim)[mesh_dim]

    def _get_mesh_dim_by_name(self, mesh_dim_name: str) -> int:
        if not self.mesh_dim_names:
            raise KeyError("No `mesh_dim_names` found.")
        if mesh_dim_name not in self.mesh_dim_names:
            raise KeyError(f"Mesh dimension '{mesh_dim_name}' does not exist. Available mesh dimensions are: {self.mesh_dim_names}")
        return self.mesh_dim_names.index(mesh_dim_name)

    def _join(self, overrides: Sequence[Override]) -> None:
        """Make the groups of all dimensions. All processes of the default group come here, those outside of the mesh, too."""
        if not dist.is_initialized():
            dist.init_process_group()
        world = dist.get_world_size()
        if self._layout.numel > world:
            raise RuntimeError(f"Mesh should not be bigger than default world size {world}, but found {self._layout.numel} ranks!")
        if len(set(self._ranks)) < len(self._ranks) or not all(0 <= rank < world for rank in self._ranks):
            raise RuntimeError(f"a mesh has every rank of 0 ... {world - 1} once at most, found {self._ranks}")
        names = self._mesh_dim_names or tuple(f"dim_{i}" for i in range(self.ndim))
        self._groups = [
            self._group_along(self._layout[[i]], name, override) for i, (name, override) in enumerate(zip(names, overrides, strict=True))
        ]

    def _group_along(self, layout: Layout, name: str, override: Override) -> Any:
        """The group of this process among those of a layout with one dimension; None if it is in none of them."""
        backend, options = override
        everybody = layout.numel == dist.get_world_size() and [self._ranks[p] for p in layout.places()] == list(range(layout.numel))
        if everybody and backend is None and options is None:
            return dist.group.WORLD
        rank, own = dist.get_rank(), None
        for start in layout.starts(len(self._ranks)):
            ranks = [self._ranks[place] for place in layout.places(start)]
            made = dist.new_group(ranks, backend=backend, pg_options=options, group_desc=f"mesh_{name}")
            if rank in ranks:
                own = made
        return own

    # -- other meshes of the same ranks

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        if not self.mesh_dim_names:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if names == self.mesh_dim_names:
            return self
        flattened = self._get_root_mesh()._flatten_mapping if self is self._get_root_mesh() else {}
        valid = [*self.mesh_dim_names, *flattened]
        if not names or any(name not in valid for name in names):
            raise KeyError(f"Invalid mesh_dim_names {names} specified. Valid mesh_dim_names are {valid}.")
        if len(names) == 1 and names[0] in flattened:
            return flattened[names[0]]
        dims = [
            flattened[name]._layout.dims[0] if name in flattened else self._layout.dims[self.mesh_dim_names.index(name)] for name in names
        ]
        order = [self.mesh_dim_names.index(name) for name in names if name in self.mesh_dim_names]
        if order != sorted(order):
            raise KeyError(f"Invalid mesh_dim_names {names} specified. Mesh dim indices should be in ascending order.")
        layout = Layout(dims)
        if layout.overlaps():
            raise RuntimeError(f"Invalid mesh_dim_names {names}: a flattened dimension contains another one of them")
        groups = (
            [flattened[n]._groups[0] if n in flattened else self._groups[self.mesh_dim_names.index(n)] for n in names]
            if self._groups
            else []
        )
        return self._related(layout, names, groups)

    def _related(self, layout: Layout, names: tuple[str, ...] | None, groups: list[Any]) -> DeviceMesh:
        """Another mesh of the same ranks."""
        root = self._get_root_mesh()
        made = DeviceMesh(
            self._device_type, mesh_dim_names=names, _init_backend=False, _rank=self._rank, _layout=layout, _rank_map=self._rank_map,
            _root_mesh=root,
        )  # fmt: skip
        made._groups = groups
        return made

    def _flatten(self, mesh_dim_name: str | None = None, backend_override: Any = None) -> DeviceMesh:
        """This mesh as one of one dimension. All its processes call it; the root then knows it by its name."""
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ())
        if not name:
            raise RuntimeError("Cannot flatten a DeviceMesh without mesh_dim_names and without a mesh_dim_name!")
        root, layout = self._get_root_mesh(), self._layout.flattened()
        known = root._flatten_mapping.get(name)
        if known is not None and known._layout == layout:
            return known
        if known is not None or (name in (root.mesh_dim_names or ()) and (self.ndim, self.mesh_dim_names) != (1, (name,))):
            raise ValueError(f"{name} has been used by another dimension of the root mesh. Please specify another name.")
        if self.ndim == 1 and self.mesh_dim_names == (name,):
            return self
        groups = [self._groups[0]] if self.ndim == 1 and self._groups and backend_override is None else []
        if not groups and self._groups:
            groups = [self._group_along(layout, name, _override(backend_override))]
        root._flatten_mapping[name] = made = self._related(layout, (name,), groups)
        return made

    def _unflatten(
        self, dim: int | str, mesh_sizes: tuple[int, ...], mesh_dim_names: tuple[str, ...], backend_override: dict[str, Any] | None = None
    ) -> DeviceMesh:
        """This mesh with one dimension cut into several. All its processes call it."""
        at = self._dim(dim)
        if len(mesh_sizes) != len(mesh_dim_names):
            raise RuntimeError(f"mesh_dim_names must have same length as mesh_sizes in _unflatten! Found {mesh_dim_names} and {mesh_sizes}")
        if self.shape[at] != Layout.row_major(mesh_sizes).numel:
            raise ValueError(f"sizes {tuple(mesh_sizes)} do not multiply to {self.shape[at]}, the size of dimension {dim!r}")
        names = self.mesh_dim_names or tuple(f"dim_{i}" for i in range(self.ndim))
        layout = self._layout.unflattened(at, mesh_sizes)
        groups: list[Any] = []
        if self._groups:
            chosen = backend_override or {}
            parts = [self._group_along(layout[[at + i]], name, _override(chosen.get(name))) for i, name in enumerate(mesh_dim_names)]
            groups = [*self._groups[:at], *parts, *self._groups[at + 1 :]]
        return self._related(layout, (*names[:at], *mesh_dim_names, *names[at + 1 :]), groups)

    @staticmethod
    def _concatenate(device_mesh_list: Sequence[DeviceMesh]) -> DeviceMesh:
        """Slices of one mesh beside each other, as one mesh."""
        first = device_mesh_list[0]
        if any(mesh._get_root_mesh() != first._get_root_mesh() for mesh in device_mesh_list):
            raise RuntimeError("meshes can be concatenated that are slices of the same one")
        layout = Layout([loops for mesh in device_mesh_list for loops in mesh._layout.dims])
        if layout.overlaps():
            raise RuntimeError("meshes can be concatenated that share no dimension")
        names = tuple(name for mesh in device_mesh_list for name in mesh.mesh_dim_names or ())
        return first._related(layout, names or None, [group for mesh in device_mesh_list for group in mesh._groups])

    def _get_root_mesh(self) -> DeviceMesh:
        return self if self._root_mesh is None else self._root_mesh

    @staticmethod
    def from_group(
        group: ProcessGroup | list[ProcessGroup], device_type: str, mesh: Any = None, *, mesh_dim_names: tuple[str, ...] | None = None
    ) -> DeviceMesh:
        """The mesh whose dimensions have these groups, which exist already. `mesh` says which ranks they are where there are several."""
        groups = list(group) if isinstance(group, (list, tuple)) else [group]
        if not groups:
            raise ValueError("Expected at least one ProcessGroup to be specified, found an empty list")
        own = dist.get_process_group_ranks(groups[0])
        if len(groups) > 1 and mesh is None:
            raise ValueError("Must pass mesh if passing multiple ProcessGroups")
        ranks = as_tensor(own if mesh is None else mesh, dtype=int32, device="cpu")
        if ranks.dim() != len(groups):
            raise ValueError(f"Expected mesh with ndim equal to number of ProcessGroups, but found {ranks.dim()} and {len(groups)} groups")
        if len(groups) == 1 and ranks.tolist() != own:
            raise ValueError(f"Invalid mesh {ranks.tolist()} for ProcessGroup with ranks {own}")
        made = DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names, _init_backend=False, _rank=dist.get_rank())
        made._groups = groups
        return made

    # -- Python's protocols

    def __enter__(self) -> DeviceMesh:
        _entered().append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _entered().pop()

    def _hash_key(self) -> tuple:
        return tuple(self._ranks), self._layout, self._device_type, self._mesh_dim_names, self._rank

    def __hash__(self) -> int:
        return hash(self._hash_key())

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, DeviceMesh) and self._hash_key() == other._hash_key())

    def __repr__(self) -> str:
        sizes = (
            [f"{n}={size}" for n, size in zip(self.mesh_dim_names, self.shape, strict=True)]
            if self.mesh_dim_names
            else list(map(str, self.shape))
        )
        shown = f"({', '.join(sizes)})" if self.mesh_dim_names or len(sizes) > 1 else f"({sizes[0]},)" if sizes else "()"
        return f"DeviceMesh({shown}, '{self._device_type}', stride={self._layout.strides})"

    def __reduce__(self) -> tuple:
        """Without its groups: a copy of a mesh finds those of the mesh it is equal to, in the process where it comes to life."""
        return _rebuilt_mesh, (self._device_type, self._ranks, self._layout.dims, self._mesh_dim_names)

    def __deepcopy__(self, memo: dict) -> DeviceMesh:
        return self  # groups are connections, and a connection has no second one


_living: weakref.WeakSet[DeviceMesh] = weakref.WeakSet()  # for copies that come out of a pickle
_of_thread = threading.local()


def _entered() -> list[DeviceMesh]:
    """The meshes whose `with` blocks this thread is in."""
    if not hasattr(_of_thread, "entered"):
        _of_thread.entered = []
    return _of_thread.entered


def current_mesh() -> DeviceMesh:
    """The mesh of the innermost `with mesh:`, where a function is not given one."""
    if not _entered():
        raise RuntimeError("No device mesh is currently active! Pass device_mesh=, or call this inside `with mesh:`")
    return _entered()[-1]


def _rebuilt_mesh(device_type: str, ranks: list[int], dims: Any, names: tuple[str, ...] | None) -> DeviceMesh:
    """A mesh out of a pickle: the one that lives here with the same ranks, if there is one, else one without groups."""
    made = DeviceMesh(
        device_type, mesh_dim_names=names, _init_backend=False, _layout=Layout(dims), _rank_map=tensor(list(ranks), dtype=int32)
    )
    return next((mesh for mesh in list(_living) if mesh._groups and mesh == made), made)


def _default_rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _override(given: Any) -> Override:
    """A backend's name, its options, or both."""
    if given is None:
        return None, None
    if isinstance(given, str):
        return given, None
    return given if isinstance(given, tuple) else (None, given)


def init_device_mesh(
    device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None, backend_override: dict[int | str, Any] | None = None
) -> DeviceMesh:  # fmt: skip
    """All ranks, or the first of them, as a mesh of this shape, row by row. Every process calls it.

    backend_override  the backend of a dimension's groups (by name or number), where it is not the default one's: "gloo", options, or both
    """
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}")
        if len(mesh_shape) != len(mesh_dim_names):
            counts = f"Found len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}."
            raise RuntimeError(f"mesh_shape and mesh_dim_names should have same length! {counts}")
    if device_type and not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. Pass device.type, such as 'cuda': each rank has its own"
        )
    layout = Layout.row_major(tuple(mesh_shape))
    chosen = dict(backend_override or {})
    overrides = tuple(_override(chosen.pop(i, None) or chosen.pop((mesh_dim_names or {i: i})[i], None)) for i in range(len(mesh_shape)))
    if chosen:
        raise RuntimeError(
            f"Found invalid keys in backend_override: got {list(chosen)}, expected integers below {len(mesh_shape)} or one of {mesh_dim_names}"
        )
    return DeviceMesh(
        device_type,
        tensor(list(range(layout.numel)), dtype=int32).view(tuple(mesh_shape)),
        mesh_dim_names=mesh_dim_names,
        backend_override=overrides,
    )
