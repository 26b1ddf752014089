"""DTensor: a tensor whose elements lie on several processes, and behaves as the one tensor they are.

    mesh = init_device_mesh("cpu", (2,))
    x = distribute_tensor(torch.randn(8, 4), mesh, [Shard(0)])      # each rank has 4 rows
    (x @ w).sum().backward()                                        # w.grad is a DTensor, too

`shape` and `stride()` are those of the whole, `to_local()` is what lies here, `full_tensor()` gathers it, `redistribute()` places it otherwise.
Operations are carried out piece by piece, by the rules of this room (dispatch.py); gradients by Note [the derivative of a sharded operation].
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from flambeau import distributed as dist
from flambeau import errors, modes
from flambeau.distributed.device_mesh import DeviceMesh, current_mesh
from flambeau.distributed.tensor import exchange
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor._utils import compute_global_tensor_info, compute_local_shape, normalize_placements
from flambeau.distributed.tensor.pieces import Pieces, meta_of
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _NormPartial, _StridedShard
from flambeau.distributed.tensor.redistribute import cut
from flambeau.dtypes import dtype as dtype_
from flambeau.interpreters import by_name
from flambeau.kernels.native.native import maker
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making.factories import empty, zeros
from flambeau.tensor.storage import Storage
from flambeau.tensor.tensor import NEW


class DTensor(Tensor):
    """A tensor on a mesh. Made by `distribute_tensor`, `DTensor.from_local` and `flambeau.distributed.tensor.zeros` and its like."""

    __torch_function__ = by_name.disabled_torch_function  # replaced in dispatch.py, once the class has been made without asking members
    _sees_building_blocks = True  # it is told which operation runs, not under which public name
    _array: Any

    def __new__(cls, local_tensor: Tensor, spec: DTensorSpec, *, requires_grad: bool = False) -> DTensor:
        if local_tensor.requires_grad and not requires_grad:
            errors.warn(
                "To construct DTensor from torch.Tensor, it's recommended to use local_tensor.detach() and make requires_grad consistent: this one will "
                "have no gradient, although its local_tensor wants one. DTensor.from_local keeps the history"
            )
        made = wrapped(local_tensor.detach(), spec)
        return made.requires_grad_() if requires_grad else made

    # -- what it is

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh it is on."""
        return self._array.spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """For each dimension of the mesh, how it is placed along it."""
        return self._array.spec.placements

    @property
    def _spec(self) -> DTensorSpec:
        return self._array.spec

    @_spec.setter
    def _spec(self, spec: DTensorSpec) -> None:
        self._array = Pieces(self._array.value, spec)

    @property
    def _local_tensor(self) -> Tensor:
        return self._array.value

    @_local_tensor.setter
    def _local_tensor(self, local: Tensor) -> None:
        self._array, self._storage = Pieces(local, self._array.spec), local._shared_storage()

    @staticmethod
    def from_local(
        local_tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, run_check: bool = False,
        shape: Sequence[int] | None = None, stride: tuple[int, ...] | None = None, grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:  # fmt: skip
        """A DTensor of which `local_tensor` is this rank's part; differentiable.

        shape, stride    of the whole, where pieces are not of equal size
        run_check        compare shapes over the ranks, and send the first rank's tensor to those that hold it replicated
        grad_placements  how the gradient of local_tensor is wanted, if not as the tensor itself is placed
        """
        from flambeau.distributed.tensor import sharded

        if isinstance(local_tensor, DTensor):
            raise RuntimeError(f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value.")
        mesh = device_mesh or current_mesh()
        placed = normalize_placements(placements, mesh, local_tensor.dim())
        if hasattr(local_tensor, "trigger_wait"):
            local_tensor = local_tensor.trigger_wait()
        if (shape is None) != (stride is None):
            raise RuntimeError(f"Found shape:{shape}, stride:{stride}. Please pass both shape and stride at the same time.")
        if shape is None or stride is None:
            shape, stride = compute_global_tensor_info(local_tensor, mesh, placed)  # type: ignore[assignment]
        if mesh.get_coordinate() is None:  # nothing of it is here, and yet this rank knows what it looks like
            local_tensor = local_tensor.new_empty(0)
        elif run_check:
            local_tensor = _checked(local_tensor, mesh, placed)
        meta = TensorMeta(Size(shape), tuple(stride), local_tensor.dtype)  # type: ignore[arg-type]
        grads = None if grad_placements is None else normalize_placements(grad_placements, mesh, local_tensor.dim())
        return sharded.from_local(local_tensor, DTensorSpec(mesh, placed, meta), grads)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This rank's part, as a plain tensor; differentiable. `grad_placements` says how its gradient will be placed, if not as the tensor is."""
        from flambeau.distributed.tensor import sharded

        return sharded.to_local(self, None if grad_placements is None else tuple(grad_placements))

    def redistribute(
        self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, async_op: bool = False,
        forward_dtype: dtype_ | None = None, backward_dtype: dtype_ | None = None,
    ) -> DTensor:  # fmt: skip
        """The same tensor, placed otherwise; differentiable.

        forward_dtype, backward_dtype  what is sent is cast to, on the way here and on the way back
        async_op                       whether it may be under way when this returns; it never is
        """
        from flambeau.distributed.tensor import sharded

        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError(
                "Cross device mesh comm not supported yet! Gather it with full_tensor() and distribute it over the other mesh"
            )
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        wanted = normalize_placements(placements, self.device_mesh, self.dim())
        for before, after in zip(self.placements, wanted, strict=True):
            if after.is_partial() and before != after:
                raise RuntimeError(f"Can not redistribute from {before} to {after}, redistributing to Partial is for internal use only!")
        return sharded.redistributed(sharded.cast_on_the_way(self, forward_dtype, backward_dtype), wanted, recorded=True)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """All of it, as a plain tensor, on every rank; differentiable."""
        from flambeau.distributed.tensor import sharded

        whole = sharded.redistributed(self, (Replicate(),) * self.device_mesh.ndim, recorded=True)
        return sharded.to_local(whole, None if grad_placements is None else tuple(grad_placements))

    # -- aliases and copies

    def detach(self) -> DTensor:
        """The same pieces without history."""
        alias = wrapped(self._local_tensor.detach(), self._spec)
        alias._inference = self._inference
        return alias

    @property
    def data(self) -> DTensor:
        """The same pieces without history; assigned to, it exchanges them."""
        return wrapped(self._local_tensor.data, self._spec)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, DTensor):
            raise RuntimeError(
                f"the data of a DTensor can be exchanged for that of a DTensor, found a plain {type(value).__name__}. Try distribute_tensor"
            )
        self._array, self._storage = value._array, value._storage

    def __deepcopy__(self, memo: dict) -> DTensor:
        if not self.is_leaf:
            raise RuntimeError("deepcopy copies tensors that a user made (graph leaves), and this one was computed. Try x.detach().clone()")
        if id(self) not in memo:
            memo[id(self)] = made = wrapped(copy.deepcopy(self._local_tensor, memo), self._spec)
            made._needs = self._needs
            made._grad = None if self._grad is None else copy.deepcopy(self._grad, memo)
            for name, value in self.__dict__.items():
                made.__dict__[name] = copy.deepcopy(value, memo)
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> tuple:
        from flambeau.tensor.making import pickling

        spec, (_, mesh) = self._spec, self.device_mesh.__reduce__()
        placements = tuple(_written_down(p) for p in spec.placements)
        looks = tuple(spec.shape), tuple(spec.stride)
        return _rebuilt, (self._local_tensor, mesh, placements, *looks, self._needs and self.is_leaf, pickling.attributes(self))

    def _shared_storage(self) -> Storage:
        return self._local_tensor._shared_storage()

    # -- numbers

    def item(self) -> Any:
        """The element of a tensor that has one, reduced over the ranks if need be."""
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        with modes.no_grad():
            return self.full_tensor().item()

    __float__ = lambda self: float(self.item())  # noqa: E731
    __int__ = lambda self: int(self.item())  # noqa: E731
    __index__ = lambda self: self.full_tensor().__index__()  # noqa: E731
    __complex__ = lambda self: complex(self.item())  # noqa: E731

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError(f"Boolean value of Tensor with {self.numel()} values is ambiguous. Try .any() or .all()")
        return bool(self.item())

    def is_cpu_(self) -> bool:
        """Whether its pieces are in main memory."""
        return self._local_tensor.is_cpu

    def data_ptr(self) -> int:
        """Where this rank's piece begins: a DTensor as a whole has no address."""
        return self._local_tensor.data_ptr()

    def untyped_storage(self) -> Any:
        """The bytes of this rank's piece."""
        return self._local_tensor.untyped_storage()

    def storage_offset(self) -> int:
        """Where in its storage this rank's piece begins."""
        return self._local_tensor.storage_offset()

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether this rank's piece lies in order."""
        return (
            self._local_tensor.is_contiguous() if memory_format is None else self._local_tensor.is_contiguous(memory_format=memory_format)
        )

    def is_conj(self) -> bool:
        """Whether this rank's piece is to be read conjugated."""
        return self._local_tensor.is_conj()

    def is_neg(self) -> bool:
        """Whether this rank's piece is to be read negated."""
        return self._local_tensor.is_neg()

    def is_pinned(self, device: Any = None) -> bool:
        """Whether a GPU can read this rank's piece directly."""
        return self._local_tensor.is_pinned(device)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        with by_name.DisableTorchFunction():
            local = self._local_tensor
            shown = format(local.item()) if not local.dim() and local.device.type != "meta" else repr(local)
        return f"DTensor(local_tensor={shown}, device_mesh={self.device_mesh}, placements={self.placements})"

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.numel() == 1 else repr(self)

    def _as_pieces(self, others: Sequence[Tensor]) -> list[Tensor]:
        """This rank's piece, and those of its gradient and its states, for an update that moves every element by itself.

        States come to lie as the parameter does, and stay there; the gradient is brought there for now.
        """
        from flambeau.distributed.tensor import sharded

        found = [self._local_tensor]
        with modes.no_grad():
            for i, x in enumerate(others):
                if isinstance(x, DTensor) and x.placements != self.placements:
                    there = sharded.redistributed(x, self.placements)
                    if i:
                        x._array, x._storage = there._array, there._storage
                    x = there
                found.append(x._local_tensor if isinstance(x, DTensor) else x)
        return found

    @staticmethod
    def _anywhere(found: bool, tensors: Sequence[DTensor]) -> bool:
        """Whether something was found on some rank of the meshes of these tensors."""
        from flambeau.tensor.making.factories import tensor as tensor_of

        for mesh in dict.fromkeys(x.device_mesh for x in tensors):
            flag = tensor_of([float(found)], device=mesh.device_type)
            for dim in range(mesh.ndim):
                flag = exchange.all_reduce(flag, mesh, dim, "max")
            found = bool(flag.item())
        return found

    @staticmethod
    def _total_norm(tensors: Sequence[Tensor], order: float) -> Tensor | None:
        """The norm of all of them together; None where that has to be asked one by one."""
        from flambeau.distributed.tensor import clipping

        return clipping.total_norm(tensors, order)

    @staticmethod
    def _clip(tensors: Sequence[Tensor], total: Tensor, most: float) -> bool:
        """Multiply all of them by most / total, if that is less than one; False where that has to be asked one by one."""
        from flambeau.distributed.tensor import clipping

        return clipping.clip(tensors, total, most)


def _refused(name: str) -> Callable:
    def refuse(self: DTensor, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            f".{name}() is not supported for tensor subclasses, got DTensor. Try x.full_tensor().{name}(), or x.to_local().{name}()"
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


for _name in ("numpy", "tolist", "__array__", "__dlpack__", "apply_", "map_", "map2_", "set_", "resize_", "describe", "share_memory_"):
    setattr(DTensor, _name, _refused(_name))
DTensor.__module__ = "flambeau.distributed.tensor"
DTensor.is_cpu = property(DTensor.__dict__["is_cpu_"])  # type: ignore[method-assign, assignment]
del DTensor.is_cpu_


def wrapped(local: Tensor, spec: DTensorSpec) -> DTensor:
    """A new DTensor over this rank's part, a tensor without history."""
    return _new(Pieces(local, spec), local._shared_storage(), local._inference)


_new: Callable[[Pieces, Storage, bool], DTensor] = maker(DTensor, ("_array", "_storage", "_inference"), **NEW)


_KINDS: dict[str, type[Placement]] = {kind.__name__: kind for kind in (Shard, _StridedShard, Replicate, Partial, _NormPartial)}


def _written_down(placement: Placement) -> tuple:
    """A placement as plain values, for files."""
    fields = {name: value for name, value in vars(placement).items() if not (name == "reduce_op" and isinstance(placement, _NormPartial))}
    return type(placement).__name__, fields


def _rebuilt(
    local: Tensor,
    mesh: tuple,
    placements: Sequence[tuple],
    shape: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    attributes: dict,
) -> DTensor:
    """A DTensor out of a file, which may come from anywhere: everything in it is looked at."""
    from flambeau.distributed.device_mesh import _rebuilt_mesh

    if not isinstance(local, Tensor) or type(attributes) is not dict or not all(type(n) is int for n in (*shape, *stride)):
        raise RuntimeError("a DTensor in a file is a tensor, its mesh, its placements, shape and strides: this one is not")
    if any(kind not in _KINDS for kind, _ in placements):
        raise RuntimeError(f"a DTensor in a file has placements of the kinds {list(_KINDS)}, found {placements}")
    there = _rebuilt_mesh(*mesh)
    placed = tuple(_KINDS[kind](**fields) for kind, fields in placements)
    if len(placed) != there.ndim or len(shape) != len(stride):
        raise RuntimeError(
            f"a DTensor in a file has {len(placed)} placements on a mesh of {there.ndim} dimensions, shape {shape} and strides {stride}"
        )
    made = wrapped(local.detach(), DTensorSpec(there, placed, TensorMeta(Size(shape), tuple(stride), local.dtype)))
    made._needs = bool(requires_grad)
    made.__dict__.update(attributes)
    return made


def _checked(local: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> Tensor:
    """`run_check`: the same shapes everywhere, and along replicated dimensions what the first rank has."""
    seen: list[Any] = [None] * mesh.size()
    if mesh.ndim == 1 and mesh.size() > 1:
        dist.all_gather_object(seen, (tuple(local.shape), tuple(local.stride())), group=mesh.get_group())
        if len(set(seen)) > 1:
            raise ValueError(f"Inconsistent tensor metadata (including shape and stride) across ranks. Shapes and strides by rank: {seen}")
    for i, placement in enumerate(placements):
        if placement.is_replicate():
            local = exchange.broadcast(local, mesh, i)
    return local


# -- distributing ------------------------------------------------------------------------------------------------------------


def distribute_tensor(
    tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, src_data_rank: int | None = 0
) -> DTensor:
    """A leaf: the tensor that rank `src_data_rank` of each mesh dimension has, distributed. None: every rank has the same, and nothing is sent."""

    mesh = device_mesh or current_mesh()
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}.")
        wanted = normalize_placements(placements, mesh, tensor.dim())
        if tensor.placements != wanted:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {tensor.placements} to different placements {wanted}. Call `redistribute`."
            )
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError(
            "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor! Try DTensor.from_local"
        )
    placed = normalize_placements(placements, mesh, tensor.dim())
    if tensor.device.type not in (mesh.device_type, "meta"):
        tensor = tensor.to(mesh.device_type)
    local = tensor.detach()
    meta = meta_of(local)
    if mesh.get_coordinate() is None:
        return wrapped(local.new_empty(0), DTensorSpec(mesh, placed, meta)).requires_grad_(tensor.requires_grad)
    with by_name.DisableTorchFunction(), modes.no_grad():
        for i, placement in enumerate(placed):
            local = _placed(local, mesh, i, placement, src_data_rank)
    if local is tensor or local._array is tensor._array:
        local = local.detach() if tensor.is_meta else local.clone()
    made = wrapped(local, DTensorSpec(mesh, placed, meta))
    return made.requires_grad_() if tensor.requires_grad else made


def _placed(local: Tensor, mesh: DeviceMesh, i: int, placement: Placement, source: int | None) -> Tensor:
    """What this rank gets of `local` along mesh dimension i."""
    n, at = mesh.size(i), mesh.get_local_rank(i)
    sends = source is not None and n > 1 and not local.is_meta
    if isinstance(placement, (Shard, _StridedShard)):
        if not sends:
            return cut(local, placement, n, at)
        pieces, lacking = placement._split_tensor(local, n)
        own = empty(pieces[at].shape, dtype=local.dtype, device=local.device)
        own = exchange.scatter(pieces if at == source else None, own, mesh, i, source)
        return own.narrow(placement.dim, 0, own.shape[placement.dim] - lacking[at]).contiguous() if lacking[at] else own
    if sends:
        local = exchange.broadcast(local, mesh, i, source)  # type: ignore[arg-type]
    if placement.is_partial():
        from flambeau.distributed.tensor.redistribute import _started

        return _started(local, placement, n, at)  # type: ignore[arg-type]
    return local


def distribute_module(
    module: Any, device_mesh: DeviceMesh | None = None, partition_fn: Callable | None = None, input_fn: Callable | None = None,
    output_fn: Callable | None = None,
) -> Any:  # fmt: skip
    """Make the parameters and buffers of a module DTensors.

    partition_fn(name, module, mesh)       distributes those of each submodule; what it leaves plain is replicated
    input_fn(module, inputs, mesh)         is called before forward, and may replace its inputs
    output_fn(module, outputs, mesh)       is called after it, and may replace its outputs
    """
    from flambeau.nn import Parameter

    mesh = device_mesh or current_mesh()
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError("distribute_module should only be called once on a module, but it has already been called on this module!")

    def replicate_the_rest(submodule: Any) -> None:
        whole = [Replicate()] * mesh.ndim
        for name, param in submodule._parameters.items():
            if param is not None and not isinstance(param, DTensor):
                submodule.register_parameter(name, Parameter(distribute_tensor(param.data, mesh, whole), param.requires_grad))
        for name, buffer in submodule._buffers.items():
            if buffer is not None and not isinstance(buffer, DTensor):
                submodule._buffers[name] = distribute_tensor(buffer, mesh, whole)

    for name, submodule in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, submodule, mesh)
        replicate_the_rest(submodule)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda mod, inputs: input_fn(mod, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda mod, inputs, outputs: output_fn(mod, outputs, mesh))
    module._distribute_module_applied = True
    return module


# -- making them -------------------------------------------------------------------------------------------------------------


def made(
    function: Callable, size: Sequence[int], dtype: Any, device_mesh: DeviceMesh | None, placements: Sequence[Placement] | None, requires_grad: bool,
    layout: Any = None, fill: Any = None,
) -> DTensor:  # fmt: skip
    """A DTensor whose pieces function(shape, dtype=, device=) makes."""
    mesh = device_mesh or current_mesh()
    placed = normalize_placements(placements, mesh, len(size))
    shape = compute_local_shape(size, mesh, placed)
    local = function(shape, dtype=dtype, device=mesh.device_type)
    spec = DTensorSpec(mesh, placed, TensorMeta(Size(size), _row_major(size), local.dtype))
    result = wrapped(local, spec)
    return result.requires_grad_() if requires_grad else result


def _row_major(size: Sequence[int]) -> tuple[int, ...]:
    return tuple(zeros(tuple(size), device="meta").stride())
