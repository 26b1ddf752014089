"""One parameter, its two tensors, and how one becomes the other.

    sharded   a DTensor: this rank's piece, which the optimizer updates. The modules hold it most of the time
    whole     an ordinary Parameter with all rows, which forward and backward see. One object for good, because the tape knows it; its memory comes and goes

The rows of dimension `dim` are divided into pieces of `chunk` rows; the last ones may be shorter, or empty. What travels are pieces of full length: what lies
behind the end of a short one is nobody's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.fsdp._fully_shard.meshes import Meshes
from flambeau.distributed.tensor import DTensor, Shard
from flambeau.distributed.tensor._api import wrapped
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor.pieces import Pieces, meta_of
from flambeau.distributed.tensor.placement_types import _StridedShard
from flambeau.kernels.meta import MetaArray
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor, wrap

Owners = Sequence[tuple[Module, str]]


class ShardedParam:
    """A parameter that is divided over meshes.

    owners       the modules that have it, under which names; more than one for a shared parameter
    padded       its rows, were all pieces of full length
    shape        of what all these ranks have together; with tensor parallelism that is this rank's part of the parameter
    tensor_parallel  the spec of the DTensor that it was before, None if it was an ordinary tensor
    kept         the larger piece that stays after forward, where that is asked for
    accumulated  the whole gradient of passes whose gradients have not been reduced yet
    """

    def __init__(self, param: Parameter, owners: Owners, meshes: Meshes, cut: Shard | None, *, on_cpu: bool = False, pinned: bool = False):
        self.owners, self.meshes, self.name = owners, meshes, owners[0][1]
        self.original = id(param)
        self.tensor_parallel: DTensorSpec | None = param._spec if isinstance(param, DTensor) else None
        local = param._local_tensor if isinstance(param, DTensor) else param.detach()
        self.shape = tuple(local.shape)
        self.dim = _dimension(cut, param, self.shape)
        if not param.is_contiguous():
            raise NotImplementedError(
                f"FSDP does not support non-contiguous parameters yet: {self.name} has shape {self.shape} and strides {tuple(param.stride())}. "
                "Make it contiguous before, with param.data = param.data.contiguous()"
            )
        if self.dim > 0 and self.shape[self.dim] % meshes.shard_size:
            raise NotImplementedError(
                f"FSDP does not support uneven sharding on dim {self.dim}: {self.shape} of {self.name} (world size: {meshes.shard_size})"
            )
        self.spec = self._spec(meshes, param)
        rows = self.shape[self.dim]
        self.chunk = -(-rows // meshes.shard_size)
        self.padded = self.chunk * meshes.shard_size
        self.padded_shape = self._with(self.padded)
        piece = self.piece_of(local, meshes.shard_rank).clone()
        if on_cpu and not piece.is_meta:
            piece = piece.cpu()
            piece = piece.pin_memory() if pinned else piece
        self.sharded: Any = Parameter(wrapped(piece, self.spec), requires_grad=param.requires_grad)
        self.whole: Any = None
        self.kept: Tensor | None = None
        self.accumulated: Tensor | None = None
        self.place(self.sharded)

    def _spec(self, meshes: Meshes, param: Tensor) -> DTensorSpec:
        """How its pieces make the parameter."""
        before = self.tensor_parallel
        if before is None:
            return DTensorSpec(meshes.mesh, tuple(meshes.placements(Shard(self.dim))), meta_of(param))
        if len(before.placements) > 2:
            raise NotImplementedError(
                f"FSDP only supports parameters that are DTensors on a mesh of one or two dimensions, found {before.placements} of {self.name}"
            )
        parts = before.num_shards_map[self.dim]
        cut = _StridedShard(self.dim, split_factor=parts) if parts > 1 else Shard(self.dim)
        mesh = DeviceMesh._concatenate([meshes.mesh, before.mesh])
        return DTensorSpec(mesh, (*meshes.placements(cut), *before.placements), before.tensor_meta)

    # -- pieces

    def size_of_piece(self, pieces: int) -> int:
        """The elements of one of so many pieces of full length."""
        return prod(self._with(self.padded // pieces))

    def piece_of(self, whole: Tensor, rank: int, chunk: int | None = None) -> Tensor:
        """The part of a whole that is of a rank."""
        chunk = chunk or self.chunk
        start = min(rank * chunk, self.shape[self.dim])
        return whole.narrow(self.dim, start, min(chunk, self.shape[self.dim] - start))

    def _with(self, rows: int) -> tuple[int, ...]:
        return (*self.shape[: self.dim], rows, *self.shape[self.dim + 1 :])

    @property
    def piece(self) -> Tensor:
        """What this rank sends: its piece, or the larger one it has kept."""
        return self.sharded._local_tensor if self.kept is None else self.kept

    def join(self, pieces: Tensor, place: Tensor) -> None:
        """Pieces of all ranks (ranks, elements) -> the whole, in the memory `place`; along whatever dimension it is cut."""
        ranks, rows = pieces.shape[0], self.padded // pieces.shape[0]
        place.view(self.padded_shape).unflatten(self.dim, (ranks, rows)).movedim(self.dim, 0).copy_(pieces.view(ranks, *self._with(rows)))

    def cut(self, whole: Tensor, places: Tensor) -> None:
        """A whole gradient -> pieces of all ranks (ranks, elements), cut along another dimension than the first."""
        parts = whole.unflatten(self.dim, (places.shape[0], self.chunk)).movedim(self.dim, 0)
        places.view(parts.shape).copy_(parts)

    # -- what the modules hold

    def place(self, param: Any) -> None:
        """Let the modules hold this tensor."""
        for module, name in self.owners:
            if type(module).__setattr__ is Module.__setattr__:
                module._parameters[name] = param
            else:  # modules that look at what is assigned to them
                setattr(module, name, param)

    def hold_sharded(self) -> None:
        """Let the modules hold the DTensor, and let go of the whole."""
        self.place(self.sharded)
        self.let_go()
        self.kept = None

    def hold_whole(self, place: Tensor) -> None:
        """Let the modules hold the whole, whose padded rows are in the memory `place`."""
        found = place.view(self.padded_shape)
        if self.padded_shape != self.shape:
            found = found.narrow(self.dim, 0, self.shape[self.dim])
        if self.tensor_parallel is not None:
            found = wrapped(found.detach(), _of_dtype(self.tensor_parallel, found))
        if self.whole is None:
            self.whole = Parameter(found, requires_grad=self.sharded.requires_grad)
        else:
            self.whole._array, self.whole._storage = found._array, found._shared_storage()
            if self.whole.requires_grad != self.sharded.requires_grad:
                self.whole.requires_grad_(self.sharded.requires_grad)
        self.kept = None
        self.place(self.whole)

    def hold_kept(self, meshes: Meshes) -> None:
        """Let the modules hold a larger piece of the whole, on the meshes over which it is divided until backward."""
        if self.tensor_parallel is not None:
            raise NotImplementedError(
                f"reshard_after_forward=<int> together with tensor parallelism ({self.name} was a DTensor): use True or False"
            )
        local = self.whole.detach()
        self.kept = kept = self.piece_of(local, meshes.shard_rank, self.padded // meshes.shard_size).clone()
        spec = DTensorSpec(meshes.mesh, tuple(meshes.placements(Shard(self.dim))), meta_of(local))
        self.place(Parameter(wrapped(kept, spec), requires_grad=self.whole.requires_grad))
        self.let_go()

    def let_go(self) -> None:
        """Free the memory of the whole. The tape still knows it, so it still has a shape."""
        if self.whole is None:
            return
        nothing = wrap(MetaArray(self.shape, self.whole._array.dtype))
        if self.tensor_parallel is None:
            self.whole._array = nothing._array
        else:
            self.whole._array = Pieces(nothing, self.whole._array.spec)
        self.whole._storage = nothing._shared_storage()

    def adopt(self) -> bool:
        """Take what the modules hold for the DTensor: it may have been replaced, by to_empty() or load_state_dict(assign=True). Whether it was."""
        module, name = self.owners[0]
        held: Any = module._parameters.get(name)
        if held is self.sharded or held is self.whole or self.kept is not None:
            return False
        if not isinstance(held, DTensor) or held.placements != self.spec.placements:
            raise RuntimeError(
                f"the parameter {self.name} of {type(module).__name__} was divided by FSDP, and has been replaced by {_shown(held)}. Load values "
                "into it with load_state_dict, write to it under no_grad, or replace it by a DTensor with the same placements "
                f"{tuple(self.spec.placements)}"
            )
        self.sharded = held
        self.place(held)
        return True

    # -- gradients

    def take_gradient(self, dtype: Any) -> None:
        """Move what the whole has received to what is to be reduced."""
        if self.whole is None or self.whole._grad is None:
            return
        grad, self.whole._grad = self.whole._grad, None
        if isinstance(grad, DTensor):
            grad = self._on_tensor_parallel_mesh(grad)
        elif grad.is_sparse:
            raise NotImplementedError(
                f"the gradient of {self.name} is sparse, which FSDP does not reduce. Make the module without sparse=True"
            )
        if grad.dtype != dtype:
            grad = grad.to(dtype)
        if self.accumulated is None:
            self.accumulated = grad
        else:
            self.accumulated.add_(grad)

    def _on_tensor_parallel_mesh(self, grad: DTensor) -> Tensor:
        """This rank's part of a gradient, placed as the parameter is."""
        assert self.tensor_parallel is not None
        if grad.placements != self.tensor_parallel.placements:
            grad = grad.redistribute(placements=self.tensor_parallel.placements)
        return grad._local_tensor

    def give_gradient(self, piece: Tensor) -> None:
        """Add this rank's piece of the reduced gradient to `.grad` of the DTensor."""
        local = self.sharded._local_tensor
        length = local.numel()
        grad = piece.narrow(0, 0, length).view(local.shape)
        if grad.device != local.device:
            grad = grad.to(local.device)
        have = self.sharded._grad
        if have is None:
            self.sharded._grad = wrapped(grad, _of_dtype(self.sharded._spec, grad))
        else:
            have._local_tensor.add_(grad)
        for hook in list((self.sharded._post_accumulate or {}).values()):
            hook(self.sharded)


def _dimension(cut: Any, param: Tensor, shape: tuple[int, ...]) -> int:
    """Along which dimension a parameter is cut."""
    if cut is None:
        return 0
    if not isinstance(cut, Shard):
        raise AssertionError(f"Expected Shard, got {type(cut)}: {cut}. shard_placement_fn returns a Shard, or None for Shard(0)")
    dim = cut.dim + len(shape) if cut.dim < 0 else cut.dim
    if not 0 <= dim < len(shape):
        raise AssertionError(f"Shard dim {cut.dim} is invalid for {len(shape)}D tensor: {tuple(param.shape)}")
    return dim


def _of_dtype(spec: DTensorSpec, tensor: Tensor) -> DTensorSpec:
    meta = spec._meta
    return (
        spec if meta.dtype == tensor.dtype else DTensorSpec(spec.mesh, spec.placements, TensorMeta(meta.shape, meta.stride, tensor.dtype))
    )


def _shown(held: Any) -> str:
    return (
        f"a DTensor placed {held.placements}"
        if isinstance(held, DTensor)
        else f"a plain {type(held).__name__}"
        if held is not None
        else "None"
    )
